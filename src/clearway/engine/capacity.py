"""How many replicas pools take, now and beside what is reserved: leaf functions over the tables.

For a class that asks for whole devices alone there is a loop of its own over all pools, in which what is the same for
all of them is looked up once: it is most of what the placement of a gang costs on an empty cluster.
"""

from typing import Final

from clearway.engine.box import (
    META_FILLED,
    META_POOLS,
    META_RESERVATIONS,
    RES_START,
    WORK_CAPACITY,
    WORK_LIST,
    WORK_POOL,
    Box,
)
from clearway.engine.compiled import compiled_inline, compiled_inside
from clearway.engine.domains import clear_capacity, level_of_step, note_capacity, smallest_domain
from clearway.engine.hold import class_milli
from clearway.engine.neighbours import may_join
from clearway.engine.place import pool_capacity, pool_suits, whole_parts
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
    CLASS_WHEN_EMPTY,
    JOB_CLASS,
    JOB_REPLICAS_MIN,
    JOB_WIDEST,
    LEVEL_NODE,
    LEVEL_SITE,
    NODE_CLAIMS_ALONE,
    NODE_CPU_TOTAL,
    NODE_EXCLUSIVE,
    NODE_MEM_TOTAL,
    NODE_USABLE,
    NONE,
    POOL_DEVICE_MEM,
    POOL_FREE,
    POOL_MODEL,
    POOL_NODE,
    POOL_SIZE,
)

MANY: Final = 1 << 40
"""Replicas on one node, if they ask for nothing: more than any job has."""


@compiled_inline
def capacity_beside(box: Box, cls: int, pool: int, end_ms: int, most: int) -> int:
    """`pool_capacity`, and not more than what every reservation that begins before `end_ms` leaves; 0 where neighbours
    forbid it."""
    count = pool_capacity(box, cls, pool, most)
    if count == 0 or (box.classes[CLASS_SOCIAL, cls] == 1 and not may_join(box, cls, box.pools[POOL_NODE, pool], True)):
        return 0
    each = box.classes[CLASS_DEVICES, cls] * box.classes[CLASS_SHARE, cls]
    for index in range(box.meta[META_RESERVATIONS]):
        if box.res[RES_START, index] >= end_ms:
            continue
        if each > 0 and box.res_pool[pool, index] < count * each:
            count = whole_parts(box.res_pool[pool, index], each)
            if count <= 0:
                return 0
    return node_capacity_beside(box, cls, pool, NONE, end_ms, count)


