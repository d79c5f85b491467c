"""Parts of devices, as KAI and HAMi name them: what the engine counts, and what is told to those who make them so."""

import asyncio
import json
import threading

import pytest
from aiohttp import web

from clearway.adapters.kubernetes import sharing as sharing_module
from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import ApiError
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.runs import Bind, Refuse
from clearway.adapters.kubernetes.shares import BIND_REQUESTS, make_bind_request, make_group
from clearway.adapters.kubernetes.sharing import Sharing
from clearway.model.cluster import DeviceGroup
from clearway.model.events import DeviceDown, JobCancelled, JobStopped, NodeAdded
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import StopCause
from clearway.model.units import MIB
from clearway.wire.units import AMOUNT_MAX
from support.kube_server import talk
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
REGISTERED = "GPU-a,10,24576,100,NVIDIA-A10,0,true,0,hami-core:GPU-b,10,24576,100,NVIDIA-A10,0,true,1,hami-core:"
LABELS = {"nvidia.com/gpu.product": "A10", "nvidia.com/gpu.memory": "24576"}


def hami_node(registered=REGISTERED):
    node = make_node("n1", gpus=20)
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": registered}
    return parse_node(node, CONFIG)


def hami_pod(name="p", gpus=1, **asked):
    """A pod that asks HAMi's resources, such as gpumem=3000."""
    pod = make_pod(name, gpus=gpus)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits.update({f"nvidia.com/{key.replace('_', '-')}": str(value) for key, value in asked.items()})
    return pod


def kai_pod(name="p", **said):
    return make_pod(name, gpus=0, annotations={key.replace("_", "-"): value for key, value in said.items()})


@pytest.fixture
def hami():
    book = Book(CONFIG)
    book.nodes.put(hami_node())
    book.settle(1)
    return book


@pytest.fixture
def kai():
    book = Book(CONFIG)
    book.nodes.has_binder = True
    book.nodes.put(parse_node(make_node("n1", gpus=2, labels=LABELS), CONFIG))
    book.settle(1)
    return book


def arrive(book, data, number=1):
    book.put_pod(parse_pod(data, CONFIG))
    book.settle(1)
    (arrival,) = book.take_arrivals()
    book.accept(1, arrival, JobId(number))
    book.settle(1)
    return arrival.job.request


def start(book, devices, number=1):
    book.start(1, JobId(number), 1, [(NodeName("n1"), devices)], "")
    book.settle(1)
    (bind,) = [one for one in book.take_actions() if isinstance(one, Bind)]
    return bind


def said_to(book, data):
    book.put_pod(parse_pod(data, CONFIG))
    book.settle(1)
    assert not book.take_arrivals()
    (only,) = [one.message for one in book.take_actions() if isinstance(one, Refuse)]
    return only


# --- HAMi -------------------------------------------------------------------------------------------------------------


def test_devices_that_hami_registers_are_the_node_s_devices_and_not_the_parts_that_it_counts():
    book = Book(CONFIG)
    book.nodes.put(hami_node())
    (event,) = [one for one in book.settle(1) if isinstance(one, NodeAdded)]
    assert event.node.groups == (DeviceGroup(model="NVIDIA-A10", count=2, memory_bytes=24_576 * MIB),)


def test_hami_registers_in_either_form_and_sick_devices_are_down():
    rows = [{"id": "GPU-a", "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA-A10", "health": False}]
    book = Book(CONFIG)
    book.nodes.put(hami_node(json.dumps(rows)))
    events = [*book.settle(1), *book.settle(2)]
    assert [one.device for one in events if isinstance(one, DeviceDown)] == [0]


@pytest.mark.parametrize(
    ("asked", "share_milli", "memory_mib"),
    [
        ({"gpumem": 6144}, 250, 6144),
        ({"gpumem": 6144, "gpucores": 40}, 400, 6144),
        ({"gpumem_percentage": 30}, 300, 0),
        ({"gpumem_percentage": 30, "gpucores": 50}, 500, 0),
        ({"gpucores": 30}, 1000, 0),
    ],
)
def test_hami_s_words_are_shares_of_compute_and_memory(hami, asked, share_milli, memory_mib):
    request = arrive(hami, hami_pod(**asked))
    assert (request.devices, request.share_milli, request.device_memory_bytes) == (1, share_milli, memory_mib * MIB)
    assert request.node_labels[0] in hami.nodes.specs()[0].labels


