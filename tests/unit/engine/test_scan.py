"""One pass over the queue: who starts, what is remembered of failures, and who holds whom up."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Backfill, Elasticity, Headroom
from clearway.model.cluster import QueueSpec
from clearway.model.commands import WakeAt
from clearway.model.events import JobCancelled, NodeUp, QueueSet, TimerFired
from clearway.model.jobs import DomainLevel, Elastic, JobKind, Network
from support.engine import EASY, FIRST_FIT, add_nodes, finish, make_kernel, nodes_of, started, started_jobs, submit

FIFO = replace(FIRST_FIT, backfill=Backfill(strict=True, reservation_depth=0))


def test_a_smaller_gang_of_the_same_class_starts_after_a_larger_failed():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    assert started_jobs(submit(kernel, {"replicas": 9}, {"replicas": 8})) == [2]


def test_a_class_that_failed_fails_for_equal_gangs_in_the_same_pass():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    assert started_jobs(submit(kernel, {"devices": 3}, *[{"devices": 2}] * 50, {"devices": 1})) == [1, 52]


def test_a_failure_of_topology_says_nothing_of_gangs_that_may_span_more():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    narrow = Network(widest=DomainLevel.NODE)
    commands = submit(kernel, {"replicas": 8, "network": narrow}, {"replicas": 8})
    assert started_jobs(commands) == [2]


def test_a_shorter_job_of_a_class_that_failed_beside_a_reservation_starts():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 2, "estimate_ms": 1_000}, {"devices": 4, "estimate_ms": 1_000})
    commands = submit(kernel, {"devices": 1, "estimate_ms": 2_000}, {"devices": 1, "estimate_ms": 500})
    assert started_jobs(commands) == [4]


def test_nothing_passes_in_strict_order():
    kernel = make_kernel(FIFO)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 3})
    assert started(submit(kernel, {"devices": 2}, {"devices": 1})) == []


@pytest.mark.parametrize("together", [True, False])
def test_nothing_passes_in_strict_order_whenever_it_arrives(together):
    kernel = make_kernel(FIFO)
    add_nodes(kernel, 1, 4)
    jobs = ({"devices": 3}, {"devices": 2}, {"devices": 1})
    commands = submit(kernel, *jobs) if together else [move for job in jobs for move in submit(kernel, job)]
    assert started_jobs(commands) == [1]


def test_a_job_refused_by_a_limit_holds_nobody_up_in_strict_order():
    kernel = make_kernel(FIFO)
    add_nodes(kernel, 1, 4)
    kernel.handle(QueueSet(0, QueueSpec(name="small", job_devices_max_milli=1_000)))
    assert started_jobs(submit(kernel, {"devices": 2, "queue": "small"}, {"devices": 2})) == [2]


def test_the_next_in_strict_order_starts_when_the_first_is_cancelled():
    kernel = make_kernel(FIFO)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 3}, {"devices": 2}, {"devices": 1})
    assert started_jobs(kernel.handle(JobCancelled(0, 2))) == [3]


def test_a_job_is_passed_at_most_so_often():
    kernel = make_kernel(replace(FIRST_FIT, backfill=Backfill(reservation_depth=0, bypass_max=2)))
    add_nodes(kernel, 1, 8)
    submit(kernel, {"devices": 4}, {"devices": 8})
    assert started_jobs([move for _ in range(4) for move in submit(kernel, {"devices": 1})]) == [3, 4]


def test_a_cycle_that_was_cut_short_says_so_and_goes_on_later():
    kernel = make_kernel(replace(FIRST_FIT, scan_max=3))
    add_nodes(kernel, 1, 8)
    first = started_jobs(submit(kernel, *[{"devices": 1}] * 8))
    assert 1 <= len(first) <= 3
    assert kernel.plan.cut_short
    then = started_jobs(kernel.handle(TimerFired(1)))
    assert first + then == list(range(1, len(first) + len(then) + 1))
    assert len(then) == 3


def make_long_queue(reservation_depth=0):
    """A full cluster, ten jobs that fit nowhere now, and one small job behind them."""
    backfill = Backfill(reservation_depth=reservation_depth)
    kernel = make_kernel(replace(FIRST_FIT, scan_max=3, backfill=backfill))
    add_nodes(kernel, 1, 8)
    submit(kernel, *[{"devices": count, "estimate_ms": 10_000} for count in (7, 1, *[8] * 10, 1)])
    return kernel


def go_on(kernel, *, at_ms=0):
    """Cycles until one is not cut short; returns (what started, how many cycles)."""
    commands, cycles = [], 0
    while kernel.was_cut_short:
        at_ms, cycles = at_ms + 1, cycles + 1
        commands += kernel.handle(TimerFired(at_ms))
        assert cycles < 100, "it never comes to rest"
    return started_jobs(commands), cycles


def test_a_job_beyond_what_a_cycle_looks_at_starts_all_the_same():
    kernel = make_long_queue()
    go_on(kernel)
    commands = finish(kernel, 2, at_ms=50)
    assert started_jobs(commands) == []
    assert WakeAt(51) in commands
    assert go_on(kernel, at_ms=50) == ([13], 3)


def test_a_cut_cycle_wakes_itself_until_all_were_looked_at_and_then_rests():
    kernel = make_long_queue()
    assert go_on(kernel)[1] <= 4
    assert not kernel.was_cut_short
    assert kernel.handle(TimerFired(60)) == ()


def test_what_is_reserved_at_the_front_binds_those_at_the_end():
    kernel = make_long_queue(reservation_depth=1)
    go_on(kernel)
    finish(kernel, 2, at_ms=50)
    assert go_on(kernel, at_ms=50)[0] == [], "it would end after the first is to have all devices"


def test_news_at_every_moment_does_not_keep_the_end_of_the_queue_from_its_turn():
    kernel = make_long_queue()
    go_on(kernel)
    finish(kernel, 2, at_ms=50)
    commands = [kernel.handle(NodeUp(at_ms, "n1")) for at_ms in range(51, 65)]
    assert 13 in started_jobs([one for each in commands for one in each])


def test_the_front_comes_first_after_news_while_the_rest_is_still_to_be_looked_at():
    kernel = make_long_queue()
    go_on(kernel)
    finish(kernel, 2, at_ms=50)
    assert kernel.was_cut_short
    assert started_jobs(finish(kernel, 1, at_ms=51)) == [3]


def test_headroom_is_kept_from_training_and_not_from_tasks():
    kernel = make_kernel(replace(FIRST_FIT, headroom=Headroom(enabled=True, devices_min=2)))
    add_nodes(kernel, 1, 8)
    jobs = ({"devices": 7}, {"devices": 6}, {"devices": 1}, {"devices": 2, "kind": JobKind.TASK})
    assert started_jobs(submit(kernel, *jobs)) == [2, 4]


def test_an_elastic_job_starts_with_as_many_replicas_as_fit():
    kernel = make_kernel(replace(FIRST_FIT, elasticity=Elasticity(enabled=True)))
    add_nodes(kernel, 1, 8)
    submit(kernel, {"devices": 3})
    start = started(submit(kernel, {"replicas": 8, "elastic": Elastic(replicas_min=2, replicas_max=8)}))[0]
    assert nodes_of(start) == [0] * 5


def test_an_elastic_job_waits_below_its_least():
    kernel = make_kernel(replace(FIRST_FIT, elasticity=Elasticity(enabled=True)))
    add_nodes(kernel, 1, 8)
    submit(kernel, {"devices": 7})
    assert started(submit(kernel, {"replicas": 8, "elastic": Elastic(replicas_min=2, replicas_max=8)})) == []


def test_a_gang_larger_than_the_work_space_of_a_pass_starts():
    kernel = make_kernel()
    add_nodes(kernel, 64, 62, model="wide")
    submit(kernel, {"devices": 62, "replicas": 63})
    assert started_jobs(submit(kernel, *[{"share_milli": 10}] * 2_000)) == list(range(2, 2_002))


def test_deciding_again_moves_nothing():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 2, 4)
    submit(kernel, *[{"devices": 3, "estimate_ms": 1_000}] * 4)
    assert kernel.handle(TimerFired(0)) == ()
    assert started_jobs(finish(kernel, 1)) == [3]


def test_what_did_not_fit_before_everybody_left_is_tried_again():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4})
    submit(kernel, {"devices": 4})
    kernel.handle(JobCancelled(0, 2))
    finish(kernel, 1)
    assert len(started_jobs(submit(kernel, {"devices": 4}))) == 1
