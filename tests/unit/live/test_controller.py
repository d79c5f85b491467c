"""The control plane, turn by turn: what is on disk before what, and what a start finds again."""

from clearway.ports.views import JobState
from support.live import Plane, make_spec


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
    assert plane.store.rows[2].start_ms == 500
    assert plane.store.rows[2].end_ms == 800


def test_cancelled_job_is_stopped_and_cancelled_waiting_job_ends_at_once():
    plane = Plane().start()
    plane.submit(make_spec(), make_spec(1))
    assert plane.do(plane.control.cancel((2, 1, 9), actor="ada")) == (2, 1)
    assert (plane.state(1), plane.state(2)) == (JobState.CANCELLED, JobState.CANCELLED)
    assert plane.do(plane.control.cancel((1,), actor="ada")) == ()


def test_numbers_go_on_after_a_restart_and_running_jobs_are_adopted():
    plane = Plane(devices=2).start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.clock.set(100)
    plane.start()
    assert plane.state(1) is JobState.RUNNING
    assert plane.submit(make_spec(), scripts=["run_ms=100"]) == (2,)
    plane.run()
    assert [(row.state, row.end_ms, row.restarts) for row in plane.store.rows.values()] == [
        (JobState.COMPLETED, 500, 0),
        (JobState.COMPLETED, 200, 0),
    ]
    assert plane.backend.ran == [[1, 1, 0, 500], [2, 1, 100, 200]]
