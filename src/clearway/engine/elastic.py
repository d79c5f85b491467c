"""Step 6: give devices that nobody waits for to the elastic jobs that gain most from them."""

from dataclasses import replace
from typing import Final

import numpy as np

from clearway.engine.collective import pace_on
from clearway.engine.limits import headroom_milli, within_limits
from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    JOB_HELD,
    JOB_PHASE,
    JOB_QUEUE,
    JOB_REPLICAS_MAX,
    PHASE_RUNNING,
    QUEUE_JOB_MAX,
)
from clearway.engine.trial import Trial
from clearway.engine.view import jobs_view
from clearway.model.allocation import Allocation
from clearway.model.jobs import JobSpec
from clearway.model.plan import Move, Resize, Start
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
        assert record.allocation is not None
        larger = _grow(trial, record, record.allocation)
        if larger is not None:
            moves.append(Resize(record.spec.id, record.generation + 1, larger))
    return moves


def enlarge_starts(trial: Trial, moves: list[Move]) -> None:
    """Let elastic jobs that the plan starts have at once what they would grow to: not a start now and another a moment
    later. The trial is left with the effects on it."""
    for place, move in enumerate(moves):
        if not isinstance(move, Start):
            continue
        record, held = trial.state.jobs[move.job], move.allocation
        if record.spec.elastic is None or held.replicas >= record.spec.replicas_max:
            continue
        if holds_whole_devices(record.spec) and (larger := _grow(trial, record, held)) is not None:
            moves[place] = replace(move, allocation=larger)


def next_growth_ms(state: ClusterState) -> int:
    """When a job that was resized not long ago may grow again, where devices are free; FOREVER_MS = nobody waits to."""
    if not int(state.inventory.totals[-1]):
        return FOREVER_MS
    interval_ms = state.policy.elasticity.interval_ms
    due = (record.resized_ms + interval_ms for record in _by_gain(state) if record.resized_ms)
    return min((due_ms for due_ms in due if due_ms > state.now_ms), default=FOREVER_MS)


def _by_gain(state: ClusterState) -> list[JobRecord]:
    """Running jobs that can still grow, by the speed that one more replica adds per device, the largest first."""
    if not state.rows.has_elastic:
        return []
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


def _grow(trial: Trial, record: JobRecord, held: Allocation) -> Allocation | None:
    """What the job holds with as many replicas more as fit and pay; None = it does not grow. held: what it has."""
    state, spec = trial.state, record.spec
    free = (1000 * int(state.inventory.totals[-1]) - headroom_milli(state)) // spec.request.device_milli
    queue = int(state.rows.table[JOB_QUEUE, record.row])
    most = min(spec.replicas_max, int(state.accounts.queues[QUEUE_JOB_MAX, queue]) // spec.request.device_milli)
    most = count = _worthwhile(state, record, held, min(free, most - held.replicas))
    best, fits, refused = held, 0, most + 1
    while count > fits:
        larger = _larger(trial, record, held, count)
        if larger is None:
            refused = count
        else:
            best, fits = larger, count
        count = (fits + refused) // 2
    if not fits:
        return None
    devices = best.devices[len(held.devices) :]
    trial.claim(record.row, Allocation(best.nodes[held.replicas :], devices))
    trial.count(record.row, fits * spec.request.device_milli)
    return best


def _larger(trial: Trial, record: JobRecord, held: Allocation, more: int) -> Allocation | None:
    """With so many replicas more, where limits and free devices let it have them and it is faster there."""
    state, spec = trial.state, record.spec
    if not within_limits(state, record.row, more * spec.request.device_milli, starts=False):
        return None
    added = trial.place_more(record.row, held, more)
    if added is None:
        return None
    larger = _joined(held, added)
    return larger if _is_faster(state, spec, held, larger) else None


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


def _worthwhile(state: ClusterState, record: JobRecord, held: Allocation, most: int) -> int:
    """How many replicas more, at most `most`, add enough speed per device and pay for the resize: that of a job which
    starts costs nothing."""
    spec = record.spec
    count = 0
    while count < most:
        step = speedup(spec, held.replicas + count + 1) - speedup(spec, held.replicas + count)
        if step < state.policy.elasticity.marginal_min * speedup(spec, 1):
            break
        count += 1
    if count == 0 or spec.checkpoint is None or record.allocation is None:
        return count
    remaining_ms = int(jobs_view(state, np.array([record.row])).remaining_ms[0])
    if remaining_ms >= FOREVER_MS:
        return count
    saved_ms = remaining_ms * (1.0 - speedup(spec, held.replicas) / speedup(spec, held.replicas + count))
    cost_ms = spec.checkpoint.cost_ms + spec.checkpoint.restart_ms
    return count if saved_ms > PAYBACK * cost_ms else 0
