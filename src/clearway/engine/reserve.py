"""Time-stamped reservations: when and where a blocked job could start if all that runs ends as expected.

The future is walked in the order of expected ends. A reservation keeps one line of the tables `res_*`: what is free at
its start, after everything reserved then. Between two starts capacity only grows, so these lines are all that a later
job has to respect: a job that ends before a reservation starts cannot delay it.
"""

from typing import Final

from clearway.engine.box import (
    LINK_COUNT,
    LINK_NEXT,
    LINK_POOL,
    META_FILLED,
    META_LISTED,
    META_MANY_POOLS,
    META_NODE_ASKED,
    META_NODES,
    META_POOLS,
    META_RESERVATIONS,
    META_RUNNING,
    RES_BESIDE,
    RES_BY_END,
    RES_BY_START,
    RES_END,
    RES_JOB,
    RES_LINK,
    RES_START,
    RES_TOTAL,
    RUNNING_END,
    RUNNING_ROW,
    WORK_COUNT,
    WORK_CPU,
    WORK_LIST,
    WORK_MEM,
    WORK_POOL,
    Box,
)
from clearway.engine.capacity import asks_only_devices, future_by_devices, least_capacity
from clearway.engine.compiled import compiled_inline, compiled_inside
from clearway.engine.domains import (
    choose_counts,
    clear_capacity,
    is_level_used,
    keep_domain,
    level_of_step,
    note_capacity,
    smallest_domain,
)
from clearway.engine.gang import charge_between
from clearway.engine.hold import (
    add_running,
    after_gaps,
    class_milli,
    drop_links,
    new_link,
    remove_running,
    settle_running,
)
from clearway.engine.place import pool_suits, whole_parts
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_EXCLUSIVE,
    CLASS_LABELS,
    CLASS_MEM,
    DEVICE_CLAIM,
    DEVICE_HEALTHY,
    DEVICE_SHARE_FREE,
    DEVICE_SHARERS,
    JOB_CLASS,
    JOB_END_MS,
    JOB_LIMIT_MS,
    JOB_PREFERRED,
    JOB_START_MS,
    JOB_WATTS_MS,
    JOB_WIDEST,
    LEVEL_NODE,
    LEVEL_SITE,
    NODE_CPU_FREE,
    NODE_CPU_TOTAL,
    NODE_MEM_FREE,
    NODE_MEM_TOTAL,
    NODE_POOL_BEGIN,
    NODE_POOL_END,
    NODE_USABLE,
    NONE,
    POOL_DEVICE_BEGIN,
    POOL_FREE,
    POOL_NODE,
    POOL_SHARED,
    POOL_SIZE,
)
from clearway.model.units import FOREVER_MS

OVERDUE_MIN_MS: Final = 60_000
"""A job that outlived its expected end is given at least a minute more: shorter would only be asked again at once."""

WALK_MAX: Final = 1 << 20
"""Events walked for one reservation before it is given up: a bound, far above what a real cluster has running."""

DIGEST_PRIME: Final = (1 << 40) - 87
DIGEST_FACTOR: Final = 1_000_003
"""Of `reserved_digest`: their product and a time together stay below 2⁶³."""


@compiled_inside
def load_present(box: Box) -> int:
    """Copy what is free now to the work space; an unusable node has nothing free. Returns the free device milli."""
    if box.meta[META_NODE_ASKED] == 1:
        for node in range(box.meta[META_NODES]):
            box.work[WORK_CPU, node] = box.nodes[NODE_CPU_FREE, node]
            box.work[WORK_MEM, node] = box.nodes[NODE_MEM_FREE, node]
    total = 0
    for pool in range(box.meta[META_POOLS]):
        free = free_now(box, pool)
        box.work[WORK_POOL, pool] = free
        total += free
    return total


@compiled_inline
def free_now(box: Box, pool: int) -> int:
    """Free milli on the pool, 0 on an unusable node."""
    if box.nodes[NODE_USABLE, box.pools[POOL_NODE, pool]] == 0:
        return 0
    free = box.pools[POOL_FREE, pool] * 1000
    return free if box.pools[POOL_SHARED, pool] == 0 else free + shared_milli(box, pool)


@compiled_inline
def shared_milli(box: Box, pool: int) -> int:
    """Free milli on the partly used devices of the pool."""
    total = 0
    begin = box.pools[POOL_DEVICE_BEGIN, pool]
    for device in range(begin, begin + box.pools[POOL_SIZE, pool]):
        if box.devices[DEVICE_SHARERS, device] == 0 or box.devices[DEVICE_HEALTHY, device] == 0:
            continue
        if box.devices[DEVICE_CLAIM, device] == NONE:
            total += box.devices[DEVICE_SHARE_FREE, device]
    return total


