"""The checkers must find each kind of violation, with its story, and stay silent on a world that is in order."""

import numpy as np
import pytest

from clearway.engine.tables import PHASE_PENDING, PHASE_RUNNING, PHASE_STARTING
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec, QueueSpec, Quota, TenantSpec
from clearway.model.errors import InternalError
from clearway.model.events import (
    Batch,
    DeviceDown,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobResized,
    JobStarted,
    JobStopped,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeDown,
    NodeDrained,
    NodeUp,
    PowerBudgetSet,
    TimerFired,
)
from clearway.model.jobs import (
    ArrayMember,
    Checkpoint,
    Dependency,
    DependencyKind,
    DomainLevel,
    Elastic,
    JobSpec,
    Network,
    Outcome,
    Request,
    StopCause,
)
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.model.units import GIB
from clearway.sim.checkers import STORY_MAX, ShadowCluster, StateChecker
from clearway.sim.random_world import make_world
from clearway.sim.shadow_rules import make_queue_rule, make_quota_rule
from clearway.sim.twin import run_twin
from support.fake_kernel import FakeKernel
from support.worlds import make_allocation, make_cluster, make_trace_job, make_workload

ONE = make_allocation([0], [0])
OTHER = make_allocation([1], [4])
HALF = Request(share_milli=500)


def make_shadow(*specs, cluster=None, rules=(), seed=9):
    shadow = ShadowCluster(seed, rules)
    for node in (cluster or make_cluster(2, 4)).nodes:
        shadow.watch(NodeAdded(0, node), ())
    for spec in specs:
        shadow.watch(JobSubmitted(0, spec), ())
    return shadow


def spec(number=1, **fields):
    return JobSpec(**({"id": number, "request": Request()} | fields))


def tell(shadow, *steps, at_ms=10):
    """Each step is an event, or a command, which comes with a timer."""
    for step in steps:
        is_event = hasattr(step, "at_ms")
        shadow.watch(step if is_event else TimerFired(at_ms), () if is_event else (step,))


def assert_refused(shadow, what, *steps):
    with pytest.raises(InternalError, match=what):
        tell(shadow, *steps)


def test_life_of_a_job_in_order_is_not_refused():
    elastic = Elastic(replicas_min=1, replicas_max=2)
    shadow = make_shadow(spec(elastic=elastic))
    tell(shadow, Start(1, 1, ONE), JobStarted(10, 1, 1), Suspend(1, 1), JobSuspended(10, 1, 1), Start(1, 2, OTHER))
    tell(shadow, JobStarted(10, 1, 2), Resize(1, 3, make_allocation([1, 1], [4, 5])), JobResized(10, 1, 3))
    tell(shadow, Migrate(1, 4, ONE), JobResized(10, 1, 4), Stop(1, 4, 0, StopCause.PREEMPTED))
    tell(shadow, JobStopped(10, 1, 4, StopCause.PREEMPTED, 3), Start(1, 5, ONE), JobStarted(10, 1, 5))
    tell(shadow, JobFinished(10, 1, 5, Outcome.COMPLETED))
    shadow.check_end()


# --- power ------------------------------------------------------------------------------------------------------------


def make_powered_shadow(budget):
    shadow = make_shadow(spec(1, replicas=2), spec(2), cluster=make_cluster(2, 4, watts_max=400))
    tell(shadow, PowerBudgetSet(0, budget))
    return shadow


def test_starts_beyond_the_power_budget_are_found():
    assert_refused(make_powered_shadow(800), "devices draw 820 W after 480 W, of at most 800 W", Start(2, 1, ONE))


def test_a_budget_below_what_is_idle_is_nobody_s_fault():
    tell(make_powered_shadow(100), TimerFired(10))


def test_caps_below_the_floor_and_caps_without_need_are_found():
    assert_refused(make_powered_shadow(800), "below the floor of 200 W", Cap(0, 150))
    assert_refused(make_powered_shadow(5_000), "without need", Cap(0, 300))


# --- places -----------------------------------------------------------------------------------------------------------


def test_two_owners_of_one_device_are_found():
    shadow = make_shadow(spec(1), spec(2))
    assert_refused(shadow, "device 0 gives 2000 of 1000 thousandths", Start(1, 1, ONE), Start(2, 1, ONE))


