"""Choosing the devices of one job: the best pool for a single replica, the smallest domain for a gang.

`place` only names devices; whoever calls it holds them with `hold`. Ties go to the lower index, so that the same tables
give the same devices.
"""

from typing import Final

import numpy as np

from clearway.engine.box import (
    META_BEGIN_IN,
    META_FILLED,
    META_MANY_POOLS,
    META_MODELS,
    META_NODES,
    META_POOLS,
    META_RESERVATIONS,
    RES_START,
    RES_TOTAL,
    WORK_CAPACITY,
    WORK_COUNT,
    WORK_LIST,
    Box,
    Door,
    open_box,
)
from clearway.engine.capacity import asks_only_devices, capacity_beside, fill_by_devices, least_capacity
from clearway.engine.compiled import compiled, compiled_inline, compiled_inside
from clearway.engine.domains import (
    choose_counts,
    clear_capacity,
    domain_of,
    is_level_used,
    keep_domain,
    leave_domain,
    level_of_step,
    note_capacity,
    smallest_domain,
)
from clearway.engine.fragmentation import (
    fragmentation_growth,
    typical_appetite,
)
from clearway.engine.load import (
    WEIGHT_FRAGMENTATION,
    WEIGHT_PACK,
    WEIGHT_SPEED,
    WEIGHT_SPREAD,
    WEIGHT_SPREAD_CPUS,
    WEIGHT_SPREAD_MEMORY,
    WEIGHT_TOPOLOGY,
    load_growth,
    mean_load,
    pool_load,
)
from clearway.engine.neighbours import (
    apart_from_itself,
    beginning_tally,
    may_join,
    room_for_extras,
    wish_score,
)
from clearway.engine.place import (
    TOTAL_ANY,
    best_shared_device,
    lowest_bits,
    name_devices,
    pool_capacity,
    release,
    take,
)
from clearway.engine.reasons import (
    PLACED,
    REASON_FRAGMENTATION,
    REASON_NEIGHBOURS,
    REASON_RESERVED,
    REASON_RESOURCES,
    REASON_TOPOLOGY,
)
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICES,
    CLASS_MEM,
    CLASS_MODELS,
    CLASS_SHARE,
    CLASS_SOCIAL,
    DEVICE_POOL,
    LEVEL_NODE,
    LEVEL_NVLINK,
    LEVEL_SITE,
    NODE_CPU_FREE,
    NODE_MEM_FREE,
    NODE_POOL_BEGIN,
    NONE,
    POOL_DEVICE_BEGIN,
    POOL_DEVICE_MEM,
    POOL_FREE,
    POOL_MASK,
    POOL_MODEL,
    POOL_NODE,
    POOL_SHARED,
    POOL_SIZE,
    POOL_SPEED_PPM,
)
from clearway.model.units import (
    DEVICES_PER_MODEL_MAX,
)

SCORE_NONE: Final = 1e300

DOMAINS_TRIED_MAX: Final = 64
"""Domains of one level that are tried for a gang with rules about neighbours: a bound on a search that rarely needs
more than a few."""


@compiled_inline
def free_devices_allowed(box: Box, cls: int) -> int:
    """Wholly free, usable devices of the models that the class allows: an upper bound, at once."""
    models = box.classes[CLASS_MODELS, cls]
    if models == NONE:
        return box.totals[TOTAL_ANY]
    total = 0
    for model in range(box.meta[META_MODELS]):
        if (models >> model) & 1 == 1:
            total += box.totals[model]
    return total


@compiled_inline
def pool_score(box: Box, cls: int, pool: int, weights: np.ndarray, mean: float) -> float:
    """Score of putting one replica on the pool; lower is better. Sums and products only: exact to repeat."""
    free = float(box.pools[POOL_FREE, pool])
    takes = box.classes[CLASS_DEVICES, cls] * box.classes[CLASS_SHARE, cls] / 1000.0
    score = weights[WEIGHT_PACK] * (free - takes) / 64.0
    if weights[WEIGHT_SPREAD] != 0.0:
        # Growth of the variance of load over nodes when this one takes the replica.
        growth = load_growth(box, cls, pool, weights)
        load = pool_load(box, pool, weights)
        score += weights[WEIGHT_SPREAD] * growth * (2.0 * (load - mean) + growth)
    if weights[WEIGHT_FRAGMENTATION] != 0.0:
        score += weights[WEIGHT_FRAGMENTATION] * fragmentation_growth(box, cls, pool) / 1000.0
    if weights[WEIGHT_SPEED] != 0.0:
        score -= weights[WEIGHT_SPEED] * box.pools[POOL_SPEED_PPM, pool] / 1e6
    if box.classes[CLASS_SHARE, cls] < 1000 and has_room_shared(box, cls, pool):
        score -= weights[WEIGHT_PACK]
    if box.classes[CLASS_SOCIAL, cls] == 1:
        score += wish_score(box, cls, box.pools[POOL_NODE, pool])
    return score


