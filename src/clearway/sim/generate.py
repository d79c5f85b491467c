"""Synthetic workloads: a daily cycle, bursts and heavy tails, fitted to a trace, so that the demonstration runs on a
machine that has no traces.

Users submit in batches: a batch is one job, or a burst of jobs of one user and shape close together. Batches arrive as
a Poisson process whose rate follows the hour of the day. Shapes, run times (by shape), tenants, users, kinds and the
ratio of time limit to run time are drawn from fitted tables. Run times within a burst are drawn independently, which
real ones are not; all else that the tables do not hold is lost too.

A spec on the command line is `synthetic:MODEL?jobs=10000&load=0.9&devices=512`: `jobs` or `days` of work; with `load`
and `devices` the arrival rate is such that the work offered is that share of so many devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from clearway.model.errors import InputError
from clearway.model.ids import JobId, TenantName
from clearway.model.jobs import JobKind, JobSpec, Request
from clearway.model.units import DAY_MS, HOUR_MS, MILLI, MINUTE_MS, SECOND_MS
from clearway.sim.quantiles import FloatArray, draw_quantiles, fit_quantiles, mean_of_quantiles
from clearway.sim.workload import TraceJob, Workload

IntArray = NDArray[np.int64]
Value = TypeVar("Value")
Shape = tuple[int, int, int]
"""(replicas, devices of each, share of a device in thousandths)."""

SPEC_PREFIX = "synthetic:"
JOBS_MAX = 10_000_000
"""Bound of one generated workload: about 5 GB of objects."""
JOBS_DEFAULT = 10_000
BURST_GAP_MS = MINUTE_MS
"""Jobs of one user and shape that follow each other within this time are one burst when a trace is fitted."""
SHAPES_MAX = 64
"""Shapes kept when fitting; rarer ones count as the kept one nearest in devices."""
LIMIT_MAX_MS = 30 * DAY_MS
"""Longest time limit that a user would write, unless the run itself is longer."""
HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """A shape of job: its share of the batches, how its batches burst, and the quantiles of its run times in seconds.

    burst_probability: share of its batches that are bursts. burst_size_quantiles: jobs of a burst.
    """

    replicas: int
    devices: int
    share_milli: int = MILLI
    weight: float
    run_quantiles_s: tuple[float, ...]
    burst_probability: float
    burst_size_quantiles: tuple[float, ...]

    @property
    def jobs_per_batch(self) -> float:
        """Mean number of jobs of a batch."""
        return 1 + self.burst_probability * (mean_of_quantiles(self.burst_size_quantiles) - 1)

    @property
    def device_milli(self) -> int:
        """Devices of the whole job in thousandths."""
        return self.replicas * self.devices * self.share_milli


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticModel:
    """All that a workload is drawn from. Tables are at `quantiles.PROBABILITIES`.

    hour_weights: 24 relative rates by hour of the day. burst_gap_s: mean time between jobs of one burst. users: how
    many; user_skew: exponent s of their activity, the k-th most active submits in proportion to k^−s. limit_quantiles:
    time limit over run time, at least 1; empty = jobs have no limits. tenants, kinds: (value, weight); each user
    belongs to one tenant. source: where the figures are from.
    """

    name: str
    source: str
    jobs_per_hour: float
    hour_weights: tuple[float, ...]
    burst_gap_s: float
    shapes: tuple[JobShape, ...]
    users: int
    user_skew: float
    tenants: tuple[tuple[str, float], ...]
    kinds: tuple[tuple[JobKind, float], ...] = ((JobKind.TRAIN, 1.0),)
    limit_quantiles: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.hour_weights) == HOURS
        assert self.shapes
        assert self.tenants
        assert self.users >= 1

    @property
    def device_seconds_per_job(self) -> float:
        """Mean work of one job."""
        jobs = [shape.weight * shape.jobs_per_batch for shape in self.shapes]
        work = [shape.device_milli / MILLI * mean_of_quantiles(shape.run_quantiles_s) for shape in self.shapes]
        return sum(count * amount for count, amount in zip(jobs, work, strict=True)) / sum(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSpec:
    """A parsed `synthetic:` argument. Exactly one of jobs and days is given; load and devices go together."""

    model: str
    jobs: int | None = None
    days: float | None = None
    load: float | None = None
    devices: int | None = None


# --- The spec --------------------------------------------------------------------------------------------------------


def is_synthetic(text: str) -> bool:
    """Whether a TRACE argument asks for a generated workload."""
    return text.startswith(SPEC_PREFIX)


def parse_synthetic(text: str) -> SyntheticSpec:
    """Parse `synthetic:MODEL?jobs=N&days=D&load=L&devices=N`. InputError for anything that is not understood."""
    name, _, query = text.removeprefix(SPEC_PREFIX).partition("?")
    values: dict[str, float] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in ("jobs", "days", "load", "devices") or key in values:
            raise _spec_error(text, f"{key!r}")
        values[key] = _parse_positive(text, key, value)
    if "jobs" in values and "days" in values:
        raise _spec_error(text, "both jobs and days")
    if ("load" in values) != ("devices" in values):
        raise _spec_error(text, "load without devices, or devices without load")
    if not {"jobs", "days"} & set(values):
        values["jobs"] = JOBS_DEFAULT
    return SyntheticSpec(
        model=name,
        jobs=int(values["jobs"]) if "jobs" in values else None,
        days=values.get("days"),
        load=values.get("load"),
        devices=int(values["devices"]) if "devices" in values else None,
    )


def _parse_positive(text: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise _spec_error(text, f"{key}={value!r}") from None
    whole = key in ("jobs", "devices")
    if not 0 < number < float("inf") or (whole and not number.is_integer()) or (key == "jobs" and number > JOBS_MAX):
        raise _spec_error(text, f"{key}={value!r}")
    return number


def _spec_error(text: str, found: str) -> InputError:
    return InputError(
        f"{text}: expected {SPEC_PREFIX}MODEL?jobs=N or days=D, and load=L&devices=N if wanted (positive numbers, "
        f"at most {JOBS_MAX} jobs), found {found}; for example {SPEC_PREFIX}philly-like?jobs=10000&load=0.9&devices=512"
    )


# --- Drawing ---------------------------------------------------------------------------------------------------------


def generate(
    model: SyntheticModel,
    *,
    jobs: int | None = None,
    days: float | None = None,
    seed: int = 0,
    load: float | None = None,
    devices: int | None = None,
) -> Workload:
    """Draw a workload of so many jobs, or so many days of arrivals. The same arguments give the same workload.

    load and devices: choose the arrival rate so that the work offered per second is `load` × `devices` device-seconds;
    with `jobs` exactly (by the work that was drawn), with `days` on average. Without them the model's own rate holds.
    """
    assert (jobs is None) != (days is None), "one of jobs and days"
    assert (load is None) == (devices is None), "load and devices go together"
    rng = np.random.default_rng(seed)
    wanted = None if load is None or devices is None else load * devices
    count = jobs if jobs is not None else _jobs_in_days(model, days or 0.0, wanted)
    columns = _draw_columns(model, count, rng)
    span_ms = _span_ms(model, columns, days, wanted)
    submit_ms = _draw_submits(model, columns.batch, span_ms, rng)
    order = np.argsort(submit_ms, kind="stable")
    first_ms = int(submit_ms[order[0]])
    return Workload(
        name=model.name,
        jobs=_build_jobs(model, columns, submit_ms - first_ms, order),
        notes=(f"Generated with seed {seed} from the model {model.name} ({model.source}).",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """One row a job, in order of batches. batch, shape, user, kind: indices. limit_ms: 0 = none."""

    batch: IntArray
    shape: IntArray
    user: IntArray
    kind: IntArray
    run_ms: IntArray
    limit_ms: IntArray


def _jobs_in_days(model: SyntheticModel, days: float, wanted: float | None) -> int:
    per_hour = model.jobs_per_hour if wanted is None else wanted * 3600 / model.device_seconds_per_job
    count = max(1, round(per_hour * HOURS * days))
    if count > JOBS_MAX:
        raise InputError(
            f"days={days}: expected at most {JOBS_MAX} jobs, found {count}; ask for fewer days or less load"
        )
    return count


def _draw_columns(model: SyntheticModel, count: int, rng: np.random.Generator) -> _Columns:
    shapes = _draw_weighted([shape.weight for shape in model.shapes], count, rng)
    sizes = _draw_batch_sizes(model, shapes, rng)
    batch = np.repeat(np.arange(len(sizes)), sizes)[:count]
    shape = shapes[batch]
    user = _draw_weighted([rank**-model.user_skew for rank in range(1, model.users + 1)], len(sizes), rng)[batch]
    kind = _draw_weighted([weight for _, weight in model.kinds], len(sizes), rng)[batch]
    run_ms = _draw_runs(model, shape, rng)
    return _Columns(
        batch=batch, shape=shape, user=user, kind=kind, run_ms=run_ms, limit_ms=_draw_limits(model, run_ms, rng)
    )


def _draw_batch_sizes(model: SyntheticModel, shapes: IntArray, rng: np.random.Generator) -> IntArray:
    """Jobs of each batch, for as many batches as hold as many jobs as there are rows in `shapes` (one a batch): every
    batch holds at least one, so the rows are always enough."""
    sizes = np.ones(len(shapes), dtype=np.int64)
    for index, shape in enumerate(model.shapes):
        rows = np.flatnonzero(shapes == index)
        bursts = rows[rng.random(len(rows)) < shape.burst_probability]
        sizes[bursts] = np.rint(draw_quantiles(shape.burst_size_quantiles, len(bursts), rng))
    batches = int(np.searchsorted(np.cumsum(sizes), len(shapes))) + 1
    kept: IntArray = sizes[:batches]
    return kept


def _draw_weighted(weights: Sequence[float], count: int, rng: np.random.Generator) -> IntArray:
    cumulative = np.cumsum(np.asarray(weights, dtype=np.float64))
    points = rng.random(count) * cumulative[-1]
    picked: IntArray = np.minimum(np.searchsorted(cumulative, points, side="right"), len(weights) - 1)
    return picked


def _draw_runs(model: SyntheticModel, shape: IntArray, rng: np.random.Generator) -> IntArray:
    run_ms = np.empty(len(shape), dtype=np.int64)
    for index, kind in enumerate(model.shapes):
        rows = np.flatnonzero(shape == index)
        run_ms[rows] = np.maximum(1, np.rint(draw_quantiles(kind.run_quantiles_s, len(rows), rng) * SECOND_MS))
    return run_ms


def _draw_limits(model: SyntheticModel, run_ms: IntArray, rng: np.random.Generator) -> IntArray:
    """Limits in whole minutes, as people write them, and never below the run: these runs end by themselves."""
    if not model.limit_quantiles:
        return np.zeros(len(run_ms), dtype=np.int64)
    wished = run_ms * np.maximum(1.0, draw_quantiles(model.limit_quantiles, len(run_ms), rng))
    bounded = np.maximum(np.minimum(wished, LIMIT_MAX_MS), run_ms)
    return np.ceil(bounded / MINUTE_MS).astype(np.int64) * MINUTE_MS


def _span_ms(model: SyntheticModel, columns: _Columns, days: float | None, wanted: float | None) -> float:
    if days is not None:
        return days * DAY_MS
    if wanted is None:
        return len(columns.run_ms) / model.jobs_per_hour * HOUR_MS
    device_milli = np.array([shape.device_milli for shape in model.shapes], dtype=np.float64)[columns.shape]
    return float(np.dot(device_milli / MILLI, columns.run_ms)) / wanted


def _draw_submits(model: SyntheticModel, batch: IntArray, span_ms: float, rng: np.random.Generator) -> IntArray:
    """Batches at times whose density follows the hour of day, jobs of a burst one after the other."""
    batches = int(batch[-1]) + 1
    starts = _invert_cycle(model.hour_weights, np.sort(rng.random(batches)), span_ms)
    gaps = rng.exponential(model.burst_gap_s * SECOND_MS, len(batch))
    is_first = np.diff(batch, prepend=-1) > 0
    gaps[is_first] = 0.0
    since_begin = np.cumsum(gaps)
    submit_ms: IntArray = np.rint(starts[batch] + since_begin - since_begin[is_first][batch]).astype(np.int64)
    return submit_ms


def _invert_cycle(hour_weights: Sequence[float], share: FloatArray, span_ms: float) -> FloatArray:
    """Times at which given shares of the span's arrivals have come, if the rate follows the hours of the day."""
    hours = int(np.ceil(span_ms / HOUR_MS))
    edges_ms = np.minimum(np.arange(hours + 1) * float(HOUR_MS), span_ms)
    rates = np.asarray(hour_weights, dtype=np.float64)[np.arange(hours) % HOURS]
    cumulative = np.concatenate(([0.0], np.cumsum(rates * np.diff(edges_ms))))
    times_ms: FloatArray = np.interp(share * cumulative[-1], cumulative, edges_ms)
    return times_ms


