"""Metrics of one run, computed from its columns. What each means stands in `clearway.sim.metric_definitions`.

Pure arithmetic over arrays: no metric looks at the scheduler, so policies are judged by what happened alone.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.model.units import FOREVER_MS, MILLI, SECOND_MS
from clearway.sim.metric_definitions import METRICS, SLOWDOWN_FLOOR_S, MetricDefinition, render_metrics_doc
from clearway.sim.result import NEVER_MS, IntColumn, JobColumns, Series, SimResult

__all__ = [
    "METRICS",
    "SIZE_BUCKETS",
    "GroupMetrics",
    "MetricDefinition",
    "Metrics",
    "Spread",
    "compute_metrics",
    "render_metrics_doc",
    "size_bucket_of",
    "time_weights_ms",
]

FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]

SIZE_BUCKETS: Final = (
    ("0", 0),
    ("<1", MILLI - 1),
    ("1", MILLI),
    ("2–4", 4 * MILLI),
    ("5–8", 8 * MILLI),
    ("9–16", 16 * MILLI),
    ("17–64", 64 * MILLI),
    ("65–256", 256 * MILLI),
    (">256", 1 << 62),
)
"""(name, largest size in thousandths): one device, then up to half a node, a node, two nodes, a rack, a hall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Statistics of one quantity over `count` jobs; NaN where count is 0. Percentiles: linear interpolation."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics:
    """The jobs of one kind, size bucket, tenant or queue. service_ratio: Σ devices × run / Σ devices × JCT."""

    name: str
    jobs: int
    finished: int
    wait_s: Spread
    jct_s: Spread
    service_ratio: float
    preemptions: int
    held_device_s: float
    lost_device_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All metrics of one run, by the keys of `METRICS`; NaN where there is nothing to measure."""

    jobs_total: int
    jobs_started: int
    jobs_finished: int
    wait_s: Spread
    latency_target_ratio: float
    queued_s: Spread
    jct_s: Spread
    bounded_slowdown: Spread
    finish_time_fairness: Spread
    unfair_jobs_ratio: float
    jain_index: float
    makespan_s: float
    device_allocation_ratio: float
    effective_use_ratio: float
    goodput_ratio: float
    fragmentation_ratio: float
    preemptions: int
    restarts: int
    held_device_s: float
    lost_device_s: float
    by_kind: tuple[GroupMetrics, ...] = ()
    by_size: tuple[GroupMetrics, ...] = ()
    by_tenant: tuple[GroupMetrics, ...] = ()
    by_queue: tuple[GroupMetrics, ...] = ()


@dataclass(frozen=True, slots=True)
class _Derived:
    """Columns of length n that several metrics share. Times in ms; run_ms is cut at the limit."""

    is_started: BoolColumn
    is_finished: BoolColumn
    wait_ms: IntColumn
    jct_ms: IntColumn
    run_ms: IntColumn
    size: IntColumn


def compute_metrics(result: SimResult) -> Metrics:
    """All metrics of `result`, overall and by kind, size, tenant and queue (groups without jobs are left out)."""
    jobs = result.jobs
    derived = _derive(jobs)
    finished = derived.is_finished
    fairness = _finish_time_fairness(jobs, derived, _cluster_milli(result))
    by_tenant = _groups(jobs, derived, jobs.tenant, jobs.tenant_names)
    return Metrics(
        jobs_total=len(jobs),
        jobs_started=int(derived.is_started.sum()),
        jobs_finished=int(finished.sum()),
        wait_s=_spread(derived.wait_ms[derived.is_started] / SECOND_MS),
        latency_target_ratio=_in_time_ratio(jobs, derived),
        queued_s=_spread(jobs.waited_ms[derived.is_started] / SECOND_MS),
        jct_s=_spread(derived.jct_ms[finished] / SECOND_MS),
        bounded_slowdown=_spread(_bounded_slowdown(derived)),
        finish_time_fairness=_spread(fairness),
        unfair_jobs_ratio=_ratio(float((fairness > 1).sum()), len(fairness)),
        jain_index=_jain_index(np.array([group.service_ratio for group in by_tenant if group.finished])),
        makespan_s=_makespan_ms(jobs) / SECOND_MS,
        device_allocation_ratio=_ratio(result.allocated_device_ms, result.capacity_device_ms),
        effective_use_ratio=_ratio(result.useful_device_ms, result.capacity_device_ms),
        goodput_ratio=_ratio(result.useful_device_ms, result.allocated_device_ms),
        fragmentation_ratio=_fragmentation(result.series, _makespan_ms(jobs)),
        preemptions=int(jobs.preemptions.sum()),
        restarts=int(jobs.restarts.sum()),
        held_device_s=float(jobs.held_device_ms.sum()) / SECOND_MS,
        lost_device_s=float(jobs.lost_device_ms.sum()) / SECOND_MS,
        by_kind=_groups(jobs, derived, jobs.kind, jobs.kind_names),
        by_size=_groups(jobs, derived, derived.size, tuple(name for name, _ in SIZE_BUCKETS)),
        by_tenant=by_tenant,
        by_queue=_groups(jobs, derived, jobs.queue, jobs.queue_names),
    )


def size_bucket_of(devices_milli: IntColumn) -> IntColumn:
    """int64[n]: for each size in thousandths of a device, its index in `SIZE_BUCKETS`."""
    edges = np.array([largest for _, largest in SIZE_BUCKETS], dtype=np.int64)
    return np.searchsorted(edges, devices_milli, side="left").astype(np.int64)


def time_weights_ms(series: Series, end_ms: int) -> IntColumn:
    """int64[rows]: how long each row of `series` holds; the last one holds until `end_ms`."""
    if len(series.time_ms) == 0:
        return np.zeros(0, dtype=np.int64)
    last = max(end_ms, int(series.time_ms[-1]))
    return np.diff(series.time_ms, append=np.int64(last))


def _derive(jobs: JobColumns) -> _Derived:
    is_started = jobs.start_ms != NEVER_MS
    return _Derived(
        is_started=is_started,
        is_finished=is_started & (jobs.end_ms != NEVER_MS),
        wait_ms=jobs.start_ms - jobs.submit_ms,
        jct_ms=jobs.end_ms - jobs.submit_ms,
        run_ms=np.minimum(jobs.run_ms, jobs.limit_ms),
        size=size_bucket_of(jobs.devices_milli),
    )


def _spread(values: FloatColumn) -> Spread:
    if len(values) == 0:
        return Spread(count=0, mean=math.nan, p50=math.nan, p90=math.nan, p99=math.nan, max=math.nan)
    p50, p90, p99, largest = np.quantile(values, [0.5, 0.9, 0.99, 1.0])
    return Spread(
        count=len(values),
        mean=float(values.mean()),
        p50=float(p50),
        p90=float(p90),
        p99=float(p99),
        max=float(largest),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _in_time_ratio(jobs: JobColumns, derived: _Derived) -> float:
    promised = jobs.latency_ms != FOREVER_MS
    kept = promised & derived.is_started & (derived.wait_ms <= jobs.latency_ms)
    return _ratio(float(kept.sum()), float(promised.sum()))


def _makespan_ms(jobs: JobColumns) -> int:
    return max(int(jobs.end_ms.max(initial=0)), 0)


def _cluster_milli(result: SimResult) -> float:
    """Devices of the cluster, thousandths: the most that were healthy at once."""
    return float(result.series.capacity_milli.max(initial=0))


def _bounded_slowdown(derived: _Derived) -> FloatColumn:
    finished = derived.is_finished
    run_ms = np.maximum(derived.run_ms[finished], SLOWDOWN_FLOOR_S * SECOND_MS)
    return np.maximum(derived.jct_ms[finished] / run_ms, 1.0)


def _finish_time_fairness(jobs: JobColumns, derived: _Derived, cluster_milli: float) -> FloatColumn:
    """ρ of each finished job that took any time at all."""
    counted = derived.is_finished & (derived.jct_ms > 0) & (derived.run_ms > 0)
    if cluster_milli == 0 or not counted.any():
        return np.zeros(0)
    contention = _jobs_in_system(jobs, jobs.submit_ms[counted], jobs.end_ms[counted])
    slowdown_alone = np.maximum(contention * jobs.devices_milli[counted] / cluster_milli, 1.0)
    return derived.jct_ms[counted] / (derived.run_ms[counted] * slowdown_alone)


def _jobs_in_system(jobs: JobColumns, begin_ms: IntColumn, end_ms: IntColumn) -> FloatColumn:
    """Time-average number of jobs, submitted and not ended, over each [begin_ms, end_ms), all of positive length."""
    ends = jobs.end_ms[jobs.end_ms != NEVER_MS]
    times = np.concatenate([jobs.submit_ms, ends])
    steps = np.concatenate([np.ones(len(jobs), dtype=np.int64), np.full(len(ends), -1, dtype=np.int64)])
    order = np.argsort(times, kind="stable")
    times, present = times[order], np.cumsum(steps[order])
    area = np.concatenate([[0], np.cumsum(present[:-1] * np.diff(times))])

    def area_until(at_ms: IntColumn) -> IntColumn:
        index = np.searchsorted(times, at_ms, side="right") - 1
        return np.asarray(area[index] + present[index] * (at_ms - times[index]), dtype=np.int64)

    return (area_until(end_ms) - area_until(begin_ms)) / (end_ms - begin_ms)


def _jain_index(shares: FloatColumn) -> float:
    squares = float((shares**2).sum())
    return _ratio(float(shares.sum()) ** 2, len(shares) * squares)


def _fragmentation(series: Series, makespan_ms: int) -> float:
    weights = time_weights_ms(series, makespan_ms).astype(np.float64)  # products may pass 2^63
    return _ratio(float((series.stranded_milli * weights).sum()), float((series.capacity_milli * weights).sum()))


def _groups(jobs: JobColumns, derived: _Derived, codes: IntColumn, names: tuple[str, ...]) -> tuple[GroupMetrics, ...]:
    """One entry per name that has jobs, in the order of `names`. Sorting once keeps thousands of tenants cheap."""
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return tuple(
        _group(jobs, derived, name, order[begin:end])
        for name, begin, end in zip(names, edges[:-1], edges[1:], strict=True)
        if end > begin
    )


def _group(jobs: JobColumns, derived: _Derived, name: str, rows: NDArray[np.intp]) -> GroupMetrics:
    started = rows[derived.is_started[rows]]
    finished = rows[derived.is_finished[rows]]
    devices = jobs.devices_milli[finished] / MILLI
    return GroupMetrics(
        name=name,
        jobs=len(rows),
        finished=len(finished),
        wait_s=_spread(derived.wait_ms[started] / SECOND_MS),
        jct_s=_spread(derived.jct_ms[finished] / SECOND_MS),
        service_ratio=_ratio(
            float((devices * derived.run_ms[finished]).sum()), float((devices * derived.jct_ms[finished]).sum())
        ),
        preemptions=int(jobs.preemptions[rows].sum()),
        held_device_s=float(jobs.held_device_ms[rows].sum()) / SECOND_MS,
        lost_device_s=float(jobs.lost_device_ms[rows].sum()) / SECOND_MS,
    )
