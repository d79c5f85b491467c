"""Synthetic workloads: a daily cycle, bursts and heavy tails, fitted to a trace, so that the demonstration runs on a
machine that has no traces.

Users submit in batches: a batch is one job, or a burst of jobs of one user and shape close together. A fitted model
has sessions too, batches of one user in a row (`sim.bursts`). Sessions, or without them batches, arrive as a Poisson
process whose rate follows the hour of the day. Shapes, run times (by shape), tenants, users, kinds and the ratio of
time limit to run time are drawn from fitted tables. All else that the tables do not hold is lost: days of the week, or
that one user's jobs are larger than another's.

A spec on the command line is `synthetic:MODEL?jobs=10000&load=0.9&devices=512`, with a built-in model or the file of
one: `jobs` or `days` of work; with `load` and `devices` the arrival rate is such that the work offered is that share of
so many devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import ceil
from urllib.parse import parse_qsl

import numpy as np

from clearway.model.errors import InputError
from clearway.model.ids import JobId, TenantName
from clearway.model.jobs import JobKind, JobSpec, Request
from clearway.model.units import DAY_MS, HOUR_MS, MILLI, MINUTE_MS, SECOND_MS
from clearway.sim.bursts import (
    HOURS,
    BurstPace,
    IntArray,
    SessionModel,
    draw_alike,
    draw_gaps,
    draw_offsets,
    draw_sessions,
    rows_of,
    stretches_of,
)
from clearway.sim.quantiles import FloatArray, at_quantiles, draw_quantiles, mean_of_quantiles
from clearway.sim.workload import TraceJob, Workload

SPEC_PREFIX = "synthetic:"
JOBS_MAX = 10_000_000
"""Bound of one generated workload: about 5 GB of objects."""
JOBS_DEFAULT = 10_000
SPAN_MAX_DAYS = 36_525
"""Bound of the arrivals of one workload, a century: what is beyond is a slip of the pen, or a date that is wrong."""
SPAN_MAX_MS = SPAN_MAX_DAYS * DAY_MS
ASKED_MIN = 1e-9
ASKED_MAX = 1e9
"""Bounds of the numbers of a spec."""
WORK_MIN_S = 1 / SECOND_MS / MILLI
"""Least work of a job: a millisecond of the least share of a device."""
LIMIT_MAX_MS = 30 * DAY_MS
"""Longest time limit that a user would write, unless the run itself is longer."""
BATCHES_SPARE = 1.05
"""Batches drawn over those that should be enough on average."""


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

    burst_paces: by size, from the smallest; empty = all bursts are of the mean `burst_gap_s`. sessions: None = batches
    come one by one. run_likeness: share of the jobs that run about as long as others of their burst. resolution_ms:
    submits are at multiples of this, so that jobs of one second stay so.
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
    burst_paces: tuple[BurstPace, ...] = ()
    sessions: SessionModel | None = None
    run_likeness: float = 0.0
    resolution_ms: int = 1

    def __post_init__(self) -> None:
        assert len(self.hour_weights) == HOURS
        assert self.shapes
        assert self.tenants
        assert self.users >= 1

    @property
    def jobs_per_batch(self) -> float:
        """Mean number of jobs of a batch."""
        weights = [shape.weight for shape in self.shapes]
        return sum(weight * shape.jobs_per_batch for weight, shape in zip(weights, self.shapes, strict=True)) / sum(
            weights
        )

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
    if (
        not ASKED_MIN <= number <= ASKED_MAX
        or (whole and not number.is_integer())
        or (key == "jobs" and number > JOBS_MAX)
    ):
        raise _spec_error(text, f"{key}={value!r}")
    return number


def _spec_error(text: str, found: str) -> InputError:
    return InputError(
        f"{text}: expected {SPEC_PREFIX}MODEL?jobs=N or days=D, and load=L&devices=N if wanted (numbers "
        f"from {ASKED_MIN:g} to {ASKED_MAX:g}, at most {JOBS_MAX} jobs), found {found}; for example "
        f"{SPEC_PREFIX}philly-like?jobs=10000&load=0.9&devices=512"
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
    InputError for more than JOBS_MAX jobs or SPAN_MAX_DAYS days.
    """
    assert (jobs is None) != (days is None), "one of jobs and days"
    assert (load is None) == (devices is None), "load and devices go together"
    rng = np.random.default_rng(seed)
    wanted = None if load is None or devices is None else load * devices
    count = jobs if jobs is not None else _jobs_in_days(model, days or 0.0, wanted)
    columns = _draw_columns(model, count, rng)
    span_ms = _span_ms(model, columns, days, wanted)
    submit_ms = _draw_submits(model, columns, span_ms, rng)
    order = np.argsort(submit_ms, kind="stable")
    first_ms = int(submit_ms[order[0]])
    return Workload(
        name=model.name,
        jobs=_build_jobs(model, columns, submit_ms - first_ms, order),
        # The first session may begin hours after midnight, where the hours of the model begin.
        start_unix_ms=None if model.sessions is None else first_ms,
        notes=(f"Generated with seed {seed} from the model {model.name} ({model.source}).",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """One row a job, in order of batches. batch, shape, user, kind: indices. limit_ms: 0 = none. session: of each
    batch; without sessions each batch is its own."""

    session: IntArray
    batch: IntArray
    shape: IntArray
    user: IntArray
    kind: IntArray
    run_ms: IntArray
    limit_ms: IntArray


def _jobs_in_days(model: SyntheticModel, days: float, wanted: float | None) -> int:
    per_hour = model.jobs_per_hour if wanted is None else wanted * 3600 / max(WORK_MIN_S, model.device_seconds_per_job)
    count = per_hour * HOURS * days
    if count > JOBS_MAX:
        raise InputError(
            f"days={days}: expected at most {JOBS_MAX} jobs, found {count:.10g}; ask for fewer days or less load"
        )
    return max(1, round(count))


def _draw_columns(model: SyntheticModel, count: int, rng: np.random.Generator) -> _Columns:
    session, shapes, sizes = _draw_batches(model, count, rng)
    batch = rows_of(sizes, count)
    shape = shapes[batch]
    users = _draw_weighted([rank**-model.user_skew for rank in range(1, model.users + 1)], int(session[-1]) + 1, rng)
    kind = _draw_weighted([weight for _, weight in model.kinds], len(sizes), rng)[batch]
    run_ms = _draw_runs(model, batch, shape, rng)
    return _Columns(
        session=session,
        batch=batch,
        shape=shape,
        user=users[session[batch]],
        kind=kind,
        run_ms=run_ms,
        limit_ms=_draw_limits(model, run_ms, rng),
    )


def _draw_batches(model: SyntheticModel, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray, IntArray]:
    """(session, shape, jobs) of each of as many batches as hold `count` jobs.

    Every batch holds at least one job, so that `count` batches are always enough. With sessions no more are drawn than
    will be needed, as draws that are alike share the tables out evenly among all of them.
    """
    wanted = count if model.sessions is None else ceil(BATCHES_SPARE * count / model.jobs_per_batch)
    while True:
        session, shapes = _draw_shapes(model, min(wanted, count), rng)
        sizes = _draw_batch_sizes(model, session, shapes, rng)
        batches = int(np.searchsorted(np.cumsum(sizes), count)) + 1
        if batches <= len(sizes):
            return session[:batches], shapes[:batches], sizes[:batches]
        wanted *= 2


def _draw_shapes(model: SyntheticModel, batches: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """(session, shape) of each batch."""
    weights = [shape.weight for shape in model.shapes]
    if model.sessions is None:
        return np.arange(batches), _draw_weighted(weights, batches, rng)
    session = draw_sessions(model.sessions, batches, rng)
    return session, _pick_weighted(weights, draw_alike(stretches_of(session), model.sessions.shape_likeness, rng))


def _draw_batch_sizes(model: SyntheticModel, session: IntArray, shapes: IntArray, rng: np.random.Generator) -> IntArray:
    """Jobs of each batch, from its session and shape."""
    sizes = np.ones(len(shapes), dtype=np.int64)
    stretch = stretches_of(session)
    for index, shape in enumerate(model.shapes):
        rows = np.flatnonzero(shapes == index)
        if model.sessions is None:
            bursts = rows[rng.random(len(rows)) < shape.burst_probability]
            sizes[bursts] = np.rint(draw_quantiles(shape.burst_size_quantiles, len(bursts), rng))
        elif shape.burst_probability > 0:
            excess = draw_alike(stretch[rows], model.sessions.size_likeness, rng) - (1 - shape.burst_probability)
            bursts = np.flatnonzero(excess >= 0)
            points = excess[bursts] / shape.burst_probability
            sizes[rows[bursts]] = np.rint(at_quantiles(shape.burst_size_quantiles, points))
    return sizes


def _draw_weighted(weights: Sequence[float], count: int, rng: np.random.Generator) -> IntArray:
    return _pick_weighted(weights, rng.random(count))


def _pick_weighted(weights: Sequence[float], points: FloatArray) -> IntArray:
    """The index that each point from 0 to 1 falls on, if each index is as wide as its weight."""
    cumulative = np.cumsum(np.asarray(weights, dtype=np.float64))
    picked: IntArray = np.minimum(np.searchsorted(cumulative, points * cumulative[-1], side="right"), len(weights) - 1)
    return picked


def _draw_runs(model: SyntheticModel, batch: IntArray, shape: IntArray, rng: np.random.Generator) -> IntArray:
    run_ms = np.empty(len(shape), dtype=np.int64)
    for index, kind in enumerate(model.shapes):
        rows = np.flatnonzero(shape == index)
        points = draw_alike(batch[rows], model.run_likeness, rng)
        run_ms[rows] = np.maximum(1, np.rint(at_quantiles(kind.run_quantiles_s, points) * SECOND_MS))
    return run_ms


def _draw_limits(model: SyntheticModel, run_ms: IntArray, rng: np.random.Generator) -> IntArray:
    """Limits in whole minutes, as people write them, and never below the run: these runs end by themselves."""
    if not model.limit_quantiles:
        return np.zeros(len(run_ms), dtype=np.int64)
    wished = run_ms * np.maximum(1.0, draw_quantiles(model.limit_quantiles, len(run_ms), rng))
    bounded = np.maximum(np.minimum(wished, LIMIT_MAX_MS), run_ms)
    return np.ceil(bounded / MINUTE_MS).astype(np.int64) * MINUTE_MS


def _span_ms(model: SyntheticModel, columns: _Columns, days: float | None, wanted: float | None) -> float:
    """Over how long the arrivals are spread, a millisecond at least."""
    if days is not None:
        span_ms = days * DAY_MS
    elif wanted is None:
        span_ms = len(columns.run_ms) / model.jobs_per_hour * HOUR_MS
    else:
        device_milli = np.array([shape.device_milli for shape in model.shapes], dtype=np.float64)[columns.shape]
        span_ms = float(np.dot(device_milli / MILLI, columns.run_ms)) / wanted
    return max(1.0, span_ms)


def _draw_submits(model: SyntheticModel, columns: _Columns, span_ms: float, rng: np.random.Generator) -> IntArray:
    """Sessions begin at times whose density follows the hour of day. What they hold beyond the span comes at its begin,
    lest long ones stretch it and thin the load."""
    _check_span(model, span_ms)
    weights = model.hour_weights if model.sessions is None else model.sessions.hour_weights
    begins = _invert_cycle(weights, np.sort(rng.random(int(columns.session[-1]) + 1)), span_ms)
    times = _follow_begins(model, columns, begins, rng)
    if model.sessions is not None:
        times %= span_ms
    _check_span(model, float(times.max()))
    submit_ms: IntArray = np.rint(times).astype(np.int64)
    return submit_ms // model.resolution_ms * model.resolution_ms


def _check_span(model: SyntheticModel, span_ms: float) -> None:
    if span_ms > SPAN_MAX_MS:
        raise InputError(
            f"{model.name}: expected arrivals within {SPAN_MAX_DAYS} days (a century), found {span_ms / DAY_MS:.6g}; "
            "ask for fewer jobs, or for more load, or look at jobs_per_hour and the gaps of the model"
        )


def _follow_begins(
    model: SyntheticModel, columns: _Columns, begins: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Times in ms of the jobs: batches of a session one after the other, and jobs of a burst. begins: of sessions."""
    batch, starts = columns.batch, begins[columns.session]
    if model.burst_paces:
        gaps = draw_gaps(model.burst_paces, batch, rng)
    else:
        gaps = rng.exponential(model.burst_gap_s * SECOND_MS, len(batch))
    is_first = np.diff(batch, prepend=-1) > 0
    gaps[is_first] = 0.0
    since_begin = np.cumsum(gaps)
    since_first = since_begin[is_first]
    if model.sessions is not None:
        length_ms = since_begin[np.diff(batch, append=len(batch)) > 0] - since_first
        starts = starts + draw_offsets(model.sessions, columns.session, length_ms, rng)
    times: FloatArray = starts[batch] + since_begin - since_first[batch]
    return times


def draw_delays(model: SyntheticModel, jobs: int) -> FloatArray:
    """How long after the begin of its session each of so many jobs comes, in ms."""
    rng = np.random.default_rng(0)
    columns = _draw_columns(model, jobs, rng)
    return _follow_begins(model, columns, np.zeros(int(columns.session[-1]) + 1), rng)


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
    missing = [(-weight / total, index) for index, (_, weight) in enumerate(model.tenants)]
    heapify(missing)
    activity = [rank**-model.user_skew for rank in range(1, model.users + 1)]
    scale = sum(activity)
    found = []
    for amount in activity:
        excess, index = missing[0]
        heapreplace(missing, (excess + amount / scale, index))
        found.append(TenantName(model.tenants[index][0]))
    return found
