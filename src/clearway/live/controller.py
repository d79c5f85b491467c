"""The driver of real clusters. One thread owns the kernel, the backend and the store; requests come by an inbox.

A turn (`Controller.turn`):

1. What is decided and not yet on disk is written; while that fails, nothing else is looked at and requests are refused.
2. What the backend reports, what failed starts ask for, requests in order of arrival, what timers bring: one batch.
3. If there are requests, the batch is written, so that they can still be refused when it cannot be.
4. The kernel decides. The plans that it accepted are written, with the batch if it is not written yet.
5. Only then commands are performed. Answers are given once what they say is on disk.

The journal holds inputs and accepted plans. A start reads it (`recover`: no decision is made anew), compares the
machines with it, has the commands performed again that were not answered, and goes on with a turn like any other.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import RLock
from typing import Final

from clearway.engine.explain import planned_start_ms
from clearway.forecast.feed import DemandFeed
from clearway.kernel import Kernel
from clearway.kernel.decisions import DecisionDigest, render_decision
from clearway.live.arrival import lost_jobs, node_events, site_events
from clearway.live.books import Book, Books, Draft, each_part, with_run
from clearway.live.clock import Clock
from clearway.live.guard import DEFAULT_GUARD, Guard, GuardSettings
from clearway.live.keys import Keys
from clearway.live.notices import Notices
from clearway.live.requests import Action, Ask, Inbox, Intake
from clearway.live.views import Places, Views
from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.commands import Command, WakeAt
from clearway.model.errors import ClearwayError, InternalError
from clearway.model.events import (
    Batch,
    ControlStarted,
    DemandForecast,
    DeviceDown,
    DeviceUp,
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeUp,
    TimerFired,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec
from clearway.model.plan import Explanation, Plan
from clearway.model.runs import RunSpec
from clearway.model.units import FOREVER_MS, SECOND_MS
from clearway.ports.backend import BackendCommand, LastingBackend, World
from clearway.ports.control import Notice, Submission
from clearway.ports.storage import AuditLine, Changes, JobQuery, StorageError, Store
from clearway.ports.views import ClusterView, JobView

JOBS_PER_TURN_MAX: Final = 16_384
"""Jobs taken in by one turn: a burst is one decision and one sync, and no turn takes seconds."""

PLANS_KEPT: Final = 100
"""Plans that can be looked at."""

TIMERS_CARRIED_MAX: Final = 1_000
"""Timers that brought nothing are written with the next record; so many at most wait for one."""

POLL_MS: Final = SECOND_MS
"""A backend is asked at least this often, should it have forgotten to call."""

_NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """requests_max: requests that may wait. retry_ms: first wait after the storage failed, doubled up to retry_max_ms.
    reasons_ms: how often rows of waiting jobs get their present reasons, reasons_max of them at a time."""

    guard: GuardSettings = DEFAULT_GUARD
    requests_max: int = 100_000
    retry_ms: int = 50
    retry_max_ms: int = 5 * SECOND_MS
    reasons_ms: int = SECOND_MS
    reasons_max: int = 2_000


@dataclass(slots=True)
class _Unwritten:
    """What was decided and is not on disk. commands: to be performed then."""

    changes: Changes
    commands: tuple[BackendCommand, ...]


class Controller:
    """See `clearway.ports.control.Control`. `start` once, then `run` in a thread of its own, or `turn` by turn.

    queues, tenants: the site; see `set_site`. decision_log: gets one line per command.
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
        settings: ControlSettings | None = None,
        decision_log: Callable[[str], None] | None = None,
    ) -> None:
        self._kernel = kernel
        self._backend = backend
        self._store = store
        self._clock = clock
        self._site = (tuple(queues), tuple(tenants))
        self._settings = settings or ControlSettings()
        self._decision_log = decision_log
        self.digest = DecisionDigest()
        self._lock = RLock()
        self._inbox = Inbox(self._settings.requests_max)
        self._books = Books()
        self._places = Places(kernel.state)
        self._views = Views(kernel.state, self._books.jobs)
        self._guard = Guard(self._settings.guard, self._books.jobs.get)
        self._keys = Keys()
        self._notices = Notices()
        self._demand = DemandFeed() if kernel.policy.headroom.enabled else None
        self._runs: dict[JobId, RunSpec] = {}
        self._plans: deque[tuple[int, Plan]] = deque(maxlen=PLANS_KEPT)
        self._last_id = JobId(0)
        self._seq = 0
        self._timer_ms = FOREVER_MS
        self._told: list[Event] = []  # reports that no batch holds yet
        self._carried: list[Event] = []  # records that may wait for the next to be written
        self._rows: dict[JobId, JobView] = {}  # rows that may wait likewise
        self._unwritten: _Unwritten | None = None
        self._storage_error: StorageError | None = None
        self._retry_at_ms = 0
        self._retry_ms = self._settings.retry_ms
        self._reasons_at_ms = 0
        self._is_ready = False
        self._is_closing = False

    # --- start ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the journal, find again what runs, and decide. Raises JournalError, StorageError, and InputError for
        nodes whose hardware changed; nothing was touched then."""
        for number, event in self._store.read_journal():
            self._recover(event)
            self._seq = number
        self._last_id = JobId(max(self._last_id, self._store.last_job_id()))
        self._read_runs()
        self._views.note_jobs(self._books.jobs.values())
        now_ms = self._now_ms()
        nodes = self._backend.nodes()
        found = list(node_events(now_ms, self._kernel.state.inventory, nodes, self._views.node_reasons))
        world = World(launch=self._launch, locate=self._places.locate, wake=self._inbox.wake)
        reports = list(self._backend.connect(now_ms, self._books.holdings(), world))
        gone = [event.node for event in found if isinstance(event, NodeDown)]
        reports += lost_jobs(now_ms, self._books, self._places, gone, reports)
        self._guard_against(reports, now_ms)
        site = site_events(now_ms, self._kernel.state, *self._site)
        self._told = [ControlStarted(now_ms, self._kernel.policy.name), *site, *found, *self._told]
        known = self._draft()
        for event in self._told:
            known.note(event)
        self._perform(self._books.unanswered(known), now_ms)
        self._turn_without_requests(now_ms)
        self._is_ready = True

    def _recover(self, event: Event) -> None:
        """Take in a record of the journal."""
        self._guard.note(event)
        self._keys.note(event)
        self._note_demand(event)
        self._kernel.recover(event)
        self._views.note(event)
        draft = self._draft()
        draft.note(event)
        self._books.commit(draft)
        if draft.changed:
            self._last_id = max(self._last_id, *draft.changed)

    def _read_runs(self) -> None:
        jobs = self._books.jobs
        self._runs = dict(self._store.read_runs(sorted(jobs)))
        for job, run in self._runs.items():
            jobs[job] = with_run(jobs[job], run)

    def _now_ms(self) -> int:
        return max(self._clock.now_ms(), self._kernel.state.now_ms)

    def _note_demand(self, event: Event) -> None:
        """Arrivals, and forecasts that were made of them, for the forecaster."""
        if self._demand is not None:
            for part in each_part(event):
                if isinstance(part, JobSubmitted):
                    self._demand.observe(part.job, part.at_ms)
                elif isinstance(part, DemandForecast):
                    self._demand.note(part)

    def _launch(self, job: JobId) -> tuple[JobSpec, RunSpec]:
        """What a job is and how it is run."""
        return self._books.jobs[job].spec, self._runs[job]

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
        if self._storage_error is not None:
            return self._retry_at_ms
        demand_ms = FOREVER_MS if self._demand is None else self._demand.next_ms
        return min(self._timer_ms, self._guard.next_ms(), demand_ms)

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
        self._observe(now_ms)
        changing = [ask for ask in asks if not ask.is_read]
        if changing:
            self._turn_with_requests(changing, now_ms)
        else:
            self._turn_without_requests(now_ms)
        for ask in asks:
            if ask.is_read:
                self._answer(ask, self._intake(now_ms, self._draft()))
        self._refresh_reasons(now_ms)

    def _observe(self, now_ms: int) -> None:
        """Gather what the backend reports. It is asked again only when all that it told before is on disk."""
        if not self._told:
            reports = [event for event in self._backend.observe(now_ms) if self._is_known(event)]
            self._guard_against(reports, now_ms)

    def _guard_against(self, reports: list[Event], now_ms: int) -> None:
        """Add the reports to what was told, and what follows from starts that failed."""
        reports += self._keep_drains(reports, now_ms)
        for event in reports:
            self._guard.note(event)
        answers = list(self._guard.answers(reports, now_ms))
        for event in answers:
            self._guard.note(event)
        self._told += [*reports, *answers]

    def _keep_drains(self, reports: list[Event], now_ms: int) -> list[Event]:
        """A drained node that comes back stays drained until somebody lets it be used."""
        inventory, reasons = self._kernel.state.inventory, self._views.node_reasons
        back = [event.node for event in reports if isinstance(event, NodeUp)]
        drained = [node for node in back if self._has_node(node) and inventory.is_drained[inventory.index(node)]]
        return [NodeDrained(now_ms, node, reasons.get(node, "")) for node in drained]

    def _is_known(self, event: Event) -> bool:
        """Whether the event names a node and device that there are; a backend cannot make up others."""
        if not isinstance(event, NodeDown | NodeUp | DeviceDown | DeviceUp):
            return True
        inventory = self._kernel.state.inventory
        if not self._has_node(event.node):
            return False
        device = getattr(event, "device", 0)
        return isinstance(event, NodeDown | NodeUp) or (
            0 <= device < inventory.specs[inventory.index(event.node)].device_count
        )

    def _has_node(self, node: NodeName) -> bool:
        return self._kernel.state.inventory.names.find(node) >= 0

    def _timers(self, now_ms: int) -> list[Event]:
        """What timers bring: jobs whose wait is over, and the kernel's own."""
        events = self._guard.due(now_ms)
        for event in events:
            self._guard.note(event)
        if self._demand is not None and self._demand.next_ms <= now_ms:
            self._demand.skip_to(now_ms)
            forecast = replace(self._demand.forecast(), at_ms=now_ms)
            self._demand.note(forecast)
            events.append(forecast)
        if self._timer_ms <= now_ms:
            self._timer_ms = FOREVER_MS
            events.append(TimerFired(now_ms))
        return events

    # --- a turn with requests -------------------------------------------------------------------------------------

    def _turn_with_requests(self, asks: list[Ask], now_ms: int) -> None:
        draft = self._draft()
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
            self._turn_without_requests(now_ms)
            self._give_answers(accepted)
            return
        timers = self._timers(now_ms)
        event = self._batch([*self._told, *intake.events, *timers], now_ms)
        for timer in timers:
            draft.note(timer)
        changes = Changes(
            events=(*self._carried, event),
            runs=tuple(intake.runs.items()),
            jobs=self._take_rows(draft),
            audit=tuple(intake.audit),
        )
        if not self._append(changes, now_ms):
            self._told += timers
            for ask, _ in accepted:
                self._fail(ask)
            return
        self._carried.clear()
        self._told.clear()
        self._last_id = intake.last_id
        self._runs.update(intake.runs)
        self._keys.note(event)
        for own in intake.events:
            self._guard.note(own)
            self._note_demand(own)
        commands, plans, after = self._decide(event, draft, now_ms)
        self._give_answers(accepted)
        self._write_decided(Changes(events=plans, jobs=after), commands, now_ms)

    def _intake(self, now_ms: int, draft: Draft) -> Intake:
        return Intake(
            now_ms=now_ms,
            draft=draft,
            accounts=self._kernel.state.accounts,
            keys=self._keys,
            nodes=self._has_node,
            last_id=self._last_id,
            runs=draft.runs,
        )

    def _answer(self, ask: Ask, intake: Intake) -> None:
        try:
            answer = ask.action(intake)
        except ClearwayError as error:
            ask.future.set_exception(error)
        else:
            ask.future.set_result(answer)

    def _give_answers(self, accepted: list[tuple[Ask, object]]) -> None:
        for ask, answer in accepted:
            ask.future.set_result(answer)

    def _refuse(self, asks: list[Ask]) -> None:
        """The storage takes nothing: what would change something is refused, the rest is answered."""
        for ask in asks:
            if ask.is_read:
                self._answer(ask, self._intake(self._kernel.state.now_ms, self._draft()))
            else:
                self._fail(ask)

    def _fail(self, ask: Ask) -> None:
        ask.future.set_exception(
            StorageError(f"nothing is taken now, because it cannot be kept: {self._storage_error}; try again later")
        )

    # --- a turn without requests ----------------------------------------------------------------------------------

    def _turn_without_requests(self, now_ms: int) -> None:
        """Decide first, and write what happened and what was decided with one sync."""
        events = [*self._told, *self._timers(now_ms)]
        if not events:
            return
        self._told.clear()
        event = self._batch(events, now_ms)
        draft = self._draft()
        draft.note(event)
        rows = draft.rows()
        commands, plans, after = self._decide(event, draft, now_ms)
        by_job = {row.id: row for row in (*rows, *after)}
        is_idle_timer = type(event) is TimerFired and not plans and not by_job
        if is_idle_timer and len(self._carried) < TIMERS_CARRIED_MAX:
            self._carried.append(event)
            return
        changes = Changes(events=(*self._carried, event, *plans), jobs=self._merge_rows(by_job))
        self._carried.clear()
        self._write_decided(changes, commands, now_ms)

    @staticmethod
    def _batch(events: list[Event], now_ms: int) -> Event:
        """One event by itself, several of one moment together."""
        return events[0] if len(events) == 1 and events[0].at_ms == now_ms else Batch(now_ms, tuple(events))

    # --- deciding and writing -------------------------------------------------------------------------------------

    def _draft(self) -> Draft:
        return Draft(self._books, self._places.locate, {})

    def _decide(
        self, event: Event, draft: Draft, now_ms: int
    ) -> tuple[tuple[BackendCommand, ...], tuple[Event, ...], tuple[JobView, ...]]:
        """Have the kernel decide, with `draft` as what the event does to the books. Returns what is to be performed,
        the plans, and the rows that the plans changed."""
        with self._lock:
            begun_ns = time.perf_counter_ns()
            commands = self._kernel.handle(event)
            self._views.note_cycle((time.perf_counter_ns() - begun_ns) / _NS_PER_MS)
            self._commit(draft, event, now_ms)
            plans = tuple(self._kernel.accepted)
            planned = self._draft()
            for plan in plans:
                planned.note(plan)
                self._plans.append((now_ms, plan.plan))
            self._commit(planned, None, now_ms)
        self._log(now_ms, commands)
        for command in commands:
            if type(command) is WakeAt:
                self._timer_ms = max(command.at_ms, now_ms)
        return tuple(c for c in commands if not isinstance(c, WakeAt)), plans, planned.rows()

    def _commit(self, draft: Draft, event: Event | None, now_ms: int) -> None:
        """Make the draft true, and tell whoever looks."""
        before = {job: self._books.jobs.get(job) for job in draft.changed} if self._notices.has_takers else {}
        self._books.commit(draft)
        if event is not None:
            self._views.note(event)
        self._views.note_jobs(draft.changed.values())
        for job, book in draft.changed.items():
            if book.view.state.is_final:
                self._runs.pop(job, None)
        if self._notices.has_takers:
            self._tell(before, draft, event, now_ms)

    def _tell(self, before: dict[JobId, Book | None], draft: Draft, event: Event | None, now_ms: int) -> None:
        for job, book in draft.changed.items():
            old = before[job]
            if old is None or old.view.state is not book.view.state:
                self._notices.tell_job(now_ms, book.view)
        for part in () if event is None else each_part(event):
            self._notices.tell_event(now_ms, part)

    def _log(self, now_ms: int, commands: tuple[Command, ...]) -> None:
        if commands:
            self.digest.add(now_ms, commands)
            if self._decision_log is not None:
                for command in commands:
                    self._decision_log(render_decision(now_ms, command))

    def _take_rows(self, draft: Draft) -> tuple[JobView, ...]:
        return self._merge_rows({row.id: row for row in draft.rows()})

    def _merge_rows(self, rows: dict[JobId, JobView]) -> tuple[JobView, ...]:
        """These rows, and those that wait to be written."""
        merged = {**self._rows, **rows}
        self._rows.clear()
        return tuple(merged.values())

    def _write_decided(self, changes: Changes, commands: tuple[BackendCommand, ...], now_ms: int) -> None:
        if changes.events or changes.jobs:
            self._unwritten = _Unwritten(changes, commands)
            self._write_unwritten(now_ms)
        else:
            self._perform(commands, now_ms)

    def _write_unwritten(self, now_ms: int) -> bool:
        """Write what was decided, then have it performed. Returns whether nothing is left to be written."""
        if self._storage_error is not None and now_ms < self._retry_at_ms:
            return False
        unwritten = self._unwritten
        if unwritten is None:
            return self._storage_error is None or self._append(self._sign_of_life(now_ms), now_ms)
        if not self._append(unwritten.changes, now_ms):
            return False
        self._unwritten = None
        self._perform(unwritten.commands, now_ms)
        return True

    def _sign_of_life(self, now_ms: int) -> Changes:
        """What is written to see whether the storage takes anything again, where nothing else is to be written."""
        failed = str(self._storage_error)
        line = AuditLine(at_ms=now_ms, actor="clearway", action="storage.resume", target="journal", detail=failed)
        return Changes(audit=(line,))

    def _perform(self, commands: tuple[BackendCommand, ...], now_ms: int) -> None:
        for command in commands:
            self._backend.perform(now_ms, command)

    def _append(self, changes: Changes, now_ms: int) -> bool:
        """Write; on failure wait longer each time before the next try."""
        try:
            self._seq = self._store.append(changes)
        except StorageError as error:
            self._storage_error = error
            self._retry_at_ms = now_ms + self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, self._settings.retry_max_ms)
            return False
        self._storage_error = None
        self._retry_ms = self._settings.retry_ms
        return True

    def _refresh_reasons(self, now_ms: int) -> None:
        """Give rows of waiting jobs their present reasons, now and then, so many at a time."""
        if now_ms < self._reasons_at_ms:
            return
        self._reasons_at_ms = now_ms + self._settings.reasons_ms
        with self._lock:
            for job in self._views.changed_reasons(self._settings.reasons_max):
                book = self._books.jobs.get(job)
                reason = self._views.reason(job)
                if book is None or reason is None or book.is_held or book.view.reason == reason:
                    continue
                view = replace(book.view, reason=reason)
                self._books.jobs[job] = replace(book, view=view)
                self._rows[job] = view
        if self._rows and not self._carried and self._append(Changes(jobs=tuple(self._rows.values())), now_ms):
            self._rows.clear()

    # --- Control --------------------------------------------------------------------------------------------------

    def _ask(self, action: Action, *, is_read: bool = False, size: int = 1) -> "Future[object]":
        future: Future[object] = Future()
        self._inbox.put(Ask(action, future, is_read=is_read, size=size))
        return future

    def submit(self, submission: Submission) -> "Future[tuple[JobId, ...]]":
        """See `Control.submit`."""
        return self._ask(lambda intake: intake.submit(submission), size=len(submission.jobs))  # type: ignore[return-value]

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

    def set_site(self, queues: tuple[QueueSpec, ...], tenants: tuple[TenantSpec, ...], *, actor: str) -> "Future[None]":
        """See `Control.set_site`."""
        return self._ask(lambda intake: intake.set_site(queues, tenants, actor))  # type: ignore[return-value]

    def explain(self, job: JobId) -> "Future[Explanation]":
        """See `Control.explain`."""
        return self._ask(lambda _: self._kernel.explain(job), is_read=True)  # type: ignore[return-value]

    def report(self, events: tuple[Event, ...]) -> "Future[None]":
        """Take in what somebody else saw, such as a forecast of demand."""
        return self._ask(lambda intake: intake.report(events))  # type: ignore[return-value]

    def job(self, job: JobId) -> JobView | None:
        """See `Control.job`."""
        with self._lock:
            book = self._books.jobs.get(job)
            if book is not None:
                return self._present(book)
        rows = self._store.reader.find_jobs(JobQuery(ids=(job,)))
        return rows[0] if rows else None

    def _present(self, book: Book) -> JobView:
        """The row of a job that has not ended, with why it waits at this moment."""
        reason = None if book.is_held else self._views.reason(book.spec.id)
        if reason is None:
            return book.view
        start_ms = planned_start_ms(self._kernel.state, self._kernel.state.jobs[book.spec.id])
        return replace(book.view, reason=reason, start_planned_ms=start_ms)

    def cluster(self) -> ClusterView:
        """See `Control.cluster`."""
        with self._lock:
            return self._views.cluster(
                at_ms=self._kernel.state.now_ms,
                seq=self._seq,
                policy=self._kernel.policy.name,
                cycles=self._kernel.cycles,
                storage_error="" if self._storage_error is None else str(self._storage_error),
            )

    def plans(self) -> tuple[tuple[int, Plan], ...]:
        """See `Control.plans`."""
        with self._lock:
            return tuple(self._plans)

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """See `Control.subscribe`."""
        return self._notices.subscribe(take)

    @property
    def is_ready(self) -> bool:
        """See `Control.is_ready`."""
        return self._is_ready and self._storage_error is None
