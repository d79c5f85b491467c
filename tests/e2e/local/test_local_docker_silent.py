"""Docker's daemon that does not say what it is delays its own jobs, and nobody else's."""

import os

import pytest

from clearway.adapters.local import containers, docker, launching
from clearway.model.events import DeviceDown, JobFinished, JobResized, JobStarted, JobStopped
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Migrate, Stop
from support.benches import Behaviour, wait_until
from support.local import is_alive, local_bench

UNFIT = '{"CgroupDriver": "systemd"}'


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Docker's client hangs until this is called with what it is to say."""
    pipe, client = tmp_path / "pipe", tmp_path / "docker"
    os.mkfifo(pipe)
    client.write_text(f"#!/bin/sh\nexec cat {pipe}\n")
    client.chmod(0o755)
    monkeypatch.setattr(containers, "find_tool", lambda _image: (containers.DOCKER, str(client)))
    monkeypatch.setattr(launching, "check_client", lambda program: program)
    monkeypatch.setattr(docker, "check_peer", lambda _path: None)
    monkeypatch.setattr(docker, "ANSWER_S", 60.0)
    return lambda text: pipe.write_text(text)


@pytest.fixture
def bench(tmp_path, answer):
    with local_bench(tmp_path) as bench:
        bench.backend._docker._uid = 0
        yield bench


def test_docker_that_hangs_delays_no_other_jobs_start(bench, answer):
    bench.add(1, "true", run={"image": "train:1"})
    bench.behave(2, Behaviour.ENDS_WELL)
    bench.start(1)
    bench.start(2, 1, (0, (1,)))
    assert bench.wait(JobFinished, 2).outcome is Outcome.COMPLETED
    assert not bench.of(1)
    answer(UNFIT)
    stopped = bench.wait(JobStopped, 1)
    assert (stopped.cause, stopped.reason[:8]) == (StopCause.UNSTARTABLE, "expected")
    assert "found systemd" in stopped.reason


def test_docker_that_never_answers_is_given_up_with_the_reason(bench, monkeypatch):
    monkeypatch.setattr(docker, "ANSWER_S", 0.1)
    bench.add(1, "true", run={"image": "train:1"})
    bench.start(1)
    assert "does not say what it is" in bench.wait(JobStopped, 1).reason


def test_job_that_is_cancelled_while_docker_is_asked_is_over_once(bench, answer):
    bench.add(1, "true", run={"image": "train:1"})
    bench.start(1)
    bench.perform(Stop(1, 1, 0, None))
    answer(UNFIT)
    bench.wait(JobStopped, 1)
    bench.behave(1, Behaviour.ENDS_WELL)
    bench.start(1, 2)
    bench.wait(JobFinished, 1)
    assert [type(event) for event in bench.of(1)] == [JobStopped, JobStarted, JobFinished]


def test_device_that_fails_while_docker_is_asked_is_told_with_the_end_of_its_job(bench, answer):
    bench.add(1, "true", run={"image": "train:1"})
    bench.start(1)
    bench.fail(devices={"n0": [0]})
    wait_until(lambda: bench.observe() is None or bench.backend._failures, "the failure to be seen")
    assert not bench.events
    answer(UNFIT)
    assert bench.wait(DeviceDown).device == 0
    bench.wait(JobStopped, 1)


def test_move_that_cannot_be_made_frees_the_devices_when_the_old_processes_are_gone(bench, answer):
    bench.add(1, "trap '' TERM; echo $$; while :; do sleep 0.02; done")
    bench.start(1)
    wait_until(
        lambda: bench.observe() is None or ((bench.workdir / "slurm-1.out").exists() and bench.output(1)), "output"
    )
    pid = int(bench.output(1))
    bench.wait(JobStarted, 1)
    bench.add(1, "true", run={"image": "train:1"})
    bench.perform(Migrate(1, 2, bench.allocate((0, (1,)))))
    bench.observe()
    assert is_alive(pid)
    answer(UNFIT)
    stopped = bench.wait(JobStopped, 1)
    assert (stopped.generation, stopped.cause) == (2, StopCause.UNSTARTABLE)
    assert "found systemd" in stopped.reason
    assert not is_alive(pid)


def test_job_that_is_moved_while_docker_is_asked_begins_where_it_was_moved_to(bench, answer):
    bench.add(1, "true", run={"image": "train:1"})
    bench.start(1)
    bench.behave(1, Behaviour.ENDS_WELL)
    bench.perform(Migrate(1, 2, bench.allocate((0, (1,)))))
    assert bench.wait(JobFinished, 1).generation == 2
    assert [type(event) for event in bench.of(1)] == [JobResized, JobStarted, JobFinished]
    answer(UNFIT)
    wait_until(lambda: not bench.backend._docker.is_asked, "the answer")
