"""What the links of the cluster say of placements, by the estimate of `model.links`; without links, nothing.

Two levels of the topology between which a typical program runs as fast are one to placement: a gang then goes to the
tightest domain of the wider one. And an elastic job grows only where it is faster for it, with what it then exchanges.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from clearway.engine.tables import (
    LEVEL_BLOCK,
    LEVEL_LEAF,
    LEVEL_NVLINK,
    NODE_BLOCK,
    NODE_LEAF,
    NODE_NVLINK,
    NONE,
)
from clearway.model.allocation import Allocation
from clearway.model.jobs import DomainLevel
from clearway.model.links import Links, pace_of

if TYPE_CHECKING:
    from clearway.engine.inventory import Inventory
    from clearway.engine.state import ClusterState

WIDER: Final = (
    (LEVEL_NVLINK, DomainLevel.NVLINK, DomainLevel.LEAF),
    (LEVEL_LEAF, DomainLevel.LEAF, DomainLevel.BLOCK),
    (LEVEL_BLOCK, DomainLevel.BLOCK, DomainLevel.SITE),
)
"""Levels of several nodes, each with the next wider one."""
SAME_PACE: Final = 0.995
"""Paces of which one is at least this part of the other are the same: no estimate knows half a per cent."""
COLUMNS: Final = ((DomainLevel.NVLINK, NODE_NVLINK), (DomainLevel.LEAF, NODE_LEAF), (DomainLevel.BLOCK, NODE_BLOCK))


def distinct_levels(links: Links) -> int:
    """Bit mask of the levels within which a gang over two nodes is faster than within the next wider one."""
    mask = 0
    for level, name, wider in WIDER:
        if not links or pace_of(links, wider, 2, 1) < SAME_PACE * pace_of(links, name, 2, 1):
            mask |= 1 << level
    return mask


def spanned_level(inventory: "Inventory", allocation: Allocation) -> DomainLevel:
    """The narrowest domain that holds all nodes of the allocation."""
    nodes = np.unique(allocation.nodes)
    if len(nodes) < 2:
        return DomainLevel.NODE
    for level, column in COLUMNS:
        domains = inventory.nodes[column, nodes]
        if domains[0] != NONE and (domains == domains[0]).all():
            return level
    return DomainLevel.SITE


def pace_on(state: "ClusterState", allocation: Allocation) -> float:
    """Speed on the allocation as a part of that with links that cost nothing; 1 where no links are known."""
    if not state.link_speeds:
        return 1.0
    nodes = max(len(np.unique(allocation.nodes)), 1)
    per_node = -(-max(len(allocation.devices), allocation.replicas) // nodes)
    return pace_of(state.link_speeds, spanned_level(state.inventory, allocation), nodes, per_node)
