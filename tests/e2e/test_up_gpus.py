"""A real control plane on a machine with GPUs, of which the driver's library is a stand-in: see `support.nvidia`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clearway.model.ids import JobId
from clearway.ports.views import DeviceState, JobState
from support.control_plane import wait_until
from support.nvidia import GpuPlane, build_driver, h100s, mig

SHOW = f"{sys.executable} -c \"import os; print(os.environ['CUDA_DEVICE_ORDER'], os.environ['CUDA_VISIBLE_DEVICES'])\""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def plane(tmp_path, driver) -> Iterator[GpuPlane]:
    plane = GpuPlane(tmp_path, driver)
    yield plane
    plane.tidy()


def submit(plane: GpuPlane, *words: str) -> JobId:
    return JobId(json.loads(plane.say("submit", "--json", "-", *words))["jobs"][0])


def look_at(plane: GpuPlane, job: JobId):
    with plane.client() as client:
        return client.job(job)


def find_node(plane: GpuPlane):
    with plane.client() as client:
        (node,) = client.nodes()
    return node


def find_down(plane: GpuPlane) -> dict[int, str]:
    return {device.index: device.reason for device in find_node(plane).devices if device.state is DeviceState.DOWN}


def wait_until_runs(plane: GpuPlane, job: JobId) -> int:
    """Wait, and return the number of its device."""
    wait_until(lambda: look_at(plane, job).state is JobState.RUNNING, f"job {job} to run")
    ((_, (index,)),) = look_at(plane, job).devices
    return index


def see(plane: GpuPlane, devices: int) -> list[str]:
    """CUDA_VISIBLE_DEVICES of a job with so many."""
    order, visible = plane.say("submit", "--follow", "--gpus", str(devices), "--", "sh", "-c", SHOW).split()[-2:]
    assert order == "PCI_BUS_ID"
    return visible.split(",")


def test_gpus_are_found_given_by_number_or_uuid_and_a_lost_one_costs_its_job_a_start_elsewhere(plane, driver):
    driver.tell(*h100s(4))
    plane.start()
    node = find_node(plane)
    assert [(device.model, device.memory_bytes) for device in node.devices] == [("H100", 80 << 30)] * 4
    assert [device.uuid for device in node.devices] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert see(plane, 4) == ["0", "1", "2", "3"]
    assert set(see(plane, 2)) < {"0", "1", "2", "3", "GPU-0", "GPU-1", "GPU-2", "GPU-3"}
    job = submit(plane, "--gpus", "1", "--", "sleep", "600")
    index = wait_until_runs(plane, job)
    driver.tell(*h100s(4, {index: ("lost",)}))
    wait_until(lambda: look_at(plane, job).devices not in ((), ((node.name, (index,)),)), "its start on another GPU")
    assert wait_until_runs(plane, job) != index
    assert find_down(plane) == {index: f"GPU {index} (GPU-{index}) cannot be read: GPU is lost"}
    assert "degraded" in plane.say("nodes")
    driver.tell(*h100s(4))
    wait_until(lambda: not find_down(plane), "the GPU's being up again")


def test_instances_of_mig_are_devices_and_beside_them_whole_gpus_are_named_by_uuid(plane, driver):
    driver.tell(*mig(0, "MIG-a", "MIG-b"), *mig(1), *h100s(4)[2:])
    plane.start()
    assert [device.model for device in find_node(plane).devices] == ["H100-1g.10gb"] * 2 + ["H100"] * 2
    small = plane.say("submit", "--follow", "--gpus", "H100-1g.10gb:1", "--", "sh", "-c", SHOW)
    assert small.split()[-1] in {"MIG-a", "MIG-b"}
    whole = plane.say("submit", "--follow", "--gpus", "H100:2", "--", "sh", "-c", SHOW)
    assert whole.split()[-1] == "GPU-2,GPU-3"


def test_gpu_that_needs_a_reset_is_down_and_one_that_fails_to_answer_once_keeps_its_job(plane, driver):
    driver.tell(*h100s(2))
    plane.start()
    job = submit(plane, "--gpus", "1", "--", "sleep", "600")
    index = wait_until_runs(plane, job)
    other = 1 - index
    driver.tell(*h100s(2, {index: ("busy once",), other: ("xid 13", "xid 48")}))
    wait_until(lambda: find_down(plane), "the GPU's being down")
    reason = f"GPU {other} (GPU-{other}) reported Xid 48: uncorrectable ECC error"
    assert find_down(plane) == {other: reason}
    assert look_at(plane, job).state is JobState.RUNNING
    assert look_at(plane, job).ran_before_ms == 0


def test_gpu_on_which_somebody_else_computes_is_avoided_until_he_ends(plane, driver):
    somebody = subprocess.Popen(["sleep", "600"])
    try:
        driver.tell(*h100s(2, {0: (f"pid {somebody.pid}", f"pid {os.getpid()}")}))
        plane.start()
        wait_until(lambda: f"pid {somebody.pid} (sleep)" in find_down(plane).get(0, ""), "his being seen")
        jobs = [submit(plane, "--gpus", "1", "--", "sleep", "1") for _ in range(2)]
        with plane.client() as client:
            ended = client.wait(jobs)
        assert [[indices for _, indices in job.devices] for job in ended] == [[(1,)], [(1,)]]
    finally:
        somebody.kill()
        somebody.wait()
    driver.tell(*h100s(2))
    wait_until(lambda: not find_down(plane), "the GPU's being free")


def test_machine_that_comes_back_with_a_gpu_less_says_which_and_runs_on_the_others(plane, driver):
    driver.tell(*h100s(3))
    plane.start()
    plane.end()
    driver.tell(*h100s(3)[:1], *h100s(3)[2:])
    plane.start()
    assert find_down(plane) == {1: "GPU 1 (GPU-1) is not there any more"}
    assert see(plane, 2) == ["GPU-0", "GPU-2"]


def test_power_budget_caps_the_gpus_themselves(plane, driver):
    driver.tell(*h100s(2))
    config = plane.work / "config.yaml"
    config.write_text("power_budget: 1kW\n")
    plane.start("--config", str(config))
    job = submit(plane, "--gpus", "2", "--", "sleep", "600")
    wait_until(lambda: look_at(plane, job).state is JobState.RUNNING, "its start")
    wait_until(lambda: driver.file.read_text().count("limited") == 2, "both caps")
    limits = [int(line.split()[2]) for line in driver.file.read_text().splitlines() if line.startswith("limited")]
    assert sum(limits) <= 1_000_000
    assert min(limits) >= 200_000