@compiled_inline
def has_room_shared(box: Box, cls: int, pool: int) -> bool:
    """Whether a partly used device of the pool takes a share of the class."""
    return box.pools[POOL_SHARED, pool] > 0 and best_shared_device(box, cls, pool) != NONE


@compiled_inside
def tightest_pool(box: Box, cls: int, end_ms: int, needed: int) -> int:
    """`best_pool` where only packing counts: the pool with the fewest free devices that takes the replica. The loop is
    kept as small as it can be: on a large cluster it is the placement."""
    best = NONE
    best_free = DEVICES_PER_MODEL_MAX + 1
    for pool in range(box.meta[META_POOLS]):
        free = box.pools[POOL_FREE, pool]
        if free >= best_free or free < needed:
            continue
        if capacity_beside(box, cls, pool, end_ms, 1) > 0:
            best = pool
            best_free = free
            if free == needed:
                break
    return best


@compiled_inside
def best_pool(box: Box, cls: int, end_ms: int, weights: np.ndarray, model: int, level: int, domain: int) -> int:
    """The pool with the best score for one replica, within a model and a domain (NONE = any); NONE if none takes it.

    Pools that differ in nothing that a score looks at have the same score: the first with room stands for all of them.
    That is so where nothing is shared, the kind of pool and the number of free devices are the same, and the node has
    CPUs and memory to spare for the replica and for any typical one after it. The checks are written out here, not
    called: they are most of what a placement costs.
    """
    best = NONE
    best_score = SCORE_NONE
    mean = mean_load(box, weights) if weights[WEIGHT_SPREAD] != 0.0 else 0.0
    is_whole = box.classes[CLASS_SHARE, cls] == 1000
    is_social = box.classes[CLASS_SOCIAL, cls] == 1
    only_pack = (
        (weights[WEIGHT_SPREAD] == 0.0 and weights[WEIGHT_FRAGMENTATION] == 0.0 and weights[WEIGHT_SPEED] == 0.0)
        and is_whole
        and not is_social
    )
    needed = box.classes[CLASS_DEVICES, cls]
    if only_pack and needed > 0 and model == NONE and level == NONE:
        return tightest_pool(box, cls, end_ms, needed)
    cpu_most, memory_most = typical_appetite(box) if weights[WEIGHT_FRAGMENTATION] != 0.0 else (0, 0)
    cpu_most += box.classes[CLASS_CPU, cls]
    memory_most += box.classes[CLASS_MEM, cls]
    by_node = weights[WEIGHT_SPREAD_CPUS] != 0.0 or weights[WEIGHT_SPREAD_MEMORY] != 0.0
    may_repeat = is_whole and needed > 0 and not only_pack and not is_social and not by_node
    kind = 0
    seen = 0
    for pool in range(box.meta[META_POOLS]):
        free = box.pools[POOL_FREE, pool]
        is_worse = only_pack and best != NONE and free >= box.pools[POOL_FREE, best]
        if is_whole and needed > 0 and (free < needed or is_worse):
            continue
        node = box.pools[POOL_NODE, pool]
        is_plain = (
            may_repeat
            and box.pools[POOL_SHARED, pool] == 0
            and box.nodes[NODE_CPU_FREE, node] >= cpu_most
            and box.nodes[NODE_MEM_FREE, node] >= memory_most
        )
        if is_plain:
            if (
                box.pools[POOL_MODEL, pool] != box.pools[POOL_MODEL, kind]
                or box.pools[POOL_SIZE, pool] != box.pools[POOL_SIZE, kind]
                or box.pools[POOL_DEVICE_MEM, pool] != box.pools[POOL_DEVICE_MEM, kind]
                or box.pools[POOL_SPEED_PPM, pool] != box.pools[POOL_SPEED_PPM, kind]
            ):
                kind = pool
                seen = 0
            if (seen >> free) & 1 == 1:
                continue
        if model != NONE and box.pools[POOL_MODEL, pool] != model:
            continue
        if level != NONE and domain_of(box, level, pool) != domain:
            continue
        if capacity_beside(box, cls, pool, end_ms, 1) == 0:
            continue
        if is_plain:
            seen |= 1 << free
        score = pool_score(box, cls, pool, weights, mean)
        if score < best_score:
            best = pool
            best_score = score
            if only_pack and free == needed:
                break
    return best