def test_shares_beyond_the_whole_are_found_and_two_halves_are_not():
    shadow = make_shadow(*[spec(number, request=HALF) for number in (1, 2, 3)])
    tell(shadow, Start(1, 1, ONE), Start(2, 1, ONE))
    assert_refused(shadow, "device 0 gives 1500", Start(3, 1, ONE))


def test_memory_of_a_shared_device_is_counted():
    group = DeviceGroup(model="A", count=1, memory_bytes=16 * GIB)
    cluster = ClusterSpec(nodes=(NodeSpec(name="n0", groups=(group,)),))
    greedy = Request(share_milli=100, device_memory_bytes=10 * GIB)
    shadow = make_shadow(spec(1, request=greedy), spec(2, request=HALF), cluster=cluster)
    assert_refused(shadow, "device 0 gives .* bytes", Start(1, 1, ONE), Start(2, 1, ONE))


@pytest.mark.parametrize(
    ("request_fields", "network", "what"),
    [
        ({"device_models": ("H100",)}, Network(), "device 0 is a A100, wanted is one of"),
        ({"node_labels": (("zone", "east"),)}, Network(), "has labels"),
        ({"nodes": ("n1",)}, Network(), "asked are"),
        ({"nodes_excluded": ("n0",)}, Network(), "asked are"),
        ({}, Network(fabric="infiniband"), "has labels"),
        ({"cpu_milli": 5_000}, Network(), "milli CPUs and gives 5000"),
        ({"memory_bytes": 2 * GIB}, Network(), "bytes and gives"),
        ({"device_memory_bytes": 99 * GIB}, Network(), "device 0 has .* bytes, wanted are"),
    ],
)
def test_device_or_node_that_does_not_satisfy_the_request_is_found(request_fields, network, what):
    group = DeviceGroup(model="A100", count=4, memory_bytes=80 * GIB)
    node = NodeSpec(name="n0", groups=(group,), cpu_milli=4_000, memory_bytes=GIB)
    job = spec(request=Request(**request_fields), network=network)
    assert_refused(make_shadow(job, cluster=ClusterSpec(nodes=(node,))), what, Start(1, 1, ONE))


@pytest.mark.parametrize(
    ("allocation", "what"),
    [
        (make_allocation([0], [0]), "is given 1 replicas"),
        (make_allocation([0, 0], [0]), "is given 1 devices"),
        (make_allocation([0, 1], [0, 1]), "device 1 lies on node 0, not on 1"),
        (make_allocation([0, 0], [0, 0]), "gives 2000"),
    ],
)
def test_gang_that_is_not_whole_is_found(allocation, what):
    assert_refused(make_shadow(spec(replicas=2)), what, Start(1, 1, allocation))


def test_device_named_twice_in_a_replica_is_found():
    shadow = make_shadow(spec(request=Request(devices=2)))
    assert_refused(shadow, "has a device twice", Start(1, 1, make_allocation([0], [0, 0])))


@pytest.mark.parametrize(
    ("level", "is_fine"),
    [
        (DomainLevel.NODE, False),
        (DomainLevel.NVLINK, False),
        (DomainLevel.LEAF, False),
        (DomainLevel.BLOCK, True),
        (DomainLevel.SITE, True),
    ],
)
def test_gang_wider_than_it_allows_is_found(level, is_fine):
    nodes = tuple(
        NodeSpec(name=f"n{index}", groups=(DeviceGroup(model="A", count=4),), leaf=f"leaf{index}", block="b")
        for index in range(2)
    )
    shadow = make_shadow(spec(replicas=2, network=Network(widest=level)), cluster=ClusterSpec(nodes=nodes))
    start = Start(1, 1, make_allocation([0, 1], [0, 4]))
    if is_fine:
        tell(shadow, start)
    else:
        assert_refused(shadow, f"not within one {level}", start)


def test_exclusive_node_is_not_shared():
    shadow = make_shadow(spec(1, request=Request(exclusive=True)), spec(2))
    assert_refused(shadow, "wanted alone", Start(1, 1, ONE), Start(2, 1, make_allocation([0], [1])))


