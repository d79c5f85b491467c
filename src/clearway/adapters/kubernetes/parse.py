"""Objects of the API server (JSON as it comes) to facts. Pure and total: UnreadableError names the object.

Requests of a pod are what the scheduler of Kubernetes counts (KEP-753, KEP-2837): the larger of all containers with
their sidecars and the highest moment of the init containers, plus overhead; requests of the pod as a whole, where it
states some, stand instead for CPUs and memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import (
    Amounts,
    Demand,
    NodeFacts,
    Owner,
    Pairs,
    PodFacts,
    PodPhase,
    Share,
    Taint,
    Toleration,
)
from clearway.adapters.kubernetes.parse_company import REQUIRED, parse_company, parse_term, parse_wishes
from clearway.adapters.kubernetes.shares import (
    GPU,
    HAMI_RESOURCES,
    SHARE_ANNOTATIONS,
    find_held,
    find_share_fault,
    parse_registered,
    parse_share,
)
from clearway.model.units import DEVICES_PER_MODEL_MAX, MIB
from clearway.wire.problems import ParseError
from clearway.wire.units import AMOUNT_MAX, parse_kubernetes_cpu, parse_kubernetes_memory

Json = Mapping[str, Any]

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"

REMEMBERED_MAX: Final = 4_096
"""Quantities and names of resources whose meaning is remembered: pods are made by templates, and say the same."""

SAYING_PREFIXES: Final = (
    "clearway.io/",
    "kueue.x-k8s.io/",
    "kai.scheduler/",
    "jobset.sigs.k8s.io/",
    "scheduling.k8s.io/",
    "scheduling.x-k8s.io/",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "training.kubeflow.org/",
    "ray.io/",
    "batch.kubernetes.io/",
    "hami.io/",
)
"""Labels and annotations of pods that are kept; the rest may be large and says nothing to a scheduler."""

STATUSES: Final = ("containerStatuses", "initContainerStatuses")

NO_SIZES: Final[Mapping[str, dict[str, int]]] = MappingProxyType({})
"""Of a pod of which nothing is being resized."""

INDEX_KEYS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "apps.kubernetes.io/pod-index",
)


def parse_node(data: Json, config: KubernetesConfig) -> NodeFacts:
    """A v1.Node. Raises UnreadableError."""
    try:
        metadata, spec, status = data["metadata"], data.get("spec", {}), data.get("status", {})
        labels = dict(metadata.get("labels") or {})
        amounts = parse_amounts(status.get("allocatable") or {})
        shared = parse_registered(metadata.get("annotations") or {})
        return NodeFacts(
            uid=metadata["uid"],
            name=metadata["name"],
            amounts=amounts,
            devices=((GPU, len(shared)),) if shared else _parse_devices(status, config),
            labels=_sorted_pairs(labels.items()),
            taints=_parse_taints(spec.get("taints") or ()),
            is_ready=any(
                condition.get("type") == "Ready" and condition.get("status") == "True"
                for condition in status.get("conditions") or ()
            ),
            is_cordoned=bool(spec.get("unschedulable", False)),
            model=str(labels.get("nvidia.com/gpu.product") or (shared[0].model if shared else "")),
            device_memory_bytes=shared[0].memory_bytes
            if shared
            else parse_mib(labels.get("nvidia.com/gpu.memory", "")),
            shared=shared,
        )
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, ParseError) as error:
        raise _unreadable("node", data, error) from error


def parse_pod(data: Json, config: KubernetesConfig, known: PodFacts | None = None) -> PodFacts:
    """A v1.Pod. known: as it was before; what its spec says is not read again where that is the same. Raises
    UnreadableError."""
    try:
        return (None if known is None else _renew(known, data)) or _parse_pod(data, config)
    except (KeyError, TypeError, AttributeError, ValueError, ParseError) as error:
        raise _unreadable("pod", data, error) from error


def parse_stub(data: Json) -> PodFacts | None:
    """Who a pod is, of one that cannot be read as a whole; None where not even that can be read."""
    try:
        metadata, spec = data["metadata"], data["spec"]
        return PodFacts(
            uid=str(metadata["uid"]),
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            node=str(spec.get("nodeName") or ""),
            phase=PodPhase.UNKNOWN,
            scheduler=str(spec.get("schedulerName") or ""),
            priority=0,
            amounts=(),
            devices=0,
            demand=Demand(),
            owner=None,
            labels=(),
            annotations=(),
        )
    except (LookupError, TypeError, AttributeError):
        return None


def _renew(known: PodFacts, data: Json) -> PodFacts | None:
    """The pod with its place and its state as they are now; None where more may have changed."""
    metadata, status = data["metadata"], data.get("status") or {}
    if not known.generation or metadata.get("generation") != known.generation or known.device_claims:
        return None
    if known.is_resized or find_sizes(data["spec"], status):
        return None
    if _sorted_pairs((metadata.get("labels") or {}).items()) != known.marks:
        return None
    if _find_said(metadata.get("annotations") or {}) != known.annotations:
        return None
    return replace(
        known,
        node=data["spec"].get("nodeName") or "",
        phase=PodPhase(status.get("phase") or "Pending"),
        exit_code=_parse_exit_code(status),
        is_leaving=metadata.get("deletionTimestamp") is not None,
        nominated=status.get("nominatedNodeName") or "",
    )


def _find_said(annotations: Mapping[str, str]) -> Pairs:
    return _sorted_pairs(
        item for item in annotations.items() if item[0].startswith(SAYING_PREFIXES) or item[0] in SHARE_ANNOTATIONS
    )


def _parse_pod(data: Json, config: KubernetesConfig) -> PodFacts:
    metadata, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    sizes = find_sizes(spec, status)
    asked = {name: amount for name, amount in sum_requests(spec, sizes).items() if name not in HAMI_RESOURCES}
    devices = {name: count for name, count in asked.items() if count and is_device(name, config)}
    device = next(iter(sorted(devices)), "")
    each = [_requests_of(one) for one in (*(spec.get("initContainers") or ()), *spec["containers"])]
    share, unsupported = _parse_share(each, annotations, devices)
    demand = _parse_demand(spec, asked, device or (GPU if share is not None else ""), config)
    return PodFacts(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=spec.get("nodeName") or "",
        phase=PodPhase(status.get("phase") or "Pending"),
        scheduler=spec.get("schedulerName") or "",
        priority=None if spec.get("priority") is None else int(spec["priority"]),
        amounts=tuple(sorted(asked.items())),
        devices=devices.get(device, 0) or (0 if share is None else 1),
        demand=demand if share is None else replace(demand, sharing=share.by),
        owner=_parse_owner(metadata.get("ownerReferences") or ()),
        labels=_sorted_pairs(item for item in labels.items() if item[0].startswith(SAYING_PREFIXES)),
        annotations=_find_said(annotations),
        created=metadata.get("creationTimestamp") or "",
        pod_group=(spec.get("schedulingGroup") or {}).get("podGroupName") or "",
        grace_ms=min(1_000 * int(spec.get("terminationGracePeriodSeconds") or 0), AMOUNT_MAX),
        exit_code=_parse_exit_code(status),
        index=_parse_index(labels, annotations),
        is_leaving=metadata.get("deletionTimestamp") is not None,
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        marks=_sorted_pairs(labels.items()),
        company=parse_company(spec, labels, metadata["namespace"]),
        wishes=parse_wishes(spec),
        claims=tuple(sorted(_find_claims(spec, metadata["name"]))),
        nominated=status.get("nominatedNodeName") or "",
        device_claims=tuple(_find_device_claims(spec, status)),
        claim_sources=tuple(sorted(str(one) for one in map(_claim_source, spec.get("resourceClaims") or ()))),
        share=share,
        device_spread=tuple(one.get(GPU, 0) for one in each) if device == GPU else (),
        held=find_held(annotations)[: devices.get(GPU, 0)],  # anybody can write annotations
        priority_class=spec.get("priorityClassName") or "",
        preempts=spec.get("preemptionPolicy") != "Never",
        is_resized=bool(sizes),
        generation=int(metadata.get("generation") or 0),
        unsupported=(*_find_unsupported(devices), *unsupported),
    )


def _parse_devices(status: Json, config: KubernetesConfig) -> Amounts:
    """What the node has, not what it gives out at the moment: a device that its plugin finds sick is still there."""
    amounts = parse_amounts(status.get("capacity") or status.get("allocatable") or {})
    return tuple((name, count) for name, count in amounts if count and is_device(name, config))


def is_device(resource: str, config: KubernetesConfig) -> bool:
    """Whether an extended resource is a device."""
    return _matches(resource, config.device_resources)


@lru_cache(REMEMBERED_MAX)
def _matches(resource: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in patterns)


# --- amounts ----------------------------------------------------------------------------------------------------------


def parse_amounts(quantities: Mapping[str, Any]) -> Amounts:
    """Quantities by resource, sorted: CPUs in thousandths, the rest in its own unit, rounded up. Raises ParseError."""
    return tuple(sorted((name, _parse_quantity(name, text)) for name, text in quantities.items()))


@lru_cache(REMEMBERED_MAX, typed=True)
def _parse_quantity(name: str, text: Any) -> int:
    return parse_kubernetes_cpu(text) if name == CPU else parse_kubernetes_memory(text)


def find_sizes(spec: Json, status: Json) -> dict[str, dict[str, int]]:
    """What containers hold of CPUs and memory that are being resized in place, by name, and the whole pod by "": the
    most of what is asked, let in and had, as kube-scheduler counts; what the node can never give does not count. Raises
    ParseError."""
    pending: Json = next((one for one in status.get("conditions") or () if one.get("type") == "PodResizePending"), {})
    statuses = {one.get("name"): one for key in STATUSES for one in status.get(key) or ()}
    found = {}
    for container in (*spec["containers"], *filter(_is_sidecar, spec.get("initContainers") or ())):
        seen = statuses.get(container.get("name"), {})
        if seen.get("resources") is not None:
            wanted = (container.get("resources") or {}).get("requests") or {}
            found[container["name"]] = (
                wanted,
                seen["resources"].get("requests") or {},
                seen.get("allocatedResources") or {},
            )
    if status.get("resources") is not None and (whole := (spec.get("resources") or {}).get("requests")):
        found[""] = whole, status["resources"].get("requests") or {}, status.get("allocatedResources") or {}
    sizes = {name: _find_size(pending.get("reason") == "Infeasible", *amounts) for name, amounts in found.items()}
    return {name: size for name, size in sizes.items() if size}


def _find_size(is_in_vain: bool, wanted: Json, had: Json, let_in: Json) -> dict[str, int]:
    """{} where it is as it is asked."""
    if all(amounts.get(name) in (None, wanted.get(name)) for amounts in (had, let_in) for name in (CPU, MEMORY)):
        return {}
    size: dict[str, int] = {}
    for amounts in (had, let_in) if is_in_vain else (wanted, had, let_in):
        _raise_to(size, dict(parse_amounts({name: amounts[name] for name in (CPU, MEMORY) if name in amounts})))
    return size


def _is_sidecar(container: Json) -> bool:
    """Whether an init container runs as long as the pod."""
    return bool(container.get("restartPolicy") == "Always")


def sum_requests(spec: Json, sizes: Mapping[str, dict[str, int]] = NO_SIZES) -> dict[str, int]:
    """What a pod asks of its node, one pod of room included; at most AMOUNT_MAX, which no node has. sizes: see
    `find_sizes`. Raises ParseError."""
    running: dict[str, int] = {}
    for container in spec["containers"]:
        _add(running, _requests_of(container) | sizes.get(container.get("name"), {}))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        moment = _requests_of(container) | sizes.get(container.get("name"), {})
        _add(moment, sidecars)
        _raise_to(peak, moment)
        if _is_sidecar(container):
            sidecars = moment
    _add(running, sidecars)
    _raise_to(running, peak)
    whole = dict(parse_amounts((spec.get("resources") or {}).get("requests") or {}))
    running.update(whole | sizes.get("", {}))
    _add(running, dict(parse_amounts(spec.get("overhead") or {})))
    running[PODS] = 1
    return {name: min(amount, AMOUNT_MAX) for name, amount in running.items()}


def _requests_of(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    return dict(parse_amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})}))


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


def parse_mib(text: str) -> int:
    """MiB as a label says it, in bytes; 0 for what is no number."""
    return min(int(text) * MIB, AMOUNT_MAX) if text.isdecimal() else 0


# --- where it may lie -------------------------------------------------------------------------------------------------


def _parse_demand(spec: Json, asked: Mapping[str, int], device: str, config: KubernetesConfig) -> Demand:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(REQUIRED) or {}
    others = {
        name: amount
        for name, amount in asked.items()
        if amount and name not in (CPU, MEMORY) and not is_device(name, config)
    }
    return Demand(
        selector=_sorted_pairs((spec.get("nodeSelector") or {}).items()),
        terms=tuple(parse_term(term) for term in required.get("nodeSelectorTerms") or ()),
        tolerations=tuple(_parse_toleration(one) for one in spec.get("tolerations") or () if _is_known(one)),
        device=device,
        others=tuple(sorted(others.items())),
        ports=tuple(sorted(_find_ports(spec))),
    )


def _is_known(toleration: Json) -> bool:
    """Whether it compares as is known here; what does not (`Gt`, `Lt`: alpha) bears nothing."""
    return (toleration.get("operator") or "Equal") in ("Equal", "Exists")


def _parse_toleration(data: Json) -> Toleration:
    return Toleration(
        key=data.get("key") or "",
        value=data.get("value") or "",
        effect=data.get("effect") or "",
        exists=data.get("operator") == "Exists",
    )


def _parse_taints(taints: Iterable[Json]) -> tuple[Taint, ...]:
    return tuple(Taint(taint["key"], taint.get("value") or "", taint["effect"]) for taint in taints)


def _find_ports(spec: Json) -> Iterable[tuple[int, str, str]]:
    for container in (*spec["containers"], *filter(_is_sidecar, spec.get("initContainers") or ())):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield int(port["hostPort"]), port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0"  # noqa: S104


def _find_claims(spec: Json, name: str) -> Iterable[str]:
    """Claims of the pod's volumes; one that lives as long as the pod is named after both."""
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield f"{name}-{volume['name']}"


