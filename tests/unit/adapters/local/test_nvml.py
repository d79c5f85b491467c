"""GPUs as NVML tells of them, by a stand-in for the module `pynvml` with the same calls, errors and quirks."""

# ruff: noqa: N801, N802, N815, N818 - the names are those of pynvml

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearway.adapters.local import containers
from clearway.adapters.local.accounts import Account
from clearway.adapters.local.docker import NVIDIA
from clearway.adapters.local.gpus import NvmlDevices, find_major, read_capabilities
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.launching import Task, make_launch
from clearway.adapters.local.nvml import LostReader, NvmlReader, shorten_model
from clearway.model.cluster import NodeSpec
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Request
from clearway.model.runs import RunSpec


class FakeNvml:
    """`pynvml` for GPUs given as dictionaries. lost: indices that have fallen off the bus."""

    class NVMLError(Exception):
        """As there, every error is a subclass."""

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    class NVMLError_InvalidArgument(NVMLError):
        pass

    class NVMLError_NoPermission(NVMLError):
        pass

    class NVMLError_ResetRequired(NVMLError):
        pass

    class NVMLError_FunctionNotFound(NVMLError):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        def __str__(self):
            return "GPU is lost"

    nvmlEventTypeXidCriticalError = 8

    def __getattribute__(self, name):
        """Calls that are to fail, fail, with an error of no class of its own."""
        if name.startswith("nvmlDeviceGet") and name.removeprefix("nvmlDeviceGet") in self.failing:
            raise self.NVMLError("Unknown Error")
        return super().__getattribute__(name)

    def __init__(self, *gpus):
        self.gpus = list(gpus)
        self.lost = set()
        self.xids = {}
        self.failing = ()
        self.is_forbidden = False

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index in self.lost:
            raise self.NVMLError_GpuIsLost
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle):
        return handle["uuid"]

    def nvmlDeviceGetMinorNumber(self, handle):
        if "minor" not in handle:
            raise self.NVMLError_NotSupported
        return handle["minor"]

    def nvmlDeviceGetName(self, handle):
        return handle["name"].encode()  # bytes, as in older releases

    def nvmlDeviceGetMemoryInfo(self, handle):
        if "GB10" in handle["name"]:
            raise self.NVMLError_NotSupported
        return SimpleNamespace(total=handle.get("memory", 80 << 30))

    def nvmlDeviceGetPowerManagementLimit(self, handle):
        if "milliwatts" not in handle:
            raise self.NVMLError_NotSupported
        return handle["milliwatts"]

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle):
        return [200_000, 700_000]

    def nvmlDeviceSetPowerManagementLimit(self, handle, milliwatts):
        if self.is_forbidden:
            raise self.NVMLError_NoPermission
        handle["milliwatts"] = milliwatts

    def nvmlDeviceGetNvLinkState(self, handle, link):
        links = handle.get("links", 0)
        if not links:
            raise self.NVMLError_NotSupported
        if link >= links:
            raise self.NVMLError_InvalidArgument
        return 1

    def nvmlDeviceGetMigMode(self, handle):
        if "instances" not in handle:
            raise self.NVMLError_NotSupported
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index >= len(handle["instances"]):
            raise self.NVMLError_NotFound
        return handle["instances"][index]

    def nvmlDeviceGetGpuInstanceId(self, handle):
        if "numbers" not in handle:
            raise self.NVMLError_NotSupported
        return handle["numbers"][0]

    def nvmlDeviceGetComputeInstanceId(self, handle):
        return handle["numbers"][1]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in handle.get("pids", ())]

    def nvmlEventSetCreate(self):
        return {}

    def nvmlDeviceRegisterEvents(self, handle, kinds, events):
        assert kinds == self.nvmlEventTypeXidCriticalError
        assert not events
        events["of"] = handle

    def nvmlEventSetWait_v2(self, events, timeout_ms):
        index = self.gpus.index(events["of"]) if events["of"] in self.gpus else None
        if index is None or index in self.lost:
            raise self.NVMLError_GpuIsLost
        xids = self.xids.get(index)
        if not xids:
            raise self.NVMLError("timeout")
        return SimpleNamespace(eventData=xids.pop(0))


H100 = {"name": "NVIDIA H100 80GB HBM3", "milliwatts": 700_000, "links": 18}
NODE = NodeSpec(name=NodeName("dgx"), cpu_milli=96_000, memory_bytes=1 << 40)


