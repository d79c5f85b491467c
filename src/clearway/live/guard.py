"""Starts that fail: a job backs off and is held in the end, a node is drained. Pure; rebuilt from the journal.

- A job whose start failed is held for a while, each time twice as long, and released by a timer. After `retries_max`
  failures in a row it is held for good, until somebody releases it: then it has all its retries again.
- A node on which the starts of `node_jobs_max` jobs failed, and none succeeded since, is drained; it is used again when
  all of these turn out to be to blame themselves.

Who is to blame for a failure is worked out for each job and each node. A job is, when the backend says so, when its
starts fail on several nodes, or when a node on which it failed has started another since. Until then it is a suspect,
and so is the node that failed it. A user's suspects count against a node while all of them failed there and nowhere
else: who submits twelve broken jobs must not have node after node drained. What one job is to blame for says nothing
of the next, and a good start clears its own job and the nodes on which it runs, nobody else: if its job failed on
another node before, that node is to blame. Gangs that lie on several nodes say nothing of one.

A node is proven by a good start until one fails on it; how many starts others may have under way says `room`.

`note` takes the records of the journal, on recovery too; `answers` and `due` say what is to be added to a batch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final

from clearway.live.books import LAUNCH_FAILED, Book, each_part
from clearway.model.events import (
    Event,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobStarted,
    JobStopped,
    NodeDown,
    NodeDrained,
    NodeUp,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import StopCause
from clearway.model.plan import ReasonCode
from clearway.model.units import FOREVER_MS, MINUTE_MS, SECOND_MS

FAILED_STARTS: Final = (StopCause.START_FAILED, StopCause.UNSTARTABLE)

FAILED_STARTS_OF: Final = "the starts of"
"""First words of the reason with which a node is drained."""

RETRYING: Final = "start failed"
"""First words of the reason with which a job is held until its next try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """retries_max: failures in a row after which a job is held for good; 0 = nothing is ever held or drained.

    delay_ms: wait after the first failure, doubled by each further one up to delay_max_ms. node_jobs_max: jobs that a
    node may fail in a row before it is drained.
    """

    retries_max: int = 5
    delay_ms: int = 5 * SECOND_MS
    delay_max_ms: int = 5 * MINUTE_MS
    node_jobs_max: int = 3


DEFAULT_GUARD: Final = GuardSettings()

GIVEN: Final = ("_settings", "_find")
"""What a guard is told when it is made; all else it counts."""