def test_share_of_more_memory_than_there_is_anywhere_is_a_request_that_no_device_meets(hami):
    request = arrive(hami, hami_pod(gpumem="1E", gpucores=50))
    assert request.device_memory_bytes == AMOUNT_MAX


def test_pod_with_a_share_is_bound_with_what_hami_s_plugin_must_know(hami):
    arrive(hami, hami_pod(gpumem=3000, gpucores=30))
    told = dict(start(hami, (1,)).annotations)
    assert told["hami.io/vgpu-devices-to-allocate"] == "GPU-b,NVIDIA,3000,30:;"
    assert told["hami.io/vgpu-devices-allocated"] == told["hami.io/vgpu-devices-to-allocate"]
    assert (told["hami.io/vgpu-node"], told["hami.io/bind-phase"]) == ("n1", "allocating")


def test_whole_devices_on_a_node_of_hami_are_named_with_all_of_their_memory(hami):
    arrive(hami, hami_pod(gpus=2))
    told = dict(start(hami, (0, 1)).annotations)
    assert told["hami.io/vgpu-devices-to-allocate"] == "GPU-a,NVIDIA,24576,0:GPU-b,NVIDIA,24576,0:;"


def test_device_of_which_hami_s_own_scheduler_gave_a_part_is_left_to_it(hami):
    data = make_pod("theirs", node="n1", annotations={"hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,3000,30:;"})
    data["spec"]["schedulerName"] = "hami-scheduler"
    hami.put_pod(parse_pod(data, CONFIG))
    assert [one.device for one in hami.settle(2) if isinstance(one, DeviceDown)] == [1]


def test_device_is_seen_to_be_theirs_also_when_that_is_said_after_the_pod_lies_there(hami):
    data = make_pod("theirs", node="n1")
    data["spec"]["schedulerName"] = "hami-scheduler"
    hami.put_pod(parse_pod(data, CONFIG))
    assert not [one for one in hami.settle(2) if isinstance(one, DeviceDown)]
    data["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,3000,30:;"}
    hami.put_pod(parse_pod(data, CONFIG))
    assert [one.device for one in hami.settle(3) if isinstance(one, DeviceDown)] == [1]


def test_pod_holds_no_more_devices_than_it_asks_whatever_its_annotations_say(hami):
    said = {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,1:GPU-b,NVIDIA,1,1:;"}
    for gpus in (0, 1):
        data = make_pod(f"theirs{gpus}", gpus=gpus, node="n1", annotations=said)
        data["spec"]["schedulerName"] = "default-scheduler"
        hami.put_pod(parse_pod(data, CONFIG))
        assert len([one for one in hami.settle(2) if isinstance(one, DeviceDown)]) == gpus


def test_shares_of_several_devices_are_refused_and_said(hami):
    assert "of one device only" in said_to(hami, hami_pod(gpus=2, gpumem=3000))


# --- KAI --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "share_milli", "memory_mib"), [({"gpu_fraction": "0.4"}, 400, 0), ({"gpu_memory": "6144"}, 250, 6144)]
)
def test_kai_s_words_are_shares(kai, said, share_milli, memory_mib):
    request = arrive(kai, kai_pod(**said))
    assert (request.devices, request.share_milli, request.device_memory_bytes) == (1, share_milli, memory_mib * MIB)
    assert request.node_labels[0] in kai.nodes.specs()[0].labels


def test_pods_on_one_device_are_of_one_group_of_kai_s(kai):
    for number, name in enumerate(("p", "q"), 1):
        arrive(kai, kai_pod(name, gpu_fraction="0.4"), number)
        bind = start(kai, (1,), number)
        request = make_bind_request(bind.pod, kai.nodes.entries["n1"].facts, bind.device)
        assert request["metadata"]["name"] == name
        assert request["spec"] == {
            "podName": name,
            "selectedNode": "n1",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.400"},
            "selectedGPUGroups": [make_group("n1", 1)],
        }


