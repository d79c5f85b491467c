"""What each event does to a job, and that stale ones do nothing."""

import pytest

from clearway.engine.tables import (
    JOB_PREEMPTIBLE,
    JOB_PROTECTED_MS,
    JOB_SAVED_MS,
    PHASE_BLOCKED,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_STARTING,
)
from clearway.model.commands import WakeAt
from clearway.model.errors import InternalError
from clearway.model.events import (
    Batch,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobStarted,
    JobStopped,
    JobSubmitted,
    TimerFired,
)
from clearway.model.jobs import ArrayMember, Dependency, DependencyKind, Outcome, StopCause
from clearway.model.plan import ReasonCode, Stop
from support.engine import add_nodes, finish, make_job, make_kernel, started, started_jobs, submit


@pytest.fixture
def kernel():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    return kernel


def phase(kernel, job):
    return kernel.state.job_phase(job)


def test_a_job_starts_runs_and_is_forgotten(kernel):
    submit(kernel, {"devices": 4})
    assert phase(kernel, 1) == PHASE_STARTING
    kernel.handle(JobStarted(1, 1, 1))
    assert phase(kernel, 1) == PHASE_RUNNING
    finish(kernel, 1)
    assert phase(kernel, 1) is None
    assert kernel.state.device_shares_free().sum() == 4_000


def test_a_stopped_job_waits_again_with_what_it_saved_and_starts_under_the_next_generation(kernel):
    submit(kernel, {"devices": 4})
    commands = kernel.handle(JobStopped(50, 1, 1, StopCause.NODE_FAILED, saved_ms=30))
    assert [(start.job, start.generation) for start in started(commands)] == [(1, 2)]
    assert kernel.state.rows.table[JOB_SAVED_MS, kernel.state.jobs[1].row] == 30


def test_a_job_turned_out_again_and_again_for_nothing_is_left_alone_for_longer_each_time(kernel):
    submit(kernel, {"devices": 4})
    record, policy_ms = kernel.state.jobs[1], kernel.state.policy.preemption.protection_ms
    more = []
    for generation in range(1, 6):
        kernel.handle(JobStopped(50, 1, generation, StopCause.PREEMPTED, saved_ms=0))
        more.append(int(kernel.state.rows.table[JOB_PROTECTED_MS, record.row]) - 50 - policy_ms)
    assert more == [0, 1_000, 2_000, 4_000, 8_000]
    kernel.handle(JobStopped(60, 1, 6, StopCause.PREEMPTED, saved_ms=5))
    assert kernel.state.rows.table[JOB_PROTECTED_MS, record.row] == 60 + policy_ms


@pytest.mark.parametrize("cause", [StopCause.NODE_FAILED, StopCause.DEVICE_FAILED])
def test_a_job_that_must_not_run_again_ends_when_its_run_is_lost_and_those_after_it_hear(kernel, cause):
    after = Dependency(kind=DependencyKind.AFTER_NOT_OK, job=1)
    submit(kernel, {"devices": 4, "requeue": False}, {"devices": 4, "dependencies": (after,)})
    commands = kernel.handle(JobStopped(50, 1, 1, cause, saved_ms=30))
    assert phase(kernel, 1) is None
    assert [(start.job, start.generation) for start in started(commands)] == [(2, 1)]


def test_a_job_that_must_not_run_again_is_neither_requeued_nor_preempted_yet_may_try_to_start_again(kernel):
    submit(kernel, {"devices": 4, "requeue": False})
    assert kernel.state.rows.table[JOB_PREEMPTIBLE, kernel.state.jobs[1].row] == 0
    assert kernel.handle(JobRequeued(5, 1)) == ()
    commands = kernel.handle(JobStopped(50, 1, 1, StopCause.START_FAILED))
    assert [(start.job, start.generation) for start in started(commands)] == [(1, 2)]


