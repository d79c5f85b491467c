"""Packing whose result is known: divisible sizes (Coffman, Garey and Johnson, 1987), and the gradient of FGD."""

import numpy as np
import pytest

from clearway.engine.policy import Backfill, Placement, Policy
from clearway.kernel import Kernel
from clearway.policies.orders import Fifo
from support.engine import add_nodes, devices_of, make_kernel, started, submit


@pytest.mark.parametrize("seed", range(20))
def test_best_fit_decreasing_wastes_nothing_on_divisible_sizes(seed):
    """Sizes 8, 4, 2 and 1 that add up to the cluster, largest first, all start at once and fill every node."""
    random = np.random.default_rng(seed)
    left, sizes = 5 * 8, []
    while left:
        sizes.append(int(random.choice([size for size in (8, 4, 2, 1) if size <= left])))
        left -= sizes[-1]
    kernel = make_kernel()
    add_nodes(kernel, 5, 8)
    commands = submit(kernel, *({"devices": size} for size in sorted(sizes, reverse=True)))
    assert len(started(commands)) == len(sizes)
    assert kernel.state.device_shares_free().sum() == 0


def test_fragmentation_gradient_prefers_the_node_whose_fragmentation_does_not_grow():
    """Typical jobs ask for 4 devices. One device more: from a node with 6 free it takes one of two that are useless
    there already; from a node with 4 free (what best fit would take) it would strand the other three."""
    policy = Policy(
        name="fgd",
        order=Fifo(),
        backfill=Backfill(reservation_depth=0),
        placement=Placement(pack=0.0, fragmentation=1.0),
    )
    kernel = Kernel(policy)
    add_nodes(kernel, 1, 4)
    add_nodes(kernel, 1, 6)
    submit(kernel, *({"devices": 4, "held": True} for _ in range(20)))
    commands = submit(kernel, {"devices": 1})
    assert devices_of(started(commands)[0]) == [4]


def test_best_fit_prefers_the_fuller_node():
    kernel = make_kernel()
    add_nodes(kernel, 1, 6)
    add_nodes(kernel, 1, 4)
    assert devices_of(started(submit(kernel, {"devices": 1}))[0]) == [6]