def make_devices(nvml, *, ours=(), names=None, **options):
    return NvmlDevices(
        NvmlReader(nvml),
        NODE,
        is_ours=lambda pid: pid in ours,
        name_of=lambda pid: (names or {}).get(pid, "python"),
        **options,
    )


def make_h100s(count):
    return FakeNvml(*({**H100, "uuid": f"GPU-{index}"} for index in range(count)))


def test_node_has_a_group_for_each_model_with_memory_power_and_nvlink():
    (node,) = make_devices(make_h100s(8)).nodes()
    (group,) = node.groups
    assert (group.model, group.count, group.memory_bytes, group.watts_max) == ("H100", 8, 80 << 30, 700)
    assert group.nvlink_size == 0
    assert (node.name, node.cpu_milli, node.memory_bytes) == ("dgx", 96_000, 1 << 40)


def test_gpus_without_nvlink_are_domains_of_their_own():
    nvml = FakeNvml({"name": "Tesla T4", "uuid": "GPU-a"}, {"name": "Tesla T4", "uuid": "GPU-b"})
    assert make_devices(nvml).nodes()[0].groups[0].nvlink_size == 1


def test_devices_are_visible_by_index_on_the_bus_even_where_models_are_mixed():
    nvml = FakeNvml(
        {"name": "Tesla T4", "uuid": "GPU-a"}, {**H100, "uuid": "GPU-b"}, {"name": "Tesla T4", "uuid": "GPU-c"}
    )
    devices = make_devices(nvml)
    assert [group.model for group in devices.nodes()[0].groups] == ["T4", "H100"]
    assert devices.visible(NodeName("dgx"), (0, 1)) == "0,2"
    assert devices.visible(NodeName("dgx"), (2,)) == "1"
    assert devices.visible(NodeName("dgx"), ()) == ""
    by_uuid = make_devices(nvml, is_by_uuid=True)
    assert by_uuid.visible(NodeName("dgx"), (0, 1)) == "GPU-a,GPU-c"


