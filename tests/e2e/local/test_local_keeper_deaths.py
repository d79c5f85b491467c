"""The keeper dies while jobs are on their way out: what it knew of them is in their records."""

import os
import signal
from pathlib import Path

import pytest

from clearway.adapters.local.keeper.host import Settings
from clearway.model.events import JobFinished, JobResized, JobStarted, JobStopped
from clearway.model.jobs import Checkpoint, Elastic, Outcome, StopCause
from clearway.model.plan import Resize, Stop
from support.benches import wait_until
from support.local import LocalBench, is_alive, local_bench

CHECKPOINT = Checkpoint(interval_ms=60_000, grace_ms=20_000)


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def kill_keeper(bench: LocalBench) -> None:
    pid = bench.keeper_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the keeper's death")


def wait_for_pids(bench: LocalBench, name: str) -> list[int]:
    path = bench.workdir / name
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"the pid in {name}")
    return [int(pid) for pid in path.read_text().split()]


def test_gang_of_which_one_replica_had_ended_well_completes_over_the_death_of_the_keeper(bench):
    bench.add(5, "echo $$ > pid-$RANK; while ! test -e go-$RANK; do sleep 0.02; done", replicas=2)
    bench.start(5, 1, (0, (1,)), (0, (2,)))
    bench.wait(JobStarted, 5)
    (first,) = wait_for_pids(bench, "pid-0")
    (bench.workdir / "go-0").touch()
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "the end of the first replica")
    kill_keeper(bench)
    bench.observe()
    (bench.workdir / "go-1").touch()
    assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED


def test_gang_of_which_one_replica_had_failed_fails_over_the_death_of_the_keeper(tmp_path):
    with local_bench(tmp_path, settings=Settings(kill_wait_ms=1_500, idle_exit_ms=0)) as bench:
        script = """echo $$ > pid-$RANK
test $RANK = 0 && { while ! test -e go; do sleep 0.02; done; exit 3; }
trap '' TERM; while :; do sleep 0.02; done"""
        bench.add(5, script, replicas=2)
        bench.start(5, 1, (0, (1,)), (0, (2,)))
        bench.wait(JobStarted, 5)
        (first,), (second,) = wait_for_pids(bench, "pid-0"), wait_for_pids(bench, "pid-1")
        (bench.workdir / "go").touch()
        wait_until(lambda: not Path(f"/proc/{first}").exists(), "the end of the first replica")
        kill_keeper(bench)
        assert is_alive(second)
        finished = bench.wait(JobFinished, 5)
        assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 3)


LEAVES = """echo $$ >> pid
ask() {
    echo asked >> asked
    while ! test -e go; do sleep 0.02; done
    id=$(sed 's/.*"id": "\\([^"]*\\)".*/\\1/' $CLEARWAY_JOB_DIR/request.json)
    echo "{\\"checkpoint_at\\": $(date +%s), \\"answers\\": \\"$id\\"}" > $CLEARWAY_JOB_DIR/new
    mv $CLEARWAY_JOB_DIR/new $CLEARWAY_JOB_DIR/progress.json
    exit 0
}
trap ask USR1
echo ready >> ready
while :; do sleep 0.02; done"""


def start_leaver(bench: LocalBench, **spec: object) -> int:
    bench.add(5, LEAVES, checkpoint=CHECKPOINT, **spec)
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_until((bench.workdir / "ready").exists, "its trap")
    return wait_for_pids(bench, "pid")[0]


def leave_unseen(bench: LocalBench, pid: int) -> None:
    """The job leaves, as it was asked to, while no keeper lives."""
    wait_until((bench.workdir / "asked").exists, "the signal")
    kill_keeper(bench)
    (bench.workdir / "go").touch()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end, seen by the warden")


def test_job_that_leaves_when_asked_while_no_keeper_lives_has_left_and_not_completed(bench):
    pid = start_leaver(bench)
    bench.perform(Stop(5, 1, 20_000, StopCause.PREEMPTED))
    leave_unseen(bench, pid)
    assert bench.wait(JobStopped, 5).cause is StopCause.PREEMPTED


def test_the_same_where_the_control_plane_died_too(bench):
    pid = start_leaver(bench)
    bench.perform(Stop(5, 1, 20_000, StopCause.PREEMPTED))
    wait_until((bench.workdir / "asked").exists, "the signal")
    bench.backend.close()
    leave_unseen(bench, pid)
    bench.backend = bench.make()
    bench.connect([bench.holding(5)])
    assert bench.wait(JobStopped, 5).cause is StopCause.PREEMPTED


def test_job_that_makes_room_for_another_size_while_no_keeper_lives_goes_on_in_that_size(bench):
    pid = start_leaver(bench, replicas=2, elastic=Elastic(replicas_min=1, replicas_max=2))
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    leave_unseen(bench, pid)
    assert bench.wait(JobResized, 5).generation == 2
    wait_until(lambda: len(wait_for_pids(bench, "pid")) == 3, "two new replicas")
    assert not [event for event in bench.of(5) if isinstance(event, JobFinished | JobStopped)]


def test_job_is_asked_once_to_leave_though_the_keeper_dies_meanwhile(bench):
    pid = start_leaver(bench)
    bench.perform(Stop(5, 1, 20_000, StopCause.PREEMPTED))
    wait_until((bench.workdir / "asked").exists, "the signal")
    kill_keeper(bench)
    bench.observe()
    assert is_alive(pid)
    (bench.workdir / "go").touch()
    assert bench.wait(JobStopped, 5).cause is StopCause.PREEMPTED
    assert (bench.workdir / "asked").read_text() == "asked\n"


def test_move_goes_on_over_the_death_of_the_keeper_and_is_asked_for_once(bench):
    pid = start_leaver(bench, replicas=2, elastic=Elastic(replicas_min=1, replicas_max=2))
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    wait_until((bench.workdir / "asked").exists, "the signal")
    kill_keeper(bench)
    bench.observe()
    assert is_alive(pid)
    (bench.workdir / "go").touch()
    assert bench.wait(JobResized, 5).generation == 2
    assert (bench.workdir / "asked").read_text() == "asked\n"


def test_job_that_ends_well_after_its_cancellation_while_no_keeper_lives_is_cancelled(bench):
    bench.add(5, "echo $$ > pid; trap 'echo >> asked; sleep 0.2; exit 0' TERM; while :; do sleep 0.02; done")
    bench.start(5)
    bench.wait(JobStarted, 5)
    (pid,) = wait_for_pids(bench, "pid")
    bench.perform(Stop(5, 1, 20_000, None))
    wait_until((bench.workdir / "asked").exists, "the signal")
    bench.backend.close()
    leave_unseen(bench, pid)
    bench.backend = bench.make()
    bench.connect([bench.holding(5)])
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
