"""What the local backend notes of jobs that the keeper has, and of failures that are not told yet."""

from dataclasses import dataclass, field

from clearway.adapters.local.keeper.messages import Message
from clearway.model.events import Event, JobStopped
from clearway.model.ids import JobId, NodeName
from clearway.model.plan import Migrate, Resize, Start

Device = tuple[NodeName, int]


@dataclass(slots=True)
class JobNote:
    """What is known of a job that the keeper has. devices: all that it may hold. start, stop: what the keeper was told,
    as long as it may have to be told again. before: of a job that moves, the generation that it had; 0 = it does not.
    waiting: what has begun it, while Docker's daemon has not said what it is. All else then waits behind it. lost: how
    it has to end, if the keeper has it, since it lies on what is not there any more.
    """

    generation: int
    devices: frozenset[Device] = frozenset()
    nodes: frozenset[NodeName] = frozenset()
    is_prepared: bool = False
    is_started: bool = False
    is_suspended: bool = False
    before: int = 0
    saved_at_ms: int = 0
    start: Message | None = None
    stop: Message | None = None
    waiting: Start | Resize | Migrate | None = None
    lost: JobStopped | None = None


@dataclass(slots=True)
class Failure:
    """Nodes and devices that failed together, told when `jobs` have left them. told: their ends, so far."""

    events: list[Event]
    jobs: set[JobId]
    told: dict[JobId, Event] = field(default_factory=dict)