def test_mig_instances_are_devices_and_visible_by_uuid_alone():
    instances = [{"name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "uuid": f"MIG-{n}", "memory": 5 << 30} for n in range(2)]
    nvml = FakeNvml({"name": "NVIDIA A100-SXM4-40GB", "uuid": "GPU-a", "instances": instances})
    devices = make_devices(nvml)
    (group,) = devices.nodes()[0].groups
    assert (group.model, group.count, group.memory_bytes) == ("A100-1g.5gb", 2, 5 << 30)
    assert devices.visible(NodeName("dgx"), (1,)) == "MIG-1"


@pytest.mark.parametrize("instances", [[], [{"name": "NVIDIA A100-SXM4-40GB MIG 7g.40gb", "uuid": "MIG-0"}]])
def test_beside_a_gpu_in_mig_mode_which_cuda_passes_over_the_others_are_visible_by_uuid(instances):
    a100 = {"name": "NVIDIA A100-SXM4-40GB"}
    nvml = FakeNvml({**a100, "uuid": "GPU-a", "instances": instances}, {**a100, "uuid": "GPU-b"})
    devices = make_devices(nvml)
    assert devices.visible(NodeName("dgx"), (len(instances),)) == "GPU-b"


def test_gpu_that_is_lost_is_down_until_it_is_back():
    nvml = make_h100s(2)
    devices = make_devices(nvml)
    assert devices.look().devices == {}
    nvml.lost.add(1)
    devices.look()
    assert devices.look().devices == {("dgx", 1): "GPU 1 (GPU-1) cannot be read: GPU is lost"}
    nvml.lost.clear()
    assert devices.look().devices == {}


@pytest.mark.parametrize("call", ["HandleByIndex", "UUID", "Name", "Count", "MaxMigDeviceCount"])
def test_gpu_that_fails_to_answer_once_is_not_taken_from_its_job(call):
    nvml = make_h100s(2)
    nvml.gpus[1]["instances"] = [{"name": "NVIDIA H100 MIG 1g.10gb", "uuid": "MIG-0"}]
    devices = make_devices(nvml)
    devices.look()
    for _ in range(3):
        nvml.failing = (call,)
        assert devices.look().devices == {}
        nvml.failing = ()
        assert devices.look().devices == {}
    nvml.failing = (call,)
    devices.look()
    assert "cannot be read: Unknown Error" in devices.look().devices["dgx", 1]


@pytest.mark.parametrize(
    "call", ["MemoryInfo", "PowerManagementLimit", "NvLinkState", "MinorNumber", "ComputeRunningProcesses", "MigMode"]
)
def test_what_a_gpu_fails_to_say_of_itself_takes_it_from_nobody(call):
    nvml = make_h100s(2)
    devices = make_devices(nvml)
    nvml.failing = (call,)
    assert [devices.look().devices for _ in range(3)] == [{}] * 3
    assert make_devices(nvml).nodes()[0].device_count == 2


def test_gpu_on_the_chip_of_the_cpu_has_the_memory_of_the_machine():
    (group,) = make_devices(FakeNvml({"name": "NVIDIA GB10", "uuid": "GPU-a"})).nodes()[0].groups
    assert (group.model, group.count) == ("GB10", 1)
    assert group.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_processes_are_seen_where_the_driver_is_older_than_their_present_call():
    nvml = make_h100s(1)

    def raise_missing(_):
        raise nvml.NVMLError_FunctionNotFound

    nvml.nvmlDeviceGetComputeRunningProcesses = raise_missing
    nvml.nvmlDeviceGetComputeRunningProcesses_v2 = lambda _: [SimpleNamespace(pid=9)]
    assert NvmlReader(nvml).read()[0].pids == (9,)


def test_errors_of_the_others_are_told_when_a_gpu_is_lost():
    nvml = make_h100s(3)
    devices = make_devices(nvml)
    nvml.lost.add(0)
    nvml.xids[2] = [48]
    devices.look()
    assert [index for _, index in devices.look().devices] == [0, 2]


def test_gpu_that_was_gone_at_the_start_is_down_at_once(tmp_path):
    make_devices(make_h100s(2), memory=tmp_path / "devices.json")
    devices = make_devices(make_h100s(1), memory=tmp_path / "devices.json")
    assert [index for _, index in devices.look().devices] == [1]


def test_gpu_that_is_not_listed_any_more_is_down():
    nvml = make_h100s(2)
    devices = make_devices(nvml)
    nvml.gpus.pop()
    devices.look()
    assert devices.look().devices == {("dgx", 1): "GPU 1 (GPU-1) is not there any more"}


@pytest.mark.parametrize(("xid", "is_down"), [(79, True), (48, True), (13, False), (31, False), (94, False)])
def test_xid_after_which_only_a_reset_helps_takes_the_gpu_down_for_good(xid, is_down):
    nvml = make_h100s(2)
    devices = make_devices(nvml)
    nvml.xids[0] = [xid]
    assert (("dgx", 0) in devices.look().devices) is is_down
    assert (("dgx", 0) in devices.look().devices) is is_down
    assert ("dgx", 1) not in devices.look().devices


def test_process_of_others_is_named_once_it_was_seen_twice():
    nvml = make_h100s(2)
    nvml.gpus[0]["pids"] = [7, 9]
    devices = make_devices(nvml, ours={7})
    assert devices.look().foreign == {}
    assert devices.look().foreign == {("dgx", 0): "in use by pid 9 (python), which is not of a job"}
    nvml.gpus[0]["pids"] = [7]
    assert devices.look().foreign == {}
    assert devices.look().devices == {}


def test_services_of_the_driver_are_not_others():
    nvml = make_h100s(1)
    nvml.gpus[0]["pids"] = [7]
    devices = make_devices(nvml, names={7: "nvidia-cuda-mps-server"})
    devices.look()
    assert devices.look().foreign == {}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA RTX A6000", "RTXA6000"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 3080 Ti", "RTX3080Ti"),
        ("Quadro", "Quadro"),
    ],
)
def test_model_is_named_as_job_files_name_it(name, model):
    assert shorten_model(name) == model


# --- device files -----------------------------------------------------------------------------------------------------


def confine(devices, *indices):
    confinement = devices.confine((NodeName("dgx"), index) for index in indices)
    return confinement.gpus, confinement.held


def make_with_files(*gpus):
    return FakeNvml(*({**H100, "uuid": f"GPU-{minor}", "minor": minor, **more} for minor, more in gpus))


