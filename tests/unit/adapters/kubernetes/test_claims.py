"""Claims on devices: nodes offer what slices say, the engine counts it, and a start chooses devices by name."""

import pytest

from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.claiming import make_allocation
from clearway.adapters.kubernetes.claims import CANNOT
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.runs import Bind, Refuse, Unclaim
from clearway.model.cluster import DeviceGroup
from clearway.model.events import DeviceDown, DeviceUp, JobCancelled, JobStopped, NodeAdded
from clearway.model.ids import JobId, NodeName
from support.kube_claims import DRIVER, make_claim, make_class, make_request, make_slice
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
MODEL = f"{DRIVER}/X1"
SELECTOR = f'device.attributes["{DRIVER}"]'


@pytest.fixture
def book():
    found = Book(CONFIG)
    for name in ("n1", "n2"):
        found.nodes.put(parse_node(make_node(name, gpus=0), CONFIG))
        put(found, make_slice(name, 4))
    put(found, make_class())
    found.settle(1)
    found.settle(1)
    return found


def put(book, data, *, is_gone=False):
    kind = {"slice": "resourceslices", "class": "deviceclasses", "claim": "resourceclaims"}
    book.put_other(kind[data["metadata"]["uid"].partition("/")[0]], data, is_gone=is_gone)


def claiming(name, *claims, **more):
    """A pod with these claims."""
    named = [{"name": one, "resourceClaimName": one} for one in claims]
    return parse_pod(make_pod(name, gpus=0, namespace="default", resourceClaims=named, **more), CONFIG)


def arrive(book, pod, number=1):
    """The pod's job is accepted; returns it."""
    book.put_pod(pod)
    book.settle(1)
    (arrival,) = book.take_arrivals()
    book.accept(1, arrival, JobId(number))
    book.settle(1)
    return arrival.job


def start(book, devices, number=1, node="n1", generation=1):
    """Start the job there; returns the events and the actions that follow."""
    book.start(1, JobId(number), generation, [(NodeName(node), devices)], "")
    return book.settle(1), book.take_actions()


def chosen(book, pod):
    return [device for _, choice in book.nodes.claims.send(pod) for _, (_, _, device) in choice.results]


def words(book, pod):
    book.put_pod(pod)
    book.settle(1)
    assert not book.take_arrivals()
    return [one.message for one in book.take_actions() if isinstance(one, Refuse)]


def test_devices_of_slices_are_devices_of_their_node():
    book = Book(CONFIG)
    put(book, make_slice("n1", 2))
    put(book, make_slice("n1", 1, driver="nic.example.com"))
    book.nodes.put(parse_node(make_node("n1", gpus=0), CONFIG))
    (event,) = [one for one in book.settle(1) if isinstance(one, NodeAdded)]
    assert event.node.groups == (DeviceGroup(model=MODEL, count=2, memory_bytes=80 << 30),)


def test_pool_counts_once_all_of_its_newest_generation_is_there(book):
    claims = book.nodes.claims
    put(book, make_slice("n1", 2, generation=2, slices=2))
    assert claims.devices_on("n1") == ()
    put(book, make_slice("n1", 2, first=2, generation=2, slices=2, part=1))
    assert len(claims.devices_on("n1")) == 4
    put(book, make_slice("n1", 4), is_gone=True)
    assert len(claims.devices_on("n1")) == 4


def test_claim_is_so_many_devices_of_the_models_that_its_class_and_selectors_choose(book):
    put(book, make_claim("c", make_request(2, expressions=[f'{SELECTOR}.productName == "X1"'])))
    request = arrive(book, claiming("p", "c")).request
    assert (request.devices, request.device_models) == (2, (MODEL,))
    assert all(request.node_labels[0] in spec.labels for spec in book.nodes.specs())


