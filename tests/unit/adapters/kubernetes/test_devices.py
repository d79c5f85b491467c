"""Devices as vendors' plugins and GPU feature discovery name them, and pods that ask for them: the engine's words."""

import pytest

from clearway.adapters.kubernetes import models
from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.engine.inventory import Inventory
from clearway.engine.nodes import MODELS_MAX
from clearway.model.cluster import DeviceGroup
from clearway.model.events import DeviceDown, JobCancelled, JobStopped, NodeAdded
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import StopCause
from clearway.model.units import MIB
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
SLICE = "nvidia.com/mig-1g.10gb"


def node_of(labels=None, annotations=None, **resources):
    """A node that offers these resources, `_` for a slash."""
    node = make_node("n1", gpus=0, labels=labels)
    node["metadata"]["annotations"] = annotations or {}
    node["status"]["allocatable"].update({name.replace("_", "/"): str(count) for name, count in resources.items()})
    return parse_node(node, CONFIG)


def pod_of(resource, count, **more):
    pod = make_pod(gpus=0, **more)
    pod["spec"]["containers"][0]["resources"]["requests"][resource] = str(count)
    return parse_pod(pod, CONFIG)


def groups_of(facts):
    """The devices of a node as the engine hears of them."""
    book = Book(CONFIG)
    book.nodes.put(facts)
    (event,) = [one for one in book.settle(1) if isinstance(one, NodeAdded)]
    return event.node.groups


def request_of(pod, facts):
    """What the engine hears of a pod; its node must be one that the pod may lie on."""
    book = Book(CONFIG)
    book.nodes.put(facts)
    book.put_pod(pod)
    book.settle(1)
    (arrival,) = book.take_arrivals()
    assert arrival.job.request.node_labels[0] in book.nodes.specs()[0].labels
    return arrival.job.request


@pytest.mark.parametrize("resource", ["amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/xe"])
def test_resource_of_each_vendor_is_devices(resource):
    facts = node_of(**{resource.replace("/", "_"): 4})
    assert groups_of(facts) == (DeviceGroup(model=resource, count=4),)
    request = request_of(pod_of(resource, 2), facts)
    assert (request.devices, request.device_models) == (2, ())


def test_feature_discovery_names_model_and_memory():
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    facts = node_of(labels, **{"nvidia.com_gpu": 8})
    assert groups_of(facts) == (DeviceGroup(model="NVIDIA-H100-80GB-HBM3", count=8, memory_bytes=81_559 * MIB),)


def test_slices_of_strategy_mixed_are_a_model_of_their_own_with_their_memory():
    facts = node_of({f"{SLICE}.memory": "9856"}, **{SLICE.replace("/", "_"): 7})
    assert groups_of(facts) == (DeviceGroup(model=SLICE, count=7, memory_bytes=9_856 * MIB),)
    request = request_of(pod_of(SLICE, 3), facts)
    assert (request.devices, request.device_models) == (3, (SLICE,))


def test_slices_of_strategy_single_come_as_devices_whose_product_is_the_slice():
    labels = {
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/gpu.memory": "4864",
    }
    facts = node_of(labels, **{"nvidia.com_gpu": 56})
    assert groups_of(facts) == (
        DeviceGroup(model="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", count=56, memory_bytes=4_864 * MIB),
    )
    assert request_of(pod_of("nvidia.com/gpu", 1), facts).devices == 1


def test_whole_devices_and_slices_of_one_node_are_each_given_to_those_who_ask_for_them():
    facts = node_of(**{"nvidia.com_gpu": 2, SLICE.replace("/", "_"): 7})
    assert [group.model for group in groups_of(facts)] == ["nvidia.com/gpu", SLICE]
    assert request_of(pod_of("nvidia.com/gpu", 1), facts).device_models == ("nvidia.com/gpu",)
    assert request_of(pod_of(SLICE, 1), facts).device_models == (SLICE,)


