"""What a control plane says first when it takes over: itself, its site, and how the machines differ from the journal.

Nodes are compared by name. A new one is added. One that is gone counts as down, and so does what ran there. One that is
there again is up, with all its devices, until a report says otherwise; a drained one stays drained. CPUs, memory and
labels may be others than before. Jobs hold devices by number: the last of a node may be missing, and are down then with
what ran there; the last node may have more. Where numbers would come to mean other devices, the start is refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from clearway.engine.inventory import Inventory
from clearway.engine.state import ClusterState
from clearway.engine.tables import DEVICE_HEALTHY
from clearway.live.books import Books
from clearway.live.views import Places
from clearway.model.cluster import LinkSpec, NodeSpec, QueueSpec, TenantSpec, added_groups
from clearway.model.errors import InputError
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    Event,
    JobFinished,
    JobStopped,
    LinksSet,
    NodeAdded,
    NodeChanged,
    NodeDown,
    NodeDrained,
    NodeUp,
    PowerBudgetSet,
    QueueSet,
    TenantSet,
)
from clearway.model.ids import DEFAULT_QUEUE
from clearway.model.jobs import StopCause
from clearway.ports.backend import Holding

MEMORY_PERCENT: Final = 2
"""A machine's memory as its kernel counts it differs by this much from boot to boot: nothing that need be told."""

LinkSpeeds = tuple[tuple[str, LinkSpec], ...]
"""By level, from narrow to wide; () = not known."""

GONE: Final = "the node was not found when the control plane started"
MISSING: Final = "the device was not found when the control plane started"


def site_events(
    now_ms: int, state: ClusterState, queues: Sequence[QueueSpec], tenants: Sequence[TenantSpec]
) -> Iterator[Event]:
    """Queues and tenants that are not yet as they are to be; the default queue where there is none at all."""
    known_queues = {spec.name: spec for _, spec in state.accounts.current_queues()}
    if not queues and not known_queues:
        queues = (QueueSpec(name=DEFAULT_QUEUE),)
    yield from (QueueSet(now_ms, queue) for queue in queues if known_queues.get(queue.name) != queue)
    known_tenants = {spec.name: spec for _, spec in state.accounts.current_tenants()}
    yield from (TenantSet(now_ms, tenant) for tenant in tenants if known_tenants.get(tenant.name) != tenant)


def hardware_events(now_ms: int, state: ClusterState, watts: int | None, links: LinkSpeeds) -> Iterator[Event]:
    """The power budget of the site, and what is known of its links, where they are not yet what they are to be."""
    if state.power_budget_watts != watts:
        yield PowerBudgetSet(now_ms, watts)
    if state.link_speeds != dict(links):
        yield LinksSet(now_ms, links)


def node_events(
    now_ms: int, inventory: Inventory, nodes: Sequence[NodeSpec], drain_reasons: Mapping[str, str]
) -> Iterator[Event]:
    """How `nodes` differ from what the journal says. Raises InputError for a node whose devices changed."""
    known = {spec.name: index for index, spec in enumerate(inventory.specs)}
    found = {node.name: node for node in nodes}
    for name, index in known.items():
        if name in found:
            before = inventory.specs[index]
            now = merge_node(before, found[name], can_grow=inventory.can_grow(index))
            if is_changed(before, now):
                yield NodeChanged(now_ms, now)
            yield from _back(now_ms, inventory, index, drain_reasons)
            missing = range(found[name].device_count, before.device_count)
            yield from (DeviceDown(now_ms, name, device, MISSING) for device in missing)
        elif inventory.is_up[index]:
            yield NodeDown(now_ms, name, GONE)
    yield from (NodeAdded(now_ms, node) for node in nodes if node.name not in known)


