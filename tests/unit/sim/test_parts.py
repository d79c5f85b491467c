import numpy as np

from clearway.sim.parts import add_parts
from support.results import make_columns, make_result, make_series


def make_part(jobs, series, **integrals):
    return make_result(jobs, series=series, **integrals)


TRAINING = make_part(
    make_columns(2, kinds=("train",), tenants=("research",), job=[1, 4], submit_ms=[0, 900], end_ms=[500, 2_000]),
    make_series(time_ms=(0, 1_000, 2_000), allocated_milli=(3_000, 1_000, 0), capacity_milli=4_000),
    allocated=6_000,
    capacity=8_000,
    useful=5_000,
)
INFERENCE = make_part(
    make_columns(2, kinds=("task",), tenants=("product",), job=[2, 3], submit_ms=[100, 100], end_ms=[200, 1_500]),
    make_series(time_ms=(0, 500, 1_500), allocated_milli=(1_000, 2_000, 0), capacity_milli=2_000),
    allocated=1_400,
    capacity=3_000,
    useful=1_300,
)
WHOLE = add_parts([TRAINING, INFERENCE], policy="static", cluster="3x2")


def test_jobs_of_all_parts_stand_in_order_of_submission():
    assert WHOLE.jobs.job.tolist() == [1, 2, 3, 4]
    assert WHOLE.jobs.submit_ms.tolist() == [0, 100, 100, 900]
    assert WHOLE.jobs.end_ms.tolist() == [500, 200, 1_500, 2_000]


def test_names_are_joined_though_parts_number_them_alike():
    assert [WHOLE.jobs.kind_names[code] for code in WHOLE.jobs.kind] == ["train", "task", "task", "train"]
    assert [WHOLE.jobs.tenant_names[code] for code in WHOLE.jobs.tenant] == [
        "research",
        "product",
        "product",
        "research",
    ]


def test_a_job_that_has_not_ended_has_no_outcome_in_the_whole_either():
    part = make_result(make_columns(2, outcome=[0, -1]), series=make_series())
    assert add_parts([part], policy="static", cluster="1x4").jobs.outcome.tolist() == [0, -1]


def test_the_series_is_the_sum_at_every_moment_of_any_part():
    assert WHOLE.series.time_ms.tolist() == [0, 500, 1_000, 1_500, 2_000]
    assert WHOLE.series.allocated_milli.tolist() == [4_000, 5_000, 3_000, 1_000, 0]
    assert WHOLE.series.capacity_milli.tolist() == [6_000] * 5


def test_a_part_that_is_done_early_stays_in_the_account_as_idle():
    assert WHOLE.capacity_device_ms == 8_000 + 3_000 + 2 * 500
    assert WHOLE.allocated_device_ms == 7_400
    assert WHOLE.useful_device_ms == 6_300


def test_one_part_alone_is_the_whole():
    alone = add_parts([TRAINING], policy="fifo", cluster="1x4")
    assert alone.capacity_device_ms == TRAINING.capacity_device_ms
    assert np.array_equal(alone.series.allocated_milli, TRAINING.series.allocated_milli)
