"""Shortest remaining processing time is optimal for the mean completion time on one machine (Schrage, 1968)."""

from functools import cache

import numpy as np
import pytest

from clearway.kernel import Kernel
from clearway.model.units import MINUTE_MS
from clearway.policies.named import named_policy
from clearway.sim.twin import run_twin
from support.worlds import make_cluster, make_trace_job, make_workload


def least_sum_of_ends(jobs):
    """The least possible sum of end minutes of (submit, minutes) jobs, over all preemptive schedules."""

    @cache
    def least(now, left):
        if not any(left):
            return 0
        ready = [job for job, rest in enumerate(left) if rest and jobs[job][0] <= now]
        if not ready:
            return least(now + 1, left)
        return min(end_or_go_on(now, left, job) for job in ready)

    def end_or_go_on(now, left, job):
        after = (*left[:job], left[job] - 1, *left[job + 1 :])
        return least(now + 1, after) + (now + 1 if after[job] == 0 else 0)

    return least(0, tuple(minutes for _, minutes in jobs))


def sum_of_ends(jobs):
    workload = make_workload(
        *(
            make_trace_job(
                number,
                submit_ms=submit * MINUTE_MS,
                run_ms=minutes * MINUTE_MS,
                oracle_ms=minutes * MINUTE_MS,
                suspendable=True,
            )
            for number, (submit, minutes) in enumerate(jobs, start=1)
        )
    )
    result = run_twin(Kernel(named_policy("srpt")), workload, make_cluster(nodes=1, devices=1))
    return int(result.jobs.end_ms.sum()) / MINUTE_MS


@pytest.mark.parametrize("seed", range(30))
def test_srpt_ends_jobs_as_early_as_any_schedule_can(seed):
    random = np.random.default_rng(seed)
    submits = np.sort(random.integers(0, 8, size=5))
    submits -= submits[0]
    jobs = tuple(zip(submits.tolist(), random.integers(1, 7, size=5).tolist(), strict=True))
    assert sum_of_ends(jobs) == least_sum_of_ends(jobs)
