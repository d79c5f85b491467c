import pytest

from clearway.model.jobs import JobKind
from clearway.model.units import DAY_MS
from clearway.sim.casestudy import (
    BURST_AT_MS,
    BURST_TASKS,
    DAYS,
    FAULT,
    SPEEDUP,
    TASK_MAX_MS,
    TASK_MIN_MS,
    make_case_study,
    offered_devices,
)

STUDY = make_case_study(seed=0)
TRAINING = [job for job in STUDY.dynamic.workload.jobs if job.spec.kind is JobKind.TRAIN]
TASKS = [job for job in STUDY.dynamic.workload.jobs if job.spec.kind is JobKind.TASK]


def truth_about(setups):
    """What must be the same for the same job on both sides, by id."""
    return {
        job.spec.id: (job.spec.kind, job.spec.replicas, job.spec.checkpoint, job.submit_ms, job.run_ms)
        for setup in setups
        for job in setup.workload.jobs
    }


def test_the_centre_has_sixteen_nodes_of_eight_devices():
    assert [node.device_count for node in STUDY.dynamic.cluster.nodes] == [8] * 16


def test_the_static_parts_are_the_same_machine_cut_in_two():
    training, inference = STUDY.static
    assert training.cluster.nodes + inference.cluster.nodes == STUDY.dynamic.cluster.nodes
    assert {job.spec.kind for job in training.workload.jobs} == {JobKind.TRAIN}
    assert {job.spec.kind for job in inference.workload.jobs} == {JobKind.TASK}


def test_the_same_seed_makes_the_same_study_and_another_seed_another():
    assert make_case_study(seed=0) == STUDY
    assert make_case_study(seed=1) != STUDY


def test_both_sides_get_the_same_jobs_at_the_same_times():
    assert truth_about(STUDY.static) == truth_about([STUDY.dynamic])


def test_the_same_node_fails_on_both_sides():
    training, _ = STUDY.static
    assert training.faults == STUDY.dynamic.faults == (FAULT,)
    assert training.cluster.nodes[FAULT.node_index] == STUDY.dynamic.cluster.nodes[FAULT.node_index]


def test_jobs_are_numbered_in_order_of_submission():
    jobs = STUDY.dynamic.workload.jobs
    assert [job.spec.id for job in jobs] == list(range(1, len(jobs) + 1))
    assert [job.submit_ms for job in jobs] == sorted(job.submit_ms for job in jobs)


def test_training_stays_within_the_published_ranges():
    per_day = [sum(job.submit_ms // DAY_MS == day for job in TRAINING) for day in range(DAYS)]
    assert all(5 <= count <= 10 for day, count in enumerate(per_day) if day % 7 < 5)
    assert all(count == 0 for day, count in enumerate(per_day) if day % 7 >= 5)
    assert all(8 <= job.spec.replicas <= 16 for job in TRAINING)
    assert all(2 * DAY_MS <= job.run_ms <= 7 * DAY_MS for job in TRAINING)


def test_about_a_hundred_tasks_arrive_in_an_hour_and_each_takes_minutes():
    assert abs((len(TASKS) - BURST_TASKS) / (DAYS * 24) - 100) < 2
    assert all(TASK_MIN_MS <= job.run_ms <= TASK_MAX_MS for job in TASKS)
    mean_ms = sum(job.run_ms for job in TASKS) / len(TASKS)
    assert abs(mean_ms / 360_000 - 1) < 0.02


def test_the_burst_is_a_thousand_tasks_at_one_moment():
    burst = [job for job in STUDY.dynamic.workload.jobs if job.spec.id in STUDY.burst_jobs]
    assert len(burst) == BURST_TASKS
    assert {job.submit_ms for job in burst} == {BURST_AT_MS}
    assert {job.spec.kind for job in burst} == {JobKind.TASK}


def test_the_offered_load_fits_the_centre_but_not_its_training_part():
    training = offered_devices(STUDY.dynamic.workload, JobKind.TRAIN)
    inference = offered_devices(STUDY.dynamic.workload, JobKind.TASK)
    training_part, inference_part = (setup.cluster.device_count for setup in STUDY.static)
    assert training_part < training < 128 - inference
    assert 9 < inference < 11 < inference_part


def test_the_static_side_can_be_cut_elsewhere():
    training, inference = make_case_study(seed=0, training_nodes=12).static
    assert [training.cluster.device_count, inference.cluster.device_count] == [96, 32]


def test_one_node_is_too_few_for_the_largest_training_job():
    with pytest.raises(AssertionError):
        make_case_study(seed=0, training_nodes=1)


def test_only_the_dynamic_side_may_resize_training():
    assert all(job.spec.elastic is None for setup in STUDY.static for job in setup.workload.jobs)
    assert all(job.spec.elastic is not None for job in TRAINING)


def test_more_devices_never_speed_training_up_more_than_in_proportion():
    per_device = [speed / replicas for replicas, speed in SPEEDUP]
    assert per_device == sorted(per_device, reverse=True)
