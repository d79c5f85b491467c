"""What a user submits. Frozen values; validated at the border (`wire`), asserted here.

A job is a gang of equal replicas. Each replica lies on one node and holds `devices` whole devices, or one share of one
device, with CPUs and memory. All replicas start together or none does.
"""

from dataclasses import dataclass
from enum import StrEnum

from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT, JobId, QueueName, TenantName
from clearway.model.neighbours import NeighbourRule
from clearway.model.units import MILLI
from clearway.model.values import made_often


class JobKind(StrEnum):
    """What sort of work it is. Kinds differ in what users expect, not in what the engine can do with them."""

    TRAIN = "train"
    FINETUNE = "finetune"
    SERVICE = "service"
    TASK = "task"
    INTERACTIVE = "interactive"


class DomainLevel(StrEnum):
    """Levels of the topology tree from narrow to wide. `NODE` holds one machine; `NVLINK` may be part of a node or,
    with rack-scale NVLink, span several."""

    NVLINK = "nvlink"
    NODE = "node"
    LEAF = "leaf"
    BLOCK = "block"
    SITE = "site"


class DependencyKind(StrEnum):
    """Slurm's words (sbatch --dependency)."""

    AFTER = "after"
    AFTER_ANY = "afterany"
    AFTER_OK = "afterok"
    AFTER_NOT_OK = "afternotok"
    AFTER_CORRESPONDING = "aftercorr"
    SINGLETON = "singleton"


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one replica needs. Equal requests are one class for the planner.

    devices: whole devices, or 1 when `share_milli` < 1000.
    share_milli: compute share of the device, 1..1000.
    device_memory_bytes: memory needed on each device; with a share it is what the share reserves (0 = in proportion).
    device_models: allowed models; empty = any.
    node_labels: (key, value) pairs that the node must carry.
    nodes: names of the nodes on which it may lie; empty = any. nodes_excluded: names of those on which it must not.
    exclusive: no other job on its nodes.
    crowds: named sets to which the replica belongs, for rules about neighbours. neighbours: such rules of its own.
    liked: a node label whose number, 0..100, says how much the node is liked; empty = all alike.
    extras: (name, amount) of what else it needs of its node, which is counted there (`NodeSpec.extras`).
    """

    devices: int = 1
    share_milli: int = MILLI
    device_memory_bytes: int = 0
    device_models: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    node_labels: tuple[tuple[str, str], ...] = ()
    exclusive: bool = False
    nodes: tuple[str, ...] = ()
    nodes_excluded: tuple[str, ...] = ()
    crowds: tuple[str, ...] = ()
    neighbours: tuple[NeighbourRule, ...] = ()
    liked: str = ""
    extras: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        assert self.devices >= 0
        assert 1 <= self.share_milli <= MILLI
        assert self.share_milli == MILLI or self.devices == 1
        assert self.cpu_milli >= 0
        assert self.memory_bytes >= 0
        assert self.device_memory_bytes >= 0
        assert all(amount > 0 for _, amount in self.extras)

    @property
    def is_fractional(self) -> bool:
        """Whether the replica holds part of one device."""
        return self.share_milli < MILLI

    @property
    def device_milli(self) -> int:
        """Devices of one replica in thousandths: the one unit in which quota and use are counted."""
        return self.devices * self.share_milli


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How close replicas must be.

    widest: the widest domain that the gang may span (a hard limit). preferred: try to stay within it; a smaller domain
    is not sought. fabric: node label `fabric` that every node must carry, e.g. "infiniband"; empty = any.
    is_named: whether who submits it named `preferred`; a level wider than a node is always taken as named.
    """

    widest: DomainLevel = DomainLevel.SITE
    preferred: DomainLevel = DomainLevel.NODE
    fabric: str = ""
    is_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The range in which a job can run, in replicas, and how its speed grows.

    speedup: (replicas, speed relative to one replica) points, rising in replicas, linear between; empty = linear.
    """

    replicas_min: int
    replicas_max: int
    speedup: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        assert 1 <= self.replicas_min <= self.replicas_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How a job saves its work. Times in milliseconds.

    interval_ms: work between two regular checkpoints. cost_ms: time one takes. restart_ms: time to be at work again
    after a restart from it. grace_ms: time between the signal and the kill; a job with `on_signal` saves within it.
    """

    interval_ms: int
    cost_ms: int = 0
    restart_ms: int = 0
    grace_ms: int = 30_000
    on_signal: bool = True

    def __post_init__(self) -> None:
        assert self.interval_ms > 0
        assert self.cost_ms >= 0
        assert self.restart_ms >= 0
        assert self.grace_ms >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """`job` must have started, ended, succeeded or failed first (by `kind`). For SINGLETON `job` is None.

    task: only the task of this index, of the array `job`; None = the job, or all tasks of the array. delay_ms: for
    AFTER, so long ago: since it started, or ended without a start.
    """

    kind: DependencyKind
    job: JobId | None = None
    task: int | None = None
    delay_ms: int = 0

    def __post_init__(self) -> None:
        assert self.delay_ms >= 0
        assert self.delay_ms == 0 or self.kind is DependencyKind.AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayMember:
    """Place of a job in an array: `array` is the id of the array, `index` its task, `parallel_max` 0 = no limit."""

    array: JobId
    index: int
    parallel_max: int = 0


