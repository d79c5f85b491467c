"""Which nodes a pod may lie on, as Kubernetes' own scheduler judges: labels, affinity, taints, ports, other resources.

The engine knows labels that a node carries or does not, so each distinct demand becomes one label of Clearway's own
(`demand_label`): the book gives it to exactly those nodes that `find_mismatch` has nothing against, and takes it away
when that changes. CPUs, memory and devices are the engine's own. Pure.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from clearway.adapters.kubernetes.facts import Demand, Expression, NodeFacts, Pairs, Selector, Taint, Term, Toleration

HAMI: Final = "hami"
"""Who makes parts of devices on nodes where its device plugin has registered them; on all others KAI's binder may."""

DEMAND_PREFIX: Final = "clearway.io/admits-"

CORDON_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What `kubectl cordon` means; a pod that bears it may still go there."""

PREFER_NOT: Final = "PreferNoSchedule"
"""Effect of a taint that is only a wish."""

INTEGER: Final = re.compile("[+-]?[0-9]{1,18}")
"""What a comparison takes for a number: Python alone would take `1_000`, which a label may be, for one."""

_HEX_DIGITS: Final = 16
"""64 bits: two demands of one cluster do not meet by chance."""


def demand_label(demand: Demand) -> tuple[str, str]:
    """The label, as key and value, that stands for a demand; the same in every process."""
    digest = hashlib.sha256(repr(demand).encode()).hexdigest()[:_HEX_DIGITS]
    return DEMAND_PREFIX + digest, "true"


def find_mismatch(
    demand: Demand,
    node: NodeFacts,
    free: Mapping[str, int],
    ports: Collection[tuple[int, str, str]] = (),
) -> str:
    """Why a pod of this demand may not lie on the node, in the words of kubectl's users; "" = nothing is against it.

    free: what is left of resources other than CPUs, memory and devices. ports: host ports in use there.
    """
    return find_lasting_mismatch(demand, node) or find_shortage(demand, free, ports)


def find_lasting_mismatch(demand: Demand, node: NodeFacts) -> str:
    """The part of it that is so whatever else lies there."""
    return (
        _find_taint(demand.tolerations, node)
        or _find_label_mismatch(demand, node)
        or _find_volume_mismatch(demand, node)
        or _find_device_mismatch(demand, node)
    )


def find_shortage(demand: Demand, free: Mapping[str, int], ports: Collection[tuple[int, str, str]] = ()) -> str:
    """The part of it that depends on what else lies there."""
    for name, amount in demand.others:
        if free.get(name, 0) < amount:
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return "node(s) didn't have free ports for the requested pod ports" if _clashes(demand, ports) else ""


def summarize_mismatches(mismatches: Iterable[str]) -> str:
    """`0/5 nodes are available: 3 ..., 2 ...`, the commonest first, of one phrase per node; "" ones are left out."""
    found = list(mismatches)
    counts = Counter(text for text in found if text)
    parts = ", ".join(f"{count} {text}" for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    fitting = len(found) - sum(counts.values())
    return f"{fitting}/{len(found)} nodes are available" + (f": {parts}." if parts else ".")


def score_node(wishes: tuple[tuple[int, Term], ...], tolerations: tuple[Toleration, ...], node: NodeFacts) -> int:
    """How much a pod likes the node, 0..100: preferred node affinity, and taints that only wish it away, as the plugins
    NodeAffinity and TaintToleration weigh them (2 to 3)."""
    labels = dict(node.labels)
    most = sum(weight for weight, _ in wishes)
    found = sum(weight for weight, term in wishes if _holds(term, labels, node.name))
    repelled = any(
        taint.effect == PREFER_NOT and not any(one.bears(taint) for one in tolerations) for taint in node.taints
    )
    by_wishes = 100 * found // most if most > 0 else 0
    return (2 * by_wishes + 3 * (0 if repelled else 100)) // 5


def _find_taint(tolerations: tuple[Toleration, ...], node: NodeFacts) -> str:
    if node.is_cordoned and not any(one.bears(CORDON_TAINT) for one in tolerations):
        return "node(s) were unschedulable"
    for taint in node.taints:
        if taint.effect == PREFER_NOT or (taint.key == CORDON_TAINT.key and node.is_cordoned):
            continue
        if not any(one.bears(taint) for one in tolerations):
            value = f": {taint.value}" if taint.value else ""
            return f"node(s) had untolerated taint {{{taint.key}{value}}}"
    return ""


def _find_label_mismatch(demand: Demand, node: NodeFacts) -> str:
    if matches_affinity(demand.selector, demand.terms, dict(node.labels), node.name):
        return ""
    return "node(s) didn't match Pod's node affinity/selector"


def _find_volume_mismatch(demand: Demand, node: NodeFacts) -> str:
    labels = dict(node.labels) if demand.volumes else {}
    if all(any(_holds(term, labels, node.name) for term in terms) for terms in demand.volumes):
        return ""
    return "node(s) didn't match PersistentVolume's node affinity"


def matches_affinity(selector: Pairs, terms: tuple[Term, ...], labels: Mapping[str, str], name: str) -> bool:
    """Whether a node of these labels and this name is what a node selector and required node affinity ask for."""
    is_selected = all(labels.get(key) == value for key, value in selector)
    return is_selected and (not terms or any(_holds(term, labels, name) for term in terms))


def bears_taints(tolerations: tuple[Toleration, ...], node: NodeFacts) -> bool:
    """Whether a pod of these tolerations may lie beside the node's taints, its cordon among them."""
    return not _find_taint(tolerations, node)


def _find_device_mismatch(demand: Demand, node: NodeFacts) -> str:
    if not demand.device:
        return ""
    offered = [name for name, _ in node.devices]
    if demand.device not in offered:
        return f"node(s) had no {demand.device}"
    if demand.sharing and (demand.sharing == HAMI) != bool(node.shared):
        return f"node(s) had no {'HAMi device plugin' if demand.sharing == HAMI else 'devices that KAI shares'}"
    return ""


def names_devices(resource: str) -> bool:
    """Whether the resource itself says what the device is (a MIG slice), so that it is its own model."""
    return resource.startswith("nvidia.com/mig-")


def _clashes(demand: Demand, ports: Collection[tuple[int, str, str]]) -> bool:
    return any(
        port == used and protocol == used_protocol and (address == used_address or "0.0.0.0" in (address, used_address))  # noqa: S104
        for port, protocol, address in demand.ports
        for used, used_protocol, used_address in ports
    )


def _holds(term: Term, labels: Mapping[str, str], name: str) -> bool:
    """A term without any requirement holds nowhere, as the API says."""
    if not term.labels and not term.fields:
        return False
    return all(_meets(one, labels) for one in term.labels) and all(
        _meets(one, {"metadata.name": name}) for one in term.fields
    )


def meets_all(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels are what a selector asks for."""
    return all(_meets(one, labels) for one in selector)


def _meets(one: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(one.key)
    match one.operator:
        case "In":
            return value is not None and value in one.values
        case "NotIn":
            return value is None or value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(one.operator, value, one.values)
    return False


def _compares(operator: str, value: str, bounds: tuple[str, ...]) -> bool:
    if len(bounds) != 1 or not (INTEGER.fullmatch(value) and INTEGER.fullmatch(bounds[0])):
        return False
    number, bound = int(value), int(bounds[0])
    return number > bound if operator == "Gt" else number < bound
