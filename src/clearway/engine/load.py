"""Load of nodes, for placement that spreads: the weighted mean of what is taken of devices, CPUs and memory."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import META_POOLS, Box
from clearway.engine.compiled import compiled_inside
from clearway.engine.policy import Placement
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICES,
    CLASS_MEM,
    CLASS_SHARE,
    NODE_CPU_FREE,
    NODE_CPU_TOTAL,
    NODE_MEM_FREE,
    NODE_MEM_TOTAL,
    POOL_FREE,
    POOL_NODE,
    POOL_SIZE,
)

# Places in the array of weights that a policy's `Placement` becomes.
WEIGHT_PACK: Final = 0
WEIGHT_SPREAD: Final = 1
WEIGHT_FRAGMENTATION: Final = 2
WEIGHT_SPEED: Final = 3
WEIGHT_TOPOLOGY: Final = 4
WEIGHT_SPREAD_CPUS: Final = 5
WEIGHT_SPREAD_MEMORY: Final = 6
WEIGHTS: Final = 7


def make_weights(placement: Placement) -> NDArray[np.float64]:
    """The placement's weights in the order that compiled code expects."""
    weights = np.zeros(WEIGHTS)
    weights[WEIGHT_PACK] = placement.pack
    weights[WEIGHT_SPREAD] = placement.spread
    weights[WEIGHT_SPREAD_CPUS] = placement.spread_cpus
    weights[WEIGHT_SPREAD_MEMORY] = placement.spread_memory
    weights[WEIGHT_FRAGMENTATION] = placement.fragmentation
    weights[WEIGHT_SPEED] = placement.speed
    weights[WEIGHT_TOPOLOGY] = placement.topology
    return weights


@compiled_inside
def pool_load(box: Box, pool: int, weights: np.ndarray) -> float:
    """Weighted mean of the shares that are taken: of the pool's devices, of its node's CPUs and memory."""
    cpus = weights[WEIGHT_SPREAD_CPUS]
    memory = weights[WEIGHT_SPREAD_MEMORY]
    load: float = 1.0 - float(box.pools[POOL_FREE, pool]) / max(box.pools[POOL_SIZE, pool], 1)
    if cpus == 0.0 and memory == 0.0:
        return load
    node = box.pools[POOL_NODE, pool]
    load += cpus * (1.0 - box.nodes[NODE_CPU_FREE, node] / max(box.nodes[NODE_CPU_TOTAL, node], 1))
    load += memory * (1.0 - box.nodes[NODE_MEM_FREE, node] / max(box.nodes[NODE_MEM_TOTAL, node], 1))
    load /= 1.0 + cpus + memory
    return load


@compiled_inside
def load_growth(box: Box, cls: int, pool: int, weights: np.ndarray) -> float:
    """By how much `pool_load` grows when the pool takes one replica."""
    cpus = weights[WEIGHT_SPREAD_CPUS]
    memory = weights[WEIGHT_SPREAD_MEMORY]
    takes = box.classes[CLASS_DEVICES, cls] * box.classes[CLASS_SHARE, cls] / 1000.0
    growth: float = takes / max(box.pools[POOL_SIZE, pool], 1)
    if cpus == 0.0 and memory == 0.0:
        return growth
    node = box.pools[POOL_NODE, pool]
    growth += cpus * box.classes[CLASS_CPU, cls] / max(box.nodes[NODE_CPU_TOTAL, node], 1)
    growth += memory * box.classes[CLASS_MEM, cls] / max(box.nodes[NODE_MEM_TOTAL, node], 1)
    growth /= 1.0 + cpus + memory
    return growth


@compiled_inside
def mean_load(box: Box, weights: np.ndarray) -> float:
    """Mean of `pool_load` over pools with devices."""
    total = 0.0
    count = 0
    for pool in range(box.meta[META_POOLS]):
        if box.pools[POOL_SIZE, pool] > 0:
            total += pool_load(box, pool, weights)
            count += 1
    return total / max(count, 1)
