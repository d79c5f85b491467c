"""Starts that fail: a job backs off and is held in the end, a node is drained. Pure; rebuilt from the journal.

- A job whose start failed is held for a while, each time twice as long, and released by a timer. After `retries_max`
  failures in a row it is held for good, until somebody releases it: then it has all its retries again.
- A node on which the starts of `node_jobs_max` jobs failed, and none succeeded since, is drained. A job that is itself
  to blame, failures of a user whose starts fail on other nodes too, and gangs that lie on several nodes say nothing of
  one node: none of them counts against it.

`note` takes the records of the journal, on recovery too; `answers` and `due` say what is to be added to a batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from clearway.live.books import LAUNCH_FAILED, Book, each_part
from clearway.model.events import (
    Event,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobStarted,
    JobStopped,
    NodeDrained,
    NodeUp,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import StopCause
from clearway.model.units import FOREVER_MS, MINUTE_MS, SECOND_MS

FAILED_STARTS: Final = (StopCause.START_FAILED, StopCause.UNSTARTABLE)

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


class Guard:
    """Counts failures of starts. find: a job's book as it is now."""

    def __init__(self, settings: GuardSettings, find: Callable[[JobId], Book | None]) -> None:
        self._settings = settings
        self._find = find
        self._failures: dict[JobId, int] = {}
        self._waiting: dict[JobId, int] = {}
        self._due: list[tuple[int, JobId]] = []
        self._nodes: dict[NodeName, list[JobId]] = {}
        self._users: dict[str, set[NodeName]] = {}
        self._drained: set[NodeName] = set()

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
                self._nodes.pop(part.node, None)
                self._drained.discard(part.node)
            elif isinstance(part, NodeDrained):
                self._drained.add(part.node)

    def _on_stopped(self, event: JobStopped) -> None:
        book = self._find(event.job)
        if book is None or event.cause not in FAILED_STARTS or book.view.generation != event.generation:
            return
        self._failures[event.job] = self._failures.get(event.job, 0) + 1
        if event.cause is StopCause.UNSTARTABLE:
            return
        failed_on = self._users.setdefault(book.spec.user, set())
        failed_on.update(book.view.nodes)
        if len(failed_on) == 1:
            jobs = self._nodes.setdefault(book.view.nodes[0], [])
            if event.job not in jobs:
                jobs.append(event.job)

    def _on_started(self, event: JobStarted) -> None:
        book = self._find(event.job)
        if book is None or book.view.generation != event.generation:
            return
        self._failures.pop(event.job, None)
        self._users.pop(book.spec.user, None)
        for node in book.view.nodes:
            self._nodes.pop(node, None)

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

    def _delay_ms(self, failures: int) -> int:
        return min(self._settings.delay_ms << min(failures - 1, 30), self._settings.delay_max_ms)

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
                yield JobHeld(now_ms, event.job, self._why(event, count))
        for node, jobs in self._nodes.items():
            if len(jobs) >= self._settings.node_jobs_max and node not in self._drained:
                named = ", ".join(map(str, jobs))
                yield NodeDrained(now_ms, node, f"the starts of {len(jobs)} jobs in a row failed on it: {named}")

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