def test_start_chooses_the_devices_that_the_engine_chose_and_then_they_are_taken(book):
    put(book, make_claim("c", make_request(2)))
    put(book, make_claim("d", make_request(3)))
    pod = claiming("p", "c")
    arrive(book, pod)
    events, actions = start(book, (1, 3))
    assert [one.node for one in actions if isinstance(one, Bind)] == ["n1"]
    assert not [one for one in events if isinstance(one, DeviceDown)]  # the engine counts them itself
    assert chosen(book, pod) == ["gpu-1", "gpu-3"]
    assert book.nodes.judge(claiming("q", "d"), book.nodes.entries["n1"]) == CANNOT
    assert book.nodes.judge(claiming("q", "d"), book.nodes.entries["n2"]) == ""


def test_devices_that_others_claims_have_are_down_by_name_until_they_are_given_back(book):
    put(book, make_claim("theirs", devices=["gpu-1"], users=["somebody"]))
    assert [one.device for one in book.settle(2) if isinstance(one, DeviceDown)] == [1]
    put(book, make_claim("theirs"))
    assert [one.device for one in book.settle(3) if isinstance(one, DeviceUp)] == [1]


def test_devices_of_a_run_that_has_ended_are_down_until_their_claim_lets_them_go(book):
    pod = claiming("p", "c")
    put(book, make_claim("c"))
    arrive(book, pod)
    start(book, (0,))
    put(book, make_claim("c", devices=["gpu-0"], users=["uid-p"]))
    book.put_pod(claiming("p", "c", node="n1", phase="Succeeded"))
    assert [one.device for one in book.settle(2) if isinstance(one, DeviceDown)] == [0]
    put(book, make_claim("c"), is_gone=True)
    assert [one.device for one in book.settle(3) if isinstance(one, DeviceUp)] == [0]


def test_claim_that_has_devices_ties_its_pods_to_their_node_and_asks_for_no_more(book):
    put(book, make_claim("c", devices=["gpu-0"], node="n2"))
    book.settle(1)
    request = arrive(book, claiming("p", "c")).request
    assert request.devices == 0
    admitting = [spec.name for spec in book.nodes.specs() if request.node_labels[0] in spec.labels]
    assert admitting == ["n2"]


def test_two_pods_of_one_plan_are_never_given_the_same_device(book):
    for number, name in enumerate(("p", "q"), 1):
        put(book, make_claim(f"c{name}", make_request(3)))
        arrive(book, claiming(name, f"c{name}"), number)
    start(book, (0, 1, 2), 1)
    events, actions = start(book, (0, 1, 2), 2)
    assert [one.reason for one in events if isinstance(one, JobStopped)] == [f"n1: {CANNOT}"]
    assert not actions


def test_all_devices_of_a_claim_are_alike_where_it_asks_for_that(book):
    alike = {"matchAttribute": f"{DRIVER}/socket"}
    put(book, make_claim("c", make_request(2), constraints=[alike]))
    put(book, make_claim("other", devices=["gpu-0"]))
    pod = claiming("p", "c")
    arrive(book, pod)
    start(book, (1, 2))
    assert chosen(book, pod) == ["gpu-2", "gpu-3"]


def test_devices_of_other_drivers_are_judged_beside_those_that_the_engine_counts(book):
    put(book, make_slice("n2", 1, driver="nic.example.com"))
    put(book, make_class("nic", 'device.driver == "nic.example.com"'))
    both = make_claim("c", make_request(2), make_request(1, name="nic", device_class="nic"))
    put(book, both)
    pod = claiming("p", "c")
    request = arrive(book, pod).request
    assert (request.devices, request.device_models) == (2, (MODEL,))
    assert [spec.name for spec in book.nodes.specs() if request.node_labels[0] in spec.labels] == ["n2"]
    start(book, (0, 1), node="n2")
    assert chosen(book, pod) == ["gpu-0", "gpu-1", "gpu-0"]


