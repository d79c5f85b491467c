"""Step 8: make room for waiting jobs by the cheapest minimal set of victims (and step 7, where victims only move).

For each of the first waiting jobs: let candidates go, on trial, until the job fits; then give back, dearest first,
every one that is not needed. What is left is minimal: leave any one out and the job does not fit. The waiting job gets
a claim on its devices by name, so that nobody else takes them while the victims leave, and no two jobs evict each
other. A job that shrinks for one shrinks further for others that come behind it, in the same plan.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import META_RESERVATIONS, RES_JOB, RES_START
from clearway.engine.budgets import Purse
from clearway.engine.choose import (
    choose_victims,
    count_elsewhere,
    held_by,
    leaves_headroom,
    let_go,
    place_whole,
    price_of,
)
from clearway.engine.claims import is_claim_ready
from clearway.engine.leavers import let_leave, stay, take_over
from clearway.engine.limits import within_limits
from clearway.engine.policy import PreemptMode
from clearway.engine.reasons import (
    REASON_FRAGMENTATION,
    REASON_HEADROOM,
    REASON_NEIGHBOURS,
    REASON_PRIORITY,
    REASON_QUEUE_LIMIT,
    REASON_QUOTA,
    REASON_RESERVED,
    REASON_RESOURCES,
    REASON_TOPOLOGY,
)
from clearway.engine.records import JobRecord
from clearway.engine.standing import is_fickle, leaving_jobs, may_stand
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    DEVICE_POOL,
    JOB_CLAIMED,
    JOB_CLASS,
    JOB_END_MS,
    JOB_PLANNED_MS,
    JOB_PREFERRED,
    JOB_PRIORITY,
    JOB_QUEUE,
    JOB_QUEUE_PRIORITY,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_REPLICAS_MIN,
    JOB_SAVED_MS,
    JOB_TENANT,
    JOB_WIDEST,
)
from clearway.engine.trial import Trial
from clearway.engine.victims import (
    RANK_STEP,
    IntArray,
    Victim,
    Way,
    belongs_to_others,
    find_victims,
    kept_part,
    nobody_gives,
    ranks_behind,
    running_candidates,
)
from clearway.model.allocation import Allocation
from clearway.model.ids import JobId
from clearway.model.jobs import StopCause
from clearway.model.plan import Migrate, Move, Reserve, Resize, Start, Stop, Suspend
from clearway.model.units import FOREVER_MS

WAITING_MAX: Final = 1024
"""Waiting jobs, the first of the order, of which some may be helped by a cycle."""

TRIES_MAX: Final = 16
"""Waiting jobs for which a cycle seeks victims; those equal to one for which there were none do not count."""

MOVE_TRIES: Final = 4
"""Sets of victims that are looked at for one waiting job, where one of them could only move and has nowhere to go."""

KIND: Final = np.array(
    (
        JOB_CLASS,
        JOB_TENANT,
        JOB_QUEUE,
        JOB_QUEUE_PRIORITY,
        JOB_PRIORITY,
        JOB_REPLICAS,
        JOB_REPLICAS_MIN,
        JOB_WIDEST,
        JOB_PREFERRED,
    )
)
"""What makes waiting jobs equal: what was tried in vain for one is so for those behind it."""

HELPED_REASONS: Final = (
    REASON_RESOURCES,
    REASON_FRAGMENTATION,
    REASON_TOPOLOGY,
    REASON_RESERVED,
    REASON_PRIORITY,
    REASON_QUOTA,
    REASON_NEIGHBOURS,
)
"""Reasons that victims, or devices that come free, can lift."""

LIMITED_REASONS: Final = (REASON_QUEUE_LIMIT, REASON_HEADROOM)
"""Reasons that victims of a lower rank can lift; equal ones would only take turns."""


@dataclass(slots=True)
class Room:
    """What is done for waiting jobs. put_off: rows that the plan was to start, and does not. is_cut: whether some jobs
    for which victims may be sought were not looked at."""

    moves: list[Move] = field(default_factory=list)
    put_off: set[int] = field(default_factory=set)
    is_cut: bool = False


def make_room(
    trial: Trial,
    planned: Sequence[Move],
    started: frozenset[int],
    stopped: frozenset[int],
    tried: set[int],
    *,
    goes_on: bool = False,
) -> Room:
    """Moves that make room for waiting jobs; the trial is left with their effects on it.

    planned: moves of the plan of which starts may be put off. started: rows that the plan starts already. stopped: rows
    of running jobs that it tells to stop. tried: rows for which it was tried in vain since anything changed; those
    tried now are added. goes_on: nothing has changed since the cycle before, which was cut.
    """
    state, settings = trial.state, trial.state.policy.preemption
    room = Room()
    moves = room.moves
    if state.order.count == 0 or (nobody_gives(state) and not state.claims):
        return room
    touched, purse = set(stopped), Purse(state)
    for row in stopped:
        purse.pay(state.by_row[row].spec.id)
    shrunk: set[JobId] = set()
    mark = trial.mark()
    leavers = leaving_jobs(state)
    let_leave(trial, leavers)
    reserved = _reservations(trial)
    trial.ignore_reservations()
    waiting = _may_be_helped(state, started, tried, goes_on=goes_on)
    gone = set(started)
    helped = tries = 0
    while len(waiting) and helped < settings.beneficiaries_max and tries < TRIES_MAX:
        row, waiting = int(waiting[0]), waiting[1:]
        tried.add(row)
        before = [index for index, other in reserved if state.order.place(other) < state.order.place(row)]
        if _join(trial, row, shrunk, moves, before):
            continue
        made = _use_what_leaves(trial, row, leavers, gone, before) if leavers else None
        if made is None:
            made = _make_room_for(trial, row, leavers, touched, shrunk, purse, before)
            if made is None and (later := _later_starts(state, row, planned, room.put_off)):
                made = _put_off(trial, row, later, leavers, gone, touched, shrunk, purse, before)
                room.put_off.update(later if made else ())
            if not made and state.by_row[row].spec.preempts and not shrunk:
                waiting = _without_equals(state, row, waiting, tried)
        tries += 1
        if made:
            helped += 1
            moves.extend(made)
            reserved = [one for one in reserved if one[1] != row]
    room.is_cut = len(waiting) > 0 and not helped
    if not moves:
        trial.undo_to(mark)
    return room


def _without_equals(state: ClusterState, row: int, waiting: IntArray, tried: set[int]) -> IntArray:
    """Those that wait without the ones that are equal to the job for which it was tried in vain."""
    kinds = state.rows.table[KIND[:, None], waiting]
    equal = (kinds == state.rows.table[KIND, row][:, None]).all(axis=0)
    tried.update(waiting[equal].tolist())
    others: IntArray = waiting[~equal]
    return others


def _put_off(
    trial: Trial,
    row: int,
    later: Mapping[int, Allocation],
    leavers: list[JobRecord],
    gone: set[int],
    touched: set[int],
    shrunk: set[JobId],
    purse: Purse,
    before: list[int],
) -> list[Move] | None:
    """`_make_room_for` without those starts, which the next cycle makes where they are in nobody's way."""
    begin = trial.mark()
    for other, allocation in later.items():
        trial.let_go(other, allocation)
    made = _use_what_leaves(trial, row, leavers, gone, before, claims=True)
    if made is None:
        made = _make_room_for(trial, row, leavers, touched, shrunk, purse, before)
    if not made:
        trial.undo_to(begin)
    return made


