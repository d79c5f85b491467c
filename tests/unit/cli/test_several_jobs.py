"""Commands about several jobs do what they can, and say of the rest why not."""

from concurrent.futures import Future

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


@pytest.fixture
def shared(desk):
    """Jobs 31 and 33 are ada's, 32 is her colleague's."""
    for number, user in ((31, "ada"), (32, "bob"), (33, "ada")):
        desk.control.put(make_view(number, name="sleep", user=user, tenant="vision"))
    return desk.control


@pytest.mark.parametrize("words", [("-p", "production"), ("-n", "sleep"), ("-t", "PD"), ("-A", "vision")])
def test_a_filter_chooses_ones_own(desk, shared, words):
    typed = desk.slurm("scancel", *words)
    assert (typed.code, typed.err) == (0, "")
    assert numbers_in(shared, JobState.CANCELLED) == [31, 33]


@pytest.mark.parametrize("user", ["lead", "op"])
def test_a_filter_of_who_answers_for_others_chooses_all(desk, shared, user):
    desk.become(user)
    assert desk.slurm("scancel", "-p", "production").code == 0
    assert numbers_in(shared, JobState.CANCELLED) == [31, 32, 33]


@pytest.mark.parametrize("words", [("31", "32"), ("-u", "ada,bob")])
def test_jobs_of_others_that_are_named_are_denied_and_ones_own_cancelled(desk, shared, words):
    typed = desk.slurm("scancel", *words)
    assert typed.code == 1
    assert typed.err == "scancel: error: Kill job error on job id 32: Access/permission denied\n"
    assert 31 in numbers_in(shared, JobState.CANCELLED)
    assert 32 not in numbers_in(shared, JobState.CANCELLED)


def test_ones_own_are_held_and_others_denied(desk, shared):
    typed = desk.slurm("scontrol", "hold", "31,32")
    assert typed.code == 1
    assert typed.err.startswith("Access/permission denied for job 32\n")
    assert [job.id for job in shared.jobs.values() if job.reason == "JobHeldUser"] == [31]


def test_clearway_cancels_ones_own_of_a_name(desk, shared):
    ended = desk.clearway("cancel", "--name", "sleep")
    assert (ended.exit_code, ended.output) == (0, "Cancelled 2 of 2 job(s)\n")


def test_clearway_cancels_ones_own_and_names_the_others(desk, shared):
    ended = desk.clearway("cancel", "31", "32")
    assert ended.exit_code == 77
    assert ended.stdout == "Cancelled 1 of 2 job(s)\n"
    assert "Job 32 is another user's" in ended.stderr
    assert numbers_in(shared, JobState.CANCELLED) == [31]


def test_who_may_change_nothing_is_told_so(desk, shared):
    desk.become("view")
    typed = desk.slurm("scancel", "31", "32")
    assert typed.code == 1
    assert "ask an operator" in typed.err
    assert numbers_in(shared, JobState.CANCELLED) == []


@pytest.fixture
def running(desk):
    """Job 41 runs, 42 waits. What they are asked, in order."""
    desk.control.put(make_view(41, user="ada", tenant="vision", state=JobState.RUNNING))
    desk.control.put(make_view(42, user="ada", tenant="vision"))
    asked = []
    for name in ("hold", "requeue"):
        real = getattr(desk.control, name)

        def ask(jobs, *, actor, name=name, real=real):
            asked.append((name, jobs))
            real(jobs, actor=actor)
            return answer_at_once(jobs)

        setattr(desk.control, name, ask)
    return asked


def answer_at_once(jobs):
    future = Future()
    future.set_result(jobs)
    return future


@pytest.mark.parametrize("words", [("scontrol", "requeuehold", "41"), ("requeue", "--hold", "41")])
def test_job_is_held_before_it_waits_again(desk, running, words):
    if words[0] == "scontrol":
        assert desk.slurm(*words).code == 0
    else:
        assert desk.clearway(*words).exit_code == 0
    assert running == [("hold", (41,)), ("requeue", (41,))]


def test_nothing_is_held_that_must_not_run_again(desk, running):
    desk.control.put(make_view(41, user="ada", tenant="vision", state=JobState.RUNNING, requeue=False))
    desk.slurm("scontrol", "requeuehold", "41,42")
    assert running == [("requeue", (41, 42))]


def test_hold_of_a_job_that_runs_says_when_it_holds(desk, running):
    typed = desk.slurm("scontrol", "hold", "41,42")
    assert (typed.code, typed.err) == (0, "Job 41 runs; it is held when it next waits\n")
    ended = desk.clearway("hold", "41", "42")
    assert (ended.stdout, ended.exit_code) == ("Held 2 of 2 job(s)\n", 0)
    assert ended.stderr == "Job 41 runs; it is held when it next waits\n"


def test_user_of_whom_nobody_has_heard_is_told(desk, shared):
    typed = desk.slurm("squeue", "-h", "-o", "%i", "-u", "bob,nosuchuser,ada")
    assert (typed.code, typed.err) == (0, "squeue: error: Invalid user: nosuchuser\n")
    assert sorted(typed.out.split()) == ["31", "32", "33"]


def test_user_who_has_no_jobs_is_not_unknown(desk):
    assert desk.slurm("squeue", "-u", "ada").err == ""
    assert desk.slurm("squeue", "-u", "root").err == ""


@pytest.mark.parametrize("word", ["", "  "])
def test_job_without_a_name_is_refused(desk, word):
    typed = desk.slurm("scancel", word)
    assert (typed.code, typed.err) == (1, "scancel: error: Invalid job id \n")


def test_ones_own_are_held_before_they_wait_again_though_anothers_must_not_run_again(desk, running):
    desk.control.put(make_view(45, state=JobState.RUNNING, user="bob", tenant="vision", requeue=False))
    assert desk.slurm("scontrol", "requeuehold", "41,45").code == 1
    assert running == [("hold", (41,)), ("requeue", (41,))]