def test_waiting_job_is_told_anew_which_models_do_when_a_node_comes_that_has_others_beside_them():
    book = Book(CONFIG)
    labels = {"nvidia.com/gpu.product": "H100"}
    book.nodes.put(parse_node(make_node("n0", gpus=8, labels=labels), CONFIG))
    pod = pod_of("nvidia.com/gpu", 1)
    book.put_pod(pod)
    book.settle(1)
    (arrival,) = book.take_arrivals()
    book.accept(1, arrival, JobId(1))
    assert arrival.job.request.device_models == ()
    book.nodes.put(node_of(**{"nvidia.com_gpu": 2, SLICE.replace("/", "_"): 7}))
    assert [one.job for one in book.settle(2) if isinstance(one, JobCancelled)] == [1]
    book.settle(3)
    (arrival,) = book.take_arrivals()
    assert arrival.job.request.device_models == ("H100", "nvidia.com/gpu")


def test_start_on_slices_of_a_pod_that_asks_whole_devices_binds_nothing():
    book = Book(CONFIG)
    book.nodes.put(node_of(**{"nvidia.com_gpu": 2, SLICE.replace("/", "_"): 7}))
    book.put_pod(pod_of("nvidia.com/gpu", 1))
    book.settle(1)
    (arrival,) = book.take_arrivals()
    book.accept(1, arrival, JobId(1))
    book.start(1, JobId(1), 1, [(NodeName("n1"), (2,))], "")
    assert [one.cause for one in book.settle(1) if isinstance(one, JobStopped)] == [StopCause.MIGRATED]
    assert not book.take_actions()


def test_room_that_another_scheduler_makes_for_a_pod_is_left_to_it():
    book = Book(CONFIG)
    book.nodes.put(parse_node(make_node("n1", gpus=4), CONFIG))
    pod = make_pod("preemptor", gpus=3)
    pod["spec"]["schedulerName"], pod["status"]["nominatedNodeName"] = "default-scheduler", "n1"
    book.put_pod(parse_pod(pod, CONFIG))
    events = [*book.settle(1), *book.settle(2)]
    assert len([one for one in events if isinstance(one, DeviceDown)]) == 3
    pod["status"]["nominatedNodeName"] = ""
    book.put_pod(parse_pod(pod, CONFIG))
    assert book.nodes.free(book.nodes.entries["n1"])["nvidia.com/gpu"] == 4


# --- more models than the engine can tell apart -----------------------------------------------------------------------


def put_model(book, number):
    labels = {"nvidia.com/gpu.product": f"M{number}"}
    book.nodes.put(parse_node(make_node(f"n{number}", gpus=2, labels=labels), CONFIG))


def test_bound_on_models_is_the_engine_s():
    assert models.MODELS_MAX == MODELS_MAX


def test_node_of_a_model_too_many_is_told_without_devices_and_logged_once(caplog):
    book = Book(CONFIG)
    for number in range(MODELS_MAX + 1):
        put_model(book, number)
    events = [*book.settle(1), *book.settle(2), *book.settle(3)]
    told = {one.node.name: one.node for one in events if isinstance(one, NodeAdded)}
    assert len(told) == MODELS_MAX + 1
    inventory = Inventory()
    for spec in told.values():
        inventory.add(spec)
    (left,) = [name for name, spec in told.items() if not spec.groups]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert left in caplog.text
    pod = parse_pod(make_pod("p", gpus=1), CONFIG)
    assert book.nodes.judge(pod, book.nodes.entries[left]) == models.LEFT_OUT
    assert book.nodes.judge(pod, book.nodes.entries["n0"]) == ""


def test_models_that_the_engine_knew_before_count_and_pods_name_none_that_no_node_has():
    book = Book(CONFIG)
    book.nodes.models.know(f"old {number}" for number in range(MODELS_MAX - 1))
    for number in range(70):
        assert book.nodes.devices_of([pod_of(f"nvidia.com/mig-{number}g", 1)]) == (1, ())
    put_model(book, 1)
    put_model(book, 2)
    assert [len(spec.groups) for spec in book.nodes.specs()] == [1, 0]