def _build_jobs(model: SyntheticModel, columns: _Columns, submit_ms: IntArray, order: IntArray) -> tuple[TraceJob, ...]:
    """Objects from columns. Plain lists are walked, which is several times faster than indexing arrays."""
    requests = [Request(devices=shape.devices, share_milli=shape.share_milli) for shape in model.shapes]
    replicas = [shape.replicas for shape in model.shapes]
    kinds = [kind for kind, _ in model.kinds]
    users = [f"user{rank}" for rank in range(1, model.users + 1)]
    tenants = _tenants_of_users(model)
    rows = zip(
        *(column[order].tolist() for column in (columns.shape, columns.user, columns.kind, columns.run_ms)),
        columns.limit_ms[order].tolist(),
        submit_ms[order].tolist(),
        strict=True,
    )
    return tuple(
        TraceJob(
            JobSpec(
                id=JobId(number),
                request=requests[shape],
                replicas=replicas[shape],
                user=users[user],
                tenant=tenants[user],
                kind=kinds[kind],
                limit_ms=limit or None,
                estimate_ms=limit or None,
            ),
            submit,
            run,
        )
        for number, (shape, user, kind, run, limit, submit) in enumerate(rows, start=1)
    )


def _tenants_of_users(model: SyntheticModel) -> list[TenantName]:
    """Each user's tenant: users by falling activity go to the tenant that is furthest below its share."""
    total = sum(weight for _, weight in model.tenants)
    missing = [weight / total for _, weight in model.tenants]
    activity = [rank**-model.user_skew for rank in range(1, model.users + 1)]
    scale = sum(activity)
    found = []
    for amount in activity:
        index = max(range(len(missing)), key=missing.__getitem__)
        missing[index] -= amount / scale
        found.append(TenantName(model.tenants[index][0]))
    return found


