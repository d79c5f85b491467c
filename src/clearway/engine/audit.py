"""The books of devices from the other side: what the devices say, against what jobs, pools and totals say.

Vectors over whole tables, and nothing of what changes them. For a box in which only whole devices are held and none is
kept by name, as behind a stretch.
"""

from typing import TYPE_CHECKING

import numpy as np

from clearway.engine.lifecycle import HOLDING
from clearway.engine.place import TOTAL_ANY
from clearway.engine.tables import (
    CLASS_DEVICES,
    DEVICE_HEALTHY,
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARE_FREE,
    JOB_CLASS,
    JOB_HELD,
    JOB_PHASE,
    NODE_CPU_FREE,
    NODE_MEM_FREE,
    NODE_USABLE,
    NONE,
    POOL_FREE,
    POOL_NODE,
)
from clearway.model.units import MILLI

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState


def audit_devices(state: "ClusterState") -> tuple[str, ...]:
    """What does not agree, one sentence each; empty when all does."""
    inventory, jobs = state.inventory, state.rows.table[:, : state.rows.count]
    devices = inventory.devices[:, : inventory.device_count]
    pools, nodes = inventory.pools[:, : inventory.pool_count], inventory.nodes[:, : inventory.node_count]
    owner = devices[DEVICE_OWNER]
    owned = owner != NONE
    free = np.bincount(devices[DEVICE_POOL, ~owned & (devices[DEVICE_HEALTHY] == 1)], minlength=pools.shape[1])
    usable = nodes[NODE_USABLE, pools[POOL_NODE]] == 1
    needed = jobs[JOB_HELD] * state.classes.table[CLASS_DEVICES, jobs[JOB_CLASS]]
    held = np.where(np.isin(jobs[JOB_PHASE], HOLDING), needed, 0)
    agrees = {
        "a device has an owner and is free": bool((devices[DEVICE_SHARE_FREE] == np.where(owned, 0, MILLI)).all()),
        "a job holds more or fewer devices than it should": np.array_equal(
            np.bincount(owner[owned], minlength=len(held)), held
        ),
        "a pool counts other devices as free": np.array_equal(free, pools[POOL_FREE]),
        "the total of free devices is another": int(free[usable].sum()) == int(inventory.totals[TOTAL_ANY]),
        "a node has given more CPUs or memory than it has": bool((nodes[[NODE_CPU_FREE, NODE_MEM_FREE]] >= 0).all()),
    }
    return tuple(fault for fault, is_true in agrees.items() if not is_true)
