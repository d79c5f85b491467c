"""Starts that fail: jobs back off and are held in the end, nodes are drained, and a restart forgets nothing of it."""

from clearway.live.guard import GuardSettings
from clearway.live.settings import ControlSettings
from clearway.model.events import JobStopped
from clearway.model.jobs import Request, StopCause
from clearway.model.plan import ReasonCode
from clearway.ports.views import JobState, NodeState
from support.live import Plane, make_spec

SETTINGS = ControlSettings(guard=GuardSettings(retries_max=4, delay_ms=1_000, delay_max_ms=3_000, node_jobs_max=3))


def on(node):
    return Request(devices=1, nodes=(node,))


def make_plane(fails, **options):
    plane = Plane(settings=SETTINGS, **options)
    plane.backend.fails_start = fails
    plane.tries = []

    def note_and_fail(job, nodes):
        plane.tries.append((plane.backend.now_ms, job, nodes[0]))
        return fails(job, nodes)

    plane.backend.fails_start = note_and_fail
    return plane.start()


def test_job_backs_off_longer_each_time_and_is_then_held_for_good():
    plane = make_plane(lambda _job, _nodes: True)
    plane.submit(make_spec())
    row = plane.control.job(1)
    assert (row.state, row.reason) == (JobState.PENDING, "JobLaunchFailure")
    assert row.message.startswith("start failed 1 of 4 times; next try in 1 s")
    (reason,) = plane.do(plane.control.explain(1)).reasons
    assert reason.message.startswith("JobLaunchFailure: start failed 1 of 4 times")
    plane.run()
    assert [at_ms for at_ms, _, _ in plane.tries] == [0, 1_000, 3_000, 6_000]
    row = plane.control.job(1)
    assert (row.state, row.reason) == (JobState.REQUEUE_HOLD, "launch failed requeued held")
    assert "release it to try again: it would not start" in row.message


def test_released_job_has_all_its_tries_again():
    plane = make_plane(lambda _job, _nodes: True)
    plane.submit(make_spec())
    plane.run()
    plane.do(plane.control.release((1,), actor="ada"))
    plane.run()
    assert len(plane.tries) == 8
    assert plane.state(1) is JobState.REQUEUE_HOLD


def test_job_that_starts_at_last_is_forgiven():
    plane = make_plane(lambda _job, _nodes: len(plane_tries) < 3)
    plane_tries = plane.tries
    plane.submit(make_spec(), scripts=["run_ms=100"])
    plane.run()
    assert plane.state(1) is JobState.COMPLETED
    assert plane.store.rows[1].restarts == 2


def test_wait_goes_on_over_a_restart():
    plane = make_plane(lambda _job, _nodes: True)
    plane.submit(make_spec())
    plane.run(until_ms=2_000)
    plane.start()
    plane.run()
    assert [at_ms for at_ms, _, _ in plane.tries] == [0, 1_000, 3_000, 6_000]


def test_users_own_hold_outlives_the_wait():
    plane = make_plane(lambda _job, _nodes: True)
    plane.submit(make_spec())
    plane.do(plane.control.hold((1,), actor="ada"))
    plane.run()
    assert len(plane.tries) == 1
    assert plane.control.job(1).reason == "JobHeldUser"
    assert [reason.code for reason in plane.do(plane.control.explain(1)).reasons] == [ReasonCode.HELD]


def test_node_that_fails_every_start_is_drained_after_three_jobs():
    plane = make_plane(lambda _job, nodes: nodes == ["n0"], nodes=2, devices=8)
    for user in range(6):
        plane.submit(make_spec(user=f"user {user}"), scripts=["run_ms=100"])
    plane.run()
    node = plane.control.cluster().nodes[0]
    assert (node.state, node.reason) == (NodeState.DRAINED, "the starts of 3 jobs in a row failed on it: 1, 2, 3")
    assert len({job for _, job, name in plane.tries if name == "n0"}) == 3
    assert [plane.state(number) for number in range(1, 7)] == [JobState.COMPLETED] * 6


def test_one_users_broken_jobs_do_not_drain_node_after_node():
    plane = make_plane(lambda job, _nodes: job <= 12, nodes=4, devices=1)
    plane.submit(*[make_spec(place) for place in range(12)])
    plane.run()
    states = [node.state for node in plane.control.cluster().nodes]
    assert states.count(NodeState.DRAINED) <= 1
    assert plane.submit(make_spec(user="bo"), scripts=["run_ms=100"]) == (13,)
    plane.run()
    assert plane.state(13) is JobState.COMPLETED


