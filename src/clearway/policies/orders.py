"""Orders: who is looked at first. Each is a small frozen dataclass whose fields are its settings; smaller keys first.

A key depends on the job itself, the time, and settings only, never on which other jobs are in the view, so that jobs
may be ranked one at a time or all at once. Only sums, products, quotients and square roots are used, which IEEE 754
rounds in one way, so keys are the same on every machine.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.policy import FloatArray, IntArray, JobsView
from clearway.model.jobs import JobKind
from clearway.model.units import DAY_MS, FOREVER_MS, HOUR_MS, MILLI, MINUTE_MS, SECOND_MS

BoolArray = NDArray[np.bool_]

KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(JobKind)}
"""JobsView.kind by kind: the place in JobKind, as in the state box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """First come, first served."""

    by_arrival: ClassVar[bool] = True
    is_fixed: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    by_priority: bool = True

    @property
    def refresh_ms(self) -> int | None:
        """A submit time never changes."""
        return None

    def keys(self, jobs: JobsView) -> FloatArray:
        """All equal: ties are broken by submit time."""
        return np.zeros(len(jobs.submit_ms))


class RuntimeKnowledge(StrEnum):
    """What `Shortest` takes as run time. PLANNED: what the policy plans with. ORACLE: the truth, where it is known."""

    PLANNED = "planned"
    ORACLE = "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortest:
    """The shortest job first: SJF, with `remaining` SRPT, with `weigh_by_devices` the smallest area.

    remaining: count what is not yet saved instead of the whole run. Jobs whose truth is unknown use planned times.
    """

    by_arrival: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    by: RuntimeKnowledge = RuntimeKnowledge.PLANNED
    remaining: bool = False
    weigh_by_devices: bool = False
    by_priority: bool = True

    @property
    def refresh_ms(self) -> int | None:
        """What remains of a job does not change while it waits."""
        return None

    def keys(self, jobs: JobsView) -> FloatArray:
        """Run time in ms, or device-ms."""
        run_ms = jobs.planned_ms
        if self.by is RuntimeKnowledge.ORACLE:
            run_ms = np.where(jobs.oracle_ms >= 0, jobs.oracle_ms, run_ms)
        if self.remaining:
            run_ms = np.maximum(run_ms - (jobs.planned_ms - jobs.remaining_ms), 0)
        return run_ms * (jobs.milli / MILLI) if self.weigh_by_devices else run_ms.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multifactor:
    """Slurm's multifactor priority: a weighted sum of factors in 0..1 (a priority may be negative, as `nice` is).

    age: waiting time over `age_max_ms`. size: devices over the cluster's, or one minus this with `favor_small`.
    fair_share: the tenant's classic factor. queue: the queue's priority over `queue_max`. qos: that of the job's QOS
    over the highest of `Policy.qos`. job: the job's own over `job_max`. Weights are by default those of the example in
    Slurm's description of the plug-in.
    """

    by_arrival: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    age: float = 1_000.0
    age_max_ms: int = 7 * DAY_MS
    size: float = 1_000.0
    favor_small: bool = False
    fair_share: float = 10_000.0
    queue: float = 1_000.0
    queue_max: int = 100
    qos: float = 1_000.0
    job: float = 1_000.0
    job_max: int = 100
    refresh_ms: int | None = 5 * MINUTE_MS  # Slurm's PriorityCalcPeriod

    @property
    def by_priority(self) -> bool:
        """Priorities are factors among others."""
        return False

    def keys(self, jobs: JobsView) -> FloatArray:
        """Minus the priority."""
        age = np.clip((jobs.now_ms - jobs.submit_ms) / self.age_max_ms, 0.0, 1.0)
        size = np.clip(jobs.milli / max(jobs.cluster_milli, 1), 0.0, 1.0)
        priority: FloatArray = (
            self.age * age
            + self.size * (1.0 - size if self.favor_small else size)
            + self.fair_share * jobs.tenant_factor
            + self.queue * np.clip(jobs.queue_priority / self.queue_max, -1.0, 1.0)
            + self.qos * jobs.qos_factor
            + self.job * np.clip(jobs.priority / self.job_max, -1.0, 1.0)
        )
        return -priority


