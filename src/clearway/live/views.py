"""The cluster as people see it, made from the state box and the books when it is asked for. Only nodes on which
something changed are made anew; counts of jobs are kept as they change."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from clearway.engine.order import SORT_KEY
from clearway.engine.reasons import REASON_PRIORITY, REASONS
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    DEVICE_HEALTHY,
    JOB_ID,
    JOB_PHASE,
    JOB_REASON,
    NODE_CPU_FREE,
    NODE_CPU_TOTAL,
    NODE_MEM_FREE,
    NODE_MEM_TOTAL,
    NODE_POOL_BEGIN,
    NONE,
    PHASE_BLOCKED,
    PHASE_PENDING,
    PHASE_SUSPENDED,
    POOL_DEVICE_BEGIN,
    QUEUE_USED,
    TENANT_PARENT,
    TENANT_USED,
)
from clearway.live.books import Book, Place, each_part
from clearway.model.allocation import Allocation
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    Event,
    NodeAdded,
    NodeChanged,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeOpened,
    NodeUp,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.plan import ReasonCode
from clearway.model.units import MILLI
from clearway.policies.orders import Multifactor
from clearway.ports.backend import BoundingBackend, LastingBackend, NotingBackend
from clearway.ports.views import (
    ClusterView,
    DeviceState,
    DeviceView,
    NodeState,
    NodeView,
    QueueView,
    TenantView,
)

CYCLES_KEPT: Final = 1_000
"""Decision cycles that the percentiles are of."""


_TAKEN: Final = frozenset(
    (NodeAdded, NodeChanged, NodeClosed, NodeDown, NodeDrained, NodeOpened, NodeUp, DeviceDown, DeviceUp)
)
"""What `Views.note` regards."""


BASIC_PRIORITY_MAX: Final = 4_294_901_759
"""What Slurm's `priority/basic` gives to its first job."""

_REASON_NUMBERS: Final = {reason.value: number for number, reason in enumerate(REASONS)}


class Places:
    """Names of what allocations hold."""

    def __init__(self, state: ClusterState) -> None:
        self._inventory = state.inventory

    def locate(self, allocation: Allocation) -> Place:
        """(node, device indices within the node) of each replica, in order."""
        inventory = self._inventory
        each = len(allocation.devices) // max(allocation.replicas, 1)
        devices = allocation.devices.tolist()
        places = []
        for replica, node in enumerate(allocation.nodes.tolist()):
            begin = self.devices_begin(node)
            held = devices[replica * each : (replica + 1) * each]
            places.append((NodeName(inventory.names.names[node]), tuple(device - begin for device in held)))
        return tuple(places)

    def devices_begin(self, node: int) -> int:
        """The global index of a node's first device."""
        inventory = self._inventory
        return int(inventory.pools[POOL_DEVICE_BEGIN, inventory.nodes[NODE_POOL_BEGIN, node]])


