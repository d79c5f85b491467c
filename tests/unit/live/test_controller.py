"""The control plane, turn by turn: what is on disk before what, and what is answered when."""

import threading
from dataclasses import replace

import pytest

from clearway.engine.policy import Elasticity, Qos
from clearway.live.settings import ControlSettings
from clearway.model.cluster import DeviceGroup, QueueSpec, TenantSpec
from clearway.model.errors import InputError, InternalError
from clearway.model.events import ControlStarted, JobSubmitted, PlanAccepted
from clearway.model.jobs import ArrayMember, Dependency, DependencyKind, Elastic, Request, StopCause
from clearway.model.plan import ReasonCode, Start, Stop
from clearway.policies.named import named_policy
from clearway.ports.control import PROVISIONAL_ID, Removed
from clearway.ports.storage import JobQuery, StorageError
from clearway.ports.views import DeviceState, JobState, NodeState
from support.fake_backend import FakeBackend
from support.live import Plane, make_spec, make_submission
from support.worlds import make_cluster


class Tape:
    """Writes down, in one list, what is written and what is performed."""

    def __init__(self, plane):
        self.lines = []
        append, perform = plane.store.append, plane.backend.perform

        def taped_append(changes):
            number = append(changes)
            self.lines.append([type(event).__name__ for event in changes.events])
            return number

        def taped_perform(now_ms, command):
            self.lines.append(type(command).__name__.lower())
            perform(now_ms, command)

        plane.store.append, plane.backend.perform = taped_append, taped_perform


# --- the way of a job -------------------------------------------------------------------------------------------------


def test_submitted_job_runs_and_ends():
    plane = Plane().start()
    assert plane.submit(make_spec(), scripts=["run_ms=500"]) == (1,)
    assert plane.state(1) is JobState.RUNNING
    plane.run()
    assert plane.state(1) is JobState.COMPLETED
    assert plane.store.rows[1].end_ms == 500


def test_second_job_waits_for_the_device_and_then_runs():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1), scripts=["run_ms=500", "run_ms=300"])
    assert (plane.state(1), plane.state(2)) == (JobState.RUNNING, JobState.PENDING)
    plane.run()
    assert (plane.store.rows[2].start_ms, plane.store.rows[2].end_ms) == (500, 800)


def test_exit_code_of_a_failed_job_is_kept():
    plane = Plane().start()
    plane.submit(make_spec(), scripts=["outcome=FAILED"])
    plane.run()
    row = plane.store.rows[1]
    assert (row.state, row.exit_code, row.reason) == (JobState.FAILED, 1, "NonZeroExitCode")


def test_cancelled_job_is_stopped_and_cancelled_waiting_job_ends_at_once():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1))
    assert plane.do(plane.control.cancel((2, 1, 9), actor="ada")) == (2, 1)
    assert (plane.state(1), plane.state(2)) == (JobState.CANCELLED, JobState.CANCELLED)
    assert plane.do(plane.control.cancel((1,), actor="ada")) == ()


def test_held_job_waits_until_it_is_released():
    plane = Plane().start()
    plane.submit(make_spec(held=True))
    assert (plane.state(1), plane.control.job(1).reason) == (JobState.PENDING, "JobHeldUser")
    assert plane.do(plane.control.release((1,), actor="ada")) == (1,)
    assert plane.state(1) is JobState.RUNNING


def test_row_says_at_once_that_a_job_waits_for_another_or_for_its_time():
    plane = Plane().start()
    after = Dependency(kind=DependencyKind.AFTER_OK, job=1)
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.submit(make_spec(dependencies=(after,), held=True), make_spec(1, not_before_ms=400), make_spec(2))
    assert [plane.store.rows[job].reason for job in (2, 3, 4)] == ["JobHeldUser", "BeginTime", "Priority"]
    plane.do(plane.control.release((2,), actor="ada"))
    assert plane.store.rows[2].reason == "Dependency"


def test_reason_that_was_only_likely_is_put_right():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1), scripts=["run_ms=100", "run_ms=10000"])
    plane.run(until_ms=200)
    plane.submit(make_spec(dependencies=(Dependency(kind=DependencyKind.AFTER_OK, job=1),)))
    assert plane.store.rows[3].reason == "Dependency", "it is over, which the books do not know"
    plane.run(until_ms=5_000)
    assert plane.store.rows[3].reason == "Resources"


