"""Parts of devices, in the words of KAI Scheduler and of HAMi, and what makes them so on a node. Pure.

Neither kubelet nor NVIDIA's device plugin knows parts of a device. KAI's *binder* makes them: by a BindRequest, it
keeps the whole device by a reservation pod, tells the container which it is, and binds the pod. HAMi's *device plugin*
makes them: it finds in the pod's annotations which devices the scheduler chose, and limits the container to its part.
Sources: KAI's `docs/gpu-sharing`, `docs/developer/binder.md` and the types of `scheduling.run.ai/v1alpha2`; HAMi's
`docs/develop/protocol.md`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clearway.adapters.kubernetes.facts import NodeFacts, PodFacts, Share, SharedDevice
from clearway.adapters.kubernetes.placement import HAMI
from clearway.model.units import MIB, MILLI
from clearway.wire.problems import ParseError
from clearway.wire.units import AMOUNT_MAX, parse_kubernetes_memory

Json = Mapping[str, Any]

KAI: Final = "kai"
GPU: Final = "nvidia.com/gpu"

FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
COUNT: Final = "gpu-fraction-num-devices"
SHARE_ANNOTATIONS: Final = (FRACTION, MEMORY, COUNT)
GROUP: Final = "runai-gpu-group"
"""Label of all pods on one shared device, and of the pod that keeps it."""

BIND_REQUESTS: Final = "/apis/scheduling.run.ai/v1alpha2"

HAMI_MEMORY: Final = "nvidia.com/gpumem"
HAMI_PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
HAMI_CORES: Final = "nvidia.com/gpucores"
HAMI_RESOURCES: Final = (HAMI_MEMORY, HAMI_PERCENTAGE, HAMI_CORES)

REGISTERED: Final = "hami.io/node-nvidia-register"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
NODE: Final = "hami.io/vgpu-node"
TIMES: Final = ("hami.io/vgpu-time", "hami.io/bind-time")
PHASE: Final = "hami.io/bind-phase"
ALLOCATING: Final = "allocating"

HUNDRED: Final = 100


def parse_share(containers: Sequence[Mapping[str, int]], annotations: Mapping[str, str]) -> Share | None:
    """What part of a device a pod asks; None = none. containers: what each of them asks. Raises ParseError."""
    if any(name in annotations for name in SHARE_ANNOTATIONS):
        return _parse_kai(annotations)
    asked = [one for one in containers if any(name in one for name in HAMI_RESOURCES)]
    return _parse_hami(asked[0]) if asked else None


def _parse_kai(annotations: Mapping[str, str]) -> Share:
    if MEMORY in annotations:
        return Share(KAI, memory_bytes=_from_mib(parse_kubernetes_memory(annotations[MEMORY])))
    text = annotations.get(FRACTION, "")
    try:
        milli = round(float(text) * MILLI)
    except (ValueError, OverflowError) as error:
        raise ParseError(expected="a gpu-fraction between 0 and 1", found=text) from error
    if not 1 <= milli <= MILLI:
        raise ParseError(expected="a gpu-fraction between 0 and 1", found=text)
    return Share(KAI, milli=milli)


def _parse_hami(asked: Mapping[str, int]) -> Share:
    """Without memory, HAMi gives all of it, and then nobody else has a part."""
    cores, percentage = min(asked.get(HAMI_CORES, 0), HUNDRED), min(asked.get(HAMI_PERCENTAGE, 0), HUNDRED)
    if memory := asked.get(HAMI_MEMORY, 0):
        return Share(HAMI, milli=cores * 10, memory_bytes=_from_mib(memory), cores=cores)
    milli = max(percentage, cores) * 10 if percentage else MILLI
    return Share(HAMI, milli=milli, cores=cores, percentage=percentage or HUNDRED)


def _from_mib(amount: int) -> int:
    return min(amount * MIB, AMOUNT_MAX)


def find_share_fault(share: Share, devices: int, containers: Sequence[Mapping[str, int]], annotations: Json) -> str:
    """What of it the engine cannot place; "" = nothing."""
    if annotations.get(COUNT, "1") != "1":
        return f"shares of several devices ({COUNT})"
    if share.by == KAI and devices:
        return f"a share ({FRACTION}, {MEMORY}) beside whole devices"
    if share.by == HAMI and devices != 1 and share.milli != MILLI:
        return f"shares of {devices} devices ({HAMI_MEMORY}): of one device only"
    if sum(1 for one in containers if one.get(GPU)) > 1:
        return "shares for several containers"
    return ""


def parse_registered(annotations: Mapping[str, str]) -> tuple[SharedDevice, ...]:
    """The devices that HAMi's plugin says its node has: JSON, or `id,parts,MiB,cores,type,numa,healthy[,...]:` each.
    Raises LookupError, TypeError, ValueError, ArithmeticError, RecursionError."""
    text = annotations.get(REGISTERED, "").strip()
    if text.startswith("["):
        found = json.loads(text)
        return tuple(
            SharedDevice(str(one["id"]), _from_mib(int(one["devmem"])), str(one["type"]), bool(one.get("health")))
            for one in found
        )
    rows = [row.split(",") for row in text.split(":") if "," in row]
    return tuple(SharedDevice(row[0], _from_mib(int(row[2])), row[4], row[6] == "true") for row in rows)


def find_held(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Ids of devices of which HAMi gave the pod a part."""
    parts = annotations.get(ALLOCATED, "").replace(";", ":").split(":")
    return tuple(dict.fromkeys(part.partition(",")[0] for part in parts if "," in part))


