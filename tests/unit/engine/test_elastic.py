"""Elastic jobs grow where more devices make them faster."""

from dataclasses import replace

import pytest

from clearway.engine.elastic import speedup
from clearway.engine.policy import Elasticity, Policy, Preemption, PreemptMode
from clearway.model.cluster import DeviceGroup, LinkSpec, NodeSpec, QueueSpec
from clearway.model.events import (
    JobBounded,
    JobReleased,
    JobResized,
    JobStarted,
    JobStopped,
    LinksSet,
    NodeAdded,
    QueueSet,
    TimerFired,
)
from clearway.model.jobs import Checkpoint, DomainLevel, Elastic, JobKind, Network, StopCause
from clearway.model.plan import Migrate, Resize, Start, Stop
from clearway.model.units import HOUR_MS, SECOND_MS
from clearway.policies.orders import Fifo
from support.engine import add_nodes, make_job, make_kernel, started_jobs, submit

ELASTIC = Policy(name="elastic", order=Fifo(), elasticity=Elasticity(enabled=True, interval_ms=0))


def grown_to(links):
    """Replicas of a job that has one node of four devices and may have the other one too; 0 = it stays as it is."""
    kernel = make_kernel(ELASTIC)
    kernel.handle(LinksSet(0, links))
    add_nodes(kernel, 1, 4)
    elastic, checkpoint = Elastic(replicas_min=4, replicas_max=8), Checkpoint(interval_ms=HOUR_MS)
    submit(kernel, {"replicas": 4, "elastic": elastic, "checkpoint": checkpoint, "estimate_ms": 9 * HOUR_MS})
    kernel.handle(JobStarted(1, 1, 1))
    add_nodes(kernel, 1, 4)
    commands = kernel.handle(TimerFired(SECOND_MS))
    commands += (Resize(1, 0, kernel.state.jobs[1].target),) if kernel.state.jobs[1].target else ()
    return max((move.allocation.replicas for move in commands if isinstance(move, Resize)), default=0)


@pytest.mark.parametrize(("site_gbps", "replicas"), [(None, 8), (50.0, 8), (0.5, 0)])
def test_a_job_grows_beyond_its_node_where_the_links_between_nodes_let_it_be_faster(site_gbps, replicas):
    """Each of four devices passes 1.07 GB to its fellow on the other node, beside a second of work."""
    links = () if site_gbps is None else (("site", LinkSpec(bandwidth_gbps=site_gbps, latency_us=5)),)
    assert grown_to((("node", LinkSpec(bandwidth_gbps=400, latency_us=1)), *links) if links else ()) == replicas


@pytest.mark.parametrize(
    ("points", "expected"),
    [((), [1, 2, 4, 9]), (((4, 3.4), (8, 6.0)), [1, 1.8, 3.4, 6]), (((1, 1.0), (2, 1.9)), [1, 1.9, 1.9, 1.9])],
)
def test_speedup_is_linear_from_one_replica_on_between_the_points_that_are_given(points, expected):
    spec = make_job(1, elastic=Elastic(replicas_min=1, replicas_max=9, speedup=points))
    assert [speedup(spec, replicas) for replicas in (1, 2, 4, 9)] == pytest.approx(expected)


@pytest.mark.parametrize("level", [DomainLevel.NODE, DomainLevel.NVLINK, DomainLevel.LEAF])
def test_a_job_grows_within_the_widest_domain_that_it_allows(level):
    """A leaf has two nodes of four devices; none is in an NVLink domain."""
    kernel = make_kernel(ELASTIC)
    add_nodes(kernel, 4, 4, leaf=lambda number: f"leaf{(number + 1) // 2}")
    elastic = Elastic(replicas_min=3, replicas_max=16)
    submit(kernel, {"replicas": 3, "elastic": elastic, "network": Network(widest=level)})
    kernel.handle(JobStarted(1, 1, 1))
    grown = kernel.state.jobs[1].target or kernel.state.jobs[1].allocation
    while (target := kernel.state.jobs[1].target) is not None:
        grown = target
        kernel.handle(JobResized(SECOND_MS, 1, kernel.state.jobs[1].generation))
    assert grown.replicas == (8 if level is DomainLevel.LEAF else 4)


def test_a_burst_has_all_that_elastic_jobs_can_spare_at_once():
    """Job 1 holds eight devices and needs two: six of nine tasks have room as soon as it has left theirs."""
    kernel = make_kernel(replace(ELASTIC, preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0)))
    add_nodes(kernel, 2, 4)
    elastic, checkpoint = Elastic(replicas_min=2, replicas_max=8), Checkpoint(interval_ms=HOUR_MS)
    submit(kernel, {"replicas": 8, "elastic": elastic, "checkpoint": checkpoint})
    kernel.handle(JobStarted(1, 1, 1))
    submit(kernel, *[{"priority": 5, "kind": JobKind.TASK}] * 9, at_ms=HOUR_MS)
    target = kernel.state.jobs[1].target
    assert target is not None
    assert target.replicas == 2
    assert len(kernel.state.claims) == 6
    assert started_jobs(kernel.handle(JobResized(HOUR_MS, 1, kernel.state.jobs[1].generation))) == list(range(2, 8))


