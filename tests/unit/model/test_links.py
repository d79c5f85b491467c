"""The estimate of a collective operation by hand."""

import pytest

from clearway.model.cluster import LinkSpec
from clearway.model.jobs import DomainLevel
from clearway.model.links import EXCHANGED_BYTES, all_reduce_ms, link_at, pace_of

FAST, SLOW = LinkSpec(bandwidth_gbps=400, latency_us=0), LinkSpec(bandwidth_gbps=50, latency_us=1_000)
LINKS = {"node": FAST, "leaf": SLOW}
DATA_MS = EXCHANGED_BYTES / 1e6
"""Milliseconds for the data at one gigabyte a second."""


def test_a_ring_passes_nearly_twice_the_data_however_many_members_it_has():
    two, eight = (all_reduce_ms(LINKS, DomainLevel.NODE, 1, members) for members in (2, 8))
    assert two == pytest.approx(1.0 * DATA_MS / 400)
    assert eight == pytest.approx(1.75 * DATA_MS / 400)


def test_each_device_of_a_node_passes_its_part_to_the_other_nodes():
    inside = 1.75 * DATA_MS / 400
    across = 2 * 3 * 1.0 + 1.5 * DATA_MS / 8 / 50
    assert all_reduce_ms(LINKS, DomainLevel.LEAF, 4, 8) == pytest.approx(inside + across)


def test_one_member_and_unknown_links_cost_nothing():
    assert all_reduce_ms(LINKS, DomainLevel.SITE, 1, 1) == 0.0
    assert pace_of({}, DomainLevel.SITE, 9, 8) == 1.0


@pytest.mark.parametrize(("level", "link"), [("nvlink", FAST), ("node", FAST), ("block", SLOW), ("site", SLOW)])
def test_a_level_that_is_not_given_is_like_the_next_narrower_one(level, link):
    assert link_at(LINKS, DomainLevel(level)) is link


def test_the_wider_the_slower():
    assert pace_of(LINKS, DomainLevel.NODE, 1, 8) > pace_of(LINKS, DomainLevel.LEAF, 2, 4)
    assert pace_of(LINKS, DomainLevel.LEAF, 2, 4) > pace_of(LINKS, DomainLevel.LEAF, 4, 2)
