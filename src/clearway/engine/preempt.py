"""Step 8: make room for waiting jobs by the cheapest minimal set of victims (and step 7, where victims only move).

For each of the first waiting jobs: let candidates go, on trial, until the job fits; then give back, dearest first,
every one that is not needed. What is left is minimal: leave any one out and the job does not fit. The waiting job gets
a claim on its devices by name, so that nobody else takes them while the victims leave, and no two jobs evict each
other. A job that shrinks for one shrinks further for others that come behind it, in the same plan.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from clearway.engine.budgets import Purse
from clearway.engine.claims import is_claim_ready
from clearway.engine.limits import within_limits
from clearway.engine.quota import may_reclaim
from clearway.engine.reasons import (
    REASON_FRAGMENTATION,
    REASON_NEIGHBOURS,
    REASON_PRIORITY,
    REASON_QUOTA,
    REASON_RESERVED,
    REASON_RESOURCES,
    REASON_TOPOLOGY,
)
from clearway.engine.records import JobRecord
from clearway.engine.standing import is_fickle, leaving_jobs, may_stand
from clearway.engine.tables import JOB_CLAIMED, JOB_CLASS, JOB_REASON, JOB_TENANT
from clearway.engine.trial import Trial
from clearway.engine.victims import Victim, Way, find_victims, kept_part, nobody_gives
from clearway.model.allocation import Allocation
from clearway.model.ids import JobId
from clearway.model.jobs import StopCause
from clearway.model.plan import Migrate, Move, Reserve, Resize, Stop, Suspend

LOOKED_MAX: Final = 64
"""Waiting jobs looked at per cycle for whether room may be made for them."""

BUDGET_TRIES: Final = 8
"""Sets of victims that are looked at for one waiting job, where budgets do not allow the first."""

HELPED_REASONS: Final = (
    REASON_RESOURCES,
    REASON_FRAGMENTATION,
    REASON_TOPOLOGY,
    REASON_RESERVED,
    REASON_PRIORITY,
    REASON_QUOTA,
    REASON_NEIGHBOURS,
)
"""Reasons that victims can lift."""


def make_room(trial: Trial, started: frozenset[int], stopped: frozenset[int], tried: set[int]) -> list[Move]:
    """Moves that make room for waiting jobs; the trial is left with their effects on it.

    started: rows that this plan starts already. stopped: rows of running jobs that it tells to stop. tried: rows for
    which it was tried in vain since anything changed; those tried now are added.
    """
    state, settings = trial.state, trial.state.policy.preemption
    moves: list[Move] = []
    if state.order.count == 0 or nobody_gives(state):
        return moves
    touched, purse = set(stopped), Purse(state)
    for row in stopped:
        purse.pay(state.by_row[row].spec.id)
    shrunk: set[JobId] = set()
    helped = 0
    mark = trial.mark()
    trial.ignore_reservations()
    for row in state.order.waiting()[:LOOKED_MAX].tolist():
        if helped == settings.beneficiaries_max:
            break
        table = state.rows.table
        if (
            row in started
            or row in tried
            or table[JOB_CLAIMED, row] == 1
            or table[JOB_REASON, row] not in HELPED_REASONS
        ):
            continue
        tried.add(row)
        if _join(trial, row, shrunk, moves):
            continue
        moves.extend(_wait_for_leavers(trial, row) or _make_room_for(trial, row, touched, shrunk, purse))
        helped += 1
    if not moves:
        trial.undo_to(mark)
    return moves


def _join(trial: Trial, row: int, shrunk: set[JobId], moves: list[Move]) -> bool:
    """Let jobs that shrink for others shrink further for this one too, if it fits on what they can spare: a burst of
    equal tasks has its devices at once, not one by one. shrunk: those that `moves` resize, which are made smaller."""
    if not shrunk:
        return False
    may_give = [one for one in find_victims(trial.state, row) if one.way is Way.SHRINK and one.record.spec.id in shrunk]
    mark = trial.mark()
    for victim in may_give:
        _let_go(trial, victim)
    allocation = _fits(trial, row)
    trial.undo_to(mark)
    if allocation is None:
        return False
    givers = {one.record.spec.id: one.record for one in may_give if _overlap(one.record, allocation)}
    if not givers:
        return False
    left = {move.job: move.allocation for move in moves if isinstance(move, Resize)}
    parts = {
        one.record.row: _untouched_part(left[one.record.spec.id], allocation, one.record.spec.request.devices)
        for one in may_give
    }
    if not _may_start(trial, row, may_give, parts, allocation):  # it wants more of them than devices
        return False
    _claim(trial, row, allocation)
    places = [place for place, move in enumerate(moves) if isinstance(move, Resize) and move.job in givers]
    for place in places:
        move = moves[place]
        assert isinstance(move, Resize)
        kept = _untouched_part(move.allocation, allocation, givers[move.job].spec.request.devices)
        moves[place] = replace(move, allocation=kept)
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


def _wait_for_leavers(trial: Trial, row: int) -> list[Move]:
    """A claim on what others leave already, for a job whose claim may have fallen while they did; [] = not enough."""
    state = trial.state
    leavers = leaving_jobs(state) if is_fickle(state.by_row[row].spec.request) else []
    if not leavers:
        return []
    mark = trial.mark()
    for record in leavers:
        if record.target is None and record.allocation is not None:
            trial.let_go(record.row, record.allocation)
    allocation = _fits(trial, row)
    trial.undo_to(mark)
    if allocation is None:
        return []
    _claim(trial, row, allocation)
    return [Reserve(state.by_row[row].spec.id, allocation, state.now_ms)]


def _make_room_for(trial: Trial, row: int, touched: set[int], shrunk: set[JobId], purse: Purse) -> list[Move]:
    """Moves that make room for one waiting job; empty, and the trial as it was, when none is allowed or enough. Victims
    are added to `touched`, and those that shrink to `shrunk`; budgets are paid from `purse`."""
    candidates = [victim for victim in find_victims(trial.state, row) if victim.record.row not in touched]
    mark = trial.mark()
    found = _choose_victims(trial, row, candidates, purse)
    if found is None:
        return []
    victims, allocation = found
    if not victims:  # only a reservation of others holds it back, and that stands
        return []
    moves = _leave(trial, row, victims, allocation)
    if moves is None:
        trial.undo_to(mark)
        return []
    touched.update(victim.record.row for victim in victims)
    for victim in victims:
        purse.pay(victim.record.spec.id)
    shrunk.update(move.job for move in moves if isinstance(move, Resize))
    return moves


def _choose_victims(
    trial: Trial, row: int, candidates: list[Victim], purse: Purse
) -> tuple[list[Victim], Allocation] | None:
    """The victims that are needed, and where the job then goes; None when none are enough. The trial is as it was.

    Those that are needed must be within all budgets together; where the first that are found are not, the cheapest that
    exceeds one is left out, and others are sought.
    """
    mark = trial.mark()
    candidates = [victim for victim in candidates if purse.allows(victim.record.spec.id)]
    for _ in range(BUDGET_TRIES):
        chosen = _enough_victims(trial, row, candidates)
        trial.undo_to(mark)
        if chosen is None:
            return None
        found = _minimal(trial, row, chosen)
        trial.undo_to(mark)
        beyond = _find_beyond(found[0], purse)
        if beyond is None:
            return found
        candidates = [victim for victim in candidates if victim is not beyond]
    return None


def _find_beyond(victims: list[Victim], purse: Purse) -> Victim | None:
    """The first of these that its budgets do not let leave beside those before it; None = all may."""
    beyond = None
    for count, victim in enumerate(victims):
        if not purse.allows(victim.record.spec.id):
            beyond, victims = victim, victims[:count]
            break
        purse.pay(victim.record.spec.id)
    for victim in victims:
        purse.pay_back(victim.record.spec.id)
    return beyond


def _enough_victims(trial: Trial, row: int, candidates: list[Victim]) -> list[Victim] | None:
    """The first candidates that are enough together, on trial; None when all are not, or too many are needed."""
    settings = trial.state.policy.preemption
    if not _could_ever_fit(trial, row, candidates):
        return None
    chosen: list[Victim] = []
    for victim in candidates:
        if len(chosen) == settings.victims_max:
            return None
        if victim.is_reclaim and not _may_still_reclaim(trial, row, victim):
            continue
        _let_go(trial, victim)
        chosen.append(victim)
        if _fits(trial, row) is not None:
            return chosen
    return None


def _could_ever_fit(trial: Trial, row: int, candidates: list[Victim]) -> bool:
    """A quick look at sums before anything is tried."""
    state = trial.state
    spec = state.by_row[row].spec
    needed = state.policy.least_replicas(spec) * spec.request.device_milli
    free = int(state.device_shares_free().sum())
    offered = 0
    for victim in candidates:
        assert victim.record.allocation is not None
        offered += (victim.record.allocation.replicas - victim.keeps) * victim.record.spec.request.device_milli
    return bool(candidates) and free + offered >= needed


def _may_still_reclaim(trial: Trial, row: int, victim: Victim) -> bool:
    state = trial.state
    spec = state.by_row[row].spec
    milli = state.policy.least_replicas(spec) * spec.request.device_milli
    mine = int(state.rows.table[JOB_TENANT, row])
    return bool(may_reclaim(state.accounts.tenants, mine, victim.record.tenant, milli))


def _let_go(trial: Trial, victim: Victim) -> None:
    """On trial: the victim holds only what it keeps."""
    record = victim.record
    assert record.allocation is not None
    trial.let_go(record.row, record.allocation)
    if victim.keeps:
        kept = kept_part(record.allocation, victim.keeps, record.spec.request.devices)
        trial.hold(record.row, kept)
    elif victim.way is Way.MIGRATE:
        _count_elsewhere(trial, victim)


def _count_elsewhere(trial: Trial, victim: Victim) -> None:
    """On trial: a victim that moves holds as much as before, so that limits see no difference."""
    trial.count(victim.record.row, _held(victim).replicas * victim.record.spec.request.device_milli, jobs=1)


def _fits(trial: Trial, row: int) -> Allocation | None:
    """Where the waiting job would go now with its least replicas, quota and queue limits respected."""
    state = trial.state
    spec = state.by_row[row].spec
    replicas = state.policy.least_replicas(spec)
    if not within_limits(state, row, replicas * spec.request.device_milli):
        return None
    return trial.place(row, replicas)


def _minimal(trial: Trial, row: int, chosen: list[Victim]) -> tuple[list[Victim], Allocation]:
    """The chosen without those that are not needed, the dearest left out first; and where the job then goes."""
    needed = sorted(chosen, key=lambda victim: (-int(victim.way), -victim.cost_device_ms, -victim.record.spec.id))
    mark = trial.mark()
    for victim in tuple(needed):
        fewer = [other for other in needed if other is not victim]
        for other in fewer:
            _let_go(trial, other)
        fits = _fits(trial, row)
        trial.undo_to(mark)
        if fits is not None:
            needed = fewer
    for victim in needed:
        _let_go(trial, victim)
    allocation = _fits(trial, row)
    assert allocation is not None
    return needed, allocation


def _leave(trial: Trial, row: int, victims: list[Victim], allocation: Allocation) -> list[Move] | None:
    """How each victim makes room, as moves, with the claim of the waiting job first; None when one that may only move
    has nowhere to go."""
    state = trial.state
    beneficiary = state.by_row[row].spec.id
    kept = _parts_kept(trial, row, victims, allocation)
    movable = _may_move(trial, row, victims, kept, allocation)
    _claim(trial, row, allocation)
    moves: list[Move] = [Reserve(beneficiary, allocation, state.now_ms)]
    for victim in sorted(victims, key=lambda one: one.record.spec.id):
        move = _leave_one(trial, row, victim, kept, movable)
        if move is None:
            return None
        moves.append(move)
    return moves


def _parts_kept(trial: Trial, row: int, victims: list[Victim], claimed: Allocation) -> dict[int, Allocation]:
    """What each victim that shrinks keeps, by row: of its replicas that are not claimed as many, from the first on, as
    let the waiting job start. It may want more of it than devices: CPUs, memory, a node for itself, quota."""
    shrinking = [victim for victim in victims if victim.way is Way.SHRINK]
    rests = [_untouched_part(_held(one), claimed, one.record.spec.request.devices) for one in shrinking]
    kept = {one.record.row: _first(one, rest, one.keeps) for one, rest in zip(shrinking, rests, strict=True)}
    for victim, rest in zip(shrinking, rests, strict=True):
        mine, least = victim.record.row, victim.keeps
        most = count = min(rest.replicas, _held(victim).replicas - 1)
        while least < most:
            kept[mine] = _first(victim, rest, count)
            if _may_start(trial, row, victims, kept, claimed):
                least = count
            else:
                most = count - 1
            count = (least + most + 1) // 2
        kept[mine] = _first(victim, rest, least)
    return kept


def _held(victim: Victim) -> Allocation:
    assert victim.record.allocation is not None
    return victim.record.allocation


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
        trial.let_go(victim.record.row, _held(victim))
        if victim.record.row in kept:
            trial.hold(victim.record.row, kept[victim.record.row])
        elif victim.way is Way.MIGRATE or victim.record.row in movable:
            _count_elsewhere(trial, victim)
    milli = claimed.replicas * state.by_row[row].spec.request.device_milli
    may = within_limits(state, row, milli)
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


def _leave_one(
    trial: Trial, row: int, victim: Victim, kept: Mapping[int, Allocation], movable: Collection[int]
) -> Move | None:
    state, record = trial.state, victim.record
    spec, held = record.spec, record.allocation
    assert held is not None
    beneficiary = state.by_row[row].spec.id
    if victim.way is Way.SHRINK:
        return Resize(spec.id, record.generation + 1, kept[record.row], beneficiary)
    if state.policy.preemption.migrate and record.row in movable:
        target = trial.place(record.row, held.replicas)
        if target is not None and not np.isin(target.devices, held.devices).any():
            trial.claim(record.row, target)
            return Migrate(spec.id, record.generation + 1, target, beneficiary)
    if victim.way is Way.MIGRATE:
        return None
    if spec.suspendable and state.policy.preemption.suspend:
        return Suspend(spec.id, record.generation, beneficiary)
    grace_ms = 0 if spec.checkpoint is None else spec.checkpoint.grace_ms
    return Stop(spec.id, record.generation, grace_ms, StopCause.PREEMPTED, beneficiary)


def _untouched_part(held: Allocation, claimed: Allocation, devices_per_replica: int) -> Allocation:
    """The replicas of an allocation on none of whose devices there is a claim."""
    by_replica = held.devices.reshape(-1, devices_per_replica)
    keeps = ~np.isin(by_replica, claimed.devices).any(axis=1)
    return Allocation(held.nodes[keeps], by_replica[keeps].reshape(-1))
