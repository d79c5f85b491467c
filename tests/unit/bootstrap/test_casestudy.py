"""The figures of the case study, on runs small enough for a unit test; the whole study is run by `make run`."""

from dataclasses import replace

import numpy as np
import pytest

from clearway.bootstrap.casestudy import burst_floor_s, measure_side
from clearway.model.cluster import ClusterSpec
from clearway.sim.casestudy import make_case_study
from support.results import make_columns, make_result

BURST = range(3, 5)
SIDE = make_result(
    make_columns(
        5,
        kinds=("train", "task"),
        kind=[0, 1, 1, 1, 0],
        submit_ms=[0, 1_000, 5_000, 5_000, 6_000],
        start_ms=[0, 1_080, 5_000, 9_000, 8_000],
        end_ms=[10_000, 2_000, 9_000, 12_000, -1],
        preemptions=[1, 0, 0, 0, 0],
        lost_device_ms=[2_000, 0, 0, 0, 0],
    ),
    allocated=60,
    useful=50,
    capacity=100,
)


def test_use_is_device_time_over_what_there_was():
    figures = measure_side(SIDE, BURST)
    assert figures.use_ratio == 0.6
    assert figures.effective_use_ratio == 0.5


def test_waits_are_told_apart_by_burst():
    figures = measure_side(SIDE, BURST)
    assert figures.tasks.tasks == 3
    assert figures.steady.max_s == pytest.approx(0.08)
    assert figures.burst.mean_s == pytest.approx(2.0)


def test_a_start_within_the_target_keeps_the_promise():
    figures = measure_side(SIDE, BURST)
    assert figures.steady.promised_ratio == 1.0
    assert figures.burst.promised_ratio == 0.5


def test_training_counts_only_jobs_that_ended():
    figures = measure_side(SIDE, BURST)
    assert figures.training_jct_mean_s == 10.0
    assert figures.training_wait_mean_s == 0.0
    assert figures.training_run_mean_s == 10.0
    assert figures.preemptions == 1
    assert figures.lost_device_s == 2.0


def test_a_side_without_finished_training_has_no_mean():
    jobs = make_columns(1, kinds=("train", "task"), kind=[1], start_ms=[0], end_ms=[1])
    assert np.isnan(measure_side(make_result(jobs, capacity=1), BURST).training_jct_mean_s)


def test_no_schedule_beats_shortest_first_on_an_idle_machine():
    study = make_case_study(seed=0)
    one_node = ClusterSpec(nodes=study.dynamic.cluster.nodes[:1])
    burst = [job for job in study.dynamic.workload.jobs if job.spec.id in study.burst_jobs][:3]
    runs_ms = sorted(job.run_ms for job in burst)
    few = replace(study.dynamic, workload=replace(study.dynamic.workload, jobs=tuple(burst)), cluster=one_node)
    assert burst_floor_s(replace(study, dynamic=few)) == 0.0
    single = replace(one_node.nodes[0], groups=(replace(one_node.nodes[0].groups[0], count=1),))
    queue = replace(few, cluster=ClusterSpec(nodes=(single,)))
    assert burst_floor_s(replace(study, dynamic=queue)) == pytest.approx((2 * runs_ms[0] + runs_ms[1]) / 3 / 1_000)
