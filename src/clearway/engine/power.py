"""Step 10 of the cycle: what all devices draw together stays within the site's power budget (`model.power`).

Where the full draw would pass the budget, nodes are capped: step by step down `CURVE`, always the step that loses least
speed for the watts that it saves, so that what is used is slowed before anything has to wait. A move that takes more
devices is only made if the budget holds with everything that is used at its floor; else it waits with reason POWER.

What waits for power is not starved: a later job may pass only if it is expected to end before the one that waits could
have its watts (as EASY does with devices), and under a strict policy none may. What would not fit on an idle cluster
holds nobody up. A reservation of devices is one of watts too (`power_ahead`): it begins when both are there, and later
jobs leave it both. Nothing is stopped for power. Without a budget none of this is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import (
    LINK_COUNT,
    LINK_NEXT,
    LINK_POOL,
    META_RESERVATIONS,
    RES_END,
    RES_JOB,
    RES_LINK,
    RES_START,
    RUNNING_END,
    RUNNING_ROW,
)
from clearway.engine.budgets import is_leaving
from clearway.engine.power_ahead import WattsAhead, foresee_watts
from clearway.engine.reasons import REASON_POWER, REASON_PRIORITY
from clearway.engine.reserve import OVERDUE_MIN_MS
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARERS,
    JOB_PLANNED_MS,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_SAVED_MS,
    JOB_START_MS,
    JOB_WATTS_MS,
    NONE,
    POOL_DEVICE_BEGIN,
    POOL_NODE,
    POOL_SPEED_PPM,
    POOL_WATTS,
)
from clearway.model.ids import JobId
from clearway.model.plan import Cap, Migrate, Move, Reserve, Resize, Start, Stop, Suspend, job_served
from clearway.model.power import CURVE, FLOOR_PERCENT, IDLE_PERCENT
from clearway.model.units import FOREVER_MS

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LEVELS: Final = np.array([percent for percent, _ in reversed(CURVE)], dtype=np.int64)
"""Caps in per cent of a node's largest `watts_max`, from none (100) down to the floor."""