@compiled_inline
def node_capacity_beside(box: Box, cls: int, pool: int, after_ms: int, before_ms: int, count: int) -> int:
    """`count`, or the fewer that CPUs and memory allow in reservations that begin between the two times."""
    cpu = box.classes[CLASS_CPU, cls]
    memory = box.classes[CLASS_MEM, cls]
    if cpu == 0 and memory == 0:
        return count
    node = box.pools[POOL_NODE, pool]
    for index in range(box.meta[META_RESERVATIONS]):
        if after_ms < box.res[RES_START, index] < before_ms:
            if cpu > 0:
                count = min(count, box.res_cpu[index, node] // cpu)
            if memory > 0:
                count = min(count, box.res_mem[index, node] // memory)
    return max(count, 0)


@compiled_inline
def least_capacity(box: Box, cls: int, pool: int, after_ms: int, before_ms: int, count: int) -> int:
    """`count`, or the fewer that the reservations which begin between the two times leave room for."""
    each = box.classes[CLASS_DEVICES, cls] * box.classes[CLASS_SHARE, cls]
    least = count * each
    for index in range(box.meta[META_RESERVATIONS]):
        if after_ms < box.res[RES_START, index] < before_ms:
            least = min(least, box.res_pool[pool, index])
    if least < count * each:
        count = whole_parts(max(least, 0), each)
    return node_capacity_beside(box, cls, pool, after_ms, before_ms, count)


@compiled_inline
def asks_only_devices(box: Box, cls: int) -> bool:
    """Whether the class wants whole devices and nothing else of a node."""
    asks_node = box.classes[CLASS_CPU, cls] > 0 or box.classes[CLASS_MEM, cls] > 0
    is_particular = box.classes[CLASS_EXCLUSIVE, cls] == 1 or box.classes[CLASS_SOCIAL, cls] == 1
    is_whole = box.classes[CLASS_SHARE, cls] == 1000 and box.classes[CLASS_DEVICES, cls] > 0
    return is_whole and not asks_node and not is_particular


@compiled_inside
def fill_by_devices(box: Box, cls: int, end_ms: int, most: int, model: int) -> int:
    """`fill_capacity` for a class that asks only for devices."""
    needed = box.classes[CLASS_DEVICES, cls]
    models = box.classes[CLASS_MODELS, cls]
    memory = box.classes[CLASS_DEVICE_MEM, cls]
    labels = box.classes[CLASS_LABELS, cls]
    reserved = box.meta[META_RESERVATIONS]
    total = 0
    filled = 0
    for pool in range(box.meta[META_POOLS]):
        box.work[WORK_CAPACITY, pool] = 0
        count = box.pools[POOL_FREE, pool]
        if count < needed:
            continue
        kind = box.pools[POOL_MODEL, pool]
        if (model != NONE and kind != model) or (models >> kind) & 1 == 0:
            continue
        has = box.pools[POOL_DEVICE_MEM, pool]
        node = box.pools[POOL_NODE, pool]
        if (has != 0 and memory > has) or box.nodes[NODE_USABLE, node] == 0 or box.eligible[labels, node] == 0:
            continue
        if box.nodes[NODE_EXCLUSIVE, node] == 1 or box.nodes[NODE_CLAIMS_ALONE, node] > 0:
            continue
        if needed > 1:
            count //= needed
        count = min(count, most)
        if reserved > 0:
            count = least_capacity(box, cls, pool, NONE, end_ms, count)
        if count > 0:
            box.work[WORK_CAPACITY, pool] = count
            box.work[WORK_LIST, filled] = pool
            filled += 1
            total += count
    box.meta[META_FILLED] = filled
    return total


@compiled_inside
def future_by_devices(box: Box, cls: int, most: int) -> int:
    """`total_future_capacity` for a class that asks only for devices."""
    each = box.classes[CLASS_DEVICES, cls] * 1000
    models = box.classes[CLASS_MODELS, cls]
    memory = box.classes[CLASS_DEVICE_MEM, cls]
    labels = box.classes[CLASS_LABELS, cls]
    total = 0
    filled = 0
    for pool in range(box.meta[META_POOLS]):
        box.work[WORK_CAPACITY, pool] = 0
        free = box.work[WORK_POOL, pool]
        kind = box.pools[POOL_MODEL, pool]
        if free < each or kind < 0 or (models >> kind) & 1 == 0:
            continue
        has = box.pools[POOL_DEVICE_MEM, pool]
        node = box.pools[POOL_NODE, pool]
        if (has != 0 and memory > has) or box.nodes[NODE_USABLE, node] == 0 or box.eligible[labels, node] == 0:
            continue
        count = min(most, whole_parts(free, each))
        box.work[WORK_CAPACITY, pool] = count
        box.work[WORK_LIST, filled] = pool
        filled += 1
        total += count
    box.meta[META_FILLED] = filled
    return total


@compiled_inside
def capacity_when_empty(box: Box, cls: int) -> int:
    """Replicas of the class that all nodes would hold if nothing else were there; each pool's is noted."""
    each = class_milli(box, cls)
    total = 0
    clear_capacity(box)
    for pool in range(box.meta[META_POOLS]):
        node = box.pools[POOL_NODE, pool]
        if box.eligible[box.classes[CLASS_LABELS, cls], node] == 0 or not pool_suits(box, cls, pool):
            continue
        count = MANY if each == 0 else box.pools[POOL_SIZE, pool] * 1000 // each
        if box.classes[CLASS_CPU, cls] > 0:
            count = min(count, box.nodes[NODE_CPU_TOTAL, node] // box.classes[CLASS_CPU, cls])
        if box.classes[CLASS_MEM, cls] > 0:
            count = min(count, box.nodes[NODE_MEM_TOTAL, node] // box.classes[CLASS_MEM, cls])
        note_capacity(box, pool, count)
        total += count
    return total


@compiled_inline
def fits_when_empty(box: Box, row: int) -> bool:
    """Whether the job's least gang would fit on all nodes if nothing else were there, down or not; else nobody waits
    for it."""
    cls = box.jobs[JOB_CLASS, row]
    if box.classes[CLASS_WHEN_EMPTY, cls] == NONE:
        box.classes[CLASS_WHEN_EMPTY, cls] = capacity_when_empty(box, cls)
    least, widest = box.jobs[JOB_REPLICAS_MIN, row], box.jobs[JOB_WIDEST, row]
    if widest == LEVEL_SITE or least == 1 or box.classes[CLASS_WHEN_EMPTY, cls] < least:
        return bool(box.classes[CLASS_WHEN_EMPTY, cls] >= least)
    capacity_when_empty(box, cls)
    for step in range(LEVEL_NODE, LEVEL_SITE + 2):
        level = level_of_step(step)
        if level <= max(widest, LEVEL_NODE) and smallest_domain(box, least, level) != NONE:
            return True
    return False
