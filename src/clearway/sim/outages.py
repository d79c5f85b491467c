"""Failures and repairs of nodes and devices as one sorted timeline, overlaps merged.

What is down twice comes back when both have ended. At one moment beginnings come before ends, so that an outage that
follows another without a gap is one outage.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearway.model.cluster import ClusterSpec
from clearway.model.events import DeviceDown, DeviceUp, Event, NodeDown, NodeUp
from clearway.model.ids import NodeName
from clearway.sim.faults import Fault

OutageEvent = NodeDown | NodeUp | DeviceDown | DeviceUp


@dataclass(frozen=True, slots=True)
class Outage:
    """One change of health. device: index within the node, None = the whole node."""

    at_ms: int
    node: int
    device: int | None
    is_down: bool


def make_outages(faults: Iterable[Fault], events: Sequence[Event], cluster: ClusterSpec) -> list[Outage]:
    """The timeline of `faults` and of the outage events among `events`, in the order in which they are to be told."""
    index = {node.name: number for number, node in enumerate(cluster.nodes)}
    changes = [
        change
        for fault in faults
        for change in (
            Outage(fault.at_ms, fault.node_index, fault.device, True),
            Outage(fault.until_ms, fault.node_index, fault.device, False),
        )
    ]
    changes += [_told_outage(event, index) for event in events if isinstance(event, OutageEvent)]
    changes.sort(key=_place)
    return _merged(changes)


def _told_outage(event: OutageEvent, index: dict[NodeName, int]) -> Outage:
    device = event.device if isinstance(event, DeviceDown | DeviceUp) else None
    return Outage(event.at_ms, index[event.node], device, isinstance(event, NodeDown | DeviceDown))


def _place(outage: Outage) -> tuple[int, bool, int, int]:
    return outage.at_ms, not outage.is_down, outage.node, -1 if outage.device is None else outage.device


def _merged(changes: Iterable[Outage]) -> list[Outage]:
    """Without failures of what is down already, and without repairs while it stays down for another reason. A repair
    of what is up stays: for a drained node it means that the node may be used again."""
    depth: dict[tuple[int, int | None], int] = {}
    kept = []
    for change in changes:
        key = (change.node, change.device)
        depth[key] = max(0, depth.get(key, 0) + (1 if change.is_down else -1))
        if depth[key] == (1 if change.is_down else 0):
            kept.append(change)
    return kept