@pytest.mark.parametrize(
    "event",
    [
        JobStarted(1, 1, 1),
        JobFinished(1, 1, 1, Outcome.COMPLETED),
        JobStopped(1, 1, 1, StopCause.PREEMPTED),
        JobFinished(1, 99, 1, Outcome.COMPLETED),
        JobCancelled(1, 99),
        JobHeld(1, 99),
        JobReleased(1, 99),
    ],
)
def test_an_event_of_an_older_generation_or_an_unknown_job_is_ignored(kernel, event):
    submit(kernel, {"devices": 4})
    kernel.handle(JobStopped(0, 1, 1, StopCause.PREEMPTED))
    assert kernel.handle(event) == ()
    assert kernel.state.jobs[1].generation == 2
    assert phase(kernel, 1) == PHASE_STARTING


def test_an_id_is_never_used_twice(kernel):
    submit(kernel, {})
    with pytest.raises(InternalError, match="twice"):
        kernel.handle(JobSubmitted(0, make_job(1)))


def test_a_waiting_job_that_is_cancelled_is_gone(kernel):
    submit(kernel, {"devices": 4}, {"devices": 4})
    assert kernel.handle(JobCancelled(0, 2)) == ()
    assert phase(kernel, 2) is None


def test_a_running_job_that_is_cancelled_holds_its_devices_until_it_has_left(kernel):
    submit(kernel, {"devices": 4}, {"devices": 4})
    assert kernel.handle(JobCancelled(0, 1)) == (Stop(1, 1, 0, None),)
    assert kernel.handle(JobCancelled(0, 1)) == ()
    assert phase(kernel, 2) == PHASE_PENDING
    assert started_jobs(kernel.handle(JobFinished(0, 1, 1, Outcome.CANCELLED))) == [2]


def test_a_running_job_that_is_held_goes_on_and_is_blocked_when_it_stops(kernel):
    submit(kernel, {"devices": 4})
    assert kernel.handle(JobHeld(0, 1)) == ()
    assert kernel.handle(JobStopped(0, 1, 1, StopCause.PREEMPTED)) == ()
    assert kernel.state.jobs[1].blocked is ReasonCode.HELD
    assert started_jobs(kernel.handle(JobReleased(0, 1))) == [1]


def test_a_job_with_a_begin_time_asks_to_be_woken(kernel):
    assert submit(kernel, {"not_before_ms": 100}) == (WakeAt(100),)
    assert phase(kernel, 1) == PHASE_BLOCKED
    assert started_jobs(kernel.handle(TimerFired(100))) == [1]


def depends(kind, job=1):
    return {"dependencies": (Dependency(kind=DependencyKind(kind), job=job),)}


@pytest.mark.parametrize(
    ("kind", "outcome", "starts"),
    [
        ("afterok", Outcome.COMPLETED, True),
        ("afterok", Outcome.FAILED, False),
        ("afternotok", Outcome.COMPLETED, False),
        ("afternotok", Outcome.TIMEOUT, True),
        ("afterany", Outcome.FAILED, True),
        ("afterany", Outcome.COMPLETED, True),
        ("aftercorr", Outcome.COMPLETED, True),
    ],
)
def test_a_dependency_is_decided_by_how_the_other_job_ends(kernel, kind, outcome, starts):
    submit(kernel, {}, depends(kind))
    assert phase(kernel, 2) == PHASE_BLOCKED
    commands = kernel.handle(JobFinished(0, 1, 1, outcome))
    assert started_jobs(commands) == ([2] if starts else [])
    if not starts:
        assert kernel.state.jobs[2].blocked is ReasonCode.DEPENDENCY_NEVER


def blocked(kernel):
    """Why each job that has not ended is blocked."""
    return {job: record.blocked for job, record in kernel.state.jobs.items() if record.blocked is not None}


NEVER, YET = ReasonCode.DEPENDENCY_NEVER, ReasonCode.DEPENDENCY


