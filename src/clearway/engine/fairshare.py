"""Who is entitled to more: decayed use per tenant, ranks and factors in a tree, and dominant-resource order.

All functions are pure and work on columns: `[R, T]` for R resources (devices, CPUs, memory: the USE_* rows, or devices
alone) of T tenants, `[T]` for one number per tenant. Use and holdings given are a tenant's own; sums over those below
are made here. Own jobs of a tenant that has others below it stand beside these as one more child of weight 1, as
Slurm's users do beside the sub-accounts of their account.

Powers of two are the only transcendental function used; within one machine the same journal gives the same numbers.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.tables import NONE

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

USE_DEVICES: Final = 0  # thousandths of a device, times ms where it is use over time
USE_CPU: Final = 1  # milli
USE_MEMORY: Final = 2  # bytes
USE_COLUMNS: Final = 3

_LN_2: Final = 0.6931471805599453
_NO_LEVEL: Final = -1.0  # below every ratio: pads the paths of tenants near the root


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TenantTree:
    """The shape of the tenants, made once per change by `make_tenant_tree`.

    parent, weight: as given. depth: int64[T], 0 for the root. paths: int64[D + 1, T], the ancestor of each tenant at
    each depth, itself at its own, NONE below that. has_children: bool[T].
    """

    parent: IntArray
    weight: FloatArray
    depth: IntArray
    paths: IntArray
    has_children: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.parent)


def make_tenant_tree(parent: IntArray, weight: FloatArray) -> TenantTree:
    """The tree of T tenants. parent: int64[T] rows, NONE for row 0, the root. weight: float64[T], positive."""
    assert parent[0] == NONE
    assert (weight > 0).all()
    count = len(parent)
    climbing = np.arange(count)
    depth = np.zeros(count, dtype=np.int64)
    while (climbing != 0).any():
        depth += climbing != 0
        climbing = np.where(climbing != 0, parent[climbing], 0)
    paths = np.full((int(depth.max()) + 1, count), NONE, dtype=np.int64)
    climbing = np.arange(count)
    for level in range(len(paths) - 1, -1, -1):
        is_here = depth[climbing] == level
        paths[level, is_here] = climbing[is_here]
        climbing = np.where(is_here & (climbing != 0), parent[climbing], climbing)
    has_children = np.zeros(count, dtype=np.bool_)
    has_children[parent[1:]] = True
    return TenantTree(parent=parent, weight=weight, depth=depth, paths=paths, has_children=has_children)


def decay(usage: FloatArray, elapsed_ms: int, half_life_ms: int) -> FloatArray:
    """`usage` after `elapsed_ms` without use. A half-life of 0 means that use is never forgotten (as in Slurm)."""
    return usage * remaining(elapsed_ms, half_life_ms)


def accrue(usage: FloatArray, held: IntArray, elapsed_ms: int, half_life_ms: int) -> FloatArray:
    """`usage` after `elapsed_ms` in which `held` was held all the time: decay and growth together, exactly.

    usage: float64[R, T] in amount × ms. held: int64[R, T] amounts. However the time is cut into pieces, the sum is
    the same up to rounding: the integral of held × 2^(−age / half-life).
    """
    return decay(usage, elapsed_ms, half_life_ms) + held * accrued(elapsed_ms, half_life_ms)


def accrued(elapsed_ms: int, half_life_ms: int) -> float:
    """What `elapsed_ms` of holding one unit until now counts, in ms."""
    if half_life_ms == 0:
        return float(elapsed_ms)
    return (1.0 - remaining(elapsed_ms, half_life_ms)) * half_life_ms / _LN_2


def remaining(elapsed_ms: int, half_life_ms: int) -> float:
    """What is left of one unit of use after `elapsed_ms`."""
    return 1.0 if half_life_ms == 0 else float(2.0 ** (-elapsed_ms / half_life_ms))


def added_use(used: float, elapsed_ms: int, milli: int, held_ms: int, half_life_ms: int) -> float:
    """`used`, as it was `elapsed_ms` ago, after that time, and what `milli` held for `held_ms` until now adds: what
    `remaining` and `accrued` say, in one call, because every job that ends is counted so."""
    if half_life_ms == 0:
        return used + milli * held_ms
    kept: float = 2.0 ** (-held_ms / half_life_ms)
    past: float = 2.0 ** (-elapsed_ms / half_life_ms)
    return used * past + milli * ((1.0 - kept) * half_life_ms / _LN_2)


def dominant_shares(usage: FloatArray | IntArray, capacity: FloatArray | IntArray) -> FloatArray:
    """float64[T]: the largest share that each tenant has of any resource (Ghodsi et al., NSDI 2011).

    usage: [R, T]. capacity: [R] in the same unit; a resource of which there is none (or that is not counted) is 0.
    """
    is_counted = capacity > 0
    if not is_counted.any():
        return np.zeros(usage.shape[1])
    shares: FloatArray = (usage[is_counted] / capacity[is_counted, None]).max(axis=0)
    return shares


def sum_below(tree: TenantTree, own: FloatArray | IntArray) -> FloatArray:
    """float64[R, T]: what each tenant and all below it have, from what each has itself."""
    total = own.astype(np.float64)
    for level in range(len(tree.paths) - 1, 0, -1):
        rows = np.flatnonzero(tree.depth == level)
        np.add.at(total.T, tree.parent[rows], total[:, rows].T)
    return total


def tenant_ranks(tree: TenantTree, usage: FloatArray, capacity: FloatArray | IntArray) -> IntArray:
    """int64[T]: place of each tenant, 0 = most entitled; equally entitled ones share a place.

    Slurm's Fair Tree: siblings are ordered by use over share, both taken among siblings; a subtree comes wholly before
    a less entitled sibling's. Subtrees that are equally entitled are merged and compared one level further down.
    usage: float64[R, T], decayed. capacity: [R].
    """
    ratios, own_ratios = _level_ratios(tree, usage, capacity)
    levels = np.full((len(tree.paths) + 1, len(tree)), _NO_LEVEL)
    for level, ancestors in enumerate(tree.paths):
        levels[level] = np.where(ancestors == NONE, _NO_LEVEL, ratios[ancestors])
    inner = np.flatnonzero(tree.has_children)
    levels[tree.depth[inner] + 1, inner] = own_ratios[inner]
    order = np.lexsort(levels[::-1])
    is_new = np.zeros(len(tree), dtype=np.int64)
    is_new[1:] = (levels[:, order[1:]] != levels[:, order[:-1]]).any(axis=0)
    ranks = np.empty(len(tree), dtype=np.int64)
    ranks[order] = np.cumsum(is_new)
    return ranks


def _level_ratios(
    tree: TenantTree, usage: FloatArray, capacity: FloatArray | IntArray
) -> tuple[FloatArray, FloatArray]:
    """Use over share among siblings: of each tenant with all below it, and of its own jobs beside its children."""
    below = dominant_shares(sum_below(tree, usage), capacity)
    own = dominant_shares(usage, capacity)
    children_use = np.where(tree.has_children, own, 0.0)
    children_weight = tree.has_children.astype(np.float64)
    np.add.at(children_use, tree.parent[1:], below[1:])
    np.add.at(children_weight, tree.parent[1:], tree.weight[1:])
    ratios = np.zeros(len(tree))
    siblings_use, siblings_weight = children_use[tree.parent[1:]], children_weight[tree.parent[1:]]
    ratios[1:] = _use_over_share(below[1:], siblings_use, tree.weight[1:], siblings_weight)
    own_ratios = _use_over_share(own, children_use, np.ones(len(tree)), children_weight)
    return ratios, own_ratios


def _use_over_share(use: FloatArray, uses: FloatArray, weight: FloatArray, weights: FloatArray) -> FloatArray:
    """(use / uses) / (weight / weights), 0 where nobody used anything."""
    return np.divide(use * weights, uses * weight, out=np.zeros(len(use)), where=uses > 0)


def fair_share_factors(tree: TenantTree, usage: FloatArray, capacity: FloatArray | IntArray) -> FloatArray:
    """float64[T] in 0..1: Slurm's classic fair-share factor 2^(−effective use / normalised share); 0.5 = its due.

    Normalised share: the product of weight over siblings' weights along the path. Effective use: own share of all use,
    pulled towards the parent's by the share among siblings; directly below the root there is nothing to be pulled to
    (Slurm, priority_multifactor, "Effective Usage").
    """
    below = dominant_shares(sum_below(tree, usage), capacity)
    if below[0] == 0:
        return np.ones(len(tree))
    actual = below / below[0]
    siblings_weight = np.zeros(len(tree))
    np.add.at(siblings_weight, tree.parent[1:], tree.weight[1:])
    share, effective = np.ones(len(tree)), np.ones(len(tree))
    for level in range(1, len(tree.paths)):
        rows = np.flatnonzero(tree.depth == level)
        parents = tree.parent[rows]
        among_siblings = tree.weight[rows] / siblings_weight[parents]
        share[rows] = share[parents] * among_siblings
        pull = among_siblings if level > 1 else 0.0
        effective[rows] = actual[rows] + (effective[parents] - actual[rows]) * pull
    factors: FloatArray = 2.0 ** (-effective / share)
    return factors


def dominant_order(
    tree: TenantTree, tenant: IntArray, demand: IntArray, held: IntArray, capacity: IntArray
) -> IntArray:
    """int64[n]: a permutation of n waiting jobs that fills tenants by weighted dominant share.

    tenant: int64[n], the tenant of each job, in the order in which each tenant wants its jobs. demand: int64[R, n].
    held: int64[R, T], own holdings now. capacity: int64[R].

    Progressive filling (DRF) always serves the tenant with the least dominant share. A job's start tag is that share at
    the moment when it is served: what its tenant holds and its jobs ahead ask for. Tags never fall within a tenant, so
    sorting by tag merges the tenants as one-by-one filling would. From the leaves up, each level merges its children.
    Equal tags keep the given order.
    """
    virtual_weight = np.concatenate([tree.weight, np.ones(len(tree))])
    holdings = np.concatenate([sum_below(tree, held), held.astype(np.float64)], axis=1)
    order = np.arange(len(tenant))
    for level in range(len(tree.paths) - 1, 0, -1):
        owner = tenant[order]
        here, above = tree.paths[level, owner], tree.paths[level - 1, owner]
        group = np.where(here == NONE, len(tree) + owner, here)
        ahead = _demand_ahead(group, demand[:, order])
        tag = dominant_shares(holdings[:, group] + ahead, capacity) / virtual_weight[group]
        order = order[np.lexsort((tag, np.where(above == NONE, len(tree) + owner, above)))]
    return order


def _demand_ahead(group: IntArray, demand: IntArray) -> IntArray:
    """int64[R, n]: for each job the sum over earlier jobs of its group."""
    by_group = np.argsort(group, kind="stable")
    sorted_group = group[by_group]
    before = np.zeros_like(demand)
    np.cumsum(demand[:, by_group[:-1]], axis=1, out=before[:, 1:])
    starts = np.searchsorted(sorted_group, sorted_group, side="left")
    ahead = np.empty_like(demand)
    ahead[:, by_group] = before - before[:, starts]
    return ahead
