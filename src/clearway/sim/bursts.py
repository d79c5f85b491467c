"""How jobs bunch in time, in two layers: bursts, and sessions of bursts.

A burst is jobs of one user and shape close together; a session is one user's bursts (and single jobs) with pauses
between them. A script submits a thousand jobs in a second where a person needs a minute for two, so the pace of a burst
goes by its size. Bursts of one session are alike in size and shape, jobs of one burst in run time.

Both layers are read off a trace and drawn again here; what a job looks like is in `sim.generate`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearway.model.units import HOUR_MS, MINUTE_MS, SECOND_MS
from clearway.sim.quantiles import FloatArray, at_quantiles, draw_quantiles, fit_quantiles

IntArray = NDArray[np.int64]

BURST_GAP_MS = MINUTE_MS
"""Jobs of one user and shape that follow each other within this time are one burst when a trace is fitted."""
SESSION_GAP_MS = 30 * MINUTE_MS
"""Jobs of one user that follow each other within this time are of one session when a trace is fitted."""
STRETCH_BATCHES = 16
"""Batches of a session that are alike: over a day of work a user turns to other jobs, and a session of hundreds of
bursts that were all of the largest would outweigh the trace."""
HOURS = 24
BEGIN_ROUNDS = 100
"""Rounds in which the rates of begins are found: enough that more change little, few enough to stay smooth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstPace:
    """Pace of the bursts of at least so many jobs. gap_quantiles_s: of the mean gap between the jobs of one burst, 0
    where all come at once."""

    jobs_min: int
    gap_quantiles_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionModel:
    """One user's batches in a row. Tables are at `quantiles.PROBABILITIES`.

    batch_quantiles: batches (single jobs and bursts) of a session. pause_quantiles_s: from the last job of a batch to
    the first of the next, negative where these overlap. The likenesses: shares of the batches whose shape, size and
    pause are drawn as like the others' of their stretch of the session (`draw_alike`). hour_weights: 24 relative rates
    of the begins of sessions, such that the jobs come at the model's own.
    """

    batch_quantiles: tuple[float, ...]
    pause_quantiles_s: tuple[float, ...]
    shape_likeness: float
    size_likeness: float
    pause_likeness: float
    hour_weights: tuple[float, ...] = (1.0,) * HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batches of a trace, in order of their first jobs. of_job: the batch of each job. The rest is of each batch:
    its session, how many jobs, the row of the first, when the first and the last came."""

    of_job: IntArray
    session: IntArray
    jobs: IntArray
    first_row: IntArray
    first_ms: IntArray
    last_ms: IntArray

    @property
    def session_rows(self) -> IntArray:
        """The row of the first job of each session."""
        firsts: IntArray = self.first_row[np.unique(self.session, return_index=True)[1]]
        return firsts

    @property
    def mean_gap_s(self) -> float:
        """Mean time between jobs of one burst."""
        return int((self.last_ms - self.first_ms).sum()) / max(1, int((self.jobs - 1).sum())) / SECOND_MS


# --- Fitting ---------------------------------------------------------------------------------------------------------


def group_by_gap(keys: Sequence[Hashable], times_ms: Sequence[int], gap_ms: int) -> IntArray:
    """The group of each item: items of one key that follow each other within the gap. Groups are numbered in order of
    their first items. times_ms: not falling."""
    last: dict[Hashable, tuple[int, int]] = {}
    groups = np.empty(len(keys), dtype=np.int64)
    count = 0
    for row, (key, now_ms) in enumerate(zip(keys, times_ms, strict=True)):
        seen_ms, group = last.get(key, (now_ms - gap_ms - 1, 0))
        if now_ms - seen_ms > gap_ms:
            group, count = count, count + 1
        groups[row] = group
        last[key] = (now_ms, group)
    return groups


def find_batches(owners: Sequence[Hashable], shapes: Sequence[Hashable], times_ms: Sequence[int]) -> Batches:
    """The batches of jobs given by owner (user), shape and time of submit. At least one job."""
    of_job = group_by_gap(list(zip(owners, shapes, strict=True)), times_ms, BURST_GAP_MS)
    times = np.asarray(times_ms, dtype=np.int64)
    first_row = np.unique(of_job, return_index=True)[1]
    last_ms = times[first_row]
    np.maximum.at(last_ms, of_job, times)
    return Batches(
        of_job=of_job,
        session=group_by_gap(owners, times_ms, SESSION_GAP_MS)[first_row],
        jobs=np.bincount(of_job),
        first_row=first_row,
        first_ms=times[first_row],
        last_ms=last_ms,
    )


def fit_paces(batches: Batches) -> tuple[BurstPace, ...]:
    """Paces by size, in classes of 2–3 jobs, 4–7, 8–15 and so on, without those that no burst is in."""
    bursts = batches.jobs > 1
    jobs = batches.jobs[bursts]
    gap_s = (batches.last_ms - batches.first_ms)[bursts] / (jobs - 1) / SECOND_MS
    classes = np.floor(np.log2(jobs)).astype(np.int64)
    return tuple(
        BurstPace(jobs_min=2**row, gap_quantiles_s=fit_quantiles(gap_s[classes == row]))
        for row in np.unique(classes).tolist()
    )


def fit_sessions(batches: Batches, shape: IntArray) -> SessionModel:
    """The sessions, which begin at all hours alike. shape: index of each batch's shape."""
    order = np.argsort(batches.session, kind="stable")
    session, stretch = batches.session[order], stretches_of(batches.session[order])
    follows = np.diff(session) == 0
    pauses_ms = (batches.first_ms[order][1:] - batches.last_ms[order][:-1])[follows]
    return SessionModel(
        batch_quantiles=fit_quantiles(np.bincount(session).astype(np.float64)),
        pause_quantiles_s=fit_quantiles(pauses_ms / SECOND_MS if len(pauses_ms) else [0.0]),
        shape_likeness=_fit_sameness(shape[order], follows),
        size_likeness=fit_likeness(batches.jobs[order], shape[order], stretch),
        pause_likeness=fit_likeness(pauses_ms, np.zeros_like(pauses_ms), stretch[1:][follows]),
    )