@pytest.mark.parametrize(("policy", "difference"), [("fifo", -1), ("multifactor", 900)])
def test_priorities_are_those_of_the_order(policy, difference):
    policy = replace(named_policy(policy), qos=(Qos(name="high", priority=100), Qos(name="low", priority=10)))
    plane = Plane(policy=policy).start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.submit(make_spec(qos="low"), make_spec(1, qos="high"), make_spec(2, held=True))
    found = plane.control.priorities((1, 2, 3, 4, 9))
    assert sorted(found) == [2, 3], "the others do not wait for their turn"
    assert found[3] - found[2] == difference
    assert policy.name == "multifactor" or found[2] == 4_294_901_759
    assert plane.control.job(2).order_priority == found[2]
    assert [plane.store.rows[job].qos for job in (1, 2, 3)] == ["", "low", "high"]


def test_row_says_how_many_tasks_the_script_of_each_replica_starts_after_a_restart_too():
    plane = Plane().start()
    submission = make_submission(make_spec(held=True), make_spec(1, held=True))
    runs = (replace(submission.runs[0], tasks_per_replica=2), submission.runs[1])
    plane.do(plane.control.submit(replace(submission, runs=runs)))
    assert [plane.store.rows[job].tasks_per_replica for job in (1, 2)] == [2, 1]
    plane.start()
    assert [plane.control.job(job).tasks_per_replica for job in (1, 2)] == [2, 1]


def test_requeued_job_leaves_and_starts_anew():
    plane = Plane().start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.run(until_ms=100)
    assert plane.do(plane.control.requeue((1,), actor="ada")) == (1,)
    stops = [command for command in plane.backend.performed if isinstance(command, Stop)]
    assert [stop.cause for stop in stops] == [StopCause.REQUEUED]
    row = plane.control.job(1)
    assert (row.state, row.generation, row.restarts, row.preemptions) == (JobState.RUNNING, 2, 1, 0)


@pytest.mark.parametrize(("save_ms", "lost_ms"), [("0", 0), ("never", 100)])
def test_row_tells_of_earlier_runs_and_of_what_no_checkpoint_held(save_ms, lost_ms):
    plane = Plane().start()
    plane.submit(make_spec(), scripts=[f"run_ms=500 save_ms={save_ms}"])
    plane.run(until_ms=100)
    plane.do(plane.control.requeue((1,), actor="ada"))
    row = plane.control.job(1)
    assert (row.ran_before_ms, row.lost_ms) == (100, lost_ms)


@pytest.mark.parametrize("break_it", [lambda plane: plane.backend.break_node(100, "n0"),
                                      lambda plane: plane.backend.break_device(100, "n0", 0)])  # fmt: skip
def test_job_that_must_not_run_again_ends_with_its_node_or_device_and_the_next_has_it_when_it_is_back(break_it):
    plane = Plane(devices=2).start()
    plane.submit(make_spec(requeue=False, devices=2), make_spec(1, devices=2), scripts=["run_ms=500", "run_ms=500"])
    with pytest.raises(InputError, match="job 1: expected a job that may run again"):
        plane.do(plane.control.requeue((1,), actor="ada"))
    plane.run(until_ms=100)
    break_it(plane)
    plane.run(until_ms=200)
    row = plane.store.rows[1]
    assert (row.state, row.reason, row.message) == (JobState.NODE_FAIL, "NodeDown", "its node or device failed")
    plane.backend.mend_node(200, "n0")
    plane.backend.mend_device(200, "n0", 0)
    plane.run()
    assert [job for job, *_ in plane.backend.ran] == [1, 2]
    assert plane.state(2) is JobState.COMPLETED


def test_job_that_must_not_run_again_ends_when_nothing_of_it_is_found_after_a_restart():
    plane = Plane().start()
    plane.submit(make_spec(requeue=False), scripts=["run_ms=500"])
    plane.run(until_ms=100)
    plane.backend.runs.clear()
    plane.backend.used_milli[:] = 0
    plane.start().run()
    assert (plane.state(1), plane.store.rows[1].message) == (JobState.NODE_FAIL, "not found")
    assert len(plane.backend.ran) == 1


