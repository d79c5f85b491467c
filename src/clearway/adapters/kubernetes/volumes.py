"""Claims on volumes, as far as they say where a pod may lie. No I/O.

A claim that is bound ties its pods to where its volume can be reached. One whose class waits for its first consumer is
bound when a node is chosen for the pod: a volume that is there already is given to the claim, or the claim is told the
node (annotation `selected-node`), so that its provisioner makes a volume there. Any other claim that is not bound is
waited for. As the plugins VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits of kube-scheduler judge.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from clearway.adapters.kubernetes.facts import Amounts, Expression, NodeFacts, PodFacts, Term
from clearway.adapters.kubernetes.parse_company import parse_selector, parse_term
from clearway.adapters.kubernetes.placement import matches_affinity, meets_all
from clearway.wire.units import parse_kubernetes_quantity

Json = Mapping[str, Any]

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Labels of volumes that name where they are, `__` between several values."""

ONE_POD: Final = "ReadWriteOncePod"

Key = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be done for one claim before its pod is bound: `volume` is given to it, or, where that is "", a node
    is named to it. uid: of the claim."""

    claim: Key
    uid: str
    volume: str


class Volumes:
    """Claims, volumes and classes as they were last seen, as the API server wrote them."""

    def __init__(self) -> None:
        self._claims: dict[Key, Json] = {}
        self._volumes: dict[str, Json] = {}
        self._classes: dict[str, Json] = {}
        self._taken: dict[str, Key] = {}
        self._promised: dict[Key, tuple[NodeFacts, str]] = {}
        self._told: dict[Key, str] = {}
        self._limits: dict[str, dict[str, int]] = {}
        self._users: dict[Key, dict[str, None]] = {}

    def put(self, kind: str, data: Json) -> None:
        """An object of this kind (its plural in the API) was seen."""
        name = data["metadata"]["name"]
        match kind:
            case "persistentvolumeclaims":
                self._claims[data["metadata"]["namespace"], name] = data
            case "persistentvolumes":
                self._volumes[name] = data
            case "storageclasses":
                self._classes[name] = data
            case "csinodes":
                self._limits[name] = _find_limits(data)

    def drop(self, kind: str, data: Json) -> None:
        """It is gone."""
        name = data["metadata"]["name"]
        match kind:
            case "persistentvolumeclaims":
                key = data["metadata"]["namespace"], name
                self._claims.pop(key, None)
                self._told.pop(key, None)
                self._taken = {volume: owner for volume, owner in self._taken.items() if owner != key}
            case "persistentvolumes":
                self._volumes.pop(name, None)
                self._taken.pop(name, None)
            case "storageclasses":
                self._classes.pop(name, None)
            case "csinodes":
                self._limits.pop(name, None)

    def use(self, pod: PodFacts, *, is_over: bool = False) -> None:
        """The pod lies somewhere, or does not any more."""
        for name in pod.claims:
            users = self._users.setdefault((pod.namespace, name), {})
            users.pop(pod.uid, None)
            if not is_over:
                users[pod.uid] = None
            elif not users:
                del self._users[pod.namespace, name]
                self._promised.pop((pod.namespace, name), None)

    # --- where pods may lie -----------------------------------------------------------------------------------------

    def places_of(self, pod: PodFacts) -> tuple[tuple[Term, ...], ...]:
        """Terms on nodes, one of each group of which must hold."""
        groups = (self._places_of_claim((pod.namespace, name)) for name in pod.claims)
        return tuple(sorted({group for group in groups if group}, key=repr))

    def bound_places_of(self, pod: PodFacts) -> tuple[tuple[Term, ...], ...]:
        """The same of those of its claims that are bound."""
        keys = ((pod.namespace, name) for name in pod.claims)
        groups = (self._places_of_claim(key) for key in keys if self.is_bound(key))
        return tuple(sorted({group for group in groups if group}, key=repr))

    def find_lack(self, pod: PodFacts) -> str:
        """What the pod's claims wait for, whatever the node; "" = nothing."""
        for name in pod.claims:
            claim = self._claims.get((pod.namespace, name))
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                return f'persistentvolumeclaim "{name}" not found'
            if not _is_bound(claim) and not self._waits(claim):
                return f"pod has unbound immediate PersistentVolumeClaims ({name})"
            if _is_bound(claim) and claim["spec"]["volumeName"] not in self._volumes:
                return f'persistentvolume "{claim["spec"]["volumeName"]}" not found'
            if ONE_POD in (claim["spec"].get("accessModes") or ()) and self._is_used(pod, name):
                return f"another pod uses PersistentVolumeClaim {name}, whose access mode is {ONE_POD}"
        return ""

    def _is_used(self, pod: PodFacts, name: str) -> bool:
        return any(uid != pod.uid for uid in self._users.get((pod.namespace, name), ()))

    def count_attached(self, pod: PodFacts) -> Amounts:
        """How many volumes the pod needs on its node of each CSI driver that can only attach so many."""
        limited = {driver for limits in self._limits.values() for driver in limits} if pod.claims else set()
        return tuple(sorted(Counter(driver for driver, _ in self._attached_by(pod) if driver in limited).items()))

    def exceeds(self, attached: Amounts, node: str, others: Iterable[PodFacts]) -> bool:
        """Whether a node cannot attach so many volumes beside those of the pods there."""
        limits = self._limits.get(node, {})
        if not any(driver in limits for driver, _ in attached):
            return False
        there = Counter(driver for driver, _ in {one for pod in others if pod.claims for one in self._attached_by(pod)})
        return any(there[driver] + count > limits[driver] for driver, count in attached if driver in limits)

    def is_for_one(self, pod: PodFacts) -> bool:
        """Whether no other pod may use some of the pod's claims beside it."""
        claims = (self._claims.get((pod.namespace, name)) for name in pod.claims)
        return any(claim is not None and ONE_POD in (claim["spec"].get("accessModes") or ()) for claim in claims)

    def _attached_by(self, pod: PodFacts) -> set[tuple[str, str]]:
        """Volumes of CSI drivers that the pod needs on its node, as driver and volume."""
        found = set()
        for name in pod.claims:
            claim = self._claims.get((pod.namespace, name))
            volume = None if claim is None else self._volumes.get(claim["spec"].get("volumeName") or "")
            if volume is not None and "csi" in volume["spec"]:
                found.add((volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]))
            elif claim is not None and volume is None:
                provisioner = self._classes.get(claim["spec"].get("storageClassName") or "", {}).get("provisioner", "")
                found.add((provisioner, f"{pod.namespace}/{name}"))
        return found

    def _places_of_claim(self, key: Key) -> tuple[Term, ...]:
        claim = self._claims.get(key)
        if claim is None:
            return ()
        if _is_bound(claim):
            volume = self._volumes.get(claim["spec"]["volumeName"])
            return () if volume is None else _places_of_volume(volume)
        found = [_places_of_volume(volume) for volume in self._free_volumes(key, claim)]
        if self._can_provision(claim):
            found.append(self._places_of_class(claim))
        if any(not terms for terms in found):
            return ()
        return tuple(sorted({term for terms in found for term in terms}, key=repr)) or (Term(),)

    def _waits(self, claim: Json) -> bool:
        found = self._classes.get(claim["spec"].get("storageClassName") or "")
        return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _can_provision(self, claim: Json) -> bool:
        found = self._classes.get(claim["spec"].get("storageClassName") or "")
        return found is not None and found.get("provisioner") != NO_PROVISIONER

    def _places_of_class(self, claim: Json) -> tuple[Term, ...]:
        topologies = self._classes[claim["spec"]["storageClassName"]].get("allowedTopologies") or ()
        return tuple(
            Term(tuple(Expression(one["key"], "In", tuple(one["values"])) for one in term["matchLabelExpressions"]))
            for term in topologies
        )

    # --- what is done for them --------------------------------------------------------------------------------------

    def promise(self, pod: PodFacts, node: NodeFacts) -> str:
        """Keep for claims of the pod that are not bound what `choose` will give them, before others of its gang are
        judged; why they cannot be bound near the node, "" = they can. It is over with the last pod that uses them."""
        for key, claim in self._unbound(pod):
            first = self._promised.get(key)
            if first is not None and not self._is_near(first, node):
                return f"claim {key[1]}, which pods of its gang share, would be bound elsewhere"
            volume = self._find_volume(key, claim, node) if first is None else ""
            if first is None and not volume and not self._can_provision(claim):
                return f"no volume is left there for claim {key[1]}"
            self._promised.setdefault(key, (node, volume))
        return ""

    def take_back(self, pod: PodFacts) -> None:
        """What was promised to a pod that lies nowhere after all is not kept any more."""
        for name in pod.claims:
            if (pod.namespace, name) not in self._users:
                self._promised.pop((pod.namespace, name), None)

    def _is_near(self, promised: tuple[NodeFacts, str], node: NodeFacts) -> bool:
        """Whether what was promised near one node can be reached from another."""
        first, volume = promised
        labels, others = dict(node.labels), dict(first.labels)
        if volume in self._volumes:
            return matches_affinity((), _places_of_volume(self._volumes[volume]), labels, node.name)
        return all(labels.get(key) == others.get(key) for key in ZONE_LABELS)

    def choose(self, pod: PodFacts, node: NodeFacts) -> tuple[Choice, ...]:
        """What is to be done for claims of the pod that are not bound; the volumes are kept for them."""
        choices = []
        for key, claim in self._unbound(pod):
            volume = self._find_volume(key, claim, node)
            if volume:
                self._taken[volume] = key
            choices.append(Choice(key, claim["metadata"]["uid"], volume))
        return tuple(choices)

    def _unbound(self, pod: PodFacts) -> Iterable[tuple[Key, Json]]:
        for name in pod.claims:
            claim = self._claims.get((pod.namespace, name))
            if claim is not None and not _is_bound(claim):
                yield (pod.namespace, name), claim

    def _find_volume(self, key: Key, claim: Json, node: NodeFacts) -> str:
        """The volume that was promised, else the smallest that can be reached; "" = none."""
        fitting = {
            volume["metadata"]["name"]: volume
            for volume in self._free_volumes(key, claim)
            if matches_affinity((), _places_of_volume(volume), dict(node.labels), node.name)
        }
        _, promised = self._promised.get(key, (None, ""))
        return (
            promised if promised in fitting else min(fitting, key=lambda name: (_size(fitting[name]), name), default="")
        )

    def is_bound(self, key: Key) -> bool:
        """Whether the claim is bound by now."""
        claim = self._claims.get(key)
        return claim is not None and _is_bound(claim)

    def was_given_up(self, key: Key, node: str) -> bool:
        """Whether the claim is gone, or was seen with this node told to it and is without it now: so a provisioner says
        that it cannot make a volume there."""
        claim = self._claims.get(key)
        if claim is None:
            return True
        told = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if told == node:
            self._told[key] = node
            return False
        return self._told.pop(key, "") == node

    def _free_volumes(self, key: Key, claim: Json) -> Iterable[Json]:
        """Volumes that are nobody's, or kept for this claim, and do for it."""
        spec = claim["spec"]
        selector = parse_selector(spec.get("selector"))
        kept = {volume: owner for owner, (_, volume) in self._promised.items() if volume} | self._taken
        for name, volume in self._volumes.items():
            owner = volume["spec"].get("claimRef")
            is_mine = owner is not None and (owner.get("namespace"), owner.get("name")) == key
            if not is_mine and (owner is not None or kept.get(name, key) != key):
                continue
            if not is_mine and (volume.get("status") or {}).get("phase") != "Available":
                continue
            if (volume["spec"].get("storageClassName") or "") != (spec.get("storageClassName") or ""):
                continue
            if not set(spec.get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ()):
                continue
            if (volume["spec"].get("volumeMode") or "Filesystem") != (spec.get("volumeMode") or "Filesystem"):
                continue
            if selector is not None and not meets_all(selector, volume["metadata"].get("labels") or {}):
                continue
            if _size(volume) >= parse_kubernetes_quantity(spec["resources"]["requests"]["storage"]):
                yield volume


def _is_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in (claim["metadata"].get("annotations") or {})


def _find_limits(data: Json) -> dict[str, int]:
    """Volumes that a node can attach, by driver; a driver without a number has no limit."""
    drivers = (data.get("spec") or {}).get("drivers") or ()
    counts = ((one["name"], (one.get("allocatable") or {}).get("count")) for one in drivers)
    return {name: int(count) for name, count in counts if count is not None}


def _size(volume: Json) -> Fraction:
    """Bytes; file systems over the network may say any number."""
    return parse_kubernetes_quantity(volume["spec"]["capacity"]["storage"])


def _places_of_volume(volume: Json) -> tuple[Term, ...]:
    """Terms on nodes, one of which must hold; () = the volume can be reached from anywhere."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = tuple(parse_term(term) for term in required.get("nodeSelectorTerms") or ())
    labels = volume["metadata"].get("labels") or {}
    zones = tuple(Expression(key, "In", tuple(labels[key].split("__"))) for key in ZONE_LABELS if key in labels)
    if not zones:
        return terms
    return tuple(Term((*term.labels, *zones), term.fields) for term in terms or (Term(),))
