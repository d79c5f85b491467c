"""Fitting of a synthetic model to a workload: all tables that `sim.generate` draws from, read off a trace."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

import numpy as np

from clearway.model.errors import InputError
from clearway.model.units import DAY_MS, HOUR_MS, SECOND_MS
from clearway.sim.bursts import (
    HOURS,
    Batches,
    find_batches,
    fit_likeness,
    fit_paces,
    fit_sessions,
    rates_of_begins,
)
from clearway.sim.generate import SPAN_MAX_DAYS, SPAN_MAX_MS, JobShape, SyntheticModel, draw_delays
from clearway.sim.quantiles import fit_quantiles
from clearway.sim.workload import TraceJob, Workload
from clearway.wire.synthetic import SECONDS_MAX

Value = TypeVar("Value")
Shape = tuple[int, int, int]
"""(replicas, devices of each, share of a device in thousandths)."""

SHAPES_MAX = 64
"""Shapes kept when fitting; rarer ones count as the kept one nearest in devices."""
BEGINS_JOBS = 100_000
"""Jobs drawn to see when in their sessions they come."""


def fit_model(workload: Workload, name: str = "") -> SyntheticModel:
    """Fit all tables to a workload. Jobs without devices are left out. InputError when none has a device, and for times
    of which no model can be made."""
    jobs = [job for job in workload.jobs if job.spec.request.device_milli > 0]
    if not jobs:
        raise InputError(f"{workload.name}: expected at least one job with devices, found none; fit another trace")
    _check_times(workload.name, jobs)
    owners = [(job.spec.tenant, job.spec.user) for job in jobs]
    shapes = [_shape_of(job) for job in jobs]
    batches = find_batches(owners, shapes, [job.submit_ms for job in jobs])
    span_hours = max(1.0, (jobs[-1].submit_ms - jobs[0].submit_ms) / HOUR_MS)
    kinds = np.unique(np.array(shapes), axis=0, return_inverse=True)[1].reshape(-1)
    model = SyntheticModel(
        name=name or f"{workload.name}-like",
        source=f"fitted to {workload.name}",
        jobs_per_hour=len(jobs) / span_hours,
        hour_weights=_fit_hours(jobs, workload.start_unix_ms or 0),
        burst_gap_s=batches.mean_gap_s,
        burst_paces=fit_paces(batches),
        shapes=_fit_shapes(jobs, batches),
        users=len(set(owners)),
        user_skew=_fit_skew([owners[row] for row in batches.session_rows.tolist()]),
        tenants=tuple((str(tenant), count) for tenant, count in _count_values([job.spec.tenant for job in jobs])),
        kinds=tuple((kind, count) for kind, count in _count_values([job.spec.kind for job in jobs])),
        limit_quantiles=_fit_limits(jobs),
        sessions=fit_sessions(batches, kinds[batches.first_row]),
        run_likeness=fit_likeness(np.array([job.run_ms for job in jobs]), kinds, batches.of_job),
        resolution_ms=SECOND_MS if all(job.submit_ms % SECOND_MS == 0 for job in jobs) else 1,
    )
    return _fit_begins(model)


def _check_times(name: str, jobs: Sequence[TraceJob]) -> None:
    """Refuse what a file of a model cannot hold, or nobody could draw."""
    span_ms = jobs[-1].submit_ms - jobs[0].submit_ms
    if span_ms > SPAN_MAX_MS:
        raise InputError(
            f"{name}: expected submits within {SPAN_MAX_DAYS} days (a century), found {span_ms / DAY_MS:.6g} from the "
            "first to the last; is the time of one of them wrong?"
        )
    longest = max(jobs, key=lambda job: job.run_ms)
    if longest.run_ms > SECONDS_MAX * SECOND_MS:
        raise InputError(
            f"{name}: expected run times of at most {SECONDS_MAX:g} s, found {longest.run_ms / SECOND_MS:g} s of job "
            f"{longest.spec.id}; is its end wrong?"
        )


def _fit_begins(model: SyntheticModel) -> SyntheticModel:
    """The model with sessions that begin such that its jobs, some of which come hours later, follow its hours."""
    assert model.sessions is not None
    weights = rates_of_begins(draw_delays(model, BEGINS_JOBS), model.hour_weights)
    return replace(model, sessions=replace(model.sessions, hour_weights=weights))


def _count_values(values: Sequence[Value]) -> list[tuple[Value, float]]:
    """Distinct values with their counts, the most frequent first, ties in order of appearance."""
    counts: dict[Value, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return sorted(((value, float(count)) for value, count in counts.items()), key=lambda pair: -pair[1])


def _shape_of(job: TraceJob) -> Shape:
    request = job.spec.request
    return job.spec.replicas, request.devices, request.share_milli


def _fit_hours(jobs: Sequence[TraceJob], start_unix_ms: int) -> tuple[float, ...]:
    counts = [0] * HOURS
    for job in jobs:
        counts[(start_unix_ms + job.submit_ms) // HOUR_MS % HOURS] += 1
    return tuple(count * HOURS / len(jobs) for count in counts)


def _fit_shapes(jobs: Sequence[TraceJob], batches: Batches) -> tuple[JobShape, ...]:
    """The SHAPES_MAX most frequent shapes; the jobs of the others count for the nearest of these in devices."""
    runs: dict[Shape, list[float]] = {}
    for job in jobs:
        runs.setdefault(_shape_of(job), []).append(job.run_ms / SECOND_MS)
    sizes: dict[Shape, list[int]] = {}
    for row, size in zip(batches.first_row.tolist(), batches.jobs.tolist(), strict=True):
        sizes.setdefault(_shape_of(jobs[row]), []).append(size)
    frequent = sorted(runs, key=lambda shape: (-len(runs[shape]), shape))
    kept = {shape: sizes[shape] for shape in frequent[:SHAPES_MAX]}
    for shape in frequent[SHAPES_MAX:]:
        size = prod(shape)
        nearest = min(kept, key=lambda other: (abs(prod(other) - size), other))
        runs[nearest].extend(runs[shape])
        kept[nearest].extend(sizes[shape])
    return tuple(_fit_shape(shape, runs[shape], own, len(batches.jobs)) for shape, own in kept.items())


def _fit_shape(shape: Shape, runs_s: Sequence[float], sizes: Sequence[int], batches: int) -> JobShape:
    bursts = [float(size) for size in sizes if size > 1]
    return JobShape(
        replicas=shape[0],
        devices=shape[1],
        share_milli=shape[2],
        weight=len(sizes) / batches,
        run_quantiles_s=fit_quantiles(runs_s),
        burst_probability=len(bursts) / len(sizes),
        burst_size_quantiles=fit_quantiles(bursts or [1.0]),
    )


def _fit_skew(users: Sequence[tuple[str, str]]) -> float:
    """Slope of log activity against log rank, least squares; 0 for a single user."""
    counts = [count for _, count in _count_values(users)]
    if len(counts) < 2:
        return 0.0
    ranks = np.log(np.arange(1, len(counts) + 1))
    activity = np.log(np.asarray(counts))
    slope = np.dot(ranks - ranks.mean(), activity - activity.mean()) / np.dot(
        ranks - ranks.mean(), ranks - ranks.mean()
    )
    return max(0.0, -float(slope))


def _fit_limits(jobs: Sequence[TraceJob]) -> tuple[float, ...]:
    """Ratio of limit to run time of jobs that had a limit and did not reach it; empty when none has."""
    ratios = [
        job.spec.limit_ms / job.run_ms
        for job in jobs
        if job.spec.limit_ms is not None and 0 < job.run_ms <= job.spec.limit_ms
    ]
    return fit_quantiles(ratios) if ratios else ()