def test_row_of_an_elastic_job_says_what_it_holds_and_when_it_waits_what_it_asks_for():
    policy = replace(named_policy("easy"), elasticity=Elasticity(enabled=True, interval_ms=1_000))
    plane = Plane(devices=3, policy=policy).start()
    spec = make_spec(replicas=2, elastic=Elastic(replicas_min=1, replicas_max=3))
    plane.submit(spec, scripts=["run_ms=600000"])
    plane.run(until_ms=5_000)
    assert (plane.control.job(1).replicas, plane.control.job(1).device_milli) == (3, 3_000)
    assert plane.store.rows[1].devices == (("n0", (0, 1, 2)),)
    plane.backend.break_node(5_000, "n0")
    plane.run(until_ms=6_000)
    assert (plane.control.job(1).state, plane.control.job(1).replicas) == (JobState.PENDING, 2)


def test_what_a_job_says_of_itself_reaches_its_row_without_a_record_in_the_journal():
    plane = Plane().start()
    plane.submit(make_spec(), scripts=["run_ms=60000"])
    plane.run(until_ms=1_000)
    records = len(plane.store.events)
    plane.backend.said = {1: 0.25, 99: 0.5}
    plane.run(until_ms=3_000)
    assert plane.control.job(1).progress == plane.store.rows[1].progress == 0.25
    assert len(plane.store.events) == records


def test_job_that_waits_says_why_and_explains_itself():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1))
    assert plane.control.job(2).reason == ReasonCode.RESOURCES.value
    explanation = plane.do(plane.control.explain(2))
    assert explanation.blockers == (1,)
    with pytest.raises(InputError, match="job 9"):
        plane.do(plane.control.explain(9))


def test_rows_of_waiting_jobs_get_their_reasons_without_being_asked_for():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1), scripts=["run_ms=60000"])
    plane.run(until_ms=5_000)
    assert plane.store.rows[2].reason == ReasonCode.RESOURCES.value


def test_job_without_devices_waits_for_resources_and_not_for_fragments():
    nodes = make_cluster(2, 1, cpu_milli=2_500).nodes  # 1 CPU is left on each
    plane = Plane(backend=FakeBackend(nodes)).start()
    plane.submit(*[make_spec(place, request=Request(devices=0, cpu_milli=1_500)) for place in range(3)])
    assert [plane.control.job(job).reason for job in (1, 2, 3)] == ["None", "None", ReasonCode.RESOURCES.value]
    (reason,) = plane.do(plane.control.explain(3)).reasons
    assert reason.code is ReasonCode.RESOURCES
    assert "CPUs" in reason.message


# --- what is on disk before what ----------------------------------------------------------------------------------


def test_submit_is_on_disk_before_its_plan_and_the_plan_before_the_command():
    plane = Plane().start()
    tape = Tape(plane)
    plane.submit(make_spec())
    assert tape.lines[:3] == [["JobSubmitted"], ["PlanAccepted"], "start"]


def test_patient_submit_is_written_with_its_plan_before_its_answer_and_the_command():
    plane = Plane().start()
    tape = Tape(plane)
    answer = plane.control.submit(replace(make_submission(make_spec()), is_patient=True))
    answer.add_done_callback(lambda done: tape.lines.append(done.result()))
    plane.control.turn(0)
    assert tape.lines == [["JobSubmitted", "PlanAccepted"], (1,), "start"]
    assert plane.start().state(1) is JobState.RUNNING, "a new control plane reads the same"


def test_patient_submit_beside_one_that_is_not_is_written_before_the_decision():
    plane = Plane(devices=2, settings=ControlSettings(paces_starts=False)).start()
    tape = Tape(plane)
    plane.control.submit(replace(make_submission(make_spec()), is_patient=True))
    plane.control.submit(make_submission(make_spec()))
    plane.control.turn(0)
    assert tape.lines == [["Batch"], ["PlanAccepted"], "start", "start"]


def test_submit_that_starts_nothing_needs_one_write():
    plane = Plane().start()
    plane.submit(make_spec())
    tape = Tape(plane)
    plane.submit(make_spec())
    assert tape.lines == [["JobSubmitted"]]


def test_end_and_what_follows_from_it_need_one_write():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1), scripts=["run_ms=500"])
    tape = Tape(plane)
    plane.clock.set(500)
    plane.control.turn(500)
    assert tape.lines == [["JobFinished", "PlanAccepted"], "start"]


def test_all_requests_that_wait_are_written_and_decided_together():
    plane = Plane(devices=8, settings=ControlSettings(paces_starts=False)).start()
    tape = Tape(plane)
    answers = [plane.control.submit(make_submission(make_spec())) for _ in range(8)]
    plane.control.turn(0)
    assert tape.lines == [["Batch"], ["PlanAccepted"], *["start"] * 8]
    assert [answer.result(0) for answer in answers] == [(number,) for number in range(1, 9)]


