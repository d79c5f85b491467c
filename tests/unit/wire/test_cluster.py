"""Cluster files and their short forms."""

import pytest

from clearway.model.cluster import ClusterSpec, DeviceGroup, LinkSpec, NodeSpec
from clearway.model.errors import InputError
from clearway.model.units import GIB
from clearway.wire.cluster import ANY_MODEL, load_cluster_file, parse_cluster_file, parse_cluster_short


def parse(text):
    return parse_cluster_file(text, source="cluster.yaml")


def refuse(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    return str(caught.value).splitlines()


def test_nodes_times_devices_is_a_cluster():
    cluster = parse_cluster_short("1250x8")
    assert (len(cluster.nodes), cluster.device_count) == (1250, 10_000)
    assert cluster.nodes[0] == NodeSpec(name="node0001", groups=(DeviceGroup(model=ANY_MODEL, count=8),))
    assert cluster.nodes[-1].name == "node1250"


def test_groups_of_a_short_form_follow_one_another():
    cluster = parse_cluster_short("1x8:V100, 2x4:A100:80GB,1x0")
    assert [node.name for node in cluster.nodes] == ["node1", "node2", "node3", "node4"]
    assert cluster.nodes[0].groups == (DeviceGroup(model="V100", count=8),)
    assert cluster.nodes[2].groups == (DeviceGroup(model="A100", count=4, memory_bytes=80 * GIB),)
    assert cluster.nodes[3].groups == ()


@pytest.mark.parametrize("text", ["", "8", "0x8", "2x63", "2x8:", "2x8:V100:lots", "2x8,", "axb", "999999x1"])
def test_a_short_form_that_makes_no_sense_is_an_error(text):
    with pytest.raises(InputError, match="expected"):
        parse_cluster_short(text)


def test_every_key_of_a_cluster_file_reaches_the_cluster():
    cluster = parse(
        """
nodes:
- name: gpu[01-04]
  gpus: [{model: H100, count: 8, memory: 80GB, speed: 2.5, nvlink_size: 4, watts_max: 700W}, "L4:24GB:2"]
  cpus: 128
  memory: 2TB
  nvlink: rack[1-2]
  labels: {fabric: infiniband}
  features: [ib, h100]
- {name: cpu, count: 2, leaf: far}
topology: {leaf_size: 2, block_size: 2}
links: {leaf: {bandwidth_gbps: 50, latency_us: 5}, nvlink: {bandwidth_gbps: 450}}
power_budget: 500kW
"""
    )
    assert cluster.nodes[1] == NodeSpec(
        name="gpu02",
        groups=(
            DeviceGroup(model="H100", count=8, memory_bytes=80 * GIB, speed=2.5, nvlink_size=4, watts_max=700),
            DeviceGroup(model="L4", count=2, memory_bytes=24 * GIB),
        ),
        cpu_milli=128_000,
        memory_bytes=2048 * GIB,
        nvlink="rack1",
        leaf="leaf1",
        block="block1",
        labels=(("fabric", "infiniband"), ("feature", "h100"), ("feature", "ib")),
    )
    assert [(node.name, node.nvlink, node.leaf, node.block) for node in cluster.nodes[2:]] == [
        ("gpu03", "rack2", "leaf2", "block1"),
        ("gpu04", "rack2", "leaf2", "block1"),
        ("cpu1", "", "far", "block2"),
        ("cpu2", "", "far", "block2"),
    ]
    assert cluster.links == (
        ("nvlink", LinkSpec(bandwidth_gbps=450.0, latency_us=0.0)),
        ("leaf", LinkSpec(bandwidth_gbps=50.0, latency_us=5.0)),
    )
    assert cluster.power_budget_watts == 500_000


def test_a_cluster_file_is_loaded_from_its_path(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text('{"nodes": [{"name": "a", "gpus": 4}]}', encoding="utf-8")
    assert load_cluster_file(path) == ClusterSpec(
        nodes=(NodeSpec(name="a", groups=(DeviceGroup(model=ANY_MODEL, count=4),)),)
    )


def test_all_errors_of_a_cluster_file_are_told_at_once_by_line():
    lines = refuse(
        """nodes:
- {name: "gpu[1-4]", gpus: H100:80}
- {name: "gpu[1-4]", mem: 3GB}
- {name: "gpu[1-4]", count: 3}
- {name: b, leaf: "a[1-3]"}
- {gpus: [{model: a}, {model: a}]}
- {name: "a["}
links: {rack: {bandwidth_gbps: 50}, leaf: {bandwidth_gbps: 0}}
topology: {block_size: 2}
power_budget: lots
"""
    )
    assert [line.split(": ")[:2] for line in lines] == [
        ["cluster.yaml:2", "nodes[0].gpus[0].count"],
        ["cluster.yaml:3", "nodes[1].mem"],
        ["cluster.yaml:4", "nodes[2].count"],
        ["cluster.yaml:5", "nodes[3].leaf"],
        ["cluster.yaml:6", "nodes[4].gpus"],
        ["cluster.yaml:7", "nodes[5]"],
        ["cluster.yaml:8", "links.rack"],
        ["cluster.yaml:8", "links.leaf.bandwidth_gbps"],
        ["cluster.yaml:9", "topology.leaf_size"],
        ["cluster.yaml:10", "power_budget"],
    ]


def test_a_node_named_twice_is_an_error_at_the_second_place():
    (line,) = refuse("nodes:\n- {name: 'a[1-3]'}\n- {name: a2}\n")
    assert line.startswith("cluster.yaml:3: nodes[1]: expected each node once, found 'a2'")


@pytest.mark.parametrize("text", ["nodes: []", "nodes:", "topology: {}", "[]"])
def test_a_cluster_without_nodes_is_an_error(text):
    (line,) = refuse(text)
    assert line.startswith("cluster.yaml:1: ")
