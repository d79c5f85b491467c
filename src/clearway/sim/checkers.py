"""Independent checkers of the standing invariants, for the twin: on after every event, in tests and when asked for.

`ShadowCluster` keeps books of its own (`sim.shadow`) from the events and commands alone and judges each of them:

- no device has two owners, unless it is shared, and then its holders fit in its compute and in its memory;
- a gang holds all of its replicas or none, on devices that satisfy its request, its labels, fabric and topology;
- nothing starts on a node that is down or drained or on a failed device, and nothing stays on a node that went down;
- no accepted job is lost, runs twice at once, or ends twice; each start has the next generation;
- all devices together draw no more than the power budget, and none is capped below its floor or without need;
- held jobs, dependencies, arrays and begin times are respected, and (`rules`) limits of queues and quotas of tenants.

`StateChecker` compares the books with what a kernel's state says of itself. A violation raises InternalError with the
seed, the number of the event and the story of the job.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Protocol

from clearway.engine.tables import (
    PHASE_BLOCKED,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_STARTING,
    PHASE_STOPPING,
    PHASE_SUSPENDED,
)
from clearway.kernel.decisions import render_decision
from clearway.model.allocation import Allocation, IntArray
from clearway.model.commands import Command, WakeAt
from clearway.model.errors import InternalError
from clearway.model.events import (
    Batch,
    DeviceDown,
    DeviceUp,
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
    NodeAdded,
    NodeChanged,
    NodeDown,
    NodeDrained,
    NodeUp,
    PowerBudgetSet,
)
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.model.units import MILLI
from clearway.sim.shadow import Books, Phase, ShadowJob
from clearway.sim.shadow_power import PowerBooks
from clearway.sim.shadow_rules import find_misplacement, find_reason_to_wait, note_growth

STORY_MAX: Final = 20
"""Events and commands kept per job for the message: enough for the last lives of a job."""

Rule = Callable[[Books, ShadowJob], str]
"""Judges a job that was just given devices: "" or what is wrong."""


class ShadowCluster:
    """Feed it by `watch` (it is a checker of `run_twin`). seed: only for the message. rules: further demands."""

    def __init__(self, seed: int = 0, rules: Sequence[Rule] = ()) -> None:
        self.books = Books()
        self.power = PowerBooks(self.books)
        self.now_ms = 0
        self._seed = seed
        self._rules = rules
        self._number = 0
        self._stories: dict[JobId, deque[tuple[int, str]]] = {}
        self._failed: list[int] = []
        self._takers = {
            NodeAdded: self._on_node_added,
            NodeChanged: self._on_node_changed,
            NodeDown: self._on_node,
            NodeUp: self._on_node,
            NodeDrained: self._on_node,
            DeviceDown: self._on_device,
            DeviceUp: self._on_device,
            JobSubmitted: self._on_submitted,
            JobCancelled: self._on_cancelled,
            JobHeld: self._on_held,
            JobReleased: self._on_held,
            JobStarted: self._on_started,
            JobFinished: self._on_finished,
            JobStopped: self._on_stopped,
            JobSuspended: self._on_suspended,
            JobResized: self._on_resized,
            PowerBudgetSet: self._on_power_budget,
        }
        self._judges = {
            Start: self._judge_start,
            Stop: self._judge_stop,
            Suspend: self._judge_suspend,
            Resize: self._judge_move,
            Migrate: self._judge_move,
            Cap: self._judge_cap,
        }

    def watch(self, event: Event, commands: Sequence[Command]) -> None:
        """See `WatchesDecisions.watch`."""
        for part in event.events if isinstance(event, Batch) else (event,):
            self._take(part)
        self._check_failed()
        self.power.begin_decision()
        for command in commands:
            if not isinstance(command, WakeAt):
                self._judge(command)
        self._refuse(self.power.find_overdraw())

    def check_end(self) -> None:
        """After the last event: every job has ended or waits, and the books are balanced."""
        for job in self.books.jobs.values():
            if job.phase not in (Phase.WAITING, Phase.SUSPENDED, Phase.ENDED):
                self._fail(f"job {job.spec.id} is still {job.phase} though nothing more will happen", job.spec.id)
        for number, device in enumerate(self.books.devices):
            if device.holders:
                self._fail(f"device {number} is still held by {list(device.holders)}", next(iter(device.holders)))

    # --- events ---------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._number += 1
        if event.at_ms < self.now_ms:
            self._fail(f"time went back to {event.at_ms} from {self.now_ms}")
        self.now_ms = event.at_ms
        job = getattr(event, "job", None)
        if job is not None:
            self._note(event.job.id if isinstance(event, JobSubmitted) else job, repr(event))
        taker = self._takers.get(type(event))
        if taker is not None:
            taker(event)  # type: ignore[operator]

    def _on_node_added(self, event: NodeAdded) -> None:
        self.books.add_node(event.node)

    def _on_node_changed(self, event: NodeChanged) -> None:
        self.books.change_node(event.node)

    def _on_node(self, event: NodeDown | NodeUp | NodeDrained) -> None:
        node = self.books.node(event.node)
        if isinstance(event, NodeDown):
            node.is_up = False
            self._failed.append(self.books.node_index[event.node])
        elif isinstance(event, NodeUp):
            node.is_up, node.is_drained = True, False
        else:
            node.is_drained = True

    def _on_device(self, event: DeviceDown | DeviceUp) -> None:
        device = self.books.device(event.node, event.device)
        device.is_healthy = isinstance(event, DeviceUp)
        if device.holders and not device.is_healthy:
            self._failed.append(-1 - self.books.devices.index(device))

    def _check_failed(self) -> None:
        """The backend tells of victims with the failure: after that, nobody holds what failed."""
        for place in self._failed:
            holders = self.books.nodes[place].holders if place >= 0 else self.books.devices[-1 - place].holders
            if holders:
                what = f"node {place}" if place >= 0 else f"device {-1 - place}"
                self._fail(f"{what} failed and is still held by {list(holders)}", next(iter(holders)))
        self._failed.clear()

    def _on_power_budget(self, event: PowerBudgetSet) -> None:
        self.power.budget = event.watts

    def _on_submitted(self, event: JobSubmitted) -> None:
        if event.job.id in self.books.jobs:
            self._fail(f"job {event.job.id} was submitted twice", event.job.id)
        if event.job.array is not None:
            note_growth(self.books, event.job.array.array, event.at_ms)
        self.books.add_job(event.job)

    def _on_cancelled(self, event: JobCancelled) -> None:
        job = self._job(event.job)
        if job.phase is Phase.WAITING:
            self._end(job, Outcome.CANCELLED)
        job.is_cancelled = True

    def _on_held(self, event: JobHeld | JobReleased) -> None:
        self._job(event.job).is_held = isinstance(event, JobHeld)

    def _on_started(self, event: JobStarted) -> None:
        job = self._current(event)
        if job is not None and job.phase is Phase.STARTING:
            job.phase = Phase.RUNNING

    def _on_finished(self, event: JobFinished) -> None:
        job = self._current(event)
        if job is None:
            return
        if not (job.holds_devices or job.phase in (Phase.SUSPENDED, Phase.LEAVING)):
            self._fail(f"job {event.job} finished while it was {job.phase}", event.job)
        self._end(job, event.outcome)

    def _on_stopped(self, event: JobStopped) -> None:
        job = self._leaving(event)
        is_lost = event.cause in (StopCause.NODE_FAILED, StopCause.DEVICE_FAILED)
        if job is not None and is_lost and not job.spec.requeue:
            self._end(job, Outcome.NODE_FAIL)
        elif job is not None and job.is_cancelled:
            self._end(job, Outcome.CANCELLED)

    def _on_suspended(self, event: JobSuspended) -> None:
        job = self._leaving(event)
        if job is not None:
            job.phase = Phase.SUSPENDED

    def _leaving(self, event: JobStopped | JobSuspended) -> ShadowJob | None:
        """The job that gives its devices back, None when the event is stale."""
        job = self._current(event)
        if job is None:
            return None
        if not job.holds_devices:
            self._fail(f"job {event.job} left devices while it was {job.phase}", event.job)
        self._release(job)
        job.phase = Phase.WAITING
        return job

    def _on_resized(self, event: JobResized) -> None:
        job = self._current(event)
        if job is None or job.target is None:
            return
        job.allocation, job.target = job.target, None
        self.books.book(event.job, job.allocation, None)
        if job.phase is Phase.MOVING:
            job.phase = Phase.RUNNING

    def _end(self, job: ShadowJob, outcome: Outcome) -> None:
        self._release(job)
        job.phase = Phase.ENDED
        job.outcome = outcome
        job.since_ms = self.now_ms if job.since_ms is None else job.since_ms

    def _release(self, job: ShadowJob) -> None:
        self.books.book(job.spec.id, None, None)
        job.allocation = job.target = None

    def _job(self, job: JobId) -> ShadowJob:
        known = self.books.jobs.get(job)
        if known is None:
            raise self._failure(f"job {job} was never submitted", job)
        return known

    def _current(self, event: JobStarted | JobFinished | JobStopped | JobSuspended | JobResized) -> ShadowJob | None:
        """The event's job, None when the event is stale."""
        job = self._job(event.job)
        if event.generation > job.generation:
            self._fail(f"job {event.job} has generation {job.generation}, the backend tells of another", event.job)
        return job if event.generation == job.generation else None

    # --- commands -------------------------------------------------------------------------------------------------

    def _judge(self, command: Start | Stop | Suspend | Resize | Migrate | Cap) -> None:
        if not isinstance(command, Cap):
            self._job(command.job)
            self._note(command.job, render_decision(self.now_ms, command))
        self._judges[type(command)](command)  # type: ignore[operator]

    def _judge_start(self, command: Start) -> None:
        job = self._job(command.job)
        if job.phase not in (Phase.WAITING, Phase.SUSPENDED):
            self._fail(f"job {command.job} is to start while it is {job.phase}", command.job)
        reason = find_reason_to_wait(self.books, job, self.now_ms)
        if reason:
            self._fail(f"job {command.job} is to start, but {reason}", command.job)
        self._check_generation(job, command)
        self._check_gang(job, command.allocation)
        job.allocation = command.allocation
        job.phase = Phase.STARTING
        job.has_started = True
        job.since_ms = self.now_ms if job.since_ms is None else job.since_ms
        self._hold(job, command.allocation)

    def _judge_stop(self, command: Stop) -> None:
        job = self._job(command.job)
        may_end = command.cause is None and job.phase is Phase.SUSPENDED
        if not (job.holds_devices or may_end) or command.generation != job.generation:
            self._fail(f"job {command.job} is to stop while it is {job.phase} ({command})", command.job)
        job.phase = Phase.LEAVING

    def _judge_suspend(self, command: Suspend) -> None:
        job = self._job(command.job)
        if not job.holds_devices or job.phase is Phase.LEAVING or command.generation != job.generation:
            self._fail(f"job {command.job} is to be suspended while it is {job.phase}", command.job)
        job.phase = Phase.LEAVING

    def _judge_move(self, command: Resize | Migrate) -> None:
        job = self._job(command.job)
        if job.phase not in (Phase.STARTING, Phase.RUNNING) or job.allocation is None:
            raise self._failure(f"job {command.job} is to be moved while it is {job.phase}", command.job)
        self._check_generation(job, command)
        self._check_gang(job, command.allocation)
        kept = set(job.allocation.devices.tolist()) & set(command.allocation.devices.tolist())
        if isinstance(command, Migrate) and kept:
            self._fail(f"job {command.job} is to migrate and keeps devices {sorted(kept)}", command.job)
        job.target = command.allocation
        job.phase = Phase.MOVING
        self._hold(job, command.allocation)

    def _judge_cap(self, command: Cap) -> None:
        self._refuse(self.power.note(command))

    def _check_generation(self, job: ShadowJob, command: Start | Resize | Migrate) -> None:
        if command.generation != job.generation + 1:
            self._fail(f"expected generation {job.generation + 1}, found {command}", command.job)
        job.generation = command.generation

    def _check_gang(self, job: ShadowJob, allocation: Allocation) -> None:
        spec = job.spec
        if not spec.replicas_min <= allocation.replicas <= spec.replicas_max:
            self._fail(f"job {spec.id} is given {allocation.replicas} replicas", spec.id)
        if len(allocation.devices) != allocation.replicas * spec.request.devices:
            self._fail(f"job {spec.id} is given {len(allocation.devices)} devices for its replicas", spec.id)

    def _hold(self, job: ShadowJob, allocation: Allocation) -> None:
        """Book `allocation` beside what the job has, and judge the places that it takes."""
        had = set() if allocation is job.allocation or job.allocation is None else set(job.allocation.devices.tolist())
        self.books.book(job.spec.id, job.allocation, job.target)
        wrong = find_misplacement(self.books, job, allocation, had)
        for rule in self._rules:
            wrong = wrong or rule(self.books, job)
        if wrong:
            self._fail(f"job {job.spec.id}: {wrong}", job.spec.id)

    def where(self) -> str:
        """Seed, number of the last event and time, for messages."""
        return f"seed {self._seed}, event {self._number}, {self.now_ms} ms"

    # --- stories --------------------------------------------------------------------------------------------------

    def _note(self, job: JobId, text: str) -> None:
        self._stories.setdefault(job, deque(maxlen=STORY_MAX)).append((self._number, text))

    def _refuse(self, what: str) -> None:
        if what:
            self._fail(what)

    def _fail(self, what: str, job: JobId | None = None) -> None:
        raise self._failure(what, job)

    def _failure(self, what: str, job: JobId | None = None) -> InternalError:
        head = f"{self.where()}: {what}"
        story = [f"  event {number}: {text}" for number, text in self._stories.get(job, ())] if job is not None else []
        return InternalError("\n".join([head, *([f"story of job {job}:", *story] if story else [])]))


