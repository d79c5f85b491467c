"""When and where a waiting job is planned to start, and who may start before it."""

from dataclasses import replace

from clearway.engine.policy import Backfill
from clearway.model.cluster import QueueSpec
from clearway.model.events import QueueSet, TimerFired
from clearway.model.units import HOUR_MS
from support.engine import EASY, add_nodes, finish, make_kernel, started, started_jobs, submit

CONSERVATIVE = replace(EASY, backfill=Backfill(reservation_depth=100))


def hours(devices, run, **wishes):
    return {"devices": devices, "estimate_ms": int(run * HOUR_MS), **wishes}


def planned(kernel, job):
    start_ms = kernel.explain(job).start_ms
    return None if start_ms is None else start_ms / HOUR_MS


def test_a_reservation_begins_when_enough_running_jobs_end():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 8)
    submit(kernel, hours(2, 1), hours(3, 2), hours(3, 3), hours(5, 1))
    assert planned(kernel, 4) == 2


def test_what_starts_may_move_a_reservation_and_others_start_at_once_behind_the_new_one():
    """The last replica of job 3 is to go to n3. Job 4 leaves one device on n2, a tighter place for it."""
    kernel = make_kernel(EASY)
    for size in (4, 3, 2):
        add_nodes(kernel, 1, size)
    gang, on_second = hours(1, 1, replicas=5), hours(1, 1, nodes=("n2",))
    commands = submit(kernel, hours(4, 1), on_second, gang, hours(2, 9), hours(2, 9))
    assert started_jobs(commands) == [1, 2, 4, 5]
    assert planned(kernel, 3) == 1


def test_a_job_that_a_limit_comes_to_forbid_keeps_no_reservation():
    """Job 3 takes what the queue may still give, so that job 2 waits for that and not for devices."""
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 8)
    kernel.handle(QueueSet(0, QueueSpec(name="small", devices_max_milli=8_000)))
    wishes = hours(6, 1), hours(8, 1, queue="small"), hours(1, 0.5, queue="small"), hours(1, 9)
    assert started_jobs(submit(kernel, *wishes)) == [1, 3, 4]


def test_a_reservation_waits_for_devices_on_one_node():
    """In one hour four devices are free, but on two nodes."""
    kernel = make_kernel(EASY)
    add_nodes(kernel, 2, 4)
    submit(kernel, hours(2, 1), hours(2, 2), hours(2, 1), hours(2, 3))
    submit(kernel, hours(4, 1))
    assert planned(kernel, 5) == 2


def test_each_job_is_reserved_after_those_ahead():
    kernel = make_kernel(CONSERVATIVE)
    add_nodes(kernel, 1, 4)
    submit(kernel, hours(4, 1), hours(4, 2), hours(4, 3))
    assert [planned(kernel, job) for job in (2, 3)] == [1, 3]


def test_a_later_reservation_fills_a_hole_between_earlier_ones():
    kernel = make_kernel(CONSERVATIVE)
    add_nodes(kernel, 1, 4)
    submit(kernel, hours(4, 1), hours(3, 2), hours(4, 1), hours(1, 2))
    assert [planned(kernel, job) for job in (2, 3, 4)] == [1, 3, 1]


def test_no_reservation_for_a_job_that_waits_for_an_endless_one():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4}, hours(4, 1))
    assert planned(kernel, 2) is None


def test_a_job_that_ends_as_a_reservation_begins_may_start():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, hours(2, 1), hours(4, 1))
    assert started_jobs(submit(kernel, hours(2, 1))) == [3]


def test_a_job_that_ends_a_moment_later_may_not():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, hours(2, 1), hours(4, 1))
    assert started(submit(kernel, {"devices": 2, "estimate_ms": HOUR_MS + 1})) == []


def test_a_reservation_keeps_cpus_too():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4, cpu_milli=4_000)
    submit(kernel, hours(1, 1, cpu_milli=2_000), hours(1, 1, cpu_milli=4_000))
    assert started(submit(kernel, hours(1, 5, cpu_milli=1_000))) == []
    assert started_jobs(submit(kernel, hours(1, 5))) == [4]


def test_an_overdue_job_moves_the_reservation_on():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, hours(4, 1), hours(4, 1))
    kernel.handle(TimerFired(2 * HOUR_MS))
    assert planned(kernel, 2) >= 2
    assert started_jobs(finish(kernel, 1, at_ms=3 * HOUR_MS)) == [2]
