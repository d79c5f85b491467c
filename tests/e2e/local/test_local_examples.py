"""The examples train: alone, as a gang, and resized and preempted while they run, with one and the same loss curve."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clearway.model.events import JobFinished, JobResized, JobStarted, JobStopped
from clearway.model.jobs import Checkpoint, Elastic, Outcome, StopCause
from clearway.model.plan import Resize, Stop
from clearway.wire.jobfile import parse_job_file
from support.benches import wait_until
from support.local import SOURCE, LocalBench, local_bench

EXAMPLES = SOURCE.parent / "examples"
CHECKPOINT = Checkpoint(interval_ms=10_000, grace_ms=10_000)


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def add(bench: LocalBench, job: int, words: str, *, python: str = sys.executable, **spec: object) -> None:
    environment = (("PYTHONPATH", str(SOURCE)), ("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"))
    script = f"exec {python} {EXAMPLES}/{words}"
    bench.add(job, script, run={"environment": environment}, checkpoint=CHECKPOINT, **spec)


def read_losses(bench: LocalBench, job: int) -> list[tuple[int, float, int]]:
    with (bench.state / "jobs" / str(job) / "losses.csv").open() as file:
        return [(int(row["step"]), float(row["loss"]), int(row["replicas"])) for row in csv.DictReader(file)]


def wait_for_step(bench: LocalBench, job: int, step: int) -> None:
    path = bench.state / "jobs" / str(job) / "progress.json"
    wait_until(lambda: path.exists() and json.loads(path.read_text()).get("step", 0) >= step, f"step {step}")


def finish(bench: LocalBench, job: int) -> None:
    assert bench.wait(JobFinished, job).outcome is Outcome.COMPLETED, bench.output(job)


def test_training_learns_and_a_gang_of_two_learns_the_same(bench):
    add(bench, 5, "train.py --steps 300")
    bench.start(5)
    add(bench, 6, "train.py --steps 300", replicas=2)
    bench.start(6, 1, (0, (1,)), (1, (0,)))
    finish(bench, 5)
    finish(bench, 6)
    single, gang = read_losses(bench, 5), read_losses(bench, 6)
    assert [step for step, _, _ in single] == list(range(1, 301))
    assert sum(loss for _, loss, _ in single[-20:]) < sum(loss for _, loss, _ in single[:20]) / 2
    assert {world for _, _, world in gang} == {2}
    assert [loss for _, loss, _ in gang] == pytest.approx([loss for _, loss, _ in single], abs=1e-4)


def test_loss_curve_goes_on_over_resizes_and_a_preemption(bench):
    """1 → 2 → 1 replicas, then stopped and started again: no step is missed, none is done twice, all losses fit."""
    add(bench, 5, "train.py --steps 400")
    bench.start(5, 1, (1, (3,)))
    add(bench, 6, "train.py --steps 400 --pause 0.002", replicas=2, elastic=Elastic(replicas_min=1, replicas_max=2))
    bench.start(6)
    wait_for_step(bench, 6, 20)
    bench.perform(Resize(6, 2, bench.allocate((0, (0,)), (1, (0,)))))
    bench.wait(JobResized, 6)
    wait_until(lambda: "1 of 2 begins" in bench.output(6), "the second replica")
    wait_for_step(bench, 6, read_losses(bench, 6)[-1][0] + 30)
    bench.perform(Resize(6, 3, bench.allocate((1, (0,)))))
    bench.wait(JobResized, 6, count=2)
    wait_until(lambda: bench.output(6).count("0 of 1 begins") == 2, "the third generation")
    bench.perform(Stop(6, 3, 10_000, StopCause.PREEMPTED))
    assert bench.wait(JobStopped, 6).saved_ms > 0
    bench.start(6, 4)
    bench.wait(JobStarted, 6, count=2)
    finish(bench, 6)
    finish(bench, 5)
    curve, undisturbed = read_losses(bench, 6), read_losses(bench, 5)
    assert [step for step, _, _ in curve] == list(range(1, 401))
    worlds = [world for _, _, world in curve]
    assert [world for index, world in enumerate(worlds) if index == 0 or worlds[index - 1] != world] == [1, 2, 1]
    assert [loss for _, loss, _ in curve] == pytest.approx([loss for _, loss, _ in undisturbed], abs=1e-3)


TORCH_VARIABLE = "CLEARWAY_TORCH_PYTHON"


@pytest.fixture
def torch_python(monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python that has PyTorch: the one that the variable names, else this one. Its import alone takes seconds."""
    monkeypatch.setattr("support.benches.PATIENCE_S", 120.0)
    python = os.environ.get(TORCH_VARIABLE, sys.executable)  # noqa: TID251 - which Python has it, nobody else can say
    if subprocess.run([python, "-c", "import torch, numpy"], capture_output=True).returncode:
        pytest.skip(f"{python} has no torch; name one that has: {TORCH_VARIABLE}")
    return python


@pytest.mark.slow
def test_gang_trains_with_torch_over_gloo_and_learns_what_one_replica_learns(bench, torch_python):
    add(bench, 5, "train_torch.py --steps 200", python=torch_python, replicas=2)
    bench.start(5, 1, (0, (1,)), (1, (0,)))
    finish(bench, 5)
    add(bench, 6, "train_torch.py --steps 200", python=torch_python)
    bench.start(6, 1, (0, (0,)))
    finish(bench, 6)
    gang, single = read_losses(bench, 5), read_losses(bench, 6)
    assert [step for step, _, _ in gang] == list(range(1, 201))
    assert [loss for _, loss, _ in gang] == pytest.approx([loss for _, loss, _ in single], abs=1e-3)


@pytest.mark.slow
def test_losses_with_torch_go_on_over_resizes_and_a_preemption(bench, torch_python):
    elastic = Elastic(replicas_min=1, replicas_max=2)
    add(bench, 6, "train_torch.py --steps 400 --pause 0.01", python=torch_python, replicas=2, elastic=elastic)
    bench.start(6)
    wait_for_step(bench, 6, 20)
    bench.perform(Resize(6, 2, bench.allocate((0, (0,)), (1, (0,)))))
    bench.wait(JobResized, 6)
    wait_until(lambda: "1 of 2 begins" in bench.output(6), "the second replica")
    wait_for_step(bench, 6, read_losses(bench, 6)[-1][0] + 20)
    bench.perform(Resize(6, 3, bench.allocate((1, (0,)))))
    bench.wait(JobResized, 6, count=2)
    wait_until(lambda: bench.output(6).count("0 of 1 begins") == 2, "the third generation")
    bench.perform(Stop(6, 3, 10_000, StopCause.PREEMPTED))
    assert bench.wait(JobStopped, 6).saved_ms > 0
    bench.start(6, 4)
    finish(bench, 6)
    curve = read_losses(bench, 6)
    assert [step for step, _, _ in curve] == list(range(1, 401))
    worlds = [world for _, _, world in curve]
    assert [world for index, world in enumerate(worlds) if index == 0 or worlds[index - 1] != world] == [1, 2, 1]
    assert sum(loss for _, loss, _ in curve[-20:]) < sum(loss for _, loss, _ in curve[:20]) / 10


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_job_files_of_the_examples_are_valid_and_name_files_that_exist(path: Path):
    parsed = parse_job_file(path.read_text(), source=path.name, now_ms=0, first_id=1, user="ann")
    for run in parsed.runs:
        scripts = [word for word in run.script.split() if word.endswith(".py")]
        assert scripts
        assert all((SOURCE.parent / script).exists() for script in scripts)
