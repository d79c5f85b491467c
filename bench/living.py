"""Jobs as real processes: from a submit to a process that runs, beside a real Slurm on the same machine."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.burst_cpu import read_spent, time_bare_starts, wait_quiet
from bench.control_plane import connect, control_plane, count_active, submit
from bench.figures import Figure
from bench.slurm_lab import STOCK, TUNED, SlurmLab, slurm_lab, why_not
from clearway.bootstrap.places import Places, read_running
from clearway.client import Client
from clearway.ports.views import JobQuery

LATENCY_JOBS: Final = 200
SLURM_LATENCY_JOBS: Final = 20
RATE_JOBS: Final = 2_000
SLURM_RATE_JOBS: Final = 500
SUBMITS_ONE_BY_ONE: Final = 300
SUBMITS_BATCHED: Final = 20_000
JOBS_PER_REQUEST: Final = 1_000
LISTED_JOBS: Final = 100_000
BURST: Final = 1_000
GANGS: Final = 20
POLL_S: Final = 0.002
IDLE_POLL_S: Final = 0.05
"""Between two questions whether all is over: often enough, and no load of its own."""
STAMP: Final = "date +%s%N > {file}"
"""Writes the time at which the job's own program runs."""


def measure_live_latency() -> Iterable[Figure]:
    """Submit one job on an idle machine, again and again; from before the submit to its program's own clock."""
    with control_plane("8x8:V100") as (client, work):
        waits = np.array([_clearway_wait_ms(client, work, index) for index in range(LATENCY_JOBS)])
    p50, p99 = float(np.percentile(waits, 50)), float(np.percentile(waits, 99))
    baselines = {"slurm, tuned": TUNED, "slurm, as shipped": STOCK}
    found = {name: _slurm_p50_ms(parameters) for name, parameters in baselines.items()} if not why_not() else {}
    for name, value in found.items():
        yield Figure(name=f"submit to running, {name}, p50", value=value, unit="ms", is_rate=False)
    best = min(found.items(), key=lambda one: one[1], default=(f"no Slurm: {why_not()}", None))
    ratio = None if best[1] is None else best[1] / p50
    yield Figure(
        name="submit to running, p50", value=p50, unit="ms", bar=50, is_rate=False, baseline=best[0], ratio=ratio
    )
    yield Figure(name="submit to running, p99", value=p99, unit="ms", bar=200, is_rate=False)


def measure_live_rate() -> Iterable[Figure]:
    """Real jobs a second, end to end: submitted as one array, each starts a process that ends at once."""
    with control_plane("8x8:V100") as (client, work):
        begun = time.perf_counter()
        job = {"command": ["true"], "array": f"0-{RATE_JOBS - 1}", "resources": {"gpus": 1}, "output": "/dev/null"}
        submit(client, work, job)
        _poll(lambda: count_active(client) == 0, poll_s=IDLE_POLL_S)
        rate = RATE_JOBS / (time.perf_counter() - begun)
    baseline, ratio = f"no Slurm: {why_not()}", None
    if not why_not():
        baseline = "slurm, tuned"
        with slurm_lab(TUNED) as lab:
            slurm = _slurm_rate(lab)
        ratio = rate / slurm
        yield Figure(name="real jobs, end to end, slurm, tuned", value=slurm, unit="jobs/s")
    yield Figure(name="real jobs, end to end", value=rate, unit="jobs/s", bar=150, baseline=baseline, ratio=ratio)