class TellsOfItself(Protocol):
    """What `StateChecker` reads of a kernel's state."""

    def device_shares_free(self) -> IntArray:
        """int64[devices]: free thousandths of each device."""
        ...

    def job_phase(self, job: JobId) -> int | None:
        """A PHASE_* number of `engine.tables`, None when the job is not live."""
        ...


_PHASES: Final[dict[Phase, tuple[int | None, ...]]] = {
    Phase.WAITING: (PHASE_PENDING, PHASE_BLOCKED),
    Phase.STARTING: (PHASE_STARTING,),
    Phase.RUNNING: (PHASE_RUNNING,),
    Phase.MOVING: (PHASE_STARTING,),
    Phase.LEAVING: (PHASE_STOPPING, PHASE_SUSPENDED, PHASE_BLOCKED),
    Phase.SUSPENDED: (PHASE_SUSPENDED, PHASE_BLOCKED),
    Phase.ENDED: (None,),
}
"""What the state may say of a job in each phase. LEAVING includes a suspended job that is told to end."""


class StateChecker:
    """Compares a kernel's state with the books, after each decision. To be listed after its `shadow`."""

    def __init__(self, shadow: ShadowCluster, state: TellsOfItself) -> None:
        self._shadow = shadow
        self._state = state
        self._alive: dict[JobId, ShadowJob] = {}
        self._looked_at = 0

    def watch(self, _event: Event, _commands: Sequence[Command]) -> None:
        """See `WatchesDecisions.watch`."""
        self.check_devices()
        self.check_phases()

    def check_devices(self) -> None:
        """Free plus used equals total, per device."""
        books = self._shadow.books
        free = self._state.device_shares_free().tolist()
        expected = [MILLI - books.share_used_milli(device) for device in books.devices]
        if free != expected:
            wrong = [number for number, (told, known) in enumerate(zip(free, expected, strict=True)) if told != known]
            holders = {number: books.devices[number].holders for number in wrong}
            raise InternalError(f"{self._shadow.where()}: devices (holders) {holders} are told to have {free} free")

    def check_phases(self) -> None:
        """The state knows each job that is not over, and where it is in its life."""
        jobs = self._shadow.books.jobs
        self._alive |= dict(islice(jobs.items(), self._looked_at, None))
        self._looked_at = len(jobs)
        for number, job in list(self._alive.items()):
            told = self._state.job_phase(number)
            if told not in _PHASES[job.phase]:
                raise InternalError(f"{self._shadow.where()}: job {number} is {job.phase}, the state says {told}")
            if job.phase is Phase.ENDED:
                del self._alive[number]