def test_job_may_open_the_files_of_its_own_gpus_whatever_the_order_of_the_bus():
    devices = make_devices(make_with_files((2, {}), (0, {}), (1, {})), major=240)
    every = ((240, 0), (240, 1), (240, 2))
    assert confine(devices, 0, 2) == (every, ((240, 1), (240, 2)))
    assert confine(devices) == (every, ())
    assert confine(devices, 0, 1, 2) == (every, every)


def test_gpu_is_open_to_who_holds_an_instance_of_it():
    instances = [{"name": "NVIDIA H100 MIG 1g.10gb", "uuid": f"MIG-{n}", "memory": 10 << 30} for n in range(2)]
    devices = make_devices(make_with_files((0, {"instances": instances}), (1, {"instances": []}), (2, {})))
    assert devices.nodes()[0].device_count == 3
    assert confine(devices, 1) == (((195, 0), (195, 1), (195, 2)), ((195, 0),))
    assert confine(devices, 2) == (((195, 0), (195, 1), (195, 2)), ((195, 2),))


MINORS = """\
config 1
monitor 2
gpu0/gi1/access 30
gpu1/gi1/access 12
gpu1/gi1/ci0/access 13
gpu1/gi1/ci1/access 14
gpu1/gi2/access 21
gpu1/gi2/ci0/access 22
"""


def test_of_the_instances_of_a_gpu_those_are_open_that_are_held(tmp_path):
    (tmp_path / "mig-minors").write_text(MINORS)
    numbers = {"MIG-a": (1, 0), "MIG-b": (1, 1), "MIG-c": (2, 0)}
    instances = [{"name": "NVIDIA H100 MIG 1c.2g.20gb", "uuid": uuid, "numbers": numbers[uuid]} for uuid in numbers]
    devices = make_devices(
        make_with_files((0, {}), (1, {"instances": instances})),
        capabilities=read_capabilities(tmp_path / "mig-minors", 237),
    )
    every = ((195, 0), (195, 1), *((237, minor) for minor in (12, 13, 14, 21, 22)))
    assert confine(devices, 0) == (every, ((195, 0),))
    assert confine(devices, 1) == (every, ((195, 1), (237, 12), (237, 13)))
    assert confine(devices, 2, 3) == (every, ((195, 1), (237, 12), (237, 14), (237, 21), (237, 22)))


@pytest.mark.parametrize(("text", "major"), [(MINORS, 0), ("", 237), ("gpu0/gi1/access\ngpu0/gi1/access x\n", 237)])
def test_where_it_is_not_told_which_file_is_for_which_instance_none_is_closed(tmp_path, text, major):
    (tmp_path / "mig-minors").write_text(text)
    assert read_capabilities(tmp_path / "mig-minors", major) == {}
    assert read_capabilities(tmp_path / "nothing", major) == {}


def test_gpu_that_is_lost_stays_closed_and_one_in_its_place_is_open_to_who_holds_it(tmp_path):
    nvml = make_with_files((0, {}), (1, {}))
    make_devices(nvml, memory=tmp_path / "devices.json")
    devices = make_devices(nvml, memory=tmp_path / "devices.json")
    nvml.lost.add(1)
    devices.look()
    assert confine(devices, 0) == (((195, 0), (195, 1)), ((195, 0),))
    nvml.lost.clear()
    nvml.gpus[1] = {**nvml.gpus[1], "uuid": "GPU-new"}
    devices = make_devices(nvml, memory=tmp_path / "devices.json")
    assert confine(devices, 1) == (((195, 0), (195, 1)), ((195, 1),))


def test_gpus_without_device_files_are_not_closed():
    assert confine(make_devices(make_h100s(2)), 0) == ((), ())


def test_job_that_can_open_some_gpus_alone_is_told_them_by_uuid_since_the_driver_counts_those_anew():
    devices = make_devices(make_with_files((0, {}), (1, {})))
    assert devices.visible(NodeName("dgx"), (1,)) == "1"
    assert devices.visible(NodeName("dgx"), (1,), is_confined=True) == "GPU-1"


def test_where_files_cannot_be_closed_that_is_said_once_and_nothing_is_closed(caplog):
    devices = make_devices(make_with_files((0, {}), (1, {})))
    for _ in range(2):
        (note,) = devices.note_obstacle("cgroup v2 takes no program for device files here (Operation not permitted)")
    assert "may open GPUs that are not their own" in note
    assert len(caplog.records) == 1
    assert confine(devices, 0) == ((), ())
    assert devices.note_obstacle("") == ()
    assert confine(devices, 0)[1] == ((195, 0),)