def _later_starts(
    state: ClusterState, row: int, planned: Sequence[Move], put_off: Collection[int]
) -> dict[int, Allocation]:
    """Of the starts those that the waiting job could undo at once, by rank, and that come after it in the order; by
    row. They pass it, as it needs victims besides what is free."""
    if state.policy.preemption.mode is not PreemptMode.PRIORITY or not state.by_row[row].spec.preempts:
        return {}
    by_row = {state.jobs[move.job].row: move.allocation for move in planned if isinstance(move, Start)}
    free = [other for other in by_row if other not in put_off and other not in state.claims]
    rows = np.array(free, dtype=np.int64)
    rows = rows[ranks_behind(state, rows, row) & ~belongs_to_others(state, rows, row)]
    place = state.order.place(row)
    return {other: by_row[other] for other in rows.tolist() if state.order.place(other) > place}


def _may_be_helped(state: ClusterState, started: frozenset[int], tried: set[int], *, goes_on: bool) -> IntArray:
    """Rows of the first waiting jobs, in order, for which victims may be sought."""
    table = state.rows.table
    rows: IntArray = state.order.waiting()[:WAITING_MAX]
    is_limited = np.isin(table[JOB_REASON, rows], LIMITED_REASONS)
    if is_limited.any():
        givers = [*running_candidates(state).tolist(), *state.claims]
        ranks = table[JOB_QUEUE_PRIORITY] * RANK_STEP + table[JOB_PRIORITY]
        is_limited &= ranks[rows] > ranks[givers].min(initial=FOREVER_MS)
    is_helped = is_limited | np.isin(table[JOB_REASON, rows], HELPED_REASONS)
    rows = rows[is_helped & (table[JOB_CLAIMED, rows] == 0)]
    rows = rows[~np.isin(rows, list(started))]
    rows = rows[~(np.isin(rows, list(tried)) if goes_on else _need_not_ask(state, rows, tried))]
    return np.array([row for row in rows.tolist() if _may_ask(state, row)], dtype=np.int64)