def test_request_that_is_refused_does_not_touch_those_beside_it():
    plane = Plane().start()
    bad = plane.control.submit(make_submission(make_spec(queue="nowhere")))
    good = plane.control.submit(make_submission(make_spec()))
    plane.turn()
    assert good.result(0) == (1,)
    with pytest.raises(InputError, match="nowhere"):
        bad.result(0)


def test_who_did_what_is_written_with_it():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1))
    plane.do(plane.control.cancel((2,), actor="bo"))
    lines = [(line.actor, line.action, line.target) for line in plane.store.audit]
    assert lines == [("ada", "job.submit", "jobs 1-2 (2)"), ("bo", "job.cancel", "job 2")]


# --- storage that fails ---------------------------------------------------------------------------------------------


def test_full_disk_refuses_submits_at_once_and_leaves_what_runs_alone():
    plane = Plane(devices=2).start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.store.error = "disk full"
    refused = plane.control.submit(make_submission(make_spec()))
    plane.control.turn(10)
    with pytest.raises(StorageError, match="disk full"):
        refused.result(0)
    assert not plane.control.is_ready
    assert plane.control.problem.endswith("since it cannot be kept: disk full")
    assert plane.control.cluster().storage_error == "disk full"
    assert list(plane.backend.runs) == [1]


def test_patient_submit_waits_for_a_full_disk_and_starts_nothing_before():
    plane = Plane().start()
    plane.store.error = "disk full"
    answer = plane.control.submit(replace(make_submission(make_spec()), is_patient=True))
    plane.control.turn(10)
    assert not answer.done()
    assert not plane.backend.runs
    plane.store.error = None
    plane.clock.set(plane.control.next_due_ms())
    plane.control.turn(plane.clock.now_ms())
    assert answer.result(0) == (1,)
    assert plane.state(1) is JobState.RUNNING
    assert list(plane.backend.runs) == [1]


def test_what_was_seen_while_the_disk_was_full_is_kept_and_written_later():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1), scripts=["run_ms=500", "run_ms=100"])
    plane.store.error = "disk full"
    plane.clock.set(500)
    plane.control.turn(500)
    assert not plane.backend.runs, "the second job must not start before its plan is on disk"
    plane.clock.set(9_000)
    plane.store.error = None
    plane.run()
    assert [row.state for row in plane.store.rows.values()] == [JobState.COMPLETED] * 2
    assert plane.store.rows[1].end_ms == 500
    assert plane.control.is_ready


