"""A machine on which every start fails, under a real control plane that is killed meanwhile."""

import signal

import pytest

from clearway.adapters.storage import open_reader
from clearway.live.books import each_part
from clearway.model.events import JobStopped
from clearway.model.jobs import StopCause
from clearway.ports.views import JobState, NodeState
from support.control_plane import ControlPlane, wait_until

JOBS = 12


@pytest.fixture
def plane(tmp_path):
    plane = ControlPlane(tmp_path, devices="1x8")
    yield plane
    plane.tidy()


def find_failed(plane):
    """Jobs of which a start failed, by the journal."""
    reader = open_reader(f"sqlite:///{plane.places.database}")
    try:
        parts = [part for _, event in reader.read_journal() for part in each_part(event)]
    finally:
        reader.close()
    return {part.job for part in parts if isinstance(part, JobStopped) and part.cause is StopCause.START_FAILED}


def find_node(plane):
    with plane.client() as client:
        (node,) = client.nodes()
    return node


def find_states(plane):
    with plane.client() as client:
        return {job.state for job in client.all_jobs()}


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
    wait_until(lambda: find_states(plane) == {JobState.COMPLETED}, "the end of all jobs")
