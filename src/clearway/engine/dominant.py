"""Step 2 of the cycle under dominant-resource fairness: the waiting jobs, merged by their tenants' dominant shares.

Source: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011. Devices, CPUs and memory count; what nobody says the
amount of does not.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearway.engine.fairshare import USE_COLUMNS, USE_CPU, USE_DEVICES, USE_MEMORY, dominant_order
from clearway.engine.nodes import UNCOUNTED
from clearway.engine.order import SORT_QUEUE
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICES,
    CLASS_MEM,
    CLASS_SHARE,
    JOB_CLASS,
    JOB_HELD,
    JOB_REPLICAS,
    JOB_TENANT,
    NODE_CPU_TOTAL,
    NODE_MEM_TOTAL,
)

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

IntArray = NDArray[np.int64]


def rows_in_turn(state: "ClusterState") -> IntArray:
    """int64[n]: rows of the waiting jobs in the order in which a cycle looks at them.

    Under a dominant policy tenants are merged within each queue priority; a tenant's own jobs keep their order.
    """
    rows = state.order.waiting()
    if not state.policy.fair_share.dominant or len(rows) < 2:
        return rows
    table = state.rows.table
    running = state.holding_rows()
    held = np.zeros((USE_COLUMNS, state.accounts.tenant_count), dtype=np.int64)
    np.add.at(held.T, table[JOB_TENANT, running], _amounts(state, running, table[JOB_HELD, running]).T)
    demand = _amounts(state, rows, table[JOB_REPLICAS, rows])
    merged = dominant_order(state.accounts.tree(), table[JOB_TENANT, rows], demand, held, _capacity(state))
    in_turn: IntArray = rows[merged]
    by_queue: IntArray = in_turn[np.argsort(state.order.sort[SORT_QUEUE, in_turn], kind="stable")]
    return by_queue


def _amounts(state: "ClusterState", rows: IntArray, replicas: IntArray) -> IntArray:
    """int64[USE_COLUMNS, n]: what so many replicas of each job take."""
    classes = state.classes.table[:, state.rows.table[JOB_CLASS, rows]]
    amounts = np.zeros((USE_COLUMNS, len(rows)), dtype=np.int64)
    amounts[USE_DEVICES] = replicas * classes[CLASS_DEVICES] * classes[CLASS_SHARE]
    amounts[USE_CPU] = replicas * classes[CLASS_CPU]
    amounts[USE_MEMORY] = replicas * classes[CLASS_MEM]
    return amounts


def _capacity(state: "ClusterState") -> IntArray:
    """int64[USE_COLUMNS]: what the cluster has; 0 where some node does not say."""
    inventory = state.inventory
    capacity = np.zeros(USE_COLUMNS, dtype=np.int64)
    capacity[USE_DEVICES] = inventory.milli
    for column, total in ((USE_CPU, NODE_CPU_TOTAL), (USE_MEMORY, NODE_MEM_TOTAL)):
        amounts = inventory.nodes[total, : inventory.node_count]
        capacity[column] = 0 if (amounts >= UNCOUNTED).any() else amounts.sum()
    return capacity
