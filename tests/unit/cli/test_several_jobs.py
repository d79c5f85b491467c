"""Commands about several jobs do what they can, and say of the rest why not."""

import pytest

from clearway.ports.views import JobState
from support.stored import make_view


@pytest.fixture
def array(desk):
    """Tasks 1 to 10 of array 1; a job of its own besides."""
    for index in range(1, 11):
        desk.control.put(make_view(index, user="ada", tenant="vision", array=1, array_index=index))
    desk.control.put(make_view(20, user="ada", tenant="vision"))
    return desk.control


def numbers_in(control, state):
    return [job.id for job in control.jobs.values() if job.state is state]


def test_tasks_that_are_there_are_cancelled_and_the_others_named(desk, array):
    typed = desk.slurm("scancel", "-v", "1_[8-12]")
    assert numbers_in(array, JobState.CANCELLED) == [8, 9, 10]
    assert typed.code == 0
    assert typed.err == "scancel: error: Kill job error on job id 1_[11-12]: Invalid job id specified\n"


def test_tasks_that_are_there_are_held_and_the_others_named(desk, array):
    typed = desk.slurm("scontrol", "hold", "1_[10-11]")
    assert [job.id for job in array.jobs.values() if job.reason == "JobHeldUser"] == [10]
    assert typed.code == 1
    assert "Invalid job id specified for job 1_11\n" in typed.err


def test_tasks_that_are_there_are_listed(desk, array):
    assert desk.slurm("squeue", "-h", "-r", "-o", "%i", "-j", "1_[9-20]").out.split() == ["1_9", "1_10"]
    assert desk.slurm("squeue", "-h", "-j", "1_[11-20]").out == ""


def test_range_that_is_none_is_refused(desk, array):
    typed = desk.slurm("scancel", "1_[5-1]")
    assert typed.code == 1
    assert "expected" in typed.err


def test_clearway_cancels_nothing_where_a_task_is_missing(desk, array):
    ended = desk.clearway("cancel", "1_[8-12]")
    assert ended.exit_code == 2
    assert "1_[11-12]" in ended.output
    assert numbers_in(array, JobState.CANCELLED) == []