@compiled_inline
def future_capacity(box: Box, cls: int, pool: int, most: int) -> int:
    """Replicas of the class that the pool would take with what the work space says is free."""
    each = class_milli(box, cls)
    node = box.pools[POOL_NODE, pool]
    if each > 0:
        if box.work[WORK_POOL, pool] < each:
            return 0
        most = min(most, whole_parts(box.work[WORK_POOL, pool], each))
    if box.nodes[NODE_USABLE, node] == 0 or box.eligible[box.classes[CLASS_LABELS, cls], node] == 0:
        return 0
    if not pool_suits(box, cls, pool):
        return 0
    if box.classes[CLASS_EXCLUSIVE, cls] == 1 and not will_be_empty(box, node):
        return 0
    cpu = box.classes[CLASS_CPU, cls]
    if cpu > 0:
        most = min(most, max(box.work[WORK_CPU, node], 0) // cpu)
    memory = box.classes[CLASS_MEM, cls]
    if memory > 0:
        most = min(most, max(box.work[WORK_MEM, node], 0) // memory)
    return most


@compiled_inline
def healthy_milli(box: Box, pool: int) -> int:
    """Milli of the devices of the pool that are not sick."""
    total = 0
    begin = box.pools[POOL_DEVICE_BEGIN, pool]
    for device in range(begin, begin + box.pools[POOL_SIZE, pool]):
        total += 1000 * box.devices[DEVICE_HEALTHY, device]
    return total


@compiled_inline
def will_be_empty(box: Box, node: int) -> bool:
    """Whether nobody holds devices, CPUs or memory of the node any more, by what the work space says is free."""
    for pool in range(box.nodes[NODE_POOL_BEGIN, node], box.nodes[NODE_POOL_END, node]):
        if box.work[WORK_POOL, pool] < healthy_milli(box, pool):
            return False
    if box.meta[META_NODE_ASKED] == 0:
        return True
    is_cpu_left = box.work[WORK_CPU, node] >= box.nodes[NODE_CPU_TOTAL, node]
    return is_cpu_left and box.work[WORK_MEM, node] >= box.nodes[NODE_MEM_TOTAL, node]


@compiled_inside
def future_capacity_around(box: Box, cls: int, pool: int, most: int) -> int:
    """`future_capacity` of the pool, with that of all pools of its node where they share what counts: CPUs, memory, or
    that nobody is there."""
    asks_node = (
        box.classes[CLASS_CPU, cls] > 0 or box.classes[CLASS_MEM, cls] > 0 or box.classes[CLASS_EXCLUSIVE, cls] == 1
    )
    if box.meta[META_MANY_POOLS] == 0 or not asks_node:
        return future_capacity(box, cls, pool, most)
    node = box.pools[POOL_NODE, pool]
    total = 0
    for near in range(box.nodes[NODE_POOL_BEGIN, node], box.nodes[NODE_POOL_END, node]):
        total += future_capacity(box, cls, near, most)
    return total


@compiled_inline
def shift_future(box: Box, holder: int, link: int, sign: int, cls: int, most: int) -> int:
    """Add (sign 1) or take away (−1) a footprint of class `holder` in the work space.

    Returns by how much the summed capacity for class `cls` changes; for `cls` NONE, by how much free milli change.
    """
    change = 0
    milli = sign * class_milli(box, holder)
    cpu = sign * box.classes[CLASS_CPU, holder]
    memory = sign * box.classes[CLASS_MEM, holder]
    while link != NONE:
        pool = box.links[LINK_POOL, link]
        count = box.links[LINK_COUNT, link]
        node = box.pools[POOL_NODE, pool]
        link = box.links[LINK_NEXT, link]
        if box.nodes[NODE_USABLE, node] == 0:
            continue
        if cls != NONE:
            change -= future_capacity_around(box, cls, pool, most)
        box.work[WORK_POOL, pool] += count * milli
        box.work[WORK_CPU, node] += count * cpu
        box.work[WORK_MEM, node] += count * memory
        change += count * milli if cls == NONE else future_capacity_around(box, cls, pool, most)
    return change


@compiled_inside
def capacity_throughout(box: Box, cls: int, start_ms: int, end_ms: int, most: int) -> int:
    """Write capacities that hold from `start_ms` to `end_ms`, given the work space at the start; returns the sum.

    0, with nothing written, where the devices that one reservation leaves are too few in all for `most` replicas.
    """
    for index in range(box.meta[META_RESERVATIONS]):
        if start_ms < box.res[RES_START, index] < end_ms and box.res[RES_TOTAL, index] < most * class_milli(box, cls):
            return 0
    total = 0
    clear_capacity(box)
    for pool in range(box.meta[META_POOLS]):
        count = future_capacity(box, cls, pool, most)
        if count > 0:
            count = least_capacity(box, cls, pool, start_ms, end_ms, count)
        note_capacity(box, pool, count)
        total += count
    return total


@compiled_inside
def choose_reserved_domain(box: Box, replicas: int, widest: int, preferred: int) -> bool:
    """Keep in the work space only the domain of the preferred level, else the smallest allowed one, that holds the
    gang; False if none does."""
    if preferred != NONE:
        domain = smallest_domain(box, replicas, preferred)
        if domain != NONE:
            keep_domain(box, preferred, domain)
            return True
    for step in range(LEVEL_NODE, LEVEL_SITE + 2):
        level = level_of_step(step)
        if level > max(widest, LEVEL_NODE) or not is_level_used(box, level, widest):
            continue
        domain = smallest_domain(box, replicas, level)
        if domain != NONE:
            keep_domain(box, level, domain)
            return True
    return False


@compiled_inline
def insert_sorted(box: Box, column: int, key: int, index: int) -> None:
    """Put reservation `index` in its place in a column sorted by the key column of the reservations."""
    count = box.meta[META_RESERVATIONS]
    place = count
    while place > 0 and box.res[key, box.res[column, place - 1]] > box.res[key, index]:
        box.res[column, place] = box.res[column, place - 1]
        place -= 1
    box.res[column, place] = index


@compiled_inline
def take_rest(box: Box, node: int) -> int:
    """Nothing of the node is left in the work space, for its holder wants it alone; returns the milli that were."""
    if box.meta[META_NODE_ASKED] == 1:
        box.work[WORK_CPU, node] = min(box.work[WORK_CPU, node], 0)
        box.work[WORK_MEM, node] = min(box.work[WORK_MEM, node], 0)
    rest = 0
    for pool in range(box.nodes[NODE_POOL_BEGIN, node], box.nodes[NODE_POOL_END, node]):
        rest += max(box.work[WORK_POOL, pool], 0)
        box.work[WORK_POOL, pool] = min(box.work[WORK_POOL, pool], 0)
    return rest


@compiled_inside
def write_reservation(box: Box, row: int, replicas: int, start_ms: int, end_ms: int, total: int) -> None:
    """Reserve `replicas` on the capacities in the work space from `start_ms` on, as one more line of `res_*`."""
    cls = box.jobs[JOB_CLASS, row]
    milli = class_milli(box, cls)
    index = box.meta[META_RESERVATIONS]
    head = NONE
    choose_counts(box, replicas)
    for place in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, place]
        count = box.work[WORK_COUNT, pool]
        if count == 0:
            continue
        head = new_link(box, pool, count, head)
        charge_between(box, cls, pool, count, start_ms, end_ms)
        node = box.pools[POOL_NODE, pool]
        box.work[WORK_POOL, pool] -= count * milli
        box.work[WORK_CPU, node] -= count * box.classes[CLASS_CPU, cls]
        box.work[WORK_MEM, node] -= count * box.classes[CLASS_MEM, cls]
        if box.classes[CLASS_EXCLUSIVE, cls] == 1:
            total -= take_rest(box, node)
    beside = 0
    for pool in range(box.meta[META_POOLS]):
        box.res_pool[pool, index] = box.work[WORK_POOL, pool]
        beside += max(min(box.work[WORK_POOL, pool], free_now(box, pool)), 0)
    if box.meta[META_NODE_ASKED] == 1:
        for node in range(box.meta[META_NODES]):
            box.res_cpu[index, node] = box.work[WORK_CPU, node]
            box.res_mem[index, node] = box.work[WORK_MEM, node]
    box.res[RES_BESIDE, index] = beside
    box.res[RES_START, index] = start_ms
    box.res[RES_END, index] = end_ms
    box.res[RES_JOB, index] = row
    box.res[RES_LINK, index] = head
    box.res[RES_TOTAL, index] = total - replicas * milli
    insert_sorted(box, RES_BY_START, RES_START, index)
    insert_sorted(box, RES_BY_END, RES_END, index)
    box.meta[META_RESERVATIONS] += 1


@compiled_inline
def next_time(box: Box, running: int, ended: int, begun: int) -> int:
    """The earliest of: next end of a running job, next end and next start of a reservation."""
    time = FOREVER_MS
    if running < box.meta[META_RUNNING]:
        time = box.running[RUNNING_END, running]
    if ended < box.meta[META_RESERVATIONS]:
        time = min(time, box.res[RES_END, box.res[RES_BY_END, ended]])
    if begun < box.meta[META_RESERVATIONS]:
        time = min(time, box.res[RES_START, box.res[RES_BY_START, begun]])
    return time


@compiled_inline
def pass_time(
    box: Box, cls: int, most: int, time: int, running: int, ended: int, begun: int
) -> tuple[int, int, int, int]:
    """Carry out all that is expected up to `time`: the change (see `shift_future`), and the three places moved on."""
    change = 0
    while running < box.meta[META_RUNNING] and box.running[RUNNING_END, running] <= time:
        job = box.running[RUNNING_ROW, running]
        change += shift_future(box, box.jobs[JOB_CLASS, job], box.job_link[job], 1, cls, most)
        running = after_gaps(box, running + 1)
    while ended < box.meta[META_RESERVATIONS] and box.res[RES_END, box.res[RES_BY_END, ended]] <= time:
        index = box.res[RES_BY_END, ended]
        holder = box.jobs[JOB_CLASS, box.res[RES_JOB, index]]
        change += shift_future(box, holder, box.res[RES_LINK, index], 1, cls, most)
        ended += 1
    while begun < box.meta[META_RESERVATIONS] and box.res[RES_START, box.res[RES_BY_START, begun]] <= time:
        index = box.res[RES_BY_START, begun]
        holder = box.jobs[JOB_CLASS, box.res[RES_JOB, index]]
        change += shift_future(box, holder, box.res[RES_LINK, index], -1, cls, most)
        begun += 1
    return change, running, ended, begun


@compiled_inside
def total_future_capacity(box: Box, cls: int, most: int) -> int:
    """Write what each pool would take with what the work space says is free; returns the sum, in replicas."""
    total = 0
    each = class_milli(box, cls)
    clear_capacity(box)
    if asks_only_devices(box, cls):
        return future_by_devices(box, cls, most)
    for pool in range(box.meta[META_POOLS]):
        count = 0
        if each == 0 or box.work[WORK_POOL, pool] >= each:
            count = future_capacity(box, cls, pool, most)
        note_capacity(box, pool, count)
        total += count
    return total


@compiled_inside
def reserve(box: Box, row: int, replicas: int, now_ms: int, run_ms: int) -> bool:
    """Reserve the earliest start at which the gang fits for `run_ms`; False if there is none, all being as expected.

    Jobs that outlived their expected end are taken to end within the next millisecond. While the sum of free devices
    is too small nothing else is worked out; only then is it asked, pool by pool, whether the gang fits.
    """
    cls = box.jobs[JOB_CLASS, row]
    milli = replicas * class_milli(box, cls)
    free = load_present(box)
    settle_running(box)
    knows_capacity = False
    capacity = 0
    running = after_gaps(box, 0)
    ended = 0
    begun = 0
    earliest_ms = box.jobs[JOB_WATTS_MS, row]
    for _ in range(WALK_MAX):
        time = next_time(box, running, ended, begun)
        if now_ms < earliest_ms < time:
            time = earliest_ms
            earliest_ms = 0
        if time >= FOREVER_MS:
            return False
        watched = cls if knows_capacity else NONE
        change, running, ended, begun = pass_time(box, watched, replicas, time, running, ended, begun)
        is_first_look = not knows_capacity
        if is_first_look:
            free += change
            if free < milli:
                continue
            knows_capacity = True
            capacity = total_future_capacity(box, cls, replicas)
        else:
            capacity += change
        if capacity < replicas or time < earliest_ms:
            continue
        start_ms = max(time, now_ms + 1)
        end_ms = start_ms + run_ms if run_ms < FOREVER_MS else FOREVER_MS
        # Where nothing else is reserved, what was just written for this very time holds for ever.
        holds = is_first_look and box.meta[META_RESERVATIONS] == 0
        if not holds and capacity_throughout(box, cls, start_ms, end_ms, replicas) < replicas:
            continue
        if choose_reserved_domain(box, replicas, box.jobs[JOB_WIDEST, row], box.jobs[JOB_PREFERRED, row]):
            write_reservation(box, row, replicas, start_ms, end_ms, free if is_first_look else free_in_work(box))
            return True
    return False


@compiled_inside
def stays(box: Box, replicas: int) -> bool:
    """Whether the only reservation, of so many replicas, would be made again just so, with all that started beside it.

    It would begin at the same time: what started leaves it whole, and frees nothing before. So only where it lies need
    be asked, by what is free at its start. Where it stays, what is free beside it is counted anew, as if it were made
    again. Not for clusters in which somebody asks for CPUs or memory.
    """
    row = box.res[RES_JOB, 0]
    cls = box.jobs[JOB_CLASS, row]
    milli = class_milli(box, cls)
    beside = 0
    for pool in range(box.meta[META_POOLS]):
        free = box.res_pool[pool, 0]
        box.work[WORK_POOL, pool] = free
        beside += max(min(free, free_now(box, pool)), 0)
    links = 0
    link = box.res[RES_LINK, 0]
    while link != NONE:
        box.work[WORK_POOL, box.links[LINK_POOL, link]] += box.links[LINK_COUNT, link] * milli
        links += 1
        link = box.links[LINK_NEXT, link]
    if total_future_capacity(box, cls, replicas) < replicas:
        return False
    if not choose_reserved_domain(box, replicas, box.jobs[JOB_WIDEST, row], box.jobs[JOB_PREFERRED, row]):
        return False
    choose_counts(box, replicas)
    for place in range(box.meta[META_FILLED]):
        if box.work[WORK_COUNT, box.work[WORK_LIST, place]] > 0:
            links -= 1
    link = box.res[RES_LINK, 0]
    while link != NONE:
        if box.work[WORK_COUNT, box.links[LINK_POOL, link]] != box.links[LINK_COUNT, link]:
            return False
        link = box.links[LINK_NEXT, link]
    if links != 0:
        return False
    box.res[RES_BESIDE, 0] = beside
    return True


@compiled_inside
def free_in_work(box: Box) -> int:
    """Free device milli in the work space."""
    total = 0
    for pool in range(box.meta[META_POOLS]):
        total += box.work[WORK_POOL, pool]
    return total


@compiled_inside
def postpone_overdue(box: Box, now_ms: int) -> None:
    """Give jobs that outlived their expected end a new one: as long again as they have run, within their limit.

    Else the future begins with devices that are taken to be free at once, again and again, and nothing else may have
    them: the machine drains. Doubling is the usual correction (Tsafrir, Etsion and Feitelson, TPDS 2007).
    """
    while first_expected_end(box) <= now_ms:
        settle_running(box)
        first = after_gaps(box, 0)
        row = box.running[RUNNING_ROW, first]
        start_ms = box.jobs[JOB_START_MS, row]
        end_ms = now_ms + max(now_ms - start_ms, OVERDUE_MIN_MS)
        limit_ms = box.jobs[JOB_LIMIT_MS, row]
        if limit_ms < FOREVER_MS:
            end_ms = min(end_ms, max(start_ms + limit_ms, now_ms + 1))
        remove_running(box, box.running[RUNNING_END, first], row)
        box.jobs[JOB_END_MS, row] = end_ms
        add_running(box, end_ms, row)


@compiled_inside
def first_expected_end(box: Box) -> int:
    """When the first of the running jobs is expected to end; FOREVER_MS where none is."""
    end_ms = FOREVER_MS
    for index in range(box.meta[META_LISTED]):
        if box.running[RUNNING_ROW, index] >= 0:
            end_ms = box.running[RUNNING_END, index]
            break
    for index in range(box.meta[META_LISTED], box.meta[META_RUNNING]):
        end_ms = min(end_ms, box.running[RUNNING_END, index])
    return end_ms


@compiled_inside
def first_reserved_ms(box: Box) -> int:
    """When the first reservation begins; FOREVER_MS if there is none."""
    return box.res[RES_START, box.res[RES_BY_START, 0]] if box.meta[META_RESERVATIONS] > 0 else FOREVER_MS


@compiled_inside
def clear_reservations(box: Box) -> None:
    """Forget all reservations."""
    for index in range(box.meta[META_RESERVATIONS]):
        drop_links(box, box.res[RES_LINK, index])
    box.meta[META_RESERVATIONS] = 0


@compiled_inside
def reserved_digest(box: Box) -> int:
    """One number of all reservations: when they begin, and on which pools how many replicas are to go."""
    digest = 0
    for index in range(box.meta[META_RESERVATIONS]):
        digest = (digest * DIGEST_FACTOR + box.res[RES_START, index]) % DIGEST_PRIME
        link = box.res[RES_LINK, index]
        while link != NONE:
            digest = (digest * DIGEST_FACTOR + box.links[LINK_POOL, link]) % DIGEST_PRIME
            digest = (digest * DIGEST_FACTOR + box.links[LINK_COUNT, link]) % DIGEST_PRIME
            link = box.links[LINK_NEXT, link]
    return digest
