"""Stretches seen from Python: when there may be one, what is prepared for it, and what is settled behind it.

A stretch (`engine.stretch`) does to the tables what events would. What the state box keeps beside them is settled here
for all of its moments at once, so that in the end the box is as if each event had been applied.
"""

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from clearway.engine.agenda import (
    COMES,
    ENDED,
    ENDED_AT_MS,
    ENDED_MILLI,
    ENDED_PLACE,
    ENDED_ROW,
    ENDED_START_MS,
    ENDED_TENANT,
    HEAD_WORDS,
    REFUSED,
    RESTLESS,
    START_AT_MS,
    START_PLACE,
    START_REPLICAS,
    START_ROW,
    START_WORD,
    STARTS,
    TRIP,
    TRIP_ACCEPTED,
    TRIP_BY_PRIORITY,
    TRIP_CULPRIT,
    TRIP_DEVICES,
    TRIP_ENDED,
    TRIP_ENDS,
    TRIP_EVENTS,
    TRIP_FIRST,
    TRIP_FREE,
    TRIP_GREW,
    TRIP_KNOWN,
    TRIP_LAST,
    TRIP_LAST_PARENT,
    TRIP_MOMENTS,
    TRIP_NEXT,
    TRIP_NODES,
    TRIP_NOW,
    TRIP_PARENT,
    TRIP_PLANS,
    TRIP_PROTECTION_MS,
    TRIP_ROWS,
    TRIP_SEQUENCE,
    TRIP_SHRANK,
    TRIP_STARTS,
    TRIP_STATUS,
    TRIP_TOLD,
    TRIP_UNTIL,
    TRIP_VERDICT,
    TRIP_WAITING,
    TRIP_WORDS,
    AgendaTables,
    make_agenda_door,
)
from clearway.engine.check import VERDICTS
from clearway.engine.endings import Endings
from clearway.engine.order import SORT_COLUMNS
from clearway.engine.planned import planned_run_ms
from clearway.engine.policy import Policy, PreemptMode, RuntimeSource
from clearway.engine.records import JobRecord
from clearway.engine.rows import is_like, make_form, write_row
from clearway.engine.tables import (
    JOB_COLUMNS,
    JOB_ID,
    NONE,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_STARTING,
    grow_table,
    make_table,
)
from clearway.engine.view import coming_view
from clearway.model.allocation import Allocation
from clearway.model.jobs import JobSpec, Outcome, Request
from clearway.model.plan import Start
from clearway.model.units import FOREVER_MS

if TYPE_CHECKING:
    from clearway.engine.check import Checker
    from clearway.engine.cycle import Planner
    from clearway.engine.state import ClusterState

IntArray = NDArray[np.int64]

AHEAD_MAX: Final = 4_096
"""Jobs that are prepared at once: enough that the cost of a call does not count, few enough to stay small."""


SCAN_SPARE: Final = 2
"""By so many jobs, at least, a queue stays below what one scan looks at: no scan of a stretch is cut short."""


class Coming(Protocol):
    """A job that will be submitted."""

    @property
    def spec(self) -> JobSpec:
        """What its user says of it."""
        ...

    @property
    def submit_ms(self) -> int:
        """When it comes."""
        ...


def _others(cls: type, *names: str) -> "tuple[attrgetter[tuple[object, ...]], tuple[object, ...]]":
    """Of a dataclass, the fields but for these, as what reads them, and what they are where nobody says anything."""
    odd = [field for field in fields(cls) if field.name not in names]
    return attrgetter(*(field.name for field in odd)), tuple(field.default for field in odd)


odd_of_spec, PLAIN_SPEC = _others(
    JobSpec,
    *("id", "request", "replicas", "name", "user", "tenant", "queue", "kind", "priority", "qos", "limit_ms"),
    *("estimate_ms", "network", "preemptible", "requeue", "suspendable", "deadline_ms", "latency_target_ms"),
)
odd_of_request, PLAIN_REQUEST = _others(
    Request,
    *("devices", "device_memory_bytes", "device_models", "cpu_milli", "memory_bytes", "node_labels", "exclusive"),
    *("nodes", "nodes_excluded"),
)
"""What else may be said of a job asks for more than a stretch does, until it is known not to."""


def is_plain(spec: JobSpec) -> bool:
    """Whether nothing but waiting, one run and its end can befall the job, and nobody else looks at it."""
    return odd_of_spec(spec) == PLAIN_SPEC and odd_of_request(spec.request) == PLAIN_REQUEST


