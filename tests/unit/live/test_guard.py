"""Starts that fail: jobs back off and are held in the end, nodes are drained, and a restart forgets nothing of it."""

import random

import pytest

from clearway.live.guard import GuardSettings
from clearway.live.settings import ControlSettings
from clearway.live.trust import LATE_MS, TRIAL_MS
from clearway.model.events import JobStopped
from clearway.model.jobs import Request, StopCause
from clearway.model.plan import ReasonCode
from clearway.ports.views import JobState, NodeState
from support.live import Plane, make_spec, make_submission

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
    plane = make_plane(lambda job, _nodes: job <= 24 and job % 2 == 0, nodes=4, devices=1)
    for _ in range(24):
        plane.submit(make_spec(), scripts=["run_ms=100"])
        plane.run(until_ms=plane.clock.now_ms() + 50)
    plane.run()
    states = [node.state for node in plane.control.cluster().nodes]
    assert states.count(NodeState.DRAINED) <= 1
    for _ in range(20):  # what waits of hers, waits for somebody to show that the nodes are well
        plane.submit(make_spec(user="bo"), scripts=["run_ms=100"])
        plane.run(until_ms=plane.clock.now_ms() + 1_000)
    assert {plane.state(job) for job in range(1, 25, 2)} == {JobState.COMPLETED}


def test_node_is_used_again_when_all_that_it_failed_fail_where_others_start():
    plane = make_plane(lambda job, _nodes: job <= 3, nodes=2, devices=1)
    for _ in range(3):
        plane.submit(make_spec())
        plane.run(until_ms=plane.clock.now_ms() + 10)
    assert plane.control.cluster().nodes[0].state is NodeState.DRAINED
    for _ in range(12):
        plane.submit(make_spec(user="bo"), scripts=["run_ms=100"])
        plane.run(until_ms=plane.clock.now_ms() + 800)
    assert [node.state for node in plane.control.cluster().nodes] == [NodeState.IDLE, NodeState.IDLE]
    assert {plane.state(job) for job in range(4, 16)} == {JobState.COMPLETED}


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


def test_setup_steps_that_take_hours_hold_nobody_back():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["setup_ms=7200000 run_ms=1"] * 8)
    plane.run(until_ms=10_000)
    assert [at_ms for at_ms, _, _ in plane.tries] == [0] * 8
    plane.run()
    assert {plane.state(number) for number in range(1, 9)} == {JobState.COMPLETED}


def test_node_whose_starts_are_not_answered_is_drained_and_what_waits_for_it_begins_elsewhere():
    plane = make_plane(lambda _job, _nodes: False, nodes=2, devices=8)
    scripts = ["start_ms=7200000 run_ms=1"] * 3 + ["run_ms=100"] * 5
    plane.submit(*[make_spec(place) for place in range(8)], scripts=scripts)
    plane.run(until_ms=LATE_MS - 1)
    assert {plane.state(number) for number in range(4, 9)} == {JobState.CONFIGURING}
    plane.run(until_ms=LATE_MS + 1_000)
    assert plane.control.cluster().nodes[0].state is NodeState.DRAINING
    assert {plane.state(number) for number in range(4, 9)} == {JobState.COMPLETED}
    plane.run()  # they start after all: so does the node
    assert plane.control.cluster().nodes[0].state is NodeState.IDLE


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


def test_starts_that_waited_go_on_waiting_under_the_next_control_plane():
    plane = make_plane(lambda _job, _nodes: False, devices=8)
    plane.submit(*[make_spec(place) for place in range(8)], scripts=["start_ms=10 run_ms=100"] * 8)
    plane.start()
    plane.turn()
    assert {job for _, job, _ in plane.tries} == {1, 2, 3}
    plane.run()
    assert {plane.state(number) for number in range(1, 9)} == {JobState.COMPLETED}


def test_burst_costs_three_jobs_though_the_control_plane_is_killed_before_the_first_answer():
    plane = make_plane(lambda _job, nodes: nodes == ["n0"], nodes=2, devices=8)
    jobs = [make_spec(place) for place in range(16)]
    future = plane.control.submit(make_submission(*jobs, scripts=["run_ms=100"] * 16))
    plane.control.turn(0)
    assert future.done()
    plane.start()
    plane.start()
    plane.run()
    assert {job for _, job, name in plane.tries if name == "n0"} == {1, 2, 3}
    assert {plane.state(number) for number in range(1, 17)} == {JobState.COMPLETED}


def test_one_users_jobs_that_fail_on_two_nodes_at_once_cost_each_at_most_three_and_drain_one():
    plane = make_plane(lambda _job, _nodes: True, nodes=2, devices=8)
    plane.submit(*[make_spec(place) for place in range(16)])
    plane.run(until_ms=60_000)
    taken = [{job for _, job, name in plane.tries if name == node} for node in ("n0", "n1")]
    assert [len(jobs) for jobs in taken] == [3, 2]
    assert [node.state for node in plane.control.cluster().nodes] == [NodeState.DRAINED, NodeState.IDLE]
    reason = plane.do(plane.control.explain(12)).reasons[0]
    assert reason.code is ReasonCode.LAUNCH_FAILED
    assert "n1: the starts of 9, 10 failed on it, and none has gone well since" in reason.message
    plane.submit(make_spec(user="bo"))
    plane.run(until_ms=61_000)
    assert plane.control.cluster().nodes[1].reason == "the starts of 3 jobs in a row failed on it: 9, 10, 17"
    plane.run()
    assert len({job for _, job, name in plane.tries if name == "n1"}) == 3


