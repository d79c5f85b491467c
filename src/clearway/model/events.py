"""What happened. Past tense, frozen, with the time `at_ms`. The journal is a list of these, and the state box changes
only by applying one.

A generation numbers the starts of a job: 1 for its first allocation, one more for each later start, resize or
migration. An event that names an older generation than the state's is stale and is ignored.
"""

from dataclasses import dataclass

from clearway.model.cluster import LinkSpec, NodeSpec, QueueSpec, TenantSpec
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import JobSpec, Outcome, StopCause
from clearway.model.plan import Plan, ReasonCode
from clearway.model.values import made_often


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node joined, with all devices healthy and free."""

    at_ms: int
    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """What a node offers is something else now: CPUs and memory (others took some, or gave some back), labels, or more
    devices.

    node: all of it anew, with the place in the topology and the devices that it had. Behind these the last node of the
    cluster may have others. What runs there goes on.
    """

    at_ms: int
    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node failed, or left. Nothing starts on it; the backend reports its jobs' fate by `JobStopped`.

    reason: what was seen, for people; "" = unknown.
    """

    at_ms: int
    node: NodeName
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node is back and may be used."""

    at_ms: int
    node: NodeName


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """An operator, or a driver that saw a node fail, asked that nothing new start on it; what runs there goes on."""

    at_ms: int
    node: NodeName
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeClosed:
    """A driver that saw starts fail keeps a node from one user: nothing new of his starts on it, of others it does.

    reason: what was seen, for people.
    """

    at_ms: int
    node: NodeName
    user: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeOpened:
    """A node is no longer kept from that user."""

    at_ms: int
    node: NodeName
    user: str


@dataclass(frozen=True, slots=True)
class DeviceDown:
    """One device failed, or is held by what is not ours. device: index within the node. reason: what was seen."""

    at_ms: int
    node: NodeName
    device: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceUp:
    """A device is healthy again. device: index within the node."""

    at_ms: int
    node: NodeName
    device: int


@dataclass(frozen=True, slots=True)
class QueueSet:
    """A queue was made or changed."""

    at_ms: int
    queue: QueueSpec


@dataclass(frozen=True, slots=True)
class TenantSet:
    """A tenant was made or changed. Its parent must exist already."""

    at_ms: int
    tenant: TenantSpec


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """A queue in which no job was is no more; one of that name may be made again."""

    at_ms: int
    queue: QueueName


@dataclass(frozen=True, slots=True)
class TenantRemoved:
    """A tenant without jobs and without tenants below it is no more; one of that name may be made again, below the same
    parent."""

    at_ms: int
    tenant: TenantName


@made_often
@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job was accepted."""

    at_ms: int
    job: JobSpec


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A user took a job back. If it runs, it will be stopped."""

    at_ms: int
    job: JobId


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """Somebody wants a running job to leave its devices and wait again; one that must not run again stays."""

    at_ms: int
    job: JobId


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A job must not start until released. reason: "" = its user wants it so; code: the same for lists of jobs."""

    at_ms: int
    job: JobId
    reason: str = ""
    code: ReasonCode = ReasonCode.HELD


@dataclass(frozen=True, slots=True)
class JobReleased:
    """A held job may start again."""

    at_ms: int
    job: JobId


@dataclass(frozen=True, slots=True)
class JobPreparing:
    """What comes before the replicas of this generation runs, such as a setup step, and may take long: its nodes can
    start processes."""

    at_ms: int
    job: JobId
    generation: int


@made_often
@dataclass(frozen=True, slots=True)
class JobStarted:
    """The backend runs all replicas of this generation."""

    at_ms: int
    job: JobId
    generation: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """Work up to `done_ms` (reference run time) is safe."""

    at_ms: int
    job: JobId
    done_ms: int


@made_often
@dataclass(frozen=True, slots=True)
class JobFinished:
    """The job ended by itself, by its limit, or by cancellation; its devices are free.

    exit_code, signal: of its first replica that did not end well, as wait(2) gives them; 0 and 0 otherwise.
    """

    at_ms: int
    job: JobId
    generation: int
    outcome: Outcome
    exit_code: int = 0
    signal: int = 0