def _back(now_ms: int, inventory: Inventory, index: int, drain_reasons: Mapping[str, str]) -> Iterator[Event]:
    """A known node is there, with all its devices."""
    name = inventory.specs[index].name
    if not inventory.is_up[index]:
        yield NodeUp(now_ms, name)
        if inventory.is_drained[index]:
            yield NodeDrained(now_ms, name, drain_reasons.get(name, ""))
    for device in range(inventory.specs[index].device_count):
        if not inventory.devices[DEVICE_HEALTHY, inventory.device_index(name, device)]:
            yield DeviceUp(now_ms, name, device)


def merge_node(known: NodeSpec, found: NodeSpec, *, can_grow: bool) -> NodeSpec:
    """The node as it is to be known from now on: as found, with the devices that it had under their numbers, and others
    behind them if it can grow. Raises InputError where it is another machine: its place is another, or the numbers of
    its devices would be."""
    if (known.nvlink, known.leaf, known.block) == (found.nvlink, found.leaf, found.block):
        added = added_groups(known, found)
        if added == () or (added is None and added_groups(found, known) is not None):
            return replace(found, groups=known.groups)
        if added is not None and can_grow:
            counts = [group.count for group in found.groups]
            grown = (replace(group, count=count) for group, count in zip(known.groups, counts, strict=False))
            return replace(found, groups=(*grown, *found.groups[len(known.groups) :]))
    raise InputError(
        f"node {known.name!r}: expected {_hardware(known)} as in the journal, or a part, found {_hardware(found)}; "
        "start it with the devices that it had, or give the node a new name: jobs that ran on the old one are then "
        "started anew"
    )


def _hardware(node: NodeSpec) -> str:
    devices = " + ".join(f"{group.count} x {group.model}" for group in node.groups) or "no devices"
    places = (("NVLink domain", node.nvlink), ("leaf", node.leaf), ("block", node.block))
    return ", ".join([devices, *(f"{level} {name}" for level, name in places if name)])


def is_changed(known: NodeSpec, found: NodeSpec) -> bool:
    """Whether CPUs, memory, labels, devices or neighbours are others than the journal says."""
    if (known.memory_bytes is None) != (found.memory_bytes is None):
        return True
    slack = (known.memory_bytes or 0) * MEMORY_PERCENT // 100
    if (known.groups, known.crowds, known.extras) != (found.groups, found.crowds, found.extras):
        return True
    is_near = abs((known.memory_bytes or 0) - (found.memory_bytes or 0)) <= slack
    return not is_near or (known.cpu_milli, known.labels) != (found.cpu_milli, found.labels)


def find_holdings(now_ms: int, books: Books, places: Places, found: Iterable[Event]) -> Iterator[Holding]:
    """What the journal says is held, with how those have to end that lie on what is missing by what was found."""
    found = tuple(found)
    gone = {event.node for event in found if isinstance(event, NodeDown)}
    missing = {(event.node, event.device) for event in found if isinstance(event, DeviceDown)}
    for holding in books.holdings():
        place = places.locate(holding.allocation) if (gone or missing) and not holding.is_suspended else ()
        nodes = [node for node, _ in place if node in gone]
        devices = {(node, device) for node, devices in place for device in devices} & missing
        if nodes:
            cause, reason = StopCause.NODE_FAILED, f"{nodes[0]}: {GONE}"
        elif devices:
            node, device = min(devices)
            cause, reason = StopCause.DEVICE_FAILED, f"device {device} of {node}: {MISSING}"
        else:
            yield holding
            continue
        saved_ms = books.jobs[holding.job].view.saved_ms
        yield replace(holding, lost=JobStopped(now_ms, holding.job, holding.generation, cause, saved_ms, reason))


def lost_jobs(holdings: Iterable[Holding], reports: Iterable[Event]) -> Iterator[JobStopped]:
    """The ends of those that are lost, but for those of which a report says what became of them."""
    told = {event.job for event in reports if isinstance(event, JobFinished | JobStopped)}
    for holding in holdings:
        if holding.lost is not None and holding.job not in told:
            yield holding.lost
