"""Controllers and keepers die; jobs do not, none runs twice, and what became of each is told."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from clearway.adapters.local import client
from clearway.adapters.local.keeper.home import SOCKET
from clearway.adapters.local.keeper.host import Settings
from clearway.model.events import (
    CheckpointSaved,
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
from clearway.model.plan import Resize, Stop, Suspend
from support.benches import wait_until
from support.local import LocalBench, is_alive, local_bench

NO_DISK = "expected the keeper to start; the disk is full"
KERNEL_TELLS_ENDS = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)
TICKING = "echo $$ >> pids; trap 'exit 0' TERM; while :; do sleep 0.02; done"


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def start_ticking(bench: LocalBench, job: int) -> int:
    bench.add(job, TICKING.replace("pids", f"pids-{job}"))
    bench.start(job)
    bench.wait(JobStarted, job)
    return wait_for_pids(bench, job)[0]


def wait_for_pids(bench: LocalBench, job: int) -> list[int]:
    path = bench.workdir / f"pids-{job}"
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), "the job's pid")
    return [int(pid) for pid in path.read_text().split()]


def kill_keeper(bench: LocalBench, *, with_warden: bool = False) -> None:
    pids = [*(bench.find_wardens() if with_warden else ()), bench.keeper_pid()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not is_alive(pid), "the keeper's death")


def test_job_runs_on_while_no_controller_lives_and_is_as_the_journal_says(bench):
    pid = start_ticking(bench, 5)
    assert list(bench.reconnect([bench.holding(5)])) == []
    assert is_alive(pid)
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


def test_job_that_ended_while_no_controller_lived_is_told_to_the_next(bench):
    bench.add(5, "exit 4")
    bench.start(5)
    bench.backend.close()
    record = bench.state / "runs" / "5.1"
    wait_until(lambda: record.exists() and '"result"' in record.read_text(), "the result")
    bench.backend = bench.make()
    started, finished = bench.connect([bench.holding(5, is_started=False)])
    assert isinstance(started, JobStarted)
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 4)


def test_end_is_told_again_to_a_controller_that_did_not_live_to_write_it_down(bench):
    bench.add(5, "exit 4")
    bench.start(5)
    bench.wait(JobFinished, 5)
    (again,) = bench.reconnect([bench.holding(5)])
    assert (again.outcome, again.exit_code) == (Outcome.FAILED, 4)
    bench.observe()
    wait_until(lambda: not list((bench.state / "runs").iterdir()), "records to go")


def test_started_job_without_a_trace_is_told_lost(bench):
    bench.add(5, "true")
    (lost,) = bench.reconnect([bench.holding(5)])
    assert isinstance(lost, JobStopped)
    assert lost.cause is StopCause.NODE_FAILED
    assert "no trace" in lost.reason


def test_start_that_was_never_performed_is_performed_once_when_asked_again(bench):
    pid = start_ticking(bench, 5)
    assert bench.reconnect([bench.holding(5, is_started=False)])[0].job == 5
    bench.start(5)
    bench.add(6, "true")
    bench.reconnect([bench.holding(5), bench.holding(6, is_started=False)])
    bench.start(6)
    bench.start(6)
    bench.wait(JobFinished, 6)
    assert wait_for_pids(bench, 5) == [pid]
    bench.start(6)
    bench.add(7, "true")
    bench.start(7)
    bench.wait(JobFinished, 7)
    assert len([event for event in bench.of(6) if isinstance(event, JobFinished)]) == 1


def test_job_that_nobody_holds_is_ended_when_a_controller_connects(bench):
    pid, older = start_ticking(bench, 5), start_ticking(bench, 6)
    bench.reconnect([bench.holding(6, 2, is_started=False)])
    wait_until(lambda: not is_alive(pid) and not is_alive(older), "their end")
    assert not [event for event in bench.of(5) if isinstance(event, JobFinished | JobStopped)]


def test_suspension_that_was_not_written_down_is_told_again(bench):
    bench.add(5, TICKING.replace("pids", "pids-5"), suspendable=True)
    bench.start(5)
    bench.wait(JobStarted, 5)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    assert [type(event) for event in bench.reconnect([bench.holding(5)])] == [JobSuspended]
    assert list(bench.reconnect([bench.holding(5, is_suspended=True)])) == []
    bench.start(5, 2, (1, (1,)))
    bench.wait(JobStarted, 5, count=2)


def test_resize_in_flight_goes_on_over_a_new_controller(bench):
    bench.add(5, "trap 'exit 0' USR1; echo $$ >> pids-5; while :; do sleep 0.02; done",
              checkpoint=Checkpoint(interval_ms=60_000, grace_ms=5_000), replicas=2,
              elastic=Elastic(replicas_min=1, replicas_max=2))  # fmt: skip
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_pids(bench, 5)
    moving = bench.holding(5, 2, generation_before=1)
    assert list(bench.reconnect([moving])) == []
    resize = Resize(5, 2, bench.allocate((0, (0,)), (1, (0,))))
    bench.perform(resize)
    events = bench.reconnect([moving])
    bench.perform(resize)
    assert bench.wait(JobResized, 5).generation == 2
    assert all(isinstance(event, JobResized) for event in events)
    wait_until(lambda: len(wait_for_pids(bench, 5)) == 3, "two new replicas")


def test_keeper_that_is_killed_is_replaced_and_jobs_run_on(bench):
    pid = start_ticking(bench, 5)
    kill_keeper(bench)
    bench.add(6, "true")
    bench.start(6)
    assert bench.wait(JobFinished, 6).outcome is Outcome.COMPLETED
    assert wait_for_pids(bench, 5) == [pid]
    assert is_alive(pid)
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
    assert not is_alive(pid)


def test_end_that_neither_keeper_nor_warden_saw_is_told_as_such(bench):
    pid = start_ticking(bench, 5)
    bench.backend.close()
    kill_keeper(bench, with_warden=True)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end, seen by nobody of ours")
    bench.backend = bench.make()
    bench.connect([bench.holding(5)])
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.NODE_FAILED
    assert "how it ended was not seen" in stopped.reason


@pytest.mark.parametrize(
    ("end", "expected"),
    [("exit 0", (Outcome.COMPLETED, 0, 0)), ("exit 3", (Outcome.FAILED, 3, 0)), ("kill -9 $$", (Outcome.FAILED, 0, 9))],
)
def test_end_while_no_keeper_lived_is_known_by_its_warden_and_the_job_is_not_run_again(bench, end, expected):
    bench.add(5, f"echo $$ >> pids-5; while ! test -e go; do sleep 0.02; done; {end}")
    bench.start(5)
    bench.wait(JobStarted, 5)
    (pid,) = wait_for_pids(bench, 5)
    bench.backend.close()
    kill_keeper(bench)
    (bench.workdir / "go").touch()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end, seen by its parent")
    wait_until(lambda: not bench.find_wardens(), "the end of the warden, who has nobody left")
    bench.backend = bench.make()
    bench.connect([bench.holding(5)])
    ended = bench.wait(JobFinished, 5)
    assert (ended.outcome, ended.exit_code, ended.signal) == expected
    assert len(wait_for_pids(bench, 5)) == 1


def test_frozen_job_that_ended_while_no_keeper_lived_has_ended(bench):
    bench.add(5, TICKING.replace("pids", "pids-5"), suspendable=True)
    bench.start(5)
    bench.wait(JobStarted, 5)  # else one report may tell of start and suspension
    (pid,) = wait_for_pids(bench, 5)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    bench.start(5, 2)
    bench.wait(JobStarted, 5, count=2)
    bench.backend.close()
    kill_keeper(bench)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end")
    bench.backend = bench.make()
    bench.connect([bench.holding(5, 2)])
    ended = bench.wait(JobFinished, 5)
    assert (ended.generation, ended.outcome, ended.signal) == (2, Outcome.FAILED, 9)


def test_resumed_job_that_was_adopted_is_resized_under_the_number_that_it_has(bench):
    bench.add(5, "echo $$ >> pids-5; trap 'exit 0' USR1; while :; do sleep 0.02; done", suspendable=True, replicas=1,
              checkpoint=Checkpoint(interval_ms=60_000), elastic=Elastic(replicas_min=1, replicas_max=2))  # fmt: skip
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_pids(bench, 5)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    bench.start(5, 2)
    bench.wait(JobStarted, 5, count=2)
    events = bench.reconnect([bench.holding(5, 2, is_started=False, generation_before=1)])
    assert [type(event) for event in events] == [JobStarted]
    kill_keeper(bench)
    bench.perform(Resize(5, 3, bench.allocate((0, (0,)), (1, (0,)))))
    assert bench.wait(JobResized, 5).generation == 3
    assert not [event for event in bench.of(5) if isinstance(event, JobStopped)]


@pytest.mark.skipif(not KERNEL_TELLS_ENDS, reason="this kernel does not tell how others' children ended")
@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.COMPLETED), (3, Outcome.FAILED)])
def test_job_that_outlives_its_keeper_ends_as_it_ends_and_is_not_run_again(bench, code, outcome):
    bench.add(5, f"echo $$ >> pids-5; while ! test -e go; do sleep 0.02; done; exit {code}")
    bench.start(5)
    wait_for_pids(bench, 5)
    kill_keeper(bench)
    bench.add(6, "true")
    bench.start(6)
    bench.wait(JobFinished, 6)
    (bench.workdir / "go").touch()
    ended = bench.wait(JobFinished, 5)
    assert (ended.outcome, ended.exit_code, ended.signal) == (outcome, code, 0)


def test_time_limit_holds_over_the_death_of_controller_and_keeper(bench):
    bench.add(5, TICKING.replace("pids", "pids-5"), limit_ms=1_000)
    bench.start(5)
    started = bench.wait(JobStarted, 5)
    bench.backend.close()
    kill_keeper(bench)
    bench.backend = bench.make()
    bench.connect([bench.holding(5)])
    finished = bench.wait(JobFinished, 5)
    assert finished.outcome is Outcome.TIMEOUT
    assert 1_000 <= finished.at_ms - started.at_ms < 5_000


def test_keeper_without_jobs_and_controller_ends_by_itself(tmp_path):
    with local_bench(tmp_path) as bench:
        pid = bench.keeper_pid()
        bench.backend.close()
        wait_until(lambda: not is_alive(pid), "its end")
        bench.backend = bench.make()
        bench.connect()


def test_keeper_whose_state_was_removed_leaves_the_socket_of_the_next_one_there(tmp_path):
    with local_bench(tmp_path) as bench:
        old = bench.keeper_pid()
        bench.backend.close()
        shutil.rmtree(bench.state)
        bench.backend = bench.make()
        bench.connect()
        wait_until(lambda: not is_alive(old), "the end of the one before")
        assert (bench.state / SOCKET).exists()


def test_keeper_whose_state_was_removed_ends_its_jobs_and_itself_and_writes_nothing_into_the_next_state(tmp_path):
    with local_bench(tmp_path, settings=Settings(kill_wait_ms=200, idle_exit_ms=600_000)) as bench:
        bench.add(5, "echo $$ > pid; exec sleep 600")
        bench.start(5, 1, (0, (1,)))
        bench.wait(JobStarted, 5)
        old, job = bench.keeper_pid(), int((bench.workdir / "pid").read_text())
        bench.backend.close()
        shutil.rmtree(bench.state)
        bench.backend = bench.make()
        bench.connect()
        wait_until(lambda: not is_alive(job) and not is_alive(old), "the end of both")
        assert list((bench.state / "runs").iterdir()) == []
        assert bench.keeper_pid() != old


def test_job_that_runs_on_ends_by_the_kill_wait_with_which_the_control_plane_came_back(tmp_path):
    with local_bench(tmp_path, settings=Settings(kill_wait_ms=600_000, idle_exit_ms=0)) as bench:
        bench.add(5, "trap '' TERM; echo ready > ready; while :; do sleep 0.05; done")
        bench.start(5)
        wait_until((bench.workdir / "ready").exists, "its trap")
        keeper = bench.keeper_pid()
        bench.config = replace(bench.config, settings=replace(bench.config.settings, kill_wait_ms=100))
        bench.reconnect([bench.holding(5)])
        assert bench.keeper_pid() == keeper
        bench.perform(Stop(5, 1, 0, None))
        assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


def test_keeper_does_not_wait_for_the_time_limit_of_a_job_that_has_ended(tmp_path):
    with local_bench(tmp_path) as bench:
        bench.add(5, "exit 0", limit_ms=600_000)
        bench.start(5, 1, (0, (1,)))
        bench.wait(JobFinished, 5)
        pid = bench.keeper_pid()
        bench.backend.close()
        wait_until(lambda: not is_alive(pid), "its end")
        bench.backend = bench.make()
        bench.connect()


# --- what fails ----------------------------------------------------------------------------------------------------


def test_device_that_disappears_stops_its_jobs_and_no_others(bench):
    bench.add(5, "sleep 600", replicas=2)
    bench.start(5, 1, (0, (1,)), (1, (3,)))
    bench.add(6, "sleep 600")
    bench.start(6, 1, (1, (2,)))
    bench.wait(JobStarted, 5)
    bench.wait(JobStarted, 6)
    bench.fail(devices={"n1": [3]})
    stopped, down = bench.wait(JobStopped, 5), bench.wait(DeviceDown)
    assert (down.node, down.device) == ("n1", 3)
    assert stopped.cause is StopCause.DEVICE_FAILED
    assert bench.events.index(down) + 1 == bench.events.index(stopped)
    bench.fail()
    up = bench.wait(DeviceUp)
    assert (up.node, up.device) == ("n1", 3)
    assert not [event for event in bench.of(6) if not isinstance(event, JobStarted)]


def test_node_that_fails_stops_its_jobs_in_order_of_their_numbers(bench):
    for job in (7, 6):
        bench.add(job, "sleep 600")
        bench.start(job, 1, (1, (job - 5,)))
        bench.wait(JobStarted, job)
    bench.fail("n1")
    down = bench.wait(NodeDown)
    place = bench.events.index(down)
    told = [(event.job, event.cause) for event in bench.events[place + 1 :]]
    assert told == [(6, StopCause.NODE_FAILED), (7, StopCause.NODE_FAILED)]
    bench.fail()
    assert bench.wait(NodeUp).node == "n1"


def test_what_is_down_when_a_controller_connects_is_told_at_once_with_the_jobs_that_it_stopped(bench):
    start_ticking(bench, 5)
    bench.backend.close()
    bench.fail("n0")
    bench.backend = bench.make()
    events = bench.connect([bench.holding(5)])
    assert [type(event) for event in events] == [NodeDown, JobStopped]


def test_start_on_a_device_that_has_failed_ends_with_the_failure(bench):
    bench.fail(devices={"n0": [1]})
    bench.wait(DeviceDown)
    bench.add(5, "true")
    bench.start(5, 1, (0, (1,)))
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.DEVICE_FAILED
    assert not (bench.workdir / "slurm-5.out").exists()


def test_what_is_performed_while_no_keeper_can_be_started_is_done_when_one_can(bench, monkeypatch):
    pid = start_ticking(bench, 5)
    start = client.start_keeper

    def refuse(_config):
        raise client.KeeperError(NO_DISK)

    monkeypatch.setattr(client, "start_keeper", refuse)
    kill_keeper(bench)
    wait_until(lambda: not bench.observe() and bench.backend.notes[:1] == (NO_DISK,), "the failed start")
    bench.add(6, "true")
    bench.start(6)
    bench.perform(Stop(5, 1, 0, None))
    bench.observe()
    assert is_alive(pid)
    monkeypatch.setattr(client, "start_keeper", start)
    assert bench.wait(JobFinished, 6).outcome is Outcome.COMPLETED
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


def test_work_of_a_job_that_nobody_saw_end_is_that_of_its_last_checkpoint(bench):
    script = """
echo $$ > pid
while [ ! -e started ]; do sleep 0.02; done  # what it saved before it was told to run is not of this stretch
echo "{\\"checkpoint_at\\": $(date +%s.%N)}" > $CLEARWAY_JOB_DIR/new
mv $CLEARWAY_JOB_DIR/new $CLEARWAY_JOB_DIR/progress.json
exec sleep 600"""
    bench.add(5, script, checkpoint=Checkpoint(interval_ms=1_000))
    bench.start(5)
    bench.wait(JobStarted, 5)
    (bench.workdir / "started").touch()
    saved = bench.wait(CheckpointSaved, 5)
    pid = int((bench.workdir / "pid").read_text())
    bench.backend.close()
    kill_keeper(bench, with_warden=True)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end, seen by nobody of ours")
    bench.backend = bench.make()
    bench.connect([bench.holding(5)])
    assert bench.wait(JobStopped, 5).saved_ms == saved.done_ms