def test_tries_again_later_and_later_and_resumes_by_itself(caplog):
    plane = Plane().start()
    plane.store.error = "disk full"
    with pytest.raises(StorageError):
        plane.submit(make_spec())
    waits = []
    for _ in range(9):
        waits.append(plane.control.next_due_ms() - plane.clock.now_ms())
        plane.clock.set(plane.control.next_due_ms())
        plane.control.turn(plane.clock.now_ms())
    assert waits == [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    plane.store.error = None
    plane.clock.set(plane.control.next_due_ms())
    plane.control.turn(plane.clock.now_ms())
    assert plane.control.is_ready
    assert plane.store.audit[-1].action == "storage.resume"
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"], "once each, not at every try"
    assert plane.submit(make_spec()) == (1,)


def test_submission_too_long_for_the_storage_is_refused_for_good_and_those_beside_it_are_taken():
    plane = Plane(devices=8).start()
    plane.store.jobs_max = 4
    small = [plane.control.submit(make_submission(make_spec(), make_spec(1))) for _ in range(2)]
    big = plane.control.submit(make_submission(*[make_spec(place) for place in range(5)]))
    small.append(plane.control.submit(make_submission(make_spec(), make_spec(1))))
    plane.turn()
    with pytest.raises(InputError, match="expected at most 4 jobs, found 5; nothing of this request was taken"):
        big.result(timeout=0)
    assert [future.result(timeout=0) for future in small] == [(1, 2), (3, 4), (5, 6)]
    assert not plane.control.problem
    plane.store.jobs_max = 100
    plane.start().run()
    assert {row.state for row in plane.store.rows.values()} == {JobState.COMPLETED}


def test_cancel_refused_for_want_of_disk_changes_nothing():
    plane = Plane().start()
    plane.submit(make_spec())
    plane.store.error = "read-only"
    with pytest.raises(StorageError):
        plane.do(plane.control.cancel((1,), actor="ada"))
    assert plane.state(1) is JobState.RUNNING


# --- numbers and keys -------------------------------------------------------------------------------------------------


def test_jobs_of_a_submission_keep_naming_one_another():
    plane = Plane().start()
    plane.submit(make_spec())
    array = PROVISIONAL_ID + 1
    tasks = [make_spec(1 + index, array=ArrayMember(array=array, index=index)) for index in range(2)]
    after = Dependency(kind=DependencyKind.AFTER_OK, job=array)
    old = Dependency(kind=DependencyKind.AFTER_ANY, job=1)
    assert plane.submit(*tasks, make_spec(9, dependencies=(after, old))) == (2, 3, 4)
    specs = {event.job.id: event.job for event in submits(plane)}
    assert [specs[number].array.array for number in (2, 3)] == [2, 2]
    assert [dependency.job for dependency in specs[4].dependencies] == [2, 1]


def test_a_dependency_on_a_task_that_an_array_does_not_have_is_refused():
    plane = Plane(devices=4).start()
    array = [make_spec(place, array=ArrayMember(array=PROVISIONAL_ID, index=1 + place)) for place in range(2)]

    def on_task(job, index, place=0):
        task = Dependency(kind=DependencyKind.AFTER_OK, job=job, task=index)
        return make_spec(place, dependencies=(task,))

    first, early = (
        plane.control.submit(make_submission(*jobs, scripts=["run_ms=100"] * len(jobs)))
        for jobs in (array, [on_task(1, 2)])
    )
    plane.turn()
    assert (first.result(0), early.result(0)) == ((1, 2), (3,)), "in one turn"
    plane.submit(make_spec())
    for job, index in ((1, 9), (1, 0), (4, 0)):
        with pytest.raises(InputError, match=f"a task that array {job} has, found a dependency on {job}_{index}"):
            plane.submit(on_task(job, index))
    plane.run()
    assert plane.state(2).is_final
    assert plane.submit(*array, on_task(PROVISIONAL_ID, 1, 2), on_task(1, 2, 3)) == (5, 6, 7, 8), "of one submission"
    plane.start()
    assert plane.submit(on_task(1, 1)) == (9,), "of one that has ended, read from the journal"
    with pytest.raises(InputError, match="1_9"):
        plane.submit(on_task(1, 9))


def submits(plane):
    parts = [part for event in plane.store.events for part in getattr(event, "events", (event,))]
    return [part for part in parts if isinstance(part, JobSubmitted)]


def test_same_key_of_the_same_user_is_the_same_submission_after_a_restart_too():
    plane = Plane().start()
    assert plane.submit(make_spec(), key="abc") == (1,)
    assert plane.submit(make_spec(), key="abc") == (1,)
    plane.start()
    assert plane.submit(make_spec(), key="abc") == (1,)
    assert plane.submit(make_spec(), key="abc", actor="bo") == (2,)
    assert plane.submit(make_spec(), key="abd") == (3,)


def test_same_key_twice_in_one_turn_is_one_submission():
    plane = Plane().start()
    answers = [plane.control.submit(make_submission(make_spec(), key="abc")) for _ in range(2)]
    plane.turn()
    assert [answer.result(0) for answer in answers] == [(1,), (1,)]
    assert len(submits(plane)) == 1


QUEUES = (QueueSpec(name="production"), QueueSpec(name="debug", job_devices_max_milli=1_000, limit_max_ms=60_000))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"queue": "nightly"}, "debug, production, found 'nightly'"),
        ({"tenant": "nobody"}, "expected a tenant out of root, found 'nobody'"),
        ({"queue": "debug", "devices": 2}, "at most 1 devices, the limit of queue 'debug', found 2"),
        ({"queue": "debug", "limit_ms": 120_000}, "at most 1 minutes"),
        ({"dependencies": (Dependency(kind=DependencyKind.AFTER, job=7),)}, "a dependency on 7"),
        ({"dependencies": (Dependency(kind=DependencyKind.AFTER, job=PROVISIONAL_ID),)}, "on itself"),
        ({"dependencies": (Dependency(kind=DependencyKind.AFTER, job=PROVISIONAL_ID + 5),)}, "this submission"),
    ],
)
def test_what_could_never_start_is_refused_at_the_door(spec, words):
    plane = Plane(devices=4, queues=QUEUES).start()
    with pytest.raises(InputError, match=words):
        plane.submit(make_spec(**spec))
    assert plane.submit(make_spec()) == (1,), "a refusal uses up no number"


