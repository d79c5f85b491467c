"""What every lasting backend keeps to: the rules at the head of `ports/backend.py`, one by one."""

from dataclasses import replace

import pytest

from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    JobFinished,
    JobResized,
    JobStarted,
    JobStopped,
    JobSuspended,
    NodeDown,
    NodeUp,
)
from clearway.model.jobs import Checkpoint, Elastic, Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from support.benches import Behaviour, FakeBench
from support.local import QUICK, LocalBench

SAVING = {"checkpoint": Checkpoint(interval_ms=60_000, grace_ms=10_000)}
ELASTIC = {**SAVING, "elastic": Elastic(replicas_min=1, replicas_max=2)}
BENCHES = {
    "fake": FakeBench,
    "local": LocalBench,
    "local-without-cgroups": lambda folder: LocalBench(folder, settings=replace(QUICK, is_without_cgroups=True)),
}


@pytest.fixture(params=BENCHES)
def bench(request, tmp_path):
    bench = BENCHES[request.param](tmp_path)
    bench.connect()
    yield bench
    bench.end()


def begin(bench, behaviour, job=5, **spec):
    """Start it on a device of its own, and wait until it runs."""
    bench.behave(job, behaviour, **spec)
    bench.start(job, 1, (0, (job - 5,)))
    return bench.wait(JobStarted, job)


def kinds(events):
    return [type(event) for event in events]


# --- starting and ending --------------------------------------------------------------------------------------------


def test_job_that_ends_by_itself_was_started_and_is_completed(bench):
    begin(bench, Behaviour.ENDS_WELL)
    finished = bench.wait(JobFinished, 5)
    assert (finished.generation, finished.outcome, finished.exit_code) == (1, Outcome.COMPLETED, 0)
    assert kinds(bench.of(5)) == [JobStarted, JobFinished]


def test_job_that_fails_tells_its_exit_code(bench):
    begin(bench, Behaviour.FAILS)
    finished = bench.wait(JobFinished, 5)
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 1)


def test_start_that_cannot_be_carried_out_is_stopped_with_a_reason(bench):
    bench.behave(5, Behaviour.CANNOT_START)
    bench.start(5)
    stopped = bench.wait(JobStopped, 5)
    assert stopped.generation == 1
    assert stopped.cause in (StopCause.START_FAILED, StopCause.UNSTARTABLE)
    assert stopped.reason
    assert kinds(bench.of(5)) == [JobStopped]


def test_limit_ends_a_job_so_long_after_its_start(bench):
    started = begin(bench, Behaviour.RUNS_ON, limit_ms=300)
    finished = bench.wait(JobFinished, 5)
    assert finished.outcome is Outcome.TIMEOUT
    assert finished.at_ms - started.at_ms >= 300


def test_limit_is_not_renewed_by_a_resize_but_by_a_start(bench):
    started = begin(bench, Behaviour.SAVES, limit_ms=700, **ELASTIC)
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    bench.wait(JobResized, 5)
    assert bench.wait(JobFinished, 5).at_ms - started.at_ms < 700 + 1_000
    begin(bench, Behaviour.SAVES, job=6, limit_ms=700, **SAVING)
    bench.perform(Stop(6, 1, 10_000, StopCause.PREEMPTED))
    bench.wait(JobStopped, 6)
    bench.start(6, 2)
    again = bench.wait(JobStarted, 6, count=2)
    assert bench.wait(JobFinished, 6).at_ms - again.at_ms >= 700


def test_stop_without_a_cause_cancels(bench):
    begin(bench, Behaviour.RUNS_ON)
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("cause", [StopCause.PREEMPTED, StopCause.REQUEUED])
def test_stop_with_a_cause_lets_the_job_save(bench, cause):
    started = begin(bench, Behaviour.SAVES, **SAVING)
    bench.perform(Stop(5, 1, 10_000, cause))
    stopped = bench.wait(JobStopped, 5)
    assert (stopped.generation, stopped.cause) == (1, cause)
    assert 0 <= stopped.saved_ms <= stopped.at_ms - started.at_ms