def test_jobs_that_are_to_blame_themselves_drain_no_node_and_are_held_all_the_same():
    plane = make_plane(lambda job, _nodes: job <= 4)
    plane.backend.unstartable = {1, 2, 3, 4}
    plane.submit(*[make_spec(place) for place in range(4)])
    plane.run()
    assert plane.control.cluster().nodes[0].state is NodeState.IDLE
    assert [plane.state(number) for number in range(1, 5)] == [JobState.REQUEUE_HOLD] * 4


def test_cancelled_job_is_not_held_by_a_start_that_fails():
    plane = make_plane(lambda _job, _nodes: True)
    plane.submit(make_spec())
    plane.do(plane.control.cancel((1,), actor="ada"))
    plane.run()
    assert plane.state(1) is JobState.CANCELLED
    assert plane.clock.now_ms() == 0


def test_users_good_starts_clear_no_record_of_his_broken_job():
    plane = make_plane(lambda job, _nodes: job == 1, devices=2)
    plane.submit(make_spec())
    for second in range(8):
        plane.submit(make_spec(), scripts=["run_ms=100"])
        plane.run(until_ms=1_000 * second)
    assert [at_ms for at_ms, job, _ in plane.tries if job == 1] == [0, 1_000, 3_000, 6_000]
    assert plane.state(1) is JobState.REQUEUE_HOLD
    assert plane.control.cluster().nodes[0].state is NodeState.IDLE


def test_node_that_fails_every_start_is_drained_though_its_only_user_has_a_broken_job_elsewhere():
    plane = make_plane(lambda job, nodes: job == 1 or nodes == ["n1"], nodes=2, devices=1)
    plane.submit(make_spec(request=on("n0")))  # fails, and n0 starts another: it is the job
    plane.submit(make_spec(request=on("n0")), scripts=["run_ms=600000"])
    for _ in range(4):
        plane.submit(make_spec(request=on("n1")))
        plane.run(until_ms=plane.clock.now_ms() + 100)
    node = plane.control.cluster().nodes[1]
    assert (node.state, node.reason) == (NodeState.DRAINED, "the starts of 3 jobs in a row failed on it: 3, 4, 5")
    assert {job for _, job, name in plane.tries if name == "n1"} == {3, 4, 5}
    assert plane.control.cluster().nodes[0].state is not NodeState.DRAINED


def test_one_users_broken_jobs_between_good_ones_do_not_drain_node_after_node():
    plane = make_plane(lambda job, _nodes: job % 2 == 0, nodes=4, devices=1)
    for _ in range(24):
        plane.submit(make_spec(), scripts=["run_ms=100"])
        plane.run(until_ms=plane.clock.now_ms() + 50)
    plane.run()
    states = [node.state for node in plane.control.cluster().nodes]
    assert states.count(NodeState.DRAINED) <= 1
    ends = {plane.state(job) for job in range(1, 25)}
    assert ends == {JobState.COMPLETED, JobState.REQUEUE_HOLD}


def test_node_is_used_again_when_all_that_it_failed_fail_elsewhere_too():
    plane = make_plane(lambda job, _nodes: job <= 3, nodes=2, devices=1)
    for _ in range(3):
        plane.submit(make_spec())
        plane.run(until_ms=plane.clock.now_ms() + 10)
    first = plane.control.cluster().nodes[0]
    assert first.state is NodeState.DRAINED
    plane.run()
    assert [node.state for node in plane.control.cluster().nodes] == [NodeState.IDLE, NodeState.IDLE]
    assert [plane.state(job) for job in (1, 2, 3)] == [JobState.REQUEUE_HOLD] * 3


def test_node_that_was_drained_by_hand_meanwhile_stays_drained():
    plane = make_plane(lambda job, _nodes: job <= 3, nodes=2, devices=1)
    for _ in range(3):
        plane.submit(make_spec())
        plane.run(until_ms=plane.clock.now_ms() + 10)
    plane.do(plane.control.drain("n0", reason="fan", actor="ada"))
    plane.run()
    assert plane.control.cluster().nodes[0].reason == "fan"