def test_device_with_a_taint_is_there_and_not_given_out(book):
    tainted = make_slice("n1", 4)
    tainted["spec"]["devices"][2]["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    put(book, tainted)
    assert [one.device for one in book.settle(2) if isinstance(one, DeviceDown)] == [2]
    put(book, make_claim("c", make_request(4)))
    assert book.nodes.judge(claiming("p", "c"), book.nodes.entries["n1"]) == CANNOT


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([make_request(allocationMode="All")], "allocationMode: All"),
        ([make_request(adminAccess=True)], "adminAccess"),
        ([{"name": "r", "firstAvailable": [{"name": "a"}]}], "firstAvailable"),
        ([make_request(expressions=['device.driver.matches("x")'])], "matches"),
        ([make_request(device_class="none")], "device class none does not exist"),
    ],
)
def test_claim_beyond_what_is_given_out_is_refused_and_said(book, requests, expected):
    put(book, make_claim("c", *requests))
    (said,) = words(book, claiming("p", "c"))
    assert expected in said


def test_pod_waits_for_the_claim_that_is_made_of_its_template(book):
    pod = make_pod("p", gpus=0, namespace="default", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
    assert "have not been made yet" in words(book, parse_pod(pod, CONFIG))[0]
    pod["status"]["resourceClaimStatuses"] = [{"name": "g", "resourceClaimName": "p-g-x"}]
    assert "not found" in words(book, parse_pod(pod, CONFIG))[0]
    put(book, make_claim("p-g-x"))
    book.settle(2)
    assert len(book.take_arrivals()) == 1


def test_devices_of_a_binding_that_did_not_come_to_be_are_taken_back_before_the_pod_is_offered(book):
    put(book, make_claim("c", devices=["gpu-0"], users=["uid-p"]))
    book.put_pod(claiming("p", "c"))
    book.settle(1)
    assert not book.take_arrivals()
    (action,) = [one for one in book.take_actions() if isinstance(one, Unclaim)]
    assert action.claims == (("default", "c"),)
    put(book, make_claim("c"))
    book.settle(2)
    assert len(book.take_arrivals()) == 1


def test_choice_that_was_not_sent_ends_with_its_pod_and_one_that_was_is_kept_until_the_claim_says(book):
    claims = book.nodes.claims
    put(book, make_claim("c", make_request(4)))
    pod = claiming("p", "c")
    wish = claims.wishes_of(pod)
    assert book.nodes.take_devices(pod, NodeName("n1"), ()) == ""
    claims.release(pod.uid)
    assert claims.judge(wish, "n1") == ""
    assert book.nodes.take_devices(pod, NodeName("n1"), ()) == ""
    claims.send(pod)
    claims.release(pod.uid)
    assert claims.judge(wish, "n1") == CANNOT
    put(book, make_claim("c", make_request(4)), is_gone=True)
    assert claims.judge(wish, "n1") == ""


def test_job_is_told_anew_when_other_models_come_that_do_for_its_claim(book):
    put(book, make_claim("c"))
    arrive(book, claiming("p", "c"))
    book.nodes.put(parse_node(make_node("n3", gpus=0), CONFIG))
    put(book, make_slice("n3", 2, product="X2"))
    assert [one.job for one in book.settle(2) if isinstance(one, JobCancelled)] == [1]
    book.settle(3)
    (arrival,) = book.take_arrivals()
    assert arrival.job.request.device_models == (MODEL, f"{DRIVER}/X2")


def test_allocation_says_what_class_and_claim_say_to_drivers(book):
    config = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
    put(book, make_class(config=[config]))
    claim = make_claim("c", make_request(1))
    claim["spec"]["devices"]["config"] = [{"requests": ["r"], **config}]
    put(book, claim)
    pod = claiming("p", "c")
    book.nodes.take_devices(pod, NodeName("n1"), (1,))
    ((_, choice),) = book.nodes.claims.send(pod)
    allocation = make_allocation(claim, choice, {"gpu": book.nodes.claims.configs_of("gpu")})
    assert allocation["devices"]["results"] == [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-1"}]
    assert [(one["source"], one["requests"]) for one in allocation["devices"]["config"]] == [
        ("FromClass", ["r"]),
        ("FromClaim", ["r"]),
    ]
