"""Which nodes fit a request, which fit best, and taking and giving back devices: leaf functions over the tables.

Whole devices are bits of a pool's mask; shares are counted per device. `take` and `release` are exact inverses.
Nothing here decides *whether* a job may start; `scan` does.
"""

from typing import Final

import numpy as np

from clearway.engine.box import Box, Door, open_box
from clearway.engine.compiled import compiled, compiled_inline, compiled_inside
from clearway.engine.neighbours import count_neighbours
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICE_MEM,
    CLASS_DEVICES,
    CLASS_EXCLUSIVE,
    CLASS_LABELS,
    CLASS_MEM,
    CLASS_MODELS,
    CLASS_SHARE,
    CLASS_SOCIAL,
    DEVICE_CLAIM,
    DEVICE_HEALTHY,
    DEVICE_MEM_FREE,
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARE_FREE,
    DEVICE_SHARERS,
    NODE_CLAIMS,
    NODE_CLAIMS_ALONE,
    NODE_CPU_FREE,
    NODE_EXCLUSIVE,
    NODE_HOLDERS,
    NODE_MEM_FREE,
    NODE_POOL_BEGIN,
    NODE_POOL_END,
    NODE_USABLE,
    NONE,
    POOL_DEVICE_BEGIN,
    POOL_DEVICE_MEM,
    POOL_FREE,
    POOL_MASK,
    POOL_MODEL,
    POOL_NODE,
    POOL_NVLINK_SIZE,
    POOL_SHARED,
    POOL_SIZE,
)

TOTAL_ANY: Final = 62
"""Slot of `totals` that sums the wholly free, usable devices of every model; slots below are single models."""
TOTALS: Final = 63


@compiled_inline
def share_memory(class_mem: int, share: int, device_mem: int) -> int:
    """Bytes that a share takes of a device: what was asked, else in proportion, rounded up; 0 of unknown memory."""
    if device_mem == 0:
        return 0
    if class_mem > 0:
        return class_mem
    return (device_mem * share + 999) // 1000


@compiled_inline
def whole_parts(milli: int, each: int) -> int:
    """`milli // each`. Most replicas have one device, and by a known number a processor divides ten times as fast."""
    return milli // 1000 if each == 1000 else milli // each


@compiled_inline
def pool_allows(box: Box, cls: int, pool: int) -> bool:
    """Whether the class may use the pool at all: node usable, model, labels, device memory, exclusivity."""
    node = box.pools[POOL_NODE, pool]
    if box.nodes[NODE_USABLE, node] == 0 or box.eligible[box.classes[CLASS_LABELS, cls], node] == 0:
        return False
    if box.nodes[NODE_EXCLUSIVE, node] == 1 or box.nodes[NODE_CLAIMS_ALONE, node] > 0:
        return False
    if box.classes[CLASS_EXCLUSIVE, cls] == 1 and box.nodes[NODE_HOLDERS, node] + box.nodes[NODE_CLAIMS, node] > 0:
        return False
    return pool_suits(box, cls, pool)


@compiled_inline
def pool_suits(box: Box, cls: int, pool: int) -> bool:
    """Whether the pool's devices are of an allowed model with enough memory, whoever holds them."""
    if box.classes[CLASS_DEVICES, cls] == 0:
        return box.nodes[NODE_POOL_BEGIN, box.pools[POOL_NODE, pool]] == pool
    model = box.pools[POOL_MODEL, pool]
    if model < 0 or (box.classes[CLASS_MODELS, cls] >> model) & 1 == 0:
        return False
    memory = box.pools[POOL_DEVICE_MEM, pool]
    return memory == 0 or box.classes[CLASS_DEVICE_MEM, cls] <= memory


