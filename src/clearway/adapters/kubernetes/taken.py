"""Which devices of a node the engine must not give out, for others hold them. Pure."""

from collections.abc import Container

from clearway.adapters.kubernetes.claims import Claims
from clearway.adapters.kubernetes.entries import NodeEntry
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.shares import GROUP, KAI, make_group
from clearway.model.units import DEVICES_PER_MODEL_MAX


def find_taken(entry: NodeEntry, ours: Container[str], claims: Claims) -> set[int]:
    """Devices, by index in the node, that stand for those that others hold. Those told before stay if they can."""
    held = {device for devices in entry.held.values() for device in devices}
    if entry.facts.shared:
        return _find_shared(entry, ours, held)
    taken: set[int] = set()
    groups = {make_group(entry.facts.name, device) for device in held}
    begin = 0
    for resource, count in entry.facts.devices:
        missing = max(count - dict(entry.facts.amounts).get(resource, 0), 0)
        others = missing + sum(
            pod.devices
            for uid, pod in entry.pods.items()
            if uid not in ours and pod.demand.device == resource and not _is_kept_for(pod, groups)
        )
        count = min(count, DEVICES_PER_MODEL_MAX)
        indices = [index for index in reversed(range(begin, begin + count)) if index not in held]
        indices.sort(key=lambda index: index not in entry.told_down)
        taken.update(indices[:others])
        begin += count
    for group in claims.groups_on(entry.facts.name):
        gone = {begin + place for place, device in enumerate(group) if not claims.is_free(device)}
        indices = [index for index in range(begin, begin + len(group)) if index not in held]
        indices.sort(key=lambda index: (index not in gone, index not in entry.told_down))
        taken.update(indices[: max(len(gone) - (len(group) - len(indices)), 0)])
        begin += len(group)
    return taken


def _find_shared(entry: NodeEntry, ours: Container[str], held: set[int]) -> set[int]:
    """Of devices of which HAMi gives out parts: those that are sick, and those of which others have one."""
    theirs = {one for uid, pod in entry.pods.items() if uid not in ours for one in pod.held}
    return {
        index
        for index, device in enumerate(entry.facts.shared[:DEVICES_PER_MODEL_MAX])
        if not device.is_healthy or (device.id in theirs and index not in held)
    }


def _is_kept_for(pod: PodFacts, groups: Container[str]) -> bool:
    """Whether a pod holds no device beside those that are counted already: it has a part of one, which KAI's binder
    keeps by another pod, or it is that other pod, for a device of these groups."""
    return (pod.share is not None and pod.share.by == KAI) or dict(pod.marks).get(GROUP, "") in groups
