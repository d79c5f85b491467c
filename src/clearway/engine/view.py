"""Columns about jobs as an `Order` sees them."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearway.engine.policy import JobsView
from clearway.engine.tables import (
    JOB_ATTAINED,
    JOB_CLASS,
    JOB_DEADLINE_MS,
    JOB_HELD,
    JOB_KIND,
    JOB_MILLI,
    JOB_ORACLE_MS,
    JOB_PLANNED_MS,
    JOB_PRIORITY,
    JOB_QUEUE_PRIORITY,
    JOB_REPLICAS,
    JOB_SAVED_MS,
    JOB_START_MS,
    JOB_SUBMIT_MS,
    JOB_TENANT,
)
from clearway.model.units import FOREVER_MS

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

IntArray = NDArray[np.int64]


def held_milli(state: "ClusterState", rows: IntArray) -> IntArray:
    """int64[n]: thousandths of devices that each job holds now."""
    table, classes = state.rows.table, state.classes.table
    replicas = table[JOB_HELD, rows]
    cls = table[JOB_CLASS, rows]
    milli: IntArray = replicas * classes[0, cls] * classes[1, cls]
    return milli


def running_use(state: "ClusterState") -> NDArray[np.float64]:
    """float64[tenants]: milli × ms that running jobs have used so far."""
    rows = state.holding_rows()
    table = state.rows.table
    use = held_milli(state, rows) * np.maximum(state.now_ms - table[JOB_START_MS, rows], 0)
    return np.bincount(table[JOB_TENANT, rows], weights=use, minlength=state.accounts.tenant_count).astype(np.float64)


def jobs_view(state: "ClusterState", rows: IntArray) -> JobsView:
    """The columns of n jobs, waiting or running."""
    table = state.rows.table[:, rows]
    held = held_milli(state, rows)
    elapsed = np.where(held > 0, np.maximum(state.now_ms - table[JOB_START_MS], 0), 0)
    shares = state.accounts.known_shares(state.now_ms)
    if shares is None:
        shares = state.accounts.ranks_and_factors(state.now_ms, running_use(state), state.inventory.milli)
    ranks, factors = shares
    tenant = table[JOB_TENANT]
    return _make_view(state, table, held, elapsed, (ranks[tenant], factors[tenant], _qos_factor(state, rows)))


def coming_view(state: "ClusterState", table: IntArray) -> JobsView:
    """The columns of n jobs that are about to come, by the rows that they will have, for an order whose keys are fixed:
    nobody's share is worked out for it, and no QOS."""
    nothing = np.zeros(table.shape[1], dtype=np.int64)
    return _make_view(state, table, nothing, nothing, (nothing, np.ones(len(nothing)), np.zeros(len(nothing))))


def _make_view(
    state: "ClusterState",
    table: IntArray,
    held: IntArray,
    elapsed: IntArray,
    standing: tuple[IntArray, NDArray[np.float64], NDArray[np.float64]],
) -> JobsView:
    """The columns of jobs that have held so much for so long. standing: rank and factor of each tenant, QOS factor."""
    planned = table[JOB_PLANNED_MS]
    remaining = np.where(planned >= FOREVER_MS, FOREVER_MS, np.maximum(planned - table[JOB_SAVED_MS] - elapsed, 1))
    ranks, factors, qos_factor = standing
    return JobsView(
        now_ms=state.now_ms,
        cluster_milli=state.inventory.milli,
        submit_ms=table[JOB_SUBMIT_MS],
        priority=table[JOB_PRIORITY],
        queue_priority=table[JOB_QUEUE_PRIORITY],
        replicas=table[JOB_REPLICAS],
        milli=table[JOB_MILLI],
        planned_ms=planned,
        remaining_ms=remaining,
        attained_device_ms=table[JOB_ATTAINED] + held * elapsed // 1000,
        oracle_ms=table[JOB_ORACLE_MS],
        deadline_ms=table[JOB_DEADLINE_MS],
        tenant_rank=ranks,
        tenant_factor=factors,
        qos_factor=qos_factor,
        kind=table[JOB_KIND],
        history_device_ms=np.array(state.history, dtype=np.float64),
    )


def _qos_factor(state: "ClusterState", rows: IntArray) -> NDArray[np.float64]:
    """float64[n]: see `JobsView`."""
    if not state.policy.qos:
        return np.zeros(len(rows))
    known = state.policy.qos_factors()
    return np.array([known.get(state.by_row[row].spec.qos, 0.0) for row in rows.tolist()], dtype=np.float64)
