"""Claims: devices kept by name for a waiting job while others still leave them.

A claimed device that is free goes to nobody else; one that is busy goes to the claimant when it is left. CPUs and
memory of the claim are taken from the node at once; what is free there may be negative until the leavers have left.
"""

import numpy as np

from clearway.engine.box import Box, Door, open_box
from clearway.engine.compiled import compiled, compiled_inline
from clearway.engine.neighbours import count_neighbours
from clearway.engine.place import refresh_device, share_memory
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICE_MEM,
    CLASS_EXCLUSIVE,
    CLASS_MEM,
    CLASS_SHARE,
    CLASS_SOCIAL,
    DEVICE_CLAIM,
    DEVICE_HEALTHY,
    DEVICE_MEM_FREE,
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARE_FREE,
    NODE_CLAIMS,
    NODE_CLAIMS_ALONE,
    NODE_CPU_FREE,
    NODE_EXCLUSIVE,
    NODE_HOLDERS,
    NODE_MEM_FREE,
    NODE_USABLE,
    NONE,
    POOL_DEVICE_MEM,
)


@compiled
def claim_entry(cls: int, row: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door) -> None:
    """Keep these devices, CPUs and memory for job `row`."""
    box = open_box(door)
    for replica in range(len(at_nodes)):
        reserve_node(box, cls, at_nodes[replica], 1)
    for index in range(len(at_devices)):
        box.devices[DEVICE_CLAIM, at_devices[index]] = row
        refresh_device(box, at_devices[index])


@compiled
def unclaim_entry(cls: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door) -> None:
    """The inverse of `claim_entry`."""
    box = open_box(door)
    for replica in range(len(at_nodes)):
        reserve_node(box, cls, at_nodes[replica], -1)
    for index in range(len(at_devices)):
        box.devices[DEVICE_CLAIM, at_devices[index]] = NONE
        refresh_device(box, at_devices[index])


@compiled_inline
def reserve_node(box: Box, cls: int, node: int, count: int) -> None:
    """Take CPUs and memory of a replica on a node, and note that it will come; a negative count gives them back."""
    box.nodes[NODE_CPU_FREE, node] -= count * box.classes[CLASS_CPU, cls]
    box.nodes[NODE_MEM_FREE, node] -= count * box.classes[CLASS_MEM, cls]
    box.nodes[NODE_CLAIMS, node] += count
    box.nodes[NODE_CLAIMS_ALONE, node] += count * box.classes[CLASS_EXCLUSIVE, cls]
    if box.classes[CLASS_SOCIAL, cls] == 1:
        count_neighbours(box, cls, node, count)


@compiled
def is_claim_ready(cls: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door) -> bool:
    """Whether all that is claimed has been left, so that the claimant can start."""
    box = open_box(door)
    for replica in range(len(at_nodes)):
        node = at_nodes[replica]
        if (
            box.nodes[NODE_USABLE, node] == 0
            or box.nodes[NODE_CPU_FREE, node] < 0
            or box.nodes[NODE_MEM_FREE, node] < 0
        ):
            return False
        if box.nodes[NODE_HOLDERS, node] > 0 and (
            box.nodes[NODE_EXCLUSIVE, node] == 1 or box.classes[CLASS_EXCLUSIVE, cls] == 1
        ):
            return False
    left = 0
    while left < len(at_devices) and is_device_left(box, cls, at_devices, left):
        left += 1
    return left == len(at_devices)


@compiled_inline
def is_device_left(box: Box, cls: int, at_devices: np.ndarray, index: int) -> bool:
    """Whether one claimed device has room for all that the claim wants of it (a gang may want several shares)."""
    device = at_devices[index]
    share = box.classes[CLASS_SHARE, cls]
    if box.devices[DEVICE_HEALTHY, device] == 0 or box.devices[DEVICE_OWNER, device] != NONE:
        return False
    if share == 1000:
        return box.devices[DEVICE_SHARE_FREE, device] == 1000
    count = 0
    for other in range(len(at_devices)):
        if at_devices[other] == device:
            count += 1
    if box.devices[DEVICE_SHARE_FREE, device] < count * share:
        return False
    device_mem = box.pools[POOL_DEVICE_MEM, box.devices[DEVICE_POOL, device]]
    wanted = share_memory(box.classes[CLASS_DEVICE_MEM, cls], share, device_mem)
    return device_mem == 0 or box.devices[DEVICE_MEM_FREE, device] >= count * wanted