@pytest.mark.parametrize("event", [NodeDown(5, "n0"), NodeDrained(5, "n0")])
def test_start_on_a_node_that_is_down_or_drained_is_found(event):
    shadow = make_shadow(spec())
    assert_refused(shadow, "node 0 is down or drained", event, Start(1, 1, ONE))


def test_start_on_a_failed_device_is_found():
    assert_refused(make_shadow(spec()), "device 0 has failed", DeviceDown(5, "n0", 0), Start(1, 1, ONE))


def test_node_that_is_back_may_be_used():
    tell(make_shadow(spec()), NodeDown(5, "n0"), NodeUp(6, "n0"), Start(1, 1, ONE))


@pytest.mark.parametrize("event", [NodeDown(11, "n0"), DeviceDown(11, "n0", 0)])
def test_job_that_stays_on_what_failed_is_found(event):
    shadow = make_shadow(spec())
    assert_refused(shadow, "failed and is still held", Start(1, 1, ONE), event)


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([Start(2, 1, ONE)], "never submitted"),
        ([Start(1, 2, ONE)], "expected generation 1"),
        ([Start(1, 1, ONE), Start(1, 2, OTHER)], "to start while it is starting"),
        ([Start(1, 1, ONE), Migrate(1, 2, ONE)], "keeps devices"),
        ([Start(1, 1, ONE), Stop(1, 0, 0, None)], "to stop"),
        ([Stop(1, 0, 0, None)], "to stop while it is waiting"),
        ([Suspend(1, 0)], "to be suspended while it is waiting"),
        ([Resize(1, 1, ONE)], "to be moved while it is waiting"),
        ([Cap(7, 300)], "no such cap"),
        ([JobSubmitted(5, spec())], "submitted twice"),
        ([JobStarted(5, 1, 3)], "tells of another"),
        ([JobFinished(5, 1, 0, Outcome.COMPLETED)], "finished while it was waiting"),
        ([JobStopped(5, 1, 0, StopCause.PREEMPTED)], "left devices while it was waiting"),
        ([TimerFired(5), TimerFired(4)], "time went back"),
    ],
)
def test_step_that_does_not_fit_the_life_of_a_job_is_found(steps, what):
    assert_refused(make_shadow(spec()), what, *steps)


def test_job_that_ends_twice_is_found():
    end = JobFinished(11, 1, 1, Outcome.COMPLETED)
    assert_refused(make_shadow(spec()), "finished while it was ended", Start(1, 1, ONE), end, end)


def test_stale_events_are_ignored():
    shadow = make_shadow(spec(checkpoint=Checkpoint(interval_ms=5)))
    tell(shadow, Start(1, 1, ONE), JobStopped(11, 1, 1, StopCause.NODE_FAILED))
    tell(shadow, Start(1, 2, ONE), JobStopped(11, 1, 1, StopCause.PREEMPTED), at_ms=11)
    assert shadow.books.jobs[1].phase == "starting"


def test_job_left_in_the_middle_of_its_life_at_the_end_is_found():
    shadow = make_shadow(spec())
    tell(shadow, Start(1, 1, ONE))
    with pytest.raises(InternalError, match="still starting though nothing more will happen"):
        shadow.check_end()


def test_cancelled_job_must_not_start_and_ends_when_it_leaves():
    assert_refused(make_shadow(spec()), "while it is ended", JobCancelled(5, 1), Start(1, 1, ONE))
    shadow = make_shadow(spec())
    tell(shadow, Start(1, 1, ONE), JobCancelled(11, 1), JobStopped(12, 1, 1, StopCause.NODE_FAILED))
    assert shadow.books.jobs[1].outcome is Outcome.CANCELLED


# --- who may start ----------------------------------------------------------------------------------------------------


def test_held_job_must_not_start_until_it_is_released():
    assert_refused(make_shadow(spec(held=True)), "it is held", Start(1, 1, ONE))
    assert_refused(make_shadow(spec()), "it is held", JobHeld(5, 1), Start(1, 1, ONE))
    tell(make_shadow(spec(held=True)), JobReleased(5, 1), Start(1, 1, ONE))


