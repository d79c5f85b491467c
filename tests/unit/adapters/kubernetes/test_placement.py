"""Where a pod may lie, judged as Kubernetes' own scheduler does, and said in its words."""

import pytest

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.facts import Demand, Expression, Term, Toleration
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.placement import demand_label, find_mismatch, score_node, summarize_mismatches
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
FREE = {"pods": 110}


def demand_of(**more):
    return parse_pod(make_pod(**more), CONFIG).demand


def mismatch(demand, *, free=FREE, ports=(), **node):
    return find_mismatch(demand, parse_node(make_node(**node), CONFIG), free, ports)


def facts_of(**node):
    return parse_node(make_node(**node), CONFIG)


def affinity(*terms):
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_plain_pod_may_lie_on_a_plain_node():
    assert mismatch(demand_of()) == ""


def test_node_selector_wants_every_label():
    demand = demand_of(nodeSelector={"zone": "a", "disk": "ssd"})
    assert mismatch(demand, labels={"zone": "a", "disk": "ssd"}) == ""
    assert mismatch(demand, labels={"zone": "a"}) == "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("term", "labels", "fits"),
    [
        (expression("zone", "In", "a", "b"), {"zone": "b"}, True),
        (expression("zone", "In", "a", "b"), {}, False),
        (expression("zone", "NotIn", "a"), {"zone": "a"}, False),
        (expression("zone", "NotIn", "a"), {}, True),
        (expression("zone", "Exists"), {"zone": ""}, True),
        (expression("zone", "DoesNotExist"), {"zone": ""}, False),
        (expression("gen", "Gt", "3"), {"gen": "4"}, True),
        (expression("gen", "Gt", "3"), {"gen": "3"}, False),
        (expression("gen", "Lt", "3"), {"gen": "2"}, True),
        (expression("gen", "Lt", "3"), {"gen": "two"}, False),
        (expression("gen", "Gt", "3"), {"gen": "1_0"}, False),
        (expression("zone", "Resembles", "a"), {"zone": "a"}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, {}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, {}, False),
        ({}, {}, False),
    ],
)
def test_affinity_expressions(term, labels, fits):
    assert (mismatch(demand_of(affinity=affinity(term)), labels=labels) == "") is fits


def test_one_of_several_affinity_terms_is_enough():
    demand = demand_of(affinity=affinity(expression("zone", "In", "a"), expression("zone", "In", "b")))
    assert mismatch(demand, labels={"zone": "b"}) == ""


TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "team", "value": "vision", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "vision"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "speech"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_and_tolerations(toleration, fits):
    found = mismatch(demand_of(tolerations=[toleration]), taints=[TAINT])
    assert found == ("" if fits else "node(s) had untolerated taint {team: vision}")


def test_cordoned_node_takes_only_pods_that_bear_it():
    bearing = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert mismatch(demand_of(), taints=[taint], unschedulable=True) == "node(s) were unschedulable"
    assert mismatch(demand_of(tolerations=bearing), taints=[taint], unschedulable=True) == ""


def test_node_without_the_device_resource_is_no_place():
    assert mismatch(demand_of(), gpus=0) == "node(s) had no nvidia.com/gpu"
    assert mismatch(demand_of(gpus=0), gpus=0) == ""


def test_other_resources_must_be_left():
    demand = Demand(others=(("example.com/nic", 2), ("pods", 1)))
    assert mismatch(demand, free={"pods": 1, "example.com/nic": 2}) == ""
    assert mismatch(demand, free={"pods": 1, "example.com/nic": 1}) == "Insufficient example.com/nic"
    assert mismatch(demand, free={"pods": 0, "example.com/nic": 2}) == "Too many pods"


@pytest.mark.parametrize(
    ("used", "fits"),
    [
        ((8080, "TCP", "0.0.0.0"), False),
        ((8080, "TCP", "10.0.0.1"), False),
        ((8080, "UDP", "0.0.0.0"), True),
        ((8081, "TCP", "0.0.0.0"), True),
    ],
)
def test_host_ports_clash_by_port_protocol_and_address(used, fits):
    demand = Demand(ports=((8080, "TCP", "0.0.0.0"),))
    assert (mismatch(demand, ports=[used]) == "") is fits


def test_label_of_a_demand_is_the_same_for_equal_demands_alone():
    assert demand_label(demand_of()) == demand_label(demand_of(name="other", cpu="9"))
    assert demand_label(demand_of()) != demand_label(demand_of(nodeSelector={"zone": "a"}))


def test_summary_counts_the_commonest_reason_first():
    texts = ["Too many pods", "", "node(s) had no nvidia.com/gpu", "node(s) had no nvidia.com/gpu"]
    assert summarize_mismatches(texts) == "1/4 nodes are available: 2 node(s) had no nvidia.com/gpu, 1 Too many pods."
    assert summarize_mismatches(["", ""]) == "2/2 nodes are available."


def test_node_is_liked_by_weight_of_wishes_and_less_for_a_taint_that_only_wishes_pods_away():
    wishes = ((3, Term((Expression("zone", "In", ("a",)),))), (1, Term((Expression("size", "Gt", ("5",)),))))
    liked = facts_of(labels={"zone": "a", "size": "9"})
    repelling = facts_of(labels={"zone": "a"}, taints=[{"key": "slow", "effect": "PreferNoSchedule"}])
    bears = (Toleration("slow", "", "", True),)
    assert score_node(wishes, (), liked) == 100
    assert score_node(wishes, (), repelling) == 30
    assert score_node(wishes, bears, repelling) == 90
    assert find_mismatch(Demand(), repelling, {}) == ""


@pytest.mark.parametrize(("operator", "verdict"), [("Equal", ""), (None, ""), ("Gt", "950"), ("Lt", "950")])
def test_toleration_that_compares_as_is_not_known_bears_nothing(operator, verdict):
    toleration = {"key": "sla", "value": "950", "effect": "NoSchedule"} | ({"operator": operator} if operator else {})
    found = mismatch(
        demand_of(tolerations=[toleration]), taints=[{"key": "sla", "value": "950", "effect": "NoSchedule"}]
    )
    assert verdict in found
    assert bool(found) == bool(verdict)