def launch_on(devices, *held, image=""):
    """A job with a replica on each of these."""
    node = NodeName("dgx")
    task = Task(
        spec=JobSpec(id=JobId(5), request=Request(devices=1), replicas=len(held)),
        run=RunSpec(script="true", workdir="/usr/lib", image=image),
        generation=1,
        place=tuple((node, (index,) if index is not None else ()) for index in held),
        account=Account(name="ann", uid=7, gid=8, groups=(), home="/usr", login_shell="/bin/sh"),
        job_dir=Path("/usr/bin"),
        now_ms=0,
        port=1,
        group="clearway-1",
    )
    docker = SimpleNamespace(host="unix:///s", look=lambda _: (NVIDIA,))
    return make_launch(task, devices, docker)


def visible_in(launch):
    return [replica.environment["CUDA_VISIBLE_DEVICES"] for replica in launch.replicas]


def test_gang_of_some_gpus_may_open_those_of_all_its_replicas_and_its_warm_runner_none():
    devices = make_devices(make_with_files((0, {}), (1, {}), (2, {})))
    launch = launch_on(devices, 0, 2)
    assert launch.files_denied == ((195, 1),)
    assert launch.for_runner().files_denied == ((195, 0), (195, 1), (195, 2))
    assert visible_in(launch) == ["GPU-0", "GPU-2"]
    assert Launch.of_message(json.loads(json.dumps(launch.to_message()))) == launch


def test_gang_of_all_gpus_is_denied_none_and_told_them_by_index():
    launch = launch_on(make_devices(make_with_files((0, {}), (1, {}))), 0, 1)
    assert launch.files_denied == ()
    assert visible_in(launch) == ["0", "1"]


@pytest.mark.parametrize(
    ("held", "shown"), [((0, 2), "GPU-0,GPU-2"), ((0, 1, 2), "all"), ((0, 0), "GPU-0"), ((None,), "void")]
)
def test_docker_shows_the_gpus_that_the_job_may_open_and_no_more(monkeypatch, held, shown):
    monkeypatch.setattr(containers, "find_tool", lambda _: (containers.DOCKER, "/bin/sh"))
    devices = make_devices(make_with_files((0, {}), (1, {}), (2, {})))
    launch = launch_on(devices, *held, image="train:1")
    assert f"--env=NVIDIA_VISIBLE_DEVICES={shown}" in launch.argv


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("Character devices:\n  1 mem\n195 nvidia-frontend\n\nBlock devices:\n  8 sd\n", 195),
        ("Character devices:\n240 nvidia\n241 nvidia-caps\n\nBlock devices:\n  8 sd\n", 240),
        ("Character devices:\n  1 mem\n\nBlock devices:\n 99 nvidia\n", 0),
    ],
)
def test_major_number_is_what_the_kernel_lists(text, major):
    assert find_major(text, "nvidia", "nvidia-frontend") == major


# --- over restarts ----------------------------------------------------------------------------------------------------


def health(devices):
    return {place[1]: reason for place, reason in devices.look().devices.items()}


def test_machine_that_comes_back_with_a_gpu_less_keeps_its_numbers_and_says_which_is_gone(tmp_path):
    memory = tmp_path / "keeper" / "devices.json"
    before = make_devices(make_h100s(4), memory=memory).nodes()
    nvml = make_h100s(4)
    del nvml.gpus[1]
    devices = make_devices(nvml, memory=memory)
    assert devices.nodes() == before
    assert health(devices) == {1: "GPU 1 (GPU-1) is not there any more"}
    assert devices.visible(NodeName("dgx"), (0, 2)) == "GPU-0,GPU-2"
    again = make_devices(make_h100s(4), memory=memory)
    assert (health(again), again.visible(NodeName("dgx"), (0, 2))) == ({}, "0,2")


def test_gpu_that_comes_back_while_we_run_is_up_again(tmp_path):
    nvml = make_h100s(3)
    gone = nvml.gpus.pop()
    make_devices(make_h100s(3), memory=tmp_path / "devices.json")
    devices = make_devices(nvml, memory=tmp_path / "devices.json")
    assert list(health(devices)) == [2]
    nvml.gpus.append(gone)
    assert health(devices) == {}