def _need_not_ask(state: ClusterState, rows: IntArray, tried: set[int]) -> NDArray[np.bool_]:
    """bool[n]: which of the waiting jobs need not be asked for again. Of jobs that are equal, the first of the order is
    helped, not one that came since the others were tried."""
    was_tried: NDArray[np.bool_] = np.isin(rows, list(tried))
    if not was_tried.any() or was_tried.all():
        return was_tried
    kinds = state.rows.table[KIND[:, None], rows].T
    fresh = {tuple(kind) for kind in kinds[~was_tried].tolist()}
    return np.array([tuple(kind) not in fresh for kind in kinds.tolist()], dtype=np.bool_)


def _may_ask(state: ClusterState, row: int) -> bool:
    """Whether somebody may leave for the job, or what others leave already may be kept for it."""
    spec = state.by_row[row].spec
    return spec.preempts or is_fickle(spec.request)


def _join(trial: Trial, row: int, shrunk: set[JobId], moves: list[Move], before: list[int]) -> bool:
    """Let jobs that shrink for others shrink further for this one too, if it fits on what they can spare: a burst of
    equal tasks has its devices at once, not one by one. shrunk: those that `moves` resize, which are made smaller."""
    if not shrunk:
        return False
    may_give = [one for one in find_victims(trial.state, row) if one.way is Way.SHRINK and one.record.spec.id in shrunk]
    begin = trial.mark()
    _discount(trial, may_give, moves, back=True)
    mark = trial.mark()
    for victim in may_give:
        let_go(trial, victim)
    allocation = place_whole(trial, row)
    trial.undo_to(mark)
    if allocation is None or _delays(trial, row, may_give, allocation, before):
        trial.undo_to(begin)
        return False
    givers = {one.record.spec.id: one.record for one in may_give if _overlap(one.record, allocation)}
    left = {move.job: move.allocation for move in moves if isinstance(move, Resize)}
    parts = {
        one.record.row: _untouched_part(left[one.record.spec.id], allocation, one.record.spec.request.devices)
        for one in may_give
    }
    # It may want more of them than devices.
    if not givers or not _may_start(trial, row, may_give, parts, allocation):
        trial.undo_to(begin)
        return False
    places = [place for place, move in enumerate(moves) if isinstance(move, Resize) and move.job in givers]
    for place in places:
        move = moves[place]
        assert isinstance(move, Resize)
        kept = _untouched_part(move.allocation, allocation, givers[move.job].spec.request.devices)
        moves[place] = replace(move, allocation=kept)
    _discount(trial, may_give, moves)
    _claim(trial, row, allocation)
    moves.insert(places[0], Reserve(trial.state.by_row[row].spec.id, allocation, trial.state.now_ms))
    return True


def _overlap(record: JobRecord, allocation: Allocation) -> bool:
    """Whether some device of the allocation is held by the job."""
    assert record.allocation is not None
    return bool(np.isin(allocation.devices, record.allocation.devices).any())