def test_job_without_a_limit_has_its_queues():
    plane = Plane(queues=QUEUES).start()
    plane.submit(make_spec(queue="debug"))
    assert plane.control.job(1).limit_ms == 60_000


# --- nodes and site ---------------------------------------------------------------------------------------------------


def test_drained_node_takes_nothing_new_and_says_why():
    plane = Plane().start()
    plane.do(plane.control.drain("n0", reason="fan", actor="op"))
    plane.submit(make_spec())
    node = plane.control.cluster().nodes[0]
    assert (node.state, node.reason, plane.state(1)) == (NodeState.DRAINED, "fan", JobState.PENDING)
    plane.do(plane.control.undrain("n0", actor="op"))
    assert (plane.control.cluster().nodes[0].state, plane.state(1)) == (NodeState.ALLOCATED, JobState.RUNNING)


def test_unknown_node_cannot_be_drained():
    plane = Plane().start()
    with pytest.raises(InputError, match="n7"):
        plane.do(plane.control.drain("n7", reason="", actor="op"))


def test_drained_node_that_fails_and_comes_back_stays_drained():
    plane = Plane().start()
    plane.do(plane.control.drain("n0", reason="fan", actor="op"))
    plane.backend.break_node(0, "n0")
    plane.turn()
    assert plane.control.cluster().nodes[0].reason == "power lost"
    plane.backend.mend_node(0, "n0")
    plane.turn()
    node = plane.control.cluster().nodes[0]
    assert (node.state, node.reason) == (NodeState.DRAINED, "fan")


def test_failed_device_is_shown_with_its_reason_and_its_job_starts_elsewhere():
    plane = Plane(nodes=2).start()
    plane.submit(make_spec())
    assert plane.control.job(1).devices == (("n0", (0,)),)
    plane.backend.break_device(0, "n0", 0)
    plane.turn()
    device = plane.control.cluster().nodes[0].devices[0]
    assert (device.state, device.reason) == (DeviceState.DOWN, "Xid 79")
    assert plane.control.job(1).devices == (("n1", (0,)),)


def test_new_queue_is_there_without_a_restart_and_after_one():
    plane = Plane().start()
    plane.do(plane.control.set_site((QueueSpec(name="night"),), (TenantSpec(name="lab"),), actor="op"))
    assert plane.submit(make_spec(queue="night", tenant="lab")) == (1,)
    plane.start()
    assert [queue.name for queue in plane.control.cluster().queues] == ["production", "night"]


def test_tenant_cannot_be_moved_nor_have_a_parent_that_is_not_there():
    plane = Plane().start()
    plane.do(plane.control.set_site((), (TenantSpec(name="a"), TenantSpec(name="b", parent="a")), actor="op"))
    for wrong in (TenantSpec(name="b"), TenantSpec(name="c", parent="d")):
        with pytest.raises(InputError, match="parent"):
            plane.do(plane.control.set_site((), (wrong,), actor="op"))
    both = [plane.control.set_site((), (TenantSpec(name="e", parent=parent),), actor="op") for parent in ("a", "b")]
    plane.turn()
    both[0].result(0)
    with pytest.raises(InputError, match="parent"):
        both[1].result(0)


# --- views ------------------------------------------------------------------------------------------------------------


def test_cluster_view_counts_what_is_held_and_by_whom():
    plane = Plane(devices=2, tenants=(TenantSpec(name="lab"), TenantSpec(name="a", parent="lab"))).start()
    plane.submit(make_spec(tenant="a"), make_spec(1, devices=2, tenant="a"))
    view = plane.control.cluster()
    assert (view.running, view.pending, view.policy) == (1, 1, "easy")
    assert [device.owners for device in view.nodes[0].devices] == [((1, 1_000),), ()]
    assert view.nodes[0].state is NodeState.MIXED
    lab = {tenant.name: tenant for tenant in view.tenants}["lab"]
    assert (lab.used_milli, lab.running, lab.pending) == (1_000, 1, 1)
    assert (view.queues[0].running, view.queues[0].pending, view.queues[0].used_milli) == (1, 1, 1_000)
    assert view.cycle_ms_p99 >= view.cycle_ms_p50 > 0


