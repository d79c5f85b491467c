"""What a control plane knows of each job that has not ended, from the journal's records alone.

`Draft.note(event)` says what one record changes; `Books.commit` makes it so once the record is on disk. Recovery notes
the same records, so a job's row, its unanswered command and its last devices come back as they were. Events that are
stale for the state box (an older generation, a job that has ended) are stale here by the same rules.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from clearway.model.allocation import Allocation
from clearway.model.events import (
    Batch,
    CheckpointSaved,
    Event,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobResized,
    JobStarted,
    JobStopped,
    JobSubmitted,
    JobSuspended,
    PlanAccepted,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Outcome, StopCause
from clearway.model.plan import Cap, Migrate, ReasonCode, Reserve, Resize, Start, Stop, Suspend
from clearway.model.runs import RunSpec
from clearway.ports.backend import BackendCommand, Holding
from clearway.ports.views import JobState, JobView

LAUNCH_FAILED: Final = "launch failed"
"""First words of the reason with which a job is held for good because its starts fail."""
LAUNCH_FAILED_HELD: Final = "launch failed requeued held"
"""Slurm's words for such a job in lists."""

HOLDING: Final = frozenset((JobState.CONFIGURING, JobState.RUNNING, JobState.COMPLETING))
"""States in which a job holds devices."""

_REASONS: Final[Mapping[Outcome, str]] = {
    Outcome.FAILED: "NonZeroExitCode",
    Outcome.TIMEOUT: "TimeLimit",
    Outcome.OUT_OF_MEMORY: "OutOfMemory",
    Outcome.NODE_FAIL: "NodeDown",
    Outcome.DEADLINE: "DeadLine",
}

Place = tuple[tuple[NodeName, tuple[int, ...]], ...]
Locate = Callable[[Allocation], Place]
"""An allocation as (node, device indices within the node) of each replica, in order."""


@dataclass(frozen=True, slots=True)
class Book:
    """One job that has not ended.

    allocation: what it holds, or held last. commands: what the backend was asked for and has not answered, in order.
    before: its generation and allocation before a resize, migration or resumption that is not confirmed. is_frozen:
    it is suspended, its work in memory. has_started: it is known to run, since its last start.
    """

    spec: JobSpec
    view: JobView
    allocation: Allocation | None = None
    commands: tuple[BackendCommand, ...] = ()
    before: tuple[int, Allocation] | None = None
    is_cancelled: bool = False
    is_held: bool = False
    is_frozen: bool = False
    has_started: bool = False

    @property
    def holds_devices(self) -> bool:
        """Whether devices are its own now."""
        return self.view.state in HOLDING and not self.is_frozen

    @property
    def is_waiting(self) -> bool:
        """Whether it waits without devices and without work in memory."""
        return not self.is_frozen and not self.holds_devices

    def holding(self) -> Holding | None:
        """What a backend must find again; None = nothing."""
        if self.allocation is None or not (self.holds_devices or self.is_frozen):
            return None
        return Holding(
            job=self.spec.id,
            generation=self.view.generation,
            allocation=self.allocation,
            is_started=self.has_started,
            is_suspended=self.is_frozen,
            generation_before=0 if self.before is None else self.before[0],
        )


