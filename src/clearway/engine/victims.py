"""Who could make room for a waiting job, at what cost, and the smallest set that is enough (step 8; 7 where they move).

A cost is device-milliseconds: work since the last checkpoint that would be done again, plus restart and checkpoint
time, times the devices held. Three ways to make room, from mild to hard: an elastic job gives up replicas above its
minimum, a job moves elsewhere, a job leaves and waits again.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from clearway.engine.order import SORT_KEY
from clearway.engine.policy import PreemptMode
from clearway.engine.quota import may_reclaim
from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    JOB_CHECKPOINT_MS,
    JOB_HELD,
    JOB_PHASE,
    JOB_PREEMPTIBLE,
    JOB_PRIORITY,
    JOB_PROTECTED_MS,
    JOB_QUEUE,
    JOB_QUEUE_PRIORITY,
    JOB_REPLICAS_MIN,
    JOB_START_MS,
    JOB_TENANT,
    PHASE_RUNNING,
    PHASE_STARTING,
    TENANT_LIMITED,
)
from clearway.engine.view import held_milli, jobs_view
from clearway.model.allocation import Allocation

IntArray = NDArray[np.int64]
CANDIDATES_MAX = 512
"""Jobs considered as victims for one waiting job, the cheapest first: bounds the cost of a cycle on a full cluster."""


RANK_STEP = 1 << 32
"""Queue priority counts before job priority: more than any priority of a job."""


class Way(IntEnum):
    """How a running job makes room."""

    SHRINK = 0
    MIGRATE = 1
    EVICT = 2


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may make room. keeps: replicas that it keeps (0 = none). cost_device_ms: see the module.

    is_reclaim: only because its tenant borrows, so only while it borrows.
    """

    record: JobRecord
    way: Way
    keeps: int
    cost_device_ms: int
    is_reclaim: bool = False


def cost_device_ms(state: ClusterState, record: JobRecord) -> int:
    """Device time lost if the job leaves now and starts again later."""
    assert record.allocation is not None
    checkpoint = record.spec.checkpoint
    elapsed = max(state.now_ms - int(state.rows.table[JOB_START_MS, record.row]), 0)
    devices_milli = record.allocation.replicas * record.spec.request.device_milli
    if record.spec.suspendable and state.policy.preemption.suspend:
        return 0
    if checkpoint is None:
        return devices_milli * elapsed // 1000
    lost = elapsed % checkpoint.interval_ms
    if record.checkpoint_ms:
        lost = min(lost, max(state.now_ms - record.checkpoint_ms, 0))
    if checkpoint.on_signal and checkpoint.cost_ms <= checkpoint.grace_ms:
        lost = checkpoint.cost_ms
    return devices_milli * (lost + checkpoint.restart_ms) // 1000


def running_candidates(state: ClusterState) -> IntArray:
    """int64[n]: rows of running jobs that could be touched at all now."""
    rows = _preemptible(state)
    chosen: IntArray = rows[state.rows.table[JOB_PROTECTED_MS, rows] <= state.now_ms]
    return chosen


def _preemptible(state: ClusterState) -> IntArray:
    rows = state.holding_rows()
    table = state.rows.table
    phase = table[JOB_PHASE, rows]
    fits = (phase == PHASE_RUNNING) | (phase == PHASE_STARTING)
    fits &= table[JOB_PREEMPTIBLE, rows] == 1
    chosen: IntArray = np.sort(rows[fits])
    return chosen


def may_be_evicted(state: ClusterState, row: int) -> IntArray:
    """int64[n]: rows of jobs that may be evicted for the waiting job `row`, now or when their protection is over."""
    rows = _preemptible(state)
    behind = ranks_behind(state, rows, row)
    chosen: IntArray = rows[(behind & ~belongs_to_others(state, rows, row)) | reclaimable(state, rows, row, behind)]
    return chosen


def nobody_gives(state: ClusterState) -> bool:
    """Whether no running job could make room for any waiting one: a quick look before each is asked for."""
    rows = running_candidates(state)
    if len(rows) == 0:
        return True
    table = state.rows.table
    is_flexible = (table[JOB_HELD, rows] > table[JOB_REPLICAS_MIN, rows]) | (table[JOB_CHECKPOINT_MS, rows] > 0)
    if (
        is_flexible.any()
        or state.accounts.tenants[TENANT_LIMITED, 0]
        or any(q.preempts for q in state.accounts.queue_specs)
    ):
        return False
    if state.policy.preemption.mode is PreemptMode.ORDER:
        return False
    waiting = state.order.waiting()
    ranks = table[JOB_QUEUE_PRIORITY] * RANK_STEP + table[JOB_PRIORITY]
    return bool(ranks[waiting].max() <= ranks[rows].min())


def ranks_behind(state: ClusterState, rows: IntArray, row: int) -> NDArray[np.bool_]:
    """Which running jobs may be evicted for the waiting job `row`, by the policy's mode."""
    table, policy = state.rows.table, state.policy
    if policy.preemption.mode is PreemptMode.NEVER:
        return np.zeros(len(rows), dtype=np.bool_)
    queue_priority, priority = table[JOB_QUEUE_PRIORITY, rows], table[JOB_PRIORITY, rows]
    mine = (int(table[JOB_QUEUE_PRIORITY, row]), int(table[JOB_PRIORITY, row]))
    lower: NDArray[np.bool_] = (queue_priority < mine[0]) | ((queue_priority == mine[0]) & (priority < mine[1]))
    if policy.preemption.mode is PreemptMode.ORDER:
        keys = policy.order.keys(jobs_view(state, rows))
        behind: NDArray[np.bool_] = keys > state.order.sort[SORT_KEY, row]
        if not policy.order.by_priority:
            return behind
        behind &= (queue_priority == mine[0]) & (priority == mine[1])
        return lower | behind
    queue = state.accounts.queue_specs[int(table[JOB_QUEUE, row])]
    for name in queue.preempts:
        lower |= table[JOB_QUEUE, rows] == state.accounts.queue_names.find(name)
    return lower