def _claim(trial: Trial, row: int, allocation: Allocation) -> None:
    """On trial: the devices are kept for the job, and count against its limits, so that no more are kept than these let
    start."""
    trial.claim(row, allocation)
    trial.count(row, allocation.replicas * trial.state.by_row[row].spec.request.device_milli, jobs=1)


def _discount(trial: Trial, victims: list[Victim], moves: list[Move], *, back: bool = False) -> None:
    """On trial: what those victims give up counts against no limit any more; or, where it did not, counts again."""
    kept = {move.job: move.allocation.replicas for move in moves if isinstance(move, Resize | Migrate)}
    sign = 1 if back else -1
    for victim in victims:
        replicas = kept.get(victim.record.spec.id, 0)
        milli = (held_by(victim).replicas - replicas) * victim.record.spec.request.device_milli
        trial.count(victim.record.row, sign * milli, jobs=0 if replicas else sign)


def _use_what_leaves(
    trial: Trial, row: int, leavers: list[JobRecord], gone: set[int], before: list[int], *, claims: bool = False
) -> list[Move] | None:
    """Moves for a job for which nobody new must leave; the trial is left with what it will take. None = somebody must.

    It waits for those who leave already, without a claim: whoever then ranks first has what they leave. But it has a
    claim if others could forbid meanwhile what was found, and instead of jobs of lower rank for whom they leave. gone:
    rows whose claims are used up, or fell; those that fall now are added.
    """
    state, mark = trial.state, trial.mark()
    claims = claims or is_fickle(state.by_row[row].spec.request)
    fallen: list[int] = []
    allocation = place_whole(trial, row)
    if allocation is None and (found := take_over(trial, row, leavers, gone)) is not None:
        claims, (fallen, allocation) = True, found
    if allocation is None or _delays(trial, row, [], allocation, before):
        trial.undo_to(mark)
        return None
    gone.update(fallen)
    _claim(trial, row, allocation)
    return [Reserve(state.by_row[row].spec.id, allocation, state.now_ms)] if claims else []


def _reservations(trial: Trial) -> list[tuple[int, int]]:
    """(index, row) of what is reserved."""
    count = int(trial.state.meta[META_RESERVATIONS])
    return list(enumerate(trial.state.box.res[RES_JOB, :count].tolist()))


