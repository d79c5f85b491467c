"""The recorder: exact sums, a bounded series, and progress arithmetic that never drifts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.jobs import Checkpoint, Outcome
from clearway.model.units import FOREVER_MS
from clearway.sim.progress import REFERENCE_PPM, Progress
from clearway.sim.recorder import SAMPLES_MAX, Recorder, capacity_milli_ms, thin_samples
from clearway.sim.result import RunStats
from support.worlds import make_trace_job, make_workload

STATS = RunStats(wall_s=0.0, events=0, cycles=0, peak_rss_bytes=0)


def make_recorder(*jobs, capacity_milli=8_000, stranded=lambda: 0):
    return Recorder(make_workload(*jobs), capacity_milli, stranded)


def finish(recorder, now_ms):
    end_ms = recorder.close(now_ms)
    return recorder.result(end_ms, policy="p", cluster="c", seed=3, stats=STATS, digest="d")


def test_columns_tell_the_life_of_a_job():
    recorder = make_recorder(make_trace_job(5, submit_ms=0, run_ms=100, limit_ms=200, devices=2, name="x"))
    recorder.submitted(0)
    recorder.took(0, 10, 2_000)
    recorder.started(0, 15)
    recorder.finished(0, 115, Outcome.COMPLETED, 200_000)
    jobs = finish(recorder, 115).jobs
    assert (jobs.job[0], jobs.start_ms[0], jobs.end_ms[0], jobs.waited_ms[0]) == (5, 15, 115, 15)
    assert (jobs.devices_milli[0], jobs.held_device_ms[0], jobs.limit_ms[0]) == (2_000, 210, 200)
    assert jobs.outcome_names[jobs.outcome[0]] == "COMPLETED"
    assert jobs.job_names == ("x",)


def test_columns_carry_the_wait_that_was_promised():
    recorder = make_recorder(make_trace_job(1, latency_target_ms=100), make_trace_job(2))
    assert finish(recorder, 0).jobs.latency_ms.tolist() == [100, FOREVER_MS]


def test_integrals_run_to_the_last_end_and_follow_the_capacity():
    recorder = make_recorder(make_trace_job())
    recorder.submitted(0)
    recorder.took(0, 0, 1_000)
    recorder.started(0, 0)
    recorder.capacity(40, 4_000)
    recorder.finished(0, 100, Outcome.COMPLETED, 100_000)
    result = finish(recorder, 900)
    assert result.allocated_device_ms == 100
    assert result.capacity_device_ms == 40 * 8 + 60 * 4
    assert result.useful_device_ms == 100


def test_job_that_left_after_the_last_end_and_never_came_back_counts_within_the_window():
    recorder = make_recorder(make_trace_job(1), make_trace_job(2))
    for row in (0, 1):
        recorder.submitted(row)
        recorder.took(row, 0, 1_000)
        recorder.started(row, 0)
    recorder.finished(0, 100, Outcome.COMPLETED, 100_000)
    recorder.left(1, 300, was_running=True, is_preemption=False)
    result = finish(recorder, 900)
    assert (result.allocated_device_ms, result.capacity_device_ms) == (400, 300 * 8)


def test_job_that_still_runs_counts_until_the_stop():
    recorder = make_recorder(make_trace_job())
    recorder.submitted(0)
    recorder.took(0, 10, 1_000)
    result = finish(recorder, 50)
    assert result.allocated_device_ms == 40
    assert result.jobs.end_ms[0] == -1
    assert result.series.time_ms[-1] == 50


def test_job_withdrawn_twice_ends_once():
    recorder = make_recorder(make_trace_job())
    recorder.submitted(0)
    recorder.withdrawn(0, 30)
    recorder.withdrawn(0, 40)
    jobs = finish(recorder, 40).jobs
    assert recorder.ended == 1
    assert (jobs.end_ms[0], jobs.waited_ms[0], recorder.pending_jobs) == (30, 30, 0)


def test_series_row_holds_what_was_true_at_its_time():
    recorder = make_recorder(make_trace_job(), make_trace_job(2, submit_ms=1_500), stranded=lambda: 7)
    recorder.submitted(0)
    recorder.sample(1_500)  # 0: one waits
    recorder.took(0, 1_500, 1_000)
    recorder.submitted(1)
    recorder.sample(9_000)  # 2,000: one runs, one waits
    series = finish(recorder, 9_000).series
    assert series.time_ms.tolist() == [0, 2_000, 9_000]
    assert series.pending_jobs.tolist() == [1, 1, 1]
    assert series.running_jobs.tolist() == [0, 1, 1]
    assert series.allocated_milli.tolist() == [0, 1_000, 1_000]
    assert series.stranded_milli.tolist() == [7, 7, 7]


def test_series_never_grows_beyond_its_bound():
    recorder = make_recorder(make_trace_job())
    for now_ms in range(1_000, 20_000_000, 1_000):
        if now_ms > recorder.next_sample_ms:
            recorder.sample(now_ms)
    times = finish(recorder, 20_000_000).series.time_ms
    assert SAMPLES_MAX // 2 <= len(times) <= SAMPLES_MAX
    assert (np.diff(times) > 0).all()


def test_thinned_samples_keep_what_is_in_force_on_the_coarser_grid():
    samples = [(0, 1), (10, 2), (20, 3), (50, 4)]
    assert thin_samples(samples, 20) == [(0, 1), (20, 3), (60, 4)]


def test_capacity_integral_ends_within_a_step():
    assert capacity_milli_ms([(0, 5), (10, 2), (40, 9)], 20) == 5 * 10 + 2 * 10


@pytest.mark.parametrize("count", [0, 1])
def test_empty_workload_has_a_result(count):
    result = finish(make_recorder(*[make_trace_job()] * count), 0)
    assert len(result.jobs) == count
    assert result.allocated_device_ms == 0


@given(
    run_ms=st.integers(1, 5_000),
    ppm=st.integers(1, 5 * REFERENCE_PPM),
    interval_ms=st.integers(1, 2_000),
    cost_ms=st.integers(0, 50),
    cuts=st.lists(st.integers(0, 3_000), max_size=5),
)
def test_saved_work_is_never_done_twice_and_nothing_drifts(run_ms, ppm, interval_ms, cost_ms, cuts):
    progress = Progress(run_ms, Checkpoint(interval_ms=interval_ms, cost_ms=cost_ms))
    now_ms = spent = safe_before = 0
    for cut in cuts:
        end_ms = progress.work(now_ms, ppm=ppm, milli=1_000, pause_ms=3)
        until_ms = min(now_ms + cut, end_ms - 1)
        progress.pause(max(until_ms, now_ms))
        spent += max(until_ms, now_ms) - now_ms
        now_ms = max(until_ms, now_ms)
        assert not progress.is_done
        assert safe_before <= progress.safe <= run_ms * REFERENCE_PPM
        progress.save()
        safe_before = progress.safe
    end_ms = progress.work(now_ms, ppm=ppm, milli=1_000, pause_ms=3)
    progress.pause(end_ms)
    progress.save()
    assert progress.is_done
    assert progress.saved_ms == run_ms
    useful, lost = progress.settle()
    assert useful + lost == 1_000 * (spent + end_ms - now_ms)


def test_job_is_not_done_one_millisecond_before_its_end():
    progress = Progress(1_000, Checkpoint(interval_ms=300, cost_ms=7))
    end_ms = progress.work(0, ppm=REFERENCE_PPM // 3, milli=1_000, pause_ms=11)
    progress.pause(end_ms - 1)
    assert not progress.is_done
    assert end_ms == 11 + 3_001 + 3 * 7
