"""The decision cycle: from the state box to a complete plan. Steps are numbered as in ARCHITECTURE.md.

1 Sense is done by `ClusterState.apply`. 2 Order. 3 Admit, 4 Place and 5 Backfill are one loop (`scan`). 6 Resize,
7 Consolidate and 8 Preempt are in `improve`. 9 Headroom is a setting of the loop. 10 Power is in `power`, for sites
with a budget. 11 Check is the kernel's, with code of its own; `explain` answers when asked.

The planner tries starts on the tables themselves and undoes them: after `decide_plan` the box is as it was. Between
cycles it keeps only what it could work out again: the reservations, and what is known not to fit.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.agenda import (
    TRIP_DUE_MS,
    TRIP_HAS_MOVED,
    TRIP_HAS_SCANNED,
    TRIP_LOOKED,
    TRIP_SCANNED,
    TRIP_STRICT_STOP,
    WANTS_LINKS,
    WANTS_LOG,
    WANTS_ROOM,
)
from clearway.engine.allocations import Allocations
from clearway.engine.box import META_LINKS_LEFT, META_RESERVATIONS, META_RUNNING, RES_JOB, Box
from clearway.engine.claims import is_claim_ready
from clearway.engine.compiled import address_of
from clearway.engine.desk import (
    AT_DEVICES,
    AT_DUE_MS,
    AT_MOVED,
    AT_NODES,
    AT_POSITION,
    AT_STARTED,
    AT_STATUS,
    FRESH,
    GO_ON,
    MEMO,
    OUT,
    PROGRESS,
    SET_BYPASS_MAX,
    SET_DEPTH,
    SET_ELASTIC,
    SET_HEADROOM,
    SET_HEEDS,
    SET_KEEP,
    SET_PROTECTED,
    SET_SCAN_MAX,
    SET_STRICT,
    SETTINGS,
    STATUS_CUT,
    STATUS_ROOM,
    STATUS_STRICT,
    Desk,
    DeskDoor,
    make_desk_door,
)
from clearway.engine.dominant import rows_in_turn
from clearway.engine.elastic import next_growth_ms
from clearway.engine.improve import improve_plan, touches_running
from clearway.engine.lifecycle import HOLDING
from clearway.engine.limits import PROTECTED_KINDS, headroom_milli, within_limits
from clearway.engine.load import make_weights
from clearway.engine.power import PowerGate, with_caps
from clearway.engine.reasons import REASONS
from clearway.engine.rows import KIND_NUMBERS
from clearway.engine.scan import count_bypassed, scan_entry, undo_entry
from clearway.engine.standing import may_stand
from clearway.engine.state import ClusterState
from clearway.engine.stretch import stretch_entry
from clearway.engine.tables import (
    CLASS_DEVICES,
    JOB_CLASS,
    JOB_PROTECTED_MS,
    JOB_REASON,
    JOB_REPLICAS_MAX,
    NONE,
    PHASE_STOPPING,
)
from clearway.engine.trial import Trial
from clearway.engine.view import jobs_view
from clearway.model.jobs import StopCause
from clearway.model.plan import Cap, Move, Plan, ReasonCode, Reserve, Start, Stop, job_served
from clearway.model.units import FOREVER_MS

if TYPE_CHECKING:
    from clearway.engine.check import Checker
    from clearway.engine.settle import Agenda

IntArray = NDArray[np.int64]

EMPTY: Final = np.zeros(0, dtype=np.int64)
POWER_ROUNDS_MAX: Final = 8
"""Scans of one cycle under a power budget: each leaves out the jobs that were refused. What is refused after so many
waits for the next event."""
FRONTS_MAX: Final = 2
"""Scans from the front in a row, while the rest of the queue waits to be looked at: news most often concerns the front,
and one event a millisecond must not keep the others from ever being reached."""
GO_ON_MS: Final = 1
"""When a cycle that was cut short is gone on with: soon, with time for events in between."""
SEEK_ON_MS: Final = 1_000
"""From a cycle that sought victims in vain for as many jobs as it may, to the next that does for those behind: it costs
more than to look for free devices."""
NO_ROWS: Final[frozenset[int]] = frozenset()
NO_MOVES: Final[tuple[Move, ...]] = ()


class Planner:
    """Decides plans for one state box. Holds work space and what it could work out again, no state of the cluster."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.weights = make_weights(state.policy.placement)
        self.settings = self._make_settings()
        self.progress: IntArray = np.zeros(PROGRESS, dtype=np.int64)
        self.memo: IntArray = np.full((MEMO, 16), FOREVER_MS, dtype=np.int64)
        self.out: IntArray = np.zeros((OUT, 1024), dtype=np.int64)
        self.out_nodes: IntArray = np.zeros(4096, dtype=np.int64)
        self.out_devices: IntArray = np.zeros(4096, dtype=np.int64)
        self._touches_running = touches_running(state.policy)
        self._refresh_ms = state.policy.order.refresh_ms
        self._counts_bypassed = state.policy.backfill.bypass_max < state.policy.scan_max
        self.allocations = Allocations()
        self._scan_address: Any = None
        self._known_box: Box | None = None
        self._desk_door = self._renew_desk()
        self._trial = Trial(state, self.weights)
        self._tried: set[int] = set()
        self._retry_ms = FOREVER_MS
        self._due_ms = FOREVER_MS
        self._has_scanned = False  # since `memo` was cleared
        self._has_moved = False  # whether, with what the last scan starts, other reservations would be made
        self._gate: PowerGate | None = None
        self._empty = Plan(0)
        self.is_strict_stop = False
        self.was_cut = False
        self.has_more = False  # jobs for which room may be made, and was not sought yet
        self.scanned = 0
        self._has_news = False
        self._go_on = (NONE, 0)  # the row at which a scan that was cut short stopped, and its place
        self._fronts = 0  # scans from the front since one went on from there
        self._is_stale = False  # whether there was news since the front was first looked at

    def _make_settings(self) -> IntArray:
        policy = self.state.policy
        settings = np.zeros(SETTINGS, dtype=np.int64)
        settings[SET_STRICT] = policy.backfill.strict
        settings[SET_DEPTH] = policy.backfill.reservation_depth
        settings[SET_BYPASS_MAX] = policy.backfill.bypass_max
        settings[SET_PROTECTED] = sum(1 << KIND_NUMBERS[kind] for kind in PROTECTED_KINDS)
        settings[SET_SCAN_MAX] = policy.scan_max
        settings[SET_ELASTIC] = policy.elasticity.enabled
        settings[SET_KEEP] = touches_running(policy)
        return settings

    # --- the cycle ----------------------------------------------------------------------------------------------------

    def decide_plan(self) -> Plan:
        """A complete plan for the box as it is. Deciding again after the plan was applied gives an empty plan."""
        state = self.state
        state.waiting_changed = False
        if self._is_idle() or not self.has_work():
            return self._empty_plan(self.wake_ms())
        moves: list[Move] = []
        has_changed = state.capacity_grew or state.order_shrank or self._order_is_due()
        if has_changed or state.now_ms >= self._retry_ms:
            self._tried.clear()
        self._gate = None if state.power_budget_watts is None else PowerGate(state, state.power_budget_watts)
        self._has_news = has_changed or bool(state.fresh)
        stopped = self._stop_cancelled(moves) if state.to_stop else NO_ROWS
        if state.claims:
            self._start_claimants(moves)
        fresh = self._order()
        started = self._scan(fresh)
        if started:
            moves.extend(self._make_starts(started))
        put_off: Collection[int] = NO_ROWS
        if self._touches_running:
            rows = frozenset(state.jobs[move.job].row for move in moves if isinstance(move, Start))
            # A larger start could be beyond the power budget, and so could one for which others are put off.
            planned = moves if self._gate is None else []
            goes_on = self.has_more and not self._has_news
            room = improve_plan(self._trial, planned, rows, stopped, self._tried, goes_on=goes_on)
            put_off, self.has_more = room.put_off, room.is_cut
            if put_off:
                moves = [one for one in moves if isinstance(one, Cap) or state.jobs[one.job].row not in put_off]
            moves.extend(room.moves)
            self._retry_ms = self._next_unprotected_ms()
            if state.policy.elasticity.enabled:
                self._retry_ms = min(self._retry_ms, next_growth_ms(state))
            if started:
                undo_entry(started, self._desk_door, state.door)
        if state.claims or self._touches_running:
            self._trial.undo_to(0)
        if state.dependencies.has_singletons:
            moves = self._without_conflicts(moves)
        if self._gate is not None or state.caps:
            moves = self._within_power(moves)
        if self._touches_running:
            # One cycle makes room for a few jobs only: after each that moved something, the next event brings another.
            state.order_shrank = any(isinstance(move, Start) for move in moves)
        lifts = self._touches_running and (put_off or self._lifts_reservation(moves))
        if lifts or (started and self._has_moved):
            self._look_again(moves)
        if not moves and not self.was_cut:
            return self._empty_plan(self.wake_ms())
        return Plan(state.version, tuple(moves), self.was_cut, self.wake_ms())

    def _look_again(self, moves: list[Move]) -> None:
        """With what this plan does, other reservations would be made, behind which other jobs may start: everything is
        looked at once more, at once if a start or a claim came of it."""
        self.state.capacity_grew = True
        self.state.waiting_changed = any(isinstance(move, Start | Reserve) for move in moves)

    def _lifts_reservation(self, moves: list[Move]) -> bool:
        """Whether devices are kept by name, from now on, for a job whose reservation others had to leave whole."""
        state = self.state
        rows = state.box.res[RES_JOB, : int(state.meta[META_RESERVATIONS])].tolist()
        return any(isinstance(move, Reserve) and state.jobs[move.job].row in rows for move in moves)

    def _empty_plan(self, wake_ms: int | None) -> Plan:
        """A plan that does nothing, for any state; the last one again if it can be, for it is the most usual."""
        if self._empty.wake_ms != wake_ms:
            self._empty = Plan(self.state.version, NO_MOVES, wake_ms=wake_ms)
        return self._empty

    def has_work(self) -> bool:
        """Whether anything has come, or come due, about which there may be something to decide."""
        state = self.state
        return (
            state.capacity_grew
            or state.order_shrank
            or self.was_cut
            or self.has_more
            or state.now_ms >= self._retry_ms
            or state.now_ms >= self._due_ms
            or bool(state.fresh)
            or bool(state.to_stop)
            or (self._refresh_ms is not None and self._order_is_due())
        )

    def _is_idle(self) -> bool:
        """Whether nobody waits for anything; what changed is then dealt with."""
        state = self.state
        if state.fresh or state.order.count or self._touches_running or state.to_stop or state.claims:
            return False
        if self._due_ms < FOREVER_MS or state.power_budget_watts is not None or state.caps:
            return False
        state.capacity_grew = state.order_shrank = self.was_cut = self.is_strict_stop = False
        if self._has_scanned:
            self._has_scanned = False
            self.memo.fill(FOREVER_MS)
        return True

    def _order_is_due(self) -> bool:
        refresh = self._refresh_ms
        if refresh is None or self.state.order.count == 0:
            return False
        return self.state.refreshed_ms == NONE or self.state.now_ms - self.state.refreshed_ms >= refresh

    def _is_late(self) -> bool:
        """Whether what reservations count on is late: a running job outlived its expected end, or a reservation's start
        has come though nothing was given back."""
        return self._due_ms <= self.state.now_ms

    def wake_ms(self) -> int | None:
        """When to look again though nothing happens: a begin time, the rest of a queue that was too long for one cycle,
        or an order by which a running job may be preempted that is due to be worked out anew."""
        state = self.state
        wake = state.timers[0][0] if state.timers else None
        if self.was_cut or self.has_more:
            go_on_ms = state.now_ms + (GO_ON_MS if self.was_cut else SEEK_ON_MS)
            wake = go_on_ms if wake is None else min(wake, go_on_ms)
        if not self._touches_running:
            return wake
        refresh = self._refresh_ms
        may_preempt = state.order.count and state.has_running
        if refresh is not None and may_preempt and state.refreshed_ms != NONE:
            due = state.refreshed_ms + refresh
            wake = due if wake is None else min(wake, due)
        if self._retry_ms < FOREVER_MS:
            wake = self._retry_ms if wake is None else min(wake, self._retry_ms)
        return wake

    def _next_unprotected_ms(self) -> int:
        """When the next running job may be preempted, if somebody waits; FOREVER_MS otherwise."""
        state = self.state
        if state.order.count == 0:
            return FOREVER_MS
        until = state.rows.table[JOB_PROTECTED_MS, state.holding_rows()]
        until = until[until > state.now_ms]
        return int(until.min()) if len(until) else FOREVER_MS

    def _stop_cancelled(self, moves: list[Move]) -> frozenset[int]:
        """Tell jobs to stop whose users took them back, for good, or want them to wait again; returns their rows."""
        state = self.state
        rows: list[int] = []
        for job in dict.fromkeys(state.to_stop):
            record = state.jobs.get(job)
            if record is None or record.phase == PHASE_STOPPING:
                continue
            if not (record.cancelled or record.phase in HOLDING):
                continue
            checkpoint = record.spec.checkpoint
            grace_ms = 0 if checkpoint is None else checkpoint.grace_ms
            moves.append(Stop(job, record.generation, grace_ms, None if record.cancelled else StopCause.REQUEUED))
            rows.append(record.row)
        state.to_stop.clear()
        return frozenset(rows)

    def _start_claimants(self, moves: list[Move]) -> None:
        """Start the jobs whose claimed devices have all been left. What is kept for the others counts against their
        limits, so that those who make room for one do not come back before it."""
        state = self.state
        waiting: list[tuple[int, int]] = []
        for row, claim in state.claims.items():
            cls = int(state.rows.table[JOB_CLASS, row])
            record = state.by_row[row]
            milli = claim.allocation.replicas * record.spec.request.device_milli
            is_ready = is_claim_ready(cls, claim.allocation.nodes, claim.allocation.devices, state.door)
            start = Start(record.spec.id, record.generation + 1, claim.allocation)
            if not (is_ready and within_limits(state, row, milli) and may_stand(state, row, claim.allocation)):
                state.rows.table[JOB_REASON, row] = REASONS.index(ReasonCode.CLEANING)
                waiting.append((row, milli))
            elif self._gate is None or self._gate.lets(start):
                moves.append(start)
                self._trial.start_claimant(row, claim.allocation)
            else:
                waiting.append((row, milli))
        for row, milli in waiting:
            self._trial.count(row, milli, jobs=1)

    # --- step 10: power -----------------------------------------------------------------------------------------------

    def _within_power(self, moves: list[Move]) -> list[Move]:
        """The moves that the power budget allows, with caps; the tables are as before them."""
        if self._gate is None:
            return with_caps(self.state, moves, {})
        return self._gate.with_caps(self._gate.let_through(moves))

    def _scan_without_powerless(self, order: IntArray, begin: int) -> IntArray:
        """Scan again without the jobs whose start the power budget does not allow, so that they take no devices from
        those that may pass them, and with reservations that begin once their watts are there. Returns the order without
        those jobs. Behind what an earlier scan reserved, that stands."""
        assert self._gate is not None
        self._gate.note_order(order)
        for _ in range(POWER_ROUNDS_MAX):
            started = int(self.progress[AT_STARTED])
            verdict = self._gate.judge(self._make_starts(started))
            if not verdict.refused and (begin or not verdict.late):
                break
            if self._touches_running:
                undo_entry(started, self._desk_door, self.state.door)
            self._gate.postpone(verdict.late)
            order = order[~np.isin(order, verdict.refused)]
            self._scan_with_room(order, begin)
        return order

    # --- step 2: order ------------------------------------------------------------------------------------------------

    def _order(self) -> IntArray | None:
        """Give fresh jobs their place. Returns their rows in order if looking at these is enough, None for all."""
        state = self.state
        before = state.order.count
        rows, first = self.place_fresh()
        if self._refresh_ms is not None and self._order_is_due():
            waiting = state.order.waiting()
            state.order.set_keys(waiting, state.policy.order.keys(jobs_view(state, waiting)))
            state.order.sort_all()
            state.refreshed_ms = state.now_ms
            return None
        if not self._is_enough(first, before):
            return None
        if first == before:  # all came last: in the order they stand behind one another
            return state.order.rows[before : state.order.count]
        return rows if len(rows) < 2 else rows[np.lexsort(state.order.sort[::-1, rows])]

    def place_fresh(self) -> tuple[IntArray, int]:
        """Give the jobs that have none their place in the order; returns their rows, and the first of all places that
        changed (the end of the order where none did)."""
        state = self.state
        first = state.order.count
        if not state.fresh:
            return EMPTY, first
        order = state.order
        if len(state.fresh) == 1 and state.policy.order.by_arrival:
            place = order.insert(state.fresh.pop())
            return order.rows[place : place + 1], place
        rows = np.array(state.fresh, dtype=np.int64)
        if not state.policy.order.by_arrival:
            order.set_keys(rows, state.policy.order.keys(jobs_view(state, rows)))
        first = min(first, order.insert_all(state.fresh))
        state.fresh.clear()
        return rows, first

    def _is_enough(self, first: int, before: int) -> bool:
        """Whether looking at the fresh rows alone decides the same as looking at all."""
        state = self.state
        if state.capacity_grew or state.order_shrank or self.was_cut or self._is_late():
            return False
        if state.policy.fair_share.dominant or self._gate is not None:
            return False
        if self._counts_bypassed:
            return False
        if self.is_strict_stop:
            return first > self.scanned - 1
        if state.policy.backfill.strict:
            return False
        if first >= before:
            return True
        depth = state.policy.backfill.reservation_depth
        count = int(state.meta[META_RESERVATIONS])
        if depth == 0:
            return True
        if count < depth:
            return False
        return first > max(state.order.place(row) for row in state.box.res[RES_JOB, :count].tolist())

    # --- steps 3 to 5 ------------------------------------------------------------------------------------------------

    def _scan(self, fresh: IntArray | None) -> int:
        """Find what may start; returns how many jobs, which the outputs name. Held only if running jobs may be touched
        besides: then the caller must undo it."""
        state = self.state
        if fresh is not None and (self.is_strict_stop or len(fresh) == 0):
            return 0
        order = rows_in_turn(state) if fresh is None else fresh
        begin = self._first_place(order) if fresh is None else FRESH
        if state.policy.headroom.enabled:
            self.settings[SET_HEADROOM] = headroom_milli(state)
        state.capacity_grew = state.order_shrank = False
        progress = self._scan_with_room(order, begin)
        if self._gate is not None:
            order = self._scan_without_powerless(order, begin)
            progress = self.progress.tolist()
        started = progress[AT_STARTED]
        self._due_ms = progress[AT_DUE_MS]
        self._has_moved = bool(progress[AT_MOVED])
        self.was_cut = progress[AT_STATUS] == STATUS_CUT
        if fresh is None:
            self._note_cut(order, begin, progress[AT_POSITION], started)
            self.is_strict_stop = progress[AT_STATUS] == STATUS_STRICT
            self.scanned = progress[AT_POSITION] - started
        if started and fresh is None and self._counts_bypassed:
            count_bypassed(order, len(order), self.out, started, state.door)
        return started

    def _first_place(self, order: IntArray) -> int:
        """Where a scan of the whole order begins: at the front, or where the one before was cut short. After news the
        front comes first, but not so often in a row that the rest is never reached."""
        row, place = self._go_on
        if row == NONE:
            self._fronts = 1
            return 0
        if self._has_news:
            self._is_stale = True
            if self._fronts < FRONTS_MAX:
                self._fronts += 1
                return 0
        self._fronts = 0
        found = np.flatnonzero(order == row)
        begin = int(found[0]) if len(found) else min(place, len(order))
        if begin == 0:  # all before it have left the queue: this is the front
            self._go_on = NONE, 0
        return begin

    def _note_cut(self, order: IntArray, begin: int, position: int, started: int) -> None:
        """Remember where to go on. One round is over when the end is reached; after news another begins."""
        before, self._go_on = self._go_on[0] != NONE, self._go_on if begin == 0 else (NONE, 0)
        if self.was_cut and (begin or not before):
            self._go_on = int(order[position]), position - started
        elif not self.was_cut:
            self._go_on = NONE, 0
            self.was_cut = self.state.capacity_grew = begin > 0 and self._is_stale
            self._is_stale = False

    def _renew_desk(self) -> DeskDoor:
        """A door to the arrays at which the scan works, after one of them was replaced by a larger one."""
        self._desk = Desk(
            self.settings, self.memo, self.progress, self.out, self.out_nodes, self.out_devices, self.weights
        )
        return make_desk_door(self._desk)

    def _scan_with_room(self, order: IntArray, begin: int) -> list[int]:
        """Scan from a place of the order on, or FRESH rows, and give the outputs and tables more room as often as it
        asks for it. Returns the progress. Going on in the midst of the order, what the scan before reserved stands."""
        state = self.state
        self._fit_memo()
        self.settings[SET_HEEDS] = self._counts_bypassed or bool(state.claims)
        self._has_scanned = True
        while True:
            scan_entry(order, len(order), begin, state.now_ms, self._desk_door, state.door)
            progress: list[int] = self.progress.tolist()
            if progress[AT_STATUS] != STATUS_ROOM:
                return progress
            self._make_room(int(order[progress[AT_POSITION]]))
            begin = GO_ON

    def _fit_memo(self) -> None:
        """Have room for what is known of every class."""
        box = self.state.box
        if self._known_box is not box:
            self._known_box = box
            classes = box.classes.shape[1]
            if self.memo.shape[1] < classes:
                self.memo = np.full((MEMO, classes), FOREVER_MS, dtype=np.int64)
                self._desk_door = self._renew_desk()

    def _make_room(self, row: int) -> None:
        """Double what is full, to hold at least what the job of `row` needs."""
        state = self.state
        replicas = int(state.rows.table[JOB_REPLICAS_MAX, row])
        devices = replicas * int(state.classes.table[CLASS_DEVICES, state.rows.table[JOB_CLASS, row]])
        if self.progress[AT_STARTED] >= self.out.shape[1]:
            self.out = np.concatenate([self.out, np.zeros_like(self.out)], axis=1)
        if self.progress[AT_NODES] + replicas > len(self.out_nodes):
            self.out_nodes = _lengthened(self.out_nodes, replicas)
        if self.progress[AT_DEVICES] + devices > len(self.out_devices):
            self.out_devices = _lengthened(self.out_devices, devices)
        need = state.inventory.pool_count + replicas + 1
        if state.meta[META_LINKS_LEFT] <= need or state.meta[META_RUNNING] + 1 >= state.running.shape[1]:
            state.make_link_room(max(2 * need, state.links.shape[1]))
        self._desk_door = self._renew_desk()

    def _make_starts(self, started: int) -> list[Start]:
        """The scan's outputs as moves."""
        moves: list[Start] = []
        by_row, make = self.state.by_row, self.allocations.make
        nodes, named = self.out_nodes, self.out_devices
        for row, _, node, device, replicas in self.out[:, :started].T.tolist():
            record = by_row[row]
            spec = record.spec
            allocation = make(nodes, node, replicas, named, device, replicas * spec.request.devices)
            moves.append(Start(spec.id, record.generation + 1, allocation))
        return moves

    # --- stretches ----------------------------------------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether the next cycle begins at the front of the order, and has nothing in mind but its reservations."""
        return not (self.was_cut or self._touches_running or self._is_stale or self._gate) and self._go_on[0] == NONE

    def stretch(self, agenda: "Agenda", checker: "Checker") -> int:
        """Go on with a stretch, and make room wherever it wants some, until its end or a fault; returns its status."""
        state = self.state
        if self._scan_address is None:
            order = state.order.rows
            self._scan_address = address_of(scan_entry, order, 0, 0, 0, self._desk_door, state.door)
        while True:
            self._fit_memo()
            door, tables = agenda.door(state, checker)
            stretch_entry(self._scan_address, door, self._desk_door, state.door)
            status, culprit = agenda.status
            if status == WANTS_ROOM:
                self._make_room(culprit)
            elif status == WANTS_LINKS:
                state.make_room(culprit, int(self.progress[AT_STARTED]))
            elif status == WANTS_LOG:
                agenda.make_log_room(culprit)
            else:
                del tables
                return status

    def lend(self, trip: IntArray) -> None:
        """Write down what is kept from one cycle to the next, for a stretch of them."""
        self.settings[SET_HEEDS] = 0
        trip[TRIP_DUE_MS] = self._due_ms
        trip[TRIP_STRICT_STOP], trip[TRIP_SCANNED] = self.is_strict_stop, self.scanned
        trip[TRIP_HAS_SCANNED], trip[TRIP_HAS_MOVED] = self._has_scanned, self._has_moved

    def take_back(self, trip: list[int]) -> None:
        """Keep what a stretch of cycles left."""
        self._due_ms = trip[TRIP_DUE_MS]
        self.is_strict_stop, self.scanned = bool(trip[TRIP_STRICT_STOP]), trip[TRIP_SCANNED]
        self._has_scanned, self._has_moved = bool(trip[TRIP_HAS_SCANNED]), bool(trip[TRIP_HAS_MOVED])
        if trip[TRIP_LOOKED]:
            self._fronts = 1

    def _without_conflicts(self, moves: list[Move]) -> list[Move]:
        """The moves without starts of singletons that come after another start of their name, a claimant's too; nor is
        room made for such."""
        jobs = self.state.jobs
        specs = [jobs[one.job].spec for one in moves if isinstance(one, Start | Reserve)]
        conflicts = self.state.dependencies.conflicts(specs)
        return [move for move in moves if job_served(move) not in conflicts] if conflicts else moves


def _lengthened(array: IntArray, more: int) -> IntArray:
    """`array` with at least `more` places added, doubling."""
    return np.concatenate([array, np.zeros(max(more, len(array)), dtype=np.int64)])