def test_gpu_put_in_for_a_broken_one_takes_its_number_and_a_further_one_the_next(tmp_path):
    memory = tmp_path / "devices.json"
    make_devices(make_h100s(3), memory=memory)
    nvml = make_h100s(3)
    nvml.gpus[0] = {**H100, "uuid": "GPU-new"}
    nvml.gpus.insert(0, {**H100, "uuid": "GPU-more"})
    devices = make_devices(nvml, memory=memory)
    assert devices.nodes()[0].groups[0].count == 4
    assert devices.visible(NodeName("dgx"), (0, 1, 2, 3)) == "0,2,3,1"
    assert health(devices) == {}


def test_gpu_cut_into_instances_keeps_its_number_and_these_follow_and_are_replaced_by_others(tmp_path):
    memory = tmp_path / "devices.json"
    make_devices(make_h100s(2), memory=memory)

    def cut(*uuids):
        nvml = make_h100s(2)
        nvml.gpus[0]["instances"] = [
            {"name": "NVIDIA H100 MIG 1g.10gb", "uuid": uuid, "memory": 10 << 30} for uuid in uuids
        ]
        return make_devices(nvml, memory=memory)

    devices = cut("MIG-a", "MIG-b")
    assert [(group.model, group.count) for group in devices.nodes()[0].groups] == [("H100", 2), ("H100-1g.10gb", 2)]
    assert list(health(devices)) == [0]
    devices = cut("MIG-c", "MIG-b", "MIG-d")
    assert devices.visible(NodeName("dgx"), (2, 3, 4)) == "MIG-c,MIG-b,MIG-d"
    whole = make_devices(make_h100s(2), memory=memory)
    assert list(health(whole)) == [2, 3, 4]


def test_machine_that_finds_no_gpu_any_more_has_all_of_them_down_until_they_are_back(tmp_path):
    memory = tmp_path / "devices.json"
    make_devices(make_h100s(2), memory=memory)
    found = []
    devices = NvmlDevices(
        LostReader(lambda: found[0] if found else None),
        NODE,
        is_ours=lambda _: False,
        name_of=lambda _: "",
        memory=memory,
    )
    assert devices.nodes()[0].device_count == 2
    assert list(health(devices)) == [0, 1]
    found.append(NvmlReader(make_h100s(2)))
    assert health(devices) == {}


def test_damaged_memory_of_devices_is_begun_anew(tmp_path, caplog):
    memory = tmp_path / "devices.json"
    memory.write_text("[{")
    assert make_devices(make_h100s(2), memory=memory).nodes()[0].device_count == 2
    assert "counted anew" in caplog.text
    assert memory.stat().st_mode & 0o777 == 0o600


def test_device_that_stands_twice_in_the_memory_has_one_number(tmp_path, caplog):
    memory = tmp_path / "devices.json"
    make_devices(make_h100s(2), memory=memory)
    memory.write_text(memory.read_text().replace("GPU-1", "GPU-0"))
    devices = make_devices(make_h100s(2), memory=memory)
    assert devices.visible(NodeName("dgx"), range(devices.nodes()[0].device_count)) == "0,1"
    assert "one device with two numbers" in caplog.text


def test_cap_sets_the_power_limit_within_what_the_gpu_takes_and_lifting_gives_back_what_it_had(tmp_path):
    nvml = make_h100s(2)
    devices = make_devices(nvml, memory=tmp_path / "devices.json")
    assert devices.cap(NodeName("dgx"), 450) == ""
    assert [gpu["milliwatts"] for gpu in nvml.gpus] == [450_000, 450_000]
    devices.cap(NodeName("dgx"), 100)
    assert nvml.gpus[0]["milliwatts"] == 200_000
    after_restart = make_devices(nvml, memory=tmp_path / "devices.json")
    assert after_restart.nodes()[0].groups[0].watts_max == 700
    after_restart.cap(NodeName("dgx"), 0)
    assert nvml.gpus[0]["milliwatts"] == 700_000


def test_cap_that_is_not_permitted_says_so_in_one_line():
    nvml = make_h100s(8)
    nvml.is_forbidden = True
    assert make_devices(nvml).cap(NodeName("dgx"), 450) == "only root may set the power limit of a GPU"