def test_stop_with_a_cause_does_not_wait_for_a_job_that_does_not_save(bench):
    begin(bench, Behaviour.RUNS_ON)
    bench.perform(Stop(5, 1, 0, StopCause.PREEMPTED))
    stopped = bench.wait(JobStopped, 5)
    assert (stopped.cause, stopped.saved_ms) == (StopCause.PREEMPTED, 0)


def test_stopped_job_starts_again_under_its_next_generation(bench):
    begin(bench, Behaviour.SAVES, **SAVING)
    bench.perform(Stop(5, 1, 10_000, StopCause.PREEMPTED))
    bench.wait(JobStopped, 5)
    bench.start(5, 2, (1, (2,)))
    assert bench.wait(JobStarted, 5, count=2).generation == 2


# --- moving ---------------------------------------------------------------------------------------------------------


def test_suspended_job_goes_on_under_its_next_start(bench):
    begin(bench, Behaviour.RUNS_ON, suspendable=True)
    bench.perform(Suspend(5, 1))
    assert bench.wait(JobSuspended, 5).generation == 1
    bench.start(5, 2, (1, (1,)))
    assert bench.wait(JobStarted, 5, count=2).generation == 2
    bench.perform(Stop(5, 2, 0, None))
    bench.wait(JobFinished, 5)


def test_suspended_job_can_be_cancelled(bench):
    begin(bench, Behaviour.RUNS_ON, suspendable=True)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("command", [Resize, Migrate])
def test_moved_job_goes_on_under_its_new_generation(bench, command):
    begin(bench, Behaviour.SAVES, **ELASTIC)
    places = [(1, (0,)), (1, (1,))] if command is Resize else [(1, (3,))]
    bench.perform(command(5, 2, bench.allocate(*places)))
    assert bench.wait(JobResized, 5).generation == 2
    bench.perform(Stop(5, 2, 10_000, None))
    assert bench.wait(JobFinished, 5).generation == 2
    assert kinds(bench.of(5)) == [JobStarted, JobResized, JobFinished]


def test_job_is_resized_up_and_down_again(bench):
    begin(bench, Behaviour.SAVES, **ELASTIC)
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    bench.wait(JobResized, 5)
    bench.perform(Resize(5, 3, bench.allocate((1, (0,)))))
    assert bench.wait(JobResized, 5, count=2).generation == 3


def test_cap_is_taken(bench):
    bench.perform(Cap(0, 300))
    begin(bench, Behaviour.ENDS_WELL)
    bench.wait(JobFinished, 5)


# --- idempotence ----------------------------------------------------------------------------------------------------


def test_repeated_start_runs_once(bench):
    begin(bench, Behaviour.ENDS_WELL)
    bench.start(5)
    bench.wait(JobFinished, 5)
    bench.start(5)
    begin(bench, Behaviour.ENDS_WELL, job=6)
    bench.wait(JobFinished, 6)
    assert kinds(bench.of(5)) == [JobStarted, JobFinished]


def test_command_of_an_older_generation_is_ignored(bench):
    begin(bench, Behaviour.SAVES, **SAVING)
    bench.perform(Stop(5, 1, 10_000, StopCause.PREEMPTED))
    bench.wait(JobStopped, 5)
    bench.start(5, 2)
    bench.wait(JobStarted, 5, count=2)
    bench.perform(Stop(5, 1, 0, None))
    bench.start(5, 1)
    bench.perform(Migrate(5, 2, bench.allocate((1, (0,)))))
    bench.perform(Suspend(5, 1))
    begin(bench, Behaviour.ENDS_WELL, job=6)
    bench.wait(JobFinished, 6)
    assert kinds(bench.of(5)) == [JobStarted, JobStopped, JobStarted]


def test_commands_for_what_is_gone_are_ignored(bench):
    begin(bench, Behaviour.ENDS_WELL)
    bench.wait(JobFinished, 5)
    bench.perform(Stop(5, 1, 0, None))
    bench.perform(Stop(5, 1, 0, StopCause.PREEMPTED))
    bench.perform(Suspend(5, 1))
    begin(bench, Behaviour.ENDS_WELL, job=6)
    bench.wait(JobFinished, 6)
    assert kinds(bench.of(5)) == [JobStarted, JobFinished]


# --- failures -------------------------------------------------------------------------------------------------------