class Books:
    """All jobs that have not ended, by number."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Book] = {}
        self.caps: dict[int, Cap] = {}

    def commit(self, draft: "Draft") -> None:
        """Make true what the draft says; jobs that ended are forgotten."""
        for job, book in draft.changed.items():
            if book.view.state.is_final:
                self.jobs.pop(job, None)
            else:
                self.jobs[job] = book
        self.caps.update(draft.caps)

    def unanswered(self, reports: "Draft") -> tuple[BackendCommand, ...]:
        """Commands to be carried out again after a restart, in order of job number, then power caps by node.

        reports: what became of jobs in the meantime; their commands are answered.
        """
        found = (reports.get(job) for job in sorted(self.jobs))
        return (
            *(command for book in found if book is not None for command in book.commands),
            *(self.caps[node] for node in sorted(self.caps)),
        )

    def holdings(self) -> tuple[Holding, ...]:
        """What the backend must find again, by job number."""
        found = (self.jobs[job].holding() for job in sorted(self.jobs))
        return tuple(holding for holding in found if holding is not None)


class Draft:
    """What some records would change in `books`. `locate` names the devices of allocations, `runs` says how new jobs
    are run."""

    def __init__(self, books: Books, locate: Locate, runs: dict[JobId, RunSpec]) -> None:
        self.changed: dict[JobId, Book] = {}
        self.caps: dict[int, Cap] = {}
        self._jobs = books.jobs
        self._locate = locate
        self.runs: dict[JobId, RunSpec] = runs
        self._new_views = _NewViews()
        self._takers: dict[type, Callable[..., None]] = {
            Batch: self._on_batch,
            JobSubmitted: self._on_submitted,
            JobCancelled: self._on_cancelled,
            JobHeld: self._on_held,
            JobReleased: self._on_released,
            JobStarted: self._on_started,
            CheckpointSaved: self._on_saved,
            JobFinished: self._on_finished,
            JobStopped: self._on_stopped,
            JobSuspended: self._on_suspended,
            JobResized: self._on_resized,
            PlanAccepted: self._on_plan,
        }

    def get(self, job: JobId) -> Book | None:
        """The job as the draft has it; None when it has ended or was never seen."""
        book = self.changed.get(job) or self._jobs.get(job)
        return None if book is None or book.view.state.is_final else book

    def specs(self) -> Iterator[JobSpec]:
        """Jobs that have not ended."""
        for job in {**self._jobs, **self.changed}:
            book = self.get(job)
            if book is not None:
                yield book.spec

    def note(self, event: Event) -> None:
        """Take in one record; those that say nothing of jobs are ignored."""
        taker = self._takers.get(type(event))
        if taker is not None:
            taker(event)

    def rows(self) -> tuple[JobView, ...]:
        """Rows that changed, in order of first change."""
        return tuple(book.view for book in self.changed.values())

    # --- requests -------------------------------------------------------------------------------------------------

    def _on_batch(self, event: Batch) -> None:
        for one in event.events:
            self.note(one)

    def _on_submitted(self, event: JobSubmitted) -> None:
        spec = event.job
        view = self._new_views.make(spec, self.runs.get(spec.id), event.at_ms)
        self.changed[spec.id] = Book(spec, view, is_held=spec.held)

    def _on_cancelled(self, event: JobCancelled) -> None:
        book = self.get(event.job)
        if book is None or book.is_cancelled:
            return
        if book.is_waiting:
            self._end(book, Outcome.CANCELLED, event.at_ms)
        else:
            self._put(replace(book, is_cancelled=True))

    def _on_held(self, event: JobHeld) -> None:
        book = self.get(event.job)
        if book is None or (book.is_held and event.reason):
            return
        view = book.view
        if book.is_waiting:
            for_good = event.reason.startswith(LAUNCH_FAILED)
            view = replace(
                view,
                state=JobState.REQUEUE_HOLD if for_good else JobState.PENDING,
                reason=LAUNCH_FAILED_HELD if for_good else event.code.value,
                message=event.reason,
                start_planned_ms=None,
            )
        self._put(replace(book, view=view, is_held=True))

    def _on_released(self, event: JobReleased) -> None:
        book = self.get(event.job)
        if book is None or not book.is_held:
            return
        view = book.view
        if book.is_waiting:
            reason = _first_reason(replace(book.spec, held=False), event.at_ms).value
            view = replace(view, state=JobState.PENDING, reason=reason, message="")
        self._put(replace(book, view=view, is_held=False))

    # --- reports --------------------------------------------------------------------------------------------------

    def _current(self, event: JobStarted | JobFinished | JobStopped | JobSuspended | JobResized) -> Book | None:
        """The event's job, None when the event is stale."""
        book = self.get(event.job)
        return book if book is not None and book.view.generation == event.generation else None

    def _on_started(self, event: JobStarted) -> None:
        book = self._current(event)
        if book is None or not book.holds_devices or book.has_started:
            return
        state = JobState.RUNNING if book.view.state is JobState.CONFIGURING else book.view.state
        view = replace(book.view, state=state, start_ms=event.at_ms)
        commands = tuple(command for command in book.commands if not isinstance(command, Start))
        before = book.before if commands else None
        self._put(replace(book, view=view, commands=commands, before=before, has_started=True))

    def _on_saved(self, event: CheckpointSaved) -> None:
        book = self.get(event.job)
        if book is not None and book.holds_devices:
            self._put(replace(book, view=replace(book.view, saved_ms=event.done_ms)))

    def _on_finished(self, event: JobFinished) -> None:
        book = self._current(event)
        if book is not None and not book.is_waiting:
            self._end(book, event.outcome, event.at_ms, exit_code=event.exit_code, signal=event.signal)

    def _on_stopped(self, event: JobStopped) -> None:
        book = self._current(event)
        if book is None or not book.holds_devices:
            return
        if book.spec.is_ended_by(event.cause):
            self._end(book, Outcome.NODE_FAIL, event.at_ms, message=event.reason)
            return
        if book.is_cancelled:
            self._end(book, Outcome.CANCELLED, event.at_ms)
            return
        ran_ms = _ran_ms(book.view, event.at_ms)
        view = replace(
            book.view,
            **_sizes(book.spec, book.spec.replicas),
            state=JobState.PENDING,
            reason=ReasonCode.HELD.value if book.is_held else ReasonCode.PRIORITY.value,
            message=event.reason,
            end_ms=event.at_ms,
            restarts=book.view.restarts + 1,
            preemptions=book.view.preemptions + (event.cause is StopCause.PREEMPTED),
            saved_ms=event.saved_ms,
            ran_before_ms=ran_ms,
            lost_ms=max(book.view.lost_ms, ran_ms - event.saved_ms),
        )
        self._put(replace(book, view=view, commands=(), before=None, has_started=False))

    def _on_suspended(self, event: JobSuspended) -> None:
        book = self._current(event)
        if book is not None and book.holds_devices:
            view = replace(
                book.view,
                state=JobState.SUSPENDED,
                end_ms=event.at_ms,
                preemptions=book.view.preemptions + 1,
                ran_before_ms=_ran_ms(book.view, event.at_ms),
            )
            self._put(replace(book, view=view, commands=(), before=None, is_frozen=True))

    def _on_resized(self, event: JobResized) -> None:
        book = self._current(event)
        target = None if book is None else next((c for c in book.commands if isinstance(c, Resize | Migrate)), None)
        if book is None or target is None:
            return
        # Told to leave while it moves, it leaves: what was asked for last stands.
        rest = tuple(command for command in book.commands if isinstance(command, Stop | Suspend))
        state = book.view.state if rest else JobState.RUNNING
        start_ms = event.at_ms if book.view.start_ms is None else book.view.start_ms
        place = self._locate(target.allocation)
        nodes, devices = _named(place)
        sizes = _sizes(book.spec, len(place))
        view = replace(book.view, **sizes, nodes=nodes, devices=devices, state=state, start_ms=start_ms)
        done = replace(book, view=view, allocation=target.allocation, commands=rest, before=None, has_started=True)
        self._put(done)

    # --- plans ----------------------------------------------------------------------------------------------------

    def _on_plan(self, event: PlanAccepted) -> None:
        for move in event.plan.moves:
            if isinstance(move, Cap):
                self.caps[move.node] = move
            elif isinstance(move, Reserve):
                self._on_reserve(move)
            else:
                self._on_move(move)

    def _on_reserve(self, move: Reserve) -> None:
        book = self.get(move.job)
        if book is not None:
            view = replace(book.view, start_planned_ms=move.start_ms, reason=ReasonCode.CLEANING.value)
            self._put(replace(book, view=view))

    def _on_move(self, move: Start | Stop | Suspend | Resize | Migrate) -> None:
        book = self.get(move.job)
        assert book is not None, f"a plan moves job {move.job}, which is not in the books"
        if isinstance(move, Start):
            self._put(_begin(book, move, self._locate(move.allocation)))
        elif isinstance(move, Resize | Migrate):
            self._put(_begin_to_move(book, move))
        else:
            state = JobState.COMPLETING if isinstance(move, Stop) else book.view.state
            self._put(replace(book, view=replace(book.view, state=state), commands=(*book.commands, move)))

    def _end(
        self, book: Book, outcome: Outcome, at_ms: int, *, exit_code: int = 0, signal: int = 0, message: str = ""
    ) -> None:
        view = replace(
            book.view,
            state=JobState(outcome.value),
            reason=_REASONS.get(outcome, "None"),
            message=message,
            start_ms=None if book.is_waiting else book.view.start_ms,  # an earlier run ended long before
            end_ms=at_ms,
            start_planned_ms=None,
            exit_code=exit_code,
            signal=signal,
        )
        self._put(replace(book, view=view, commands=(), before=None))

    def _put(self, book: Book) -> None:
        self.changed[book.spec.id] = book