class Views:
    """Node, queue and tenant views over one state box."""

    def __init__(self, state: ClusterState, books: dict[JobId, Book]) -> None:
        self._state = state
        self._books = books
        self._places = Places(state)
        self._nodes: list[NodeView | None] = []
        self._jobs_on: dict[int, set[JobId]] = {}
        self._nodes_of: dict[JobId, frozenset[int]] = {}
        self.drain_reasons: dict[str, str] = {}
        self._down_reasons: dict[str, str] = {}
        self._device_reasons: dict[tuple[str, int], str] = {}
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._running: Counter[tuple[str, str]] = Counter()
        self._counted: dict[JobId, tuple[str, str, bool]] = {}
        self._cycle_ms: deque[float] = deque(maxlen=CYCLES_KEPT)
        self._seen_reasons = np.full(64, REASON_PRIORITY, dtype=np.int64)

    # --- what changes ---------------------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Take in one record about nodes and devices."""
        for part in each_part(event):
            if type(part) not in _TAKEN:  # most are about jobs, by the thousand
                continue
            if isinstance(part, NodeAdded):
                self._nodes.append(None)
            elif isinstance(part, NodeDown):
                self._down_reasons[part.node] = part.reason
                self._touch(part.node)
            elif isinstance(part, NodeDrained):
                self.drain_reasons[part.node] = part.reason
                self._touch(part.node)
            elif isinstance(part, NodeClosed | NodeOpened):
                self._touch(part.node)
            elif isinstance(part, NodeChanged):
                self._touch(part.node.name)
            elif isinstance(part, NodeUp):
                self._down_reasons.pop(part.node, None)
                self.drain_reasons.pop(part.node, None)
                self._touch(part.node)
            elif isinstance(part, DeviceDown):
                self._device_reasons[part.node, part.device] = part.reason
                self._touch(part.node)
            elif isinstance(part, DeviceUp):
                self._device_reasons.pop((part.node, part.device), None)
                self._touch(part.node)

    def kept(self) -> dict[str, Any]:
        """What `restore` takes: all that `note` was told."""
        return {
            "nodes": len(self._nodes),
            "drained": self.drain_reasons,
            "down": self._down_reasons,
            "devices": self._device_reasons,
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Know what another knew."""
        self._nodes = [None] * kept["nodes"]
        self.drain_reasons = kept["drained"]
        self._down_reasons = kept["down"]
        self._device_reasons = kept["devices"]

    def _touch(self, node: str) -> None:
        self._nodes[self._state.inventory.index(node)] = None

    def note_jobs(self, books: Iterable[Book]) -> None:
        """These jobs changed; the state box knows of it already."""
        for book in books:
            self._note_place(book.spec.id)
            self._count(book)
            record = self._state.jobs.get(book.spec.id)
            if record is not None and not book.holds_devices:
                self._note_reason(record.row, book.view.reason)

    def _note_place(self, job: JobId) -> None:
        record = self._state.jobs.get(job)
        now = (
            frozenset() if record is None or record.allocation is None else frozenset(record.allocation.nodes.tolist())
        )
        before = self._nodes_of.pop(job, frozenset())
        for node in before - now:
            self._jobs_on[node].discard(job)
        for node in now - before:
            self._jobs_on.setdefault(node, set()).add(job)
        for node in before | now:
            self._nodes[node] = None
        if now:
            self._nodes_of[job] = now

    def _count(self, book: Book) -> None:
        job, spec, state = book.spec.id, book.spec, book.view.state
        known = self._counted.pop(job, None)
        if known is not None:
            (self._running if known[2] else self._waiting)[known[0], known[1]] -= 1
        if not state.is_final:
            runs = book.holds_devices  # what is frozen and told to end holds none
            self._counted[job] = (spec.queue, spec.tenant, runs)
            (self._running if runs else self._waiting)[spec.queue, spec.tenant] += 1

    def note_cycle(self, milliseconds: float) -> None:
        """A decision took so long."""
        self._cycle_ms.append(milliseconds)

    # --- reasons of waiting jobs ----------------------------------------------------------------------------------

    def _note_reason(self, row: int, reason: str) -> None:
        """The job's row says this reason."""
        if row >= len(self._seen_reasons):
            grown = np.full(max(row + 1, 2 * len(self._seen_reasons)), REASON_PRIORITY, dtype=np.int64)
            grown[: len(self._seen_reasons)] = self._seen_reasons
            self._seen_reasons = grown
        self._seen_reasons[row] = _REASON_NUMBERS.get(reason, REASON_PRIORITY)

    def changed_reasons(self, most: int) -> list[JobId]:
        """Waiting jobs, at most so many, whose reason is another than when it was last asked for."""
        table, count = self._state.rows.table, min(self._state.rows.count, len(self._seen_reasons))
        phase, reason = table[JOB_PHASE, :count], table[JOB_REASON, :count]
        waits = (phase == PHASE_PENDING) | (phase == PHASE_BLOCKED) | (phase == PHASE_SUSPENDED)
        rows = np.flatnonzero(waits & (reason != self._seen_reasons[:count]) & (reason >= 0))[:most]
        self._seen_reasons[rows] = reason[rows]
        return [JobId(job) for job in table[JOB_ID, rows].tolist()]

    def reason(self, job: JobId) -> str | None:
        """Slurm's token of why the job waits, by the last cycle; None when it does not wait."""
        record = self._state.jobs.get(job)
        if record is None or record.phase not in (PHASE_PENDING, PHASE_BLOCKED, PHASE_SUSPENDED):
            return None
        code = int(self._state.rows.table[JOB_REASON, record.row])
        if code < 0:
            return None
        is_without_devices = record.spec.request.devices == 0
        is_scattered = REASONS[code] is ReasonCode.FRAGMENTATION  # the planner's word for: on no single node
        return (ReasonCode.RESOURCES if is_scattered and is_without_devices else REASONS[code]).value

    def priorities(self, jobs: Iterable[JobId]) -> dict[JobId, int]:
        """See `clearway.ports.control.Control.priorities`."""
        state, order = self._state, self._state.order
        found = {job: record.row for job in jobs if (record := state.jobs.get(job)) and record.phase == PHASE_PENDING}
        rows = np.array(list(found.values()), dtype=np.int64)
        if isinstance(state.policy.order, Multifactor):
            values = np.maximum(np.rint(-order.sort[SORT_KEY, rows]).astype(np.int64), 1)
        else:
            places = np.full(state.rows.count, order.count, dtype=np.int64)
            places[order.rows[: order.count]] = np.arange(order.count)
            values = np.maximum(BASIC_PRIORITY_MAX - places[rows], 1)
        return dict(zip(found, values.tolist(), strict=True))

    # --- views ----------------------------------------------------------------------------------------------------

    def cluster(self, *, at_ms: int, seq: int, policy: str, cycles: int, storage_error: str) -> ClusterView:
        """All of it as it is now."""
        times = sorted(self._cycle_ms)
        return ClusterView(
            at_ms=at_ms,
            seq=seq,
            nodes=tuple(self._node(index) for index in range(len(self._nodes))),
            queues=self._queues(),
            tenants=self._tenants(at_ms),
            pending=sum(self._waiting.values()),
            running=sum(self._running.values()),
            policy=policy,
            cycles=cycles,
            cycle_ms_p50=_percentile(times, 50),
            cycle_ms_p99=_percentile(times, 99),
            storage_error=storage_error,
        )

    def _node(self, index: int) -> NodeView:
        view = self._nodes[index]
        if view is None:
            view = self._nodes[index] = self._make_node(index)
        return view

    def _make_node(self, index: int) -> NodeView:
        inventory = self._state.inventory
        spec, column = inventory.specs[index], inventory.nodes[:, index]
        devices = self._devices(index)
        holders = self._jobs_on.get(index, set())
        is_up, is_drained = inventory.is_up[index], inventory.is_drained[index]
        if not is_up:
            state = NodeState.DOWN
        elif is_drained:
            state = NodeState.DRAINING if holders else NodeState.DRAINED
        elif not holders:
            state = NodeState.IDLE
        else:
            has_room = any(device.state in (DeviceState.FREE, DeviceState.SHARED) for device in devices)
            state = NodeState.MIXED if has_room or not devices else NodeState.ALLOCATED
        counts_cpu, counts_memory = spec.cpu_milli is not None, spec.memory_bytes is not None
        return NodeView(
            name=spec.name,
            state=state,
            devices=devices,
            cpu_milli=int(column[NODE_CPU_TOTAL]) if counts_cpu else None,
            cpu_free_milli=int(column[NODE_CPU_FREE]) if counts_cpu else None,
            memory_bytes=int(column[NODE_MEM_TOTAL]) if counts_memory else None,
            memory_free_bytes=int(column[NODE_MEM_FREE]) if counts_memory else None,
            labels=spec.labels,
            reason=self._reason(spec.name, self.drain_reasons if is_up else self._down_reasons),
        )

    def _reason(self, node: str, reasons: Mapping[str, str]) -> str:
        """Why a node is down or drained, or from whom it is kept and why."""
        kept = {user: nodes[node] for user, nodes in self._state.closed.items() if node in nodes}
        return reasons.get(node) or "; ".join(f"kept from {user}: {why}" for user, why in kept.items())

    def _devices(self, index: int) -> tuple[DeviceView, ...]:
        inventory = self._state.inventory
        spec, begin = inventory.specs[index], self._places.devices_begin(index)
        owners = self._owners(index, begin, spec.device_count)
        healthy = inventory.devices[DEVICE_HEALTHY, begin : begin + spec.device_count].tolist()
        groups = [group for group in spec.groups for _ in range(group.count)]
        return tuple(
            DeviceView(
                index=number,
                model=group.model,
                state=_device_state(owners[number], is_healthy=bool(healthy[number])),
                memory_bytes=group.memory_bytes,
                owners=tuple(owners[number]),
                reason=self._device_reasons.get((spec.name, number), ""),
            )
            for number, group in enumerate(groups)
        )

    def _owners(self, index: int, begin: int, count: int) -> list[list[tuple[JobId, int]]]:
        """By device of a node, who holds how many thousandths of it."""
        owners: list[list[tuple[JobId, int]]] = [[] for _ in range(count)]
        for job in sorted(self._jobs_on.get(index, ())):
            record = self._state.jobs[job]
            assert record.allocation is not None
            devices = record.allocation.devices
            here = devices[(devices >= begin) & (devices < begin + count)] - begin
            for device, times in Counter(here.tolist()).items():
                owners[device].append((job, times * record.spec.request.share_milli))
        return owners

    def _queues(self) -> tuple[QueueView, ...]:
        accounts = self._state.accounts
        waiting, running = _sums(self._waiting, 0), _sums(self._running, 0)
        return tuple(
            QueueView(
                name=spec.name,
                priority=spec.priority,
                pending=waiting[spec.name],
                running=running[spec.name],
                used_milli=int(accounts.queues[QUEUE_USED, row]),
                devices_max_milli=spec.devices_max_milli,
                job_devices_max_milli=spec.job_devices_max_milli,
                running_max=spec.running_max,
                limit_max_ms=spec.limit_max_ms,
                limit_default_ms=spec.limit_default_ms,
            )
            for row, spec in accounts.current_queues()
        )

    def _tenants(self, at_ms: int) -> tuple[TenantView, ...]:
        accounts = self._state.accounts
        count = accounts.tenant_count
        waiting, running = _sums(self._waiting, 1), _sums(self._running, 1)
        names = [spec.name for spec in accounts.tenant_specs]
        columns = [[waiting[name] for name in names], [running[name] for name in names]]
        use = accounts.usage(at_ms, np.zeros(count))[0].tolist()
        columns.append(use)
        total = sum(use) or 1.0
        parents = accounts.tenants[TENANT_PARENT, :count].tolist()
        for column in columns:  # a parent stands before its children
            for row in range(count - 1, 0, -1):
                if parents[row] != NONE:
                    column[parents[row]] += column[row]
        return tuple(
            TenantView(
                name=spec.name,
                parent=spec.parent,
                weight=spec.weight,
                used_milli=int(accounts.tenants[TENANT_USED, row]),
                pending=int(columns[0][row]),
                running=int(columns[1][row]),
                guaranteed_milli=None if spec.quota is None else spec.quota.guaranteed_milli,
                borrow_max_milli=None if spec.quota is None else spec.quota.borrow_max_milli,
                lend_max_milli=None if spec.quota is None else spec.quota.lend_max_milli,
                share=columns[2][row] / total,
            )
            for row, spec in accounts.current_tenants()
        )


def _device_state(owners: list[tuple[JobId, int]], *, is_healthy: bool) -> DeviceState:
    if not is_healthy:
        return DeviceState.DOWN
    if not owners:
        return DeviceState.FREE
    return DeviceState.USED if any(milli == MILLI for _, milli in owners) else DeviceState.SHARED


def _sums(counts: "Counter[tuple[str, str]]", part: int) -> "Counter[str]":
    sums: Counter[str] = Counter()
    for key, count in counts.items():
        sums[key[part]] += count
    return sums


def _percentile(ordered: list[float], percent: int) -> float:
    """The smallest that so many per cent do not exceed; 0 without any."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)] if ordered else 0.0


def with_site(view: ClusterView, backend: LastingBackend) -> ClusterView:
    """With what the backend says for people to see."""
    if isinstance(backend, BoundingBackend):
        bounds = backend.bounds()
        view = replace(view, tenants=tuple(replace(one, bounds=bounds.get(one.name, ())) for one in view.tenants))
    if isinstance(backend, NotingBackend) and (backend.notes or backend.uuids):
        view = replace(view, nodes=tuple(_note_node(node, backend) for node in view.nodes))
    return view


def _note_node(node: NodeView, backend: NotingBackend) -> NodeView:
    uuids = backend.uuids
    devices = tuple(replace(one, uuid=uuids.get((node.name, one.index), "")) for one in node.devices)
    return replace(node, notes=backend.notes, devices=devices)
