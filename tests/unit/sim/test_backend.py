"""The simulated backend: what each command causes, when, and at what price."""

import pytest

from clearway.model.errors import InternalError
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    JobFinished,
    JobResized,
    JobStarted,
    JobStopped,
    JobSuspended,
    NodeDown,
    NodeUp,
)
from clearway.model.jobs import Checkpoint, Elastic, JobKind, Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.sim.backend import BackendSettings
from clearway.sim.faults import Fault
from clearway.sim.workload import job_rows
from support.worlds import BackendBench, make_allocation, make_cluster, make_trace_job

ONE = make_allocation([0], [0])
OTHER = make_allocation([1], [4])
SAVES = Checkpoint(interval_ms=100, cost_ms=10, restart_ms=50)


def stop(generation=1, grace_ms=1_000, cause=StopCause.PREEMPTED, job=1):
    return Stop(job, generation, grace_ms, cause)


def test_job_runs_for_its_run_time_and_ends_with_its_outcome():
    bench = BackendBench(make_trace_job(run_ms=700, outcome=Outcome.FAILED))
    assert bench.perform(5, Start(1, 1, ONE)) == [JobStarted(5, 1, 1)]
    assert bench.run() == [JobFinished(705, 1, 1, Outcome.FAILED)]


def test_run_is_cut_at_its_limit():
    bench = BackendBench(make_trace_job(run_ms=700, limit_ms=600))
    bench.perform(5, Start(1, 1, ONE))
    assert bench.run() == [JobFinished(605, 1, 1, Outcome.TIMEOUT)]


def test_run_that_ends_exactly_at_its_limit_is_completed():
    bench = BackendBench(make_trace_job(run_ms=600, limit_ms=600))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.run() == [JobFinished(600, 1, 1, Outcome.COMPLETED)]


def test_cold_start_delays_the_start_and_the_limit_counts_from_it():
    settings = BackendSettings(cold_start_ms={JobKind.SERVICE: 30})
    bench = BackendBench(make_trace_job(run_ms=700, limit_ms=600, kind=JobKind.SERVICE), settings=settings)
    assert bench.perform(0, Start(1, 1, ONE)) == []
    assert bench.run() == [JobStarted(30, 1, 1), JobFinished(630, 1, 1, Outcome.TIMEOUT)]
    jobs = bench.columns().jobs
    assert (jobs.waited_ms[0], jobs.held_device_ms[0]) == (30, 630)


def test_same_start_twice_starts_once():
    bench = BackendBench(make_trace_job())
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(0, Start(1, 1, ONE)) == []


def test_second_run_of_a_running_job_is_our_bug():
    bench = BackendBench(make_trace_job())
    bench.perform(0, Start(1, 1, ONE))
    with pytest.raises(InternalError, match="expected job 1 to have left"):
        bench.perform(1, Start(1, 2, OTHER))


def test_cancel_ends_the_job_at_once():
    bench = BackendBench(make_trace_job())
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(400, stop(cause=None)) == [JobFinished(400, 1, 1, Outcome.CANCELLED)]
    assert bench.run() == []


def test_stopping_what_is_gone_is_fine():
    bench = BackendBench(make_trace_job())
    assert bench.perform(0, stop()) == []
    bench.perform(0, Start(1, 1, ONE))
    bench.run()
    assert bench.perform(5_000, stop(), stop(cause=None), Suspend(1, 1), Resize(1, 2, OTHER)) == []


def test_stale_stop_does_not_touch_the_later_run():
    bench = BackendBench(make_trace_job())
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(100, stop())
    bench.perform(200, Start(1, 2, ONE))
    assert bench.perform(300, stop(generation=1), Suspend(1, 1)) == []


def test_job_without_checkpoint_loses_everything():
    bench = BackendBench(make_trace_job(run_ms=1_000))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(900, stop()) == [JobStopped(900, 1, 1, StopCause.PREEMPTED, 0)]
    bench.perform(900, Start(1, 2, ONE))
    assert bench.run() == [JobFinished(1_900, 1, 2, Outcome.COMPLETED)]
    result = bench.columns()
    assert result.jobs.lost_device_ms[0] == 900
    assert result.useful_device_ms == 1_000
    assert result.allocated_device_ms == 1_900