def test_nodes_say_what_their_backend_cannot_limit_and_which_devices_they_are():
    plane = Plane(devices=2).start()
    (node,) = plane.control.cluster().nodes
    assert (node.notes, [device.uuid for device in node.devices]) == ((), ["", ""])
    plane.backend.notes = ("cgroup v1: memory cannot be limited here",)
    plane.backend.uuids = {(node.name, 1): "GPU-b"}
    (node,) = plane.control.cluster().nodes
    assert (node.notes, [device.uuid for device in node.devices]) == (plane.backend.notes, ["", "GPU-b"])


def test_followers_hear_of_each_change_of_a_job_and_one_that_fails_is_dropped(caplog):
    plane = Plane().start()
    heard, failed = [], []

    def fail(notice):
        failed.append(notice)
        raise ValueError("gone")

    plane.control.subscribe(fail)
    stop = plane.control.subscribe(heard.append)
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.run()
    states = [notice.data["state"] for notice in heard if notice.kind == "job"]
    assert states == ["PENDING", "CONFIGURING", "RUNNING", "COMPLETED"]
    assert [notice.seq for notice in heard] == sorted({notice.seq for notice in heard})
    assert [notice.data for notice in heard if notice.kind == "plan"] == [{"start": 1}]
    assert len(failed) == 1
    assert "dropped" in caplog.text
    stop()
    plane.submit(make_spec())
    assert heard[-1].data["state"] == "COMPLETED"


def test_what_followers_hear_can_be_read():
    plane = Plane().start()
    order = ["PENDING", "CONFIGURING", "RUNNING", "COMPLETED"]
    ahead = []

    def compare(notice):
        if notice.kind == "job":
            heard, row = notice.data["state"], plane.store.rows[notice.data["id"]]
            ahead.append(order.index(heard) > order.index(row.state.value))

    plane.control.subscribe(compare)
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.run()
    assert plane.state(1) is JobState.COMPLETED
    assert ahead == [False] * 4


def test_plans_that_moved_something_can_be_looked_at():
    plane = Plane().start()
    plane.submit(make_spec())
    ((at_ms, plan),) = plane.control.plans()
    assert (at_ms, [type(move) for move in plan.moves]) == (0, [Start])


def test_queues_and_tenants_without_jobs_can_be_removed():
    queues = tuple(QueueSpec(name=name) for name in ("day", "night"))
    tenants = (TenantSpec(name="lab"), TenantSpec(name="bench", parent="lab"))
    plane = Plane(queues=queues, tenants=tenants).start()
    plane.submit(make_spec(queue="night", tenant="bench"), scripts=["run_ms=500"])

    def remove(**names):
        plane.do(plane.control.set_site((), (), actor="op", removed=Removed(**names)))

    for names, said in (
        ({"queues": ("night",)}, "queue 'night': expected no jobs where it is to be removed, found 1 .*: 1; it stays"),
        ({"tenants": ("bench",)}, "tenant 'bench': expected no jobs"),
        ({"tenants": ("lab",)}, "tenant 'lab': expected no tenants below it where it is to be removed, found 'bench'"),
        ({"tenants": ("root",)}, "cannot be removed"),
        ({"queues": ("day", "night")}, "found 1"),
    ):
        with pytest.raises(InputError, match=said):
            remove(**names)
    plane.run()
    remove(queues=("night", "nobody's"), tenants=("lab", "bench"))
    for _ in range(2):
        assert [queue.name for queue in plane.control.cluster().queues] == ["day"]
        assert [tenant.name for tenant in plane.control.cluster().tenants] == ["root"]
        for spec in (make_spec(queue="night"), make_spec(queue="day", tenant="lab")):
            with pytest.raises(InputError, match=r"expected a (queue|tenant) out of"):
                plane.submit(spec)
        plane.options |= {"queues": (), "tenants": ()}
        plane.start()
    with pytest.raises(InputError, match="a queue that stays"):
        remove(queues=("day",))
    plane.do(plane.control.set_site((queues[1],), (tenants[0],), actor="op"))
    plane.submit(make_spec(queue="night", tenant="lab"), scripts=["run_ms=500"])
    plane.run()
    assert plane.state(2) is JobState.COMPLETED


def test_a_job_for_a_queue_that_goes_in_the_same_turn_is_refused():
    plane = Plane(queues=(QueueSpec(name="day"), QueueSpec(name="night"))).start()
    gone = plane.control.set_site((), (), actor="op", removed=Removed(queues=("night",)))
    late = plane.control.submit(make_submission(make_spec(queue="night")))
    plane.turn()
    gone.result(timeout=0)
    with pytest.raises(InputError, match="that stay"):
        late.result(timeout=0)


