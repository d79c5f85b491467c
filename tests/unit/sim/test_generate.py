import resource
from dataclasses import replace
from pathlib import Path

import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import JobSpec, Request
from clearway.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from clearway.sim.bursts import SessionModel
from clearway.sim.fitting import fit_model
from clearway.sim.generate import SyntheticSpec, generate, is_synthetic, parse_synthetic
from clearway.sim.quantiles import PROBABILITIES
from clearway.sim.synthetic import BUILT_IN_MODELS, generate_from_spec
from clearway.sim.traces import read_workload
from clearway.sim.workload import TraceJob, Workload
from support.files import write_lines
from support.shared import TRACES, needs_traces

PHILLY = BUILT_IN_MODELS["philly-like"]


def work_s(workload):
    return sum(job.run_ms * job.spec.replicas * job.spec.request.device_milli for job in workload.jobs) / 1e6


def test_the_same_seed_gives_the_same_jobs():
    assert generate(PHILLY, jobs=500, seed=1).jobs == generate(PHILLY, jobs=500, seed=1).jobs
    assert generate(PHILLY, jobs=500, seed=1).jobs != generate(PHILLY, jobs=500, seed=2).jobs


def test_jobs_are_numbered_in_order_of_submit_from_zero():
    jobs = generate(PHILLY, jobs=2_000, seed=5).jobs
    assert [job.spec.id for job in jobs] == list(range(1, 2_001))
    assert [job.submit_ms for job in jobs] == sorted(job.submit_ms for job in jobs)
    assert jobs[0].submit_ms == 0


def test_the_load_asked_for_is_the_load_offered():
    workload = generate(PHILLY, jobs=20_000, seed=7, load=0.8, devices=256)
    assert work_s(workload) / 256 / (workload.jobs[-1].submit_ms / 1000) == pytest.approx(0.8, rel=0.05)


def test_days_without_a_load_come_at_the_rate_of_the_model():
    workload = generate(PHILLY, days=10, seed=1)
    assert len(workload.jobs) == round(PHILLY.jobs_per_hour * 240)
    assert workload.jobs[-1].submit_ms == pytest.approx(10 * DAY_MS, rel=0.1)


