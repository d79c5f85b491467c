"""Preemption, resizing, migration and suspension of real processes, by the checkpoint contract."""

import json
import sys
from pathlib import Path

import pytest

from clearway.model.events import (
    CheckpointSaved,
    JobFinished,
    JobResized,
    JobStarted,
    JobStopped,
    JobSuspended,
)
from clearway.model.jobs import Checkpoint, Elastic, Outcome, StopCause
from clearway.model.plan import Migrate, Resize, Start, Stop, Suspend
from support.benches import now_ms, wait_until
from support.local import LocalBench, local_bench

SOURCE = str(Path(__file__).parents[3] / "src")
CHECKPOINT = Checkpoint(interval_ms=60_000, grace_ms=10_000)

COUNTER = f"""#!{sys.executable}
import sys, time
sys.path.insert(0, {SOURCE!r})
import clearway.job
job = clearway.job.current()
file = job.directory / "count"
count = int(file.read_text()) if file.exists() else 0
print("from", count, "of", job.world, flush=True)
while not job.should_stop:
    count += 1
    job.report(step=count)
    time.sleep(0.01)
with job.saving(step=count):
    if job.rank == 0:
        clearway.job.write_atomically(file, str(count).encode())
print("left", job.request.action, job.request.replicas, flush=True)
job.leave()
"""


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def wait_for_output(bench: LocalBench, job: int, text: str) -> None:
    path = bench.workdir / f"slurm-{job}.out"
    wait_until(lambda: path.exists() and text in path.read_text(), f"{text!r} in the output of job {job}")


def wait_for_step(bench: LocalBench, job: int, step: int) -> None:
    path = bench.state / "jobs" / str(job) / "progress.json"
    wait_until(lambda: path.exists() and json.loads(path.read_text()).get("step", 0) >= step, f"step {step}")


def test_preempted_job_saves_within_its_grace_and_resumes_from_what_it_saved(bench):
    bench.add(5, COUNTER, checkpoint=CHECKPOINT)
    bench.start(5)
    started = bench.wait(JobStarted, 5)
    wait_for_step(bench, 5, 30)
    bench.perform(Stop(5, 1, 10_000, StopCause.PREEMPTED))
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.PREEMPTED
    assert 250 <= stopped.saved_ms <= stopped.at_ms - started.at_ms
    assert bench.wait(CheckpointSaved, 5).done_ms == stopped.saved_ms
    saved = int((bench.state / "jobs" / "5" / "count").read_text())
    bench.start(5, 2)
    wait_for_output(bench, 5, f"from {saved} of 1")
    bench.perform(Stop(5, 2, 10_000, StopCause.PREEMPTED))
    assert bench.wait(JobStopped, 5, count=2).saved_ms > stopped.saved_ms
    assert "left leave 1" in bench.output(5)


def test_preemption_does_not_wait_for_a_job_that_cannot_save(bench):
    bench.add(5, "trap '' TERM; echo up; while :; do sleep 0.02; done")
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_output(bench, 5, "up")
    before = now_ms()
    bench.perform(Stop(5, 1, 0, StopCause.PREEMPTED))
    stopped = bench.wait(JobStopped, 5)
    assert stopped.saved_ms == 0
    assert stopped.at_ms - before < 2_000


def test_job_that_does_not_answer_is_ended_at_the_end_of_its_grace(bench):
    bench.add(5, "trap 'echo asked' USR1; echo up; while :; do sleep 0.02; done", checkpoint=CHECKPOINT)
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_output(bench, 5, "up")
    before = now_ms()
    bench.perform(Stop(5, 1, 300, StopCause.PREEMPTED))
    stopped = bench.wait(JobStopped, 5)
    assert "asked" in bench.output(5)
    assert stopped.at_ms - before >= 300


def test_processes_that_do_not_handle_the_signal_are_not_killed_by_it(bench):
    """A shell that waits for the program that saves would die of SIGUSR1, and the job with it."""
    program = bench.workdir / "counter.py"
    program.write_text(COUNTER)
    bench.add(5, f"{sys.executable} {program}; echo shell lives", checkpoint=CHECKPOINT)
    bench.start(5)
    wait_for_step(bench, 5, 3)
    bench.perform(Stop(5, 1, 10_000, StopCause.PREEMPTED))
    assert bench.wait(JobStopped, 5).saved_ms > 0