def test_pod_that_keeps_a_shared_device_is_not_counted_beside_the_pods_that_share_it(kai):
    arrive(kai, kai_pod(gpu_fraction="0.4"))
    start(kai, (1,))
    keeper = make_pod("keeper", node="n1", gpus=1, labels={"runai-gpu-group": make_group("n1", 1)})
    keeper["spec"]["schedulerName"] = ""
    kai.put_pod(parse_pod(keeper, CONFIG))
    assert not [one for one in kai.settle(2) if isinstance(one, DeviceDown)]
    other = make_pod("other", node="n1", gpus=1, labels={"runai-gpu-group": "theirs"})
    other["spec"]["schedulerName"] = ""
    kai.put_pod(parse_pod(other, CONFIG))
    assert [one.device for one in kai.settle(3) if isinstance(one, DeviceDown)] == [0]


def test_share_is_refused_where_nobody_makes_it_so(kai):
    kai.nodes.has_binder = False
    assert "needs KAI's binder" in said_to(kai, kai_pod(gpu_fraction="0.4"))
    kai.nodes.has_binder = True
    kai.touch_all()
    kai.settle(2)
    assert len(kai.take_arrivals()) == 1


def test_share_that_waits_or_cannot_be_bound_is_taken_back_and_told_once_the_binder_is_gone(kai):
    arrive(kai, kai_pod(gpu_fraction="0.4"))
    kai.take_actions()
    kai.nodes.has_binder = False
    kai.touch_all()
    kai.start(2, JobId(1), 1, [(NodeName("n1"), (0,))], "")
    events = kai.settle(2)
    assert [one.cause for one in events if isinstance(one, JobStopped)] == [StopCause.MIGRATED]
    assert [one.job for one in events if isinstance(one, JobCancelled)] == [1]
    kai.settle(3)
    assert ["needs KAI's binder" in one.message for one in kai.take_actions()] == [True]
    kai.nodes.has_binder = True
    kai.touch_all()
    kai.settle(4)
    (arrival,) = kai.take_arrivals()
    kai.accept(4, arrival, JobId(2))
    kai.settle(4)
    kai.nodes.has_binder = False
    kai.touch_all()
    assert [one.job for one in kai.settle(5) if isinstance(one, JobCancelled)] == [2]


class Api:
    """KAI's API, which comes and goes. asked: how often it was looked for."""

    def __init__(self):
        self.is_there = True
        self.asked = 0

    async def answer(self, request):
        self.asked += request.path == BIND_REQUESTS
        return web.json_response({}, status=200 if self.is_there else 404)


async def look(client, book, speak):
    """Run `speak(sharing)` beside the look-out for the binder."""
    sharing = Sharing(client, book, threading.Lock())
    async with asyncio.timeout(20):
        looking = asyncio.create_task(sharing.look_for_binder(lambda: None))
        await until(lambda: book.nodes.has_binder)
        await speak(sharing)
        looking.cancel()


async def until(is_so):
    while not is_so():
        await asyncio.sleep(0.005)


def test_binder_that_went_is_missed_and_one_that_came_back_is_found(kai, tmp_path, monkeypatch):
    monkeypatch.setattr(sharing_module, "AGAIN_S", 0.01)
    api, kai.nodes.has_binder = Api(), False

    async def speak(_):
        for is_there in (False, True):
            api.is_there = is_there
            await until(lambda: kai.nodes.has_binder == is_there)  # noqa: B023

    talk(tmp_path, api.answer, lambda client: look(client, kai, speak))
    assert kai.nodes.has_binder


def test_bind_request_that_nobody_takes_has_the_binder_looked_for_at_once(kai, tmp_path):
    api, kai.nodes.has_binder = Api(), False
    pod = parse_pod(kai_pod(gpu_fraction="0.4"), CONFIG)

    async def speak(sharing):
        api.is_there = False
        with pytest.raises(ApiError):
            await sharing.ask_binder(Bind(pod, "n1", (), 0))
        await until(lambda: not kai.nodes.has_binder)

    talk(tmp_path, api.answer, lambda client: look(client, kai, speak))
    assert api.asked == 2


def test_share_by_memory_is_refused_where_no_node_says_how_much_there_is():
    book = Book(CONFIG)
    book.nodes.has_binder = True
    book.nodes.put(parse_node(make_node("n1", gpus=2), CONFIG))
    assert "nvidia.com/gpu.memory" in said_to(book, kai_pod(gpu_memory="2000"))