@compiled_inline
def name_replica(box: Box, cls: int, pool: int, at_nodes: np.ndarray, at_devices: np.ndarray, replica: int) -> None:
    """Name node and devices of one replica on the pool."""
    at_nodes[replica] = box.pools[POOL_NODE, pool]
    needed = box.classes[CLASS_DEVICES, cls]
    if needed == 0:
        return
    if box.classes[CLASS_SHARE, cls] == 1000:
        name_devices(box, cls, pool, 1, at_devices, replica * needed)
        return
    device = best_shared_device(box, cls, pool) if box.pools[POOL_SHARED, pool] > 0 else NONE
    if device == NONE:
        bit = lowest_bits(box.pools[POOL_MASK, pool], 1)
        device = box.pools[POOL_DEVICE_BEGIN, pool]
        while bit > 1:
            bit >>= 1
            device += 1
    at_devices[replica] = device


@compiled_inside
def fill_capacity(box: Box, cls: int, end_ms: int, most: int, model: int) -> int:
    """Write each pool's capacity for the class to the work space; returns the sum."""
    total = 0
    clear_capacity(box)
    if asks_only_devices(box, cls):
        return fill_by_devices(box, cls, end_ms, most, model)
    for pool in range(box.meta[META_POOLS]):
        count = 0
        if model == NONE or box.pools[POOL_MODEL, pool] == model:
            count = pool_capacity(box, cls, pool, most)
            if count > 0:
                count = least_capacity(box, cls, pool, NONE, end_ms, count)
            if count > 0 and box.classes[CLASS_SOCIAL, cls] == 1:
                count = room_among_neighbours(box, cls, box.pools[POOL_NODE, pool], count)
        note_capacity(box, pool, count)
        total += count
    return total


@compiled_inside
def name_by_capacity(box: Box, cls: int, replicas: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """Name a gang on the fewest nodes, pool after pool."""
    choose_counts(box, replicas)
    needed = box.classes[CLASS_DEVICES, cls]
    replica = 0
    for index in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, index]
        count = box.work[WORK_COUNT, pool]
        if count == 0:
            continue
        if needed > 0:
            name_devices(box, cls, pool, count, at_devices, replica * needed)
        at_nodes[replica : replica + count] = box.pools[POOL_NODE, pool]
        replica += count


@compiled_inline
def charge_between(box: Box, cls: int, pool: int, count: int, start_ms: int, end_ms: int) -> None:
    """Lower what reservations that begin within [start, end) find on the pool."""
    milli = count * box.classes[CLASS_DEVICES, cls] * box.classes[CLASS_SHARE, cls]
    cpu = count * box.classes[CLASS_CPU, cls]
    memory = count * box.classes[CLASS_MEM, cls]
    node = box.pools[POOL_NODE, pool]
    for index in range(box.meta[META_RESERVATIONS]):
        if start_ms <= box.res[RES_START, index] < end_ms:
            box.res_pool[pool, index] -= milli
            box.res[RES_TOTAL, index] -= milli
            if cpu != 0 or memory != 0:
                box.res_cpu[index, node] -= cpu
                box.res_mem[index, node] -= memory


@compiled_inline
def charge_reservations(box: Box, cls: int, pool: int, count: int, end_ms: int) -> None:
    """Lower what reservations that begin before `end_ms` find on the pool by `count` replicas; negative gives back."""
    charge_between(box, cls, pool, count, NONE, end_ms)


