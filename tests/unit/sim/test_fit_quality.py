"""Models as files, and how well a fit is said to be."""

from dataclasses import replace

import numpy as np
import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import JobKind
from clearway.model.units import MINUTE_MS
from clearway.sim.fit_quality import dispersion, judge_fit
from clearway.sim.fitting import fit_model
from clearway.sim.generate import generate
from clearway.sim.model_file import read_model, render_model
from clearway.sim.synthetic import generate_from_spec
from clearway.sim.synthetic_philly import PHILLY_LIKE
from clearway.sim.traces import detect_format, read_workload
from support.shared import TRACES, needs_traces


@pytest.fixture(scope="module")
def made():
    """A workload whose parameters are known: those of the built-in model, with bursts of at most eight jobs."""
    shapes = tuple(
        replace(shape, burst_size_quantiles=tuple(min(8.0, size) for size in shape.burst_size_quantiles))
        for shape in PHILLY_LIKE.shapes
    )
    kinds = ((JobKind.TRAIN, 3.0), (JobKind.TASK, 1.0))
    return generate(replace(PHILLY_LIKE, shapes=shapes, kinds=kinds), jobs=20_000, seed=4)


@pytest.fixture(scope="module")
def model(made):
    return fit_model(made, "made")


def write_model(model, path):
    path.write_text(render_model(model), encoding="utf-8")
    return path


def test_arrivals_one_by_one_are_dispersed_less_than_independent_ones_and_bursts_more():
    rng = np.random.default_rng(1)
    independent = np.sort(rng.integers(0, 10_000 * MINUTE_MS, 30_000))
    assert dispersion(independent, MINUTE_MS) == pytest.approx(1, abs=0.05)
    assert dispersion(np.arange(1_000) * MINUTE_MS, MINUTE_MS) == 0
    assert dispersion(np.repeat(independent, 10), MINUTE_MS) == pytest.approx(10, rel=0.1)


def test_fit_recovers_what_a_workload_was_drawn_from(model):
    assert model.jobs_per_hour == pytest.approx(PHILLY_LIKE.jobs_per_hour, rel=0.05)
    assert np.abs(np.array(model.hour_weights) - PHILLY_LIKE.hour_weights).mean() < 0.1
    assert [(kind, weight / 20_000) for kind, weight in model.kinds] == [
        (JobKind.TRAIN, pytest.approx(0.75, abs=0.03)),
        (JobKind.TASK, pytest.approx(0.25, abs=0.03)),
    ]
    one = next(shape for shape in model.shapes if shape.device_milli == 1000)
    assert one.run_quantiles_s[2:19] == pytest.approx(PHILLY_LIKE.shapes[0].run_quantiles_s[2:19], rel=0.2)
    assert np.median(model.limit_quantiles) == pytest.approx(np.median(PHILLY_LIKE.limit_quantiles), rel=0.25)


def test_what_is_drawn_from_a_fit_is_told_beside_the_trace(made, model):
    quality = judge_fit(made, model)
    rows = {row.key: row for row in quality.rows}
    assert (quality.jobs, quality.jobs_without_devices, quality.draws) == (20_000, 0, 5)
    assert rows["load"].trace == pytest.approx(
        20_000 * rows["device_s_per_job"].trace / (made.jobs[-1].submit_ms / 1000)
    )
    for key in ("jobs_per_hour", "load", "run_p50", "run_p90", "devices_mean"):
        assert rows[key].ratio == pytest.approx(1, abs=0.15), key
    assert sum(quality.hours_trace) == pytest.approx(24)


def test_a_model_that_does_not_fit_is_told_so(made, model):
    """Without bursts of several jobs arrivals are not as dispersed as they were."""
    single = replace(model, shapes=tuple(replace(shape, burst_probability=0.0) for shape in model.shapes))
    rows = {row.key: row for row in judge_fit(made, single).rows}
    assert rows["dispersion_minute"].ratio < 0.6


def test_a_model_that_was_written_is_read_as_it_was_but_for_digits_beyond_six(model, tmp_path):
    read = read_model(write_model(model, tmp_path / "model.yaml"))
    assert render_model(read) == render_model(model)
    assert read_model(write_model(read, tmp_path / "again.yaml")) == read
    assert read.sessions.pause_quantiles_s == pytest.approx(model.sessions.pause_quantiles_s, rel=1e-5)
    assert [shape.run_quantiles_s for shape in read.shapes] == [
        pytest.approx(shape.run_quantiles_s, rel=1e-5) for shape in model.shapes
    ]


def test_the_built_in_model_passes_through_a_file_unchanged(tmp_path):
    assert read_model(write_model(PHILLY_LIKE, tmp_path / "model.yaml")) == PHILLY_LIKE


def test_names_that_yaml_takes_for_numbers_stay_names(model, tmp_path):
    odd = replace(model, name="1e5", tenants=(("1e5", 1.0), ("no", 1.0), ("a: {b}", 1.0), ("视觉", 1.0)))
    read = read_model(write_model(odd, tmp_path / "model.yaml"))
    assert (read.name, read.tenants) == (odd.name, odd.tenants)


def test_a_model_file_is_taken_where_a_built_in_name_is(model, tmp_path):
    path = write_model(model, tmp_path / "model.yaml")
    read = read_model(path)
    spec = f"synthetic:{path}?jobs=200&load=0.9&devices=64"
    assert generate_from_spec(spec, 3).jobs == generate(read, jobs=200, seed=3, load=0.9, devices=64).jobs
    assert detect_format(path) == "synthetic"
    assert read_workload(path, seed=3, limit=50).jobs == generate(read, jobs=10_000, seed=3).jobs[:50]


def test_a_model_file_that_is_not_there_is_said_by_its_path(tmp_path):
    with pytest.raises(InputError, match=r"gone\.yaml: expected a file, found nothing"):
        generate_from_spec(f"synthetic:{tmp_path}/gone.yaml")


@needs_traces
@pytest.mark.parametrize("name", ["swf/NASA-iPSC-1993-3.1-cln.swf.gz", "swf/hpc2n-2002-subset.swf"])
def test_fit_of_a_real_trace_keeps_sizes_run_times_and_load(name, tmp_path):
    trace = read_workload(TRACES / name)
    model = read_model(write_model(fit_model(trace), tmp_path / "model.yaml"))
    rows = {row.key: row for row in judge_fit(trace, model).rows}
    for key in ("jobs_per_hour", "busiest_hour", "devices_mean", "run_mean", "run_p50", "run_p90", "load"):
        assert rows[key].ratio == pytest.approx(1, abs=0.2), key
    assert 0.5 < rows["dispersion_minute"].ratio < 1.5
    assert 0.5 < rows["dispersion_hour"].ratio < 1.5
