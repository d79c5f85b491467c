"""What a server needs of the control plane that it speaks for.

Requests are taken by any thread and answered by futures: an answer means that what it says is on disk. Refusals are
exceptions of the future: InputError (the caller can correct it), StorageError (nothing is taken now; try again later).
Whether the caller may do what he asks is the server's business, and was decided before.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import JobSpec
from clearway.model.plan import Explanation, Plan
from clearway.model.runs import RunSpec
from clearway.model.values import made_often
from clearway.ports.snapshot import ClusterSnapshot
from clearway.ports.storage import AuditLine
from clearway.ports.views import ClusterView, JobView

PROVISIONAL_ID: Final = 1 << 62
"""Jobs are parsed with numbers from here on; the control plane gives the real ones when it accepts them, and changes
the numbers by which the jobs of one submission name one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Jobs numbered from PROVISIONAL_ID, and how to run each. actor: the user in whose name it is submitted.

    key: chosen by the client; a second submission of the same actor with the key of an accepted one is answered with
    the same jobs. "" = none. is_patient: where what is taken cannot be kept now, it is answered once it can, not
    refused: for who would try again for ever. Then it is decided before it is written, and both with one sync.
    """

    jobs: tuple[JobSpec, ...]
    runs: tuple[RunSpec, ...]
    actor: str
    key: str = ""
    is_patient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Names of queues and tenants that are to be no more; those that there are not are left out."""

    queues: tuple[QueueName, ...] = ()
    tenants: tuple[TenantName, ...] = ()


NOTHING_REMOVED: Final = Removed()


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something changed, for views that follow it.

    seq: its number, rising. kind: such as `job`, `node`, `plan`. data: JSON.
    """

    seq: int
    at_ms: int
    kind: str
    tenant: str
    data: Mapping[str, object]


class Control(Protocol):
    """The running control plane."""

    def submit(self, submission: Submission) -> "Future[tuple[JobId, ...]]":
        """Accept all the jobs or none; the answer is their numbers, in order."""
        ...

    def cancel(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """Take jobs back, running or not; the answer is those that had not ended yet."""
        ...

    def hold(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """Waiting jobs must not start until released."""
        ...

    def release(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """Held jobs may start again."""
        ...

    def requeue(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """Running jobs leave their devices and wait again."""
        ...

    def drain(self, node: NodeName, *, reason: str, actor: str) -> "Future[None]":
        """Nothing new starts on the node. Raises InputError for an unknown one."""
        ...

    def undrain(self, node: NodeName, *, actor: str) -> "Future[None]":
        """The node may be used again."""
        ...

    def set_site(
        self,
        queues: tuple[QueueSpec, ...],
        tenants: tuple[TenantSpec, ...],
        *,
        actor: str,
        removed: Removed = NOTHING_REMOVED,
    ) -> "Future[None]":
        """Make or change queues and tenants, and remove others, without a restart: all of it or nothing.

        Raises InputError where one that is to be removed has jobs, or tenants below it that stay.
        """
        ...

    def note(self, line: AuditLine) -> "Future[None]":
        """Write a line into the audit log, such as of what a server refused; what is done writes its own."""
        ...

    def explain(self, job: JobId) -> "Future[Explanation]":
        """All the reasons why a job waits. Raises InputError for one that is unknown or has ended."""
        ...

    def snapshot(self) -> "Future[ClusterSnapshot]":
        """The cluster and all jobs that have not ended, whole, for a twin to go on from."""
        ...

    def priorities(self, jobs: Iterable[JobId]) -> Mapping[JobId, int]:
        """What the policy's order makes of those of `jobs` that wait and may start, larger first, as Slurm counts.

        Under weighted factors their sum, at least 1; under other orders what Slurm's `priority/basic` gives to the
        first, the second and so on. At once, from memory; {} while a decision takes long.
        """
        ...

    def job(self, job: JobId) -> JobView | None:
        """The job as it is now; None = unknown. At once, from memory for jobs that have not ended."""
        ...

    def cluster(self) -> ClusterView:
        """The cluster as it is now. At once."""
        ...

    def plans(self) -> tuple[tuple[int, Plan], ...]:
        """The last plans that moved anything, oldest first, each with its time."""
        ...

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """Have `take` called, from the control plane's thread, for each notice; returns what ends it."""
        ...

    @property
    def problem(self) -> str:
        """Why submits are not taken now, for people; "" = they are."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether recovery is over and submits are taken."""
        ...
