"""Whole traces through the twin, and beside it plain loops and AccaSim on the same jobs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from bench.baselines import count_easy, count_fifo, run_accasim, time_counting
from bench.figures import Figure, compare
from bench.worlds import TRACES, make_cluster
from clearway.bootstrap.simulation import SimulationRequest, prepare, simulate
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.jobs import JobSpec, Request
from clearway.model.units import HOUR_MS
from clearway.policies.named import named_policy
from clearway.sim.result import RunStats
from clearway.sim.traces import read_workload
from clearway.sim.twin import run_twin
from clearway.sim.workload import TraceJob, Workload

MILLION: Final = 1_000_000
LOAD: Final = 0.95
FIRST_JOBS: Final = 60_000
"""Jobs of the million that are replayed without stretches, too."""
ACCASIM_JOBS: Final = 3_000
"""Jobs that AccaSim replays: enough for a steady figure, few enough not to wait for it."""


def make_million() -> Workload:
    """One-device jobs that come at random and keep 95 % of 10,000 devices busy."""
    draw = np.random.default_rng(5)
    run_ms = np.maximum(draw.exponential(HOUR_MS, MILLION), 1_000.0).astype(np.int64)
    submit_ms = np.cumsum(draw.exponential(HOUR_MS / (LOAD * 10_000), MILLION)).astype(np.int64)
    request = Request(devices=1)
    return Workload(
        name="a million",
        jobs=tuple(
            TraceJob(JobSpec(id=index + 1, request=request, limit_ms=2 * run), at, run)
            for index, (at, run) in enumerate(zip(submit_ms.tolist(), run_ms.tolist(), strict=True))
        ),
    )


def _replay(workload: Workload, policy: str, nodes: int, devices: int, *, may_stretch: bool = True) -> RunStats:
    kernel = Kernel(named_policy(policy), RuntimeHistory())
    return run_twin(kernel, workload, make_cluster(nodes, devices), may_stretch=may_stretch).stats


def measure_million() -> Iterator[Figure]:
    """The twin's own cost for each job, and what stretches save of it."""
    workload = make_million()
    stats = _replay(workload, "fifo", 1_250, 8)
    yield Figure(
        name="twin: a million one-device jobs on 1,250 × 8, fifo", value=stats.wall_s, unit="s", bar=60.0, is_rate=False
    )
    workload = replace(workload, jobs=workload.jobs[:FIRST_JOBS])
    events, stretches = (
        Figure(
            name=f"twin: the first {FIRST_JOBS:,} of them, {way}",
            value=FIRST_JOBS / _replay(workload, "fifo", 1_250, 8, may_stretch=may_stretch).wall_s,
            unit="jobs/s",
        )
        for way, may_stretch in (("event by event", False), ("in stretches", True))
    )
    yield events
    yield compare(stretches, events)


def measure_ricc() -> Iterator[Figure]:
    """All of RICC's 447,794 jobs on as many processors as it had."""
    path = TRACES / "swf" / "RICC-2010-2.swf.gz"
    if not path.exists():
        return
    workload = read_workload(path)
    count = len(workload.jobs)
    for policy, way, bar in (("fifo", count_fifo, None), ("easy", count_easy, 17_000)):
        counting = Figure(
            name=f"plain Python that counts free processors, RICC, {policy}",
            value=time_counting(way, workload, 1_024 * 8),
            unit="jobs/s",
        )
        stats = _replay(workload, policy, 1_024, 8)
        twin = Figure(
            name=f"twin: {count:,} jobs of RICC on 1,024 × 8, {policy}",
            value=count / stats.wall_s,
            unit="jobs/s",
            bar=bar,
        )
        yield counting
        yield compare(twin, counting)


def measure_accasim() -> Iterator[Figure]:
    """The first jobs of RICC, in both."""
    path = TRACES / "swf" / "RICC-2010-2.swf.gz"
    if not path.exists():
        return
    workload = read_workload(path, limit=ACCASIM_JOBS)
    for policy in ("fifo", "easy"):
        run = run_accasim(workload, 1_024, 8, policy)
        if run.error:
            yield Figure(name=f"AccaSim did not run: {run.error}", value=0.0, unit="jobs/s")
            continue
        theirs = Figure(
            name=f"AccaSim 1.1.3, {ACCASIM_JOBS:,} jobs of RICC, {policy}",
            value=len(workload.jobs) / run.seconds,
            unit="jobs/s",
        )
        stats = _replay(workload, policy, 1_024, 8)
        ours = Figure(
            name=f"twin: the same {ACCASIM_JOBS:,} jobs, {policy}",
            value=len(workload.jobs) / stats.wall_s,
            unit="jobs/s",
        )
        yield theirs
        yield compare(ours, theirs)


def measure_philly() -> Iterator[Figure]:
    """Philly under the policy that is on by default."""
    path = TRACES / "philly" / "philly_jobs_13vc.csv.gz"
    if not path.exists():
        return
    prepared = prepare(SimulationRequest(trace=str(path), policy="clearway", cluster="312x8"))
    stats = simulate(replace(prepared, faults=())).stats
    yield Figure(
        name=f"twin: {len(prepared.workload.jobs):,} jobs of Philly on 312 × 8, clearway",
        value=stats.wall_s,
        unit="s",
        bar=60.0,
        is_rate=False,
    )
