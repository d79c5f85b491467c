"""The checker's part about power: no plan caps a device below its floor, or takes the draw of all past the budget.

Works from the devices' tables and the moves alone, with code that the planner does not share. `model.power` is common
to both: it says what a watt is, not what to do about it.
"""

import numpy as np
from numpy.typing import NDArray

from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARERS,
    NODE_POOL_BEGIN,
    NODE_POOL_END,
    NONE,
    POOL_SIZE,
    POOL_WATTS,
)
from clearway.model.plan import Cap, Migrate, Plan, Resize, Start
from clearway.model.power import IDLE_PERCENT, floor_watts, used_watts


def check_power(state: ClusterState, plan: Plan) -> list[str]:
    """What is wrong with a plan's caps, and with the draw that it leads to; empty when nothing is."""
    inventory, notes = state.inventory, []
    caps = dict(state.caps)
    for move in plan.moves:
        if not isinstance(move, Cap):
            continue
        if not 0 <= move.node < inventory.node_count:
            return []  # told already
        lowest = max((floor_watts(group.watts_max) for group in inventory.specs[move.node].groups), default=0)
        if move.watts and (move.watts < lowest or not lowest):
            notes.append(f"node {move.node}: a cap of {move.watts} W, below the floor of {lowest} W")
        caps[move.node] = move.watts
    return notes or ([] if state.power_budget_watts is None else _check_draw(state, plan, caps))


def _check_draw(state: ClusterState, plan: Plan, caps: dict[int, int]) -> list[str]:
    """Whether the plan takes the draw past the budget, or further past it."""
    assert state.power_budget_watts is not None
    devices = state.inventory.devices[:, : state.inventory.device_count]
    is_used = (devices[DEVICE_OWNER] != NONE) | (devices[DEVICE_SHARERS] > 0)
    before = _draw(state, is_used, state.caps)
    draws = state.inventory.pools[POOL_WATTS, devices[DEVICE_POOL]] > 0
    count = int((is_used & draws).sum())
    for move in plan.moves:
        if isinstance(move, Start | Resize | Migrate):
            named = move.allocation.devices
            is_used[named[(named >= 0) & (named < len(is_used))]] = True
    after = _draw(state, is_used, caps)
    takes_more = int((is_used & draws).sum()) > count or after > before
    if after <= state.power_budget_watts or not takes_more:
        return []
    return [f"the devices would draw {after} W, of at most {state.power_budget_watts} W"]


def _draw(state: ClusterState, is_used: NDArray[np.bool_], caps: dict[int, int]) -> int:
    """Watts of all devices."""
    inventory = state.inventory
    pools = inventory.pools[:, : inventory.pool_count]
    used = np.bincount(inventory.devices[DEVICE_POOL, : len(is_used)][is_used], minlength=inventory.pool_count)
    total = 0
    for watts in np.unique(pools[POOL_WATTS]).tolist():
        alike = pools[POOL_WATTS] == watts
        sizes = int(pools[POOL_SIZE, alike].sum())
        idle = -(-watts * IDLE_PERCENT // 100)
        total += watts * int(used[alike].sum()) + idle * (sizes - int(used[alike].sum()))
    for node, cap in caps.items():
        for pool in range(*inventory.nodes[[NODE_POOL_BEGIN, NODE_POOL_END], node].tolist()):
            watts = int(pools[POOL_WATTS, pool])
            total -= int(used[pool]) * (watts - used_watts(watts, cap))
    return total
