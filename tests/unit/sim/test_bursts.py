import numpy as np
import pytest

from clearway.model.ids import JobId
from clearway.model.jobs import JobSpec, Request
from clearway.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from clearway.sim.bursts import (
    STRETCH_BATCHES,
    draw_alike,
    draw_gaps,
    find_batches,
    fit_likeness,
    fit_paces,
    group_by_gap,
    rates_of_begins,
    stretches_of,
)
from clearway.sim.fit_quality import dispersion as dispersion_of_times
from clearway.sim.fitting import fit_model
from clearway.sim.generate import generate
from clearway.sim.quantiles import PROBABILITIES
from clearway.sim.synthetic import BUILT_IN_MODELS
from clearway.sim.traces import read_workload
from clearway.sim.workload import TraceJob, Workload
from support.shared import TRACES, needs_traces


def dispersion(workload, bin_ms):
    return dispersion_of_times(np.array([job.submit_ms for job in workload.jobs]), bin_ms)


def workload_of(rows):
    """rows: (submit in seconds, user, run in seconds)."""
    jobs = [
        TraceJob(
            JobSpec(id=JobId(number), request=Request(devices=1), user=user), submit_s * SECOND_MS, run_s * SECOND_MS
        )
        for number, (submit_s, user, run_s) in enumerate(sorted(rows), start=1)
    ]
    return Workload(name="made", jobs=jobs)


def rows_of_bursts():
    """Over 30 days: 100 bursts of 300 jobs in one second, 400 of 5 jobs 20 s apart, 3,000 jobs alone."""
    rng = np.random.default_rng(8)
    day_s = DAY_MS // SECOND_MS
    rows = []
    for count, jobs, gap_s in ((100, 300, 0), (400, 5, 20), (3000, 1, 0)):
        for start_s in rng.integers(0, 30 * day_s, count).tolist():
            user, run_s = f"user{rng.integers(20)}", int(rng.integers(60, 7200))
            rows += [(start_s + gap_s * place, user, run_s + place % 7) for place in range(jobs)]
    return rows


# --- Fitting ---------------------------------------------------------------------------------------------------------


def test_items_of_one_key_within_the_gap_are_one_group():
    assert group_by_gap(["a", "b", "a", "a", "b"], [0, 5, 10, 21, 15], 10).tolist() == [0, 1, 0, 2, 1]


def test_batches_have_one_user_and_shape_and_sessions_one_user():
    half_hour_ms = 30 * MINUTE_MS
    batches = find_batches(
        owners=["ann", "ann", "ann", "bob", "ann", "ann"],
        shapes=[1, 8, 1, 1, 1, 1],
        times_ms=[0, 1000, 2000, 3000, half_hour_ms, 3 * half_hour_ms],
    )
    assert batches.of_job.tolist() == [0, 1, 0, 2, 3, 4]
    assert batches.jobs.tolist() == [2, 1, 1, 1, 1]
    assert batches.session.tolist() == [0, 0, 1, 0, 2]
    assert batches.session_rows.tolist() == [0, 3, 5]
    assert batches.last_ms.tolist() == [2000, 1000, 3000, half_hour_ms, 3 * half_hour_ms]
    assert batches.mean_gap_s == 2


def test_pace_goes_by_the_size_of_the_burst():
    times_ms = [0, 40_000, *[DAY_MS] * 100]
    pair, hundred = fit_paces(find_batches(["ann"] * 102, [1] * 102, times_ms))
    assert (pair.jobs_min, hundred.jobs_min) == (2, 64)
    assert set(pair.gap_quantiles_s) == {40}
    assert set(hundred.gap_quantiles_s) == {0}


def test_begins_are_such_that_what_follows_comes_at_the_hours_wanted():
    """Jobs come at 9, 10 and 11; each session has one in its first hour and in the next two."""
    hours = [8.0 if 9 <= hour < 12 else 0.0 for hour in range(24)]
    weights = rates_of_begins(np.array([0.0, HOUR_MS, 2.0 * HOUR_MS]), hours)
    assert weights[9] > 0.95 * sum(weights)


def test_likeness_is_that_with_which_values_were_drawn():
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(4_000), 5)
    none = np.zeros_like(group)
    for likeness in (0.0, 0.4, 0.8, 1.0):
        values = np.rint(1e9 * draw_alike(group, likeness, rng)).astype(np.int64)
        assert fit_likeness(values, none, group) == pytest.approx(likeness, abs=0.12)


@pytest.mark.parametrize("values", [[], [5], [5, 5, 5]])
def test_likeness_of_values_that_do_not_differ_is_none(values):
    none = np.zeros(len(values), dtype=np.int64)
    assert fit_likeness(np.array(values, dtype=np.int64), none, none) == 0


# --- Drawing ---------------------------------------------------------------------------------------------------------


def test_alike_draws_lie_close_together_and_share_the_whole_range_out_evenly():
    group = np.repeat(np.arange(10), 100)
    points = draw_alike(group, 1.0, np.random.default_rng(1))
    assert all(np.ptp(points[group == row]) <= 0.1 for row in range(10))
    assert np.histogram(points, 1000, (0, 1))[0].tolist() == [1] * 1000


def test_stretches_end_with_the_session_and_after_so_many_batches():
    session = np.repeat([0, 1], [2, STRETCH_BATCHES + 1])
    assert stretches_of(session).tolist() == [0, 0, *[1] * STRETCH_BATCHES, 2]


def test_gaps_have_the_pace_of_their_burst():
    times_ms = [0, 40_000, *[DAY_MS] * 100]
    paces = fit_paces(find_batches(["ann"] * 102, [1] * 102, times_ms))
    batch = np.repeat(np.arange(1_001), [2] * 1_000 + [100])
    gaps_ms = draw_gaps(paces, batch, np.random.default_rng(2))
    assert gaps_ms[:2_000].mean() == pytest.approx(40_000, rel=0.1)
    assert not gaps_ms[2_000:].any()