# --- Fitting ---------------------------------------------------------------------------------------------------------


def fit_model(workload: Workload, name: str = "") -> SyntheticModel:
    """Fit all tables to a workload. Jobs without devices are left out. InputError when none has a device."""
    jobs = [job for job in workload.jobs if job.spec.request.device_milli > 0]
    if not jobs:
        raise InputError(f"{workload.name}: expected at least one job with devices, found none; fit another trace")
    batch_sizes, gaps_ms = _find_batches(jobs)
    span_hours = max(1.0, (jobs[-1].submit_ms - jobs[0].submit_ms) / HOUR_MS)
    return SyntheticModel(
        name=name or f"{workload.name}-like",
        source=f"fitted to {workload.name}",
        jobs_per_hour=len(jobs) / span_hours,
        hour_weights=_fit_hours(jobs, workload.start_unix_ms or 0),
        burst_gap_s=sum(gaps_ms) / max(1, len(gaps_ms)) / SECOND_MS,
        shapes=_fit_shapes(jobs, batch_sizes),
        users=max(1, len({job.spec.user for job in jobs})),
        user_skew=_fit_skew([job.spec.user for job in jobs]),
        tenants=tuple((str(tenant), count) for tenant, count in _count_values([job.spec.tenant for job in jobs])),
        kinds=tuple((kind, count) for kind, count in _count_values([job.spec.kind for job in jobs])),
        limit_quantiles=_fit_limits(jobs),
    )