@compiled_inside
def name_one_by_one(
    box: Box,
    cls: int,
    end_ms: int,
    weights: np.ndarray,
    model: int,
    level: int,
    domain: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> bool:
    """Name a gang replica by replica, each on the best pool after the earlier ones. Leaves the tables as found."""
    needed = box.classes[CLASS_DEVICES, cls]
    replica = 0
    while replica < len(at_nodes):
        pool = best_pool(box, cls, end_ms, weights, model, level, domain)
        if pool == NONE:
            break
        name_replica(box, cls, pool, at_nodes, at_devices, replica)
        devices = at_devices[replica * needed : (replica + 1) * needed]
        take(box, cls, 0, at_nodes[replica : replica + 1], devices)
        charge_reservations(box, cls, pool, 1, end_ms)
        replica += 1
    for index in range(replica):
        pool = pool_of_replica(box, needed, at_nodes, at_devices, index)
        charge_reservations(box, cls, pool, -1, end_ms)
    release(box, cls, at_nodes[:replica], at_devices[: replica * needed])
    return replica == len(at_nodes)


@compiled_inside
def name_among_neighbours(
    box: Box,
    cls: int,
    end_ms: int,
    weights: np.ndarray,
    model: int,
    level: int,
    domain: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> bool:
    """`name_one_by_one` for a gang with rules about neighbours: first in the domain of the topology that it is given,
    then in others of that level; where a crowd begins with it, beginning in one domain of that crowd after the other.
    """
    replicas = len(at_nodes)
    for _ in range(DOMAINS_TRIED_MAX):
        tally = beginning_tally(box, cls)
        if tally == NONE:
            if name_one_by_one(box, cls, end_ms, weights, model, level, domain, at_nodes, at_devices):
                return True
        else:
            for node in range(box.meta[META_NODES]):
                if not is_first_with_room(box, tally, node, level, domain, replicas):
                    continue
                box.meta[META_BEGIN_IN] = node
                named = name_one_by_one(box, cls, end_ms, weights, model, level, domain, at_nodes, at_devices)
                box.meta[META_BEGIN_IN] = NONE
                if named:
                    return True
        if level == LEVEL_SITE:
            return False
        leave_domain(box, level, domain)
        domain = smallest_domain(box, replicas, level)
        if domain == NONE:
            return False
    return False


@compiled_inside
def is_first_with_room(box: Box, tally: int, node: int, level: int, domain: int, replicas: int) -> bool:
    """Whether the node's domain of the tally has room for the gang, within a domain of the topology, and no node before
    this one lies in it."""
    wanted = box.domains[tally, node]
    if wanted == NONE:
        return False
    for before in range(node):
        if box.domains[tally, before] == wanted:
            return False
    total = 0
    for pool in range(box.meta[META_POOLS]):
        if box.domains[tally, box.pools[POOL_NODE, pool]] == wanted and domain_of(box, level, pool) == domain:
            total += box.work[WORK_CAPACITY, pool]
    return total >= replicas


@compiled_inside
def room_among_neighbours(box: Box, cls: int, node: int, count: int) -> int:
    """`count`, or the fewer replicas that rules about neighbours allow on this node at most."""
    if not may_join(box, cls, node, False):
        return 0
    return 1 if apart_from_itself(box, cls, node) else room_for_extras(box, cls, node, count)


@compiled_inside
def has_room_but_for_neighbours(box: Box, cls: int, end_ms: int, replicas: int) -> bool:
    """Whether only rules about neighbours keep the gang from starting: there is room for as many replicas."""
    total = 0
    for pool in range(box.meta[META_POOLS]):
        count = pool_capacity(box, cls, pool, replicas)
        if count > 0:
            total += least_capacity(box, cls, pool, NONE, end_ms, count)
        if total >= replicas:
            return True
    return False


@compiled_inline
def pool_of_replica(box: Box, needed: int, at_nodes: np.ndarray, at_devices: np.ndarray, replica: int) -> int:
    """The pool on which a named replica lies."""
    if needed > 0:
        return box.devices[DEVICE_POOL, at_devices[replica * needed]]
    return box.nodes[NODE_POOL_BEGIN, at_nodes[replica]]


@compiled_inside
def can_name_by_capacity(box: Box, cls: int, weights: np.ndarray) -> bool:
    """Whether capacities of pools are independent of one another and only the number of nodes matters."""
    if weights[WEIGHT_SPREAD] != 0.0 or weights[WEIGHT_FRAGMENTATION] != 0.0 or box.classes[CLASS_SHARE, cls] < 1000:
        return False
    if box.classes[CLASS_SOCIAL, cls] == 1:
        return False
    uses_node = box.classes[CLASS_CPU, cls] > 0 or box.classes[CLASS_MEM, cls] > 0
    return box.meta[META_MANY_POOLS] == 0 or not uses_node


@compiled_inside
def place_gang_on(
    box: Box,
    cls: int,
    widest: int,
    preferred: int,
    end_ms: int,
    weights: np.ndarray,
    model: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> int:
    """Name a gang on devices of one model (NONE = any mixture): in a domain of the level that it prefers, where it
    prefers one, else in the smallest domain that holds it."""
    replicas = len(at_nodes)
    total = fill_capacity(box, cls, end_ms, replicas, model)
    if total < replicas:
        return REASON_FRAGMENTATION if box.meta[META_RESERVATIONS] == 0 else REASON_RESERVED
    narrowest = LEVEL_NODE if weights[WEIGHT_TOPOLOGY] != 0.0 else widest
    for step in range(LEVEL_NODE - 1, LEVEL_SITE + 2):
        level = preferred if step < LEVEL_NODE else level_of_step(step)
        if step < LEVEL_NODE:  # what the job prefers comes first
            if level == NONE:
                continue
        else:
            if level != LEVEL_NVLINK and (level > max(widest, LEVEL_NODE) or level < narrowest):
                continue
            if not is_level_used(box, level, widest) or (level == LEVEL_NVLINK and narrowest > LEVEL_NODE):
                continue
        domain = smallest_domain(box, replicas, level)
        if domain == NONE:
            continue
        if can_name_by_capacity(box, cls, weights):
            keep_domain(box, level, domain)
            name_by_capacity(box, cls, replicas, at_nodes, at_devices)
            return PLACED
        if box.classes[CLASS_SOCIAL, cls] == 1:
            if name_among_neighbours(box, cls, end_ms, weights, model, level, domain, at_nodes, at_devices):
                return PLACED
            fill_capacity(box, cls, end_ms, replicas, model)  # the domains that were tried have none left
        elif name_one_by_one(box, cls, end_ms, weights, model, level, domain, at_nodes, at_devices):
            return PLACED
    return REASON_TOPOLOGY if widest < LEVEL_SITE else REASON_FRAGMENTATION


@compiled_inside
def place_gang(
    box: Box,
    cls: int,
    widest: int,
    preferred: int,
    end_ms: int,
    weights: np.ndarray,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> int:
    """Name a gang, on one device model where one holds it whole: a mixed gang runs at the pace of its slowest."""
    models = box.meta[META_MODELS]
    if models > 1 and box.classes[CLASS_DEVICES, cls] > 0:
        for model in range(models):
            if box.totals[model] == 0 or (box.classes[CLASS_MODELS, cls] >> model) & 1 == 0:
                continue
            if place_gang_on(box, cls, widest, preferred, end_ms, weights, model, at_nodes, at_devices) == PLACED:
                return PLACED
    return place_gang_on(box, cls, widest, preferred, end_ms, weights, NONE, at_nodes, at_devices)


@compiled_inside
def place(
    box: Box,
    cls: int,
    widest: int,
    preferred: int,
    end_ms: int,
    weights: np.ndarray,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
) -> int:
    """Name nodes and devices for `len(at_nodes)` replicas of the class into `at_nodes` and `at_devices`.

    Returns PLACED, or the reason (see `reasons`) why it cannot start now. end_ms: when the job is expected to end; it
    must leave every reservation that begins before then whole. preferred: as JOB_PREFERRED.
    Leaves the tables as they were.
    """
    replicas = len(at_nodes)
    needed = replicas * box.classes[CLASS_DEVICES, cls]
    if needed > 0 and box.classes[CLASS_SHARE, cls] == 1000 and free_devices_allowed(box, cls) < needed:
        return REASON_RESOURCES
    if replicas > 1:
        reason = place_gang(box, cls, widest, preferred, end_ms, weights, at_nodes, at_devices)
        if reason != PLACED and box.classes[CLASS_SOCIAL, cls] == 1:
            return REASON_NEIGHBOURS if has_room_but_for_neighbours(box, cls, end_ms, replicas) else reason
        return reason
    pool = best_pool(box, cls, end_ms, weights, NONE, NONE, NONE)
    if pool != NONE:
        name_replica(box, cls, pool, at_nodes, at_devices, 0)
        return PLACED
    if box.classes[CLASS_SOCIAL, cls] == 1 and has_room_but_for_neighbours(box, cls, end_ms, 1):
        return REASON_NEIGHBOURS
    if box.meta[META_RESERVATIONS] > 0:
        return REASON_RESERVED
    return REASON_FRAGMENTATION if box.classes[CLASS_SHARE, cls] == 1000 else REASON_RESOURCES


@compiled
def place_entry(
    cls: int,
    widest: int,
    preferred: int,
    end_ms: int,
    weights: np.ndarray,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    door: Door,
) -> int:
    """`place`, called from Python as `place_entry(..., door)`."""
    return place(open_box(door), cls, widest, preferred, end_ms, weights, at_nodes, at_devices)


@compiled
def place_beside_entry(
    cls: int,
    widest: int,
    beside: int,
    end_ms: int,
    weights: np.ndarray,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    door: Door,
) -> bool:
    """Name further replicas of a job that holds the device `beside`, in that device's domain of the level `widest`.
    Called from Python as `place_beside_entry(..., door)`; leaves the tables as they were."""
    box = open_box(door)
    pool = box.devices[DEVICE_POOL, beside]
    level = LEVEL_NODE if domain_of(box, widest, pool) == NONE else widest  # its node is in no NVLink domain
    return name_one_by_one(box, cls, end_ms, weights, NONE, level, domain_of(box, level, pool), at_nodes, at_devices)