def rates_of_begins(delays_ms: FloatArray, hour_weights: Sequence[float]) -> tuple[float, ...]:
    """Rates of begins by hour for which what comes so long after its begin has the rates given: the iteration of
    Richardson and Lucy, which keeps them from going below zero. Begins are anywhere in their hour."""
    whole, part = np.divmod(delays_ms / HOUR_MS, 1)
    row = whole.astype(np.int64)
    delay = np.bincount(row % HOURS, 1 - part, HOURS) + np.bincount((row + 1) % HOURS, part, HOURS)
    hours = np.arange(HOURS)
    share = (delay / delay.sum())[(hours[:, None] - hours) % HOURS]
    wanted = np.asarray(hour_weights, dtype=np.float64)
    rates = np.ones(HOURS)
    for _ in range(BEGIN_ROUNDS):
        rates *= share.T @ (wanted / np.maximum(share @ rates, 1e-12))
    return tuple(rates.tolist())


def fit_likeness(values: NDArray[np.int64], kind: IntArray, group: IntArray) -> float:
    """How alike the values of one group are, 0 to 1: the share for which `draw_alike` gives a like correlation of
    ranks, 0 without values. kind: values are ranked among those of their kind, and compared with those of group and
    kind."""
    rank = np.empty(len(values))
    for one in np.unique(kind).tolist():
        rows = np.flatnonzero(kind == one)
        rank[rows] = _middle_ranks(values[rows])
    parts = np.unique(np.stack((kind, group)), axis=1, return_inverse=True)[1].reshape(-1)
    count = np.bincount(parts)
    several = count > 1
    total, squares = np.bincount(parts, rank), np.bincount(parts, rank**2)
    spread = float(np.dot(rank, rank)) / max(1, len(rank))
    if spread == 0 or not several.any():
        return 0.0
    products = (total**2 - squares)[several] / (count[several] - 1)
    return float(np.sqrt(max(0.0, min(1.0, products.sum() / count[several].sum() / spread))))


