"""Domains of the topology: which is the smallest that holds a gang, and how its replicas are spread over its pools.

Works on `WORK_CAPACITY`, the number of replicas that each pool could take, and on the list of the pools that could take
any: in a cluster that is well used these are few. Who fills both calls `clear_capacity` and then `note_capacity` for
each pool in order; who lowers capacities later may leave pools with none in the list.
"""

from clearway.engine.box import (
    META_FILLED,
    META_LEVELS,
    META_MANY_POOLS,
    META_NODES,
    WORK_CAPACITY,
    WORK_COUNT,
    WORK_DOMAIN,
    WORK_LIST,
    Box,
)
from clearway.engine.compiled import (
    compiled_inline,
    compiled_inside,
)
from clearway.engine.tables import (
    LEVEL_BLOCK,
    LEVEL_LEAF,
    LEVEL_NODE,
    LEVEL_NVLINK,
    LEVEL_SITE,
    NODE_BLOCK,
    NODE_LEAF,
    NODE_NVLINK,
    NODE_POOL_BEGIN,
    NONE,
    POOL_NODE,
)


@compiled_inline
def domain_of(box: Box, level: int, pool: int) -> int:
    """Id of the pool's domain at a level."""
    node = box.pools[POOL_NODE, pool]
    if level == LEVEL_NODE:
        return node
    if level == LEVEL_NVLINK:
        return box.nodes[NODE_NVLINK, node]
    if level == LEVEL_LEAF:
        return box.nodes[NODE_LEAF, node]
    if level == LEVEL_BLOCK:
        return box.nodes[NODE_BLOCK, node]
    return 0


@compiled_inline
def level_of_step(step: int) -> int:
    """Levels in order of size: node, NVLink domain (of several nodes), leaf, block, site for steps from LEVEL_NODE."""
    if step == LEVEL_NODE:
        return LEVEL_NODE
    return LEVEL_NVLINK if step == LEVEL_NODE + 1 else step - 1


@compiled_inline
def is_level_used(box: Box, level: int, widest: int) -> bool:
    """Whether looking at a level can find what narrower ones did not, or something better than wider ones: some domain
    of it holds several nodes, and its links are faster. A job's widest level is a limit, and looked at in any case."""
    if level == LEVEL_NVLINK and widest == LEVEL_NODE:
        return False
    return level in (LEVEL_NODE, LEVEL_SITE, widest) or (box.meta[META_LEVELS] >> level) & 1 == 1


@compiled_inline
def clear_capacity(box: Box) -> None:
    """Begin to fill the capacities anew."""
    box.meta[META_FILLED] = 0


@compiled_inline
def note_capacity(box: Box, pool: int, count: int) -> None:
    """The pool could take so many replicas."""
    box.work[WORK_CAPACITY, pool] = count
    if count > 0:
        box.work[WORK_LIST, box.meta[META_FILLED]] = pool
        box.meta[META_FILLED] += 1


@compiled_inside
def smallest_domain(box: Box, replicas: int, level: int) -> int:
    """The domain of a level with the least capacity that still holds the gang; NONE if none does."""
    if level == LEVEL_SITE or (level == LEVEL_NODE and box.meta[META_MANY_POOLS] == 0):
        return smallest_in_one_pass(box, replicas, level)
    for node in range(box.meta[META_NODES]):
        box.work[WORK_DOMAIN, node] = 0
    last = NONE
    for index in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, index]
        count = box.work[WORK_CAPACITY, pool]
        if count > 0:
            domain = domain_of(box, level, pool)
            if domain != NONE:
                box.work[WORK_DOMAIN, domain] += count
                last = max(last, domain)
    best = NONE
    for domain in range(last + 1):
        count = box.work[WORK_DOMAIN, domain]
        if count >= replicas and (best == NONE or count < box.work[WORK_DOMAIN, best]):
            best = domain
    return best


@compiled_inside
def smallest_in_one_pass(box: Box, replicas: int, level: int) -> int:
    """`smallest_domain` where the site is all there is, or each pool is a node of its own: nothing need be added up."""
    total = 0
    best = NONE
    best_count = 0
    for index in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, index]
        count = box.work[WORK_CAPACITY, pool]
        total += count
        if count >= replicas and (best == NONE or count < best_count):
            best = pool
            best_count = count
            if count == replicas and level == LEVEL_NODE:
                break
    if level == LEVEL_SITE:
        return 0 if total >= replicas else NONE
    return NONE if best == NONE else box.pools[POOL_NODE, best]


@compiled_inside
def keep_domain(box: Box, level: int, domain: int) -> None:
    """Leave only the pools of the domain in the list of those that have capacity."""
    if level == LEVEL_SITE:
        return
    if level == LEVEL_NODE and box.meta[META_MANY_POOLS] == 0:
        box.work[WORK_LIST, 0] = box.nodes[NODE_POOL_BEGIN, domain]
        box.meta[META_FILLED] = 1
        return
    filled = 0
    for index in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, index]
        if domain_of(box, level, pool) == domain:
            box.work[WORK_LIST, filled] = pool
            filled += 1
    box.meta[META_FILLED] = filled


@compiled_inside
def leave_domain(box: Box, level: int, domain: int) -> None:
    """Zero the capacity of pools in the domain."""
    for index in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, index]
        if domain_of(box, level, pool) == domain:
            box.work[WORK_CAPACITY, pool] = 0


@compiled_inside
def largest_capacity_pool(box: Box, filled: int, left: int) -> int:
    """Of the first `filled` pools in WORK_LIST the one that takes `left` replicas with least to spare, else the one
    that takes most; NONE if all are empty."""
    best = NONE
    best_count = 0
    for index in range(filled):
        pool = box.work[WORK_LIST, index]
        count = box.work[WORK_CAPACITY, pool]
        tighter = count >= left and (best_count < left or count < best_count)
        fuller = best_count < left and count > best_count
        if count > 0 and (tighter or fuller):
            best = pool
            best_count = count
    return best


@compiled_inside
def choose_counts(box: Box, replicas: int) -> None:
    """Turn the capacities in the work space into how many replicas each pool gets: the fewest nodes, pools in falling
    capacity, and the tightest pool for what is left.

    One pass per capacity value over the pools that have any, not a sort: capacities are small numbers.
    """
    top = 0
    filled = 0
    for index in range(box.meta[META_FILLED]):
        pool = box.work[WORK_LIST, index]
        box.work[WORK_COUNT, pool] = 0
        if box.work[WORK_CAPACITY, pool] > 0:
            top = max(top, box.work[WORK_CAPACITY, pool])
            box.work[WORK_LIST, filled] = pool
            filled += 1
    box.meta[META_FILLED] = filled
    left = replicas
    while left > 0:
        if left <= top:
            pool = largest_capacity_pool(box, filled, left)
            left -= choose_pool(box, pool, left)
            continue
        below = 0
        for index in range(filled):
            pool = box.work[WORK_LIST, index]
            count = box.work[WORK_CAPACITY, pool]
            if count == top and left >= top:
                left -= choose_pool(box, pool, top)
            elif count < top:
                below = max(below, count)
        if left >= top:
            top = below


@compiled_inline
def choose_pool(box: Box, pool: int, most: int) -> int:
    """Give the pool as many of `most` replicas as it has capacity for, which is then used up; returns how many."""
    count = min(most, box.work[WORK_CAPACITY, pool])
    box.work[WORK_COUNT, pool] = count
    box.work[WORK_CAPACITY, pool] = 0
    return count