def test_job_must_not_start_before_its_time():
    assert_refused(make_shadow(spec(not_before_ms=11)), "must not before 11 ms", Start(1, 1, ONE))
    tell(make_shadow(spec(not_before_ms=10)), Start(1, 1, ONE))


FIRST = [Start(1, 1, ONE), JobStarted(10, 1, 1)]
COMPLETED = [*FIRST, JobFinished(10, 1, 1, Outcome.COMPLETED)]
FAILED = [*FIRST, JobFinished(10, 1, 1, Outcome.TIMEOUT)]


@pytest.mark.parametrize(
    ("kind", "before", "is_fine"),
    [
        (DependencyKind.AFTER, [], False),
        (DependencyKind.AFTER, FIRST, True),
        (DependencyKind.AFTER_ANY, FIRST, False),
        (DependencyKind.AFTER_ANY, FAILED, True),
        (DependencyKind.AFTER_OK, FAILED, False),
        (DependencyKind.AFTER_OK, COMPLETED, True),
        (DependencyKind.AFTER_NOT_OK, COMPLETED, False),
        (DependencyKind.AFTER_NOT_OK, FAILED, True),
        (DependencyKind.SINGLETON, FIRST, False),
        (DependencyKind.SINGLETON, FAILED, True),
    ],
)
def test_dependencies_are_respected(kind, before, is_fine):
    dependency = Dependency(kind=kind, job=None if kind is DependencyKind.SINGLETON else 1)
    shadow = make_shadow(spec(1), spec(2, dependencies=(dependency,)))
    tell(shadow, *before)
    if is_fine:
        tell(shadow, Start(2, 1, OTHER))
    else:
        assert_refused(shadow, "it depends on", Start(2, 1, OTHER))


def test_dependency_on_a_job_that_never_was_is_not_met():
    unknown = Dependency(kind=DependencyKind.AFTER_ANY, job=77)
    assert_refused(make_shadow(spec(dependencies=(unknown,))), "it depends on", Start(1, 1, ONE))


def test_array_runs_no_more_members_at_once_than_it_allows():
    members = [spec(number, array=ArrayMember(array=1, index=number, parallel_max=1)) for number in (1, 2)]
    assert_refused(make_shadow(*members), "1 of its array run already", Start(1, 1, ONE), Start(2, 1, OTHER))


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "what"), [({"running_max": 1}, "allows 1 running"), ({"devices_max_milli": 1_500}, "allows 1500 device")]
)
def test_limits_of_queues_are_respected(limits, what):
    rule = make_queue_rule((QueueSpec(name="production", **limits),))
    shadow = make_shadow(spec(1), spec(2), spec(3, queue="other"), rules=[rule])
    tell(shadow, Start(1, 1, ONE), Start(3, 1, make_allocation([0], [1])))
    assert_refused(shadow, what, Start(2, 1, OTHER))


def test_tenant_holds_no_more_than_its_guarantee_and_what_it_may_borrow():
    parent = TenantSpec(name="lab", quota=Quota(guaranteed_milli=0, borrow_max_milli=0))
    child = TenantSpec(name="team", parent="lab", quota=Quota(guaranteed_milli=1_000))
    jobs = [spec(number, tenant="team", request=HALF) for number in (1, 2, 3)]
    shadow = make_shadow(*jobs, spec(4), rules=[make_quota_rule((parent, child))])
    tell(shadow, Start(1, 1, ONE), Start(2, 1, ONE), Start(4, 1, OTHER))
    assert_refused(
        shadow, "tenant lab may hold 1000 device milli at most, found 1500", Start(3, 1, make_allocation([0], [1]))
    )


def test_moving_job_counts_once_in_its_quota():
    team = TenantSpec(name="team", quota=Quota(guaranteed_milli=1_000, borrow_max_milli=0))
    shadow = make_shadow(spec(tenant="team"), rules=[make_quota_rule((team,))])
    tell(shadow, Start(1, 1, ONE), JobStarted(10, 1, 1), Migrate(1, 2, OTHER))


# --- messages and state -----------------------------------------------------------------------------------------------


