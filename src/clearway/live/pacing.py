"""Starts that must wait until their node has shown that it can: between the commands of a plan and the backend.

Which ones they are says `trust`, by the journal alone; here are only the commands that wait. They go on when they are
let go, and leave their devices, to be planned elsewhere, when their node may not be used any more, or not by them. A
control plane that takes over gives here what the journal says was asked for: what was under way is performed again, and
what waited goes on waiting.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from clearway.live.books import each_part
from clearway.live.memory import Memory
from clearway.model.events import Event, JobFinished, JobStopped
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Cap, Start, Stop
from clearway.model.units import FOREVER_MS
from clearway.ports.backend import BackendCommand


class Pacer:
    """memory: that of the control plane, as it is now."""

    def __init__(self, memory: Callable[[], Memory]) -> None:
        self._memory = memory
        self._kept: dict[JobId, Start] = {}
        self._reports: list[Event] = []

    # --- commands -------------------------------------------------------------------------------------------------

    def pass_on(self, now_ms: int, commands: Iterable[BackendCommand]) -> Iterator[BackendCommand]:
        """Those that are to be performed now."""
        trust = self._memory().guard.trust
        for command in commands:
            if isinstance(command, Start) and trust.is_queued(command.job):
                self._kept[command.job] = command
            elif isinstance(command, Cap) or command.job not in self._kept:
                yield command
            elif isinstance(command, Start):
                del self._kept[command.job]
                yield command
            else:  # told to leave before it began; or to move, and then it may as well begin elsewhere
                start = replace(self._kept.pop(command.job), generation=command.generation)
                self._leave(now_ms, start, command.cause if isinstance(command, Stop) else StopCause.REQUEUED)

    def _leave(self, now_ms: int, start: Start, cause: StopCause | None, reason: str = "") -> None:
        """A job that has not begun leaves its devices."""
        if cause is None:
            self._reports.append(JobFinished(now_ms, start.job, start.generation, Outcome.CANCELLED))
            return
        saved_ms = self._memory().books.jobs[start.job].view.saved_ms
        self._reports.append(JobStopped(now_ms, start.job, start.generation, cause, saved_ms, reason))

    # --- reports --------------------------------------------------------------------------------------------------

    def take(self) -> list[Event]:
        """What became of jobs that waited here, for the next batch."""
        reports, self._reports = self._reports, []
        return reports

    def note(self, events: Iterable[Event]) -> None:
        """Reports of the backend."""
        for event in events if self._kept else ():
            for part in each_part(event):
                if not isinstance(part, JobFinished | JobStopped) or part.job not in self._kept:
                    continue
                if part.generation >= self._kept[part.job].generation:  # else it tells of an earlier run
                    del self._kept[part.job]

    def release(self, now_ms: int) -> Iterator[Start]:
        """What may start by now. What waits for a node that may not be used any more is turned back."""
        memory = self._memory()
        trust = memory.guard.trust
        for job, start in list(self._kept.items()):
            if not trust.is_queued(job):
                yield self._kept.pop(job)
                continue
            book = memory.books.jobs[job]
            for node in book.view.nodes:
                if not memory.is_usable(node) or trust.is_closed(node, book.spec.user):
                    del self._kept[job]
                    self._leave(now_ms, start, StopCause.REQUEUED, f"it had not begun when {node} was found unfit")
                    break

    def next_ms(self) -> int:
        """When `take` has something to say though nothing happens; FOREVER_MS = never."""
        return 0 if self._reports else FOREVER_MS
