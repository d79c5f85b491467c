"""Step 6: give devices that nobody waits for to the elastic jobs that gain most from them."""

from typing import Final

import numpy as np

from clearway.engine.collective import pace_on
from clearway.engine.limits import headroom_milli, within_limits
from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    JOB_HELD,
    JOB_PHASE,
    JOB_REPLICAS_MAX,
    PHASE_RUNNING,
)
from clearway.engine.trial import Trial
from clearway.engine.view import jobs_view
from clearway.model.allocation import Allocation
from clearway.model.jobs import JobSpec
from clearway.model.plan import Move, Resize
from clearway.model.units import FOREVER_MS

GROWN_MAX: Final = 16
"""Jobs resized per cycle: a resize costs the job a checkpoint and a restart."""
PAYBACK: Final = 2.0
"""A resize must save at least this many times its own cost before the job's expected end."""


def speedup(spec: JobSpec, replicas: int) -> float:
    """Speed with `replicas` replicas relative to one: linear between the given points, which (1, 1.0) begins where they
    do not, and constant beyond the last."""
    if spec.elastic is None or not spec.elastic.speedup:
        return float(replicas)
    points = dict([(1, 1.0), *spec.elastic.speedup])
    return float(np.interp(replicas, list(points), list(points.values())))


def holds_whole_devices(spec: JobSpec) -> bool:
    """Whether replicas are told apart by their devices, so that single ones can come and go."""
    return spec.request.devices > 0 and not spec.request.is_fractional


def grow_jobs(trial: Trial, stopped: frozenset[int]) -> list[Move]:
    """Moves that grow running elastic jobs into free devices; the trial is left with their effects on it.

    stopped: rows of jobs that the plan tells to stop.
    """
    state, settings = trial.state, trial.state.policy.elasticity
    moves: list[Move] = []
    for record in _by_gain(state):
        if len(moves) == GROWN_MAX:
            break
        if record.row in stopped:
            continue
        if state.now_ms - record.resized_ms < settings.interval_ms and record.resized_ms:
            continue
        move = _grow(trial, record)
        if move is not None:
            moves.append(move)
    return moves


def _by_gain(state: ClusterState) -> list[JobRecord]:
    """Running jobs that can still grow, by the speed that one more replica adds per device, the largest first."""
    rows = state.holding_rows()
    table = state.rows.table
    fits = (table[JOB_PHASE, rows] == PHASE_RUNNING) & (table[JOB_HELD, rows] < table[JOB_REPLICAS_MAX, rows])
    records = [state.by_row[row] for row in np.sort(rows[fits]).tolist()]
    records = [record for record in records if record.target is None and holds_whole_devices(record.spec)]
    return sorted(records, key=lambda record: (-_gain(record), record.spec.id))


def _gain(record: JobRecord) -> float:
    assert record.allocation is not None
    held = record.allocation.replicas
    return speedup(record.spec, held + 1) / speedup(record.spec, held) - 1.0


def _grow(trial: Trial, record: JobRecord) -> Move | None:
    """Grow one job by as many replicas as fit and pay, or None."""
    state, spec, held = trial.state, record.spec, record.allocation
    assert held is not None
    free = (1000 * int(state.inventory.totals[-1]) - headroom_milli(state)) // spec.request.device_milli
    more = _worthwhile(state, record, min(free, spec.replicas_max - held.replicas))
    while more > 0:
        allowed = within_limits(state, record.row, more * spec.request.device_milli, starts=False)
        added = trial.place_more(record.row, more) if allowed else None
        allocation = held if added is None else _joined(held, added)
        if added is not None and _is_faster(state, spec, held, allocation):
            trial.claim(record.row, added)
            trial.count(record.row, more * spec.request.device_milli)
            return Resize(spec.id, record.generation + 1, allocation)
        more //= 2
    return None


def _joined(held: Allocation, added: Allocation) -> Allocation:
    return Allocation(np.concatenate([held.nodes, added.nodes]), np.concatenate([held.devices, added.devices]))


def _is_faster(state: ClusterState, spec: JobSpec, held: Allocation, larger: Allocation) -> bool:
    """Whether more devices add enough speed where they lie, with what the job then exchanges over the links there."""
    if not state.link_speeds:
        return True
    before = speedup(spec, held.replicas) * pace_on(state, held)
    gain = speedup(spec, larger.replicas) * pace_on(state, larger) - before
    more = larger.replicas - held.replicas
    return gain > 0 and gain >= more * state.policy.elasticity.marginal_min * speedup(spec, 1)


def _worthwhile(state: ClusterState, record: JobRecord, most: int) -> int:
    """How many replicas more, at most `most`, add enough speed per device and pay for the resize."""
    spec, held = record.spec, record.allocation
    assert held is not None
    count = 0
    while count < most:
        step = speedup(spec, held.replicas + count + 1) - speedup(spec, held.replicas + count)
        if step < state.policy.elasticity.marginal_min * speedup(spec, 1):
            break
        count += 1
    if count == 0 or spec.checkpoint is None:
        return count if spec.checkpoint is not None or spec.elastic is not None else 0
    remaining_ms = int(jobs_view(state, np.array([record.row])).remaining_ms[0])
    if remaining_ms >= FOREVER_MS:
        return count
    saved_ms = remaining_ms * (1.0 - speedup(spec, held.replicas) / speedup(spec, held.replicas + count))
    cost_ms = spec.checkpoint.cost_ms + spec.checkpoint.restart_ms
    return count if saved_ms > PAYBACK * cost_ms else 0