TIRESIAS_LEVELS_DEVICE_MS: Final = (3_250 * SECOND_MS, 7_200 * SECOND_MS, 18_000 * SECOND_MS)
"""The service levels of Tiresias's released simulator: 3,250, 7,200 and 18,000 device-seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastAttained:
    """The least attained device-time first, discretised: Tiresias's 2D-LAS (Gu et al., NSDI 2019).

    levels_device_ms: rising bounds of the levels; within a level first come, first served, so that equal jobs do not
    take turns for ever. promote_after: a job that waited this many times as long as it ran goes back to the first
    level (Tiresias's PROMOTEKNOB); None = never.
    """

    by_arrival: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    levels_device_ms: tuple[int, ...] = TIRESIAS_LEVELS_DEVICE_MS
    promote_after: float | None = None
    by_priority: bool = True
    refresh_ms: int | None = 5 * MINUTE_MS  # running jobs fall by a level, and waiting may promote

    def keys(self, jobs: JobsView) -> FloatArray:
        """The number of the level."""
        level = np.searchsorted(np.array(self.levels_device_ms), jobs.attained_device_ms, side="right")
        if self.promote_after is not None:
            level = np.where(_has_waited(jobs, self.promote_after), 0, level)
        return level.astype(np.float64)


def _has_waited(jobs: JobsView, times: float) -> BoolArray:
    """bool[n]: whether a job ran, and waited `times` as long as it ran."""
    ran_ms = jobs.attained_device_ms * MILLI / np.maximum(jobs.milli, 1)
    waited_ms = jobs.now_ms - jobs.submit_ms - ran_ms
    is_true: BoolArray = (ran_ms > 0) & (waited_ms >= times * ran_ms)
    return is_true


@dataclass(frozen=True, slots=True, kw_only=True)
class Gittins:
    """The largest Gittins index first: the best odds of finishing per device-time invested, over every horizon.

    For a job that attained a: max over b > a of P(a < S ≤ b) / E[min(S, b) − a, S > a], with S distributed as the
    device-time of finished jobs (Gittins 1979; used for clusters by Tiresias, Gu et al., NSDI 2019, which looks at one
    horizon only). Attained time and horizons lie on a grid: 0, then `quantum_device_ms` growing by a quarter each step.
    Fewer than `history_min` finished jobs: least attained first. At most the last `history_max` are looked at.
    """

    by_arrival: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    quantum_device_ms: int = 10 * MINUTE_MS
    history_min: int = 50
    history_max: int = 1_000
    by_priority: bool = True

    @property
    def refresh_ms(self) -> int | None:
        """The distribution moves slowly; waiting jobs need not follow each finished one."""
        return 10 * MINUTE_MS

    def keys(self, jobs: JobsView) -> FloatArray:
        """Mean device-ms to invest per finished job: the index inverted. Infinite where no job ever got so far."""
        if len(jobs.history_device_ms) < self.history_min:
            return LeastAttained().keys(jobs)
        grid = self.quantum_device_ms * _GITTINS_GRID
        place = np.searchsorted(grid, jobs.attained_device_ms, side="right") - 1
        return _inverse_gittins(jobs.history_device_ms[-self.history_max :], grid)[place]


_GITTINS_GRID: Final = np.concatenate([[0.0, 1.0], np.cumprod(np.full(78, 1.25))])
"""79 steps of a quarter reach 3.6e7 quanta: with 10 minutes, a thousand devices for eight months."""


def _inverse_gittins(history: FloatArray, grid: FloatArray) -> FloatArray:
    """float64[m]: for each attained service in `grid` the least expected investment per finish."""
    samples = np.sort(history)
    finished = np.searchsorted(samples, grid, side="right")
    invested = np.concatenate([[0.0], np.cumsum(samples)])[finished] + (len(samples) - finished) * grid
    finishes = (finished[None, :] - finished[:, None]).astype(np.float64)
    cost = invested[None, :] - invested[:, None]
    is_horizon = (grid[None, :] > grid[:, None]) & (finishes > 0)
    inverse: FloatArray = np.divide(cost, finishes, out=np.full_like(cost, np.inf), where=is_horizon).min(axis=1)
    return inverse


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestDeadline:
    """The earliest deadline first; jobs without one come last, first come, first served."""

    by_arrival: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    by_priority: bool = True

    @property
    def refresh_ms(self) -> int | None:
        """A deadline never changes."""
        return None

    def keys(self, jobs: JobsView) -> FloatArray:
        """Deadline."""
        return jobs.deadline_ms.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedSlowdown:
    """The job that is due to start first; a job is due after a wait that grows with its predicted remaining work.

    due = submit + min(patience_ms × √(remaining device-hours), defer_max_ms) + what its tenant's past use costs.

    One number lies between first come, first served (patience 0) and smallest area first (patience without bound): a
    job passes only those that still have time, so short jobs are quick, and nothing waits for ever: what is submitted
    `defer_max_ms + share_ms` later, or more, never passes. The root tells jobs apart over six decades of work, where a
    deferral in proportion would either be too little to help short jobs or leave all large ones at its bound. Patience
    and root were chosen by single replays of parts of hpc2n, Lublin and Philly; decision 0009 has traces that they were
    not chosen on, and what the longest jobs pay for it.

    share_ms: by how much a tenant that used far more than its share is set back; one at exactly its share, by half.
    ahead_ms: how much earlier services, tasks and interactive jobs are due: people and requests wait for them. Services
    and interactive jobs do not finish by themselves, so their work does not count. A deadline can only make a job due
    earlier: in time to finish, with `deadline_margin` of its remaining run time to spare.
    """

    by_arrival: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    patience_ms: int = DAY_MS
    defer_max_ms: int = 30 * DAY_MS
    share_ms: int = 4 * HOUR_MS
    ahead_ms: int = 14 * DAY_MS
    deadline_margin: float = 0.5
    by_priority: bool = True
    refresh_ms: int | None = 10 * MINUTE_MS

    def keys(self, jobs: JobsView) -> FloatArray:
        """When the job is due, in ms."""
        device_hours = jobs.remaining_ms.astype(np.float64) * jobs.milli / (MILLI * HOUR_MS)
        defer = np.minimum(self.patience_ms * np.sqrt(device_hours), float(self.defer_max_ms))
        defer[_is_kind(jobs.kind, JobKind.SERVICE, JobKind.INTERACTIVE)] = 0.0
        defer[_is_kind(jobs.kind, JobKind.SERVICE, JobKind.INTERACTIVE, JobKind.TASK)] -= self.ahead_ms
        due = jobs.submit_ms + defer + self.share_ms * (1.0 - jobs.tenant_factor)
        start_latest = jobs.deadline_ms - (1.0 + self.deadline_margin) * jobs.remaining_ms
        start_latest[jobs.deadline_ms >= FOREVER_MS] = np.inf
        keys: FloatArray = np.minimum(due, start_latest)
        return keys


def _is_kind(kind: IntArray, *kinds: JobKind) -> BoolArray:
    return np.isin(kind, [KIND_NUMBERS[one] for one in kinds])