def test_no_more_devices_are_kept_for_a_burst_than_its_queue_may_have():
    kernel = make_kernel(replace(ELASTIC, preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0)))
    kernel.handle(QueueSet(0, QueueSpec(name="tasks", devices_max_milli=3_000)))
    add_nodes(kernel, 2, 4)
    elastic, checkpoint = Elastic(replicas_min=2, replicas_max=8), Checkpoint(interval_ms=HOUR_MS)
    submit(kernel, {"replicas": 8, "elastic": elastic, "checkpoint": checkpoint})
    kernel.handle(JobStarted(1, 1, 1))
    submit(kernel, *[{"priority": 5, "queue": "tasks"}] * 9, at_ms=HOUR_MS)
    assert len(kernel.state.claims) == 3


def test_job_has_no_more_replicas_than_it_is_bounded_to_and_grows_when_that_is_over():
    kernel = make_kernel(ELASTIC)
    add_nodes(kernel, 1, 8)
    elastic, checkpoint = Elastic(replicas_min=1, replicas_max=8), Checkpoint(interval_ms=HOUR_MS)
    wide = {"replicas": 4, "elastic": elastic, "checkpoint": checkpoint, "estimate_ms": 9 * HOUR_MS}
    submit(kernel, {**wide, "held": True})
    kernel.handle(JobBounded(1, 1, 3))
    (start,) = [one for one in kernel.handle(JobReleased(2, 1)) if isinstance(one, Start)]
    assert start.allocation.replicas == 3
    kernel.handle(JobStarted(3, 1, 1))
    assert kernel.handle(TimerFired(SECOND_MS)) == ()
    grown = [one for one in kernel.handle(JobBounded(2 * SECOND_MS, 1, 100)) if isinstance(one, Resize)]
    assert [one.allocation.replicas for one in grown] == [8]
    assert kernel.state.jobs[1].spec.replicas == 4


SHRINKS = replace(ELASTIC, preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0))
NO_ELASTIC = replace(SHRINKS, elasticity=Elasticity(enabled=False))
WIDE = {
    "replicas": 4,
    "elastic": Elastic(replicas_min=1, replicas_max=8),
    "checkpoint": Checkpoint(interval_ms=HOUR_MS),
}


def holds_more_than_its_bound(policy):
    """A kernel with one node of four devices, all held by a job that may now have two."""
    kernel = make_kernel(policy)
    add_nodes(kernel, 1, 4)
    assert started_jobs(submit(kernel, WIDE)) == [1]
    kernel.handle(JobStarted(1, 1, 1))
    kernel.handle(JobBounded(2, 1, 2))
    return kernel


def test_job_that_holds_more_than_it_may_have_now_gives_a_part_to_others():
    kernel = holds_more_than_its_bound(SHRINKS)
    (resize,) = [one for one in submit(kernel, {"priority": 1}, at_ms=3) if isinstance(one, Resize)]
    assert resize.allocation.replicas == 3


def test_job_that_holds_more_than_it_may_have_now_moves_with_all_of_it():
    kernel = holds_more_than_its_bound(NO_ELASTIC)
    kernel.handle(NodeAdded(3, NodeSpec(name="wide", groups=(DeviceGroup(model="H100", count=4),))))
    (move,) = [one for one in submit(kernel, {"priority": 1, "nodes": ("n1",)}, at_ms=4) if isinstance(one, Migrate)]
    assert move.allocation.replicas == 4


def test_what_is_kept_for_a_job_is_no_more_than_it_may_have_now():
    kernel = make_kernel(NO_ELASTIC)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4})
    kernel.handle(JobStarted(1, 1, 1))
    assert any(isinstance(one, Stop) for one in submit(kernel, {**WIDE, "priority": 1}, at_ms=2))
    kernel.handle(JobBounded(3, 2, 2))
    (start,) = [one for one in kernel.handle(JobStopped(4, 1, 1, StopCause.PREEMPTED)) if isinstance(one, Start)]
    assert (start.job, start.allocation.replicas) == (2, 2)


def test_an_elastic_job_starts_with_all_that_it_would_grow_to():
    """Not with fewer now, and again a moment later."""
    kernel = make_kernel(ELASTIC)
    add_nodes(kernel, 2, 4)
    commands = submit(kernel, {"replicas": 1, "elastic": Elastic(replicas_min=1, replicas_max=7)})
    (start,) = [move for move in commands if isinstance(move, Start)]
    assert start.allocation.replicas == 7
    assert not kernel.handle(JobStarted(1, 1, 1))
