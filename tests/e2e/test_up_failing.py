"""A machine on which every start fails, under a real control plane that is killed meanwhile."""

import signal

import pytest

from clearway.ports.views import JobState, NodeState
from support.control_plane import ControlPlane, wait_until

JOBS = 12


@pytest.fixture
def plane(tmp_path):
    plane = ControlPlane(tmp_path, devices="1x8")
    yield plane
    plane.tidy()


def find_failed(plane):
    """Jobs of which a start failed."""
    return {job.id for job in plane.client().all_jobs() if job.message.startswith("start failed")}


def find_node(plane):
    (node,) = plane.client().nodes()
    return node


@pytest.mark.slow
def test_burst_and_a_kill_cost_three_jobs_and_what_waits_runs_when_the_machine_is_mended(plane):
    plane.start()
    jobs = plane.folder / "keeper" / "jobs"
    jobs.rename(jobs.with_name("away"))
    jobs.touch()  # so that no job can have a folder of its own
    plane.say("submit", "--array", f"1-{JOBS}", "--", "true")
    plane.end(signal.SIGKILL)
    plane.start()
    wait_until(lambda: find_node(plane).state is NodeState.DRAINED, "the node's being drained")
    assert find_node(plane).reason.startswith("the starts of 3 jobs in a row failed on it: ")
    assert len(find_failed(plane)) == 3
    jobs.unlink()
    jobs.with_name("away").rename(jobs)
    plane.say("undrain", find_node(plane).name)
    wait_until(lambda: {job.state for job in plane.client().all_jobs()} == {JobState.COMPLETED}, "the end of all jobs")