NETWORK_ANY = Network()


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One accepted job. Times in milliseconds.

    limit_ms: killed after this run time (None = never). estimate_ms: the user's own guess, used for planning only.
    depends_on_any: one of its dependencies is enough.
    priority: higher first, within its queue's priority. not_before_ms / deadline_ms: absolute times.
    latency_target_ms: the wait before its start that its user was promised; only measured (`latency_target_ratio`).
    preempts: whether running jobs may be told to make room for it.
    requeue: whether it may run again after a run that was lost; if not, it is never preempted, and the loss is its end.
    oracle_ms: the true run time, filled by the twin for clairvoyant policies; None everywhere else.
    """

    id: JobId
    request: Request
    replicas: int = 1
    name: str = ""
    user: str = ""
    tenant: TenantName = ROOT_TENANT
    queue: QueueName = DEFAULT_QUEUE
    kind: JobKind = JobKind.TRAIN
    priority: int = 0
    qos: str = ""
    limit_ms: int | None = None
    estimate_ms: int | None = None
    network: Network = NETWORK_ANY
    elastic: Elastic | None = None
    checkpoint: Checkpoint | None = None
    preemptible: bool = True
    requeue: bool = True
    suspendable: bool = False
    preempts: bool = True
    held: bool = False
    dependencies: tuple[Dependency, ...] = ()
    depends_on_any: bool = False
    array: ArrayMember | None = None
    not_before_ms: int | None = None
    deadline_ms: int | None = None
    latency_target_ms: int | None = None
    oracle_ms: int | None = None

    def __post_init__(self) -> None:
        assert self.id > 0
        assert self.replicas >= 1

    @property
    def replicas_min(self) -> int:
        """The fewest replicas with which the job can run."""
        return self.replicas if self.elastic is None else self.elastic.replicas_min

    @property
    def replicas_max(self) -> int:
        """The most replicas that the job can use."""
        return self.replicas if self.elastic is None else self.elastic.replicas_max

    def is_ended_by(self, cause: "StopCause") -> bool:
        """Whether a stop for this cause is its end, by `Outcome.NODE_FAIL`: the run was lost, and it gets no other."""
        return not self.requeue and cause in (StopCause.NODE_FAILED, StopCause.DEVICE_FAILED)


class Outcome(StrEnum):
    """How a job ended, in Slurm's words."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    DEADLINE = "DEADLINE"


class StopCause(StrEnum):
    """Why a running job left its devices without having ended. UNSTARTABLE: a start that failed by the job itself, such
    as a working directory that is not there; START_FAILED: any other that failed."""

    PREEMPTED = "preempted"
    MIGRATED = "migrated"
    NODE_FAILED = "node_failed"
    DEVICE_FAILED = "device_failed"
    START_FAILED = "start_failed"
    UNSTARTABLE = "unstartable"
    REQUEUED = "requeued"