@compiled_inline
def replicas_by_node(box: Box, cls: int, node: int, most: int) -> int:
    """How many replicas, at most `most`, the CPUs and memory of the node leave room for."""
    cpu = box.classes[CLASS_CPU, cls]
    if cpu > 0:
        most = min(most, max(box.nodes[NODE_CPU_FREE, node], 0) // cpu)
    memory = box.classes[CLASS_MEM, cls]
    if memory > 0:
        most = min(most, max(box.nodes[NODE_MEM_FREE, node], 0) // memory)
    return most


@compiled_inline
def shares_on_device(box: Box, device: int, share: int, memory: int) -> int:
    """How many shares of this size a partly used device still takes; 0 for one that is whole, held, sick or claimed."""
    if box.devices[DEVICE_SHARERS, device] == 0 or box.devices[DEVICE_HEALTHY, device] == 0:
        return 0
    if box.devices[DEVICE_CLAIM, device] != NONE:
        return 0
    count = box.devices[DEVICE_SHARE_FREE, device] // share
    if memory > 0:
        count = min(count, box.devices[DEVICE_MEM_FREE, device] // memory)
    return count


@compiled_inline
def shares_on_pool(box: Box, cls: int, pool: int) -> int:
    """How many shares of the class fit on the pool's devices, partly used ones and whole ones together."""
    share = box.classes[CLASS_SHARE, cls]
    device_mem = box.pools[POOL_DEVICE_MEM, pool]
    memory = share_memory(box.classes[CLASS_DEVICE_MEM, cls], share, device_mem)
    each = 1000 // share
    if device_mem > 0 and memory > 0:
        each = min(each, device_mem // memory)
    count = box.pools[POOL_FREE, pool] * each
    if box.pools[POOL_SHARED, pool] > 0:
        begin = box.pools[POOL_DEVICE_BEGIN, pool]
        for device in range(begin, begin + box.pools[POOL_SIZE, pool]):
            count += shares_on_device(box, device, share, memory)
    return count


@compiled_inline
def pool_capacity(box: Box, cls: int, pool: int, most: int) -> int:
    """How many replicas of the class, at most `most`, can start on the pool now."""
    needed = box.classes[CLASS_DEVICES, cls]
    if needed > 0:
        if box.classes[CLASS_SHARE, cls] == 1000:
            if box.pools[POOL_FREE, pool] < needed:
                return 0
            most = min(most, box.pools[POOL_FREE, pool] if needed == 1 else box.pools[POOL_FREE, pool] // needed)
        elif box.pools[POOL_FREE, pool] == 0 and box.pools[POOL_SHARED, pool] == 0:
            return 0
    if not pool_allows(box, cls, pool):
        return 0
    if needed > 0 and box.classes[CLASS_SHARE, cls] < 1000:
        most = min(most, shares_on_pool(box, cls, pool))
    return replicas_by_node(box, cls, box.pools[POOL_NODE, pool], most)


@compiled_inline
def lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest set bits of `mask`."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


@compiled_inline
def count_bits(mask: int) -> int:
    """Number of set bits."""
    count = 0
    while mask != 0:
        mask &= mask - 1
        count += 1
    return count


@compiled_inline
def pick_bits(mask: int, count: int, size: int, group: int) -> int:
    """`count` bits of `mask`, inside the fullest NVLink group (of `group` devices) that has them, else the lowest."""
    if group >= size:
        return lowest_bits(mask, count)
    best = 0
    best_free = 1 << 30
    for begin in range(0, size, group):
        part = mask & (((1 << min(group, size - begin)) - 1) << begin)
        free = count_bits(part)
        if count <= free < best_free:
            best = part
            best_free = free
    if best_free < 1 << 30:
        return lowest_bits(best, count)
    return lowest_bits(mask, count)


@compiled_inline
def set_mask(box: Box, pool: int, mask: int) -> None:
    """Give the pool this mask of free devices and keep the counts beside it true."""
    free = count_bits(mask)
    change = free - box.pools[POOL_FREE, pool]
    box.pools[POOL_MASK, pool] = mask
    box.pools[POOL_FREE, pool] = free
    if change != 0 and box.nodes[NODE_USABLE, box.pools[POOL_NODE, pool]] == 1:
        box.totals[TOTAL_ANY] += change
        box.totals[box.pools[POOL_MODEL, pool]] += change


@compiled_inside
def set_usable(box: Box, node: int, usable: int) -> None:
    """Mark the node usable (1) or not (0); its free devices count only while it is."""
    if box.nodes[NODE_USABLE, node] == usable:
        return
    box.nodes[NODE_USABLE, node] = usable
    sign = 1 if usable == 1 else -1
    for pool in range(box.nodes[NODE_POOL_BEGIN, node], box.nodes[NODE_POOL_END, node]):
        if box.pools[POOL_FREE, pool] > 0:
            box.totals[TOTAL_ANY] += sign * box.pools[POOL_FREE, pool]
            box.totals[box.pools[POOL_MODEL, pool]] += sign * box.pools[POOL_FREE, pool]


@compiled_inline
def refresh_device(box: Box, device: int) -> None:
    """Set or clear the device's bit and its pool's count of shared devices from the device's own columns."""
    pool = box.devices[DEVICE_POOL, device]
    bit = 1 << (device - box.pools[POOL_DEVICE_BEGIN, pool])
    is_free = (
        box.devices[DEVICE_OWNER, device] == NONE
        and box.devices[DEVICE_SHARERS, device] == 0
        and box.devices[DEVICE_HEALTHY, device] == 1
        and box.devices[DEVICE_CLAIM, device] == NONE
    )
    mask = box.pools[POOL_MASK, pool]
    wanted = mask | bit if is_free else mask & ~bit
    if wanted != mask:
        set_mask(box, pool, wanted)


@compiled_inline
def take_node(box: Box, cls: int, node: int, count: int) -> None:
    """Take CPUs, memory and place of `count` replicas on a node; a negative count gives them back."""
    box.nodes[NODE_CPU_FREE, node] -= count * box.classes[CLASS_CPU, cls]
    box.nodes[NODE_MEM_FREE, node] -= count * box.classes[CLASS_MEM, cls]
    box.nodes[NODE_HOLDERS, node] += count
    if box.classes[CLASS_SOCIAL, cls] == 1:
        count_neighbours(box, cls, node, count)
    if box.classes[CLASS_EXCLUSIVE, cls] == 1:
        box.nodes[NODE_EXCLUSIVE, node] = 1 if box.nodes[NODE_HOLDERS, node] > 0 else 0


@compiled_inline
def take_share(box: Box, cls: int, device: int, count: int) -> None:
    """Take one share of the device (count 1) or give one back (count −1)."""
    pool = box.devices[DEVICE_POOL, device]
    share = box.classes[CLASS_SHARE, cls]
    memory = share_memory(box.classes[CLASS_DEVICE_MEM, cls], share, box.pools[POOL_DEVICE_MEM, pool])
    before = box.devices[DEVICE_SHARERS, device] > 0
    box.devices[DEVICE_SHARE_FREE, device] -= count * share
    box.devices[DEVICE_MEM_FREE, device] -= count * memory
    box.devices[DEVICE_SHARERS, device] += count
    after = box.devices[DEVICE_SHARERS, device] > 0
    if before != after:
        box.pools[POOL_SHARED, pool] += 1 if after else -1
        refresh_device(box, device)


@compiled_inside
def take(
    box: Box,
    cls: int,
    row: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> None:
    """Give the named devices, and CPUs and memory on the named nodes, to job `row`."""
    fractional = box.classes[CLASS_SHARE, cls] < 1000
    for replica in range(len(at_nodes)):
        take_node(box, cls, at_nodes[replica], 1)
    for index in range(len(at_devices)):
        device = at_devices[index]
        if fractional:
            take_share(box, cls, device, 1)
        else:
            box.devices[DEVICE_OWNER, device] = row
            box.devices[DEVICE_SHARE_FREE, device] = 0
            pool = box.devices[DEVICE_POOL, device]
            bit = 1 << (device - box.pools[POOL_DEVICE_BEGIN, pool])
            if box.pools[POOL_MASK, pool] & bit != 0:
                box.pools[POOL_MASK, pool] ^= bit
                box.pools[POOL_FREE, pool] -= 1
                if box.nodes[NODE_USABLE, box.pools[POOL_NODE, pool]] == 1:
                    box.totals[TOTAL_ANY] -= 1
                    box.totals[box.pools[POOL_MODEL, pool]] -= 1


@compiled_inside
def release(
    box: Box,
    cls: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> None:
    """The inverse of `take`. A device that is claimed or sick does not become free."""
    fractional = box.classes[CLASS_SHARE, cls] < 1000
    for replica in range(len(at_nodes)):
        take_node(box, cls, at_nodes[replica], -1)
    for index in range(len(at_devices)):
        device = at_devices[index]
        if fractional:
            take_share(box, cls, device, -1)
            continue
        box.devices[DEVICE_OWNER, device] = NONE
        box.devices[DEVICE_SHARE_FREE, device] = 1000
        if box.devices[DEVICE_HEALTHY, device] == 1 and box.devices[DEVICE_CLAIM, device] == NONE:
            pool = box.devices[DEVICE_POOL, device]
            box.pools[POOL_MASK, pool] |= 1 << (device - box.pools[POOL_DEVICE_BEGIN, pool])
            box.pools[POOL_FREE, pool] += 1
            if box.nodes[NODE_USABLE, box.pools[POOL_NODE, pool]] == 1:
                box.totals[TOTAL_ANY] += 1
                box.totals[box.pools[POOL_MODEL, pool]] += 1


@compiled_inside
def release_footprint(box: Box, cls: int, row: int, pool: int, replicas: int) -> None:
    """`release` of so many replicas on one pool, whose devices belong to job `row` wholly, or which have none."""
    node = box.pools[POOL_NODE, pool]
    take_node(box, cls, node, -replicas)
    left = replicas * box.classes[CLASS_DEVICES, cls]
    device = box.pools[POOL_DEVICE_BEGIN, pool]
    freed = 0
    while left > 0:
        if box.devices[DEVICE_OWNER, device] == row:
            box.devices[DEVICE_OWNER, device] = NONE
            box.devices[DEVICE_SHARE_FREE, device] = 1000
            left -= 1
            if box.devices[DEVICE_HEALTHY, device] == 1 and box.devices[DEVICE_CLAIM, device] == NONE:
                box.pools[POOL_MASK, pool] |= 1 << (device - box.pools[POOL_DEVICE_BEGIN, pool])
                freed += 1
        device += 1
    box.pools[POOL_FREE, pool] += freed
    if freed > 0 and box.nodes[NODE_USABLE, node] == 1:
        box.totals[TOTAL_ANY] += freed
        box.totals[box.pools[POOL_MODEL, pool]] += freed


@compiled_inline
def best_shared_device(box: Box, cls: int, pool: int) -> int:
    """The partly used device of the pool with the least room that still takes the share; NONE if there is none."""
    share = box.classes[CLASS_SHARE, cls]
    memory = share_memory(box.classes[CLASS_DEVICE_MEM, cls], share, box.pools[POOL_DEVICE_MEM, pool])
    best = NONE
    best_free = 1 << 30
    begin = box.pools[POOL_DEVICE_BEGIN, pool]
    for device in range(begin, begin + box.pools[POOL_SIZE, pool]):
        if box.devices[DEVICE_SHARE_FREE, device] < best_free and shares_on_device(box, device, share, memory) > 0:
            best = device
            best_free = box.devices[DEVICE_SHARE_FREE, device]
    return best


@compiled_inside
def name_devices(box: Box, cls: int, pool: int, replicas: int, out: np.ndarray, at: int) -> int:
    """Name whole devices for `replicas` replicas on the pool into `out[at:]`; returns the new `at`.

    Each replica's devices lie in one NVLink group where one has room.
    """
    needed = box.classes[CLASS_DEVICES, cls]
    begin = box.pools[POOL_DEVICE_BEGIN, pool]
    mask = box.pools[POOL_MASK, pool]
    for _ in range(replicas):
        bits = pick_bits(mask, needed, box.pools[POOL_SIZE, pool], box.pools[POOL_NVLINK_SIZE, pool])
        mask &= ~bits
        index = 0
        while bits != 0:
            if bits & 1 == 1:
                out[at] = begin + index
                at += 1
            bits >>= 1
            index += 1
    return at


@compiled
def refresh_device_entry(device: int, door: Door) -> None:
    """`refresh_device`, called from Python as `refresh_device_entry(device, door)`."""
    refresh_device(open_box(door), device)


@compiled
def set_usable_entry(node: int, usable: int, door: Door) -> None:
    """`set_usable`, called from Python as `set_usable_entry(node, usable, door)`."""
    set_usable(open_box(door), node, usable)
