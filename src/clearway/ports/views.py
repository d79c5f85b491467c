"""What a control plane shows of itself: frozen rows, made by its driver, kept by its storage, sent by its server.

Times are Unix milliseconds; devices are counted in thousandths where the name ends in `_milli`.
"""

from dataclasses import dataclass
from enum import StrEnum

from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import JobKind
from clearway.model.values import made_often


class JobState(StrEnum):
    """States of a job in Slurm's long words, of which `sacct` and `squeue` show the short ones."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    SUSPENDED = "SUSPENDED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DEADLINE = "DEADLINE"

    @property
    def is_final(self) -> bool:
        """Whether a job in this state has ended for good."""
        return self in FINAL_STATES


FINAL_STATES = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.DEADLINE,
    }
)


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as people see it.

    replicas: as it runs, or asks to. device_milli, cpu_milli, memory_bytes: of all replicas.
    reason: Slurm's reason token, "None" while it runs or after a good end; message: one sentence more, "" = none.
    nodes: names of the nodes that it holds or held last, in order of its replicas, each once. devices: (node, indices
    within the node) of what it holds or held last. start_ms, end_ms: of its last run; None = not yet. start_planned_ms:
    when it is expected to start. array, array_index: None where it is no member of an array; array_parallel_max: how
    many of its array may run at once, None = all. progress: what the job says of itself, 0..1; None = it says nothing.
    ran_before_ms: how long its runs before this one were, all together. lost_ms: how much of that had to be done
    again, for no checkpoint held it. requeue: whether it may run again after a run that was lost. qos: the name that it
    gives; "" = none. priority: its own, as its user gave it. order_priority: what the policy's order makes of it while
    it waits, larger first, as Slurm counts: see `Control.priorities`; None = not known. tasks_per_replica: processes
    that its script means to start in each replica.
    """

    id: JobId
    name: str
    user: str
    tenant: TenantName
    queue: QueueName
    kind: JobKind
    state: JobState
    priority: int
    replicas: int
    device_milli: int
    cpu_milli: int
    memory_bytes: int
    submit_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    start_planned_ms: int | None = None
    limit_ms: int | None = None
    reason: str = "None"
    message: str = ""
    nodes: tuple[NodeName, ...] = ()
    devices: tuple[tuple[NodeName, tuple[int, ...]], ...] = ()
    generation: int = 0
    restarts: int = 0
    preemptions: int = 0
    exit_code: int = 0
    signal: int = 0
    saved_ms: int = 0
    ran_before_ms: int = 0
    lost_ms: int = 0
    progress: float | None = None
    requeue: bool = True
    array: JobId | None = None
    array_index: int | None = None
    array_parallel_max: int | None = None
    workdir: str = ""
    output: str = ""
    error: str = ""
    qos: str = ""
    order_priority: int | None = None
    tasks_per_replica: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs. Every condition must hold; empty = any. Newest first where `newest_first`, else by number.

    tenants: only these (an access rule, empty = all). after: only numbers above (below, if newest first) this one.
    """

    ids: tuple[JobId, ...] = ()
    states: tuple[JobState, ...] = ()
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    array: JobId | None = None
    submitted_from_ms: int | None = None
    submitted_to_ms: int | None = None
    after: JobId | None = None
    newest_first: bool = False
    limit: int = 1_000


class DeviceState(StrEnum):
    """What a device is doing."""

    FREE = "free"
    USED = "used"
    SHARED = "shared"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device of a node. owners: (job, thousandths that it holds). reason: why it is down."""

    index: int
    model: str
    state: DeviceState
    uuid: str = ""
    memory_bytes: int = 0
    owners: tuple[tuple[JobId, int], ...] = ()
    reason: str = ""


class NodeState(StrEnum):
    """What a node is doing, in sinfo's words."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    DRAINING = "draining"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node. cpu_milli and memory_bytes None = not counted. reason: why it is down or drained. notes: what is not
    enforced or limited there that could be elsewhere."""

    name: NodeName
    state: NodeState
    devices: tuple[DeviceView, ...] = ()
    cpu_milli: int | None = None
    cpu_free_milli: int | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs may start there."""
        return self.state in (NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED)

    @property
    def is_degraded(self) -> bool:
        """Whether it is there without some of its devices."""
        is_there = self.state is not NodeState.DOWN
        return is_there and any(device.state is DeviceState.DOWN for device in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue, what waits in it and what runs."""

    name: QueueName
    priority: int
    pending: int = 0
    running: int = 0
    used_milli: int = 0
    devices_max_milli: int | None = None
    job_devices_max_milli: int | None = None
    running_max: int | None = None
    limit_max_ms: int | None = None
    limit_default_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """One tenant and what it holds, those below it included. share: its decayed use of the past, 0..1 of all use.
    bounds: what the backend's own site lets it have, in words, such as quotas of its namespace.
    """

    name: TenantName
    parent: TenantName | None
    weight: float
    used_milli: int = 0
    pending: int = 0
    running: int = 0
    guaranteed_milli: int | None = None
    borrow_max_milli: int | None = None
    lend_max_milli: int | None = None
    share: float = 0.0
    bounds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The whole cluster at one moment, by one state version. seq: the last record of the journal that it contains."""

    at_ms: int
    seq: int
    nodes: tuple[NodeView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    pending: int = 0
    running: int = 0
    policy: str = ""
    cycles: int = 0
    cycle_ms_p50: float = 0.0
    cycle_ms_p99: float = 0.0
    storage_error: str = ""
