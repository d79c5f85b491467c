"""The figures of the case study, on runs small enough for a unit test; the whole study is run by `make run`."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from clearway.bootstrap.casestudy import (
    CaseStudyRun,
    burst_floor_s,
    case_study_as_json,
    measure_side,
    run_study,
    training_run_change,
    training_time_change,
)
from clearway.cli.messages import Language
from clearway.cli.session import Session
from clearway.cli.show_casestudy import show_case_study
from clearway.model.cluster import ClusterSpec
from clearway.model.jobs import JobKind
from clearway.model.units import DAY_MS
from clearway.sim.casestudy import PUBLISHED, make_case_study
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


def make_run():
    """Figures made up; the runs behind them are not looked at."""
    figures = measure_side(SIDE, BURST)
    return CaseStudyRun(
        study=make_case_study(seed=0),
        static=None,
        dynamic=None,
        static_figures=replace(figures, training_jct_mean_s=20.0),
        dynamic_figures=figures,
        offered_training=100.0,
        offered_inference=10.0,
        burst_floor_s=660.0,
    )


def test_the_change_of_training_time_is_relative_to_the_static_side():
    assert training_time_change(make_run()) == -0.5


def test_the_document_holds_both_sides_and_the_published_result():
    document = case_study_as_json(make_run())
    assert document["static"]["training_jct_mean_s"] == 20.0
    assert document["clearway"]["tasks"]["tasks"] == 3
    assert document["published"]["use_dynamic"] == 0.82
    assert document["static_devices"] == {"training": 72, "inference": 56}


@pytest.mark.parametrize(("language", "words"), [(Language.ENGLISH, "Offered load"), (Language.CHINESE, "提交的负载")])
def test_both_sides_stand_beside_the_published_result(language, words):
    screen = Console(file=StringIO(), width=160)
    show_case_study(Session(language=language, screen=screen, notes=screen), make_run())
    text = screen.file.getvalue()
    for part in (words, "55.0 %", "82.0 %", "60.0 %", "−50.0 %", "−15.0 %", "72", "11.0 min"):
        assert part in text


def make_short_study():
    """The first eleven days of training with the tasks of the two days about the burst only."""
    study = make_case_study(0)

    def shortened(setup):
        kept = tuple(
            job
            for job in setup.workload.jobs
            if job.submit_ms < 11 * DAY_MS and (job.spec.kind is JobKind.TRAIN or job.submit_ms >= 9 * DAY_MS)
        )
        return replace(setup, workload=replace(setup.workload, jobs=kept))

    training, inference = study.static
    return replace(study, static=(shortened(training), shortened(inference)), dynamic=shortened(study.dynamic))


@pytest.mark.slow
def test_short_study_beats_what_was_published_where_anything_can():
    run = run_study(make_short_study())
    static, dynamic = run.static_figures, run.dynamic_figures
    assert dynamic.use_ratio > static.use_ratio
    assert dynamic.steady.p50_s * 1_000 <= PUBLISHED.wait_dynamic_ms, "outside the burst"
    assert run.burst_floor_s <= dynamic.burst.mean_s < static.burst.mean_s
    assert training_time_change(run) <= PUBLISHED.training_time_ratio
    assert training_run_change(run) <= 0.05, "tasks that come first hardly slow training down"
    assert dynamic.tasks.tasks == static.tasks.tasks
