"""Other resources and host ports: what the engine is told, so that it can count them itself."""

import pytest

from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.extras import keep_ports_apart, port_crowds
from clearway.adapters.kubernetes.facts import Demand
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.model.events import NodeChanged
from clearway.model.ids import JobId, NodeName
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
NIC = "example.com/nic"


def put_node(book, nics, name="n1"):
    node = make_node(name, gpus=8)
    node["status"]["allocatable"][NIC] = node["status"]["capacity"][NIC] = str(nics)
    book.nodes.put(parse_node(node, CONFIG))


def put(book, name, nics=1, **more):
    pod = make_pod(name, **more)
    asked = pod["spec"]["containers"][0]["resources"]
    if nics:
        asked["requests"] = asked["limits"] = {**asked["requests"], NIC: str(nics)}
    book.put_pod(parse_pod(pod, CONFIG))


def accept(book, now_ms=2):
    events = book.settle(now_ms)
    arrivals = book.take_arrivals()
    for number, arrival in enumerate(arrivals, start=1):
        book.accept(now_ms, arrival, JobId(number))
    return arrivals, [one.node for one in [*events, *book.settle(now_ms)] if isinstance(one, NodeChanged)]


@pytest.fixture
def book():
    found = Book(CONFIG)
    put_node(found, nics=4)
    found.settle(1)
    return found


def test_what_is_left_beside_pods_of_others_is_told_once_somebody_asks_for_it(book):
    put(book, "other", nics=1, node="n1", schedulerName="other")
    assert book.settle(2)[0].node.extras == ()
    put(book, "p", nics=2)
    ((arrival,), (node, *_)) = accept(book)
    assert arrival.job.request.extras == ((NIC, 2),)
    assert node.extras == ((NIC, 3),)
    assert arrival.job.request.node_labels[0] in node.labels


def test_what_our_own_pods_hold_is_counted_by_the_engine_which_may_make_room(book):
    put(book, "p", nics=4)
    ((arrival,), _) = accept(book)
    book.start(3, JobId(1), 1, [(NodeName("n1"), (0,))], arrival.key)
    book.settle(3)
    (spec,) = book.nodes.specs()
    assert spec.extras == ((NIC, 4),)
    assert arrival.job.request.node_labels[0] in spec.labels
    put(book, "q", nics=4)
    (entry,) = book.nodes.entries.values()
    assert book.nodes.judge(book.pods["uid-q"], entry) == f"Insufficient {NIC}"


def make_demand(*ports):
    return Demand(ports=tuple((port, "TCP", address) for port, address in ports))


@pytest.mark.parametrize(
    ("one", "other", "clashes"),
    [
        ((80, "0.0.0.0"), (80, "0.0.0.0"), True),
        ((80, "0.0.0.0"), (80, "10.0.0.1"), True),
        ((80, "10.0.0.1"), (80, "10.0.0.1"), True),
        ((80, "10.0.0.1"), (80, "10.0.0.2"), False),
        ((80, "0.0.0.0"), (81, "0.0.0.0"), False),
    ],
)
def test_host_ports_are_kept_apart_as_the_node_would(one, other, clashes):
    for first, second in ((one, other), (other, one)):
        rules = {rule.crowd for rule in keep_ports_apart(make_demand(first), "node")}
        assert bool(rules & set(port_crowds(make_demand(second)))) is clashes


def test_port_of_our_own_pod_leaves_the_node_to_be_cleared_and_one_of_others_does_not(book):
    port = {
        "containers": [
            {"name": "main", "image": "x", "resources": {}, "ports": [{"containerPort": 80, "hostPort": 80}]}
        ]
    }
    put(book, "p", nics=0, **port)
    ((arrival,), (node, *_)) = accept(book)
    label = arrival.job.request.node_labels[0]
    assert label in node.labels
    book.start(3, JobId(1), 1, [(NodeName("n1"), ())], arrival.key)
    book.settle(3)
    assert label in book.nodes.specs()[0].labels
    book.drop_pod("uid-p")
    put(book, "other", nics=0, node="n1", schedulerName="other", **port)
    assert label not in book.nodes.specs()[0].labels
