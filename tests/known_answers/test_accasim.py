"""Start times, job by job, against AccaSim 1.1.3 (Galleguillos et al., 2018), an independent simulator, run as it is.

FIFO means the same in both. EASY does not: AccaSim's `EASYBackfilling` works out when the first waiting job can start,
but passes no reserved nodes to its allocator (`reserved_nodes=[]`), so that a job behind it may start though it ends
later, and it does not try the first job again before that time. The two must agree exactly

- with EASY, where no later job could outlast the reservation: here all times are multiples of one tick, narrow jobs
  last one tick, and the others need the whole cluster;
- with first fit in order of arrival (no reservation), where users know their run times: then the first job could not
  have started before the time worked out for it.

The recorded start times are AccaSim's own; `make accept` rewrites tests/golden/accasim/*.txt where it is installed.
"""

import importlib.util

import numpy as np
import pytest
from bench.baselines import run_accasim

from clearway.engine.policy import Backfill, Policy
from clearway.kernel import Kernel
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.jobs import JobSpec, Request
from clearway.model.units import SECOND_MS
from clearway.policies.named import named_policy
from clearway.policies.orders import Fifo
from clearway.sim.traces import read_workload
from clearway.sim.twin import run_twin
from clearway.sim.workload import TraceJob, Workload
from support.shared import SHARED, needs_traces

FIRST_FIT = Policy(name="first-fit", order=Fifo(), backfill=Backfill(reservation_depth=0))
HPC2N = SHARED / "traces" / "swf" / "hpc2n-2002-subset.swf"

needs_accasim = pytest.mark.skipif(
    importlib.util.find_spec("accasim") is None, reason="AccaSim is not installed: pip install 'clearway[bench]'"
)


def make_trace_job(number, submit_s, run_s, processors, limit_s):
    spec = JobSpec(id=number, request=Request(devices=1), replicas=processors, limit_ms=limit_s * SECOND_MS)
    return TraceJob(spec=spec, submit_ms=submit_s * SECOND_MS, run_ms=run_s * SECOND_MS)


def make_mixed():
    """Jobs of 1 to 64 processors whose users ask for up to four times as long as they need."""
    draw = np.random.default_rng(11)
    submit_s = np.cumsum(draw.integers(0, 120, 400)).tolist()
    runs_s = draw.integers(1, 3_000, 400).tolist()
    sizes = draw.choice([1, 2, 3, 8, 16, 33, 64], 400, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.07, 0.03]).tolist()
    factors = draw.integers(1, 5, 400).tolist()
    jobs = zip(submit_s, runs_s, sizes, factors, strict=True)
    return Workload(
        name="mixed",
        jobs=tuple(
            make_trace_job(number, submit, run, size, run * factor)
            for number, (submit, run, size, factor) in enumerate(jobs, start=1)
        ),
    )


def make_ticking():
    """One-tick jobs, and some that take the whole cluster for longer; everything happens at multiples of a tick."""
    draw = np.random.default_rng(12)
    ticks = np.cumsum(draw.integers(0, 2, 400)).tolist()
    jobs = []
    for number, tick in enumerate(ticks, start=1):
        is_wide = draw.random() < 0.06
        run_s = 10 * int(draw.integers(2, 6)) if is_wide else 10
        size = 64 if is_wide else int(draw.integers(1, 40))
        jobs.append(make_trace_job(number, 10 * tick, run_s, size, run_s))
    return Workload(name="ticking", jobs=tuple(jobs))


def make_exact(workload):
    """The same jobs whose users know their run times to the second."""
    jobs = []
    for job in workload.jobs:
        run_s = max(min(job.run_ms, job.spec.limit_ms or job.run_ms) // SECOND_MS, 1)
        size = job.spec.replicas * job.spec.request.devices
        jobs.append(make_trace_job(job.spec.id, job.submit_ms // SECOND_MS, run_s, size, run_s))
    return Workload(name=f"{workload.name} with exact limits", jobs=tuple(jobs))


def our_starts(policy, workload, nodes, devices):
    group = DeviceGroup(model="cpu", count=devices)
    cluster = ClusterSpec(nodes=tuple(NodeSpec(name=f"n{index}", groups=(group,)) for index in range(nodes)))
    jobs = run_twin(Kernel(policy), workload, cluster).jobs
    return dict(zip(jobs.job.tolist(), (jobs.start_ms // SECOND_MS).tolist(), strict=True))


def their_starts(workload, nodes, cores, dispatcher):
    run = run_accasim(workload, nodes, cores, dispatcher)
    assert not run.error, run.error
    return run.starts_s


def render(starts):
    return "\n".join(f"{job} {starts[job]}" for job in sorted(starts))


CASES = {
    "fifo-mixed": (named_policy("fifo"), make_mixed, "fifo"),
    "fifo-ticking": (named_policy("fifo"), make_ticking, "fifo"),
    "easy-ticking": (named_policy("easy"), make_ticking, "easy"),
    "first-fit-mixed": (FIRST_FIT, lambda: make_exact(make_mixed()), "easy"),
}


@pytest.mark.parametrize("case", CASES)
def test_start_times_are_those_that_accasim_gave(golden, case):
    policy, make_workload, _ = CASES[case]
    golden(f"accasim/{case}", render(our_starts(policy, make_workload(), 8, 8)))


@needs_accasim
@pytest.mark.parametrize("case", CASES)
def test_accasim_gives_the_recorded_start_times(golden, case):
    _, make_workload, dispatcher = CASES[case]
    golden(f"accasim/{case}", render(their_starts(make_workload(), 8, 8, dispatcher)))


def test_backfill_makes_a_difference_in_these_jobs():
    workload = make_ticking()
    easy = our_starts(named_policy("easy"), workload, 8, 8)
    assert easy != our_starts(named_policy("fifo"), workload, 8, 8)
    exact = make_exact(make_mixed())
    assert our_starts(named_policy("easy"), exact, 8, 8) != our_starts(FIRST_FIT, exact, 8, 8)


@needs_accasim
@needs_traces
def test_a_real_log_starts_job_by_job_as_in_accasim():
    workload = make_exact(read_workload(HPC2N, limit=1_500))
    fifo = our_starts(named_policy("fifo"), workload, 120, 2)
    assert fifo == their_starts(workload, 120, 2, "fifo")
    first_fit = our_starts(FIRST_FIT, workload, 120, 2)
    assert first_fit == their_starts(workload, 120, 2, "easy")
    assert first_fit != fifo
