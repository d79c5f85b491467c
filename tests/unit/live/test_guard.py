"""Starts that fail: jobs back off and are held in the end, nodes are drained, and a restart forgets nothing of it."""

from clearway.live.controller import ControlSettings
from clearway.live.guard import GuardSettings
from clearway.ports.views import JobState, NodeState
from support.live import Plane, make_spec

SETTINGS = ControlSettings(guard=GuardSettings(retries_max=4, delay_ms=1_000, delay_max_ms=3_000, node_jobs_max=3))


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
    assert plane.control.job(1).message.startswith("start failed 1 of 4 times; next try in 1 s")
    plane.run()
    assert [at_ms for at_ms, _, _ in plane.tries] == [0, 1_000, 3_000, 6_000]
    row = plane.control.job(1)
    assert (row.state, row.reason) == (JobState.REQUEUE_HOLD, "launch failed")
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