def _ran_ms(view: JobView, at_ms: int) -> int:
    """How long the job's runs were, all together, when the present one ends at `at_ms`."""
    return view.ran_before_ms + (0 if view.start_ms is None else max(0, at_ms - view.start_ms))


def _begin(book: Book, move: Start, place: Place) -> Book:
    """The job has devices, and is to start on them."""
    nodes, devices = _named(place)
    view = replace(
        book.view,
        **_sizes(book.spec, len(place)),
        nodes=nodes,
        devices=devices,
        state=JobState.CONFIGURING,
        generation=move.generation,
        reason="None",
        message="",
        start_ms=None,
        end_ms=None,
        start_planned_ms=None,
    )
    # What is frozen lies there under the generation that it had until the start is performed.
    before = (book.view.generation, book.allocation) if book.is_frozen and book.allocation is not None else None
    held = replace(book, view=view, allocation=move.allocation, commands=(move,), before=before)
    return replace(held, is_frozen=False, has_started=False)


def _begin_to_move(book: Book, move: Resize | Migrate) -> Book:
    """The job holds what it had and what it gets, until the backend says that it has moved."""
    assert book.allocation is not None
    view = replace(book.view, generation=move.generation)
    before = (book.view.generation, book.allocation)
    return replace(book, view=view, commands=(*book.commands, move), before=before)


