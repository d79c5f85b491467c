"""What a policy has a hand in, worked out anew for the jobs that are there: after a journal was read.

A journal is read under `reading_policy`, which learns all that any policy asks for and decides nothing. What then
stands in the box says nothing of the policy that is to decide, so it may be kept, and read by whichever comes.
`adopt_policy` makes of it the box of one policy. Only the half-life of past use is in what was read: it cannot be taken
out again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from clearway.engine.box import META_GAPS, META_LISTED, META_RUNNING, META_TYPICAL, RUNNING_END, RUNNING_ROW
from clearway.engine.order import SORT_PRIORITY, SORT_QUEUE
from clearway.engine.planned import planned_run_ms
from clearway.engine.policy import (
    FairShare,
    FloatArray,
    IntArray,
    JobsView,
    Placement,
    Policy,
    Preemption,
    RuntimeSource,
)
from clearway.engine.tables import (
    JOB_END_MS,
    JOB_GENERATION,
    JOB_HELD,
    JOB_PLANNED_MS,
    JOB_PRIORITY,
    JOB_PROTECTED_MS,
    JOB_QUEUE_PRIORITY,
    JOB_REPLICAS,
    JOB_SAVED_MS,
    JOB_START_MS,
    NONE,
)
from clearway.engine.typical import TypicalClasses
from clearway.model.units import FOREVER_MS

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState


@dataclass(frozen=True, slots=True)
class ByArrival:
    """First come, first looked at; and what ended jobs had is remembered, for who wants it later."""

    refresh_ms: None = None
    by_priority: bool = False
    by_arrival: bool = True
    is_fixed: bool = True
    learns: bool = True

    def keys(self, jobs: JobsView) -> FloatArray:
        """All equal."""
        return np.zeros(len(jobs.submit_ms))


READING_NAME: Final = "reading"


def reading_policy(half_life_ms: int) -> Policy:
    """Under which a journal is read."""
    return Policy(
        name=READING_NAME,
        order=ByArrival(),
        runtime=RuntimeSource.LIMIT,
        placement=Placement(fragmentation=1.0),
        preemption=Preemption(protection_ms=0),
        fair_share=FairShare(half_life_ms=half_life_ms),
    )


def begin_reading(state: "ClusterState") -> None:
    """An empty box is to take in a journal."""
    state.policy = reading_policy(state.policy.fair_share.half_life_ms)
    state.keeps_history = True
    state.keeps_run_times = state.run_times is not None


def adopt_policy(state: "ClusterState", policy: Policy) -> None:
    """A box that took in a journal is to be decided upon by this policy."""
    state.policy = policy
    state.keeps_history = policy.order.learns
    state.keeps_run_times = state.run_times is not None and policy.runtime is RuntimeSource.PREDICTED
    _plan_anew(state)
    _order_anew(state)
    if not state.keeps_run_times:
        state.run_times = None
    if not state.keeps_history:
        state.history.clear()
    if not policy.placement.fragmentation:
        state.typical = TypicalClasses()
        state.meta[META_TYPICAL] = 0
    state.regard_forecast(state.forecast_devices)
    state.make_reservation_room(max(policy.backfill.reservation_depth, 1))


def _plan_anew(state: "ClusterState") -> None:
    """Run times that are planned, ends that follow from them, and until when jobs are protected."""
    table = state.rows.table
    for record in state.jobs.values():
        table[JOB_PLANNED_MS, record.row] = planned_run_ms(state, record.spec)
    rows = np.array([record.row for record in state.jobs.values()], dtype=np.int64)
    started = rows[table[JOB_GENERATION, rows] > 0]
    table[JOB_PROTECTED_MS, started] += state.policy.preemption.protection_ms
    holding = state.holding_rows()
    for row in holding.tolist():
        table[JOB_END_MS, row] = _planned_end(table[:, row])
    by_end = holding[np.lexsort((holding, table[JOB_END_MS, holding]))]
    state.running[RUNNING_END, : len(by_end)] = table[JOB_END_MS, by_end]
    state.running[RUNNING_ROW, : len(by_end)] = by_end
    state.meta[META_RUNNING] = state.meta[META_LISTED] = len(by_end)
    state.meta[META_GAPS] = 0


def _planned_end(column: IntArray) -> int:
    """`hold.planned_end` for a job that holds devices already."""
    planned = int(column[JOB_PLANNED_MS])
    if planned >= FOREVER_MS:
        return FOREVER_MS
    left = max(planned - int(column[JOB_SAVED_MS]), 1)
    return int(column[JOB_START_MS]) - (-left * int(column[JOB_REPLICAS]) // int(column[JOB_HELD]))


def _order_anew(state: "ClusterState") -> None:
    """Every waiting job is to be given its place again."""
    order, table = state.order, state.rows.table
    rows = np.array([record.row for record in state.jobs.values()], dtype=np.int64)
    by_priority = state.policy.order.by_priority
    order.sort[SORT_QUEUE, rows] = -table[JOB_QUEUE_PRIORITY, rows] if by_priority else 0.0
    order.sort[SORT_PRIORITY, rows] = -table[JOB_PRIORITY, rows] if by_priority else 0.0
    state.fresh[:0] = order.waiting().tolist()
    order.count = 0
    state.refreshed_ms = NONE
