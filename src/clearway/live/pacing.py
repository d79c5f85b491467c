"""Starts on nodes that have not shown yet that they can: so many at once as a node may fail before it is drained.

Between the commands of a plan and the backend. A node is trusted from its first good start until a start fails on it
(`Guard.room`); on others a burst would fail as a whole before anybody could drain them. Starts beyond the room wait
here, their jobs holding their devices, and go on

- when a start on that node went well, or one that was under way failed and there is room left;
- to other nodes, after `JobStopped` with `REQUEUED`, when the node is drained or down;
- one by one, each `delay_ms` after the last, where failures used up the room and nobody is found to blame, or what is
  under way takes long: a user's setup step may take hours, and says nothing of the node.

Not kept over a restart: what the journal says was asked for is performed again at once, for it may have been under way.
Gangs over several nodes, and jobs that were frozen on their node, do not wait.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from clearway.live.books import each_part
from clearway.live.memory import Memory
from clearway.model.events import Event, JobFinished, JobStarted, JobStopped
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Cap, Start, Stop
from clearway.model.units import FOREVER_MS
from clearway.ports.backend import BackendCommand


@dataclass(slots=True)
class _Node:
    """waiting: starts in order. flying: jobs whose start was performed and is not answered. try_ms: when the next may
    start though there is no room."""

    waiting: dict[JobId, Start] = field(default_factory=dict)
    flying: set[JobId] = field(default_factory=set)
    try_ms: int = 0


class Pacer:
    """memory: that of the control plane, as it is now. delay_ms: see the module. is_on: if not, nothing waits."""

    def __init__(self, memory: Callable[[], Memory], delay_ms: int, *, is_on: bool) -> None:
        self._memory = memory
        self._delay_ms = delay_ms
        self._is_on = is_on
        self._nodes: dict[NodeName, _Node] = {}
        self._node_of: dict[JobId, NodeName] = {}
        self._reports: list[Event] = []

    # --- commands -------------------------------------------------------------------------------------------------

    def pass_on(self, now_ms: int, commands: Iterable[BackendCommand]) -> Iterator[BackendCommand]:
        """Those that are to be performed now."""
        for command in commands:
            if isinstance(command, Start):
                yield from self._pass_start(now_ms, command)
            elif isinstance(command, Cap) or (start := self._waiting(command.job)) is None:
                yield command
            elif isinstance(command, Stop):
                self._forget(command.job)
                self._leave(now_ms, start, command.cause)
            else:  # it is to move: a backend must know what
                self._fly(now_ms, start)
                yield start
                yield command

    def _pass_start(self, now_ms: int, command: Start) -> Iterator[Start]:
        node = self._place(command)
        if node is None:
            yield command
            return
        self._node_of[command.job] = node
        waiting = self._nodes.setdefault(node, _Node()).waiting
        waiting[command.job] = command
        if len(waiting) == 1:  # else those before it found no room
            yield from self._let_go(now_ms, node)

    def _place(self, command: Start) -> NodeName | None:
        """The node on which it may have to wait."""
        memory = self._memory()
        book = memory.books.jobs.get(command.job)
        if not self._is_on or book is None or len(book.view.nodes) != 1 or book.before is not None:
            return None
        node = book.view.nodes[0]
        return None if memory.guard.is_proven(node) and node not in self._nodes else node

    def _waiting(self, job: JobId) -> Start | None:
        node = self._node_of.get(job)
        return None if node is None else self._nodes[node].waiting.get(job)

    def _leave(self, now_ms: int, start: Start, cause: StopCause | None, reason: str = "") -> None:
        """A job that has not begun leaves its devices."""
        if cause is None:
            self._reports.append(JobFinished(now_ms, start.job, start.generation, Outcome.CANCELLED))
            return
        saved_ms = self._memory().books.jobs[start.job].view.saved_ms
        self._reports.append(JobStopped(now_ms, start.job, start.generation, cause, saved_ms, reason))

    def note_performed(self, now_ms: int, commands: Iterable[BackendCommand]) -> None:
        """These were performed without having been asked for here."""
        for command in commands:
            node = self._place(command) if isinstance(command, Start) else None
            if node is not None and isinstance(command, Start):
                self._node_of[command.job] = node
                self._nodes.setdefault(node, _Node())
                self._fly(now_ms, command)

    # --- reports --------------------------------------------------------------------------------------------------

    def take(self) -> list[Event]:
        """What became of jobs that waited here, for the next batch."""
        reports, self._reports = self._reports, []
        return reports

    def note(self, events: Iterable[Event]) -> None:
        """Reports of the backend."""
        for event in events if self._node_of else ():
            for part in each_part(event):
                if isinstance(part, JobStarted | JobFinished | JobStopped) and part.job in self._node_of:
                    start = self._waiting(part.job)
                    if start is None or part.generation >= start.generation:  # else it tells of an earlier run
                        self._forget(part.job)

    def _forget(self, job: JobId) -> None:
        node = self._node_of.pop(job)
        here = self._nodes[node]
        here.waiting.pop(job, None)
        here.flying.discard(job)
        if not (here.waiting or here.flying):
            del self._nodes[node]

    def release(self, now_ms: int) -> Iterator[Start]:
        """What may start by now. What waits for a node that may not be used any more is turned back."""
        for node in [node for node, here in self._nodes.items() if here.waiting]:
            if self._memory().is_usable(node):
                yield from self._let_go(now_ms, node)
                continue
            for start in list(self._nodes[node].waiting.values()):
                self._forget(start.job)
                self._leave(now_ms, start, StopCause.REQUEUED, f"it had not begun when {node} was found unfit")

    def _let_go(self, now_ms: int, node: NodeName) -> Iterator[Start]:
        """Starts for which there is room, in order."""
        here, guard = self._nodes[node], self._memory().guard
        for start in list(here.waiting.values()):
            if len(here.flying) >= guard.room(node, start.job) and now_ms < here.try_ms:
                return
            self._fly(now_ms, start)
            yield start

    def _fly(self, now_ms: int, start: Start) -> None:
        here = self._nodes[self._node_of[start.job]]
        here.waiting.pop(start.job, None)
        here.flying.add(start.job)
        here.try_ms = now_ms + self._delay_ms

    def next_ms(self) -> int:
        """When `release` or `take` has something to say though nothing happens; FOREVER_MS = never."""
        if self._reports:
            return 0
        times = (here.try_ms for here in self._nodes.values() if here.waiting)
        return min(times, default=FOREVER_MS)
