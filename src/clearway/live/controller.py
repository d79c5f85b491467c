"""The driver of real clusters. One thread owns the kernel, the backend and the store; requests come by an inbox.

A turn (`Controller.turn`):

1. What is decided and not yet on disk is written; while that fails, nothing else is looked at and requests are refused.
2. What the backend reports, what failed starts ask for, requests in order of arrival, what timers bring: one batch.
3. If there are requests, the batch is written, so that they can still be refused when it cannot be; but for those that
   are patient, which need no refusal. What one record cannot hold is cut before, into several turns.
4. The kernel decides. The plans that it accepted are written, with the batch if it is not written yet.
5. Only then commands are performed. Answers are given once what they say is on disk.

The journal holds inputs and accepted plans. A start reads it (`recover`: no decision is made anew), compares the
machines with it, has the commands performed again that were not answered, and goes on with a turn like any other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import RLock
from typing import Final

from clearway.engine.policy import Policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.kernel.decisions import DecisionDigest, render_decision
from clearway.live.arrival import LinkSpeeds, find_holdings, hardware_events, lost_jobs, node_events, site_events
from clearway.live.books import Draft, Place
from clearway.live.clock import Clock
from clearway.live.memory import Decided, Memory
from clearway.live.notices import Notices
from clearway.live.pacing import Pacer
from clearway.live.patience import held_soon
from clearway.live.recall import load_newest
from clearway.live.requests import Action, Ask, Inbox, Intake, Unwritten, give_answers, sign_of_life
from clearway.live.settings import ControlSettings
from clearway.live.takeover import begin_deciding
from clearway.live.views import with_site
from clearway.live.whole import take_snapshot
from clearway.live.writing import Writer, are_long, cut_reports, make_batch
from clearway.model.allocation import Allocation
from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.commands import Command, WakeAt
from clearway.model.errors import ClearwayError, InputError, InternalError
from clearway.model.events import (
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    TimerFired,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec
from clearway.model.plan import Explanation, Plan
from clearway.model.runs import RunSpec
from clearway.model.units import FOREVER_MS, SECOND_MS
from clearway.ports.backend import BackendCommand, LastingBackend, World
from clearway.ports.control import NOTHING_REMOVED, Notice, Removed, Submission
from clearway.ports.snapshot import ClusterSnapshot
from clearway.ports.snapshots import Snapshots
from clearway.ports.storage import AuditLine, Changes, JobQuery, StorageError, Store, TooLongError
from clearway.ports.views import ClusterView, JobView

JOBS_PER_TURN_MAX: Final = 16_384
"""Jobs taken in by one turn: a burst is one decision and one sync, and no turn takes seconds."""

PLANS_KEPT: Final = 100
"""Plans that can be looked at."""

TIMERS_CARRIED_MAX: Final = 1_000
"""Timers that brought nothing are written with the next record; so many at most wait for one."""

POLL_MS: Final = SECOND_MS
"""A backend is asked at least this often, should it have forgotten to call."""


class Controller:
    """See `clearway.ports.control.Control`. `start` once, then `run` in a thread of its own, or `turn` by turn.

    queues, tenants: the site; see `set_site`. power_budget_watts: of all its devices; None = any amount. links: between
    them; () = not known. decision_log: gets one line per command. snapshots: from which a start goes on; None = it
    reads the whole journal. read_from: the record of the one that was taken.
    """

    def __init__(
        self,
        kernel: Kernel,
        backend: LastingBackend,
        store: Store,
        clock: Clock,
        *,
        queues: Sequence[QueueSpec] = (),
        tenants: Sequence[TenantSpec] = (),
        power_budget_watts: int | None = None,
        links: LinkSpeeds = (),
        settings: ControlSettings | None = None,
        decision_log: Callable[[str], None] | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._settings = settings or ControlSettings()
        self._memory = Memory(kernel, self._settings.guard, paces=self._settings.paces_starts)
        self._pacer = Pacer(lambda: self._memory)
        self._backend = backend
        self._store = store
        self._clock = clock
        self._site = (tuple(queues), tuple(tenants))
        self._hardware = (power_budget_watts, links)
        self._decision_log = decision_log
        self._snapshots = snapshots
        self.digest = DecisionDigest()
        self.read_from = 0
        self._lock = RLock()  # held while the memory changes, for who reads it from another thread
        self._inbox = Inbox(self._settings.requests_max)
        self._notices = Notices()
        self._plans: deque[tuple[int, Plan]] = deque(maxlen=PLANS_KEPT)
        self._writer = Writer(store, self._settings)
        self._timer_ms = FOREVER_MS
        self._told: list[Event] = []  # reports that no batch holds yet
        self._carried: list[Event] = []  # records that may wait for the next to be written
        self._rows: dict[JobId, JobView] = {}  # rows that may wait likewise
        self._unwritten: Unwritten | None = None
        self._reasons_at_ms = 0
        self._is_ready = False
        self._is_closing = False

    # --- start ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the journal, find again what runs, and decide. Raises JournalError, StorageError, and InputError for
        nodes whose hardware changed; nothing was touched then."""
        memory = self._memory
        self._recall(memory)
        self._clock.begin_after(memory.kernel.state.now_ms)
        now_ms = self._now_ms()
        state, nodes = memory.kernel.state, self._backend.nodes()
        found = list(node_events(now_ms, state.inventory, nodes, memory.views.drain_reasons))
        world = World(launch=self._launch, locate=self._locate, wake=self._inbox.wake)
        held = list(find_holdings(now_ms, memory.books, memory.places, found))
        reports = list(self._backend.connect(now_ms, held, world))
        reports += lost_jobs(held, reports)
        told = memory.take_reports(reports, now_ms, new=[node.name for node in nodes])
        started = begin_deciding(now_ms, memory.kernel.policy)
        site = (*site_events(now_ms, state, *self._site), *hardware_events(now_ms, state, *self._hardware))
        self._told = [started, *site, *found, *told]
        known = memory.draft()
        for event in self._told:
            known.note(event)
        self._perform(memory.books.unanswered(known), now_ms)
        if self._take_reports_early(now_ms):
            self._turn_without_requests(now_ms)
        self._is_ready = True

    def _recall(self, memory: Memory) -> None:
        """Have `memory` take in the journal, from the newest snapshot on that is good."""
        self.read_from = self._writer.seq = 0 if self._snapshots is None else load_newest(memory, self._snapshots)
        for number, event in self._store.read_journal(self._writer.seq):
            memory.recover(event)
            self._writer.seq = number
        runs = self._store.read_runs(sorted(memory.books.jobs))
        memory.finish_recovery(runs, JobId(self._store.last_job_id()))

    def _now_ms(self) -> int:
        return max(self._clock.now_ms(), self._memory.kernel.state.now_ms)

    def _launch(self, job: JobId) -> tuple[JobSpec, RunSpec]:
        return self._memory.launch(job)

    def _locate(self, allocation: Allocation) -> Place:
        return self._memory.places.locate(allocation)

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until `close`. An exception is our bug, or damage: requests are refused, and it goes up."""
        try:
            while not self._is_closing:
                now_ms = self._now_ms()
                self.turn(now_ms)
                if not len(self._inbox):
                    wait_ms = min(self.next_due_ms() - self._now_ms(), POLL_MS)
                    self._inbox.wait(max(wait_ms, 0) / SECOND_MS)
        except BaseException as error:
            self._is_ready = False
            self._inbox.close(InternalError(f"the control plane has stopped: {error}"))
            raise
        self._is_ready = False
        self._inbox.close(StorageError("the control plane is stopping; try again when it is back"))
        self._backend.close()

    def close(self) -> None:
        """Have `run` return after its present turn. What runs goes on."""
        self._is_closing = True
        self._inbox.wake()

    def next_due_ms(self) -> int:
        """When a turn is due by a timer or another try of the storage; FOREVER_MS = never."""
        if self._writer.error is not None:
            return self._writer.retry_at_ms
        return min(self._timer_ms, self._memory.next_due_ms(), self._pacer.next_ms())

    def turn(self, now_ms: int) -> None:
        """One turn, as the head of this module says."""
        asks = self._inbox.take(JOBS_PER_TURN_MAX)
        try:
            self._take_turn(asks, now_ms)
        except BaseException as error:
            stopped = InternalError(f"the control plane has stopped: {error}")
            for ask in asks:
                if not ask.future.done():
                    ask.future.set_exception(stopped)
            raise

    def _take_turn(self, asks: list[Ask], now_ms: int) -> None:
        if not self._write_unwritten(now_ms):
            self._refuse(asks)
            return
        if not self._told:  # it is asked again only when all that it told before is on disk
            self._told = self._memory.take_reports([*self._backend.observe(now_ms), *self._pacer.take()], now_ms)
            self._pacer.note(self._told)
        if not self._take_reports_early(now_ms):
            self._refuse(asks)
            return
        changing = [ask for ask in asks if not ask.is_read]
        if changing:
            self._turn_with_requests(changing, now_ms)
        else:
            self._turn_without_requests(now_ms)
        for ask in asks:
            if ask.is_read:
                self._answer(ask, now_ms)
        if self._unwritten is None:
            for command in self._pacer.release(now_ms):
                self._backend.perform(now_ms, command)
        self._refresh_reasons(now_ms)

    def _timers(self, now_ms: int) -> list[Event]:
        """What timers bring, the kernel's own last."""
        events = self._memory.timers(now_ms)
        if self._timer_ms <= now_ms:
            self._timer_ms = FOREVER_MS
            events.append(TimerFired(now_ms))
        return events

    # --- a turn with requests -------------------------------------------------------------------------------------

    def _turn_with_requests(self, asks: list[Ask], now_ms: int) -> None:
        draft = self._memory.draft()
        for event in self._told:
            draft.note(event)
        intake = self._intake(now_ms, draft)
        accepted: list[tuple[Ask, object]] = []
        for ask in asks:
            try:
                accepted.append((ask, ask.action(intake)))
            except ClearwayError as error:
                ask.future.set_exception(error)
        if not intake.events:
            if intake.audit and not self._writer.append(Changes(audit=tuple(intake.audit)), now_ms):
                for ask, _ in accepted:
                    self._fail(ask)
                return
            self._turn_without_requests(now_ms)
            give_answers(accepted)
            return
        timers = self._timers(now_ms)
        for event in timers:
            draft.note(event)
        batch = make_batch([*self._told, *intake.events, *timers], now_ms)
        rows = self._merge_rows({row.id: row for row in draft.rows()})
        events, runs = (*self._carried, batch), tuple(intake.runs.items())
        changes = Changes(events=events, runs=runs, jobs=rows, audit=tuple(intake.audit))
        is_patient = all(ask.is_patient for ask in asks)
        if is_patient and are_long(intake.events):  # what is decided must be written, whole
            if len(accepted) > 1:
                self._told += timers
                self._take_by_halves(accepted, now_ms)
                return
            is_patient = False
        if not is_patient and not self._write_requests(changes, accepted, timers, now_ms):
            return
        self._carried.clear()
        self._told.clear()
        self._rows.clear()
        self._memory.note_requests(intake.events, intake.runs, intake.last_id)
        decided = self._decide(batch, draft, now_ms)
        if is_patient:
            plans, later = decided.plans, {row.id: row for row in rows} | decided.rows()
            changes = replace(changes, events=(*events, *plans), jobs=tuple(later.values()))
            self._write_decided(changes, decided, now_ms, accepted)
            return
        give_answers(accepted)
        self._write_decided(Changes(events=decided.plans, jobs=tuple(decided.rows().values())), decided, now_ms)

    def _write_requests(
        self, changes: Changes, accepted: Sequence[tuple[Ask, object]], timers: list[Event], now_ms: int
    ) -> bool:
        """Write what was accepted, or refuse it; whether it was kept."""
        try:
            if self._writer.append(changes, now_ms, can_refuse=True):
                return True
        except TooLongError as error:
            self._told += timers
            if len(accepted) > 1:  # together, or one of them
                self._take_by_halves(accepted, now_ms)
            else:
                accepted[0][0].future.set_exception(InputError(f"{error}; nothing of this request was taken"))
                self._turn_without_requests(now_ms)
            return False
        self._told += timers
        for ask, _ in accepted:
            self._fail(ask)
        return False

    def _take_by_halves(self, accepted: Sequence[tuple[Ask, object]], now_ms: int) -> None:
        """Two turns of requests that are too long for one; what nothing can be kept of any more is refused."""
        middle = len(accepted) // 2
        for half in (accepted[:middle], accepted[middle:]):
            if self._writer.error is None:
                self._turn_with_requests([ask for ask, _ in half], now_ms)
            else:
                self._refuse([ask for ask, _ in half])

    def _intake(self, now_ms: int, draft: Draft) -> Intake:
        memory = self._memory
        return Intake(
            now_ms=now_ms,
            draft=draft,
            state=memory.kernel.state,
            qos=tuple(one.name for one in memory.kernel.policy.qos),
            keys=memory.keys,
            has_node=memory.has_node,
            last_id=memory.last_id,
            runs=draft.runs,
        )

    def _answer(self, ask: Ask, now_ms: int) -> None:
        """Answer a request that changes nothing."""
        try:
            answer = ask.action(self._intake(now_ms, self._memory.draft()))
        except ClearwayError as error:
            ask.future.set_exception(error)
        else:
            ask.future.set_result(answer)

    def _refuse(self, asks: list[Ask]) -> None:
        """The storage takes nothing: what would change something is refused, the rest is answered."""
        for ask in asks:
            if ask.is_read:
                self._answer(ask, self._memory.kernel.state.now_ms)
            else:
                self._fail(ask)

    def _fail(self, ask: Ask) -> None:
        ask.future.set_exception(
            StorageError(f"nothing is taken now, because it cannot be kept: {self._writer.error}; try again later")
        )

    # --- a turn without requests ----------------------------------------------------------------------------------

    def _take_reports_early(self, now_ms: int) -> bool:
        """Decide upon reports that are too long for one record in turns of their own, but for the last of these.
        Returns whether what was decided is on disk; what is not yet decided waits as `_told`."""
        parts = cut_reports(self._told)
        while len(parts) > 1 and self._unwritten is None:
            self._told = parts.pop(0)
            self._turn_without_requests(now_ms)
        self._told = [event for part in parts for event in part]
        return self._unwritten is None

    def _turn_without_requests(self, now_ms: int) -> None:
        """Decide first, and write what happened and what was decided with one sync."""
        events = [*self._told, *self._timers(now_ms)]
        if not events:
            return
        self._told.clear()
        batch = make_batch(events, now_ms)
        draft = self._memory.draft()
        draft.note(batch)
        decided = self._decide(batch, draft, now_ms)
        rows = {row.id: row for row in draft.rows()} | decided.rows()
        if type(batch) is TimerFired and not decided.plans and len(self._carried) < TIMERS_CARRIED_MAX:
            self._carried.append(batch)
            return
        changes = Changes(events=(*self._carried, batch, *decided.plans), jobs=self._merge_rows(rows))
        self._carried.clear()
        self._rows.clear()
        self._write_decided(changes, decided, now_ms)

    # --- deciding and writing -------------------------------------------------------------------------------------

    def _decide(self, batch: Event, draft: Draft, now_ms: int) -> Decided:
        """Have the kernel decide. draft: what the batch does to the books."""
        with self._lock:
            decided = self._memory.decide(batch, draft)
            self._plans.extend((now_ms, plan.plan) for plan in decided.plans)
        self._notices.note(batch, decided, now_ms)
        self._log(now_ms, decided.commands)
        for command in decided.commands:
            if type(command) is WakeAt:
                self._timer_ms = max(command.at_ms, now_ms)
        return decided

    def _log(self, now_ms: int, commands: tuple[Command, ...]) -> None:
        if commands:
            self.digest.add(now_ms, commands)
            if self._decision_log is not None:
                for command in commands:
                    self._decision_log(render_decision(now_ms, command))

    def _merge_rows(self, rows: dict[JobId, JobView]) -> tuple[JobView, ...]:
        """These rows, and those that wait to be written."""
        return tuple({**self._rows, **rows}.values())

    def _write_decided(
        self, changes: Changes, decided: Decided, now_ms: int, answers: Sequence[tuple[Ask, object]] = ()
    ) -> None:
        commands = tuple(command for command in decided.commands if not isinstance(command, WakeAt))
        if changes.events or changes.jobs:
            self._unwritten = Unwritten(changes, commands, answers)
            self._write_unwritten(now_ms)
        else:
            self._notices.tell_noted()
            self._perform(commands, now_ms)

    def _write_unwritten(self, now_ms: int) -> bool:
        """Write what was decided, then have it performed. Returns whether nothing is left to be written."""
        if self._writer.error is not None and now_ms < self._writer.retry_at_ms:
            return False
        unwritten = self._unwritten
        if unwritten is None:
            return self._writer.error is None or self._writer.append(sign_of_life(now_ms, self._writer.error), now_ms)
        if not self._writer.append(unwritten.changes, now_ms):
            return False
        self._unwritten = None
        give_answers(unwritten.answers)
        self._notices.tell_noted()
        self._perform(unwritten.commands, now_ms)
        return True

    def _perform(self, commands: tuple[BackendCommand, ...], now_ms: int) -> None:
        for command in self._pacer.pass_on(now_ms, commands):
            self._backend.perform(now_ms, command)

    def _refresh_reasons(self, now_ms: int) -> None:
        """Now and then, give rows of waiting jobs their present reasons, and of others how far they say they are."""
        if now_ms < self._reasons_at_ms:
            return
        self._reasons_at_ms = now_ms + self._settings.reasons_ms
        with self._lock:
            self._rows |= self._memory.refresh_reasons(self._settings.reasons_max)
            self._rows |= self._memory.note_progress(self._backend.progress())
        is_free = self._unwritten is None and self._writer.error is None
        if self._rows and is_free and self._writer.append(Changes(jobs=tuple(self._rows.values())), now_ms):
            self._rows.clear()

    # --- another policy -------------------------------------------------------------------------------------------

    def set_policy(self, policy: Policy) -> "Future[None]":
        """Decide by another policy from now on. What is remembered is made anew with it, as by a control plane that
        starts: from the newest snapshot on."""
        return self._ask(lambda _: self._change_policy(policy), is_read=True)  # type: ignore[return-value]

    def _change_policy(self, policy: Policy) -> None:
        now_ms = self._now_ms()
        if self._unwritten is not None or self._told:
            raise StorageError("the storage takes nothing now, and the journal must be whole; try again later")
        if self._carried and not self._writer.append(Changes(events=tuple(self._carried)), now_ms):
            raise StorageError(f"the policy stays as it is: {self._writer.error}; try again later")
        self._carried.clear()
        memory = Memory(Kernel(policy, RuntimeHistory()), self._settings.guard, paces=self._settings.paces_starts)
        self._recall(memory)
        with self._lock:
            memory.kernel = self._memory.kernel.become(memory.kernel)
            self._memory = memory
        self._timer_ms = FOREVER_MS
        self._told = [begin_deciding(now_ms, policy)]
        self._turn_without_requests(now_ms)

    # --- Control --------------------------------------------------------------------------------------------------

    def _ask(
        self, action: Action, *, is_read: bool = False, size: int = 1, is_patient: bool = False
    ) -> "Future[object]":
        future: Future[object] = Future()
        self._inbox.put(Ask(action, future, is_read=is_read, size=size, is_patient=is_patient))
        return future

    def submit(self, submission: Submission) -> "Future[tuple[JobId, ...]]":
        """See `Control.submit`."""
        size, is_patient = len(submission.jobs), submission.is_patient
        return self._ask(lambda intake: intake.submit(submission), size=size, is_patient=is_patient)  # type: ignore[return-value]

    def cancel(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """See `Control.cancel`."""
        return self._ask(lambda intake: intake.change(JobCancelled, jobs, actor))  # type: ignore[return-value]

    def hold(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """See `Control.hold`."""
        return self._ask(lambda intake: intake.change(JobHeld, jobs, actor))  # type: ignore[return-value]

    def release(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """See `Control.release`."""
        return self._ask(lambda intake: intake.change(JobReleased, jobs, actor))  # type: ignore[return-value]

    def requeue(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        """See `Control.requeue`."""
        return self._ask(lambda intake: intake.change(JobRequeued, jobs, actor))  # type: ignore[return-value]

    def drain(self, node: NodeName, *, reason: str, actor: str) -> "Future[None]":
        """See `Control.drain`."""
        return self._ask(lambda intake: intake.set_node(node, reason=reason, actor=actor))  # type: ignore[return-value]

    def undrain(self, node: NodeName, *, actor: str) -> "Future[None]":
        """See `Control.undrain`."""
        return self._ask(lambda intake: intake.set_node(node, reason=None, actor=actor))  # type: ignore[return-value]

    def set_site(
        self,
        queues: tuple[QueueSpec, ...],
        tenants: tuple[TenantSpec, ...],
        *,
        actor: str,
        removed: Removed = NOTHING_REMOVED,
    ) -> "Future[None]":
        """See `Control.set_site`."""
        return self._ask(lambda intake: intake.set_site(queues, tenants, removed, actor))  # type: ignore[return-value]

    def note(self, line: AuditLine) -> "Future[None]":
        """See `Control.note`."""
        return self._ask(lambda intake: intake.audit.append(line))  # type: ignore[return-value]

    def explain(self, job: JobId) -> "Future[Explanation]":
        """See `Control.explain`."""
        return self._ask(lambda intake: self._memory.kernel.explain(job, intake.now_ms), is_read=True)  # type: ignore[return-value]

    def snapshot(self) -> "Future[ClusterSnapshot]":
        """See `Control.snapshot`."""
        return self._ask(lambda intake: take_snapshot(self._memory, intake.now_ms), is_read=True)  # type: ignore[return-value]

    def report(self, events: tuple[Event, ...]) -> "Future[None]":
        """Take in what somebody else saw, such as a forecast of demand."""
        return self._ask(lambda intake: intake.report(events))  # type: ignore[return-value]

    def priorities(self, jobs: Iterable[JobId]) -> Mapping[JobId, int]:
        """See `Control.priorities`."""
        with held_soon(self._lock) as is_held:
            return self._memory.views.priorities(jobs) if is_held else {}

    def job(self, job: JobId) -> JobView | None:
        """See `Control.job`."""
        with self._lock:
            view = self._memory.present(job)
        if view is not None:
            return view
        rows = self._store.reader.find_jobs(JobQuery(ids=(job,)))
        return rows[0] if rows else None

    def cluster(self) -> ClusterView:
        """See `Control.cluster`."""
        with self._lock:
            kernel = self._memory.kernel
            view = self._memory.views.cluster(
                at_ms=kernel.state.now_ms,
                seq=self._writer.seq,
                policy=kernel.policy.name,
                cycles=kernel.cycles,
                storage_error="" if self._writer.error is None else str(self._writer.error),
            )
        return with_site(view, self._backend)

    def plans(self) -> tuple[tuple[int, Plan], ...]:
        """See `Control.plans`."""
        with self._lock:
            return tuple(self._plans)

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """See `Control.subscribe`."""
        return self._notices.subscribe(take)

    @property
    def last_record(self) -> int:
        """Number of the journal's last record."""
        return self._writer.seq

    @property
    def is_ready(self) -> bool:
        """See `Control.is_ready`."""
        return not self.problem

    @property
    def problem(self) -> str:
        """See `Control.problem`."""
        if not self._is_ready:
            return f"the control plane is {'stopping' if self._is_closing else 'starting'}"
        error, said = self._writer.error, "jobs that run go on, and nothing new is taken, since it cannot be kept"
        return "" if error is None else f"{said}: {error}"