# --- Whole models ----------------------------------------------------------------------------------------------------


def test_bursts_of_one_second_stay_so_beside_slow_ones():
    trace = workload_of(rows_of_bursts())
    model = fit_model(trace)
    for seed in range(3):
        drawn = generate(model, jobs=len(trace.jobs), seed=seed)
        for bin_ms in (SECOND_MS, MINUTE_MS, HOUR_MS):
            assert 1 / 1.5 < dispersion(drawn, bin_ms) / dispersion(trace, bin_ms) < 1.5
        assert all(job.submit_ms % SECOND_MS == 0 for job in drawn.jobs)


def test_jobs_of_sessions_follow_the_hours_of_the_trace():
    """Forty users submit every five minutes from 9 to 12 on thirty days.

    What is drawn begins anywhere in its hour and so ends half an hour late on average, with a seventh of the jobs; if
    sessions began when jobs come, it were about half of them.
    """
    rows = [
        (day * 86_400 + 9 * 3600 + 300 * place, f"user{user}", 60)
        for day in range(30)
        for user in range(40)
        for place in range(36)
    ]
    drawn = generate(fit_model(workload_of([(0, "first", 60), *rows])), jobs=20_000, seed=1)
    hours = [(drawn.start_unix_ms + job.submit_ms) // HOUR_MS % 24 for job in drawn.jobs]
    assert np.mean([9 <= hour < 12 for hour in hours]) > 0.8


def test_jobs_of_a_burst_are_of_one_user_and_run_alike():
    trace = workload_of(rows_of_bursts())
    drawn = generate(fit_model(trace), jobs=len(trace.jobs), seed=1)
    by_second = {}
    for job in drawn.jobs:
        by_second.setdefault((job.submit_ms, job.spec.user), []).append(job.run_ms)
    bursts = [runs_ms for runs_ms in by_second.values() if len(runs_ms) > 100]
    assert len(bursts) > 60
    spreads = [np.subtract(*np.percentile(runs_ms, (75, 25))) for runs_ms in bursts]
    whole = np.subtract(*np.percentile([job.run_ms for job in drawn.jobs], (75, 25)))
    assert np.median(spreads) < 0.2 * whole


def test_a_session_longer_than_what_is_asked_for_does_not_stretch_it():
    """One user who submits every ten minutes for thirty days is one session."""
    model = fit_model(workload_of([(600 * place, "ann", 60) for place in range(30 * 144)]))
    assert model.sessions.batch_quantiles[-1] == 30 * 144
    assert generate(model, days=2, seed=1).jobs[-1].submit_ms < 2 * DAY_MS
    offered = generate(model, jobs=2_000, seed=1, load=0.5, devices=4)
    assert 2_000 * 60 / (offered.jobs[-1].submit_ms / SECOND_MS) / 4 == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("rows", [[(0, "ann", 5)], [(0, "ann", 5), (9, "bob", 5)], [(0, "ann", 5)] * 3])
def test_a_trace_of_a_few_jobs_can_be_fitted_and_drawn(rows):
    model = fit_model(workload_of(rows))
    assert len(generate(model, jobs=40, seed=1).jobs) == 40
    assert all(len(pace.gap_quantiles_s) == len(PROBABILITIES) for pace in model.burst_paces)


def test_a_model_without_sessions_draws_what_it_always_drew():
    jobs = generate(BUILT_IN_MODELS["philly-like"], jobs=500, seed=1).jobs[::100]
    assert [(job.submit_ms, job.run_ms, job.spec.user) for job in jobs] == [
        (0, 1348716, "user2"),
        (17342031, 58627, "user26"),
        (18099528, 3001656, "user26"),
        (29935089, 1134561, "user126"),
        (59685396, 1070425, "user2"),
    ]


def agree(trace, model, seeds):
    """The mean over seeds of what is drawn agrees with the trace: bunching within 1.5 times, work within 15 %, the
    hours of the day within a quarter of the mean rate."""
    drawn = [generate(model, jobs=round(model.jobs_per_hour * span_h(trace)), seed=seed) for seed in range(seeds)]
    for bin_ms in (MINUTE_MS, HOUR_MS):
        ratio = np.mean([dispersion(one, bin_ms) for one in drawn]) / dispersion(trace, bin_ms)
        assert 1 / 1.5 < ratio < 1.5
    assert np.mean([work_s(one) for one in drawn]) == pytest.approx(work_s(trace), rel=0.15)
    hours = np.mean([fit_model(one).hour_weights for one in drawn], axis=0)
    assert np.abs(hours - model.hour_weights).mean() < 0.25


def span_h(workload):
    return max(1.0, (workload.jobs[-1].submit_ms - workload.jobs[0].submit_ms) / HOUR_MS)


def work_s(workload):
    return sum(job.run_ms * job.spec.replicas * job.spec.request.device_milli for job in workload.jobs) / 1e6


@needs_traces
@pytest.mark.parametrize(
    "name",
    [
        "philly/philly_jobs_13vc.csv.gz",
        "swf/NASA-iPSC-1993-3.1-cln.swf.gz",
        "swf/metacentrum-wagap-2013.swf.gz",
        pytest.param("swf/RICC-2010-2.swf.gz", marks=pytest.mark.slow),
    ],
)
def test_jobs_of_a_fitted_model_bunch_as_those_of_the_real_trace(name):
    trace = read_workload(TRACES / name)
    agree(trace, fit_model(trace), seeds=3 if len(trace.jobs) < 100_000 else 1)
