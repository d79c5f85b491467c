"""The answer of one decision cycle: moves, and why the rest did not move. Complete: nothing is left to choose."""

from dataclasses import dataclass, field
from enum import StrEnum

from clearway.model.allocation import Allocation
from clearway.model.ids import JobId
from clearway.model.jobs import StopCause
from clearway.model.values import made_often


@made_often
@dataclass(frozen=True, slots=True)
class Start:
    """Start the job's next generation on exactly these devices."""

    job: JobId
    generation: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Stop:
    """End the running generation and let the job wait again (`cause`), or end it for good (`cause` None).

    grace_ms: time to save. beneficiary: the job for which it is done, if any.
    """

    job: JobId
    generation: int
    grace_ms: int
    cause: StopCause | None
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Freeze the job in place; its devices become free."""

    job: JobId
    generation: int
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the job to `allocation` (its whole new allocation) under the new `generation`."""

    job: JobId
    generation: int
    allocation: Allocation
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move the running job to `allocation`, disjoint from what it holds, under the new `generation`."""

    job: JobId
    generation: int
    allocation: Allocation
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep these devices for the job until they are all free: those named that are busy go to it when they are left.

    start_ms: when the planner expects it to start.
    """

    job: JobId
    allocation: Allocation
    start_ms: int


@dataclass(frozen=True, slots=True)
class Cap:
    """Limit the devices of a node to `watts` each; 0 lifts the limit."""

    node: int
    watts: int


Move = Start | Stop | Suspend | Resize | Migrate | Reserve | Cap


def job_served(move: Move) -> JobId | None:
    """The job that a move starts, or for which it makes room; None where it serves nobody in particular."""
    if isinstance(move, Start | Reserve):
        return move.job
    return None if isinstance(move, Cap) else move.beneficiary


class ReasonCode(StrEnum):
    """Why a job waits. The first word of each message is Slurm's own reason token where there is one."""

    PRIORITY = "Priority"
    RESOURCES = "Resources"
    FRAGMENTATION = "Fragmentation"
    TOPOLOGY = "Topology"
    DEVICE_MODEL = "DeviceModel"
    NEVER_FITS = "NeverFits"
    NODES_DOWN = "ReqNodeNotAvail"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    BEGIN_TIME = "BeginTime"
    HELD = "JobHeldUser"
    ARRAY_LIMIT = "JobArrayTaskLimit"
    QUOTA = "AssocGrpGRES"
    QUEUE_LIMIT = "QOSGrpGRES"
    QUEUE_JOB_LIMIT = "QOSMaxGRESPerJob"
    RESERVED = "Reservation"
    HEADROOM = "Headroom"
    POWER = "PowerNotAvail"
    CLEANING = "Cleaning"
    CYCLE_CUT = "CycleCut"
    NEIGHBOURS = "Neighbours"
    LAUNCH_FAILED = "JobLaunchFailure"


@dataclass(frozen=True, slots=True)
class Rejection:
    """One reason, with data.

    message: one sentence for a person. needed, available: in devices (thousandths) where that makes sense; what lacks
    is the difference, and available below 0 where more is held than a limit allows.
    blockers: jobs in the way, the most important first. helped_by: names of event classes after which it is worth
    looking again.
    """

    code: ReasonCode
    message: str
    needed_milli: int = 0
    available_milli: int = 0
    blockers: tuple[JobId, ...] = ()
    helped_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job waits: every reason, the most important first; none when it does not wait.

    fix: the cheapest change that would let it start, in words; "" = it can only wait. start_ms: when it is planned to
    start if the jobs that run end when they are expected to; None = no time is set aside for it.
    """

    job: JobId
    reasons: tuple[Rejection, ...] = ()
    fix: str = ""
    start_ms: int | None = None

    @property
    def blockers(self) -> tuple[JobId, ...]:
        """Jobs in the way for any of the reasons, the most important first."""
        return tuple(dict.fromkeys(job for reason in self.reasons for job in reason.blockers))

    @property
    def helped_by(self) -> tuple[str, ...]:
        """Names of event classes after which it is worth looking again."""
        return tuple(dict.fromkeys(event for reason in self.reasons for event in reason.helped_by))


@made_often
@dataclass(frozen=True, slots=True)
class Plan:
    """parent: the version of the state that it was made for; a plan for another version is refused.

    cut_short: the cycle's budget ended before every job was looked at. wake_ms: when to look again though nothing
    happens (None = not needed).
    """

    parent: int
    moves: tuple[Move, ...] = ()
    cut_short: bool = False
    wake_ms: int | None = None
    notes: tuple[str, ...] = field(default=())
