"""Free devices that the first waiting job cannot use where they are: a running measure of fragmentation."""

from clearway.engine.box import META_POOLS, Box, Door, open_box
from clearway.engine.compiled import compiled, compiled_inside
from clearway.engine.gang import fill_capacity
from clearway.engine.hold import class_milli
from clearway.engine.reserve import shared_milli
from clearway.engine.tables import NODE_USABLE, NONE, POOL_FREE, POOL_NODE, POOL_SHARED

ANY_NUMBER = 1 << 20
"""More replicas than any cluster holds."""


@compiled_inside
def free_milli(box: Box) -> int:
    """Free thousandths on usable nodes, on wholly free and on partly used devices."""
    total = 0
    for pool in range(box.meta[META_POOLS]):
        if box.nodes[NODE_USABLE, box.pools[POOL_NODE, pool]] == 1:
            total += 1000 * box.pools[POOL_FREE, pool]
            if box.pools[POOL_SHARED, pool] > 0:
                total += shared_milli(box, pool)
    return total


@compiled
def stranded_entry(cls: int, door: Door) -> int:
    """Free thousandths that would be left if replicas of class `cls` were put wherever they fit, without end.

    Called from Python as `stranded_entry(cls, door)`. A class without devices strands all that is free.
    """
    box = open_box(door)
    used = fill_capacity(box, cls, 0, ANY_NUMBER, NONE) * class_milli(box, cls)
    return max(free_milli(box) - used, 0)