def test_record_of_a_node_outlives_a_restart():
    plane = make_plane(lambda _job, nodes: nodes == ["n0"], nodes=2, devices=8)
    for user in range(2):
        plane.submit(make_spec(user=f"user {user}", request=on("n0")))
    plane.run(until_ms=100)
    plane.start()
    plane.submit(make_spec(user="user 2", request=on("n0")))
    plane.run(until_ms=200)
    assert plane.control.cluster().nodes[0].state is NodeState.DRAINED


def test_burst_on_a_node_that_fails_every_start_costs_three_jobs_and_no_more():
    plane = make_plane(lambda _job, nodes: nodes == ["n0"], nodes=2, devices=8)
    plane.submit(*[make_spec(place) for place in range(16)], scripts=["run_ms=100"] * 16)
    plane.run()
    assert {job for _, job, name in plane.tries if name == "n0"} == {1, 2, 3}
    assert plane.control.cluster().nodes[0].state is NodeState.DRAINED
    assert {plane.state(number) for number in range(1, 17)} == {JobState.COMPLETED}


def test_jobs_that_waited_for_the_first_start_of_a_drained_node_begin_elsewhere_without_a_failure():
    plane = make_plane(lambda _job, nodes: nodes == ["n0"], nodes=2, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["run_ms=100"] * 8)
    plane.run()
    failed = [row.lost_ms for row in plane.store.rows.values() if row.generation > 1]
    assert len(failed) == 8
    assert not {"JobLaunchFailure", "launch failed requeued held"} & {row.reason for row in plane.store.rows.values()}


def test_burst_on_good_nodes_waits_for_one_start_and_no_longer():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=10 run_ms=100"] * 8)
    plane.run()
    assert [at_ms for at_ms, _, _ in plane.tries] == [0] * 3 + [10] * 5
    plane.tries.clear()
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=10 run_ms=100"] * 8)
    plane.run()
    assert len({at_ms for at_ms, _, _ in plane.tries}) == 1


def test_jobs_behind_starts_that_take_hours_wait_for_seconds():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=7200000"] * 3 + ["run_ms=100"] * 5)
    plane.run(until_ms=10_000)
    assert [at_ms for at_ms, _, _ in plane.tries] == [0] * 3 + [1_000] * 5
    assert {plane.state(number) for number in range(4, 9)} == {JobState.COMPLETED}


def test_starts_that_take_hours_hold_back_others_of_their_kind_for_seconds_each():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=7200000 run_ms=1"] * 8)
    plane.run(until_ms=10_000)
    assert [at_ms for at_ms, _, _ in plane.tries] == [0, 0, 0, 1_000, 2_000, 3_000, 4_000, 5_000]


def test_late_word_of_an_earlier_run_does_not_lose_a_start_that_waits():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=10 run_ms=100"] * 8)
    plane.backend.report(JobStopped(0, 8, 0, StopCause.NODE_FAILED, 0))
    plane.run()
    assert plane.state(8) is JobState.COMPLETED


def test_job_that_waits_for_the_first_start_of_its_node_can_be_cancelled():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=10 run_ms=100"] * 8)
    plane.do(plane.control.cancel((8,), actor="ada"))
    plane.run()
    assert plane.state(8) is JobState.CANCELLED
    assert 8 not in {job for _, job, _ in plane.tries}


def test_node_that_fails_job_after_job_is_drained_though_each_of_them_starts_elsewhere():
    plane = make_plane(lambda _job, nodes: nodes == ["n0"], nodes=6, devices=1)
    for job in range(1, 6):
        plane.submit(make_spec(), scripts=["run_ms=600000"])
        plane.run(until_ms=plane.clock.now_ms() + 10)
        plane.backend.break_device(plane.clock.now_ms(), "n0", 0)  # so that it is tried elsewhere next
        plane.run(until_ms=plane.clock.now_ms() + 2_000)
        assert plane.state(job) is JobState.RUNNING
        plane.backend.mend_device(plane.clock.now_ms(), "n0", 0)
    node = plane.control.cluster().nodes[0]
    assert (node.state, node.reason) == (NodeState.DRAINED, "the starts of 3 jobs in a row failed on it: 1, 2, 3")
    assert {job for _, job, name in plane.tries if name == "n0"} == {1, 2, 3}


def test_starts_that_waited_are_performed_by_the_next_control_plane():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=10 run_ms=100"] * 8)
    assert len(plane.tries) == 3
    plane.start()
    assert {job for _, job, _ in plane.tries} == set(range(1, 9))
    plane.run()
    assert {plane.state(number) for number in range(1, 9)} == {JobState.COMPLETED}
