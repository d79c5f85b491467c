"""Quota in a tree: Kueue's rules by hand, and their invariants by Hypothesis."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.engine import quota
from clearway.engine import tables as t
from clearway.engine.explain_limits import short_levels
from clearway.model.units import FOREVER_MS


@dataclass
class Team:
    parent: int
    guaranteed: int | None = None
    borrow_max: int = FOREVER_MS
    lend_max: int = FOREVER_MS


def make_tenants(*teams, root=None, cluster=FOREVER_MS):
    """A tenant table: row 0 is the root, rows 1.. are `teams`."""
    rows = [Team(t.NONE, root), *teams]
    table = t.make_table(t.TENANT_COLUMNS, len(rows))
    for row, team in enumerate(rows):
        table[t.TENANT_PARENT, row] = team.parent
        table[t.TENANT_HAS_QUOTA, row] = team.guaranteed is not None
        table[t.TENANT_GUARANTEED, row] = team.guaranteed or 0
        table[t.TENANT_BORROW_MAX, row] = team.borrow_max
        table[t.TENANT_LEND_MAX, row] = team.lend_max
    quota.refresh_tenants(table, len(rows), cluster)
    return table


def test_tree_without_quota_never_limits():
    tenants = make_tenants(Team(0), Team(1), cluster=1_000)
    quota.tenant_take(tenants, 2, 5_000)
    assert quota.tenant_available(tenants, 2) == quota.UNLIMITED
    assert quota.tenant_available(tenants, 0) == quota.UNLIMITED
    assert not quota.is_borrowing(tenants, 2)
    assert not quota.may_reclaim(tenants, 1, 2, 1)
    assert tenants[t.TENANT_USED].tolist() == [5_000, 5_000, 5_000]


def test_tenant_borrows_what_sibling_leaves_idle():
    tenants = make_tenants(Team(0, 8_000), Team(0, 4_000), root=0)
    assert quota.tenant_available(tenants, 1) == 12_000
    quota.tenant_take(tenants, 2, 3_000)
    assert quota.tenant_available(tenants, 1) == 9_000
    quota.tenant_take(tenants, 1, 9_000)
    assert quota.borrowed_milli(tenants, 1) == 1_000
    assert quota.tenant_available(tenants, 2) == 0


def test_borrowing_limit_caps_what_is_taken_beyond_guarantee():
    tenants = make_tenants(Team(0, 8_000, borrow_max=2_000), Team(0, 8_000), root=0)
    assert quota.tenant_available(tenants, 1) == 10_000
    quota.tenant_take(tenants, 1, 10_000)
    assert quota.tenant_available(tenants, 1) == 0
    assert quota.tenant_available(tenants, 2) == 6_000


def test_lending_limit_keeps_part_of_guarantee_for_its_owner():
    tenants = make_tenants(Team(0, 8_000, lend_max=3_000), Team(0, 4_000), root=0)
    assert quota.tenant_available(tenants, 2) == 7_000
    quota.tenant_take(tenants, 2, 7_000)
    assert quota.tenant_available(tenants, 2) == 0
    assert quota.tenant_available(tenants, 1) == 5_000
    quota.tenant_take(tenants, 1, 5_000)
    assert tenants[t.TENANT_TAKEN, 0] == 7_000
    assert tenants[t.TENANT_USED, 0] == 12_000


def test_lending_limit_holds_against_tenants_without_quota():
    tenants = make_tenants(Team(0, 10_000, lend_max=3_000), Team(0), cluster=10_000)
    assert quota.tenant_available(tenants, 2) == 3_000
    assert quota.tenant_available(tenants, 0) == 3_000


def test_root_without_quota_is_as_large_as_the_cluster():
    tenants = make_tenants(Team(0, 4_000), Team(0), cluster=10_000)
    assert quota.tenant_available(tenants, 1) == 10_000
    quota.tenant_take(tenants, 2, 9_000)
    assert quota.tenant_available(tenants, 1) == 1_000
    assert quota.borrowed_milli(tenants, 2) == 9_000


def test_whole_and_fractional_use_add_up_in_one_quota():
    tenants = make_tenants(Team(0, 2_000, borrow_max=0), Team(0, 8_000), root=0)
    for _ in range(2):
        quota.tenant_take(tenants, 1, 400)
    quota.tenant_take(tenants, 1, 1_000)
    assert tenants[t.TENANT_USED, 1] == 1_800
    assert quota.tenant_available(tenants, 1) == 200


def test_limit_of_upper_level_binds_teams_below():
    division = Team(0, 0, borrow_max=1_000)
    tenants = make_tenants(division, Team(1, 4_000), Team(1, 2_000), Team(0, 100_000), root=0)
    assert quota.tenant_available(tenants, 2) == 7_000
    quota.tenant_take(tenants, 3, 3_000)
    assert quota.tenant_available(tenants, 2) == 4_000


def test_division_keeps_quota_for_its_teams():
    division = Team(0, 0, lend_max=1_000)
    tenants = make_tenants(division, Team(1, 4_000), Team(1, 2_000), Team(0, 10_000), root=0)
    assert tenants[t.TENANT_SUBTREE, 1] == 6_000
    assert tenants[t.TENANT_KEPT, 1] == 5_000
    assert quota.tenant_available(tenants, 4) == 11_000
    quota.tenant_take(tenants, 4, 11_000)
    assert quota.tenant_available(tenants, 2) == 5_000


def test_kept_quota_is_available_though_level_above_is_in_debt():
    tenants = make_tenants(Team(0, 8_000, lend_max=2_000), Team(0, 8_000), root=0)
    quota.tenant_take(tenants, 2, 10_000)
    tenants[t.TENANT_GUARANTEED, 2] = 1_000
    quota.refresh_tenants(tenants, 3, FOREVER_MS)
    assert quota.tenant_available(tenants, 2) == 0
    assert quota.tenant_available(tenants, 1) == 6_000


def test_refresh_moves_use_with_a_tenant_to_its_new_parent():
    tenants = make_tenants(Team(0, 4_000), Team(0, 4_000), Team(1, 1_000), root=0)
    quota.tenant_take(tenants, 3, 1_000)
    tenants[t.TENANT_PARENT, 3] = 2
    quota.refresh_tenants(tenants, 4, FOREVER_MS)
    assert tenants[t.TENANT_USED].tolist() == [1_000, 0, 1_000, 1_000]


def test_owner_reclaims_guarantee_from_borrower_only():
    tenants = make_tenants(Team(0, 8_000), Team(0, 4_000), Team(0, 4_000), root=0)
    quota.tenant_take(tenants, 1, 12_000)
    quota.tenant_take(tenants, 2, 4_000)
    assert quota.may_reclaim(tenants, 3, 1, 4_000)
    assert not quota.may_reclaim(tenants, 3, 2, 4_000), "a tenant within its guarantee is no victim"
    assert not quota.may_reclaim(tenants, 3, 1, 4_001), "only what is guaranteed may be claimed by right"
    assert not quota.may_reclaim(tenants, 1, 3, 1)


def test_team_reclaims_what_its_division_is_guaranteed():
    tenants = make_tenants(Team(0, 8_000), Team(1), Team(0, 8_000), root=0)
    quota.tenant_take(tenants, 3, 16_000)
    assert quota.may_reclaim(tenants, 2, 3, 8_000)
    assert not quota.may_reclaim(tenants, 2, 3, 8_001)


def test_division_within_its_quota_protects_its_borrowing_team():
    tenants = make_tenants(Team(0, 8_000), Team(1), Team(0, 8_000), root=0)
    quota.tenant_take(tenants, 2, 8_000)
    quota.tenant_take(tenants, 3, 2_000)
    assert quota.is_borrowing(tenants, 2)
    assert not quota.may_reclaim(tenants, 3, 2, 1_000)


def test_guarantee_is_reclaimed_from_jobs_of_the_root_itself():
    tenants = make_tenants(Team(0, 6_000), cluster=10_000)
    quota.tenant_take(tenants, 0, 10_000)
    assert quota.may_reclaim(tenants, 1, 0, 6_000)
    quota.tenant_take(tenants, 0, -6_000)
    assert not quota.may_reclaim(tenants, 1, 0, 6_000), "what nobody owns is the root's own"


@pytest.mark.parametrize(
    ("milli", "refusal"),
    [
        (1_000, quota.QUEUE_OPEN),
        (2_001, quota.QUEUE_REFUSES_JOB),
        (1_500, quota.QUEUE_REFUSES_DEVICES),
    ],
)
def test_queue_limits_refuse_by_number(milli, refusal):
    queues = t.make_table(t.QUEUE_COLUMNS, 1)
    queues[t.QUEUE_DEVICES_MAX] = 4_000
    queues[t.QUEUE_JOB_MAX] = 2_000
    queues[t.QUEUE_RUNNING_MAX] = 3
    quota.queue_take(queues, 0, 3_000, 2)
    assert quota.queue_refusal(queues, 0, milli) == refusal
    assert quota.queue_allows(queues, 0, milli) == (refusal == quota.QUEUE_OPEN)
    quota.queue_take(queues, 0, 0, 1)
    if refusal == quota.QUEUE_OPEN:
        assert quota.queue_refusal(queues, 0, milli) == quota.QUEUE_REFUSES_RUNNING


amounts = st.integers(0, 12)
limits = st.one_of(st.just(FOREVER_MS), amounts)


@st.composite
def trees(draw):
    """A tree of up to seven tenants with any mixture of quotas, on a cluster of any size."""
    count = draw(st.integers(1, 6))
    teams = [
        Team(draw(st.integers(0, row)), draw(st.none() | amounts), draw(limits), draw(limits)) for row in range(count)
    ]
    return make_tenants(*teams, root=draw(st.none() | amounts), cluster=draw(amounts))


takes = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 8)), max_size=25)


def admit_all(tenants, wishes):
    """Take what is available, in order; returns what was admitted as (tenant row, milli)."""
    admitted = []
    for tenant, milli in wishes:
        row = tenant % tenants.shape[1]
        if milli <= quota.tenant_available(tenants, row):
            quota.tenant_take(tenants, row, milli)
            admitted.append((row, milli))
    return admitted


@settings(max_examples=200, deadline=None)
@given(trees(), takes)
def test_use_is_the_sum_of_holdings_at_each_level(tenants, wishes):
    admitted = admit_all(tenants, wishes)
    expected = np.zeros(tenants.shape[1], dtype=np.int64)
    for row, milli in admitted:
        level = row
        while level != t.NONE:
            expected[level] += milli
            level = tenants[t.TENANT_PARENT, level]
    assert tenants[t.TENANT_USED].tolist() == expected.tolist()


@settings(max_examples=200, deadline=None)
@given(trees(), takes, st.randoms(use_true_random=False))
def test_giving_back_in_any_order_restores_equality(tenants, wishes, shuffler):
    before = tenants.copy()
    admitted = admit_all(tenants, wishes)
    after = tenants.copy()
    quota.refresh_tenants(tenants, tenants.shape[1], 0)
    derived = [t.TENANT_USED, t.TENANT_TAKEN, t.TENANT_KEPT]
    assert (tenants[derived] == after[derived]).all(), "kept by increments = worked out afresh"
    tenants[:] = after
    shuffler.shuffle(admitted)
    for row, milli in admitted:
        quota.tenant_take(tenants, row, -milli)
    assert (tenants == before).all()


@settings(max_examples=200, deadline=None)
@given(trees(), takes)
def test_no_admitted_use_exceeds_guarantee_plus_borrowing_limit(tenants, wishes):
    admit_all(tenants, wishes)
    if not tenants[t.TENANT_LIMITED, 0]:
        return
    for row in range(1, tenants.shape[1]):
        if tenants[t.TENANT_HAS_QUOTA, row]:
            within = tenants[t.TENANT_SUBTREE, row] + tenants[t.TENANT_BORROW_MAX, row]
            assert tenants[t.TENANT_TAKEN, row] <= within
    assert tenants[t.TENANT_TAKEN, 0] <= tenants[t.TENANT_SUBTREE, 0]


@settings(max_examples=200, deadline=None)
@given(trees(), takes)
def test_kept_quota_of_direct_teams_survives_everything_others_take(tenants, wishes):
    claimant = 1
    if not tenants[t.TENANT_LIMITED, 0]:
        return
    children = [row for row in range(tenants.shape[1]) if tenants[t.TENANT_PARENT, row] == claimant]
    if children:
        return
    others = [(tenant, milli) for tenant, milli in wishes if tenant % tenants.shape[1] != claimant]
    admit_all(tenants, others)
    assert quota.tenant_available(tenants, claimant) >= tenants[t.TENANT_KEPT, claimant]


@settings(max_examples=200, deadline=None)
@given(trees(), takes)
def test_guarantee_is_reclaimable_by_stopping_borrowers(tenants, wishes):
    """Whoever asks within its guarantee gets it after jobs that `may_reclaim` names have left, and none else."""
    claimant = 1
    rows = tenants.shape[1]
    guaranteed = int(tenants[t.TENANT_NOMINAL, claimant])
    is_leaf = claimant not in tenants[t.TENANT_PARENT].tolist()
    is_binding = tenants[t.TENANT_HAS_QUOTA, claimant] and tenants[t.TENANT_PARENT, claimant] == 0
    if not (is_leaf and is_binding and guaranteed):
        return
    holdings = admit_all(tenants, [wish for wish in wishes if wish[0] % rows != claimant])
    while quota.tenant_available(tenants, claimant) < guaranteed:
        victims = [
            index for index, (row, _) in enumerate(holdings) if quota.may_reclaim(tenants, claimant, row, guaranteed)
        ]
        assert victims, "the guarantee is out of reach"
        row, milli = holdings.pop(victims[-1])
        quota.tenant_take(tenants, row, -milli)


@settings(max_examples=200, deadline=None)
@given(trees(), takes)
def test_the_levels_that_are_told_as_short_are_those_that_refuse(tenants, wishes):
    empty = tenants.copy()
    admit_all(tenants, wishes)
    if not tenants[t.TENANT_LIMITED, 0]:
        return
    for row in range(tenants.shape[1]):
        available = quota.tenant_available(tenants, row)
        assert short_levels(tenants, row, available) == []
        assert short_levels(tenants, row, available + 1)
        all_levels = short_levels(tenants, row, 1_000_000)
        assert min(level.left for level in all_levels) == available
        assert min(level.most for level in all_levels) == quota.tenant_available(empty, row)
