"""Bounds against schedules found by trying everything, and against values worked out by hand."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.errors import MissingExtraError
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import Elastic, JobSpec, Network, Request
from clearway.sim import bounds as bounds_module
from clearway.sim.bounds import compute_bounds, release_area_ms, split_busy_flow_ms
from clearway.sim.bounds_ceiling import Ceiling, ceiling_of_speeds
from clearway.sim.bounds_machine import mean_busy_delay_ms, srpt_flow_ms
from clearway.sim.bounds_work import tabulate_work
from clearway.sim.profiles import GavelTable, SpeedModel
from clearway.sim.workload import TraceJob, Workload

SECOND = 1_000
RELATIVE_SLACK = 1e-9


def make_cluster(*models):
    """One node per device: ("a", 1.0) pairs of model and speed, or an int for as many devices of speed 1."""
    pairs = [("a", 1.0)] * models[0] if isinstance(models[0], int) else models
    return ClusterSpec(
        nodes=tuple(
            NodeSpec(name=NodeName(f"n{index}"), groups=(DeviceGroup(model=model, count=1, speed=speed),))
            for index, (model, speed) in enumerate(pairs)
        )
    )


def make_trace(*jobs):
    """Jobs as (submit, run, devices) in seconds, or with a dict of further JobSpec fields as fourth."""
    return Workload("made-up", [_trace_job(index + 1, *job) for index, job in enumerate(sorted(jobs, key=_submit))])


def _submit(job):
    return job[0]


def _trace_job(number, submit, run, devices, more=None):
    fields = {"request": Request(), "replicas": devices} | (more or {})
    return TraceJob(spec=JobSpec(id=JobId(number), **fields), submit_ms=submit * SECOND, run_ms=run * SECOND)


def detail(bounds, name):
    return next(each.value for each in bounds.details if each.name == name)


def best_schedules(workload, cluster):
    """(least makespan, least mean JCT) in seconds over all non-preemptive schedules of single-device replicas.

    Takes every order of starts and every choice of devices; each job starts as soon as its devices are free.
    """
    groups = [node.groups[0] for node in cluster.nodes]
    choices = [_choices(job.spec, groups) for job in workload.jobs]
    makespan = flow = np.inf
    for order in permutations(range(len(workload.jobs))):
        for chosen in product(*(choices[row] for row in order)):
            free = [0.0] * len(groups)
            ends = 0.0
            for row, devices in zip(order, chosen, strict=True):
                job = workload.jobs[row]
                start = max([job.submit_ms, *(free[device] for device in devices)])
                end = start + _duration(job, [groups[device] for device in devices])
                for device in devices:
                    free[device] = end
                ends += end - job.submit_ms
            makespan, flow = min(makespan, max(free)), min(flow, ends)
    return makespan / SECOND, flow / len(workload.jobs) / SECOND


def _choices(spec, groups):
    allowed = [
        index
        for index, group in enumerate(groups)
        if not spec.request.device_models or group.model in spec.request.device_models
    ]
    sizes = range(spec.replicas_min, spec.replicas_max + 1)
    return [chosen for size in sizes for chosen in combinations(allowed, size)]


def _duration(job, groups):
    rate = min(group.speed for group in groups) * len(groups) / job.spec.replicas
    limit = np.inf if job.spec.limit_ms is None else job.spec.limit_ms
    return min(job.run_ms / rate, limit)


def assert_below_best(workload, cluster):
    makespan, jct = best_schedules(workload, cluster)
    found = compute_bounds(workload, cluster)
    for each in found.details:
        if each.unit != "device_allocation_ratio":
            best = makespan if each.unit == "makespan_s" else jct
            assert each.value <= best * (1 + RELATIVE_SLACK), f"{each.name}: {each.value} above the optimum {best}"
    assert found.makespan_s <= makespan * (1 + RELATIVE_SLACK)
    assert found.jct_mean_s <= jct * (1 + RELATIVE_SLACK)


TINY_JOB = st.tuples(st.integers(0, 8), st.integers(1, 9), st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(TINY_JOB, min_size=1, max_size=4), st.integers(3, 4))
def test_no_schedule_of_equal_devices_beats_a_bound(jobs, devices):
    assert_below_best(make_trace(*jobs), make_cluster(devices))


MODELS = st.sampled_from([("a",), ("b",), ("a", "b"), ()])
MIXED_JOB = st.tuples(st.integers(0, 6), st.integers(1, 9), MODELS, st.sampled_from([None, 3]))


@settings(max_examples=80, deadline=None)
@given(st.lists(MIXED_JOB, min_size=1, max_size=4), st.sampled_from([1.0, 1.5, 3.0]))
def test_no_schedule_of_several_models_with_limits_beats_a_bound(jobs, speed):
    rows = [
        (submit, run, 1, {"request": Request(device_models=models), "limit_ms": limit and limit * SECOND})
        for submit, run, models, limit in jobs
    ]
    assert_below_best(make_trace(*rows), make_cluster(("a", 1.0), ("a", 1.0), ("b", speed)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9), st.integers(1, 2)), min_size=1, max_size=3))
def test_no_schedule_of_elastic_jobs_beats_a_bound(jobs):
    elastic = Elastic(replicas_min=1, replicas_max=3)
    rows = [(submit, run, devices, {"elastic": elastic}) for submit, run, devices in jobs]
    assert_below_best(make_trace(*rows), make_cluster(3))


def best_preemptive_flow(jobs):
    """Least Σ (completion − release) on one machine by trying every choice at every second (whole seconds)."""

    def search(now, left):
        if not any(left):
            return 0
        ready = [row for row, amount in enumerate(left) if amount and jobs[row][0] <= now]
        if not ready:
            return search(now + 1, left)
        waiting = len(ready)
        return waiting + min(search(now + 1, (*left[:row], left[row] - 1, *left[row + 1 :])) for row in ready)

    return search(0, tuple(run for _, run in jobs))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=3))
def test_srpt_on_one_machine_is_the_best_preemptive_schedule(jobs):
    jobs = sorted(jobs)
    release, work = np.array(jobs, dtype=np.float64).T.copy()
    assert srpt_flow_ms(release, work).sum() == pytest.approx(best_preemptive_flow(jobs))


def test_srpt_preempts_the_longer_job_when_a_shorter_one_comes():
    # 5 s from 0, 1 s from 1, 4 s from 2: the second at [1, 2), the first (4 left, earlier) [2, 6), the third [6, 10).
    flow = srpt_flow_ms(np.array([0.0, 1.0, 2.0]), np.array([5.0, 1.0, 4.0]))
    assert flow.tolist() == [6.0, 1.0, 8.0]


def test_mean_busy_time_of_a_preempted_job_is_the_average_of_its_pieces():
    # 4 s from 0 works [0, 1) and [3, 6): mean (0.5 + 3 × 4.5) / 4 = 3.5. 2 s from 1 works [1, 3): mean 2, delay 1.
    delay = mean_busy_delay_ms(np.array([0.0, 1.0]), np.array([4.0, 2.0]), np.array([1, 0]))
    assert delay.tolist() == [3.5, 1.0]


def test_mean_busy_time_keeps_milliseconds_after_years():
    years = 3e11
    release = np.array([years, years])
    delay = mean_busy_delay_ms(release, np.array([0.1, 0.1]), np.array([0, 1]))
    assert delay == pytest.approx([0.05, 0.15], rel=1e-3)


def test_area_bound_counts_work_from_its_release_on():
    # 3 s at 0, then 4 s at 10: nothing ends before 14. Counting from 0 alone gives 7.
    assert release_area_ms(np.array([0.0, 10.0]), np.array([3.0, 4.0])) == 14.0


def test_mean_busy_bound_by_hand():
    # Two machines, two jobs of two devices and 4 s at 0: work 4 and 4; means 2 and 6, each plus 2: 4 + 8.
    first, best = split_busy_flow_ms(np.zeros(2), np.array([4.0, 4.0]), np.array([4.0, 4.0]))
    assert first == best == 12.0


def test_split_counts_idle_jobs_by_their_run_time_and_crowded_ones_by_their_busy_time():
    # 100 devices. At 0 a job of one device runs 100 s; at 1,000 come two of 100 devices and 10 s: 100 + 10 + 20.
    release, work, run = np.array([0.0, 1e3, 1e3]), np.array([1.0, 10.0, 10.0]), np.array([100.0, 10.0, 10.0])
    first, best = split_busy_flow_ms(release, work, run)
    assert first == pytest.approx(0.5 + 50 + 5 + 5 + 15 + 5)
    assert best == pytest.approx(130.0, rel=0.02)
    assert best <= 130.0


def test_bounds_of_a_full_row_of_jobs_are_met_by_the_schedule_itself():
    # Two devices, jobs of two devices: 10 s and 20 s at 0. Best: ends 10 and 30.
    found = compute_bounds(make_trace((0, 10, 2), (0, 20, 2)), make_cluster(2))
    assert (found.makespan_s, found.jct_mean_s, found.device_allocation_ratio) == (30.0, 20.0, 1.0)
    assert detail(found, "squashed-area SRPT") == 20.0
    assert detail(found, "run time") == 15.0


def test_per_job_maximum_of_both_completion_bounds_would_be_too_high():
    # Why the larger sum is taken and not the sum of the larger: 50 jobs of one device and 10 s, and 10 jobs of 50
    # devices and 0.22 s, run side by side on 100 devices; SRPT on the squashed machine puts all 50 before the 10.
    small = [(0, 10, 1)] * 50
    large = [TraceJob(JobSpec(id=JobId(51 + k), request=Request(), replicas=50), 0, 220) for k in range(10)]
    workload = Workload("made-up", [*make_trace(*small).jobs, *large])
    side_by_side = (50 * 10 + 0.22 * 55) / 60
    assert compute_bounds(workload, make_cluster(100)).jct_mean_s <= side_by_side


def test_allocation_bound_is_work_over_what_the_last_job_leaves():
    # One device of two for 10 s, two submitted at 0 and at 10: 20 s on two devices, half used.
    found = compute_bounds(make_trace((0, 10, 1), (10, 10, 1)), make_cluster(2))
    assert found.makespan_s == 20.0
    assert found.device_allocation_ratio == 0.5


def test_limit_ends_a_run():
    found = compute_bounds(make_trace((0, 100, 1, {"limit_ms": 30 * SECOND})), make_cluster(1))
    assert (found.jct_mean_s, found.makespan_s) == (30.0, 30.0)


def test_faster_devices_lower_the_bound():
    found = compute_bounds(make_trace((0, 12, 1), (0, 12, 1)), make_cluster(("old", 1.0), ("new", 3.0)))
    # Speeds 1 and 3 do 24 s of work in 6 s; no job is shorter than 4 s.
    assert found.makespan_s == pytest.approx(6.0)
    assert detail(found, "run time") == 4.0


def test_linear_program_sees_that_jobs_crowd_on_one_model():
    only_new = {"request": Request(device_models=("new",))}
    jobs = [(0, 10, 1, only_new)] * 4
    found = compute_bounds(make_trace(*jobs), make_cluster(("old", 1.0), ("old", 1.0), ("old", 1.0), ("new", 1.0)))
    # Four jobs of 10 s one after another on the only new device: 40 s, mean (10 + 20 + 30 + 40) / 4.
    assert detail(found, "area") == 10.0
    assert found.makespan_s == pytest.approx(40.0)
    assert found.jct_mean_s == pytest.approx(25.0)


def test_interval_program_prices_two_crowds_at_once():
    only = [{"request": Request(device_models=(model,))} for model in ("a", "b")]
    jobs = [(0, 10, 1, only[k % 2]) for k in range(40)]
    found = compute_bounds(make_trace(*jobs), make_cluster(("a", 1.0), ("b", 1.0)))
    # Best: 20 jobs in a row on each, mean 105 s. The intervals cost a few per cent of it.
    assert 95.0 <= detail(found, "interval LP") <= 105.0


def test_elastic_job_is_given_its_best_speed_and_its_best_efficiency():
    elastic = Elastic(replicas_min=1, replicas_max=4, speedup=((1, 1.0), (2, 1.8), (4, 3.0)))
    work = tabulate_work(make_trace((0, 90, 2, {"elastic": elastic})).jobs, make_cluster(8))
    # Reference: two replicas, speed 1.8, 90 s = 162 units of work. At four: 54 s. At one: 162 device-seconds.
    assert work.run_min_ms[0] == pytest.approx(54 * SECOND)
    assert work.area_ms[0, 0] == pytest.approx(162 * SECOND)
    assert work.area_max_ms[0] == pytest.approx(216 * SECOND)


def test_profile_ceiling_replaces_the_speed_of_the_model():
    found = compute_bounds(make_trace((0, 90, 1)), make_cluster(1), ceiling=lambda job, group: Ceiling(3.0, 2.0, 1.0))
    assert found.jct_mean_s == 45.0  # by area; the shortest run alone would be 30
    assert detail(found, "run time") == 30.0


def test_measured_profile_gives_its_best_shape_on_each_model():
    table = GavelTable(
        points={
            ("v100", "net"): ((1, 10.0), (2, 18.0)),
            ("v100_unconsolidated", "net"): ((2, 12.0),),
            ("k80", "net"): ((1, 2.0),),
        },
        pairs={},
        models=("v100", "k80"),
    )
    job = TraceJob(JobSpec(id=JobId(1), request=Request(), replicas=2), 0, 60 * SECOND, profile="gavel/net/2")
    find = ceiling_of_speeds(SpeedModel((table,)))
    # Reference: two V100 side by side, 18 steps/s. On two nodes 12; two K80 do 4.
    assert find(job, DeviceGroup(model="v100", count=4)) == Ceiling(1.0, 1.0, pytest.approx(12 / 18))
    assert find(job, DeviceGroup(model="k80", count=4)).rate == pytest.approx(4 / 18)


def test_shares_of_a_device_count_as_parts():
    half = {"request": Request(share_milli=500)}
    found = compute_bounds(make_trace(*[(0, 10, 1, half)] * 4), make_cluster(1))
    assert found.makespan_s == 20.0


@pytest.mark.parametrize(
    "more",
    [
        {"request": Request(device_models=("z",))},
        {"request": Request(devices=2)},
        {"request": Request(node_labels=(("zone", "x"),))},
        {"request": Request(), "network": Network(fabric="infiniband")},
        {"request": Request(), "replicas": 5},
    ],
)
def test_jobs_that_can_never_run_are_left_out_with_a_note(more):
    found = compute_bounds(make_trace((0, 7, 1), (0, 10, 1, more)), make_cluster(4))
    assert (found.jobs, found.jct_mean_s) == (1, 7.0)
    assert found.notes == ("1 jobs can never run on this cluster and are not counted",)


def test_only_included_jobs_count():
    workload = make_trace((0, 7, 1), (0, 900, 1))
    assert compute_bounds(workload, make_cluster(1), include=np.array([True, False])).jct_mean_s == 7.0


def test_no_jobs_give_no_bounds():
    found = compute_bounds(make_trace(), make_cluster(1))
    assert found.jobs == 0
    assert np.isnan([found.jct_mean_s, found.makespan_s, found.device_allocation_ratio]).all()


def test_without_the_extra_linear_programs_are_left_out_with_a_note(monkeypatch):
    def refuse(work):
        raise MissingExtraError('pip install "clearway[twin]"')

    monkeypatch.setattr(bounds_module, "find_makespan_prices", refuse)
    found = compute_bounds(make_trace((0, 10, 1)), make_cluster(("old", 1.0), ("new", 2.0)))
    assert found.jct_mean_s == 5.0
    assert found.notes == ('Bounds by linear programs are left out: pip install "clearway[twin]"',)