@dataclass(frozen=True, slots=True)
class JobStopped:
    """The job left its devices without having ended, and waits again, unless this was the end of one that must not run
    again (`JobSpec.is_ended_by`). saved_ms: reference run time that is safe.

    reason: what was seen, for people, where the cause alone does not say it.
    """

    at_ms: int
    job: JobId
    generation: int
    cause: StopCause
    saved_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """The job is frozen: it holds memory and CPUs' memory but computes nothing; its devices are free."""

    at_ms: int
    job: JobId
    generation: int


@dataclass(frozen=True, slots=True)
class JobResized:
    """A resize was carried out: the job now holds what the state says; devices that it left are free."""

    at_ms: int
    job: JobId
    generation: int


@dataclass(frozen=True, slots=True)
class DemandForecast:
    """A forecaster expects `devices` (whole) to be asked by tasks and services until `until_ms`."""

    at_ms: int
    devices: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class PowerBudgetSet:
    """The site says how much its devices may draw together, at the start or anew. None = any amount.

    Nothing is stopped for a budget that what runs exceeds even at its lowest caps: then nothing more starts.
    """

    at_ms: int
    watts: int | None


@dataclass(frozen=True, slots=True)
class BudgetsChanged:
    """Somebody else says how many replicas may be made to leave at present. Jobs leave for others only within this.

    budgets: how many replicas that count in it may still be told to leave, by the name of a budget; None = it is no
    more. jobs: in which budgets how many replicas of a running job count; () = in none. What is not named is as before.
    All of it is forgotten by `ControlStarted`.
    """

    at_ms: int
    budgets: tuple[tuple[str, int | None], ...] = ()
    jobs: tuple[tuple[JobId, tuple[tuple[str, int], ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class JobBounded:
    """An elastic job is to have no more than so many replicas from now on, whatever it asked: somebody else allows no
    more. What it holds it keeps."""

    at_ms: int
    job: JobId
    replicas_max: int


@dataclass(frozen=True, slots=True)
class LinksSet:
    """The site says how fast the links between devices are, by `DomainLevel`, at the start or anew; () = not known."""

    at_ms: int
    links: tuple[tuple[str, LinkSpec], ...]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A `WakeAt` came due."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class SubmissionAccepted:
    """Jobs were accepted together under a key of their submitter's; the same key is answered with the same jobs."""

    at_ms: int
    actor: str
    key: str
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class ControlStarted:
    """A control plane took over: all that is recorded before was applied, and decisions from here on are its own.

    policy: the name of the policy that it decides by. settings: all that this policy is, as JSON, from which it can be
    made again; "" = not told, as in journals of older releases.
    """

    at_ms: int
    policy: str = ""
    settings: str = ""


@made_often
@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """The kernel accepted this plan after the checker's verdict. Only the kernel makes this event."""

    at_ms: int
    plan: Plan


@made_often
@dataclass(frozen=True, slots=True)
class Batch:
    """Several events of one moment, in order, decided upon together once."""

    at_ms: int
    events: "tuple[Event, ...]"


Event = (
    NodeAdded
    | NodeChanged
    | NodeDown
    | NodeUp
    | NodeDrained
    | NodeClosed
    | NodeOpened
    | DeviceDown
    | DeviceUp
    | QueueSet
    | TenantSet
    | QueueRemoved
    | TenantRemoved
    | JobSubmitted
    | JobCancelled
    | JobRequeued
    | JobHeld
    | JobReleased
    | JobPreparing
    | JobStarted
    | CheckpointSaved
    | JobFinished
    | JobStopped
    | JobSuspended
    | JobResized
    | DemandForecast
    | PowerBudgetSet
    | BudgetsChanged
    | JobBounded
    | LinksSet
    | TimerFired
    | SubmissionAccepted
    | ControlStarted
    | PlanAccepted
    | Batch
)
