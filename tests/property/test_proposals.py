"""What an explanation proposes is true: had the job asked for that, it would have started."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.engine.policy import Backfill, Headroom, Policy
from clearway.model.cluster import QueueSpec
from clearway.model.events import PowerBudgetSet, QueueSet
from clearway.model.ids import QueueName
from clearway.model.jobs import JobKind
from clearway.model.units import HOUR_MS
from clearway.policies.orders import Fifo
from support.engine import add_nodes, make_kernel, started_jobs, submit

POLICIES = st.builds(
    Policy,
    name=st.just("drawn"),
    order=st.just(Fifo()),
    backfill=st.builds(Backfill, strict=st.booleans(), reservation_depth=st.integers(0, 3)),
    headroom=st.builds(Headroom, enabled=st.booleans(), devices_min=st.integers(0, 3)),
)
JOBS = st.fixed_dictionaries(
    {
        "devices": st.integers(0, 9),
        "replicas": st.sampled_from([1, 1, 1, 2, 3]),
        "estimate_ms": st.integers(1, 5).map(lambda hours: hours * HOUR_MS),
        "kind": st.sampled_from([JobKind.TRAIN, JobKind.TRAIN, JobKind.TASK]),
        "cpu_milli": st.sampled_from([0, 0, 0, 500, 1_000, 5_000, 11_000]),
        "exclusive": st.sampled_from([False, False, False, True]),
    }
)


CPU_JOBS = st.fixed_dictionaries(
    {
        "devices": st.integers(0, 2),
        "replicas": st.sampled_from([1, 1, 2]),
        "cpu_milli": st.integers(1, 22).map(lambda halves: 500 * halves),
        "estimate_ms": st.integers(1, 5).map(lambda hours: hours * HOUR_MS),
    }
)
"""Of these CPUs are short before devices are."""
THOUSANDS = st.integers(6, 16).map(lambda devices: 1_000 * devices)
LIMITS = st.fixed_dictionaries({}, optional={"devices_max_milli": THOUSANDS, "job_devices_max_milli": THOUSANDS})


def world(policy, limits, watts, jobs):
    kernel = make_kernel(policy)
    add_nodes(kernel, 2, 8, watts_max=700, cpu_milli=12_000)
    kernel.handle(QueueSet(0, QueueSpec(name=QueueName("production"), **limits)))
    if watts is not None:
        kernel.handle(PowerBudgetSet(0, watts))
    for job in jobs:
        commands = submit(kernel, job)
    return kernel, commands


def proposed(job, fix):
    """The job as the fix would have it; None for a fix of another kind."""
    if found := re.match(r"as (?:(\d+) replicas of )?(\d+) devices? instead", fix):
        return {**job, "replicas": int(found[1] or 1), "devices": int(found[2])}
    if found := re.match(r"with (\d+) replicas? instead", fix):
        return {**job, "replicas": int(found[1])}
    if found := re.match(r"with at most (?:\d+ replicas of )?(\d+) devices? instead", fix):
        return {**job, "devices": int(found[1])}
    if found := re.match(r"with at most ([\d.]+) CPUs? per replica", fix):
        return {**job, "cpu_milli": round(1_000 * float(found[1]))}
    if fix.startswith("beside other jobs"):
        return {**job, "exclusive": False}
    if found := re.match(r"if it were to end within (\d+) h \(", fix):
        return {**job, "estimate_ms": int(found[1]) * HOUR_MS}
    return None


@given(
    POLICIES,
    LIMITS,
    st.none() | st.integers(5_000, 11_000),
    st.lists(JOBS, min_size=4, max_size=8) | st.lists(CPU_JOBS, min_size=4, max_size=8),
)
@settings(max_examples=250, deadline=None)
def test_a_job_that_had_asked_for_what_is_proposed_would_have_started(policy, limits, watts, jobs):
    kernel, _ = world(policy, limits, watts, jobs)
    fix = kernel.explain(len(jobs)).fix
    smaller = proposed(jobs[-1], fix)
    if fix.endswith("it could start now") and smaller is not None:
        _, commands = world(policy, limits, watts, [*jobs[:-1], smaller])
        assert len(jobs) in started_jobs(commands), fix


@given(POLICIES, LIMITS, st.none() | st.integers(2_500, 11_000), JOBS.map(lambda job: {**job, "replicas": 3}))
@settings(max_examples=250, deadline=None)
def test_a_job_that_never_fits_would_start_on_an_empty_cluster_had_it_asked_for_what_is_proposed(
    policy, limits, watts, job
):
    kernel, _ = world(policy, limits, watts, [job])
    fix = kernel.explain(1).fix
    smaller = proposed(job, fix)
    if fix.endswith("it could start when they are free") and smaller is not None:
        _, commands = world(policy, limits, watts, [smaller])
        assert started_jobs(commands) == [1], fix