def _named(place: Place) -> tuple[tuple[NodeName, ...], Place]:
    """Nodes, each once, and (node, devices) of each."""
    devices: dict[NodeName, list[int]] = {}
    for node, indices in place:
        devices.setdefault(node, []).extend(indices)
    return tuple(devices), tuple((node, tuple(dict.fromkeys(sorted(indices)))) for node, indices in devices.items())


def _sizes(spec: JobSpec, replicas: int) -> dict[str, Any]:
    """The fields of a job's row that say how large it is with so many replicas."""
    request = spec.request
    return {
        "replicas": replicas,
        "device_milli": replicas * request.device_milli,
        "cpu_milli": replicas * request.cpu_milli,
        "memory_bytes": replicas * request.memory_bytes,
    }


def _first_reason(spec: JobSpec, at_ms: int) -> ReasonCode:
    """Why a job waits by what it says itself, until it is known what the engine says."""
    if spec.held:
        return ReasonCode.HELD
    if spec.dependencies:
        return ReasonCode.DEPENDENCY
    return ReasonCode.BEGIN_TIME if (spec.not_before_ms or 0) > at_ms else ReasonCode.PRIORITY


def _place_in_array(spec: JobSpec) -> dict[str, Any]:
    """The fields of a job's row that say which task of which array it is."""
    array = spec.array
    if array is None:
        return _NO_ARRAY
    return {"array": array.array, "array_index": array.index, "array_parallel_max": array.parallel_max or None}


_NO_ARRAY: Final[dict[str, Any]] = {"array": None, "array_index": None, "array_parallel_max": None}


def make_view(spec: JobSpec, run: RunSpec | None, at_ms: int) -> JobView:
    """The row of a job that was accepted at `at_ms`."""
    return JobView(
        id=spec.id,
        name=spec.name,
        user=spec.user,
        tenant=spec.tenant,
        queue=spec.queue,
        kind=spec.kind,
        state=JobState.PENDING,
        priority=spec.priority,
        **_sizes(spec, spec.replicas),
        submit_ms=at_ms,
        requeue=spec.requeue,
        limit_ms=spec.limit_ms,
        reason=_first_reason(spec, at_ms).value,
        qos=spec.qos,
        **_place_in_array(spec),
        workdir="" if run is None else run.workdir,
        output="" if run is None else run.output,
        error="" if run is None else run.error,
        tasks_per_replica=1 if run is None else run.tasks_per_replica,
    )


class _NewViews:
    """Makes rows of jobs one after another: those of one template have all in common but what names them."""

    def __init__(self) -> None:
        self._before: tuple[Any, ...] = ()
        self._common: dict[str, Any] = {}

    def make(self, spec: JobSpec, run: RunSpec | None, at_ms: int) -> JobView:
        """As `make_view`."""
        now = (*_READ_COMMON(spec), at_ms, *(() if run is None else _READ_RUN(run)))
        if len(now) != len(self._before) or any(map(operator.is_not, now, self._before)):
            view = make_view(spec, run, at_ms)
            self._before = now
            self._common = {one.name: getattr(view, one.name) for one in fields(view) if one.name not in _OWN}
            return view
        return JobView(id=spec.id, name=spec.name, **_place_in_array(spec), **self._common)


_OWN: Final = frozenset(("id", "name", "array", "array_index", "array_parallel_max"))
_READ_RUN: Final = operator.attrgetter("workdir", "output", "error", "tasks_per_replica")
_READ_COMMON: Final = operator.attrgetter(*(one.name for one in fields(JobSpec) if one.name not in _OWN))


def with_run(book: Book, run: RunSpec) -> Book:
    """The book of a job that was recovered, with what its row says of how it is run."""
    workdir, output, error, tasks = _READ_RUN(run)
    view = replace(book.view, workdir=workdir, output=output, error=error, tasks_per_replica=tasks)
    return replace(book, view=view)


def each_part(event: Event) -> Iterator[Event]:
    """The event, or the events of a batch in order."""
    if isinstance(event, Batch):
        yield from event.events
    else:
        yield event