def is_plain_policy(policy: Policy) -> bool:
    """Whether a cycle of this policy is one scan in an order that never changes, and nothing besides."""
    return (
        policy.order.is_fixed
        and policy.order.refresh_ms is None
        and not policy.order.learns
        and policy.runtime in (RuntimeSource.LIMIT, RuntimeSource.ESTIMATE)
        and policy.preemption.mode is PreemptMode.NEVER
        and not policy.elasticity.enabled
        and not policy.headroom.enabled
        and not policy.fair_share.dominant
        and policy.placement.fragmentation == 0.0
        and policy.backfill.bypass_max >= policy.scan_max
    )


def may_stretch(state: "ClusterState", planner: "Planner") -> bool:
    """Whether the box is in a state in which only plain jobs wait or run, and nothing else is due or kept in mind."""
    return not (
        state.timers
        or state.claims
        or state.caps
        or state.to_stop
        or state.fresh
        or state.waiting_changed
        or state.budgets
        or state.budgeted
        or state.bounded
        or state.closed
        or state.keeps_run_times
        or state.keeps_history
        or state.power_budget_watts is not None
        or state.inventory.crowds.rule_count
        or state.dependencies.is_heeded
        or state.order.count + SCAN_SPARE >= state.policy.scan_max
        or not planner.is_plain
    )


