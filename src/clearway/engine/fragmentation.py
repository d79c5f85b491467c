"""Expected fragmentation of a node: the free device time that typical jobs could not use there.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023. For a node n and a typical class m, F_n(m) is all free device milli when m cannot run on n at all, else
the free milli of those devices on which m finds too little. F_n is the mean over the typical classes by popularity, and
the gradient is how much F_n grows when a replica is put there.
"""

from clearway.engine.box import META_TYPICAL, TYPICAL_CLASS, TYPICAL_PPM, Box
from clearway.engine.compiled import compiled_inline, compiled_inside
from clearway.engine.place import best_shared_device, pool_suits, share_memory
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICE_MEM,
    CLASS_DEVICES,
    CLASS_MEM,
    CLASS_SHARE,
    DEVICE_CLAIM,
    DEVICE_HEALTHY,
    DEVICE_MEM_FREE,
    DEVICE_SHARE_FREE,
    DEVICE_SHARERS,
    NODE_CPU_FREE,
    NODE_MEM_FREE,
    NONE,
    POOL_DEVICE_BEGIN,
    POOL_DEVICE_MEM,
    POOL_FREE,
    POOL_MASK,
    POOL_NODE,
    POOL_SHARED,
    POOL_SIZE,
)


@compiled_inline
def shared_free(box: Box, pool: int, typical: int, changed: int, share: int, usable_only: bool) -> int:
    """Free milli on partly used devices of the pool: all of it, or only what the class `typical` could use.

    changed: a device counted with `share` less than it has (NONE = none); it may be wholly free now.
    """
    wanted = box.classes[CLASS_SHARE, typical]
    memory = share_memory(box.classes[CLASS_DEVICE_MEM, typical], wanted, box.pools[POOL_DEVICE_MEM, pool])
    total = 0
    begin = box.pools[POOL_DEVICE_BEGIN, pool]
    for device in range(begin, begin + box.pools[POOL_SIZE, pool]):
        if box.devices[DEVICE_SHARERS, device] == 0 and device != changed:
            continue
        if box.devices[DEVICE_HEALTHY, device] == 0 or box.devices[DEVICE_CLAIM, device] != NONE:
            continue
        free = box.devices[DEVICE_SHARE_FREE, device] - (share if device == changed else 0)
        if usable_only:
            fits = wanted < 1000 and free >= wanted and (memory == 0 or box.devices[DEVICE_MEM_FREE, device] >= memory)
            free = free if fits else 0
        total += free
    return total


@compiled_inline
def fragment_for(box: Box, pool: int, typical: int, whole: int, cpu: int, memory: int, changed: int, share: int) -> int:
    """F_n(m) in milli for a pool with `whole` free devices and these CPUs and memory left on its node."""
    free = whole * 1000
    if box.pools[POOL_SHARED, pool] > 0 or changed != NONE:
        free += shared_free(box, pool, typical, changed, share, False)
    if free == 0:
        return 0
    needed = box.classes[CLASS_DEVICES, typical]
    if needed == 0:
        return free
    if cpu < box.classes[CLASS_CPU, typical] or memory < box.classes[CLASS_MEM, typical]:
        return free
    if not pool_suits(box, typical, pool):
        return free
    if box.classes[CLASS_SHARE, typical] == 1000:
        return free if whole < needed else free - whole * 1000
    usable = whole * 1000
    if box.pools[POOL_SHARED, pool] > 0 or changed != NONE:
        usable += shared_free(box, pool, typical, changed, share, True)
    return free - usable


@compiled_inside
def typical_appetite(box: Box) -> tuple[int, int]:
    """The most CPUs (milli) and memory (bytes) that a replica of any typical class asks of its node."""
    cpu = 0
    memory = 0
    for index in range(box.meta[META_TYPICAL]):
        typical = box.typical[TYPICAL_CLASS, index]
        cpu = max(cpu, box.classes[CLASS_CPU, typical])
        memory = max(memory, box.classes[CLASS_MEM, typical])
    return cpu, memory


@compiled_inside
def fragmentation_growth(box: Box, cls: int, pool: int) -> float:
    """How much F_n grows (milli) when one replica of the class is put on the pool; negative when it heals."""
    node = box.pools[POOL_NODE, pool]
    cpu = box.nodes[NODE_CPU_FREE, node]
    memory = box.nodes[NODE_MEM_FREE, node]
    whole = box.pools[POOL_FREE, pool]
    changed = NONE
    share = 0
    whole_after = whole - box.classes[CLASS_DEVICES, cls]
    if box.classes[CLASS_SHARE, cls] < 1000:
        share = box.classes[CLASS_SHARE, cls]
        changed = best_shared_device(box, cls, pool)
        whole_after = whole
        if changed == NONE:
            whole_after = whole - 1
            changed = first_free_device(box, pool)
    cpu_after = cpu - box.classes[CLASS_CPU, cls]
    memory_after = memory - box.classes[CLASS_MEM, cls]
    growth = 0.0
    for index in range(box.meta[META_TYPICAL]):
        typical = box.typical[TYPICAL_CLASS, index]
        before = fragment_for(box, pool, typical, whole, cpu, memory, NONE, 0)
        after = fragment_for(box, pool, typical, whole_after, cpu_after, memory_after, changed, share)
        growth += box.typical[TYPICAL_PPM, index] * (after - before)
    return growth / 1e6


@compiled_inline
def first_free_device(box: Box, pool: int) -> int:
    """The wholly free device of the pool with the lowest index; NONE if there is none."""
    begin = box.pools[POOL_DEVICE_BEGIN, pool]
    for device in range(begin, begin + box.pools[POOL_SIZE, pool]):
        if (box.pools[POOL_MASK, pool] >> (device - begin)) & 1 == 1:
            return device
    return NONE
