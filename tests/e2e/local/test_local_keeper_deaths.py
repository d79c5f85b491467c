"""The keeper dies while jobs are on their way out: what it knew of them is in their records."""

import os
import signal
from pathlib import Path

import pytest

from clearway.adapters.local.keeper.host import Settings
from clearway.model.events import JobFinished, JobStarted
from clearway.model.jobs import Checkpoint, Outcome
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