def test_failed_node_is_told_with_its_jobs_in_order_in_one_batch(bench):
    for job in (7, 6):
        bench.behave(job, Behaviour.RUNS_ON)
        bench.start(job, 1, (1, (job - 6,)))
        bench.wait(JobStarted, job)
    begin(bench, Behaviour.RUNS_ON)
    bench.fail("n1")
    down = bench.wait(NodeDown)
    following = bench.events[bench.events.index(down) + 1 :]
    assert down.node == "n1"
    assert [(event.job, event.cause) for event in following] == [
        (6, StopCause.NODE_FAILED),
        (7, StopCause.NODE_FAILED),
    ]
    bench.fail()
    assert bench.wait(NodeUp).node == "n1"
    assert kinds(bench.of(5)) == [JobStarted]


def test_failed_device_stops_the_jobs_on_it_alone(bench):
    begin(bench, Behaviour.RUNS_ON)
    bench.behave(6, Behaviour.RUNS_ON)
    bench.start(6, 1, (1, (1,)))
    bench.wait(JobStarted, 6)
    bench.fail(devices={"n1": [1]})
    down, stopped = bench.wait(DeviceDown), bench.wait(JobStopped, 6)
    assert (down.node, down.device, stopped.cause) == ("n1", 1, StopCause.DEVICE_FAILED)
    assert bench.events.index(stopped) == bench.events.index(down) + 1
    bench.fail()
    assert bench.wait(DeviceUp).device == 1
    assert kinds(bench.of(5)) == [JobStarted]


# --- the next driver ------------------------------------------------------------------------------------------------


def test_what_runs_as_the_journal_says_is_not_told(bench):
    begin(bench, Behaviour.RUNS_ON)
    bench.observe()
    assert list(bench.reconnect([bench.holding(5)])) == []
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


def test_what_was_told_and_not_written_down_is_told_again(bench):
    begin(bench, Behaviour.FAILS)
    bench.wait(JobFinished, 5)
    again = bench.reconnect([bench.holding(5)])
    assert [(event.job, event.outcome) for event in again] == [(5, Outcome.FAILED)]


def test_what_runs_without_a_trace_in_the_journal_is_ended(bench):
    begin(bench, Behaviour.RUNS_ON)
    bench.reconnect()
    begin(bench, Behaviour.ENDS_WELL, job=6)
    bench.wait(JobFinished, 6)
    assert kinds(bench.of(5)) == [JobStarted]


def test_what_the_journal_says_runs_and_does_not_was_lost(bench):
    bench.behave(5, Behaviour.RUNS_ON)
    (lost,) = bench.reconnect([bench.holding(5)])
    assert (lost.job, lost.cause) == (5, StopCause.NODE_FAILED)


def test_start_that_may_not_have_been_performed_is_performed_when_asked_again(bench):
    bench.behave(5, Behaviour.ENDS_WELL)
    assert list(bench.reconnect([bench.holding(5, is_started=False)])) == []
    bench.perform(Start(5, 1, bench.allocate((0, (0,)))))
    assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED


def test_what_is_down_is_told_to_the_next_driver(bench):
    bench.fail(devices={"n1": [1]})
    bench.wait(DeviceDown)
    assert {(type(event), event.node, event.device) for event in bench.reconnect()} == {(DeviceDown, "n1", 1)}


def test_resize_that_was_not_confirmed_is_confirmed_to_the_next_driver(bench):
    begin(bench, Behaviour.SAVES, **ELASTIC)
    bench.observe()
    moving = bench.holding(5, 2, generation_before=1)
    resize = Resize(5, 2, bench.allocate((0, (0,)), (1, (0,))))
    assert list(bench.reconnect([moving])) == []
    bench.perform(resize)
    bench.reconnect([moving])
    bench.perform(resize)
    assert bench.wait(JobResized, 5).generation == 2
    assert len([event for event in bench.of(5) if isinstance(event, JobResized)]) == 1


def test_frozen_job_goes_on_after_the_next_driver_came(bench):
    begin(bench, Behaviour.RUNS_ON, suspendable=True)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    bench.observe()
    assert list(bench.reconnect([bench.holding(5, is_suspended=True)])) == []
    bench.start(5, 2)
    assert bench.wait(JobStarted, 5, count=2).generation == 2
