"""Starts that fail: a job backs off and is held in the end. Pure; rebuilt from the journal.

- A job whose start failed is held for a while, each time twice as long, and released by a timer. After `retries_max`
  failures in a row it is held for good, until somebody releases it: then it has all its retries again.
- A node on which starts fail is drained, or kept from some users, or gets few starts at a time: `trust`.

A job is to blame itself when the backend says so; else `trust` finds out. A good start clears its own job and the nodes
on which it runs, nobody else.

`note` takes the records of the journal, on recovery too, and `note_plan` those of plans; `answers` and `due` say what
is to be added to a batch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final

from clearway.live.books import LAUNCH_FAILED, Book, each_part
from clearway.live.trust import Trust
from clearway.model.events import (
    Event,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobPreparing,
    JobReleased,
    JobStarted,
    JobStopped,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeOpened,
    NodeUp,
    PlanAccepted,
)
from clearway.model.ids import JobId
from clearway.model.jobs import StopCause
from clearway.model.plan import ReasonCode, Start
from clearway.model.units import FOREVER_MS, MINUTE_MS, SECOND_MS

FAILED_STARTS: Final = (StopCause.START_FAILED, StopCause.UNSTARTABLE)

RETRYING: Final = "start failed"
"""First words of the reason with which a job is held until its next try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """retries_max: failures in a row after which a job is held for good; 0 = nothing is ever held or drained.

    delay_ms: wait after the first failure, doubled by each further one up to delay_max_ms. node_jobs_max: jobs that a
    node may fail in a row before it is drained, at least 2.
    """

    retries_max: int = 5
    delay_ms: int = 5 * SECOND_MS
    delay_max_ms: int = 5 * MINUTE_MS
    node_jobs_max: int = 3


DEFAULT_GUARD: Final = GuardSettings()

GIVEN: Final = ("_settings", "_find", "_takers", "trust")
"""What a guard is told when it is made; all else it counts."""

TRUST: Final = "trust"
"""What that has counted."""


class Guard:
    """Counts failures of starts. find: a job's book as it is now. paces: whether starts may have to wait. trust: which
    nodes may be given starts."""

    def __init__(self, settings: GuardSettings, find: Callable[[JobId], Book | None], *, paces: bool = True) -> None:
        self._settings = settings
        self._find = find
        self.trust = Trust(settings.node_jobs_max, paces=paces)
        self._failures: dict[JobId, int] = {}
        self._waiting: dict[JobId, int] = {}
        self._due: list[tuple[int, JobId]] = []
        self._takers: Mapping[type, Callable[..., None]] = self._make_takers()

    def _make_takers(self) -> Mapping[type, Callable[..., None]]:
        trust = self.trust
        return {
            JobStopped: self._on_stopped,
            JobStarted: self._on_begun,
            JobPreparing: self._on_begun,
            JobFinished: self._on_finished,
            JobCancelled: lambda event: self._forget(event.job, is_over=True),
            JobHeld: self._on_held,
            JobReleased: lambda event: self._forget(event.job, is_over=event.job not in self._waiting),
            NodeUp: lambda event: trust.note_up(event.at_ms, event.node),
            NodeDown: lambda event: trust.note_down(event.node),
            NodeDrained: lambda event: trust.note_drained(event.node, event.reason),
            NodeClosed: lambda event: trust.note_closed(event.node, event.user),
            NodeOpened: lambda event: trust.note_opened(event.at_ms, event.node, event.user),
        }

    # --- the journal ----------------------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Take in one record. To be called before the books take it in, for they still say where a job lies."""
        for part in each_part(event):
            taker = self._takers.get(type(part))
            if taker is not None:
                taker(part)

    def note_plan(self, event: PlanAccepted) -> None:
        """Take in a plan. To be called when the books have, which say where jobs are to start."""
        for move in event.plan.moves if self._settings.retries_max else ():
            book = self._find(move.job) if isinstance(move, Start) else None
            if book is not None and book.before is None:
                self.trust.note_planned(event.at_ms, book.spec.id, book.spec.user, book.view.nodes)

    def _current(self, event: JobStarted | JobStopped | JobFinished | JobPreparing) -> Book | None:
        """The event's job, None when the event is stale."""
        book = self._find(event.job)
        return book if book is not None and book.view.generation == event.generation else None

    def _on_stopped(self, event: JobStopped) -> None:
        book, trust = self._current(event), self.trust
        if book is None:
            return
        job = event.job
        if event.cause not in FAILED_STARTS:
            trust.note_left(event.at_ms, job)
            return
        self._failures[job] = self._failures.get(job, 0) + 1
        if event.cause is StopCause.UNSTARTABLE:
            trust.note_left(event.at_ms, job)
            trust.blame(job)
        else:
            trust.note_failed(event.at_ms, job, book.spec.user, book.view.nodes)

    def _on_begun(self, event: JobStarted | JobPreparing) -> None:
        book, has_started = self._current(event), isinstance(event, JobStarted)
        if book is None:
            return
        if has_started:
            self._forget(event.job, is_over=True)
        self.trust.note_begun(event.at_ms, event.job, book.view.nodes, has_started=has_started)

    def _on_finished(self, event: JobFinished) -> None:
        if self._current(event) is not None:
            self.trust.note_left(event.at_ms, event.job)
        self._forget(event.job, is_over=True)

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

    def kept(self) -> dict[str, Any]:
        """What `restore` takes."""
        own = {name: value for name, value in vars(self).items() if name not in GIVEN}
        return {**own, TRUST: self.trust.kept()}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Know what another knew, of the same settings."""
        vars(self).update({name: value for name, value in kept.items() if name != TRUST})
        self.trust.restore(kept[TRUST])

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
        yield from self.trust.answers(now_ms)

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
        return [*released, *(self.trust.answers(now_ms) if self._settings.retries_max else ())]

    def next_ms(self) -> int:
        """When `due` has something to say; FOREVER_MS = not before something is noted."""
        while self._due and self._waiting.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return min(self._due[0][0] if self._due else FOREVER_MS, self.trust.next_ms())
