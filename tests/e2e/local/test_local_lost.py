"""What a control plane finds that starts on a machine without all that its jobs lie on: nothing of them runs on."""

import os
import signal
from pathlib import Path

import pytest

from clearway.model.events import JobFinished, JobStarted, JobStopped, JobSuspended, NodeDown
from clearway.model.ids import JobId
from clearway.model.jobs import StopCause
from clearway.model.plan import Suspend
from support.benches import seconds, wait_until
from support.local import local_bench

STAYS = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done"
"""Only SIGKILL ends it."""


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def read_record(bench, job):
    """What the keeper has written of its first generation."""
    return (bench.state / "runs" / f"{job}.1").read_text()


def hold_lost(bench, job, cause=StopCause.NODE_FAILED, **more):
    """As a driver says it that has not found the second node."""
    lost = JobStopped(0, JobId(job), 1, cause, 0, "n1: not found")
    return bench.holding(job, allocation=bench.allocate((1, (0,))), lost=lost, **more)


@pytest.mark.parametrize("cause", [StopCause.NODE_FAILED, StopCause.DEVICE_FAILED])
def test_job_on_what_is_not_there_is_told_to_have_ended_when_its_processes_are_gone(bench, cause):
    bench.add(5, STAYS)
    bench.start(5, 1, (1, (0,)))
    wait_until((bench.workdir / "pid").exists, "its beginning")
    pid = (bench.workdir / "pid").read_text().strip()
    bench.wait(JobStarted, 5)
    (ended,) = [event for event in bench.reconnect([hold_lost(bench, 5, cause)]) if isinstance(event, JobStopped)]
    assert (ended.job, ended.generation, ended.cause, ended.reason) == (5, 1, cause, "n1: not found")
    assert not Path("/proc", pid).exists()


def test_job_that_ended_by_itself_before_is_told_so(bench):
    bench.add(5, "sleep 0.5")
    bench.start(5, 1, (1, (0,)))
    bench.wait(JobStarted, 5)
    wait_until(lambda: "result" in read_record(bench, 5), "its end")
    (ended,) = [event for event in bench.reconnect([hold_lost(bench, 5)]) if isinstance(event, JobFinished)]
    assert ended.job == 5


def test_nobody_waits_for_a_start_there_that_was_never_performed(bench):
    bench.add(5, STAYS)
    begun = seconds()
    assert not bench.reconnect([hold_lost(bench, 5, is_started=False)])
    assert seconds() - begun < 5


def test_node_that_fails_while_a_job_on_it_is_frozen_is_told_and_so_are_later_ones(bench):
    bench.add(5, "sleep 600", suspendable=True)
    bench.start(5, 1, (0, (0,)))
    bench.wait(JobStarted, 5)
    keeper = bench.keeper_pid()
    os.kill(keeper, signal.SIGSTOP)
    try:
        bench.perform(Suspend(JobId(5), 1))
        bench.fail("n0")
        for _ in range(3):  # until the failure was seen
            bench.pass_time(0.5)
            bench.observe()
    finally:
        os.kill(keeper, signal.SIGCONT)
    bench.wait(JobSuspended, 5)
    bench.wait(NodeDown)
    bench.fail("n0", "n1")
    assert bench.wait(NodeDown, count=2).node == "n1"
