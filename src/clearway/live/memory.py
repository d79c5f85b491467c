"""What a control plane remembers: all that the journal's records make of it, written now or read again.

`recover` takes a record of the journal. While the plane runs, the same happens in steps: `take_reports` and `timers`
make events and note them, `note_requests` notes what requests added once it is on disk, `decide` hands a batch to the
kernel and has books and views follow.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clearway.engine.explain import planned_start_ms
from clearway.forecast.feed import DemandFeed
from clearway.kernel import Kernel
from clearway.live.books import Book, Books, Draft, each_part, with_run
from clearway.live.guard import Guard, GuardSettings
from clearway.live.keys import Keys
from clearway.live.snapshot import make_basis, parse, render
from clearway.live.views import Places, Views
from clearway.model.commands import Command
from clearway.model.events import (
    DemandForecast,
    DeviceDown,
    DeviceUp,
    Event,
    JobSubmitted,
    NodeAdded,
    NodeChanged,
    NodeDown,
    NodeDrained,
    NodeUp,
    PlanAccepted,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec
from clearway.model.runs import RunSpec
from clearway.model.units import FOREVER_MS
from clearway.ports.views import JobView

_NS_PER_MS: Final = 1e6

PARTS: Final = ("state", "run_times", "books", "caps", "keys", "guard", "views", "demand", "last_id")
"""Of a snapshot."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of a batch. commands: in order. plans: those accepted. told: what changed by the batch, then by the
    plans. before: jobs as they were."""

    commands: tuple[Command, ...]
    plans: tuple[PlanAccepted, ...]
    told: tuple[Draft, Draft]
    before: Mapping[JobId, Book | None]

    def rows(self) -> dict[JobId, JobView]:
        """Rows that the plans changed."""
        return {row.id: row for row in self.told[1].rows()}


class Memory:
    """kernel: decides. books: jobs that have not ended. runs: how to run each of them. views: nodes, queues, tenants.
    keys: of submissions. last_id: the highest number of a job. guard: which nodes and jobs fail starts. paces: see
    `Guard`. basis: see `clearway.live.snapshot`."""

    def __init__(self, kernel: Kernel, guard: GuardSettings, *, paces: bool = True) -> None:
        self.kernel = kernel
        self.basis = make_basis(kernel.policy.fair_share.half_life_ms, guard)
        self.books = Books()
        self.places = Places(kernel.state)
        self.views = Views(kernel.state, self.books.jobs)
        self.keys = Keys()
        self.runs: dict[JobId, RunSpec] = {}
        self.last_id = JobId(0)
        self.guard = Guard(guard, self.books.jobs.get, paces=paces)
        self._demand: DemandFeed | None = DemandFeed()

    # --- the journal ----------------------------------------------------------------------------------------------

    def recover(self, event: Event) -> Draft:
        """Take in a record of the journal; what it changed."""
        self.guard.note(event)
        self.keys.note(event)
        self._note_demand(event)
        self.kernel.recover(event)
        self.views.note(event)
        draft = self.draft()
        draft.note(event)
        self.books.commit(draft)
        if isinstance(event, PlanAccepted):
            self.guard.note_plan(event)
        if draft.changed:
            self.last_id = max(self.last_id, *draft.changed)
        return draft

    def finish_recovery(self, runs: Mapping[JobId, RunSpec], last_id: JobId) -> None:
        """After the last record: how the jobs that have not ended are run, and the highest number ever given."""
        self.kernel.finish_reading()
        if not self.kernel.policy.headroom.enabled:
            self._demand = None
        self.last_id = max(self.last_id, last_id)
        self.runs = dict(runs)
        for job, run in self.runs.items():
            self.books.jobs[job] = with_run(self.books.jobs[job], run)
        self.views.note_jobs(self.books.jobs.values())

    def dump(self) -> bytes:
        """All that the records given to `recover` made, before `finish_recovery`: the same bytes for the same ones."""
        self.kernel.begin_reading()
        kernel, books = self.kernel, self.books
        views, keys, guard = self.views.kept(), self.keys.kept(), self.guard.kept()
        parts = (
            kernel.state.attributes(),
            kernel.state.run_times,
            books.jobs,
            books.caps,
            keys,
            guard,
            views,
            self._demand,
            self.last_id,
        )
        return render(dict(zip(PARTS, parts, strict=True)))

    def load(self, payload: bytes) -> None:
        """Go on from where `dump` was called, in a memory that has taken nothing in. Raises InputError for bytes of
        something else, and nothing changed."""
        parts = parse(payload, PARTS)
        self.kernel.resume(parts["state"], parts["run_times"])
        self.books.jobs.update(parts["books"])
        self.books.caps.update(parts["caps"])
        self.places = Places(self.kernel.state)
        self.views = Views(self.kernel.state, self.books.jobs)
        self.views.restore(parts["views"])
        self.keys.restore(parts["keys"])
        self.guard.restore(parts["guard"])
        self._demand = parts["demand"]
        self.last_id = parts["last_id"]

    def _note_demand(self, event: Event) -> None:
        """Arrivals, and forecasts that were made of them, for the forecaster."""
        if self._demand is not None:
            for part in each_part(event):
                if isinstance(part, JobSubmitted):
                    self._demand.observe(part.job, part.at_ms)
                elif isinstance(part, DemandForecast):
                    self._demand.note(part)

    # --- what comes in --------------------------------------------------------------------------------------------

    def draft(self) -> Draft:
        """Nothing changed yet."""
        return Draft(self.books, self.places.locate, {})

    def take_reports(self, reports: Sequence[Event], now_ms: int, new: Iterable[NodeName] = ()) -> list[Event]:
        """Reports of the backend, without what names no node or device of ours, and with what follows from them: a
        drained node stays drained, starts that fail are answered. new: nodes that are added in the same batch."""
        fresh = frozenset(new)
        events = [event for report in reports for event in self._understand(report, fresh)]
        events += self._keep_drains(events, now_ms)
        for event in events:
            self.guard.note(event)
        answers = list(self.guard.answers(events, now_ms))
        for event in answers:
            self.guard.note(event)
        return [*events, *answers]

    def _understand(self, event: Event, fresh: frozenset[NodeName]) -> tuple[Event, ...]:
        """The event, if it can be: unknown nodes and devices are left out, and a node cannot be added twice."""
        if isinstance(event, NodeAdded | NodeChanged):
            return () if event.node.name in fresh else self._understand_node(event)
        if not isinstance(event, NodeDown | NodeUp | NodeDrained | DeviceDown | DeviceUp) or event.node in fresh:
            return (event,)
        if not self.has_node(event.node):
            return ()
        inventory = self.kernel.state.inventory
        count = inventory.specs[inventory.index(event.node)].device_count
        is_beyond = isinstance(event, DeviceDown | DeviceUp) and not 0 <= event.device < count
        return () if is_beyond else (event,)

    def _understand_node(self, event: NodeAdded | NodeChanged) -> tuple[Event, ...]:
        """Another node, or one that offers something else. Its devices cannot be others than it was added with."""
        node = event.node
        if not self.has_node(node.name):
            return (NodeAdded(event.at_ms, node),)
        inventory = self.kernel.state.inventory
        known = inventory.specs[inventory.index(node.name)]
        if (node.groups, node.nvlink, node.leaf, node.block) != (known.groups, known.nvlink, known.leaf, known.block):
            reason = f"expected the devices that it had, {known.device_count} in all, found {node.device_count} others"
            return (NodeDrained(event.at_ms, node.name, reason),)
        changed = (NodeChanged(event.at_ms, node),) if node != known else ()
        return (NodeUp(event.at_ms, node.name), *changed) if isinstance(event, NodeAdded) else changed

    def _keep_drains(self, events: Sequence[Event], now_ms: int) -> list[Event]:
        """A drained node that comes back stays drained until somebody lets it be used."""
        inventory = self.kernel.state.inventory
        back = [event.node for event in events if isinstance(event, NodeUp)]
        drained = [node for node in back if self.has_node(node) and inventory.is_drained[inventory.index(node)]]
        return [NodeDrained(now_ms, node, self.views.drain_reasons.get(node, "")) for node in drained]

    def has_node(self, node: NodeName) -> bool:
        """Whether a node of this name was ever added."""
        return self.kernel.state.inventory.names.find(node) >= 0

    def is_usable(self, node: NodeName) -> bool:
        """Whether something may start on it: it is up and not drained."""
        inventory = self.kernel.state.inventory
        index = inventory.index(node)
        return bool(inventory.is_up[index] and not inventory.is_drained[index])

    def timers(self, now_ms: int) -> list[Event]:
        """What timers other than the kernel's bring by now: jobs whose wait is over, a forecast of demand."""
        events = self.guard.due(now_ms)
        for event in events:
            self.guard.note(event)
        if self._demand is not None and self._demand.next_ms <= now_ms:
            self._demand.skip_to(now_ms)
            forecast = replace(self._demand.forecast(), at_ms=now_ms)
            self._demand.note(forecast)
            events.append(forecast)
        return events

    def next_due_ms(self) -> int:
        """When `timers` will bring something; FOREVER_MS = never."""
        return min(self.guard.next_ms(), FOREVER_MS if self._demand is None else self._demand.next_ms)

    def note_requests(self, events: Iterable[Event], runs: Mapping[JobId, RunSpec], last_id: JobId) -> None:
        """What requests added is on disk."""
        self.last_id = last_id
        self.runs.update(runs)
        for event in events:
            self.keys.note(event)
            self.guard.note(event)
            self._note_demand(event)

    # --- deciding -------------------------------------------------------------------------------------------------

    def decide(self, event: Event, draft: Draft) -> Decided:
        """Have the kernel decide. draft: what the event does to the books."""
        begun_ns = time.perf_counter_ns()
        commands = self.kernel.handle(event)
        self.views.note_cycle((time.perf_counter_ns() - begun_ns) / _NS_PER_MS)
        before = {job: self.books.jobs.get(job) for job in draft.changed}
        self.views.note(event)
        self._commit(draft)
        plans = tuple(self.kernel.accepted)
        planned = self.draft()
        for plan in plans:
            planned.note(plan)
        before |= {job: self.books.jobs.get(job) for job in planned.changed if job not in before}
        self._commit(planned)
        for plan in plans:
            self.guard.note_plan(plan)
        return Decided(commands, plans, (draft, planned), before)

    def _commit(self, draft: Draft) -> None:
        self.books.commit(draft)
        self.views.note_jobs(draft.changed.values())
        for job, book in draft.changed.items():
            if book.view.state.is_final:
                self.runs.pop(job, None)

    # --- what is known of jobs --------------------------------------------------------------------------------------

    def launch(self, job: JobId) -> tuple[JobSpec, RunSpec]:
        """What a job that has not ended is, and how it is run."""
        return self.books.jobs[job].spec, self.runs[job]

    def present(self, job: JobId) -> JobView | None:
        """The row of a job that has not ended, with why it waits at this moment; None = it has, or never was."""
        book = self.books.jobs.get(job)
        if book is None:
            return None
        reason = None if book.is_held else self.views.reason(job)
        if reason is None:
            return book.view
        start_ms = planned_start_ms(self.kernel.state, self.kernel.state.jobs[job])
        priority = self.views.priorities((job,)).get(job)
        return replace(book.view, reason=reason, start_planned_ms=start_ms, order_priority=priority)

    def note_progress(self, said: Mapping[JobId, float]) -> dict[JobId, JobView]:
        """What jobs say of themselves; returns the rows that changed. Not in the journal: they will say it again."""
        rows: dict[JobId, JobView] = {}
        for job, progress in said.items():
            book = self.books.jobs.get(job)
            if book is not None and book.view.progress != progress:
                rows[job] = replace(book.view, progress=progress)
                self.books.jobs[job] = replace(book, view=rows[job])
        return rows

    def refresh_reasons(self, most: int) -> dict[JobId, JobView]:
        """Give rows of waiting jobs their present reasons, at most so many; returns those that changed."""
        rows: dict[JobId, JobView] = {}
        for job in self.views.changed_reasons(most):
            book, reason = self.books.jobs.get(job), self.views.reason(job)
            if book is not None and reason is not None and not book.is_held and book.view.reason != reason:
                rows[job] = replace(book.view, reason=reason)
                self.books.jobs[job] = replace(book, view=rows[job])
        return rows