def test_arrivals_follow_the_hours_of_the_day():
    counts = [0] * 24
    for job in generate(PHILLY, jobs=50_000, seed=2).jobs:
        counts[job.submit_ms // HOUR_MS % 24] += 1
    assert counts[7] > 1.5 * counts[17]


def test_limits_are_whole_minutes_and_never_below_the_run():
    for job in generate(PHILLY, jobs=2_000, seed=2).jobs:
        assert job.spec.limit_ms % MINUTE_MS == 0
        assert job.run_ms <= job.spec.limit_ms == job.spec.estimate_ms


def test_equal_shapes_share_one_request():
    jobs = generate(PHILLY, jobs=1_000, seed=2).jobs
    assert len({id(job.spec.request) for job in jobs}) <= len(PHILLY.shapes)


def test_the_built_in_model_is_complete():
    assert all(len(shape.run_quantiles_s) == len(PROBABILITIES) for shape in PHILLY.shapes)
    assert len(PHILLY.limit_quantiles) == len(PROBABILITIES)


def test_a_model_fitted_to_what_it_drew_is_close_to_itself():
    fitted = fit_model(generate(PHILLY, jobs=50_000, seed=11))
    assert fitted.jobs_per_hour == pytest.approx(PHILLY.jobs_per_hour, rel=0.05)
    assert fitted.device_seconds_per_job == pytest.approx(PHILLY.device_seconds_per_job, rel=0.25)
    assert len(fitted.tenants) <= 13
    assert fitted.shapes[0].weight == pytest.approx(PHILLY.shapes[0].weight / 1e6, abs=0.02)


def test_a_trace_without_devices_cannot_be_fitted(tmp_path):
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    workload = read_workload(write_lines(tmp_path / "p.csv", header, "a,1,1,0,0"))
    with pytest.raises(InputError, match="at least one job with devices"):
        fit_model(workload)


def test_a_spec_is_parsed():
    assert parse_synthetic("synthetic:philly-like?jobs=10000&load=0.9&devices=512") == SyntheticSpec(
        model="philly-like", jobs=10_000, load=0.9, devices=512
    )
    assert parse_synthetic("synthetic:philly-like").jobs == 10_000
    assert parse_synthetic("synthetic:x?days=2.5") == SyntheticSpec(model="x", days=2.5)
    assert is_synthetic("synthetic:x")
    assert not is_synthetic("philly.csv")


@pytest.mark.parametrize(
    "query",
    [
        "jobs=0",
        "jobs=many",
        "jobs=1.5",
        "jobs=99999999999",
        "job=5",
        "jobs=5&days=1",
        "load=0.5",
        "devices=8",
        "days=nan",
        "jobs=5&jobs=6",
        "jobs=",
    ],
)
def test_a_spec_that_is_not_understood_is_an_error_with_an_example(query):
    with pytest.raises(InputError, match="for example synthetic:philly-like"):
        parse_synthetic(f"synthetic:philly-like?{query}")


def test_an_unknown_model_lists_the_known():
    with pytest.raises(InputError, match="known are: synthetic:philly-like"):
        generate_from_spec("synthetic:unknown")


def test_a_spec_is_read_like_a_trace_and_cut_by_the_limit():
    workload = read_workload("synthetic:philly-like?jobs=50", limit=20, seed=3)
    assert workload.jobs == generate(PHILLY, jobs=50, seed=3).jobs[:20]


@needs_traces
def test_the_built_in_numbers_are_those_of_the_real_trace():
    fitted = fit_model(read_workload(TRACES / "philly" / "philly_jobs_13vc.csv.gz"))
    assert PHILLY.jobs_per_hour == pytest.approx(fitted.jobs_per_hour, rel=1e-3)
    assert PHILLY.hour_weights == pytest.approx(fitted.hour_weights, abs=1e-3)
    assert [shape.run_quantiles_s for shape in PHILLY.shapes] == [
        pytest.approx(shape.run_quantiles_s, rel=1e-3, abs=0.5) for shape in fitted.shapes
    ]


def in_memory(memory_bytes, call):
    """What `call` gives while this process may take so much more memory than it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, hard))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


MANY = (1e9,) * len(PROBABILITIES)


def test_a_burst_or_session_of_a_thousand_million_takes_no_memory_beyond_what_is_drawn():
    sessions = SessionModel(
        batch_quantiles=MANY,
        pause_quantiles_s=(0.0,) * len(PROBABILITIES),
        shape_likeness=0.0,
        size_likeness=0.0,
        pause_likeness=0.0,
    )
    bursts = tuple(replace(shape, burst_probability=1.0, burst_size_quantiles=MANY) for shape in PHILLY.shapes)
    for model in (replace(PHILLY, shapes=bursts), replace(PHILLY, sessions=sessions)):
        assert len(in_memory(1 << 30, lambda model=model: generate(model, jobs=300).jobs)) == 300


@pytest.mark.parametrize("asked", [{"jobs": 300}, {"days": 40_000}, {"jobs": 300, "load": 1e-9, "devices": 1}])
def test_arrivals_over_more_than_a_century_are_refused(asked):
    with pytest.raises(InputError, match=r"expected arrivals within 36525 days .* found"):
        generate(replace(PHILLY, jobs_per_hour=1e-7), **asked)


def test_bursts_without_sessions_that_last_more_than_a_century_are_refused():
    with pytest.raises(InputError, match="expected arrivals within 36525 days"):
        generate(replace(PHILLY, burst_gap_s=1e9), jobs=300)


def test_more_jobs_than_can_be_counted_are_refused_with_their_number():
    with pytest.raises(InputError, match=r"expected at most 10000000 jobs, found 4.8e\+10; ask"):
        generate(replace(PHILLY, jobs_per_hour=1e9), days=2)
    idle = tuple(replace(shape, run_quantiles_s=(0.0,) * len(PROBABILITIES)) for shape in PHILLY.shapes)
    with pytest.raises(InputError, match="expected at most 10000000 jobs"):
        generate(replace(PHILLY, shapes=idle), days=2, load=0.9, devices=64)


def test_jobs_that_come_all_at_once_come_within_a_millisecond():
    jobs = generate(replace(PHILLY, burst_gap_s=0.0), jobs=10, load=1e9, devices=10**9).jobs
    assert {job.submit_ms for job in jobs} <= {0, 1}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, 10), (10**10, 10), (10**10 + 1, 5)], "expected submits within 36525 days .* found 115741"),
        ([(0, 10), (60, 2 * 10**9)], "expected run times of at most 1e\\+09 s, found 2e\\+09 s of job 2"),
    ],
)
def test_a_trace_of_which_no_model_can_be_drawn_is_not_fitted(rows, said):
    jobs = [
        TraceJob(JobSpec(id=number, request=Request(devices=1)), submit_s * 1000, run_s * 1000)
        for number, (submit_s, run_s) in enumerate(rows, start=1)
    ]
    with pytest.raises(InputError, match=said):
        fit_model(Workload(name="far", jobs=tuple(jobs)))