def resolve_milli(share: Share, memories: Iterable[int]) -> int:
    """Thousandths of a device that the share is, where it is said by memory alone: of the smallest device that has as
    much. memories: of the devices that there are. 0 = none is known that has."""
    if share.milli:
        return share.milli
    fitting = [memory for memory in memories if memory >= share.memory_bytes]
    return min(max(-(-MILLI * share.memory_bytes // min(fitting)), 1), MILLI) if fitting else 0


def make_group(node: str, device: int) -> str:
    """The name of a shared device for KAI's binder."""
    return f"clearway-{hashlib.sha256(node.encode()).hexdigest()[:16]}-{device}"


def render_hami(pod: PodFacts, node: NodeFacts, devices: Sequence[int]) -> dict[str, str]:
    """Annotations by which HAMi's plugin knows what the pod gets; {} where it is none of its nodes, or the pod has no
    devices. devices: indices on the node, as the engine chose them."""
    if not node.shared or not devices:
        return {}
    left = list(devices)
    texts = []
    for count in pod.device_spread:
        mine, left = left[:count], left[count:]
        texts.append("".join(_render_part(pod.share, node.shared[index]) for index in mine) + ";")
    chosen = "".join(texts)
    return {NODE: node.name, TO_ALLOCATE: chosen, ALLOCATED: chosen, PHASE: ALLOCATING}


def _render_part(share: Share | None, device: SharedDevice) -> str:
    memory, cores = device.memory_bytes // MIB, 0
    if share is not None:
        cores = share.cores
        memory = share.memory_bytes // MIB or memory * share.percentage // HUNDRED
    return f"{device.id},NVIDIA,{memory},{cores}:"


def make_bind_request(pod: PodFacts, node: NodeFacts, device: int) -> dict[str, Any]:
    """What KAI's binder is asked for a pod with a share of this device of the node. Raises nothing."""
    assert pod.share is not None
    portion = pod.share.milli / MILLI
    if not pod.share.milli:
        portion = pod.share.memory_bytes / max(node.device_memory_bytes, pod.share.memory_bytes)
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": {"pod-name": pod.name[:63], "selected-node": node.name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}],
        },
        "spec": {
            "podName": pod.name,
            "selectedNode": node.name,
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": f"{portion:.3f}"},
            "selectedGPUGroups": [make_group(node.name, device)],
        },
    }
