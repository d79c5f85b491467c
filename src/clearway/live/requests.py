"""Requests on their way to the driver's thread: a bounded queue, and what each request makes of a turn."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, Final

from clearway.engine.accounts import Accounts
from clearway.engine.state import ClusterState
from clearway.live.admission import HasTask, admit_job, check_removal, check_tenants, number_jobs
from clearway.live.books import Draft
from clearway.live.keys import Keys
from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.errors import ClearwayError, InputError
from clearway.model.events import (
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    NodeDrained,
    NodeUp,
    QueueRemoved,
    QueueSet,
    SubmissionAccepted,
    TenantRemoved,
    TenantSet,
)
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import JobSpec
from clearway.model.runs import RunSpec
from clearway.ports.backend import BackendCommand
from clearway.ports.control import NOTHING_REMOVED, Removed, Submission
from clearway.ports.storage import AuditLine, Changes, StorageError

KEY_CHARACTERS_MAX: Final = 200
"""A key is a name that a client makes up, such as a UUID."""

Action = Callable[["Intake"], object]
"""What a request does to a turn: adds events and returns its answer, or raises InputError having added nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. is_read: it changes nothing, and is answered after the decision. size: jobs that it brings.
    is_patient: see `Submission`."""

    action: Action
    future: "Future[Any]"
    is_read: bool = False
    size: int = 1
    is_patient: bool = False


@dataclass(slots=True)
class Unwritten:
    """What was decided and is not on disk. commands, answers: to be performed, and given, then."""

    changes: Changes
    commands: tuple[BackendCommand, ...]
    answers: Sequence[tuple[Ask, object]] = ()


def give_answers(accepted: Sequence[tuple[Ask, object]]) -> None:
    """What was accepted is on disk."""
    for ask, answer in accepted:
        ask.future.set_result(answer)


class Inbox:
    """Requests and wake-ups from any thread, for one thread that waits. most: requests that may wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._condition = Condition()
        self._asks: deque[Ask] = deque()
        self._is_woken = False
        self._refusal: ClearwayError | None = None

    def put(self, ask: Ask) -> None:
        """Add a request; its future fails at once where there is no room, or nobody takes requests any more."""
        with self._condition:
            refusal = self._refusal
            if refusal is None and len(self._asks) >= self._most:
                refusal = StorageError(f"expected fewer than {self._most} requests to wait; try again later")
            if refusal is None:
                self._asks.append(ask)
                self._condition.notify()
        if refusal is not None:
            ask.future.set_exception(refusal)

    def wake(self) -> None:
        """Let the waiting thread look at the world."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def wait(self, seconds: float) -> None:
        """Return when there is a request or a wake-up, or after `seconds`."""
        with self._condition:
            if not (self._asks or self._is_woken):
                self._condition.wait(seconds)
            self._is_woken = False

    def take(self, jobs_max: int) -> list[Ask]:
        """The requests that wait, in order, as many as bring at most `jobs_max` jobs; at least one."""
        taken: list[Ask] = []
        size = 0
        with self._condition:
            while self._asks and (not taken or size + self._asks[0].size <= jobs_max):
                size += self._asks[0].size
                taken.append(self._asks.popleft())
        return [ask for ask in taken if ask.future.set_running_or_notify_cancel()]

    def __len__(self) -> int:
        return len(self._asks)

    def close(self, refusal: ClearwayError) -> None:
        """Refuse what waits and what is still to come."""
        with self._condition:
            self._refusal = refusal
            asks = list(self._asks)
            self._asks.clear()
            self._is_woken = True
            self._condition.notify()
        for ask in asks:
            if ask.future.set_running_or_notify_cancel():
                ask.future.set_exception(refusal)


@dataclass(slots=True)
class Intake:
    """A turn that is being put together. state: as it was before. draft: the books with all that was added so far.
    last_id: the highest number given. runs: how to run the jobs that are added. has_node: whether there is one of this
    name. qos: names that jobs may give; empty = any."""

    now_ms: int
    draft: Draft
    state: ClusterState
    keys: Keys
    has_node: Callable[[NodeName], bool]
    qos: Collection[str]
    last_id: JobId
    runs: dict[JobId, RunSpec]
    events: list[Event] = field(default_factory=list)
    audit: list[AuditLine] = field(default_factory=list)
    new_keys: dict[tuple[str, str], tuple[JobId, ...]] = field(default_factory=dict)
    new_tenants: list[TenantSpec] = field(default_factory=list)
    removed: Removed = NOTHING_REMOVED

    @property
    def accounts(self) -> Accounts:
        """Queues and tenants, as they were before."""
        return self.state.accounts

    def add(self, event: Event) -> None:
        """One more event of the turn."""
        self.events.append(event)
        self.draft.note(event)

    def write_down(self, actor: str, action: str, target: str, detail: str = "") -> None:
        """One more audit line."""
        self.audit.append(AuditLine(at_ms=self.now_ms, actor=actor, action=action, target=target, detail=detail))

    # --- actions --------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> tuple[JobId, ...]:
        """Accept all the jobs or none."""
        key = submission.key
        if len(key) > KEY_CHARACTERS_MAX:
            raise InputError(f"expected a key of at most {KEY_CHARACTERS_MAX} characters, found {len(key)}")
        known = self.new_keys.get((submission.actor, key)) or self.keys.find(submission.actor, key) if key else None
        if known is not None:
            return known
        jobs = number_jobs(submission, self.last_id)
        last_id = JobId(self.last_id + len(jobs))
        has_task = self._find_tasks(jobs)
        jobs = tuple(admit_job(job, self.accounts, last_id, self.qos, has_task) for job in jobs)
        for job in jobs:
            if job.queue in self.removed.queues or job.tenant in self.removed.tenants:
                raise InputError(f"expected a queue and a tenant that stay, found {job.queue!r} and {job.tenant!r}")
        numbers = tuple(job.id for job in jobs)
        self.last_id = last_id
        self.runs.update(zip(numbers, submission.runs, strict=True))
        for job in jobs:
            self.add(JobSubmitted(self.now_ms, job))
        if key:
            self.new_keys[submission.actor, key] = numbers
            self.add(SubmissionAccepted(self.now_ms, submission.actor, key, numbers))
        self.write_down(submission.actor, "job.submit", _target(numbers))
        return numbers

    def _find_tasks(self, jobs: Sequence[JobSpec]) -> HasTask:
        """Whether there is a task: of an array accepted before, earlier in this turn, or with `jobs`."""

        def has_task(array: JobId, index: int) -> bool:
            if self.state.dependencies.has_task(array, index):
                return True
            specs = (*jobs, *(book.spec for book in self.draft.changed.values()))
            places = (spec.array for spec in specs if spec.array is not None)
            return any((place.array, place.index) == (array, index) for place in places)

        return has_task

    def change(
        self, kind: type[JobCancelled | JobHeld | JobReleased | JobRequeued], jobs: Iterable[JobId], actor: str
    ) -> tuple[JobId, ...]:
        """Add an event of this kind for each of the jobs that has not ended; returns these. Raises InputError where one
        of them is to be requeued and must not."""
        books = [book for job in dict.fromkeys(jobs) if (book := self.draft.get(job)) is not None]
        found = tuple(book.spec.id for book in books)
        fixed = next((book.spec.id for book in books if kind is JobRequeued and not book.spec.requeue), None)
        if fixed is not None:
            raise InputError(
                f"job {fixed}: expected a job that may run again, found one that was submitted not to be requeued; "
                "cancel it and submit another"
            )
        for job in found:
            self.add(kind(self.now_ms, job))
        if found:
            self.write_down(actor, _ACTIONS[kind], _target(found))
        return found

    def set_node(self, node: NodeName, *, reason: str | None, actor: str) -> None:
        """Drain a node, or let it be used again where there is no reason."""
        if not self.has_node(node):
            raise InputError(f"node {node!r}: expected a node of this cluster, found none of that name")
        self.add(NodeUp(self.now_ms, node) if reason is None else NodeDrained(self.now_ms, node, reason))
        self.write_down(actor, "node.undrain" if reason is None else "node.drain", f"node {node}", reason or "")

    def set_site(
        self, queues: tuple[QueueSpec, ...], tenants: tuple[TenantSpec, ...], removed: Removed, actor: str
    ) -> None:
        """Make or change queues and tenants, and remove others; all of it or nothing."""
        check_tenants((*self.new_tenants, *tenants), self.accounts)
        gone_queues, gone_tenants = self._present(removed)
        check_removal(gone_queues, gone_tenants, self.accounts, self.draft.specs())
        self.new_tenants += tenants
        for queue in queues:
            self.add(QueueSet(self.now_ms, queue))
        for tenant in tenants:
            self.add(TenantSet(self.now_ms, tenant))
        for name in gone_queues:
            self.add(QueueRemoved(self.now_ms, name))
        for below in gone_tenants:
            self.add(TenantRemoved(self.now_ms, below))
        self.removed = Removed(
            queues=(*self.removed.queues, *gone_queues), tenants=(*self.removed.tenants, *gone_tenants)
        )
        gone = ", ".join([*gone_queues, *gone_tenants])
        target = f"{len(queues)} queues, {len(tenants)} tenants"
        self.write_down(actor, "site.set", target, f"removed: {gone}" if gone else "")

    def _present(self, removed: Removed) -> tuple[list[QueueName], list[TenantName]]:
        """Those to be removed that there are, tenants below others first."""
        queues = [spec.name for _, spec in self.accounts.current_queues() if spec.name in removed.queues]
        tenants = [spec.name for _, spec in self.accounts.current_tenants() if spec.name in removed.tenants]
        return queues, tenants[::-1]

    def report(self, events: tuple[Event, ...]) -> None:
        """Take in what somebody else saw."""
        for event in events:
            self.add(event)


_ACTIONS: Final = {
    JobCancelled: "job.cancel",
    JobHeld: "job.hold",
    JobReleased: "job.release",
    JobRequeued: "job.requeue",
}


def _target(jobs: tuple[JobId, ...]) -> str:
    """`job 7`, or `jobs 7-9 (3)`: the first, the last and how many."""
    return f"job {jobs[0]}" if len(jobs) == 1 else f"jobs {jobs[0]}-{jobs[-1]} ({len(jobs)})"


def sign_of_life(now_ms: int, error: StorageError) -> Changes:
    """What is written to see whether the storage takes anything again, where nothing else is to be written."""
    line = AuditLine(at_ms=now_ms, actor="clearway", action="storage.resume", target="journal", detail=str(error))
    return Changes(audit=(line,))
