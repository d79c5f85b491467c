"""Metrics against values worked out by hand."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from clearway.model.units import FOREVER_MS
from clearway.sim.metrics import METRICS, SIZE_BUCKETS, Metrics, compute_metrics, render_metrics_doc, size_bucket_of
from support.results import make_busy_result, make_columns, make_result, make_series

ROOT = Path(__file__).parents[3]

# Two devices. A runs [0, 10), B waits for it and runs [10, 30), C never starts. Seconds; two devices each, C one.
TWO_IN_A_ROW = make_columns(
    3,
    submit_ms=[0, 0, 5_000],
    start_ms=[0, 10_000, -1],
    end_ms=[10_000, 30_000, -1],
    run_ms=[10_000, 20_000, 99_000],
    devices_milli=[2_000, 2_000, 1_000],
    waited_ms=[0, 10_000, 25_000],
    held_device_ms=[20_000, 40_000, 0],
    lost_device_ms=[0, 6_000, 0],
    preemptions=[0, 2, 0],
    restarts=[0, 3, 0],
    tenants=("a", "b", "idle"),
    tenant=[0, 1, 1],
    outcome=[0, 0, -1],
)


def measure(jobs=TWO_IN_A_ROW, **keywords):
    series = make_series(time_ms=(0,), capacity_milli=2_000)
    return compute_metrics(make_result(jobs, **({"series": series} | keywords)))


def test_wait_counts_started_jobs_and_completion_time_counts_finished_jobs():
    metrics = measure()
    assert (metrics.jobs_total, metrics.jobs_started, metrics.jobs_finished) == (3, 2, 2)
    assert (metrics.wait_s.mean, metrics.wait_s.max, metrics.wait_s.count) == (5.0, 10.0, 2)
    assert (metrics.jct_s.mean, metrics.jct_s.p50, metrics.jct_s.max) == (20.0, 20.0, 30.0)
    assert metrics.makespan_s == 30.0


def test_starts_in_time_count_among_jobs_with_a_latency_target_whether_they_started_or_not():
    starts, targets = [100, 101, -1, 9_000], [100, 100, 100, FOREVER_MS]
    jobs = make_columns(4, start_ms=starts, latency_ms=targets, end_ms=10_000)
    assert measure(jobs).latency_target_ratio == pytest.approx(1 / 3)
    assert np.isnan(measure().latency_target_ratio)


def test_percentiles_interpolate_linearly():
    jobs = make_columns(11, start_ms=np.arange(11) * 1_000, end_ms=20_000)
    wait = measure(jobs).wait_s
    assert (wait.p50, wait.p90, wait.max) == (5.0, 9.0, 10.0)
    assert wait.p99 == pytest.approx(9.9)


def test_time_in_queue_counts_waits_after_a_preemption_too():
    jobs = make_columns(1, start_ms=2_000, end_ms=9_000, waited_ms=5_000)
    metrics = measure(jobs)
    assert (metrics.wait_s.mean, metrics.queued_s.mean) == (2.0, 5.0)


def test_ratios_are_exact_integrals():
    metrics = measure(allocated=50_000, capacity=100_000, useful=40_000)
    assert metrics.device_allocation_ratio == 0.5
    assert metrics.effective_use_ratio == 0.4
    assert metrics.goodput_ratio == 0.8


def test_counts_and_device_seconds_are_sums_over_jobs():
    metrics = measure()
    assert (metrics.preemptions, metrics.restarts) == (2, 3)
    assert (metrics.held_device_s, metrics.lost_device_s) == (60.0, 6.0)


def test_bounded_slowdown_counts_short_jobs_as_ten_seconds():
    jobs = make_columns(2, start_ms=[19_000, 0], end_ms=[20_000, 1_000], run_ms=[1_000, 1_000])
    slowdown = measure(jobs).bounded_slowdown
    assert (slowdown.max, slowdown.mean) == (2.0, 1.5)


def test_run_time_is_cut_at_the_limit():
    jobs = make_columns(1, start_ms=20_000, end_ms=40_000, run_ms=80_000, limit_ms=20_000)
    assert measure(jobs).bounded_slowdown.mean == 2.0


def test_finish_time_fairness_divides_by_the_slice_of_the_average_crowd():
    # A: JCT 10; in the system over [0, 10) are A, B and for half the time C, 2.5 on average. Alone on 2/2.5 devices
    # A needs 10 × 2.5 × 2/2 = 25 s: ρ = 0.4. B: JCT 30, crowd (10×2 + 5 + 20×2)/30 = 65/30: alone 20 × 65/30 s.
    metrics = measure()
    assert metrics.finish_time_fairness.max == pytest.approx(30 / (20 * 65 / 30))
    assert metrics.finish_time_fairness.mean == pytest.approx((0.4 + 0.692307692) / 2)
    assert metrics.unfair_jobs_ratio == 0.0


def test_job_that_waits_on_an_empty_cluster_is_unfairly_late():
    jobs = make_columns(1, start_ms=30_000, end_ms=40_000, run_ms=10_000)
    metrics = measure(jobs)
    assert metrics.finish_time_fairness.mean == 4.0
    assert metrics.unfair_jobs_ratio == 1.0


def test_jain_index_compares_service_ratios_of_tenants_that_finished_work():
    # Tenant a: 20/20 = 1. Tenant b: 40/60 = 2/3. (5/3)² / (2 × 13/9) = 25/26.
    assert measure().jain_index == pytest.approx(25 / 26)


def test_fragmentation_is_weighted_by_time():
    series = make_series(time_ms=(0, 10_000), capacity_milli=4_000, stranded_milli=[1_000, 3_000])
    # Makespan 30 s: 10 s at 1/4 and 20 s at 3/4.
    assert measure(series=series).fragmentation_ratio == pytest.approx((10 * 1 + 20 * 3) / (30 * 4))


def test_groups_without_jobs_are_left_out_and_others_keep_their_order():
    metrics = measure()
    assert [(group.name, group.jobs, group.finished) for group in metrics.by_tenant] == [("a", 1, 1), ("b", 2, 1)]
    assert [group.name for group in metrics.by_size] == ["1", "2–4"]
    assert metrics.by_tenant[1].jct_s.mean == 30.0
    assert metrics.by_tenant[1].service_ratio == pytest.approx(2 / 3)


def test_size_buckets_include_their_largest_size():
    sizes = np.array([0, 1, 999, 1_000, 1_001, 4_000, 5_000, 8_000, 16_000, 17_000, 64_000, 256_000, 257_000])
    names = [SIZE_BUCKETS[index][0] for index in size_bucket_of(sizes)]
    assert names == ["0", "<1", "<1", "1", "2–4", "2–4", "5–8", "5–8", "9–16", "17–64", "17–64", "65–256", ">256"]


def test_nothing_finished_gives_no_numbers_rather_than_zeros():
    metrics = measure(make_columns(2))
    assert metrics.jobs_finished == 0
    assert np.isnan([metrics.jct_s.mean, metrics.jain_index, metrics.device_allocation_ratio]).all()


def test_large_runs_do_not_overflow():
    year = 366 * 24 * 3_600_000
    series = make_series(time_ms=(0,), capacity_milli=10**9, stranded_milli=5 * 10**8)
    jobs = make_columns(1, start_ms=0, end_ms=year, run_ms=year, limit_ms=FOREVER_MS)
    assert measure(jobs, series=series).fragmentation_ratio == 0.5


def test_group_counts_add_up_to_the_whole():
    metrics = compute_metrics(make_busy_result(count=300))
    for groups in (metrics.by_kind, metrics.by_size, metrics.by_tenant, metrics.by_queue):
        assert sum(group.jobs for group in groups) == metrics.jobs_total
        total = sum(group.jct_s.mean * group.finished for group in groups)
        assert total / metrics.jobs_finished == pytest.approx(metrics.jct_s.mean)


def test_every_metric_is_defined_once_and_every_definition_is_measured():
    measured = [field.name for field in fields(Metrics) if not field.name.startswith("by_")]
    assert [row.key for row in METRICS] == measured


def test_documentation_of_metrics_is_current():
    assert (ROOT / "docs" / "METRICS.md").read_text() == render_metrics_doc()