class PowerAccount:
    """Watts of the devices of one state box, as it is when this is made.

    used: bool[devices]. least: int64[devices], watts in use at the floor of its node. idle: int64[devices].
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        inventory = state.inventory
        self.pools = inventory.pools[:, : inventory.pool_count]
        devices = inventory.devices[:, : inventory.device_count]
        self.pool = devices[DEVICE_POOL]
        watts = self.pools[POOL_WATTS]
        self.node_watts: IntArray = np.zeros(inventory.node_count, dtype=np.int64)
        np.maximum.at(self.node_watts, self.pools[POOL_NODE], watts)
        floors = _part(self.node_watts, FLOOR_PERCENT)[self.pools[POOL_NODE]]
        self.least: IntArray = np.minimum(floors, watts)[self.pool]
        self.idle: IntArray = _part(watts, IDLE_PERCENT)[self.pool]
        self.sharers: IntArray = np.where(devices[DEVICE_OWNER] != NONE, 1, devices[DEVICE_SHARERS])
        self.used: BoolArray = self.sharers > 0

    def least_watts(self) -> int:
        """The draw of all devices if every used one were at its floor."""
        return int(np.where(self.used, self.least, self.idle).sum())

    def idle_watts(self) -> int:
        """The draw of all devices if none were used."""
        return int(self.idle.sum())

    def added_watts(self, devices: IntArray) -> int:
        """What the devices, each named once, draw more in use at their floor than idle."""
        return int((self.least - self.idle)[devices].sum())

    def decide_caps(self, budget: int) -> dict[int, int]:
        """Watts by node, of nodes that are to be capped; all at their floor where not even that is enough."""
        levels, used = _LevelTables(self), np.bincount(self.pool[self.used], minlength=self.pools.shape[1])
        too_much = int((used * self.pools[POOL_WATTS]).sum() + self.idle[~self.used].sum()) - budget
        if too_much <= 0:
            return {}
        node, level = levels.cheapest_steps(used, too_much)
        reached: IntArray = np.zeros(len(self.node_watts), dtype=np.int64)
        np.maximum.at(reached, node, level + 1)
        capped = np.flatnonzero(reached)
        return dict(zip(capped.tolist(), levels.caps[reached[capped], capped].tolist(), strict=True))


class _LevelTables:
    """caps: int64[levels, nodes]. watts, speed: [levels, pools] of one device in use, the speed times its model's."""

    def __init__(self, account: PowerAccount) -> None:
        self.pool_node = account.pools[POOL_NODE]
        self.caps: IntArray = _part(account.node_watts[None, :], LEVELS[:, None])
        most = account.pools[POOL_WATTS]
        self.watts: IntArray = np.minimum(self.caps[:, self.pool_node], most)
        percents, speeds = zip(*CURVE, strict=True)
        ratio = 100 * self.watts / np.maximum(most, 1)
        self.speed = np.interp(ratio, percents, speeds) * account.pools[POOL_SPEED_PPM]

    def cheapest_steps(self, used: IntArray, too_much: int) -> tuple[IntArray, IntArray]:
        """(nodes, levels left) of the steps down that together save `too_much` watts at the least loss of speed.

        Equal prices go by level, then node: the nodes of a gang, which runs as fast as its slowest, lie together.
        """
        saved, lost = (self._steps(used * one) for one in (self.watts, self.speed))
        price = np.maximum.accumulate(lost / np.maximum(saved, 1), axis=0)
        level, node = np.nonzero(saved)
        order = np.lexsort((node, level, price[level, node]))
        level, node = level[order], node[order]
        count = int(np.searchsorted(np.cumsum(saved[level, node]), too_much)) + 1
        return node[:count], level[:count]

    def _steps(self, by_pool: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[levels − 1, nodes]: by how much each step down lowers the sum over a node's pools."""
        nodes = self.caps.shape[1]
        by_node = np.array([np.bincount(self.pool_node, weights=line, minlength=nodes) for line in by_pool])
        steps: NDArray[np.float64] = by_node[:-1] - by_node[1:]
        return steps


def _part(watts: IntArray, percent: int | IntArray) -> IntArray:
    """So many per cent, rounded up."""
    return -(-watts * percent // 100)


def with_caps(state: ClusterState, moves: Sequence[Move], caps: dict[int, int]) -> list[Move]:
    """The moves, with what makes the caps of the nodes be `caps`."""
    lower: list[Move] = []
    higher: list[Move] = []
    for node in sorted(state.caps.keys() | caps.keys()):
        before, after = state.caps.get(node, 0), caps.get(node, 0)
        if before != after:
            (lower if after and (not before or after < before) else higher).append(Cap(node, after))
    return [*lower, *moves, *higher]


def _beneficiary(move: Move) -> JobId | None:
    return None if isinstance(move, Start) else job_served(move)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done about what a scan found. refused: rows of starts that do not pass. late: row → when a reserved
    start has its watts, later than its devices; FOREVER_MS where nobody knows."""

    refused: list[int]
    late: dict[int, int]


class PowerGate:
    """Lets moves pass, in order, as long as the budget holds. Made when the tables are as before the first move.

    What passes is used in the account from then on; JOB_REASON of a start that does not pass is written.
    """

    def __init__(self, state: ClusterState, budget: int) -> None:
        self.state, self.budget, self.account = state, budget, PowerAccount(state)
        self._left = budget - self.account.least_watts()
        self._left_when_idle = budget - self.account.idle_watts()
        self._turn: IntArray = np.full(state.rows.table.shape[1], NONE, dtype=np.int64)
        self._latest_end_ms: dict[int, int] = {}
        self._ahead = self._foresee()
        self._reserved = 0  # reservations whose watts are taken
        self._late: dict[int, int] = {}
        state.rows.table[JOB_WATTS_MS] = 0

    def _foresee(self) -> WattsAhead:
        """Watts over time with what holds devices now. A device is given back by the last that shares it."""
        state, account = self.state, self.account
        rows, ends_ms = state.running[[RUNNING_ROW, RUNNING_END], : len(state.holding_rows())]
        late_ms = state.now_ms + np.maximum(state.now_ms - state.rows.table[JOB_START_MS, rows], OVERDUE_MIN_MS)
        ends_ms = np.where(ends_ms > state.now_ms, ends_ms, late_ms)  # as `reserve.postpone_overdue` does
        back_ms: IntArray = np.where(account.used, NONE, FOREVER_MS)
        for row, end_ms in zip(rows.tolist(), ends_ms.tolist(), strict=True):
            allocation = state.by_row[row].allocation
            assert allocation is not None
            back_ms[allocation.devices] = np.maximum(back_ms[allocation.devices], end_ms)
        return foresee_watts(self._left, state.now_ms, account.least - account.idle, back_ms)

    def note_order(self, rows: IntArray) -> None:
        """Waiting jobs in the order in which they are looked at; others come before them."""
        self._turn[rows] = np.arange(len(rows))

    def let_through(self, moves: Sequence[Move]) -> list[Move]:
        """The moves that pass. Room is made for a job by all the moves that this takes, or by none."""
        kept, given_up = [], set()
        used = self.account.used.copy()
        self._reserved = 0
        for move in moves:
            if self._lets_claim(move, moves) if isinstance(move, Reserve) else self.lets(move):
                kept.append(move)
            else:
                given_up.add(_beneficiary(move))
        kept = [move for move in kept if (job := _beneficiary(move)) is None or job not in given_up]
        self.account.used = used  # what is not to be made needs no caps
        for move in kept:
            if isinstance(move, Start | Resize | Migrate):
                used[move.allocation.devices] = True
        return self._without_idle_claims(kept)

    def _without_idle_claims(self, moves: list[Move]) -> list[Move]:
        """Without claims on devices that nobody leaves any more, as those were to for a job that is refused."""
        leaving = {move.job for move in moves if isinstance(move, Stop | Suspend | Resize | Migrate)}
        return [move for move in moves if not isinstance(move, Reserve) or self._comes_free(move, leaving)]

    def _comes_free(self, claim: Reserve, leaving: set[JobId]) -> bool:
        owners = self.state.inventory.devices[DEVICE_OWNER, claim.allocation.devices]
        records = [self.state.by_row[row] for row in np.unique(owners[owners != NONE]).tolist()]
        return all(is_leaving(record) or record.spec.id in leaving for record in records)

    def _lets_claim(self, claim: Reserve, moves: Sequence[Move]) -> bool:
        """Whether the budget lets the claimant start once those have left who make room for it: else nobody leaves."""
        account = self.account
        claimed = np.unique(claim.allocation.devices)
        nothing = np.zeros(0, dtype=np.int64)
        left = [nothing]
        for move in moves:
            held = None if isinstance(move, Cap | Reserve | Start) else self.state.jobs[move.job].allocation
            if held is None or _beneficiary(move) != claim.job:
                continue
            kept = move.allocation.devices if isinstance(move, Resize | Migrate) else nothing
            left.append(np.setdiff1d(held.devices, kept))
        freed, counts = np.unique(np.concatenate(left), return_counts=True)
        freed = np.setdiff1d(freed[account.sharers[freed] <= counts], claimed)
        more = account.added_watts(claimed[~account.used[claimed]]) - account.added_watts(freed)
        if more > self._left:
            return False
        self._left -= max(more, 0)
        return True

    def judge(self, starts: Sequence[Start]) -> Verdict:
        """Which of those starts would not pass, and which reservations come too early. None passes yet."""
        left, used, ahead = self._left, self.account.used.copy(), self._ahead
        self._reserved, self._late = 0, {}
        refused = [self.state.jobs[move.job].row for move in starts if not self.lets(move)]
        self._reserve_before(FOREVER_MS)
        self._left, self.account.used, self._ahead = left, used, ahead
        return Verdict(refused, self._late)

    def postpone(self, late: dict[int, int]) -> None:
        """From now on no reservation of these rows begins before their watts are there."""
        for row, start_ms in late.items():
            self.state.rows.table[JOB_WATTS_MS, row] = start_ms

    def with_caps(self, moves: Sequence[Move]) -> list[Move]:
        """The moves that passed with the caps that they need: lower ones before, higher ones after them."""
        return with_caps(self.state, moves, self.account.decide_caps(self.budget))

    def lets(self, move: Move) -> bool:
        """Whether the move is to be made. One that was let through already is so again."""
        if not isinstance(move, Start | Resize | Migrate):
            return True
        devices = np.unique(move.allocation.devices)
        devices = devices[~self.account.used[devices]]
        added = self.account.added_watts(devices)
        row = self.state.jobs[move.job].row
        if added == 0 or (added <= self._left and self._may_pass(move, row, added)):
            self.account.used[devices] = True
            self._left -= added
            self._ahead = self._ahead.without(self.state.now_ms, self._end_ms(move, row), added)
            return True
        if isinstance(move, Start):
            self._wait(move, row, added)
        return False

    def _may_pass(self, move: Start | Resize | Migrate, row: int, added: int) -> bool:
        """Whether no job before it waits for watts that it would still have then. Nothing grows while a job waits."""
        if not isinstance(move, Start):
            return not self._latest_end_ms
        turn, end_ms = int(self._turn[row]), self._end_ms(move, row)
        self._reserve_before(turn)
        until_ms = [latest_ms for other, latest_ms in self._latest_end_ms.items() if other < turn]
        return (not until_ms or end_ms <= min(until_ms)) and self._ahead.has(end_ms, added)

    def _reserve_before(self, turn: int) -> None:
        """Take the watts of the reservations of jobs that come before this turn."""
        box, count = self.state.box, int(self.state.meta[META_RESERVATIONS])
        while self._reserved < count and self._turn[box.res[RES_JOB, self._reserved]] < turn:
            self._reserve(self._reserved)
            self._reserved += 1

    def _reserve(self, index: int) -> None:
        """Take the watts of a reservation, as soon as they are there for as long as it lasts."""
        row, start_ms, end_ms = self.state.box.res[[RES_JOB, RES_START, RES_END], index].tolist()
        needed = self._reserved_watts(index, row)
        if needed == 0:
            return
        run_ms = FOREVER_MS if end_ms >= FOREVER_MS else end_ms - start_ms
        from_ms = self._ahead.first_time(start_ms, run_ms, needed)
        if from_ms != start_ms:
            self._late[row] = FOREVER_MS if from_ms == NONE else from_ms
        if from_ms != NONE:
            self._ahead = self._ahead.without(from_ms, min(from_ms + run_ms, FOREVER_MS), needed)

    def _reserved_watts(self, index: int, row: int) -> int:
        """What the devices of a reservation draw more in use at their floor than idle. Of a pool, all devices are
        alike; shares are counted as devices that nobody else uses."""
        box, account, watts = self.state.box, self.account, 0
        devices = self.state.by_row[row].spec.request.devices
        link = int(box.res[RES_LINK, index]) if devices else NONE  # pools of nodes without devices have no first one
        while link != NONE:
            device = int(account.pools[POOL_DEVICE_BEGIN, box.links[LINK_POOL, link]])
            watts += int(box.links[LINK_COUNT, link]) * devices * int(account.least[device] - account.idle[device])
            link = int(box.links[LINK_NEXT, link])
        return watts

    def _end_ms(self, move: Start | Resize | Migrate, row: int) -> int:
        """When a start is expected to end; what runs already and moves may take as long as it likes."""
        table = self.state.rows.table
        planned = int(table[JOB_PLANNED_MS, row])
        if planned >= FOREVER_MS or not isinstance(move, Start):
            return FOREVER_MS
        left_ms = max(planned - int(table[JOB_SAVED_MS, row]), 1)
        return self.state.now_ms + -(-left_ms * int(table[JOB_REPLICAS, row]) // move.allocation.replicas)

    def _wait(self, move: Start, row: int, added: int) -> None:
        """The job waits, for power or for one that does, and nothing later passes that would keep it waiting."""
        reason = REASON_POWER if added > self._left else REASON_PRIORITY
        self.state.rows.table[JOB_REASON, row] = reason
        alone = self.account.added_watts(np.unique(move.allocation.devices))
        if reason != REASON_POWER or alone > self._left_when_idle:
            return
        until_ms = NONE
        if not self.state.policy.backfill.strict:
            run_ms = min(self._end_ms(move, row) - self.state.now_ms, FOREVER_MS)
            until_ms = self._ahead.first_time(self.state.now_ms, run_ms, added)
        self._latest_end_ms[int(self._turn[row])] = until_ms
        if until_ms != NONE:
            self._ahead = self._ahead.without(until_ms, min(until_ms + run_ms, FOREVER_MS), added)