def test_another_policy_takes_over_without_a_restart():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1), scripts=["run_ms=500"])
    plane.do(plane.control.set_policy(named_policy("fifo")))
    assert plane.control.cluster().policy == "fifo"
    assert (plane.state(1), plane.state(2)) == (JobState.RUNNING, JobState.PENDING)
    plane.run()
    assert plane.state(2) is JobState.COMPLETED
    starts = [event for event in plane.store.events if isinstance(event, ControlStarted)]
    assert [start.policy for start in starts] == ["fifo"]


def test_named_qos_decide_who_is_next_and_a_reload_brings_them():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1, qos="low"), make_spec(2, qos="high"), scripts=["run_ms=500"] * 3)
    qos = (Qos(name="low", priority=1), Qos(name="high", priority=100))
    plane.do(plane.control.set_policy(replace(named_policy("multifactor"), qos=qos)))
    plane.run()
    assert [plane.store.rows[job].start_ms for job in (1, 2, 3)] == [0, 1_000, 500]


def test_a_qos_that_is_not_among_the_named_ones_is_refused():
    plane = Plane().start()
    assert plane.submit(make_spec(qos="any"), scripts=["run_ms=500"]) == (1,)
    qos = (Qos(name="low", priority=1), Qos(name="high", priority=100))
    plane.do(plane.control.set_policy(replace(named_policy("multifactor"), qos=qos)))
    with pytest.raises(InputError, match="expected a QOS out of high, low, found 'hihg'"):
        plane.submit(make_spec(qos="hihg"))
    assert plane.submit(make_spec(), make_spec(1, qos="low"), scripts=["run_ms=500"] * 2) == (2, 3)


# --- threads ----------------------------------------------------------------------------------------------------------


def test_requests_of_many_threads_are_answered_by_the_one_that_runs():
    plane = Plane(devices=8).start()
    runner = threading.Thread(target=plane.control.run)
    runner.start()
    numbers = []

    def ask():
        for _ in range(20):
            numbers.extend(plane.control.submit(make_submission(make_spec())).result(timeout=30))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    plane.control.close()
    runner.join()
    assert sorted(numbers) == list(range(1, 81))
    with pytest.raises(StorageError, match="stopping"):
        plane.control.submit(make_submission(make_spec())).result(0)


def test_our_own_bug_stops_the_control_plane_and_tells_who_waits():
    plane = Plane().start()

    def fail(_now_ms):
        raise InternalError("books differ")

    plane.backend.observe = fail
    answer = plane.control.submit(make_submission(make_spec()))
    with pytest.raises(InternalError, match="books differ"):
        plane.control.run()
    for future in (answer, plane.control.submit(make_submission(make_spec()))):
        with pytest.raises(InternalError, match="books differ"):
            future.result(0)
    assert not plane.control.is_ready


def test_more_requests_than_may_wait_are_turned_away():
    plane = Plane(settings=ControlSettings(requests_max=1)).start()
    first, second = (plane.control.submit(make_submission(make_spec())) for _ in range(2))
    plane.turn()
    assert first.result(0) == (1,)
    with pytest.raises(StorageError, match="fewer than 1 requests"):
        second.result(0)


def test_finished_jobs_are_found_in_the_store():
    plane = Plane().start()
    plane.submit(make_spec())
    plane.run()
    assert plane.control.job(1) == plane.store.find_jobs(JobQuery(ids=(1,)))[0]
    assert plane.control.job(2) is None
    assert not [event for event in plane.store.events if isinstance(event, PlanAccepted) and not event.plan.moves]


@pytest.mark.parametrize(
    ("now", "state"),
    [
        ({"labels": (("zone", "a"),)}, NodeState.IDLE),
        ({"crowds": (("web", 2),)}, NodeState.IDLE),
        ({"groups": (DeviceGroup(model="B200", count=1),)}, NodeState.DRAINED),
    ],
)
def test_node_with_other_labels_or_neighbours_is_used_and_one_with_other_devices_drained(now, state):
    plane = Plane().start()
    plane.backend.change_node(plane.clock.now_ms(), replace(plane.backend.specs[0], **now))
    plane.run(until_ms=5_000)
    (node,) = plane.control.cluster().nodes
    assert node.state is state
