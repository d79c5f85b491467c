"""When and where a waiting job is planned to start, and who may start before it."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Backfill, Preemption, PreemptMode
from clearway.model.cluster import DeviceGroup, NodeSpec, QueueSpec
from clearway.model.events import JobStopped, NodeAdded, QueueSet, TimerFired
from clearway.model.jobs import DomainLevel, Network, StopCause
from clearway.model.plan import Stop
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


@pytest.mark.parametrize(("network", "starts"), [(Network(), [5]), (Network(preferred=DomainLevel.LEAF), [])])
def test_a_reservation_lies_in_a_domain_of_the_level_that_its_job_prefers(network, starts):
    """In an hour the gang would go to the whole of n1, or to the tighter leaf, where n4 is free and another waits."""
    kernel = make_kernel(EASY)
    add_nodes(kernel, 2, 8, leaf="roomy")
    add_nodes(kernel, 2, 4, leaf="tight")
    submit(kernel, hours(8, 1), hours(8, 1), hours(4, 1))
    submit(kernel, hours(4, 1, replicas=2, network=network))
    assert planned(kernel, 4) == 1
    assert started_jobs(submit(kernel, hours(4, 9))) == starts


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


def test_a_job_that_arrives_when_a_running_one_is_late_is_judged_by_a_later_reservation():
    """Job 1 is late after one hour, so that job 3 cannot start at the third, and job 4 does not delay it."""
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 8)
    submit(kernel, hours(3, 1), hours(4, 3), hours(8, 1))
    assert planned(kernel, 3) == 3
    assert started_jobs(submit(kernel, hours(1, 1.5), at_ms=2 * HOUR_MS)) == [4]


def test_a_job_that_waits_when_a_running_one_is_late_is_judged_by_a_later_reservation():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 8)
    submit(kernel, hours(3, 2), hours(4, 3), hours(8, 1))
    assert started(submit(kernel, hours(1, 1.5), at_ms=19 * HOUR_MS // 10)) == []
    assert started_jobs(kernel.handle(TimerFired(5 * HOUR_MS // 2))) == [4]


def test_a_reservation_counts_on_cpus_that_come_free_beside_other_devices_of_the_node():
    """Job 3 wants the device of model B, which is free, and a CPU of its node, which job 1 has for two hours."""
    kernel = make_kernel(EASY)
    groups = tuple(DeviceGroup(model=model, count=1) for model in "AB")
    kernel.handle(NodeAdded(0, NodeSpec(name="both", groups=groups, cpu_milli=1_000)))
    kernel.handle(NodeAdded(0, NodeSpec(name="other", groups=groups[:1], cpu_milli=1_000)))
    submit(kernel, hours(1, 2, cpu_milli=1_000, nodes=("both",), device_models=("A",)), hours(1, 1, nodes=("other",)))
    submit(kernel, hours(1, 1, cpu_milli=1_000, device_models=("B",)))
    assert planned(kernel, 3) == 2


def test_what_starts_on_devices_that_were_kept_for_it_is_expected_to_end_as_any_other():
    """Job 1 leaves for the urgent job 2, which starts at once, and is to follow when that has ended."""
    preemption = Preemption(mode=PreemptMode.PRIORITY, protection_ms=0)
    kernel = make_kernel(replace(EASY, preemption=preemption))
    add_nodes(kernel, 1, 8)
    submit(kernel, hours(8, 9))
    submit(kernel, hours(8, 1, priority=5), at_ms=HOUR_MS)
    assert started_jobs(kernel.handle(JobStopped(HOUR_MS, 1, 1, StopCause.PREEMPTED, 0))) == [2]
    assert planned(kernel, 1) == 2


def test_what_a_reservation_held_back_starts_when_room_is_made_for_its_job_elsewhere():
    """Job 3 is to follow job 2 on n2, and job 4 to leave that whole; then job 1, protected no more, leaves n1."""
    preemption = Preemption(mode=PreemptMode.PRIORITY, protection_ms=HOUR_MS // 2)
    kernel = make_kernel(replace(EASY, preemption=preemption))
    add_nodes(kernel, 2, 4)
    submit(kernel, hours(4, 9))
    submit(kernel, hours(2, 1, priority=5), hours(4, 1, priority=5), hours(2, 20))
    assert planned(kernel, 3) == 1
    commands = kernel.handle(TimerFired(HOUR_MS // 2))
    assert [move.job for move in commands if isinstance(move, Stop)] == [1]
    assert started_jobs(commands) == [4]