def test_node_that_is_kept_from_a_user_is_shown_and_is_his_again_when_another_starts_there():
    plane = make_plane(lambda job, _nodes: job <= 5, nodes=2, devices=8)
    plane.submit(*[make_spec(place, request=on("n0" if place < 3 else "n1")) for place in range(5)])
    plane.submit(make_spec(request=on("n1")), scripts=["run_ms=100"])
    plane.run(until_ms=100)
    assert plane.state(6) is JobState.PENDING
    node = plane.control.cluster().nodes[1]
    assert (node.state, node.reason[:29]) == (NodeState.IDLE, "kept from ada: the starts of ")
    plane.submit(make_spec(user="bo", request=on("n1")), scripts=["run_ms=100"])
    plane.run(until_ms=400)
    assert [plane.state(number) for number in (6, 7)] == [JobState.COMPLETED] * 2
    assert plane.control.cluster().nodes[1].reason == ""


def test_node_that_is_kept_from_its_only_user_gets_one_more_of_his_jobs_after_minutes():
    plane = make_plane(lambda job, _nodes: job <= 4, nodes=2, devices=8)
    plane.submit(*[make_spec(place, request=on(f"n{place % 2}")) for place in range(4)])
    plane.do(plane.control.cancel((1, 2, 3, 4), actor="ada"))
    plane.submit(*[make_spec(place, request=on("n0")) for place in range(4)], scripts=["run_ms=100"] * 4)
    plane.run(until_ms=TRIAL_MS - 1)
    plane.start()
    assert {plane.state(number) for number in range(5, 9)} == {JobState.PENDING}
    plane.run()
    assert {plane.state(number) for number in range(5, 9)} == {JobState.COMPLETED}
    assert len([at_ms for at_ms, job, _ in plane.tries if job > 4 and at_ms == TRIAL_MS]) == 4


def test_users_whom_a_bad_node_failed_are_not_locked_out_of_good_ones_by_one_whose_jobs_fail_everywhere():
    def fails(job, nodes):
        return nodes == ["n0"] or plane.control.job(job).user == "broken"

    plane = make_plane(fails, nodes=3, devices=8)
    users = ("ada", "bo", "broken")
    plane.submit(*[make_spec(place, user=user, request=on("n0")) for place, user in enumerate(users)])
    plane.do(plane.control.cancel((1, 2, 3), actor="root"))
    broken = [make_spec(place, user="broken", request=on(f"n{1 + place % 2}")) for place in range(4)]
    plane.submit(*broken)
    plane.submit(make_spec(user="ada"), scripts=["run_ms=100"])
    plane.run(until_ms=TRIAL_MS // 2)
    assert [node.state for node in plane.control.cluster().nodes] == [NodeState.DRAINED, NodeState.IDLE, NodeState.IDLE]
    assert plane.state(8) is JobState.PENDING
    plane.run(until_ms=2 * TRIAL_MS)
    assert plane.state(8) is JobState.COMPLETED


def test_operator_who_lets_a_node_be_used_opens_it_to_all():
    plane = make_plane(lambda job, _nodes: job <= 4, nodes=2, devices=8)
    plane.submit(*[make_spec(place, request=on(f"n{place % 2}")) for place in range(4)])
    plane.do(plane.control.cancel((1, 2, 3, 4), actor="ada"))
    plane.submit(make_spec(request=on("n0")), scripts=["run_ms=100"])
    assert plane.state(5) is JobState.PENDING
    plane.do(plane.control.undrain("n0", actor="root"))
    plane.run(until_ms=1_000)
    assert plane.state(5) is JobState.COMPLETED


@pytest.mark.parametrize("seed", range(8))
def test_no_node_that_fails_every_start_ever_takes_more_than_three_jobs(seed):
    draw = random.Random(seed)
    bad = {"n0", "n2"}
    plane = make_plane(lambda _job, nodes: nodes[0] in bad, nodes=4, devices=4)
    for _ in range(20):
        jobs = [make_spec(place, user=draw.choice("abc")) for place in range(draw.randint(1, 6))]
        scripts = [f"run_ms={draw.randint(1, 3_000)} start_ms={draw.choice((0, 0, 20))}" for _ in jobs]
        plane.control.submit(make_submission(*jobs, scripts=scripts))
        if draw.random() < 0.2:
            plane.control.cancel((draw.randint(1, len(plane.store.rows) + 1),), actor="root")
        plane.control.turn(plane.clock.now_ms())
        if draw.random() < 0.3:
            plane.start()
        plane.run(until_ms=plane.clock.now_ms() + draw.choice((1, 30, 500, 5_000, 400_000)))
    plane.run()
    for node in bad:
        assert len({job for _, job, name in plane.tries if name == node}) <= 3
    states = {plane.store.rows[job].state for job in plane.store.rows}
    assert states <= {JobState.COMPLETED, JobState.CANCELLED, JobState.REQUEUE_HOLD}


@pytest.mark.parametrize("seed", range(4))
def test_no_user_alone_ever_has_more_than_one_node_drained(seed):
    draw = random.Random(seed)
    plane = make_plane(lambda job, _nodes: plane.control.job(job).user == "broken", nodes=4, devices=4)
    for _ in range(25):
        users = [draw.choice(("broken", "broken", "ada", "bo")) for _ in range(draw.randint(1, 8))]
        jobs = [make_spec(place, user=user) for place, user in enumerate(users)]
        plane.control.submit(make_submission(*jobs, scripts=[f"run_ms={draw.randint(1, 3_000)}"] * len(jobs)))
        plane.run(until_ms=plane.clock.now_ms() + draw.choice((1, 30, 500, 5_000, 400_000)))
        drained = [
            node for node in plane.control.cluster().nodes if node.state in (NodeState.DRAINED, NodeState.DRAINING)
        ]
        assert len(drained) <= 1
    plane.run()
    assert {row.state for row in plane.store.rows.values() if row.user != "broken"} == {JobState.COMPLETED}
