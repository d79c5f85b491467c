"""What the book keeps of groups, runs and calls that are to be made: plain values."""

from dataclasses import dataclass, field
from enum import StrEnum

from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import Group
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Outcome, StopCause
from clearway.model.runs import RunSpec

Place = tuple[NodeName, tuple[int, ...]]
"""A node and the device indices on it that one replica holds."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Put a pod on a node."""

    pod: PodFacts
    node: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask a pod to leave."""

    pod: PodFacts


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say to a pod why nothing will be done for it."""

    pod: PodFacts
    message: str


Action = Bind | Evict | Refuse


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
    while it does not, or for good, and then with `outcome`. limit_ms: longest run time. asked: pods asked to leave."""

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


@dataclass(slots=True)
class Bundle:
    """A group and its pods. members: uids, in the order seen. job: its number once accepted. key: of its submission.

    size: pods that must start together, 0 = not known yet. refused: what was said to its pods, "" = nothing.
    """

    group: Group
    size: int
    members: dict[str, None] = field(default_factory=dict)
    job: JobId | None = None
    key: str = ""
    run: Run | None = None
    is_held: bool = False
    refused: str = ""