def _find_device_claims(spec: Json, status: Json) -> Iterable[str]:
    """Names of the pod's ResourceClaims, those of its templates once they are made; "" = not yet."""
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    for one in spec.get("resourceClaims") or ():
        name = one.get("resourceClaimName") or made.get(one["name"], "")
        if name is not None:  # the pod needs none after all, says whoever makes them
            yield name


def _claim_source(data: Json) -> str:
    template = data.get("resourceClaimTemplateName")
    return f"template {template}" if template else "a claim"


def _parse_share(
    containers: list[dict[str, int]], annotations: Mapping[str, str], devices: Mapping[str, int]
) -> tuple[Share | None, tuple[str, ...]]:
    """The part of a device that a pod asks, and what of it cannot be."""
    try:
        share = parse_share(containers, annotations)
    except ParseError as error:
        return None, (f"a share of a device: {error}",)
    fault = "" if share is None else find_share_fault(share, devices.get(GPU, 0), containers, annotations)
    return share, (fault,) if fault else ()


def _find_unsupported(devices: Mapping[str, int]) -> Iterable[str]:
    """What the pod asks that cannot be promised: binding it regardless could be wrong."""
    if len(devices) > 1:
        yield f"several kinds of devices at once ({', '.join(sorted(devices))})"
    if any(count > DEVICES_PER_MODEL_MAX for count in devices.values()):
        yield f"more than {DEVICES_PER_MODEL_MAX} devices in one pod"


# --- leaves -----------------------------------------------------------------------------------------------------------


def _parse_owner(references: Iterable[Json]) -> Owner | None:
    for reference in references:
        if reference.get("controller"):
            return Owner(reference["apiVersion"], reference["kind"], reference["name"], reference["uid"])
    return None


def _parse_index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    for key in INDEX_KEYS:
        text = annotations.get(key) or labels.get(key) or ""
        if text.isdecimal():
            return int(text)
    return -1


def _parse_exit_code(status: Json) -> int:
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return int(ended["exitCode"])
    return 0


def _sorted_pairs(items: Iterable[tuple[str, Any]]) -> Pairs:
    return tuple(sorted((key, str(value)) for key, value in items))


def _unreadable(kind: str, data: Json, error: Exception) -> UnreadableError:
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    name = metadata.get("name", "?") if isinstance(metadata, Mapping) else "?"
    return UnreadableError(f"{kind} {name!r}: expected an object as the API describes it, found {error!r}")
