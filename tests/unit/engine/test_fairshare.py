"""Fair share by hand: decay, Fair Tree ranks, Slurm's classic factor, and DRF's published example."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.engine import fairshare
from clearway.engine.tables import NONE

HOUR = 3_600_000


def make_tree(*parents, weights=None):
    """Row 0 is the root; `parents` are those of rows 1.. ."""
    count = len(parents) + 1
    weight = np.ones(count) if weights is None else np.array([1.0, *weights])
    return fairshare.make_tenant_tree(np.array([NONE, *parents]), weight)


def use(*amounts):
    return np.array([amounts], dtype=np.float64)


ONE = np.array([1.0])


def test_use_halves_in_each_half_life():
    assert fairshare.decay(use(8, 2), 2 * HOUR, HOUR).tolist() == [[2.0, 0.5]]


def test_half_life_of_zero_never_forgets():
    assert fairshare.decay(use(8), HOUR, 0).tolist() == [[8.0]]
    assert fairshare.accrue(use(8), np.array([[2]]), 10, 0).tolist() == [[28.0]]


def test_accrual_does_not_depend_on_how_time_is_cut():
    held = np.array([[3, 0]])
    whole = fairshare.accrue(use(5, 7), held, 2 * HOUR, HOUR)
    half = fairshare.accrue(use(5, 7), held, HOUR, HOUR)
    assert fairshare.accrue(half, held, HOUR, HOUR) == pytest.approx(whole)


def test_steady_use_settles_at_mean_life():
    usage = use(0)
    for _ in range(100):
        usage = fairshare.accrue(usage, np.array([[4]]), HOUR, HOUR)
    assert usage[0, 0] == pytest.approx(4 * HOUR / np.log(2))


def test_dominant_share_is_the_largest_of_any_counted_resource():
    usage = np.array([[1, 3], [4, 1], [9, 9]])
    assert fairshare.dominant_shares(usage, np.array([9, 18, 0])).tolist() == [4 / 18, 3 / 9]
    assert fairshare.dominant_shares(usage, np.zeros(3)).tolist() == [0, 0]


def test_tree_knows_ancestors_at_each_depth():
    tree = make_tree(0, 0, 1, 3)
    assert tree.depth.tolist() == [0, 1, 1, 2, 3]
    assert tree.paths[1].tolist() == [NONE, 1, 2, 1, 1]
    assert tree.paths[3].tolist() == [NONE, NONE, NONE, NONE, 4]
    assert fairshare.sum_below(tree, use(1, 2, 4, 8, 16))[0].tolist() == [31, 26, 4, 24, 16]


def test_tenant_that_used_less_for_its_weight_ranks_first():
    ranks = fairshare.tenant_ranks(make_tree(0, 0, weights=(3, 1)), use(0, 6, 3), ONE)
    assert ranks[1] < ranks[2]


def test_subtree_of_more_entitled_sibling_ranks_wholly_first():
    # Divisions 1 (used 10) and 2 (used 20); teams 3, 4 in 1 and 5, 6 in 2. Team 5 used nothing at all.
    tree = make_tree(0, 0, 1, 1, 2, 2)
    ranks = fairshare.tenant_ranks(tree, use(0, 0, 0, 1, 9, 0, 20), ONE)
    assert ranks[3] < ranks[4] < ranks[5] < ranks[6]


def test_children_of_equally_entitled_divisions_are_merged():
    tree = make_tree(0, 0, 1, 1, 2, 2)
    ranks = fairshare.tenant_ranks(tree, use(0, 0, 0, 4, 6, 3, 7), ONE)
    assert ranks[5] < ranks[3] < ranks[4] < ranks[6]


def test_tenants_without_use_share_the_first_place():
    assert fairshare.tenant_ranks(make_tree(0, 0), use(0, 0, 0), ONE)[1:].tolist() == [0, 0]


def test_own_jobs_of_inner_tenant_compete_with_its_children():
    ranks = fairshare.tenant_ranks(make_tree(0), use(9, 1), ONE)
    assert ranks[1] < ranks[0]


def test_classic_factor_is_half_at_ones_due_and_one_without_use():
    tree = make_tree(0, 0)
    assert fairshare.fair_share_factors(tree, use(0, 5, 5), ONE)[1:].tolist() == [0.5, 0.5]
    assert fairshare.fair_share_factors(tree, use(0, 0, 0), ONE).tolist() == [1, 1, 1]
    assert fairshare.fair_share_factors(tree, use(0, 10, 0), ONE)[1] == 0.25


def test_effective_use_is_pulled_towards_parent():
    # Division 1 has half the shares and did all the work, by team 3; team 4 in it shares the blame.
    # UE(1) = 1; UE(4) = 0 + (1 - 0) / 2 = 1/2 with share 1/4, so 2^-2; UE(3) = 1 + 0 = 1, so 2^-4.
    tree = make_tree(0, 0, 1, 1)
    factors = fairshare.fair_share_factors(tree, use(0, 0, 0, 8, 0), ONE)
    assert factors[3:].tolist() == [2**-4, 2**-2]
    assert factors[1:3].tolist() == [0.25, 1.0]


def fill(order, tenant, demand, capacity):
    """How many jobs of each tenant start when they are served in `order` until one does not fit."""
    free = capacity.copy()
    started = np.zeros(tenant.max() + 1, dtype=np.int64)
    for job in order:
        if (demand[:, job] > free).any():
            break
        free -= demand[:, job]
        started[tenant[job]] += 1
    return started


def test_dominant_order_gives_three_and_two_in_published_example():
    """Ghodsi et al. 2011, section 4.1: 9 CPUs, 18 GB; A asks (1 CPU, 4 GB), B (3 CPUs, 1 GB)."""
    tenant = np.array([1] * 5 + [2] * 5)
    demand = np.array([[1] * 5 + [3] * 5, [4] * 5 + [1] * 5])
    capacity = np.array([9, 18])
    order = fairshare.dominant_order(make_tree(0, 0), tenant, demand, np.zeros((2, 3), dtype=np.int64), capacity)
    assert fill(order, tenant, demand, capacity).tolist() == [0, 3, 2]


def test_dominant_order_counts_what_tenants_hold_and_weigh():
    tenant = np.array([1, 1, 2, 2])
    demand = np.full((1, 4), 2)
    held = np.array([[0, 3, 0]])
    order = fairshare.dominant_order(make_tree(0, 0), tenant, demand, held, np.array([10]))
    assert order.tolist() == [2, 3, 0, 1]
    heavy = make_tree(0, 0, weights=(4, 1))
    assert fairshare.dominant_order(heavy, tenant, demand, held, np.array([10])).tolist() == [2, 0, 1, 3]


def test_dominant_order_divides_among_divisions_before_teams():
    # Division 1 has teams 3 and 4, tenant 2 has none: it gets every second place, each team every fourth.
    tree = make_tree(0, 0, 1, 1)
    tenant = np.array([3, 3, 4, 4, 2, 2, 2, 2])
    order = fairshare.dominant_order(
        tree, tenant, np.ones((1, 8), dtype=int), np.zeros((1, 5), dtype=int), np.array([8])
    )
    assert tenant[order].tolist() == [3, 2, 4, 2, 3, 2, 4, 2]


def test_dominant_order_treats_own_jobs_of_root_as_one_more_child():
    tenant = np.array([0, 0, 1, 1])
    held = np.zeros((1, 2), dtype=int)
    order = fairshare.dominant_order(make_tree(0), tenant, np.ones((1, 4), dtype=int), held, np.array([4]))
    assert tenant[order].tolist() == [0, 1, 0, 1]


def test_dominant_order_of_no_jobs_is_empty():
    nothing = np.zeros((1, 0), dtype=np.int64)
    held = np.zeros((1, 2), dtype=np.int64)
    assert fairshare.dominant_order(make_tree(0), nothing[0], nothing, held, np.array([4])).tolist() == []


def fill_one_by_one(weight, tenant, demand, capacity):
    """Progressive filling as the paper states it: serve the tenant of least weighted dominant share."""
    waiting = {row: [job for job in range(len(tenant)) if tenant[job] == row] for row in range(1, len(weight))}
    held = np.zeros((len(capacity), len(weight)))
    order = []
    while any(waiting.values()):
        share = (held / capacity[:, None]).max(axis=0) / weight
        row = min((row for row in waiting if waiting[row]), key=lambda row: (share[row], waiting[row][0]))
        job = waiting[row].pop(0)
        held[:, row] += demand[:, job]
        order.append(job)
    return order


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(1, 8)), min_size=1, max_size=30))
def test_start_tags_merge_as_progressive_filling_does(jobs):
    tenant, first, second = (np.array(column) for column in zip(*jobs, strict=True))
    weights = (1.0, 2.0, 4.0, 1.0)
    demand, capacity = np.stack([first, second]), np.array([16, 32])
    order = fairshare.dominant_order(
        make_tree(0, 0, 0, 0, weights=weights), tenant, demand, np.zeros((2, 5), dtype=np.int64), capacity
    )
    assert order.tolist() == fill_one_by_one(np.array([1.0, *weights]), tenant, demand, capacity)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_job_has_one_place_in_a_deep_tree(data):
    parents = [data.draw(st.integers(0, row)) for row in range(data.draw(st.integers(1, 6)))]
    tree = make_tree(*parents)
    tenant = np.array(data.draw(st.lists(st.integers(0, len(parents)), min_size=1, max_size=20)))
    demand = np.ones((1, len(tenant)), dtype=np.int64)
    order = fairshare.dominant_order(tree, tenant, demand, np.zeros((1, len(tree)), dtype=int), np.array([64]))
    assert sorted(order.tolist()) == list(range(len(tenant)))
    for row in range(len(tree)):
        places = order[tenant[order] == row]
        assert places.tolist() == sorted(places.tolist()), "a tenant's own order is kept"
