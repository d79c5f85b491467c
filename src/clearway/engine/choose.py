"""Which running jobs make room for one that waits: the cheapest that are enough, and of these no more than needed.

All of it is tried on the tables, and taken back.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.budgets import Purse
from clearway.engine.limits import PROTECTED_KINDS, headroom_milli, within_limits
from clearway.engine.policy import PreemptMode
from clearway.engine.quota import may_reclaim
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    CLASS_LABELS,
    CLASS_MODELS,
    DEVICE_CLAIM,
    DEVICE_POOL,
    DEVICE_SHARE_FREE,
    JOB_CLASS,
    JOB_PRIORITY,
    JOB_QUEUE_PRIORITY,
    JOB_TENANT,
    NONE,
    POOL_MODEL,
    POOL_NODE,
)
from clearway.engine.trial import Trial
from clearway.engine.victims import Victim, Way, kept_part, rank_of
from clearway.model.allocation import Allocation
from clearway.model.units import MILLI

BUDGET_TRIES: Final = 8
"""Sets of victims that are looked at for one waiting job, where budgets do not allow the first."""

Found = tuple[list[Victim], Allocation]
"""Victims, and where the waiting job then goes."""


def choose_victims(
    trial: Trial, row: int, candidates: list[Victim], milder: Mapping[int, Victim], purse: Purse
) -> Found | None:
    """The victims that are needed, and where the job then goes; None when none are enough. The trial is as it was.

    milder: what some that leave could do instead, by row. Those that are needed must be within all budgets together;
    where the first that are found are not, the cheapest that exceeds one is left out, and others are sought.
    """
    candidates = [victim for victim in candidates if purse.allows(victim.record.spec.id)]
    for _ in range(BUDGET_TRIES):
        found = _cheapest(trial, row, candidates, milder)
        if found is None:
            return None
        beyond = _find_beyond(found[0], purse)
        if beyond is None:
            return found
        candidates = [victim for victim in candidates if victim is not beyond]
    return None


def _cheapest(trial: Trial, row: int, candidates: list[Victim], milder: Mapping[int, Victim]) -> Found | None:
    """Of two searches the one for which less is lost: what is cheapest by device is not where one who holds many leaves
    for one who needs few. Who only shrinks or moves keeps what is not needed."""
    found = _search(trial, row, candidates, milder)
    if trial.state.policy.preemption.mode is PreemptMode.ORDER:  # small jobs, and young ones, are those that go first
        return found
    if found is None or not any(victim.way is Way.EVICT for victim in found[0]):
        return found
    needed = trial.state.by_row[row].spec.request.device_milli * found[1].replicas
    if sum(_given_milli(victim) for victim in found[0]) <= needed:
        return found
    price = price_of(trial, found[0])
    by_loss = sorted(candidates, key=lambda victim: (*rank_of(trial.state, victim), victim.cost_device_ms))
    losses = accumulate(victim.cost_device_ms for victim in by_loss)
    cheaper = [victim for victim, loss in zip(by_loss, losses, strict=True) if loss < price[1]]
    other = _search(trial, row, cheaper, milder) if cheaper else None
    return other if other is not None and price_of(trial, other[0]) < price else found


def price_of(trial: Trial, victims: list[Victim]) -> tuple[tuple[int, int, int], int]:
    """The highest rank among them, and what is lost."""
    worst = max((rank_of(trial.state, victim) for victim in victims), default=(0, 0, 0))
    return worst, sum(victim.cost_device_ms for victim in victims)


def _given_milli(victim: Victim) -> int:
    return (held_by(victim).replicas - victim.keeps) * victim.record.spec.request.device_milli


def _search(trial: Trial, row: int, candidates: list[Victim], milder: Mapping[int, Victim]) -> Found | None:
    mark = trial.mark()
    chosen = _enough_victims(trial, row, candidates)
    trial.undo_to(mark)
    if chosen is None:
        return None
    found = _minimal(trial, row, chosen, milder)
    trial.undo_to(mark)
    return found


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
    mark = trial.mark()
    left: list[Victim] = candidates
    while left:
        later: list[Victim] = []
        for victim in left:
            if len(chosen) == settings.victims_max:
                trial.undo_to(mark)
                return _enough_on_nodes(trial, row, candidates)
            if victim.is_reclaim and not _may_still_reclaim(trial, row, victim):
                later.append(victim)
                continue
            let_go(trial, victim)
            chosen.append(victim)
            if place_whole(trial, row) is not None:
                return chosen
        # Its tenant may have a right to more once jobs of its own have left.
        left = later if len(later) < len(left) else []
    return None


def _enough_on_nodes(trial: Trial, row: int, candidates: list[Victim]) -> list[Victim] | None:
    """As `_enough_victims`, where the cheapest lie scattered: node after node is emptied, as far as one replica needs,
    that for which the least is lost first."""
    mark, chosen = trial.mark(), dict[int, Victim]()
    for victims in _by_node(trial, row, candidates):
        for victim in victims:
            if victim.record.row in chosen or (victim.is_reclaim and not _may_still_reclaim(trial, row, victim)):
                continue
            let_go(trial, victim)
            chosen[victim.record.row] = victim
        allocation = place_whole(trial, row)
        if allocation is None:
            continue
        trial.undo_to(mark)
        there = [one for one in chosen.values() if np.isin(held_by(one).nodes, allocation.nodes).any()]
        for victim in there:
            let_go(trial, victim)
        return there if len(there) <= trial.state.policy.preemption.victims_max and place_whole(trial, row) else None
    return None


def _by_node(trial: Trial, row: int, candidates: list[Victim]) -> list[list[Victim]]:
    """Of each node where the job may lie, the first candidates that are enough for one replica; the cheapest first."""
    state = trial.state
    request, inventory = state.by_row[row].spec.request, state.inventory
    devices, pools = inventory.devices[:, : inventory.device_count], inventory.pools[:, : inventory.pool_count]
    suits = suitable_pools(state, row)
    is_free = suits[devices[DEVICE_POOL]] & (devices[DEVICE_CLAIM] == NONE)
    node_of = pools[POOL_NODE][devices[DEVICE_POOL]]
    free = np.bincount(node_of, np.where(is_free, devices[DEVICE_SHARE_FREE], 0), inventory.node_count)
    there: dict[int, list[Victim]] = {}
    given: dict[int, int] = {}
    suitable = set(pools[POOL_NODE][suits].tolist())
    for victim in candidates:
        for node in held_by(victim).nodes[victim.keeps :].tolist():
            if node not in suitable or free[node] + given.get(node, 0) >= request.device_milli:
                continue
            given[node] = given.get(node, 0) + victim.record.spec.request.device_milli
            victims = there.setdefault(node, [])
            if not victims or victims[-1] is not victim:
                victims.append(victim)
    place = {victim.record.row: index for index, victim in enumerate(candidates)}
    table = state.rows.table
    prices: list[tuple[tuple[int, int, int, int], int, int]] = []
    for node, victims in there.items():
        if free[node] + given[node] >= request.device_milli:
            last = max(victims, key=lambda one: place[one.record.row])
            is_evicted = last.way is Way.EVICT
            rank = table[[JOB_QUEUE_PRIORITY, JOB_PRIORITY], last.record.row].tolist() if is_evicted else [0, 0]
            prices.append(((int(last.way), *rank, sum(one.cost_device_ms for one in victims)), len(victims), node))
    return [there[node] for _, _, node in sorted(prices)]


def suitable_pools(state: ClusterState, row: int) -> NDArray[np.bool_]:
    """bool[pools]: those of whose devices the job may have some, by their model and by the labels of their node."""
    inventory = state.inventory
    pools = inventory.pools[:, : inventory.pool_count]
    labels, models = state.classes.table[[CLASS_LABELS, CLASS_MODELS], state.rows.table[JOB_CLASS, row]].tolist()
    suits: NDArray[np.bool_] = (models >> np.maximum(pools[POOL_MODEL], 0)) & 1 == 1
    suits &= inventory.eligibility.table[labels, pools[POOL_NODE]] == 1
    return suits


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


def let_go(trial: Trial, victim: Victim) -> None:
    """On trial: the victim holds only what it keeps."""
    record = victim.record
    assert record.allocation is not None
    trial.let_go(record.row, record.allocation)
    if victim.keeps:
        kept = kept_part(record.allocation, victim.keeps, record.spec.request.devices)
        trial.hold(record.row, kept)
    elif victim.way is Way.MIGRATE:
        count_elsewhere(trial, victim)


def count_elsewhere(trial: Trial, victim: Victim) -> None:
    """On trial: a victim that moves holds as much as before, so that limits see no difference."""
    trial.count(victim.record.row, held_by(victim).replicas * victim.record.spec.request.device_milli, jobs=1)


def place_whole(trial: Trial, row: int) -> Allocation | None:
    """Where the waiting job would go now with its least replicas, quota, queue limits and headroom respected."""
    state = trial.state
    spec = state.by_row[row].spec
    replicas = state.policy.least_replicas(spec)
    if not within_limits(state, row, replicas * spec.request.device_milli):
        return None
    if not spec.request.is_fractional and not _leaves_free(trial, row, replicas * spec.request.devices):
        return None
    allocation = trial.place(row, replicas)
    return allocation if allocation is not None and leaves_headroom(trial, row, allocation) else None


def leaves_headroom(trial: Trial, row: int, allocation: Allocation) -> bool:
    """Whether as many devices stay wholly free as the policy keeps, if the job has these."""
    free = trial.state.inventory.devices[DEVICE_SHARE_FREE, allocation.devices] == MILLI
    return _leaves_free(trial, row, len(np.unique(allocation.devices[free])))


def _leaves_free(trial: Trial, row: int, devices: int) -> bool:
    kept = headroom_milli(trial.state)
    if kept == 0 or devices == 0 or trial.state.by_row[row].spec.kind in PROTECTED_KINDS:
        return True
    return MILLI * (int(trial.state.inventory.totals[-1]) - devices) >= kept


def _minimal(
    trial: Trial, row: int, chosen: list[Victim], milder: Mapping[int, Victim]
) -> tuple[list[Victim], Allocation]:
    """The chosen without those that are not needed, the dearest left out first; and where the job then goes. Of those
    that are, whoever can does what is `milder`."""
    needed = sorted(chosen, key=lambda victim: (-int(victim.way), -victim.cost_device_ms, -victim.record.spec.id))
    mark = trial.mark()
    for victim in tuple(needed):
        fewer = [other for other in needed if other is not victim]
        mild = milder.get(victim.record.row)
        for instead in (fewer, [*fewer, mild]) if mild is not None and mild is not victim else (fewer,):
            fits = place_whole(trial, row) if _let_all_go(trial, row, instead) else None
            trial.undo_to(mark)
            if fits is not None:
                needed = instead
                break
    for victim in needed:
        let_go(trial, victim)
    allocation = place_whole(trial, row)
    assert allocation is not None
    return needed, allocation


def _let_all_go(trial: Trial, row: int, victims: list[Victim]) -> bool:
    """On trial; whether by right: those who leave only because their tenant borrows do so last."""
    for victim in sorted(victims, key=lambda one: one.is_reclaim):
        if victim.is_reclaim and not _may_still_reclaim(trial, row, victim):
            return False
        let_go(trial, victim)
    return True


def held_by(victim: Victim) -> Allocation:
    """What the victim holds now."""
    assert victim.record.allocation is not None
    return victim.record.allocation
