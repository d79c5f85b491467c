"""The life of a job in the state box: what each event about jobs does to records, rows, devices and queues.

Phases and their changes (an event that fits none of these is stale and is ignored, or is our bug where it says so):

    accepted → PENDING or BLOCKED ⇄ PENDING → STARTING → RUNNING → ended
    STARTING, RUNNING → STOPPING → PENDING (stopped) or SUSPENDED (frozen, waits) or ended (cancelled)
    STARTING, RUNNING → PENDING (its node failed), or ended where it must not run again
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from clearway.engine.closed import asked_of
from clearway.engine.hold import (
    START_NO_ROOM,
    STARTED,
    hold_entry,
    leave_entry,
    leave_whole_entry,
    let_go_entry,
    start_entry,
    start_together_entry,
)
from clearway.engine.planned import planned_run_ms
from clearway.engine.reasons import REASON_PRIORITY, REASONS
from clearway.engine.records import PROTECTION_FIRST_MS, JobRecord, protection_more_ms
from clearway.engine.rows import is_like, make_form
from clearway.engine.standing import drop_fallen_claims
from clearway.engine.tables import (
    JOB_ATTAINED,
    JOB_GENERATION,
    JOB_MILLI,
    JOB_PHASE,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_REPLICAS_MAX,
    JOB_SAVED_MS,
    JOB_START_MS,
    JOB_WAIT_SINCE_MS,
    NONE,
    PHASE_BLOCKED,
    PHASE_FREE,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_STARTING,
    PHASE_STOPPING,
    PHASE_SUSPENDED,
)
from clearway.model.allocation import Allocation
from clearway.model.errors import InternalError
from clearway.model.events import (
    CheckpointSaved,
    JobBounded,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobResized,
    JobStarted,
    JobStopped,
    JobSubmitted,
    JobSuspended,
    PlanAccepted,
)
from clearway.model.ids import JobId
from clearway.model.jobs import DependencyKind, JobSpec, Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Move, ReasonCode, Reserve, Resize, Start, Stop, Suspend
from clearway.model.units import MILLI

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

HOLDING = (PHASE_STARTING, PHASE_RUNNING, PHASE_STOPPING)
"""Phases in which a job holds devices."""
WAITING = (PHASE_PENDING, PHASE_SUSPENDED)
"""Phases in which a job has a place in the order (or is about to get one)."""
STARTS_FEW = 8
"""Up to so many starts of one plan leave the order one by one; more leave it together."""
HISTORY_MAX = 2_000
"""Finished jobs whose device-time is kept for orders that learn from it; enough for a stable distribution."""


class Lifecycle:
    """Handlers of events about jobs, over one state box."""

    def __init__(self, state: "ClusterState") -> None:
        self.state = state
        self._left: set[int] = set()
        self._like: JobSpec | None = None  # the job of which `_form` was made
        self._form: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._newest: tuple[int, ...] = (NONE,) * 4  # class, queue, tenant and row: up to these, tables have grown
        self.handlers: dict[type, Callable[..., None]] = {
            JobSubmitted: self.on_submitted,
            JobCancelled: self.on_cancelled,
            JobRequeued: self.on_requeued,
            JobHeld: self.on_held,
            JobReleased: self.on_released,
            JobBounded: self.on_bounded,
            JobStarted: self.on_started,
            CheckpointSaved: self.on_checkpoint,
            JobFinished: self.on_finished,
            JobStopped: self.on_stopped,
            JobSuspended: self.on_suspended,
            JobResized: self.on_resized,
            PlanAccepted: self.on_plan,
        }
        self.movers: dict[type, Callable[..., None]] = {
            Start: self.accept_start,
            Stop: self.accept_stop,
            Suspend: self.accept_suspend,
            Resize: self.accept_resize,
            Migrate: self.accept_resize,
            Reserve: self.accept_reserve,
            Cap: self.accept_cap,
        }

    # --- waiting -------------------------------------------------------------------------------------------------

    def on_submitted(self, event: JobSubmitted) -> None:
        """A job is accepted: it gets a row, and waits."""
        state, spec = self.state, event.job
        job, request, rows, accounts = spec.id, asked_of(state, spec), state.rows, state.accounts
        if job in state.jobs or job in state.dependencies.outcomes:
            raise InternalError(f"job {job} was submitted twice; a job's id is given once and never reused")
        row = rows.free.pop() if rows.free else rows.new()
        cls = state.classes.number(request, spec.network.fabric, state.inventory)
        queue = accounts.queue(spec.queue)
        tenant = accounts.tenant(spec.tenant, state.inventory.milli)
        newest = self._newest
        is_social = request.crowds or request.neighbours or request.extras
        if is_social:
            state.classes.use(request, spec.network.fabric, state.inventory, 1)
        if cls > newest[0] or queue > newest[1] or tenant > newest[2] or row > newest[3] or is_social:
            self._newest = tuple(map(max, newest, (cls, queue, tenant, row)))
            state.refresh_box_if_grown()
        if self._like is None or not is_like(spec, self._like):
            self._like, self._form = spec, make_form(spec)
        if state.policy.placement.fragmentation:
            state.typical.note(cls, state.meta)
        rows.write(
            row,
            spec,
            self._form,
            (cls, queue, tenant, accounts.queue_specs[queue].priority),
            state.order.sort,
            planned_ms=planned_run_ms(state, spec),
            at_ms=event.at_ms,
            by_priority=state.policy.order.by_priority,
        )
        state.jobs[job] = state.by_row[row] = record = JobRecord(
            spec, row, PHASE_PENDING, tenant=tenant, held=spec.held
        )
        if spec.dependencies or spec.held or spec.not_before_ms is not None or spec.array is not None:
            state.dependencies.add(spec, self._rivals(spec))
            self._block_or_wait(record)
        else:
            state.fresh.append(row)

    def _rivals(self, spec: JobSpec) -> list[JobId]:
        """For a singleton, the jobs, not ended, of the same user and name, accepted before it."""
        if all(dependency.kind is not DependencyKind.SINGLETON for dependency in spec.dependencies):
            return []
        mine = (spec.user, spec.name)
        return [job for job, record in self.state.jobs.items() if job != spec.id and _name_of(record) == mine]

    def _block_or_wait(self, record: JobRecord) -> None:
        """Let a job that has no place in the order wait, or block it with the reason."""
        state, spec = self.state, record.spec
        reason = record.held_as if record.held else state.dependencies.reason(spec, state.now_ms)
        record.blocked = reason
        if reason is None:
            record.phase = PHASE_SUSPENDED if record.suspended else PHASE_PENDING
            state.rows.table[JOB_REASON, record.row] = REASON_PRIORITY
            state.fresh.append(record.row)
        else:
            record.phase = PHASE_BLOCKED
            state.rows.table[JOB_REASON, record.row] = REASONS.index(reason)
            due_ms = self._due_ms(spec, reason)
            if due_ms is not None:
                heappush(state.timers, (due_ms, spec.id))
        state.rows.table[JOB_PHASE, record.row] = record.phase
        if spec.array is not None or spec.dependencies:
            self.look_again(state.dependencies.note_reason(spec, reason, state.now_ms))

    def _due_ms(self, spec: JobSpec, reason: ReasonCode) -> int | None:
        """When time alone may end the block; None where it cannot."""
        if reason is ReasonCode.DEPENDENCY:
            return self.state.dependencies.due_ms(spec, self.state.now_ms)
        return spec.not_before_ms if reason is ReasonCode.BEGIN_TIME else None

    def look_again(self, jobs: tuple[JobId, ...]) -> None:
        """Unblock those of the jobs that nothing blocks any more, block those that wait and no longer may, and give
        each blocked one its present reason."""
        for job in jobs:
            record = self.state.jobs.get(job)
            if record is None or record.cancelled:
                continue
            if record.phase in WAITING:
                if self.state.dependencies.reason(record.spec, self.state.now_ms) is None:
                    continue
                self._leave_order(record)
                self.state.unclaim(record.row)
                self._block_or_wait(record)
                self.state.waiting_changed = True
            elif record.phase == PHASE_BLOCKED:
                self._block_or_wait(record)

    def release_due(self) -> None:
        """Look again at the jobs whose begin time has come."""
        state = self.state
        while state.timers and state.timers[0][0] <= state.now_ms:
            _, job = heappop(state.timers)
            self.look_again((job,))

    def _leave_order(self, record: JobRecord) -> None:
        """Take a waiting job out of the order, wherever it stands."""
        state = self.state
        if record.row in state.fresh:
            state.fresh.remove(record.row)
        else:
            state.order.remove(record.row)
            state.order_shrank = True

    def _leave_order_together(self, rows: list[int]) -> None:
        """Take many waiting jobs out of the order in one pass; `accept_start` then finds them gone."""
        self._left.update(rows)
        self.state.order.remove_many(np.array(rows, dtype=np.int64))

    def on_held(self, event: JobHeld) -> None:
        """Somebody holds a job; one that runs is not touched. A user's hold takes the place of any other."""
        record = self.state.jobs.get(event.job)
        if record is None or (record.held and event.reason):
            return
        was_held = record.held
        record.held, record.held_as, record.held_because = True, event.code, event.reason
        if record.phase in WAITING:
            self._leave_order(record)
            self.state.unclaim(record.row)
            self._block_or_wait(record)
        elif was_held and record.phase == PHASE_BLOCKED and not record.cancelled:
            self._block_or_wait(record)

    def on_released(self, event: JobReleased) -> None:
        """A user lets a held job go."""
        record = self.state.jobs.get(event.job)
        if record is not None and record.held:
            record.held = False
            self.look_again((event.job,))

    def on_cancelled(self, event: JobCancelled) -> None:
        """A waiting job ends at once; one that holds devices will be told to stop by the next plan."""
        record = self.state.jobs.get(event.job)
        if record is None or record.cancelled:
            return
        record.cancelled = True
        if record.phase in WAITING:
            self._leave_order(record)
            self.state.unclaim(record.row)
        if record.suspended:
            self._stop_frozen(record)
        elif record.phase in HOLDING:
            self.state.to_stop.append(event.job)
        else:
            self._forget(record, Outcome.CANCELLED)

    def on_requeued(self, event: JobRequeued) -> None:
        """A job that holds devices will be told to leave by the next plan, and waits again, if it may run again at all;
        others wait already."""
        record = self.state.jobs.get(event.job)
        if record is not None and record.spec.requeue and record.phase in (PHASE_STARTING, PHASE_RUNNING):
            self.state.to_stop.append(event.job)

    def on_bounded(self, event: JobBounded) -> None:
        """An elastic job may have no more replicas than that, or than it needs at least."""
        record = self.state.jobs.get(event.job)
        if record is None or record.spec.elastic is None:
            return
        asked = self.state.bounded.setdefault(event.job, record.spec)
        assert asked.elastic is not None
        most = min(max(event.replicas_max, asked.elastic.replicas_min), asked.elastic.replicas_max)
        replicas, table, row = min(asked.replicas, most), self.state.rows.table, record.row
        record.spec = replace(asked, replicas=replicas, elastic=replace(asked.elastic, replicas_max=most))
        milli = replicas * asked.request.device_milli
        table[[JOB_REPLICAS, JOB_REPLICAS_MAX, JOB_MILLI], row] = replicas, most, milli
        self.state.unclaim_beyond(row, most)
        self.state.capacity_grew = True

    def _stop_frozen(self, record: JobRecord) -> None:
        """A frozen job was cancelled: it never starts again, and stays until the backend says that it ended."""
        record.phase, record.blocked = PHASE_BLOCKED, ReasonCode.CLEANING
        self.state.rows.table[JOB_PHASE, record.row] = PHASE_BLOCKED
        self.state.rows.table[JOB_REASON, record.row] = REASONS.index(ReasonCode.CLEANING)
        self.state.to_stop.append(record.spec.id)

    # --- holding devices -----------------------------------------------------------------------------------------

    def on_started(self, event: JobStarted) -> None:
        """All replicas run."""
        record = self.state.jobs.get(event.job)
        if record is not None and record.generation == event.generation and record.phase == PHASE_STARTING:
            record.phase = PHASE_RUNNING
            self.state.rows.table[JOB_PHASE, record.row] = PHASE_RUNNING

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Work is safe."""
        record = self.state.jobs.get(event.job)
        if record is not None:
            record.checkpoint_ms = event.at_ms

    def _give_back(self, record: JobRecord) -> None:
        """The job leaves all that it holds."""
        state, allocation = self.state, record.allocation
        assert allocation is not None
        now_ms, request = state.now_ms, record.spec.request
        if request.share_milli == MILLI:
            start_ms: int = leave_whole_entry(record.row, now_ms, PHASE_FREE, state.door)
        else:
            start_ms = leave_entry(record.row, now_ms, allocation.nodes, allocation.devices, state.door)
        if len(state.accounts.tenant_specs) > 1:
            state.accounts.note_use(record.tenant, allocation.replicas * request.device_milli, start_ms, now_ms)
        record.allocation = record.target = None
        state.capacity_grew = True
        if state.claims and request.crowds:
            drop_fallen_claims(state)

    def on_finished(self, event: JobFinished) -> None:
        """The job ended; its devices are free."""
        state = self.state
        record = state.jobs.get(event.job)
        if record is None or record.generation != event.generation:
            return
        if record.phase in HOLDING:
            if state.keeps_run_times or state.keeps_history:
                self._learn(record, event)
            self._give_back(record)
            self._forget(record, event.outcome)
        elif record.suspended:
            if record.phase in WAITING:
                self._leave_order(record)
            self._forget(record, event.outcome)

    def _learn(self, record: JobRecord, event: JobFinished) -> None:
        """Remember how long it ran, for predictions and for orders that learn."""
        state = self.state
        if event.outcome is Outcome.CANCELLED:
            return
        table, row = state.rows.table, record.row
        run_ms = event.at_ms - int(table[JOB_START_MS, row]) + int(table[JOB_SAVED_MS, row])
        if state.run_times is not None and state.keeps_run_times:
            state.run_times.observe_finished(record.spec, run_ms, completed=event.outcome is not Outcome.TIMEOUT)
        if state.keeps_history:
            state.history.append(run_ms * int(table[JOB_MILLI, row]) / 1000)
            if len(state.history) > 2 * HISTORY_MAX:
                del state.history[:HISTORY_MAX]

    def _forget(self, record: JobRecord, outcome: Outcome) -> None:
        """The job is over: its row is free, and those that waited for it are looked at."""
        state, spec, row = self.state, record.spec, record.row
        if state.claims and row in state.claims:
            state.unclaim(row)
        del state.jobs[spec.id], state.by_row[row]
        state.budgeted.pop(spec.id, None)
        state.bounded.pop(spec.id, None)
        if spec.request.crowds or spec.request.neighbours or spec.request.extras:
            state.classes.use(spec.request, spec.network.fabric, state.inventory, -1)
        state.rows.give_back(row)
        again = state.dependencies.note_end(spec, outcome, state.now_ms)
        if again:
            self.look_again(again)

    def on_stopped(self, event: JobStopped) -> None:
        """The job left its devices without having ended: it waits again, if it may."""
        record = self.state.jobs.get(event.job)
        if record is None or record.generation != event.generation or record.phase not in HOLDING:
            return
        self._give_back(record)
        if record.spec.is_ended_by(event.cause):
            self._forget(record, Outcome.NODE_FAIL)
            return
        table = self.state.rows.table
        if event.cause is StopCause.PREEMPTED:
            record.futile = record.futile + 1 if event.saved_ms <= table[JOB_SAVED_MS, record.row] else 0
        table[JOB_SAVED_MS, record.row] = event.saved_ms
        self._wait_again(record, event.at_ms)

    def on_suspended(self, event: JobSuspended) -> None:
        """The job is frozen and waits; its work stays in memory."""
        record = self.state.jobs.get(event.job)
        if record is None or record.generation != event.generation or record.phase not in HOLDING:
            return
        table, row = self.state.rows.table, record.row
        elapsed_ms = max(event.at_ms - int(table[JOB_START_MS, row]), 0)
        record.futile = record.futile + 1 if elapsed_ms < PROTECTION_FIRST_MS else 0
        table[JOB_SAVED_MS, row] += elapsed_ms
        self._give_back(record)
        record.suspended = True
        self._wait_again(record, event.at_ms)

    def _wait_again(self, record: JobRecord, at_ms: int) -> None:
        state = self.state
        state.rows.table[JOB_WAIT_SINCE_MS, record.row] = at_ms
        again = state.dependencies.note_stop(record.spec, suspended=record.suspended)
        if record.cancelled:
            if record.suspended:
                self._stop_frozen(record)
            else:
                self._forget(record, Outcome.CANCELLED)
            return
        self._block_or_wait(record)
        self.look_again(again)

    def on_resized(self, event: JobResized) -> None:
        """A resize or migration is done: the job holds its target, the rest is free."""
        record = self.state.jobs.get(event.job)
        if record is None or record.generation != event.generation or record.target is None:
            return
        self._rehold(record, record.target)
        record.target = None
        record.phase = PHASE_RUNNING
        self.state.rows.table[JOB_PHASE, record.row] = PHASE_RUNNING
        self.state.capacity_grew = True

    def _rehold(self, record: JobRecord, allocation: Allocation) -> None:
        """Hold `allocation` instead of what is held, with the time so far on the account."""
        state, table, row, held = self.state, self.state.rows.table, record.row, record.allocation
        assert held is not None
        start_ms = int(table[JOB_START_MS, row])
        milli = held.replicas * record.spec.request.device_milli
        elapsed = max(state.now_ms - start_ms, 0)
        table[JOB_ATTAINED, row] += milli * elapsed // 1000
        share = held.replicas / record.spec.replicas
        table[JOB_SAVED_MS, row] += int(elapsed * min(share, 1.0))
        state.accounts.note_use(record.tenant, milli, start_ms, state.now_ms)
        let_go_entry(row, held.nodes, held.devices, state.door)
        hold_entry(row, state.now_ms, allocation.nodes, allocation.devices, state.door)
        record.allocation = allocation

    # --- moves of an accepted plan -------------------------------------------------------------------------------

    def on_plan(self, event: PlanAccepted) -> None:
        """Carry out each move in the box; the world is told by commands."""
        moves = event.plan.moves
        if len(moves) > 1 and self._accept_plain_starts(moves):
            return
        if len(moves) > STARTS_FEW:
            starts = [move.job for move in moves if isinstance(move, Start)]
            if len(starts) > STARTS_FEW:
                self._leave_order_together([self.state.jobs[job].row for job in starts])
        for move in moves:
            if isinstance(move, Start):
                self.accept_start(move)
            else:
                self.movers[type(move)](move)

    def _accept_plain_starts(self, moves: Sequence[Move]) -> bool:
        """`accept_start` of all moves in one step, if they are starts that concern nobody else; False = not done."""
        state = self.state
        if state.claims or state.dependencies.heeds_starts or not all(isinstance(move, Start) for move in moves):
            return False
        starts = cast(Sequence[Start], moves)
        records = [state.jobs[move.job] for move in starts]
        if any(record.spec.request.crowds or record.futile for record in records):
            return False
        self._take_together(starts, records)
        for move, record in zip(starts, records, strict=True):
            record.allocation, record.generation = move.allocation, move.generation
            record.phase, record.suspended = PHASE_STARTING, False
            state.dependencies.note_start(record.spec, state.now_ms)
        return True

    def _take_together(self, starts: Sequence[Start], records: Sequence[JobRecord]) -> None:
        """All out of the order and into their devices."""
        state, order, now_ms, count = self.state, self.state.order, self.state.now_ms, len(starts)
        facts = [
            (record.row, move.generation, len(move.allocation.nodes))
            for move, record in zip(starts, records, strict=True)
        ]
        table = np.array(facts, dtype=np.int64).T.copy()
        nodes = np.concatenate([move.allocation.nodes for move in starts])
        devices = np.concatenate([move.allocation.devices for move in starts])
        protected_ms = now_ms + state.policy.preemption.protection_ms
        waiting = order.count
        if count > STARTS_FEW:
            order.remove_many(table[0])
            assert order.count == waiting - count, "some job is not among the waiting"
            waiting = 0
        while True:
            rows, sort = order.rows, order.sort
            done = start_together_entry(table, now_ms, protected_ms, nodes, devices, rows, waiting, sort, state.door)
            if done == STARTED:
                break
            assert done == START_NO_ROOM, "some job is not among the waiting"
            state.make_room(len(nodes), count)
        if waiting:
            order.count = waiting - count

    def accept_start(self, move: Start) -> None:
        """The job takes its devices."""
        state = self.state
        record = state.jobs[move.job]
        row = record.row
        if state.claims and row in state.claims:
            state.unclaim(row)
        allocation, generation = move.allocation, move.generation
        while (done := self._take(record, generation, allocation)) != STARTED:
            assert done == START_NO_ROOM, f"job row {row} is not among the waiting"
            state.make_room_for(allocation)
        if self._left:
            self._left.discard(row)
        if record.spec.request.crowds:
            state.capacity_grew = True  # others may have waited for such a neighbour
            state.unclaim_beside(record, allocation)
        record.allocation, record.generation = allocation, generation
        record.phase, record.suspended = PHASE_STARTING, False
        if again := state.dependencies.note_start(record.spec, state.now_ms):
            self.look_again(again)

    def _take(self, record: JobRecord, generation: int, allocation: Allocation) -> int:
        """Out of the order and into its devices; returns a START_* number."""
        state, order, row = self.state, self.state.order, record.row
        waiting = 0 if self._left and row in self._left else order.count or NONE
        protection_ms = state.policy.preemption.protection_ms + protection_more_ms(record.futile)
        done: int = start_entry(
            row,
            generation,
            state.now_ms,
            state.now_ms + protection_ms,
            allocation.nodes,
            allocation.devices,
            order.rows,
            waiting,
            order.sort,
            state.door,
        )
        if waiting and done == STARTED:
            order.count = waiting - 1
        return done

    def accept_stop(self, move: Stop) -> None:
        """The job is told to leave; it holds its devices until the backend says that it left."""
        if move.job in self.state.to_stop:  # only where plans are read from a journal: who decides has cleared it
            self.state.to_stop.remove(move.job)
        self._begin_stop(self.state.jobs[move.job])

    def accept_suspend(self, move: Suspend) -> None:
        """The job is told to freeze."""
        self._begin_stop(self.state.jobs[move.job])

    def _begin_stop(self, record: JobRecord) -> None:
        if record.phase in HOLDING:
            record.phase = PHASE_STOPPING
            self.state.rows.table[JOB_PHASE, record.row] = PHASE_STOPPING

    def accept_resize(self, move: Resize | Migrate) -> None:
        """The job holds the old and the new devices together until the backend says that it moved."""
        state = self.state
        record = state.jobs[move.job]
        held = record.allocation
        assert held is not None
        needed = record.spec.request.devices
        have = set(held.devices.tolist()) if needed else set()
        fresh = [
            replica
            for replica in range(move.allocation.replicas)
            if not needed or int(move.allocation.devices[replica * needed]) not in have
        ]
        nodes = np.concatenate([held.nodes, move.allocation.nodes[fresh]])
        devices = move.allocation.devices.reshape(-1, max(needed, 1)) if needed else move.allocation.devices
        added = devices[fresh].reshape(-1) if needed else np.zeros(0, dtype=np.int64)
        union = Allocation(nodes, np.concatenate([held.devices, added]))
        state.make_room_for(union)
        self._rehold(record, union)
        state.unclaim_beside(record, move.allocation)
        record.target, record.generation = move.allocation, move.generation
        record.phase, record.resized_ms = PHASE_STARTING, state.now_ms
        state.rows.table[JOB_PHASE, record.row] = PHASE_STARTING
        state.rows.table[JOB_GENERATION, record.row] = move.generation

    def accept_reserve(self, move: Reserve) -> None:
        """Devices are kept for a waiting job."""
        record = self.state.jobs[move.job]
        self.state.unclaim_beside(record, move.allocation)
        self.state.claim(record.row, move)

    def accept_cap(self, move: Cap) -> None:
        """A node's devices are limited in power."""
        if move.watts:
            self.state.caps[move.node] = move.watts
        else:
            self.state.caps.pop(move.node, None)


def _name_of(record: JobRecord) -> tuple[str, str]:
    return record.spec.user, record.spec.name