def _fit_sameness(shape: IntArray, follows: NDArray[np.bool_]) -> float:
    """The likeness for which as many batches as in the trace have the shape of the batch before."""
    shares = np.bincount(shape) / len(shape)
    by_chance = float(np.dot(shares, shares))
    if not follows.any() or by_chance == 1:
        return 0.0
    same = float((np.diff(shape) == 0)[follows].mean())
    return float(np.sqrt(max(0.0, (same - by_chance) / (1 - by_chance))))


def _middle_ranks(values: NDArray[np.int64]) -> FloatArray:
    """Ranks from −½ to ½, equal values at the middle of theirs."""
    index, count = np.unique(values, return_inverse=True, return_counts=True)[1:]
    middles: FloatArray = (np.cumsum(count) - count / 2) / len(values) - 0.5
    return middles[index]


# --- Drawing ---------------------------------------------------------------------------------------------------------


def rows_of(sizes: IntArray, count: int) -> IntArray:
    """The row of each of the first `count` items, if so many lie in each row, `count` at least in all. The last row may
    hold a thousand million of which few are wanted."""
    ends = np.minimum(np.cumsum(sizes), count)
    return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))


def draw_alike(group: IntArray, likeness: float, rng: np.random.Generator) -> FloatArray:
    """Numbers from 0 to 1, one a row, close together for rows of one group.

    A share `likeness` of the rows lie side by side by group, groups in random order, and so share 0 to 1 out evenly:
    unlike with one draw a group, a large group among the largest values does not make the total larger.
    """
    points = rng.random(len(group))
    if likeness == 0:
        return points
    alike = np.flatnonzero(rng.random(len(group)) < likeness)
    if len(alike):
        place = rng.permutation(int(group.max()) + 1)[group[alike]]
        rows = alike[np.argsort(place, kind="stable")]
        points[rows] = (np.arange(len(rows)) + points[rows]) / len(rows)
    return points


def stretches_of(session: IntArray) -> IntArray:
    """The stretch of each batch: sessions cut after every STRETCH_BATCHES. session: of each batch, not falling."""
    is_first = np.diff(session, prepend=-1) > 0
    row = np.arange(len(session))
    place = row - np.maximum.accumulate(np.where(is_first, row, 0))
    stretches: IntArray = np.cumsum(place % STRETCH_BATCHES == 0) - 1
    return stretches


def draw_sessions(sessions: SessionModel, count: int, rng: np.random.Generator) -> IntArray:
    """The session of each of `count` batches."""
    sizes = np.maximum(1, np.rint(draw_quantiles(sessions.batch_quantiles, count, rng))).astype(np.int64)
    return rows_of(sizes, count)


def draw_gaps(paces: Sequence[BurstPace], batch: IntArray, rng: np.random.Generator) -> FloatArray:
    """Gaps in ms before each job, meant for all but the first of a batch. batch: of each job, not falling."""
    jobs = np.bincount(batch)
    mean_s = np.zeros(len(jobs))
    classes = np.searchsorted([pace.jobs_min for pace in paces], jobs, side="right") - 1
    for index, pace in enumerate(paces):
        rows = np.flatnonzero(classes == index)
        mean_s[rows] = draw_quantiles(pace.gap_quantiles_s, len(rows), rng)
    return rng.exponential(1.0, len(batch)) * mean_s[batch] * SECOND_MS


def draw_offsets(
    sessions: SessionModel, session: IntArray, length_ms: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """When each batch begins, in ms since its session did. session, length_ms: of each batch."""
    points = draw_alike(stretches_of(session), sessions.pause_likeness, rng)
    pauses = at_quantiles(sessions.pause_quantiles_s, points) * SECOND_MS
    before = np.concatenate(([0.0], length_ms[:-1]))
    steps = np.maximum(0.0, before + pauses)
    is_first = np.diff(session, prepend=-1) > 0
    steps[is_first] = 0.0
    since_begin = np.cumsum(steps)
    offsets: FloatArray = since_begin - since_begin[is_first][session]
    return offsets