def _count_values(values: Sequence[Value]) -> list[tuple[Value, float]]:
    """Distinct values with their counts, the most frequent first, ties in order of appearance."""
    counts: dict[Value, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return sorted(((value, float(count)) for value, count in counts.items()), key=lambda pair: -pair[1])


def _shape_of(job: TraceJob) -> Shape:
    request = job.spec.request
    return job.spec.replicas, request.devices, request.share_milli


def _find_batches(jobs: Sequence[TraceJob]) -> tuple[dict[Shape, list[int]], list[int]]:
    """(sizes of the batches by shape, gaps within bursts in ms)."""
    last: dict[tuple[str, str, Shape], tuple[int, int]] = {}
    sizes: dict[Shape, list[int]] = {}
    gaps_ms: list[int] = []
    for job in jobs:
        shape = _shape_of(job)
        key = (job.spec.tenant, job.spec.user, shape)
        own = sizes.setdefault(shape, [])
        seen_ms, batch = last.get(key, (-BURST_GAP_MS - 1, 0))
        if job.submit_ms - seen_ms <= BURST_GAP_MS:
            own[batch] += 1
            gaps_ms.append(job.submit_ms - seen_ms)
        else:
            batch = len(own)
            own.append(1)
        last[key] = (job.submit_ms, batch)
    return sizes, gaps_ms


def _fit_hours(jobs: Sequence[TraceJob], start_unix_ms: int) -> tuple[float, ...]:
    counts = [0] * HOURS
    for job in jobs:
        counts[(start_unix_ms + job.submit_ms) // HOUR_MS % HOURS] += 1
    return tuple(count * HOURS / len(jobs) for count in counts)


def _fit_shapes(jobs: Sequence[TraceJob], batch_sizes: dict[Shape, list[int]]) -> tuple[JobShape, ...]:
    """The SHAPES_MAX most frequent shapes; the jobs of the others count for the nearest of these in devices."""
    runs: dict[Shape, list[float]] = {}
    for job in jobs:
        runs.setdefault(_shape_of(job), []).append(job.run_ms / SECOND_MS)
    frequent = sorted(runs, key=lambda shape: (-len(runs[shape]), shape))
    batches = {shape: list(batch_sizes[shape]) for shape in frequent[:SHAPES_MAX]}
    for shape in frequent[SHAPES_MAX:]:
        size = prod(shape)
        nearest = min(batches, key=lambda other: (abs(prod(other) - size), other))
        runs[nearest].extend(runs[shape])
        batches[nearest].extend(batch_sizes[shape])
    total = sum(map(len, batches.values()))
    return tuple(_fit_shape(shape, runs[shape], sizes, total) for shape, sizes in batches.items())


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


def _fit_skew(users: Sequence[str]) -> float:
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