def test_message_has_the_seed_the_event_and_the_story_of_the_job():
    shadow = make_shadow(spec(1), spec(2), seed=1234)
    tell(shadow, Start(1, 1, ONE))
    with pytest.raises(InternalError) as failure:
        tell(shadow, Start(1, 2, OTHER))
    text = str(failure.value)
    assert text.startswith("seed 1234, event 6, 10 ms: job 1 is to start while it is starting")
    assert "10 start job=1 generation=1 nodes=0 devices=0" in text
    assert "JobSubmitted" in text
    assert "id=2" not in text


def test_story_is_bounded():
    shadow = make_shadow(spec())
    for _ in range(3 * STORY_MAX):
        tell(shadow, JobHeld(5, 1))
    with pytest.raises(InternalError) as failure:
        tell(shadow, Start(1, 1, ONE))
    assert str(failure.value).count("\n  event ") == STORY_MAX


class SaidState:
    """A state that says what it is told to say."""

    def __init__(self, shares, phases):
        self.shares, self.phases = shares, phases

    def device_shares_free(self):
        return np.array(self.shares)

    def job_phase(self, job):
        return self.phases.get(job)


@pytest.mark.parametrize(
    ("shares", "phases", "what"),
    [
        ([0, 1_000], {1: PHASE_STARTING, 2: PHASE_PENDING}, None),
        ([1_000, 1_000], {1: PHASE_STARTING, 2: PHASE_PENDING}, "are told to have"),
        ([0, 1_000], {1: PHASE_RUNNING, 2: PHASE_PENDING}, "job 1 is starting, the state says"),
        ([0, 1_000], {1: PHASE_STARTING}, "job 2 is waiting, the state says None"),
    ],
)
def test_state_that_differs_from_the_books_is_found(shares, phases, what):
    shadow = make_shadow(spec(1), spec(2), cluster=make_cluster(1, 2))
    tell(shadow, Start(1, 1, ONE))
    checker = StateChecker(shadow, SaidState(shares, phases))
    if what is None:
        checker.watch(TimerFired(10), ())
    else:
        with pytest.raises(InternalError, match=what):
            checker.watch(TimerFired(10), ())


def test_whole_run_of_the_fake_kernel_is_in_order():
    jobs = [make_trace_job(number, submit_ms=number, run_ms=50, devices=number % 3 + 1) for number in range(1, 40)]
    shadow = ShadowCluster(0)
    run_twin(FakeKernel(), make_workload(*jobs), make_cluster(2, 4), checkers=[shadow])
    shadow.check_end()
    assert {job.outcome for job in shadow.books.jobs.values()} == {Outcome.COMPLETED}


def test_batches_are_judged_event_by_event():
    shadow = make_shadow(spec())
    tell(shadow, Start(1, 1, ONE))
    failure = Batch(11, (NodeDown(11, "n0"), JobStopped(11, 1, 1, StopCause.NODE_FAILED)))
    tell(shadow, failure)
    assert shadow.books.jobs[1].phase == "waiting"


@pytest.mark.parametrize("seed", range(20))
def test_random_worlds_are_the_same_for_the_same_seed(seed):
    world = make_world(seed)
    assert world == make_world(seed)
    submits = [job.submit_ms for job in world.workload.jobs]
    assert submits == sorted(submits)
    assert submits[0] == 0
    assert [event.at_ms for event in world.extra_events] == sorted(event.at_ms for event in world.extra_events)


def test_random_worlds_contain_everything_that_can_be_asked():
    worlds = [make_world(seed) for seed in range(60)]
    specs = [job.spec for world in worlds for job in world.workload.jobs]
    assert any(one.request.is_fractional for one in specs)
    assert any(one.replicas > 1 and one.elastic and one.checkpoint for one in specs)
    assert {dependency.kind for one in specs for dependency in one.dependencies} == set(DependencyKind)
    assert any(one.array for one in specs)
    assert any(len(node.groups) == 2 for world in worlds for node in world.cluster.nodes)
    assert any(tenant.quota and tenant.parent for world in worlds for tenant in world.tenants)
    assert {True, False} == {fault.device is None for world in worlds for fault in world.faults}
    assert len({type(event) for world in worlds for event in world.extra_events}) == 6