def reclaimable(state: ClusterState, rows: IntArray, row: int, behind: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which running jobs hold what the waiting job's tenant is entitled to and others borrow, at most: once jobs of its
    own that may be evicted have left. behind: those that rank behind it."""
    table, tenants = state.rows.table, state.accounts.tenants
    result = np.zeros(len(rows), dtype=np.bool_)
    if state.accounts.tenant_count == 1 or state.policy.preemption.mode is PreemptMode.NEVER:
        return result
    mine = int(table[JOB_TENANT, row])
    if tenants[TENANT_LIMITED, mine] == 0:
        return result
    spec = state.by_row[row].spec
    theirs = table[JOB_TENANT, rows]
    own = rows[(theirs == mine) & behind]  # they may leave first
    milli = state.policy.least_replicas(spec) * spec.request.device_milli
    milli = max(milli - int(held_milli(state, own).sum()), 0)
    for tenant in np.unique(theirs).tolist():
        if tenant != mine and may_reclaim(tenants, mine, tenant, milli):
            result |= theirs == tenant
    return result


def belongs_to_others(state: ClusterState, rows: IntArray, row: int) -> NDArray[np.bool_]:
    """Running jobs of other tenants, where quotas are set: between tenants right decides, not rank. Else a job within
    its tenant's guarantee and one of higher rank that borrows could evict each other for ever."""
    tenant = state.rows.table[JOB_TENANT, rows]
    mine = int(state.rows.table[JOB_TENANT, row])
    is_limited = state.accounts.tenants[TENANT_LIMITED, mine] == 1
    others: NDArray[np.bool_] = (tenant != mine) & is_limited
    return others


def rank_of(state: ClusterState, victim: Victim) -> tuple[int, int, int]:
    """Whether it is evicted, and if so its priorities: the lower leaves first."""
    if victim.way is not Way.EVICT:
        return 0, 0, 0
    queue_priority, priority = state.rows.table[[JOB_QUEUE_PRIORITY, JOB_PRIORITY], victim.record.row].tolist()
    return 1, queue_priority, priority


def find_victims(state: ClusterState, row: int, *, evicts: bool = False) -> list[Victim]:
    """Candidates for making room for the waiting job, mildest and cheapest first, of equals the youngest.

    At most CANDIDATES_MAX.

    Jobs that rank behind may be evicted. Others of no higher priority may only shrink or move, which loses nothing
    but time. evicts: those that may be evicted are not asked to shrink.
    """
    rows = running_candidates(state)
    if len(rows) == 0 or not state.by_row[row].spec.preempts:
        return []
    table = state.rows.table
    behind = ranks_behind(state, rows, row)
    reclaim = reclaimable(state, rows, row, behind)
    behind &= ~belongs_to_others(state, rows, row)
    mine = (int(table[JOB_QUEUE_PRIORITY, row]), int(table[JOB_PRIORITY, row]))
    milli = held_milli(state, rows)
    found: list[tuple[tuple[int, int, int, int], Victim]] = []
    may_give = behind | reclaim | (table[JOB_HELD, rows] > table[JOB_REPLICAS_MIN, rows])
    may_give |= table[JOB_CHECKPOINT_MS, rows] > 0
    for index in np.flatnonzero(may_give & (milli > 0)).tolist():
        candidate = int(rows[index])
        record = state.by_row[candidate]
        if record.allocation is None or record.target is not None:
            continue
        theirs = (int(table[JOB_QUEUE_PRIORITY, candidate]), int(table[JOB_PRIORITY, candidate]))
        may_evict = bool(behind[index] | reclaim[index])
        victim = _as_victim(
            state, record, may_evict, evicts and may_evict, is_equal=theirs <= mine, is_reclaim=bool(reclaim[index])
        )
        if victim is not None:
            found.append(((*rank_of(state, victim), victim.cost_device_ms * 1000 // int(milli[index])), victim))
    found.sort(key=lambda pair: (*pair[0], -pair[1].record.spec.id))
    return [victim for _, victim in found[:CANDIDATES_MAX]]


def _as_victim(
    state: ClusterState, record: JobRecord, may_evict: bool, evicts: bool, *, is_equal: bool, is_reclaim: bool
) -> Victim | None:
    settings = state.policy.preemption
    cost = cost_device_ms(state, record)
    held = int(state.rows.table[JOB_HELD, record.row])
    floor = record.spec.replicas_min if is_equal else max(record.spec.replicas, record.spec.replicas_min)
    by_device = record.spec.request.devices > 0 and not record.spec.request.is_fractional
    if not evicts and settings.shrink and state.policy.elasticity.enabled and held > floor and by_device:
        return Victim(record, Way.SHRINK, floor, cost)
    if may_evict:
        return Victim(record, Way.EVICT, 0, cost, is_reclaim)
    can_move = settings.migrate and is_equal and by_device and record.spec.checkpoint is not None
    return Victim(record, Way.MIGRATE, 0, cost) if can_move else None


def kept_part(allocation: Allocation, keeps: int, devices_per_replica: int) -> Allocation:
    """The first `keeps` replicas of an allocation."""
    return Allocation(allocation.nodes[:keeps].copy(), allocation.devices[: keeps * devices_per_replica].copy())
