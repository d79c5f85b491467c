"""A gang lies in the smallest domain that holds it, on one device model where one holds it whole."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Placement
from clearway.model.cluster import LinkSpec
from clearway.model.events import LinksSet
from clearway.model.jobs import DomainLevel, Network
from clearway.model.plan import ReasonCode
from support.engine import FIRST_FIT, add_nodes, devices_of, make_kernel, nodes_of, started, submit


def reason(kernel, job):
    return kernel.explain(job).reasons[0].code


def within(level):
    return Network(widest=DomainLevel(level))


def test_a_gang_takes_the_node_with_least_to_spare():
    kernel = make_kernel()
    add_nodes(kernel, 3, 8)
    submit(kernel, {"devices": 2}, {"devices": 8}, {"devices": 5})
    assert nodes_of(started(submit(kernel, {"replicas": 3}))[0]) == [2, 2, 2]


def test_a_gang_takes_the_leaf_with_least_to_spare():
    kernel = make_kernel()
    add_nodes(kernel, 3, 8, leaf="wide")
    add_nodes(kernel, 2, 8, leaf="narrow")
    assert nodes_of(started(submit(kernel, {"devices": 8, "replicas": 2}))[0]) == [3, 4]


def test_a_gang_prefers_an_nvlink_domain_of_several_nodes_to_a_leaf():
    kernel = make_kernel()
    add_nodes(kernel, 2, 8, leaf="a")
    add_nodes(kernel, 4, 8, leaf="b", nvlink="rack")
    assert nodes_of(started(submit(kernel, {"devices": 8, "replicas": 2}))[0]) == [2, 3]


def test_a_gang_ignores_domains_when_topology_is_off():
    kernel = make_kernel(replace(FIRST_FIT, placement=Placement(topology=False)))
    add_nodes(kernel, 1, 8, leaf="a")
    add_nodes(kernel, 2, 8, leaf="b")
    assert nodes_of(started(submit(kernel, {"devices": 8, "replicas": 2}))[0]) == [0, 1]


def prefers(level, widest="site"):
    return Network(widest=DomainLevel(widest), preferred=DomainLevel(level), is_named=True)


@pytest.mark.parametrize(("wish", "nodes"), [({}, [0, 0]), ({"network": prefers("leaf")}, [2, 3])])
def test_a_gang_that_prefers_a_leaf_does_not_break_a_whole_node_for_a_smaller_domain(wish, nodes):
    kernel = make_kernel()
    add_nodes(kernel, 1, 8, leaf="roomy")
    add_nodes(kernel, 1, 4, leaf="roomy")
    add_nodes(kernel, 2, 4, leaf="tight")
    assert nodes_of(started(submit(kernel, {"devices": 4, "replicas": 2, **wish}))[0]) == nodes


@pytest.mark.parametrize(("wish", "nodes"), [({}, [0, 0, 0, 0]), ({"network": prefers("leaf")}, [0, 0, 1, 1])])
def test_a_gang_that_prefers_a_leaf_spreads_within_it(wish, nodes):
    kernel = make_kernel(replace(FIRST_FIT, placement=Placement(pack=0.0, spread=1.0)))
    add_nodes(kernel, 4, 8, leaf=lambda number: "a" if number <= 2 else "b")
    assert sorted(nodes_of(started(submit(kernel, {"devices": 2, "replicas": 4, **wish}))[0])) == nodes


def test_a_preferred_domain_is_tried_first_where_topology_is_off():
    kernel = make_kernel(replace(FIRST_FIT, placement=Placement(topology=False)))
    add_nodes(kernel, 1, 8, leaf="a")
    add_nodes(kernel, 2, 8, leaf="b")
    assert nodes_of(started(submit(kernel, {"devices": 8, "replicas": 2, "network": prefers("leaf")}))[0]) == [1, 2]


@pytest.mark.parametrize(("network", "count"), [(Network(), 2), (prefers("node"), 1)])
def test_a_node_is_preferred_where_topology_is_off_only_if_the_job_names_it(network, count):
    kernel = make_kernel(replace(FIRST_FIT, placement=Placement(pack=0.0, spread=1.0, topology=False)))
    add_nodes(kernel, 2, 8)
    assert len(set(nodes_of(started(submit(kernel, {"replicas": 2, "network": network}))[0]))) == count


def test_a_gang_that_prefers_an_nvlink_domain_takes_one_of_several_nodes():
    kernel = make_kernel()
    add_nodes(kernel, 1, 8, leaf="a")
    add_nodes(kernel, 2, 4, leaf="a", nvlink="rack")
    assert nodes_of(started(submit(kernel, {"devices": 4, "replicas": 2, "network": prefers("nvlink")}))[0]) == [1, 2]


@pytest.mark.parametrize("topology", [True, False])
def test_a_gang_takes_a_wider_domain_where_none_that_it_prefers_holds_it(topology):
    kernel = make_kernel(replace(FIRST_FIT, placement=Placement(topology=topology)))
    add_nodes(kernel, 2, 8, leaf=lambda number: f"leaf{number}")
    assert nodes_of(started(submit(kernel, {"devices": 8, "replicas": 2, "network": prefers("leaf")}))[0]) == [0, 1]


def test_the_widest_domain_limits_what_a_gang_prefers():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4, leaf=lambda number: f"leaf{number}")
    add_nodes(kernel, 1, 8, leaf="leaf3")
    job = {"devices": 4, "replicas": 2, "network": prefers("site", "leaf")}
    assert nodes_of(started(submit(kernel, job))[0]) == [2, 2]
    assert started(submit(kernel, job)) == []


@pytest.mark.parametrize(("level", "starts"), [("leaf", False), ("block", True), ("site", True)])
def test_the_widest_domain_is_a_hard_limit(level, starts):
    kernel = make_kernel()
    add_nodes(kernel, 2, 8, leaf=lambda number: f"leaf{number}", block="one")
    commands = submit(kernel, {"devices": 8, "replicas": 2, "network": within(level)})
    assert bool(started(commands)) == starts


def test_a_gang_within_a_node_starts_on_one():
    kernel = make_kernel()
    add_nodes(kernel, 2, 8)
    submit(kernel, {"devices": 5})
    assert nodes_of(started(submit(kernel, {"replicas": 8, "network": within("node")}))[0]) == [1] * 8


def test_a_gang_waits_whole_when_one_device_is_short():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    submit(kernel, {"devices": 1})
    assert started(submit(kernel, {"devices": 4, "replicas": 2})) == []
    assert reason(kernel, 2) is ReasonCode.RESOURCES


def test_a_gang_lies_on_one_model_where_one_holds_it():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4, model="A100")
    add_nodes(kernel, 3, 4, model="H100")
    assert nodes_of(started(submit(kernel, {"devices": 4, "replicas": 3}))[0]) == [2, 3, 4]


def test_a_gang_mixes_models_rather_than_wait():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4, model="A100")
    add_nodes(kernel, 1, 4, model="H100")
    assert sorted(nodes_of(started(submit(kernel, {"devices": 4, "replicas": 2}))[0])) == [0, 1]


def test_spreading_puts_replicas_on_different_nodes():
    kernel = make_kernel(replace(FIRST_FIT, placement=Placement(pack=0.0, spread=1.0, topology=False)))
    add_nodes(kernel, 4, 8)
    assert sorted(nodes_of(started(submit(kernel, {"replicas": 4}))[0])) == [0, 1, 2, 3]


def test_no_device_is_named_twice_in_a_gang_of_shares():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    devices = devices_of(started(submit(kernel, {"share_milli": 600, "replicas": 8}))[0])
    assert sorted(devices) == list(range(8))


def make_two_leaves(*links):
    """Two leaves of one block: the first with nodes of 4 and 4 free devices, the second with 4 and 2 and 2."""
    kernel = make_kernel()
    kernel.handle(LinksSet(0, links))
    for leaf, devices in enumerate(((4, 4), (4, 2, 2))):
        for count in devices:
            add_nodes(kernel, 1, count, leaf=f"leaf{leaf}", block="block")
    return kernel


FASTER, SLOWER = LinkSpec(bandwidth_gbps=100, latency_us=2), LinkSpec(bandwidth_gbps=10, latency_us=9)


def test_a_gang_stays_within_a_leaf_whose_links_are_faster():
    kernel = make_two_leaves(("leaf", FASTER), ("block", SLOWER))
    assert sorted(set(nodes_of(started(submit(kernel, {"replicas": 7}))[0]))) == [0, 1]


def test_a_gang_lies_on_the_fewest_nodes_of_a_block_that_is_as_fast_as_its_leaves():
    """A leaf holds six devices on two nodes too, but another node of the block leaves nothing over."""
    kernel = make_two_leaves(("leaf", FASTER), ("block", FASTER))
    assert sorted(set(nodes_of(started(submit(kernel, {"replicas": 6}))[0]))) == [0, 3]


def test_a_leaf_as_the_widest_domain_is_a_limit_also_where_a_block_is_as_fast():
    kernel = make_two_leaves(("leaf", FASTER), ("block", FASTER))
    assert started(submit(kernel, {"replicas": 9, "network": within("leaf")})) == []
    assert sorted(set(nodes_of(started(submit(kernel, {"replicas": 8, "network": within("leaf")}))[0]))) == [0, 1]


@pytest.mark.parametrize(("spread_cpus", "node"), [(0.0, 0), (1.0, 1)])
def test_the_least_loaded_node_is_told_by_devices_and_by_cpus_as_they_are_weighed(spread_cpus, node):
    """One device of four and all CPUs are taken on the first node, two devices and no CPU on the second."""
    placement = Placement(pack=0.0, spread=1.0, spread_cpus=spread_cpus, topology=False)
    kernel = make_kernel(replace(FIRST_FIT, placement=placement))
    add_nodes(kernel, 2, 4, cpu_milli=8_000)
    submit(kernel, {"cpu_milli": 8_000, "nodes": ("n1",)}, {"devices": 2, "nodes": ("n2",)})
    assert nodes_of(started(submit(kernel, {"devices": 1}))[0]) == [node]