class Guard:
    """Counts failures of starts. find: a job's book as it is now."""

    def __init__(self, settings: GuardSettings, find: Callable[[JobId], Book | None]) -> None:
        self._settings = settings
        self._find = find
        self._failures: dict[JobId, int] = {}
        self._waiting: dict[JobId, int] = {}
        self._due: list[tuple[int, JobId]] = []
        self._suspects: dict[JobId, tuple[str, NodeName]] = {}  # its user, and the one node that failed it
        self._blamed: set[JobId] = set()
        self._drained: set[NodeName] = set()
        self._convicted: dict[NodeName, set[JobId]] = {}  # nodes drained by us, and for which jobs
        self._down: set[NodeName] = set()
        self._innocent: dict[NodeName, list[JobId]] = {}  # jobs that the node failed and another started
        self._proven: set[NodeName] = set()

    # --- the journal ----------------------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Take in one record. To be called before the books take it in, for they still say where a job lies."""
        for part in each_part(event):
            if isinstance(part, JobStopped):
                self._on_stopped(part)
            elif isinstance(part, JobStarted):
                self._on_started(part)
            elif isinstance(part, JobHeld):
                self._on_held(part)
            elif isinstance(part, JobReleased):
                self._forget(part.job, is_over=part.job not in self._waiting)
            elif isinstance(part, JobFinished | JobCancelled):
                self._forget(part.job, is_over=True)
            elif isinstance(part, NodeUp):
                self._acquit(part.node)
            elif isinstance(part, NodeDown):
                self._down.add(part.node)
            elif isinstance(part, NodeDrained):
                self._on_drained(part)

    def _on_drained(self, event: NodeDrained) -> None:
        self._drained.add(event.node)
        jobs = self._accused().get(event.node)
        self._convicted.pop(event.node, None)
        if jobs and event.reason.startswith(FAILED_STARTS_OF):
            self._convicted[event.node] = set(jobs)

    def _on_stopped(self, event: JobStopped) -> None:
        book = self._find(event.job)
        if book is None or event.cause not in FAILED_STARTS or book.view.generation != event.generation:
            return
        job, nodes = event.job, book.view.nodes
        self._failures[job] = self._failures.get(job, 0) + 1
        if event.cause is StopCause.UNSTARTABLE or self._suspects.get(job, ("", nodes[0]))[1] != nodes[0]:
            self._blame(job)
        elif len(nodes) == 1 and job not in self._blamed:
            self._suspects[job] = (book.spec.user, nodes[0])
            self._proven.discard(nodes[0])

    def _on_started(self, event: JobStarted) -> None:
        book = self._find(event.job)
        if book is None or book.view.generation != event.generation:
            return
        failed_on = self._suspects.get(event.job, ("", None))[1]
        if failed_on is not None and failed_on not in book.view.nodes:
            self._innocent.setdefault(failed_on, []).append(event.job)
        self._forget(event.job, is_over=True)
        for node in book.view.nodes:
            self._proven.add(node)
            self._innocent.pop(node, None)
            for job in self._suspects_on(node):
                self._blame(job)

    def _suspects_on(self, node: NodeName) -> list[JobId]:
        return [job for job, (_, failed_on) in self._suspects.items() if failed_on == node]

    def _blame(self, job: JobId) -> None:
        """It is the job, not the node."""
        self._suspects.pop(job, None)
        self._blamed.add(job)
        for node, jobs in self._convicted.items():
            if job not in self._innocent.get(node, ()):
                jobs.discard(job)

    def _acquit(self, node: NodeName) -> None:
        """The node is said to be well: what failed there says nothing any more."""
        self._down.discard(node)
        self._drained.discard(node)
        self._convicted.pop(node, None)
        self._innocent.pop(node, None)
        self._proven.discard(node)
        for job in self._suspects_on(node):
            del self._suspects[job]

    def _on_held(self, event: JobHeld) -> None:
        if event.reason.startswith(RETRYING):
            due_ms = event.at_ms + self._delay_ms(self._failures.get(event.job, 1))
            self._waiting[event.job] = due_ms
            heappush(self._due, (due_ms, event.job))
        else:
            self._waiting.pop(event.job, None)

    def _forget(self, job: JobId, *, is_over: bool) -> None:
        self._waiting.pop(job, None)
        if is_over:
            self._failures.pop(job, None)
            self._suspects.pop(job, None)
            self._blamed.discard(job)

    def _delay_ms(self, failures: int) -> int:
        return min(self._settings.delay_ms << min(failures - 1, 30), self._settings.delay_max_ms)

    def kept(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {name: value for name, value in vars(self).items() if name not in GIVEN}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Know what another knew, of the same settings."""
        vars(self).update(kept)

    # --- what follows ---------------------------------------------------------------------------------------------

    def answers(self, events: list[Event], now_ms: int) -> Iterator[Event]:
        """What must follow these reports, which were noted, in the same batch."""
        if not self._settings.retries_max:
            return
        for event in events:
            if not isinstance(event, JobStopped) or event.cause not in FAILED_STARTS:
                continue
            count = self._failures.get(event.job, 0)
            book = self._find(event.job)
            if count and book is not None and not book.is_cancelled and not book.is_held:
                yield JobHeld(now_ms, event.job, self._why(event, count), ReasonCode.LAUNCH_FAILED)
        for node, jobs in self._accused().items():
            if len(jobs) >= self._settings.node_jobs_max and node not in self._drained:
                named = ", ".join(map(str, jobs))
                yield NodeDrained(now_ms, node, f"{FAILED_STARTS_OF} {len(jobs)} jobs in a row failed on it: {named}")
        for node, left in self._convicted.items():
            if not left and node not in self._down:
                yield NodeUp(now_ms, node)

    def _accused(self) -> dict[NodeName, list[JobId]]:
        """The jobs that count against each node."""
        failed: dict[str, set[NodeName]] = {}
        for user, node in self._suspects.values():
            failed.setdefault(user, set()).add(node)
        accused = {node: list(jobs) for node, jobs in self._innocent.items()}
        for job, (user, node) in self._suspects.items():
            if len(failed[user]) == 1:
                accused.setdefault(node, []).append(job)
        return accused

    def is_proven(self, node: NodeName) -> bool:
        """Whether nothing is to be feared of it: its last start was good, or nothing is ever drained."""
        return node in self._proven or not self._settings.retries_max

    def room(self, node: NodeName, job: JobId) -> int:
        """How many starts the node may have under way, if the next one is this job's: as many as it may still fail."""
        if self.is_proven(node):
            return FOREVER_MS
        failed = {*self._suspects_on(node), *self._innocent.get(node, ())} - {job}
        return self._settings.node_jobs_max - len(failed)

    def _why(self, event: JobStopped, count: int) -> str:
        seen = f": {event.reason}" if event.reason else ""
        if count >= self._settings.retries_max:
            return f"{LAUNCH_FAILED} {count} times in a row; release it to try again{seen}"
        wait_s = self._delay_ms(count) / SECOND_MS
        return f"{RETRYING} {count} of {self._settings.retries_max} times; next try in {wait_s:g} s{seen}"

    def due(self, now_ms: int) -> list[Event]:
        """Jobs whose wait is over."""
        released: list[Event] = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, job = heappop(self._due)
            if self._waiting.get(job) == due_ms:
                released.append(JobReleased(now_ms, job))
        return released

    def next_ms(self) -> int:
        """When `due` has something to say; FOREVER_MS = not before something is noted."""
        while self._due and self._waiting.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else FOREVER_MS