def test_what_waits_for_a_job_that_can_never_start_never_can_either_however_far_behind(kernel):
    chain = [depends("afterok", job) for job in range(1, 3_000)]
    submit(kernel, {}, *chain)
    assert set(blocked(kernel).values()) == {YET}
    assert kernel.handle(JobFinished(0, 1, 1, Outcome.FAILED)) == ()
    assert blocked(kernel) == dict.fromkeys(range(2, 3_001), NEVER)


def test_a_job_that_comes_later_is_told_at_once(kernel):
    submit(kernel, {}, depends("afterok", 1))
    kernel.handle(JobFinished(0, 1, 1, Outcome.FAILED))
    kernel.handle(JobSubmitted(1, make_job(3, **depends("aftercorr", 2))))
    kernel.handle(JobSubmitted(1, make_job(4, **depends("afterok", 3))))
    assert blocked(kernel) == {2: NEVER, 3: NEVER, 4: NEVER}


def test_who_waits_for_an_end_or_a_start_goes_on_when_what_can_never_start_is_cancelled(kernel):
    waiters = [depends(kind, 2) for kind in ("afterany", "afternotok", "after", "afterok")]
    submit(kernel, {}, depends("afterok", 1), *waiters, depends("afterok", 3))
    kernel.handle(JobFinished(0, 1, 1, Outcome.FAILED))
    assert blocked(kernel) == {2: NEVER, 3: YET, 4: YET, 5: YET, 6: NEVER, 7: YET}
    assert started_jobs(kernel.handle(JobCancelled(1, 2))) == [3, 4, 5]
    assert blocked(kernel) == {6: NEVER, 7: YET}


def test_one_of_several_dependencies_that_may_still_come_true_is_enough(kernel):
    both = tuple(Dependency(kind=DependencyKind.AFTER_OK, job=job) for job in (2, 3))
    submit(
        kernel, {}, depends("afterok", 1), {}, {"dependencies": both, "depends_on_any": True}, {"dependencies": both}
    )
    kernel.handle(JobFinished(0, 1, 1, Outcome.FAILED))
    assert blocked(kernel) == {2: NEVER, 4: YET, 5: NEVER}
    kernel.handle(JobFinished(0, 3, 1, Outcome.FAILED))
    assert blocked(kernel) == {2: NEVER, 4: NEVER, 5: NEVER}


def test_a_held_job_between_passes_it_on_and_stays_held(kernel):
    submit(kernel, {}, {**depends("afterok", 1), "held": True}, depends("afterok", 2))
    submit(kernel, depends("afterok", 1), {**depends("afterok", 4), "held": True}, depends("afterok", 5))
    kernel.handle(JobFinished(0, 1, 1, Outcome.FAILED))
    assert blocked(kernel) == {2: ReasonCode.HELD, 3: YET, 4: NEVER, 5: ReasonCode.HELD, 6: NEVER}
    kernel.handle(JobReleased(1, 2))
    assert blocked(kernel)[3] is NEVER


def test_after_waits_for_a_start_only_and_follows_it_at_once(kernel):
    submit(kernel, {"devices": 4}, {}, depends("after", 2))
    assert phase(kernel, 3) == PHASE_BLOCKED
    assert started_jobs(finish(kernel, 1)) == [2, 3]


def test_an_array_runs_so_many_tasks_at_once(kernel):
    tasks = [{"array": ArrayMember(array=1, index=index, parallel_max=2)} for index in range(4)]
    assert started_jobs(submit(kernel, *tasks)) == [1, 2]
    assert started_jobs(finish(kernel, 2)) == [3]


def test_events_of_a_batch_are_decided_upon_together(kernel):
    submit(kernel, {"devices": 4}, {"devices": 4}, {"devices": 4})
    commands = kernel.handle(Batch(0, (JobFinished(0, 1, 1, Outcome.COMPLETED), JobCancelled(0, 2))))
    assert started_jobs(commands) == [3]


def test_time_does_not_run_backwards(kernel):
    kernel.handle(TimerFired(100))
    kernel.handle(TimerFired(50))
    assert kernel.state.now_ms == 100