def test_job_saves_on_signal_within_the_grace_and_goes_on_from_there():
    bench = BackendBench(
        make_trace_job(run_ms=1_000, checkpoint=Checkpoint(interval_ms=900, cost_ms=10, restart_ms=50))
    )
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(300, stop(grace_ms=10)) == []
    assert bench.run() == [JobStopped(310, 1, 1, StopCause.PREEMPTED, 300)]
    bench.perform(400, Start(1, 2, ONE))
    assert bench.run() == [JobFinished(400 + 50 + 700, 1, 2, Outcome.COMPLETED)]
    result = bench.columns()
    assert result.jobs.lost_device_ms[0] == 10 + 50
    assert result.useful_device_ms == 1_000
    assert result.jobs.waited_ms[0] == 90
    assert (result.jobs.preemptions[0], result.jobs.restarts[0]) == (1, 1)


def test_grace_shorter_than_a_save_falls_back_to_the_last_regular_checkpoint():
    bench = BackendBench(make_trace_job(run_ms=1_000, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    # 100 of work, 10 for the checkpoint, 100 of work, 10 for the checkpoint, 30 of work that is lost
    assert bench.perform(250, stop(grace_ms=9)) == [JobStopped(250, 1, 1, StopCause.PREEMPTED, 200)]
    assert bench.columns().jobs.lost_device_ms[0] == 20 + 30


def test_checkpoint_that_is_being_written_does_not_count_yet():
    bench = BackendBench(make_trace_job(run_ms=1_000, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(109, stop(grace_ms=0))[0].saved_ms == 0


def test_job_that_does_not_save_on_signal_falls_back():
    checkpoint = Checkpoint(interval_ms=100, cost_ms=10, on_signal=False)
    bench = BackendBench(make_trace_job(run_ms=1_000, checkpoint=checkpoint))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(250, stop())[0].saved_ms == 200


def test_checkpoints_cost_time_but_none_is_taken_at_the_very_end():
    bench = BackendBench(make_trace_job(run_ms=300, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.run()[-1].at_ms == 300 + 2 * 10


def test_second_stop_while_saving_changes_nothing_and_a_cancel_ends_it():
    bench = BackendBench(make_trace_job(run_ms=1_000, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(50, stop(), stop(grace_ms=0), Suspend(1, 1), Resize(1, 2, OTHER)) == []
    assert bench.perform(55, stop(cause=None)) == [JobFinished(55, 1, 1, Outcome.CANCELLED)]
    assert bench.run() == []


def test_job_whose_end_is_this_very_moment_finishes_instead_of_stopping():
    bench = BackendBench(make_trace_job(run_ms=100), make_trace_job(2, run_ms=100))
    bench.perform(0, Start(1, 1, ONE), Start(2, 1, OTHER))
    bench.backend.perform(100, stop())
    bench.backend.perform(100, Suspend(2, 1))
    assert bench.run() == [JobFinished(100, 1, 1, Outcome.COMPLETED), JobFinished(100, 2, 1, Outcome.COMPLETED)]


def test_limit_ends_a_job_that_is_saving():
    bench = BackendBench(make_trace_job(run_ms=1_000, limit_ms=60, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(55, stop())
    assert bench.run() == [JobFinished(60, 1, 1, Outcome.TIMEOUT)]


def test_suspended_job_resumes_without_cost_or_delay():
    settings = BackendSettings(cold_start_ms={JobKind.TRAIN: 30})
    bench = BackendBench(make_trace_job(run_ms=1_000, checkpoint=SAVES), settings=settings)
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(80, Suspend(1, 1)) == [JobSuspended(80, 1, 1)]
    assert bench.perform(500, Start(1, 2, OTHER)) == [JobStarted(500, 1, 2)]
    # 50 of 1,000 were done after the cold start of 30; 9 checkpoints come in the 950 that remain
    assert bench.run()[-1] == JobFinished(500 + 950 + 9 * 10, 1, 2, Outcome.COMPLETED)
    result = bench.columns()
    assert result.jobs.lost_device_ms[0] == 90
    assert result.useful_device_ms == 1_000
    assert (result.jobs.preemptions[0], result.jobs.restarts[0], result.jobs.waited_ms[0]) == (1, 1, 30 + 420)


def test_suspended_job_loses_its_memory_when_its_node_fails():
    bench = BackendBench(make_trace_job(run_ms=1_000), faults=[Fault(200, 300, 0, None)])
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(100, Suspend(1, 1))
    bench.perform(400, Start(1, 2, ONE))
    assert bench.run()[-1] == JobFinished(1_400, 1, 2, Outcome.COMPLETED)
    assert bench.columns().jobs.lost_device_ms[0] == 100


def test_suspended_job_can_be_cancelled():
    bench = BackendBench(make_trace_job(run_ms=1_000))
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(100, Suspend(1, 1))
    assert bench.perform(150, stop(cause=None)) == [JobFinished(150, 1, 1, Outcome.CANCELLED)]
    assert bench.recorder.ended == 1
    assert bench.recorder.pending_jobs == 0


def test_growing_job_holds_old_and_new_devices_until_it_is_resized():
    job = make_trace_job(run_ms=1_000, replicas=1, elastic=Elastic(replicas_min=1, replicas_max=2), checkpoint=SAVES)
    bench = BackendBench(job)
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(50, Resize(1, 2, make_allocation([0, 0], [0, 1])))
    assert bench.recorder.allocated_milli == 2_000
    assert bench.run(60) == [JobResized(60, 1, 2)]
    # 950 of work at double speed after a restart, with a checkpoint after each 100 of work
    assert bench.run() == [JobFinished(60 + 50 + 475 + 9 * 10, 1, 2, Outcome.COMPLETED)]


def test_shrinking_job_gives_devices_back_when_it_is_resized():
    job = make_trace_job(run_ms=1_000, replicas=2, elastic=Elastic(replicas_min=1, replicas_max=2), checkpoint=SAVES)
    bench = BackendBench(job)
    bench.perform(0, Start(1, 1, make_allocation([0, 0], [0, 1])))
    bench.perform(50, Resize(1, 2, ONE))
    assert bench.recorder.allocated_milli == 2_000
    bench.run(60)
    assert bench.recorder.allocated_milli == 1_000


def test_migrating_job_holds_both_places_and_the_limit_goes_on_counting():
    bench = BackendBench(make_trace_job(run_ms=1_000, limit_ms=500, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(50, Migrate(1, 2, OTHER))
    assert bench.recorder.allocated_milli == 2_000
    assert bench.run() == [JobResized(60, 1, 2), JobFinished(500, 1, 2, Outcome.TIMEOUT)]


def test_migration_of_a_job_without_checkpoint_loses_its_work_and_a_resize_does_not():
    elastic = Elastic(replicas_min=1, replicas_max=1)
    bench = BackendBench(make_trace_job(run_ms=1_000), make_trace_job(2, run_ms=1_000, elastic=elastic))
    bench.perform(0, Start(1, 1, ONE), Start(2, 1, make_allocation([0], [1])))
    bench.perform(400, Migrate(1, 2, OTHER), Resize(2, 2, make_allocation([0], [2])))
    bench.run()
    ends = {event.job: event.at_ms for event in bench.events if isinstance(event, JobFinished)}
    assert ends == {1: 1_400, 2: 1_000}


def test_stop_during_a_move_saves_in_what_remains_of_it():
    bench = BackendBench(make_trace_job(run_ms=1_000, checkpoint=SAVES))
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(50, Migrate(1, 2, OTHER))
    bench.perform(54, stop(generation=2, grace_ms=6))
    assert bench.run() == [JobStopped(60, 1, 2, StopCause.PREEMPTED, 50)]
    result = bench.columns()
    assert result.allocated_device_ms == 50 + 2 * 10
    assert result.jobs.lost_device_ms[0] == 2 * 10


def test_move_before_the_job_runs_begins_its_cold_start_anew():
    settings = BackendSettings(cold_start_ms={JobKind.TRAIN: 30})
    bench = BackendBench(make_trace_job(run_ms=100), settings=settings)
    bench.perform(0, Start(1, 1, ONE))
    assert bench.perform(10, Migrate(1, 2, OTHER)) == [JobResized(10, 1, 2)]
    assert bench.run() == [JobStarted(40, 1, 2), JobFinished(140, 1, 2, Outcome.COMPLETED)]


def test_node_failure_stops_its_jobs_in_order_of_id_with_their_last_checkpoint():
    gang = make_allocation([1, 0], [4, 1])
    jobs = [
        make_trace_job(number, run_ms=1_000, checkpoint=SAVES, replicas=2 if number == 3 else 1) for number in (1, 2, 3)
    ]
    bench = BackendBench(*jobs, faults=[Fault(250, 900, 0, None)])
    bench.perform(0, Start(3, 1, gang), Start(1, 1, ONE), Start(2, 1, make_allocation([1], [5])))
    assert bench.run(250) == [
        NodeDown(250, "n0"),
        JobStopped(250, 1, 1, StopCause.NODE_FAILED, 200),
        JobStopped(250, 3, 1, StopCause.NODE_FAILED, 200),
    ]
    assert bench.run(900) == [NodeUp(900, "n0")]


def test_device_failure_stops_only_the_jobs_on_that_device():
    bench = BackendBench(make_trace_job(run_ms=500), make_trace_job(2, run_ms=500), faults=[Fault(100, 200, 0, 1)])
    bench.perform(0, Start(1, 1, ONE), Start(2, 1, make_allocation([0], [1])))
    assert bench.run(200) == [
        DeviceDown(100, "n0", 1),
        JobStopped(100, 2, 1, StopCause.DEVICE_FAILED, 0),
        DeviceUp(200, "n0", 1),
    ]


def test_job_that_ends_when_its_node_fails_has_ended():
    bench = BackendBench(make_trace_job(run_ms=100), faults=[Fault(100, 200, 0, None)])
    bench.perform(0, Start(1, 1, ONE))
    assert bench.run(100) == [JobFinished(100, 1, 1, Outcome.COMPLETED), NodeDown(100, "n0")]


def test_node_failure_hits_a_job_that_has_not_begun():
    settings = BackendSettings(cold_start_ms={JobKind.TRAIN: 30})
    bench = BackendBench(make_trace_job(), settings=settings, faults=[Fault(10, 20, 0, None)])
    bench.perform(0, Start(1, 1, ONE))
    assert bench.run() == [NodeDown(10, "n0"), JobStopped(10, 1, 1, StopCause.NODE_FAILED, 0), NodeUp(20, "n0")]


def test_target_of_a_move_that_fails_takes_the_job_with_it():
    bench = BackendBench(make_trace_job(checkpoint=SAVES), faults=[Fault(55, 90, 1, None)])
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(50, Migrate(1, 2, OTHER))
    assert bench.run(55) == [NodeDown(55, "n1"), JobStopped(55, 1, 2, StopCause.NODE_FAILED, 0)]


def test_start_on_a_node_that_is_down_fails():
    bench = BackendBench(make_trace_job(), faults=[Fault(10, 50, 0, None)])
    assert bench.perform(20, Start(1, 1, ONE)) == [JobStopped(20, 1, 1, StopCause.START_FAILED, 0)]
    assert bench.recorder.allocated_milli == 0


def test_faster_devices_end_a_job_sooner_rounding_up():
    bench = BackendBench(make_trace_job(run_ms=1_000), cluster=make_cluster(speed=3.0))
    bench.perform(0, Start(1, 1, ONE))
    assert bench.run()[-1].at_ms == 334


def test_job_of_no_length_starts_and_ends_in_one_moment():
    bench = BackendBench(make_trace_job(run_ms=0))
    assert bench.perform(7, Start(1, 1, ONE)) == [JobStarted(7, 1, 1), JobFinished(7, 1, 1, Outcome.COMPLETED)]


def test_power_cap_slows_a_running_job_until_it_is_lifted():
    bench = BackendBench(make_trace_job(run_ms=1_000), cluster=make_cluster(watts_max=400))
    bench.perform(0, Start(1, 1, ONE))
    bench.perform(100, Cap(0, 200))
    bench.perform(300, Cap(0, 0))
    # 100 ms at full speed, 200 ms at 85 %, the rest at full speed again
    assert bench.run() == [JobFinished(100 + 200 + 730, 1, 1, Outcome.COMPLETED)]


def test_power_cap_of_another_node_or_of_unknown_watts_slows_nothing():
    for cluster, node in ((make_cluster(watts_max=400), 1), (make_cluster(), 0)):
        bench = BackendBench(make_trace_job(run_ms=1_000), cluster=cluster)
        bench.perform(0, Start(1, 1, ONE))
        bench.perform(100, Cap(node, 200))
        assert bench.run()[-1].at_ms == 1_000


def test_job_that_starts_under_a_cap_is_slow_from_the_start():
    bench = BackendBench(make_trace_job(run_ms=850), cluster=make_cluster(watts_max=400))
    bench.perform(0, Cap(0, 200), Start(1, 1, ONE))
    assert bench.run()[-1].at_ms == 1_000


def test_rows_of_consecutive_ids_need_no_table():
    jobs = [make_trace_job(number) for number in (1, 2, 3)]
    assert job_rows(jobs) == range(-1, 3)
    assert [job_rows(jobs)[number] for number in (1, 2, 3)] == [0, 1, 2]
    assert job_rows([make_trace_job(7), make_trace_job(5)]) == {7: 0, 5: 1}