class Agenda:
    """What comes, and what was made of it in the last stretch.

    jobs: all that will come, by place, sorted by time; only plain ones. spans_ms: int64[places], how long each runs.
    endings: of those that run. next: place of the next job to come. sequence: the number of the last start.
    """

    def __init__(self, jobs: Sequence[Coming], spans_ms: IntArray) -> None:
        self.jobs = jobs
        self.next = 0
        self.sequence = 0
        self.endings = Endings()
        self.trip: IntArray = np.zeros(TRIP, dtype=np.int64)
        self.words: IntArray = np.zeros(1 << 14, dtype=np.int64)
        self._spans_ms = spans_ms
        self._row_of: IntArray = np.full(max(len(jobs), 1), NONE, dtype=np.int64)
        self._place_of: IntArray = np.zeros(64, dtype=np.int64)
        self._comes: IntArray = np.zeros((0, COMES), dtype=np.int64)
        self._keys: NDArray[np.float64] = np.zeros(0)
        self._first = 0
        self._noted = 0  # places up to here have their row
        self._forms: list[IntArray] = []
        self._kinds: dict[tuple[object, ...], tuple[int, int]] = {}
        self._like: JobSpec | None = None  # the last job whose kind was found,
        self._kind: tuple[int, int] | None = None  # and what it was
        self._fresh: IntArray = np.zeros(64, dtype=np.int64)
        self._untold: IntArray = np.zeros(64, dtype=np.int64)
        self._free: IntArray = np.zeros(64, dtype=np.int64)
        self._starts: IntArray = np.zeros((STARTS, 64), dtype=np.int64)
        self._ended: IntArray = np.zeros((ENDED, 64), dtype=np.int64)

    # --- what was made of it ----------------------------------------------------------------------------------------

    @property
    def starts(self) -> IntArray:
        """int64[STARTS, n]: the starts of the last stretch, in order."""
        return self._starts[:, : self.trip[TRIP_STARTS]]

    @property
    def ended(self) -> IntArray:
        """int64[ENDED, n]: the ends of the last stretch, in order."""
        return self._ended[:, : self.trip[TRIP_ENDED]]

    @property
    def log(self) -> IntArray:
        """int64[n]: the starts of the last stretch as words, see HEAD_WORDS."""
        return self.words[: self.trip[TRIP_WORDS]]

    @property
    def status(self) -> tuple[int, int]:
        """How the last call of a stretch ended, and of which row, or of how much, it speaks."""
        return int(self.trip[TRIP_STATUS]), int(self.trip[TRIP_CULPRIT])

    @property
    def moments(self) -> int:
        """Moments of the last stretch."""
        return int(self.trip[TRIP_MOMENTS])

    @property
    def events(self) -> int:
        """Events of the last stretch: starts that were told, ends and submits."""
        return int(self.trip[TRIP_EVENTS])

    @property
    def plans(self) -> int:
        """Plans that were made in the last stretch, empty ones too."""
        return int(self.trip[TRIP_PLANS])

    @property
    def now_ms(self) -> int:
        """The last moment of the last stretch."""
        return int(self.trip[TRIP_NOW])

    @property
    def is_restless(self) -> bool:
        """Whether the last stretch ended because there is something to decide before time goes on."""
        return bool(self.trip[TRIP_STATUS] == RESTLESS)

    @property
    def untold(self) -> IntArray:
        """int64[n]: places of the jobs of which it was not told yet that they run."""
        return self.starts[START_PLACE, self.trip[TRIP_STARTS] - self.trip[TRIP_TOLD] :]

    @property
    def last_parent(self) -> int:
        """By how much the version of the state had grown when the last plan with moves was made."""
        return int(self.trip[TRIP_LAST_PARENT])

    def last_moves(self, planner: "Planner") -> tuple[Start, ...]:
        """The moves of the last plan that had any."""
        if not self.trip[TRIP_ACCEPTED]:
            return ()
        moves = []
        for place, replicas, word in self.starts[
            [START_PLACE, START_REPLICAS, START_WORD], self.trip[TRIP_LAST] :
        ].T.tolist():
            spec = self.jobs[place].spec
            moves.append(Start(spec.id, 1, self._allocation(planner, word, replicas, spec.request.devices)))
        return tuple(moves)

    def _allocation(self, planner: "Planner", word: int, replicas: int, devices: int) -> Allocation:
        """What a start whose words begin there holds: so many replicas with so many devices each."""
        node = word + HEAD_WORDS
        return planner.allocations.make(self.words, node, replicas, self.words, node + replicas, replicas * devices)

    def fault(self, state: "ClusterState") -> str:
        """What went wrong in the last stretch."""
        trip = self.trip.tolist()
        job, verdict = int(state.rows.table[JOB_ID, trip[TRIP_CULPRIT]]), trip[TRIP_VERDICT]
        if trip[TRIP_STATUS] == REFUSED:
            reason = VERDICTS[verdict] if verdict >= 0 else "it does not wait, or not for so many replicas"
            return f"the checker refused a plan at {trip[TRIP_NOW]} ms: job {job}: {reason}"
        return f"a plan at {trip[TRIP_NOW]} ms starts a job that is not among the waiting"

    # --- before -----------------------------------------------------------------------------------------------------

    def prepare(self, state: "ClusterState") -> None:
        """Have a good number of jobs ready to come, as far as the box knows their class, queue and tenant already."""
        if self.next - self._first:
            self._comes = self._comes[self.next - self._first :]
            self._keys = self._keys[self.next - self._first :]
            self._first = self.next
        if len(self._comes) > AHEAD_MAX // 2:
            return
        begin = self.next + len(self._comes)
        lines = self._lines(state, begin, min(len(self.jobs), begin + AHEAD_MAX - len(self._comes)))
        if lines:
            comes = np.array(lines, dtype=np.int64)
            self._comes = np.concatenate([self._comes, comes])
            self._keys = np.concatenate([self._keys, self._keys_of(state, comes)])

    def _lines(self, state: "ClusterState", begin: int, end: int) -> list[tuple[int, ...]]:
        """A line for each job from place `begin` on that is known to the box; up to `end`."""
        accounts = state.accounts
        lines: list[tuple[int, ...]] = []
        queues, tenants = accounts.queue_names.numbers, accounts.tenant_names.numbers
        for job in self.jobs[begin:end]:
            spec = job.spec
            limit_ms = spec.limit_ms
            kind = self._kind if self._like is not None and is_like(spec, self._like) else self._find_kind(state, spec)
            queue, tenant = queues.get(spec.queue), tenants.get(spec.tenant)
            if kind is None or queue is None or tenant is None:
                break
            lines.append(
                (
                    job.submit_ms,
                    spec.id,
                    *kind,
                    spec.replicas,
                    spec.priority,
                    queue,
                    tenant,
                    accounts.queue_specs[queue].priority,
                    planned_run_ms(state, spec),
                    FOREVER_MS if limit_ms is None else limit_ms,
                )
            )
        return lines

    def _keys_of(self, state: "ClusterState", comes: IntArray) -> NDArray[np.float64]:
        """float64[n]: by what the policy's order ranks each of these lines."""
        order, count = state.policy.order, len(comes)
        if order.by_arrival:
            return np.zeros(count)
        table, sort = make_table(JOB_COLUMNS, count), np.zeros((SORT_COLUMNS, count))
        for row, line in enumerate(comes.tolist()):
            at_ms, job, form, cls, replicas, priority, queue, tenant, queue_priority, planned_ms, limit_ms = line
            numbers = (row, job, cls, replicas, replicas, replicas, priority, queue, tenant, queue_priority)
            write_row(table, sort, self._forms[form], *numbers, at_ms, planned_ms, limit_ms, order.by_priority)
        return order.keys(coming_view(state, table))

    def _find_kind(self, state: "ClusterState", spec: JobSpec) -> tuple[int, int] | None:
        """The form and the class of a job; None where the box does not know its class yet."""
        key = (spec.request, spec.network, spec.kind, spec.preemptible, spec.requeue, spec.deadline_ms)
        kind = self._kinds.get(key)
        if kind is None:
            cls = state.classes.numbers.get((spec.request, spec.network.fabric))
            if cls is None:
                return None
            kind = self._kinds[key] = len(self._forms), cls
            self._forms.append(make_form(spec))
        self._like, self._kind = spec, kind
        return kind

    def note_rows(self, state: "ClusterState") -> None:
        """Learn the rows of jobs that came otherwise than in a stretch."""
        self._place_of = _longer(self._place_of, state.rows.table.shape[1])
        for place in range(self._noted, self.next):
            record = state.jobs.get(self.jobs[place].spec.id)
            if record is not None:
                self._row_of[place] = record.row
                self._place_of[record.row] = place
        self._noted = self.next

    def open(
        self, state: "ClusterState", planner: "Planner", checker: "Checker", untold: list[int], until_ms: int
    ) -> None:
        """Write down where the box and the planner stand. untold: rows of jobs that were started, which is not told."""
        trip = self.trip
        trip[:] = 0
        coming, waiting = len(self._comes), state.order.count
        coming = min(coming, state.policy.scan_max - SCAN_SPARE - waiting)
        most = waiting + coming
        self._make_room(state, coming, most, len(untold))
        free = state.rows.free
        self._free[: len(free)] = free
        self._untold[: len(untold)] = untold
        known = self.next + coming
        trip[TRIP_UNTIL] = min(until_ms, self.jobs[known].submit_ms) if known < len(self.jobs) else until_ms
        trip[TRIP_NEXT] = trip[TRIP_FIRST] = self.next
        trip[TRIP_KNOWN] = known
        trip[TRIP_ENDS], trip[TRIP_SEQUENCE] = self.endings.count, self.sequence
        trip[TRIP_FREE], trip[TRIP_ROWS], trip[TRIP_WAITING] = len(free), state.rows.count, waiting
        trip[TRIP_TOLD], trip[TRIP_NOW] = len(untold), state.now_ms
        trip[TRIP_GREW], trip[TRIP_SHRANK] = state.capacity_grew, state.order_shrank
        trip[TRIP_PROTECTION_MS] = state.policy.preemption.protection_ms
        trip[TRIP_NODES], trip[TRIP_DEVICES] = state.inventory.node_count, state.inventory.device_count
        trip[TRIP_BY_PRIORITY] = state.policy.order.by_priority
        planner.lend(trip)
        checker.measure()

    def _make_room(self, state: "ClusterState", coming: int, most: int, untold: int) -> None:
        """Make room for all that may come of it."""
        rows, order = state.rows, state.order
        rows.make_room(coming)
        state.refresh_box_if_grown()
        order.make_room(coming)
        self.endings.make_room(most)
        self._place_of = _longer(self._place_of, rows.table.shape[1])
        self._fresh = _longer(self._fresh, coming + 1)
        self._untold = _longer(self._untold, most + untold + 1)
        self._free = _longer(self._free, rows.table.shape[1])
        self._starts = grow_table(self._starts, most + 1)
        self._ended = grow_table(self._ended, most + self.endings.count + 1)

    def make_log_room(self, words: int) -> None:
        """Make room for so many more words."""
        self.words = np.concatenate([self.words, np.zeros(max(words, len(self.words)), dtype=np.int64)])

    def door(self, state: "ClusterState", checker: "Checker") -> tuple[Any, AgendaTables]:
        """The door to it, good as long as the tables beside it are kept."""
        tables = AgendaTables(
            trip=self.trip,
            comes=self._comes if len(self._comes) else np.zeros((1, COMES), dtype=np.int64),
            keys=self._keys if len(self._keys) else np.zeros(1),
            forms=np.array(self._forms) if self._forms else np.zeros((1, 1), dtype=np.int64),
            spans_ms=self._spans_ms,
            row_of=self._row_of,
            place_of=self._place_of,
            ends=self.endings.table,
            free=self._free,
            order=state.order.rows,
            fresh=self._fresh,
            untold=self._untold,
            starts=self._starts,
            ended=self._ended,
            words=self.words,
            by_node=checker.by_node,
            by_device=checker.by_device,
            sort=state.order.sort,
        )
        return make_agenda_door(tables), tables

    # --- behind -----------------------------------------------------------------------------------------------------

    def settle(self, state: "ClusterState", planner: "Planner", outcomes: Sequence[Outcome], untold: list[int]) -> None:
        """Settle what the box and the planner keep beside the tables. outcomes: by place, how each job ends."""
        trip = self.trip.tolist()
        first, self.next = self.next, trip[TRIP_NEXT]
        self._noted = self.next
        self.endings.count, self.sequence = trip[TRIP_ENDS], trip[TRIP_SEQUENCE]
        state.now_ms = max(state.now_ms, trip[TRIP_NOW])
        state.version += trip[TRIP_PARENT]
        state.rows.count = trip[TRIP_ROWS]
        state.rows.free = self._free[: trip[TRIP_FREE]].tolist()
        state.order.count = trip[TRIP_WAITING]
        state.capacity_grew, state.order_shrank = bool(trip[TRIP_GREW]), bool(trip[TRIP_SHRANK])
        planner.take_back(trip)
        for row in untold:
            record = state.by_row.get(row)
            if record is not None and record.phase == PHASE_STARTING:
                record.phase = PHASE_RUNNING
        self._settle_ends(state, outcomes, first)
        self._settle_submits(state, first)
        self._settle_starts(state, planner, trip[TRIP_TOLD])

    def _settle_ends(self, state: "ClusterState", outcomes: Sequence[Outcome], first: int) -> None:
        """Forget those that ended. Of those that came and ended within the stretch nothing but this is to be known."""
        accounts, jobs, known, by_row = state.accounts, self.jobs, state.jobs, state.by_row
        has_tenants = accounts.tenant_count > 1
        note_end = state.dependencies.note_plain_end
        ended = self.ended
        columns = (ENDED_PLACE, ENDED_AT_MS, ENDED_ROW, ENDED_START_MS, ENDED_TENANT, ENDED_MILLI)
        for place, at_ms, row, start_ms, tenant, milli in zip(
            *(ended[column].tolist() for column in columns), strict=True
        ):
            job = jobs[place].spec.id
            if place < first:
                del known[job], by_row[row]
            note_end(job, outcomes[place], start_ms)
            if has_tenants:
                accounts.note_use(tenant, milli, start_ms, at_ms)

    def _settle_submits(self, state: "ClusterState", first: int) -> None:
        """Records of those that came and are still there."""
        known, by_row = state.jobs, state.by_row
        tenants = state.accounts.tenant_names.numbers
        rows = self._row_of[first : self.next].tolist()
        for job, row in zip(self.jobs[first : self.next], rows, strict=True):
            if row != NONE:
                spec = job.spec
                known[spec.id] = by_row[row] = JobRecord(
                    spec, row, PHASE_PENDING, 0, None, None, None, tenants[spec.tenant]
                )

    def _settle_starts(self, state: "ClusterState", planner: "Planner", untold: int) -> None:
        """What those that started and are still there hold."""
        starts = self.starts
        lasts = self._row_of[starts[START_PLACE]] == starts[START_ROW]
        by_row, note_start = state.by_row, state.dependencies.note_plain_start
        columns = (START_ROW, START_AT_MS, START_REPLICAS, START_WORD)
        for row, at_ms, replicas, word in zip(*(starts[column][lasts].tolist() for column in columns), strict=True):
            record = by_row[row]
            record.allocation = self._allocation(planner, word, replicas, record.spec.request.devices)
            record.generation = 1
            record.phase = PHASE_RUNNING
            note_start(record.spec, at_ms)
        for row in self._untold[:untold].tolist():
            by_row[row].phase = PHASE_STARTING


def _longer(line: IntArray, length: int) -> IntArray:
    """`line` with room for so many, doubling."""
    if len(line) >= length:
        return line
    return np.concatenate([line, np.zeros(max(length, 2 * len(line)) - len(line), dtype=np.int64)])