def measure_live_submits() -> Iterable[Figure]:
    """Submits that are on disk when they are answered; the jobs are held, so that nothing starts."""
    held = {"command": ["true"], "hold": True, "resources": {"gpus": 1}}
    with control_plane("8x8:V100") as (client, work):
        begun = time.perf_counter()
        for _ in range(SUBMITS_ONE_BY_ONE):
            submit(client, work, held)
        single = SUBMITS_ONE_BY_ONE / (time.perf_counter() - begun)
        begun = time.perf_counter()
        for _ in range(SUBMITS_BATCHED // JOBS_PER_REQUEST):
            submit(client, work, *[held] * JOBS_PER_REQUEST)
        batched = SUBMITS_BATCHED / (time.perf_counter() - begun)
    yield Figure(name="durable submits, one by one", value=single, unit="jobs/s", bar=150)
    yield Figure(name=f"durable submits, {JOBS_PER_REQUEST} a request", value=batched, unit="jobs/s", bar=5_000)


def measure_live_lists() -> Iterable[Figure]:
    """Lists and single jobs while 100,000 jobs wait and short ones come and go, so that it plans all the time."""
    with control_plane("8x8:V100") as (client, work):
        waiting = {"command": ["sleep", "600"], "array": f"0-{LISTED_JOBS - 1}", "resources": {"gpus": 8}}
        jobs = submit(client, work, waiting)
        ended = threading.Event()
        churn = threading.Thread(target=_churn, args=(work, ended))
        churn.start()
        try:
            lists = _times_ms(lambda _: client.jobs(JobQuery(newest_first=True, limit=50)), 200)
            single = _times_ms(lambda index: client.job(jobs[index * 97 % LISTED_JOBS]), 200)
        finally:
            ended.set()
            churn.join()
    for name, times in (("list of 50", lists), ("one job", single)):
        value = float(np.percentile(times, 99))
        yield Figure(name=f"{name} among 100,000 while planning, p99", value=value, unit="ms", bar=100, is_rate=False)


def measure_live_gangs() -> Iterable[Figure]:
    """A gang on all devices ends, the next has waited for it: from the end of one's program to the other's clock."""
    with control_plane("1x8:V100") as (client, work):
        script = "date +%s%N > begin.$SLURM_JOB_ID; sleep 0.3; date +%s%N > end.$SLURM_JOB_ID"
        job = {"command": ["sh", "-c", script], "replicas": 1, "resources": {"gpus": 8}, "output": "/dev/null"}
        jobs = submit(client, work, *[job] * GANGS)
        client.wait(jobs, poll_s=0.1)
        begins = np.array([int((work / f"begin.{number}").read_text()) for number in jobs])
        ends = np.array([int((work / f"end.{number}").read_text()) for number in jobs])
    gaps = np.sort(begins)[1:] - np.sort(ends)[:-1]
    yield Figure(
        name="freed devices used again, p50", value=float(np.median(gaps)) / 1e6, unit="ms", bar=20, is_rate=False
    )


def measure_live_burst() -> Iterable[Figure]:
    """A burst of 1,000 one-device tasks on 1,000 idle devices, started by warm runners and as new processes."""
    with control_plane("125x8:V100") as (client, work):
        state = work.parent / "state"
        running = read_running(Places(state))
        assert running is not None
        for name, extra in (("warm", {"CLEARWAY_WARM": "python"}), ("new", {})):
            wait_quiet()
            before = read_spent(running.pid, state)
            waits = _burst_waits_ms(client, work, name, extra)
            wait_quiet()
            yield from _cpu_figures(name, read_spent(running.pid, state).since(before))
            bar = 100 if name == "warm" else None
            for percent in (50, 99):
                yield Figure(
                    name=f"start in a burst of {BURST}, {name} interpreters, p{percent}",
                    value=float(np.percentile(waits, percent)),
                    unit="ms",
                    bar=bar if percent == 99 else None,
                    is_rate=False,
                )
            yield Figure(
                name=f"starts in that burst, {name}", value=BURST / float(waits.max()) * 1_000, unit="starts/s"
            )
    for what, milliseconds in time_bare_starts().items():
        yield Figure(name=f"CPU of one start by a bare loop: {what}", value=milliseconds, unit="ms", is_rate=False)


def _cpu_figures(name: str, spent: Mapping[str, float]) -> Iterable[Figure]:
    """What bounds a burst: processor time for each start, by process, and how many starts a second that leaves."""
    for part, seconds in spent.items():
        yield Figure(name=f"CPU of one start, {name}: {part}", value=1e3 * seconds / BURST, unit="ms", is_rate=False)
    cores = len(os.sched_getaffinity(0))
    most = cores * BURST / sum(spent.values())
    yield Figure(name=f"starts that {cores} cores bear by that, {name}", value=most, unit="starts/s")


def _burst_waits_ms(client: Client, work: Path, name: str, extra: dict[str, str]) -> np.ndarray:
    program = work / f"{name}.py"
    out = work / f"stamps-{name}"
    out.mkdir()
    program.write_text(
        "import os, time\n"
        "now = time.time_ns()\n"
        f"open({str(out)!r} + '/' + os.environ['SLURM_ARRAY_TASK_ID'], 'w').write(str(now))\n"
    )
    job: dict[str, Any] = {
        "kind": "task",
        "command": [sys.executable, str(program)],
        "array": f"0-{BURST - 1}",
        "resources": {"gpus": 1},
        "env": extra,
        "output": "/dev/null",
    }
    begun_ns = time.time_ns()
    submit(client, work, job)
    _poll(lambda: count_active(client) == 0, poll_s=IDLE_POLL_S)
    stamps = np.array([int((out / str(index)).read_text()) for index in range(BURST)])
    return (stamps - begun_ns) / 1e6


def _clearway_wait_ms(client: Client, work: Path, index: int) -> float:
    file = work / f"stamp.{index}"
    begun_ns = time.time_ns()
    job = {"run": STAMP.format(file=file), "resources": {"gpus": 1}, "output": "/dev/null"}
    submit(client, work, job)
    _poll(lambda: file.exists() and file.stat().st_size > 0)
    _poll(lambda: count_active(client) == 0, poll_s=IDLE_POLL_S)
    return (int(file.read_text()) - begun_ns) / 1e6


def _slurm_p50_ms(parameters: str) -> float:
    with slurm_lab(parameters) as lab:
        return float(np.median([_slurm_wait_ms(lab, index) for index in range(SLURM_LATENCY_JOBS)]))


def _slurm_wait_ms(lab: SlurmLab, index: int) -> float:
    file = lab.folder / f"stamp.{index}"
    begun_ns = time.time_ns()
    lab.run("sbatch", "-o", "/dev/null", "--gres=gpu:1", "--wrap", STAMP.format(file=file))
    _poll(lambda: file.exists() and file.stat().st_size > 0)
    _poll(lambda: lab.count_jobs() == 0)
    return (int(file.read_text()) - begun_ns) / 1e6


def _slurm_rate(lab: SlurmLab) -> float:
    begun = time.perf_counter()
    lab.run("sbatch", "-o", "/dev/null", "--gres=gpu:1", f"--array=0-{SLURM_RATE_JOBS - 1}", "--wrap", "true")
    _poll(lambda: lab.count_jobs() == 0, poll_s=0.1)
    return SLURM_RATE_JOBS / (time.perf_counter() - begun)


def _churn(work: Path, ended: threading.Event) -> None:
    """Short jobs, one after another, on a connection of their own."""
    with connect(work) as own:
        while not ended.is_set():
            job = {"command": ["true"], "resources": {"gpus": 0}, "output": "/dev/null"}
            own.wait(submit(own, work, job), poll_s=0.01)


def _times_ms(act: Callable[[int], object], count: int) -> Sequence[float]:
    times: list[float] = []
    for index in range(count):
        begun = time.perf_counter()
        act(index)
        times.append((time.perf_counter() - begun) * 1_000)
    return times


def _poll(is_over: Callable[[], bool], poll_s: float = POLL_S) -> None:
    while not is_over():
        time.sleep(poll_s)
