"""What the book keeps of groups, runs and calls that are to be made: plain values."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from clearway.adapters.kubernetes.entries import Wants
from clearway.adapters.kubernetes.facts import Pairs, PodFacts
from clearway.adapters.kubernetes.gangs import Group, Source
from clearway.adapters.kubernetes.manifests import OwnJob
from clearway.model.events import JobFinished
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Outcome, Request, StopCause
from clearway.model.runs import RunSpec

CONFLICTS_MAX: Final = 5
REST_MS: Final = 5_000
"""A job whose starts come too late so often in a row, neighbours being there by then, rests so long before the next."""

Place = tuple[NodeName, tuple[int, ...]]
"""A node and the device indices on it that one replica holds."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Put a pod on a node, and these annotations on the pod. device: index on the node of the device of which the pod
    has a part, where KAI's binder is to do it; None = it is bound as any pod."""

    pod: PodFacts
    node: str
    annotations: Pairs = ()
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask a pod to leave. why: what its users are told, "" = nothing."""

    pod: PodFacts
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Have a Job make so many pods, each with a number of its own, for the run of this job. is_parked: it lets all of
    its pods go first, which are not counted as failures then, and makes none until it is told so."""

    source: Source
    pods: int
    job: JobId
    is_parked: bool = False


@dataclass(frozen=True, slots=True)
class Unpark:
    """Have the Job of this uid make its pods, should it have been told to let them go by an earlier process."""

    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Unclaim:
    """Take back the devices that these claims have for a pod that lies nowhere."""

    pod: PodFacts
    claims: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say to a pod why nothing will be done for it."""

    pod: PodFacts
    message: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Have a submitted job's Job make so many pods; the Job is made first if need be."""

    own: OwnJob
    replicas: int


class Ending(StrEnum):
    """What becomes of a submitted job's Job whose pods are to leave: it waits, it is deleted, or it has failed."""

    PARK = "park"
    REMOVE = "remove"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class End:
    """Have a submitted job's Job let its pods go, within their grace."""

    own: OwnJob
    ending: Ending


@dataclass(frozen=True, slots=True)
class Follow:
    """Collect what a pod of a submitted job writes."""

    job: JobId
    pod: PodFacts


@dataclass(frozen=True, slots=True)
class Inquire:
    """Look up why a Job does not make all of its pods, for this run of this job; since_ms: when it was told to."""

    job: JobId
    generation: int
    namespace: str
    name: str
    since_ms: int


OwnAction = Launch | End
Action = Bind | Evict | Scale | Unpark | Unclaim | Refuse | OwnAction | Follow | Inquire


@dataclass(frozen=True, slots=True)
class Arrival:
    """A whole group, to be submitted. The job has a provisional number."""

    key: str
    group: str
    job: JobSpec
    run: RunSpec


class RunPhase(StrEnum):
    """How far a run is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(slots=True)
class Slot:
    """One replica's place. pod: uid of the pod that lies there, "" = none."""

    node: NodeName
    devices: tuple[int, ...]
    pod: str = ""


@dataclass(slots=True)
class Run:
    """One generation of a job that holds devices. since_ms: when it came into its phase. cause: why it stops; None
    while it does not, or for good, and then with `outcome`. limit_ms: longest run time. asked: pods asked to leave.

    Of a submitted job: followed, writing: pods whose output is collected, and of those the ones not read to the end.
    is_ended: its Job has been told to let its pods go. is_killed: a pod did not leave by itself.
    next_slots: where it goes on as soon as it has left, None = nowhere. is_known: the engine takes it to run already.
    started_ms: when it began to run; None = not yet. request: what the engine counts for each replica, None = what its
    pods ask. pending: of a part of a convoy, bindings that wait until all parts have places. is_parked: its elastic Job
    was told to let its pods go. inquired_ms: when it was last looked up why its pods do not come. is_refused: they may
    not, or may not be bound; refusals: how often the API server said so, by pod. beneficiary: for whom it is
    preempted."""

    job: JobId
    generation: int
    slots: list[Slot]
    since_ms: int
    phase: RunPhase = RunPhase.STARTING
    cause: StopCause | None = None
    outcome: Outcome = Outcome.CANCELLED
    limit_ms: int | None = None
    reason: str = ""
    asked: set[str] = field(default_factory=set)
    exit_code: int = 0
    followed: set[str] = field(default_factory=set)
    writing: set[str] = field(default_factory=set)
    is_ended: bool = False
    is_killed: bool = False
    next_slots: list[Slot] | None = None
    is_known: bool = False
    started_ms: int | None = None
    request: Request | None = None
    pending: list[Bind] = field(default_factory=list)
    is_parked: bool = False
    inquired_ms: int = 0
    is_refused: bool = False
    refusals: Counter[str] = field(default_factory=Counter)
    beneficiary: JobId | None = None

    @property
    def crowds(self) -> tuple[str, ...]:
        """In which each replica counts for the engine."""
        return () if self.request is None else self.request.crowds


@dataclass(slots=True)
class Bundle:
    """A group and its pods. members: uids, in the order seen. job: its number once accepted. key: of its submission.

    size: pods that must start together, 0 = not known yet. refused: what was said to its pods, "" = nothing.
    own: the Job, of a job that was submitted to Clearway. saved_ms: work of its earlier runs that is safe.
    wants: as its job was submitted, None = by an earlier process; noted:
    what its pods want then, which nodes are told all the same. conflicts: starts in a row that came too late, for
    neighbours were there by then. rests_until_ms: it is not tried again before. is_again: a job of it was taken back,
    for what its pods demand had changed. rested: how often in a row it gave its places back, as other parts of its
    convoy had none. awaits_quota: what it is held for may be over when a quota changes.
    """

    group: Group
    size: int
    members: dict[str, None] = field(default_factory=dict)
    job: JobId | None = None
    key: str = ""
    run: Run | None = None
    is_held: bool = False
    refused: str = ""
    own: OwnJob | None = None
    saved_ms: int = 0
    wants: Wants | None = None
    noted: Wants | None = None
    conflicts: int = 0
    rests_until_ms: int = 0
    is_again: bool = False
    rested: int = 0
    awaits_quota: bool = False


SIGNALLED = 128
KILLED = SIGNALLED + 9
"""Exit codes of containers: 128 + the signal that ended it; 9 is the one that comes when the grace is over."""


def finished(now_ms: int, run: Run, outcome: Outcome, code: int) -> JobFinished:
    """code: as a container ended; 128 and more are signals."""
    signal = max(code - SIGNALLED, 0)
    return JobFinished(now_ms, run.job, run.generation, outcome, 0 if signal else code, signal)
