"""What a policy is: frozen settings on named extension points. A policy holds no state of the cluster.

An `Order` maps arrays of jobs to sort keys; everything else is numbers that the cycle reads. Prefer a number here to a
class: strict FIFO, EASY, hybrid and conservative backfill are one loop with different `reservation_depth`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clearway.model.jobs import JobSpec
from clearway.model.units import MINUTE_MS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsView:
    """Read-only columns about n jobs (waiting, or running when running ones are ranked too), all of length n.

    Times in ms. planned_ms: run time assumed for the whole job (source: `Policy.runtime`). remaining_ms: of this, what
    is not yet saved. attained_device_ms: device-time (whole devices) that the job has had so far, running included.
    milli: devices asked in all, thousandths. qos_factor: priority of its QOS over the highest of `Policy.qos`, 0..1; 0
    of any other. tenant_rank: place of its tenant by fair share, 0 = most entitled.
    tenant_factor: 2^(−usage/share) in 0..1, as Slurm's classic fair-share factor. oracle_ms: true run time, −1 unknown.
    deadline_ms: FOREVER_MS = none. history_device_ms: device-time of finished jobs, oldest first (shared by all jobs).
    """

    now_ms: int
    cluster_milli: int
    submit_ms: IntArray
    priority: IntArray
    queue_priority: IntArray
    replicas: IntArray
    milli: IntArray
    planned_ms: IntArray
    remaining_ms: IntArray
    attained_device_ms: IntArray
    oracle_ms: IntArray
    deadline_ms: IntArray
    tenant_rank: IntArray
    tenant_factor: FloatArray
    qos_factor: FloatArray
    kind: IntArray
    history_device_ms: FloatArray


class Order(Protocol):
    """Who is looked at first. Implementations are frozen dataclasses in `policies`.

    refresh_ms: None = a key never changes while the job waits; else keys are computed anew after this time.
    by_priority: whether queue and job priority come before the key. by_arrival: every key is 0, and nobody need ask for
    it. is_fixed: a key follows from the priorities, times and sizes that a job came with, and from nothing else.
    learns: it reads `JobsView.history_device_ms`, which is kept only then.
    """

    @property
    def refresh_ms(self) -> int | None: ...

    @property
    def by_priority(self) -> bool: ...

    @property
    def by_arrival(self) -> bool: ...

    @property
    def is_fixed(self) -> bool: ...

    @property
    def learns(self) -> bool: ...

    def keys(self, jobs: JobsView) -> FloatArray:
        """float64[n], smaller first. Ties are broken by submit time, then id."""
        ...


class RunTimes(Protocol):
    """What has been learned about run times. The state box holds it; an implementation lives in `forecast`."""

    def observe_finished(self, spec: JobSpec, run_ms: int, *, completed: bool) -> None:
        """A job ran for `run_ms`; completed is False when it was cut off (the true run time is longer)."""
        ...

    def predict_ms(self, spec: JobSpec, quantile: float) -> int | None:
        """Run time that a share `quantile` of such jobs does not exceed; None when nothing is known."""
        ...


class RuntimeSource(StrEnum):
    """Where planning takes run times from. A limit always caps them."""

    LIMIT = "limit"
    ESTIMATE = "estimate"
    PREDICTED = "predicted"
    ORACLE = "oracle"


class PreemptMode(StrEnum):
    """Who may be preempted for whom. PRIORITY: lower queue or job priority, and borrowers when a tenant claims its
    guarantee. ORDER: whoever the order ranks behind (SRPT, LAS, Gittins)."""

    NEVER = "never"
    PRIORITY = "priority"
    ORDER = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Weights of the node score; lower scores are better, equal scores go to the lower index.

    pack: prefers nodes with fewer free devices (best fit). spread: prefers the least loaded, which lowers the variance
    of load; a node's load is that of its devices, of its CPUs weighed by `spread_cpus`, and of its memory weighed by
    `spread_memory`. fragmentation: prefers the smallest growth of expected fragmentation (FGD, Weng et al., ATC 2023).
    speed: prefers faster models. topology: whether gangs go to the smallest domain that holds them; a level that a job
    prefers is tried first in any case.
    """

    pack: float = 1.0
    spread: float = 0.0
    spread_cpus: float = 0.0
    spread_memory: float = 0.0
    fragmentation: float = 0.0
    speed: float = 0.0
    topology: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """strict: stop at the first job that cannot start. reservation_depth: how many blocked jobs get a reservation that
    later ones must not delay: 1 = EASY, n = hybrid, a very large number = conservative; 0 = none (first fit).
    bypass_max: after this many later jobs started before a waiting job, nothing passes it any more.
    """

    strict: bool = False
    reservation_depth: int = 1
    bypass_max: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """protection_ms: time after a start in which a job is not a victim. beneficiaries_max: waiting jobs per cycle for
    which victims are sought. victims_max: bound on one set. migrate, shrink, suspend: what may be done instead of a
    requeue, where it costs less."""

    mode: PreemptMode = PreemptMode.NEVER
    protection_ms: int = 10 * MINUTE_MS
    beneficiaries_max: int = 8
    victims_max: int = 64
    migrate: bool = True
    shrink: bool = True
    suspend: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """Resizing of elastic jobs: at most every `interval_ms` per job, when the growth of speed per device of the move
    is at least `marginal_min` of linear."""

    enabled: bool = False
    interval_ms: int = 5 * MINUTE_MS
    marginal_min: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Devices kept free for tasks, services and interactive jobs: the forecast's number, at least `devices_min`.

    cluster_min: with fewer devices in all, forecasts are not regarded: a burst of tasks would be forecast to fill a
    small cluster again, and hold everything back from whoever waits.
    """

    enabled: bool = False
    devices_min: int = 0
    cluster_min: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """half_life_ms: decay of past use. dominant: order tenants within the cycle by weighted dominant share (DRF)."""

    half_life_ms: int = 7 * 24 * 60 * MINUTE_MS
    dominant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """A quality of service that jobs may name, as in Slurm. priority: at least 0; higher first, where the order weighs
    it."""

    name: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All settings of a decision cycle. scan_max: waiting jobs looked at per cycle before it is cut short;
    the next one goes on where it stopped. qos: all that jobs may name; empty = any name, which then means nothing."""

    name: str
    order: Order
    runtime: RuntimeSource = RuntimeSource.ESTIMATE
    runtime_quantile: float = 0.5
    placement: Placement = field(default_factory=Placement)
    backfill: Backfill = field(default_factory=Backfill)
    preemption: Preemption = field(default_factory=Preemption)
    elasticity: Elasticity = field(default_factory=Elasticity)
    headroom: Headroom = field(default_factory=Headroom)
    fair_share: FairShare = field(default_factory=FairShare)
    scan_max: int = 200_000
    qos: tuple[Qos, ...] = ()

    def qos_factors(self) -> dict[str, float]:
        """By name, its priority over the highest of any: 0..1, as Slurm's QOS factor."""
        highest = max((one.priority for one in self.qos), default=0)
        return {one.name: one.priority / highest if highest else 0.0 for one in self.qos}

    def least_replicas(self, spec: JobSpec) -> int:
        """The fewest replicas with which the job is started."""
        return spec.replicas_min if self.elasticity.enabled else spec.replicas