def test_job_that_had_completed_its_work_when_asked_to_leave_is_finished(bench):
    script = """cd $CLEARWAY_JOB_DIR
trap 'echo "{\\"done\\": true}" > p; mv p progress.json; exit 0' USR1
echo up; while :; do sleep 0.02; done"""
    bench.add(5, script, checkpoint=CHECKPOINT)
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_output(bench, 5, "up")
    bench.perform(Stop(5, 1, 10_000, StopCause.PREEMPTED))
    assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED


def test_elastic_job_goes_from_one_to_two_to_one_replicas_and_goes_on_counting(bench):
    bench.add(5, COUNTER, checkpoint=CHECKPOINT, elastic=Elastic(replicas_min=1, replicas_max=2), replicas=2)
    bench.start(5, 1, (0, (0,)))
    wait_for_step(bench, 5, 10)
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    assert bench.wait(JobResized, 5).generation == 2
    wait_for_output(bench, 5, "of 2")
    first = int((bench.state / "jobs" / "5" / "count").read_text())
    wait_for_step(bench, 5, first + 10)
    bench.perform(Resize(5, 3, bench.allocate((1, (0,)))))
    assert bench.wait(JobResized, 5, count=2).generation == 3
    wait_until(lambda: bench.output(5).count("of 1") == 2, "the third generation")
    assert int((bench.state / "jobs" / "5" / "count").read_text()) >= first + 10
    assert len([event for event in bench.of(5) if isinstance(event, JobStarted)]) == 1


def test_migrated_job_leaves_its_devices_before_it_is_told_moved(bench):
    bench.add(5, COUNTER, checkpoint=CHECKPOINT)
    bench.start(5)
    wait_for_step(bench, 5, 3)
    bench.perform(Migrate(5, 2, bench.allocate((1, (3,)))))
    assert not [event for event in bench.observe() if isinstance(event, JobResized)]
    bench.wait(JobResized, 5)
    assert "left migrate 1" in bench.output(5)
    wait_until(lambda: bench.output(5).count("from") == 2, "the second generation")


def test_time_limit_goes_on_over_a_resize(bench):
    bench.add(5, COUNTER, checkpoint=CHECKPOINT, elastic=Elastic(replicas_min=1, replicas_max=2), limit_ms=1_500)
    bench.start(5)
    started = bench.wait(JobStarted, 5)
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    bench.wait(JobResized, 5)
    finished = bench.wait(JobFinished, 5)
    assert finished.outcome is Outcome.TIMEOUT
    assert finished.at_ms - started.at_ms < 3_000


def test_stop_during_a_resize_ends_the_job_under_its_new_generation(bench):
    script = "trap 'echo asked' USR1; echo up; while :; do sleep 0.02; done"
    bench.add(5, script, checkpoint=CHECKPOINT, elastic=Elastic(replicas_min=1, replicas_max=2))
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_output(bench, 5, "up")
    bench.perform(Resize(5, 2, bench.allocate((0, (0,)), (1, (0,)))))
    bench.perform(Stop(5, 2, 200, StopCause.PREEMPTED))
    assert bench.wait(JobStopped, 5).generation == 2


def test_job_that_ends_while_it_is_told_to_move_is_finished_under_its_new_generation(bench):
    bench.add(5, "true", checkpoint=CHECKPOINT)
    bench.start(5)
    wait_until(lambda: (bench.workdir / "slurm-5.out").exists(), "its end")
    bench.perform(Migrate(5, 2, bench.allocate((1, (3,)))))
    finished = bench.wait(JobFinished, 5)
    assert (finished.generation, finished.outcome) == (2, Outcome.COMPLETED)


def test_suspended_job_stands_still_and_goes_on_where_it_was(bench):
    bench.add(5, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done", suspendable=True)
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_for_output(bench, 5, "5")
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    frozen = bench.output(5)
    bench.add(6, "sleep 0.2")
    bench.start(6)
    bench.wait(JobFinished, 6)
    assert bench.output(5) == frozen
    bench.perform(Start(5, 2, bench.allocate((1, (1,)))))
    bench.wait(JobStarted, 5, count=2)
    wait_until(lambda: len(bench.output(5)) > len(frozen) + 10, "more output")
    lines = bench.output(5).split()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


def test_suspended_job_can_be_cancelled(bench):
    bench.add(5, "sleep 600", suspendable=True)
    bench.start(5)
    bench.wait(JobStarted, 5)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