def _delays(trial: Trial, row: int, victims: list[Victim], allocation: Allocation, before: list[int]) -> bool:
    """Whether the job, lying there until it is expected to end, would take devices, CPUs or memory from a reservation
    of a job before it. What a victim would have held for as long anyway is not missed. If not, what it takes is not
    spare any more."""
    state, table = trial.state, trial.state.rows.table
    spec = state.by_row[row].spec
    planned = int(table[JOB_PLANNED_MS, row])
    end_ms = FOREVER_MS
    if planned < FOREVER_MS:
        left_ms = max(planned - int(table[JOB_SAVED_MS, row]), 1)
        end_ms = state.now_ms - (-left_ms * spec.replicas // allocation.replicas)
    taken = _footprint(state, row, allocation)
    changes: list[tuple[int, list[IntArray]]] = []
    for index in before:
        start_ms = int(state.box.res[RES_START, index])
        if end_ms <= start_ms:
            continue
        change = [-part for part in taken]
        for victim in victims:
            if table[JOB_END_MS, victim.record.row] > start_ms:
                held, devices = held_by(victim), victim.record.spec.request.devices
                given = Allocation(held.nodes[victim.keeps :], held.devices[victim.keeps * devices :])
                change = [a + b for a, b in zip(change, _footprint(state, victim.record.row, given), strict=True)]
        spare = trial.reserved(index)
        if any(((a > 0) & (b + c < 0)).any() for a, b, c in zip(taken, spare, change, strict=False)):
            return True
        changes.append((index, change))
    for index, change in changes:
        trial.change_reserved(index, change)
    return False


def _footprint(state: ClusterState, row: int, allocation: Allocation) -> list[IntArray]:
    """What an allocation of the job takes, as `Trial.reserved` has it."""
    request, inventory = state.by_row[row].spec.request, state.inventory
    pools = np.bincount(inventory.devices[DEVICE_POOL, allocation.devices], minlength=inventory.pool_count)
    nodes = np.bincount(allocation.nodes, minlength=inventory.node_count)
    return [pools * request.share_milli, nodes * request.cpu_milli, nodes * request.memory_bytes]


def _make_room_for(
    trial: Trial,
    row: int,
    leavers: list[JobRecord],
    touched: set[int],
    shrunk: set[JobId],
    purse: Purse,
    before: list[int],
) -> list[Move] | None:
    """Moves that make room for one waiting job; the trial is as it was where there are none: None = nobody's leaving
    would be allowed and enough, empty = it is not worth it. Victims are added to `touched`, and those that shrink to
    `shrunk`; budgets are paid from `purse`."""
    mark = trial.mark()
    stuck: set[int] = set()
    for _ in range(MOVE_TRIES):
        found = _choose(trial, row, touched | stuck, purse)
        if found is None:
            return None
        victims, allocation = found
        if not victims:  # only a reservation of others holds it back, and that stands
            return []
        if _delays(trial, row, victims, allocation, before):
            return []
        moves = _leave(trial, row, victims, allocation, leavers, before)
        if not isinstance(moves, Victim):
            break
        trial.undo_to(mark)
        stuck.add(moves.record.row)
    else:
        return None
    _discount(trial, victims, moves)
    touched.update(victim.record.row for victim in victims)
    for victim in victims:
        purse.pay(victim.record.spec.id)
    shrunk.update(move.job for move in moves if isinstance(move, Resize))
    return moves


def _choose(trial: Trial, row: int, untouched: set[int], purse: Purse) -> tuple[list[Victim], Allocation] | None:
    """As `choose_victims`, of all but those; what is more than they need first. If that is not enough, or somebody must
    leave even so, those that may be evicted leave, if they rank lower or lose less."""
    milder = _candidates(trial, row, untouched)
    found = choose_victims(trial, row, milder, {}, purse)
    shrinks = {victim.record.row: victim for victim in milder if victim.way is Way.SHRINK}
    if shrinks and (found is None or any(victim.way is Way.EVICT for victim in found[0])):
        harder = _candidates(trial, row, untouched, evicts=True)
        other = choose_victims(trial, row, harder, shrinks, purse)
        if found is None or (other is not None and price_of(trial, other[0]) < price_of(trial, found[0])):
            found = other
    return found


def _candidates(trial: Trial, row: int, touched: set[int], *, evicts: bool = False) -> list[Victim]:
    """Victims that may still be asked, see `find_victims`; of lower ranks, where a limit holds the job back."""
    found = [one for one in find_victims(trial.state, row, evicts=evicts) if one.record.row not in touched]
    table = trial.state.rows.table
    if table[JOB_REASON, row] not in LIMITED_REASONS:
        return found
    ranks = table[JOB_QUEUE_PRIORITY] * RANK_STEP + table[JOB_PRIORITY]
    return [victim for victim in found if ranks[victim.record.row] < ranks[row]]


def _leave(
    trial: Trial,
    row: int,
    victims: list[Victim],
    allocation: Allocation,
    leavers: list[JobRecord],
    before: list[int],
) -> list[Move] | Victim:
    """How each victim makes room, as moves, with the claim of the waiting job first; or one that may only move and has
    nowhere to go."""
    state = trial.state
    beneficiary = state.by_row[row].spec.id
    kept = _parts_kept(trial, row, victims, allocation)
    movable = _may_move(trial, row, victims, kept, allocation)
    _claim(trial, row, allocation)
    moves: list[Move] = [Reserve(beneficiary, allocation, state.now_ms)]
    for victim in sorted(victims, key=lambda one: one.record.spec.id):
        spec, generation = victim.record.spec, victim.record.generation
        if victim.way is Way.SHRINK:
            moves.append(Resize(spec.id, generation + 1, kept[victim.record.row], beneficiary))
            continue
        target = _target_of(trial, victim, leavers, before) if victim.record.row in movable else None
        if target is not None:
            moves.append(Migrate(spec.id, generation + 1, target, beneficiary))
        elif victim.way is Way.MIGRATE:
            return victim
        elif spec.suspendable and state.policy.preemption.suspend:
            moves.append(Suspend(spec.id, generation, beneficiary))
        else:
            grace_ms = 0 if spec.checkpoint is None else spec.checkpoint.grace_ms
            moves.append(Stop(spec.id, generation, grace_ms, StopCause.PREEMPTED, beneficiary))
    return moves


def _parts_kept(trial: Trial, row: int, victims: list[Victim], claimed: Allocation) -> dict[int, Allocation]:
    """What each victim that shrinks keeps, by row: of its replicas that are not claimed as many, from the first on, as
    let the waiting job start. It may want more of it than devices: CPUs, memory, a node for itself, quota."""
    shrinking = [victim for victim in victims if victim.way is Way.SHRINK]
    rests = [_untouched_part(held_by(one), claimed, one.record.spec.request.devices) for one in shrinking]
    kept = {one.record.row: _first(one, rest, one.keeps) for one, rest in zip(shrinking, rests, strict=True)}
    for victim, rest in zip(shrinking, rests, strict=True):
        mine, least = victim.record.row, victim.keeps
        most = count = min(rest.replicas, held_by(victim).replicas - 1)
        while least < most:
            kept[mine] = _first(victim, rest, count)
            if _may_start(trial, row, victims, kept, claimed):
                least = count
            else:
                most = count - 1
            count = (least + most + 1) // 2
        kept[mine] = _first(victim, rest, least)
    return kept


def _first(victim: Victim, part: Allocation, count: int) -> Allocation:
    return kept_part(part, count, victim.record.spec.request.devices)


def _may_start(
    trial: Trial,
    row: int,
    victims: list[Victim],
    kept: Mapping[int, Allocation],
    claimed: Allocation,
    movable: Collection[int] = (),
) -> bool:
    """Whether the waiting job could start where it is to, if the victims held only what they keep. movable: rows of
    those that hold as much elsewhere."""
    state, mark = trial.state, trial.mark()
    for victim in victims:
        trial.let_go(victim.record.row, held_by(victim))
        if victim.record.row in kept:
            trial.hold(victim.record.row, kept[victim.record.row])
        elif victim.way is Way.MIGRATE or victim.record.row in movable:
            count_elsewhere(trial, victim)
    milli = claimed.replicas * state.by_row[row].spec.request.device_milli
    may = within_limits(state, row, milli) and leaves_headroom(trial, row, claimed)
    if may:
        trial.claim(row, claimed)
        cls = int(state.rows.table[JOB_CLASS, row])
        may = bool(is_claim_ready(cls, claimed.nodes, claimed.devices, state.door)) and may_stand(state, row, claimed)
    trial.undo_to(mark)
    return may


def _may_move(
    trial: Trial, row: int, victims: list[Victim], kept: Mapping[int, Allocation], claimed: Allocation
) -> set[int]:
    """Rows of those victims that may move instead of leaving: limits let the waiting job start beside them."""
    movable: set[int] = set()
    if not trial.state.policy.preemption.migrate:
        return movable
    for victim in victims:
        spec = victim.record.spec
        if spec.checkpoint is None or spec.request.devices == 0 or spec.request.is_fractional:
            continue
        movable.add(victim.record.row)
        if victim.way is Way.EVICT and not _may_start(trial, row, victims, kept, claimed, movable):
            movable.remove(victim.record.row)
    return movable


def _target_of(trial: Trial, victim: Victim, leavers: list[JobRecord], before: list[int]) -> Allocation | None:
    """Where the victim moves to: free at once, headroom and reservations of jobs before the waiting one left whole, and
    apart from where it is; kept for it on trial. None = nowhere."""
    row, held = victim.record.row, held_by(victim)
    mark = trial.mark()
    stay(trial, leavers)
    target = trial.place(row, held.replicas)
    trial.undo_to(mark)
    if target is None or np.isin(target.devices, held.devices).any() or not leaves_headroom(trial, row, target):
        return None
    if _delays(trial, row, [], target, before):
        return None
    trial.claim(row, target)
    return target


def _untouched_part(held: Allocation, claimed: Allocation, devices_per_replica: int) -> Allocation:
    """The replicas of an allocation on none of whose devices there is a claim."""
    by_replica = held.devices.reshape(-1, devices_per_replica)
    keeps = ~np.isin(by_replica, claimed.devices).any(axis=1)
    return Allocation(held.nodes[keeps], by_replica[keeps].reshape(-1))
