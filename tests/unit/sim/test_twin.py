"""The driver: order of events within a moment, determinism, and that every run comes to an end."""

import gc
import weakref
from dataclasses import replace

import pytest

from clearway.engine.policy import RuntimeSource
from clearway.kernel import Kernel
from clearway.model.cluster import ClusterSpec, DeviceGroup, LinkSpec, NodeSpec, QueueSpec, TenantSpec
from clearway.model.commands import WakeAt
from clearway.model.errors import InternalError
from clearway.model.events import (
    Batch,
    JobCancelled,
    JobFinished,
    JobReleased,
    JobStarted,
    JobStopped,
    JobSubmitted,
    NodeAdded,
    NodeDown,
    NodeDrained,
    NodeUp,
    QueueSet,
    TenantSet,
    TimerFired,
)
from clearway.model.jobs import Checkpoint, Outcome, StopCause
from clearway.model.plan import Stop, Suspend
from clearway.policies.named import named_policy
from clearway.sim import twin
from clearway.sim.faults import Fault
from clearway.sim.random_world import make_world
from clearway.sim.twin import describe_cluster, run_twin
from support.fake_kernel import CommandedKernel, FakeKernel, make_policy
from support.worlds import make_cluster, make_trace_job, make_workload


def kinds(event):
    return [type(part).__name__ for part in (event.events if isinstance(event, Batch) else (event,))]


def run(kernel, *jobs, cluster=None, **options):
    return run_twin(kernel, make_workload(*jobs), cluster or make_cluster(1, 1), **options)


def test_first_batch_makes_queues_tenants_and_nodes():
    kernel = FakeKernel()
    jobs = [make_trace_job(1, queue="night", tenant="a"), make_trace_job(2, tenant="b")]
    run(kernel, *jobs, queues=[QueueSpec(name="production", priority=3)], tenants=[TenantSpec(name="b")])
    assert kernel.seen[0] == Batch(
        0,
        (
            QueueSet(0, QueueSpec(name="production", priority=3)),
            QueueSet(0, QueueSpec(name="night")),
            TenantSet(0, TenantSpec(name="b")),
            TenantSet(0, TenantSpec(name="a")),
            NodeAdded(0, make_cluster(1, 1).nodes[0]),
        ),
    )


def test_jobs_run_one_after_the_other_on_one_device():
    result = run(FakeKernel(), make_trace_job(1, run_ms=100), make_trace_job(2, submit_ms=30, run_ms=50))
    assert result.jobs.start_ms.tolist() == [0, 100]
    assert result.jobs.end_ms.tolist() == [100, 150]
    assert result.jobs.waited_ms.tolist() == [0, 70]
    assert (result.allocated_device_ms, result.capacity_device_ms, result.useful_device_ms) == (150, 150, 150)
    assert (result.workload, result.policy, result.cluster, result.seed) == ("test", "fake", "1x1:A100", 0)
    assert result.stats.events == 2 + 6
    assert result.stats.peak_rss_bytes > 0


def test_single_event_comes_alone_and_several_come_as_a_batch():
    kernel = FakeKernel()
    run(kernel, make_trace_job(1, run_ms=100), make_trace_job(2, run_ms=100), cluster=make_cluster(1, 2))
    assert [kinds(event) for event in kernel.seen[1:]] == [
        ["JobSubmitted", "JobSubmitted"],
        ["JobStarted", "JobStarted"],
        ["JobFinished", "JobFinished"],
    ]


def test_order_within_a_moment_is_leaves_faults_submits_outside_timer():
    script = {0: [WakeAt(100)]}

    class Waking(FakeKernel):
        def start_waiting(self):
            super().start_waiting()
            self.commands += script.pop(self.seen[-1].at_ms, [])

    kernel = Waking()
    run(
        kernel,
        make_trace_job(1, run_ms=100),
        make_trace_job(2, submit_ms=100, run_ms=10),
        cluster=make_cluster(2, 1),
        faults=[Fault(100, 105, 1, None)],
        extra_events=[NodeDrained(100, "n1")],
    )
    (moment,) = [event for event in kernel.seen if event.at_ms == 100 and isinstance(event, Batch)]
    assert kinds(moment) == ["JobFinished", "NodeDown", "JobSubmitted", "NodeDrained", "TimerFired"]


def test_newest_wake_replaces_the_older_one():
    class Waking(FakeKernel):
        def start_waiting(self):
            super().start_waiting()
            if self.seen[-1].at_ms == 0 and len(self.seen) == 2:
                self.commands += [WakeAt(20), WakeAt(40)]

    kernel = Waking()
    run(kernel, make_trace_job(run_ms=100))
    assert [event for event in kernel.seen if isinstance(event, TimerFired)] == [TimerFired(40)]


def test_job_that_can_never_start_is_unfinished_in_the_result():
    result = run(FakeKernel(), make_trace_job(1, devices=2, run_ms=10))
    assert result.jobs.end_ms.tolist() == [-1]
    assert result.jobs.outcome.tolist() == [-1]


def test_kernel_that_wakes_itself_for_a_job_that_never_starts_comes_to_an_end():
    class Hopeful(FakeKernel):
        def start_waiting(self):
            super().start_waiting()
            self.commands.append(WakeAt(self.seen[-1].at_ms + 60_000))

    kernel = Hopeful()
    result = run(kernel, make_trace_job(1, devices=2))
    assert result.jobs.end_ms.tolist() == [-1]
    assert len(kernel.seen) < twin.IDLE_TIMERS_MAX + 10


def test_kernel_that_does_not_come_to_rest_is_our_bug(monkeypatch):
    class Hasty(FakeKernel):
        def start_waiting(self):
            super().start_waiting()
            self.commands.append(WakeAt(self.seen[-1].at_ms))

    monkeypatch.setattr(twin, "TURNS_PER_MOMENT_MAX", 50)
    with pytest.raises(InternalError, match="expected time to go on"):
        run(Hasty(), make_trace_job())


def test_submits_of_one_moment_come_in_bites(monkeypatch):
    monkeypatch.setattr(twin, "SUBMITS_PER_BATCH_MAX", 2)
    kernel = FakeKernel()
    jobs = [make_trace_job(number, run_ms=10) for number in range(1, 6)]
    run(kernel, *jobs, cluster=make_cluster(1, 8), extra_events=[JobCancelled(0, 5)])
    submits = [kinds(event).count("JobSubmitted") for event in kernel.seen]
    assert [count for count in submits if count] == [2, 2, 1]
    assert sum(kinds(event).count("JobCancelled") for event in kernel.seen) == 1


def test_stop_time_cuts_the_run_and_counts_what_is_held():
    result = run(FakeKernel(), make_trace_job(1, run_ms=100), make_trace_job(2, run_ms=100), stop_ms=150)
    assert result.jobs.end_ms.tolist() == [100, -1]
    assert result.jobs.held_device_ms.tolist() == [100, 50]
    assert result.allocated_device_ms == 150
    assert result.series.time_ms[-1] == 150


def test_cancelled_waiting_job_ends_without_having_started():
    jobs = [make_trace_job(1, run_ms=100), make_trace_job(2, run_ms=100)]
    result = run(FakeKernel(), *jobs, extra_events=[JobCancelled(40, 2)])
    assert result.jobs.end_ms.tolist() == [100, 40]
    assert result.jobs.start_ms.tolist() == [0, -1]
    assert result.jobs.outcome_names[result.jobs.outcome[1]] == Outcome.CANCELLED


def test_cancelled_running_job_is_stopped():
    kernel = FakeKernel()
    result = run(kernel, make_trace_job(1, run_ms=100), extra_events=[JobCancelled(40, 1)])
    assert result.jobs.end_ms.tolist() == [40]
    assert kernel.seen[-1] == JobFinished(40, 1, 1, Outcome.CANCELLED)


def test_job_that_is_cancelled_while_it_saves_is_over_when_it_has_left():
    class Deaf(CommandedKernel):
        def on_JobCancelled(self, event):  # noqa: N802
            """Too late to do anything about it."""

        def on_JobStopped(self, event):  # noqa: N802
            self.give_back(event.job)

    kernel = Deaf({50: [Stop(1, 1, 1_000, StopCause.PREEMPTED)]})
    job = make_trace_job(1, run_ms=100, checkpoint=Checkpoint(interval_ms=1_000, cost_ms=10))
    result = run(kernel, job, extra_events=[JobReleased(50, 1), JobCancelled(55, 1)])
    assert result.jobs.end_ms.tolist() == [60]
    assert result.jobs.outcome_names[result.jobs.outcome[0]] == Outcome.CANCELLED


def test_failed_node_stops_its_job_in_the_same_batch_and_the_job_runs_again():
    kernel = FakeKernel()
    result = run(kernel, make_trace_job(1, run_ms=100), faults=[Fault(60, 500, 0, None)])
    assert Batch(60, (NodeDown(60, "n0"), JobStopped(60, 1, 1, StopCause.NODE_FAILED, 0))) in kernel.seen
    assert result.jobs.end_ms.tolist() == [600]
    assert result.jobs.lost_device_ms.tolist() == [60]
    assert result.capacity_device_ms == 60 + 100
    assert (result.jobs.preemptions[0], result.jobs.restarts[0]) == (0, 1)


def test_job_that_must_not_run_again_fails_with_its_node_and_what_it_did_is_lost():
    kernel = Kernel(make_policy())
    jobs = (make_trace_job(1, run_ms=100, requeue=False), make_trace_job(2, run_ms=100))
    result = run(kernel, *jobs, cluster=make_cluster(1, 2), faults=[Fault(60, 500, 0, None)])
    names = [result.jobs.outcome_names[code] for code in result.jobs.outcome]
    assert names == [Outcome.NODE_FAIL, Outcome.COMPLETED]
    assert (result.jobs.end_ms.tolist(), result.jobs.restarts.tolist()) == ([60, 600], [0, 1])
    assert (result.jobs.lost_device_ms.tolist(), result.useful_device_ms) == ([60, 60], 100)


def test_overlapping_faults_of_one_node_are_one_outage():
    kernel = FakeKernel()
    faults = [Fault(10, 50, 0, None), Fault(20, 90, 0, None), Fault(90, 95, 0, None)]
    run(kernel, make_trace_job(1, run_ms=100), faults=faults)
    outages = [part for event in kernel.seen for part in getattr(event, "events", (event,))]
    assert [part for part in outages if isinstance(part, NodeDown | NodeUp)] == [NodeDown(10, "n0"), NodeUp(95, "n0")]


def test_outage_given_as_an_event_happens_like_a_fault():
    kernel = FakeKernel()
    result = run(kernel, make_trace_job(1, run_ms=100), extra_events=[NodeDown(60, "n0"), NodeUp(70, "n0")])
    assert JobStopped(60, 1, 1, StopCause.NODE_FAILED, 0) in kernel.seen[3].events
    assert result.jobs.end_ms.tolist() == [170]


def test_end_of_a_drain_is_told():
    kernel = FakeKernel()
    events = [NodeDrained(10, "n0"), JobReleased(15, 1), NodeUp(20, "n0")]
    run(kernel, make_trace_job(1, run_ms=100), extra_events=events)
    assert NodeUp(20, "n0") in kernel.seen


def test_suspended_job_waits_and_resumes():
    kernel = CommandedKernel({40: [Suspend(1, 1)]})
    result = run(kernel, make_trace_job(1, run_ms=100), make_trace_job(2, submit_ms=40, run_ms=10), extra_events=[])
    assert result.jobs.end_ms.tolist() == [110, 50]
    assert result.jobs.lost_device_ms.tolist() == [0, 0]
    assert result.jobs.preemptions.tolist() == [1, 0]


@pytest.mark.parametrize(("runtime", "shown"), [(RuntimeSource.ORACLE, 77), (RuntimeSource.LIMIT, None)])
def test_only_clairvoyant_policies_see_the_truth(runtime, shown):
    kernel = FakeKernel(make_policy(runtime=runtime))
    run(kernel, make_trace_job(1, run_ms=77))
    (submit,) = [event for event in kernel.seen if isinstance(event, JobSubmitted)]
    assert submit.job.oracle_ms == shown


def test_same_run_twice_gives_the_same_decisions_and_another_policy_others():
    jobs = [make_trace_job(number, submit_ms=number, run_ms=37 * number % 50 + 1) for number in range(1, 30)]
    digests = [run(FakeKernel(), *jobs, cluster=make_cluster(1, size)).decisions_digest for size in (2, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 64


def test_decision_log_has_a_line_per_command():
    log = []
    run(FakeKernel(), make_trace_job(1, run_ms=100), decision_log=log.append, extra_events=[JobCancelled(40, 1)])
    assert log == [
        "0 start job=1 generation=1 nodes=0 devices=0",
        "40 stop job=1 generation=1 cause=cancelled grace_ms=0",
    ]


def test_progress_is_told_and_ends_with_all_jobs():
    told = []
    jobs = [make_trace_job(number, submit_ms=5_000 * number) for number in range(1, 4)]
    run(FakeKernel(), *jobs, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3)
    assert told == sorted(told)


def test_collector_is_as_before_even_after_a_failure():
    class Broken(FakeKernel):
        def handle(self, event):
            raise InternalError("broken")

    assert gc.isenabled()
    with pytest.raises(InternalError, match="broken"):
        run(Broken(), make_trace_job())
    assert gc.isenabled()


def test_checkers_see_each_event_and_the_commands_that_followed():
    class Notes:
        def __init__(self):
            self.seen = []

        def watch(self, event, commands):
            self.seen.append((event, len(commands)))

    notes = Notes()
    run(FakeKernel(), make_trace_job(1, run_ms=10), checkers=[notes])
    assert notes.seen[1][1] == 1
    assert notes.seen[2:] == [
        (JobStarted(0, 1, 1), 0),
        (JobFinished(10, 1, 1, Outcome.COMPLETED), 0),
    ]


def test_clusters_are_described_in_the_form_of_a_specification():
    mixed = NodeSpec(name="m", groups=(DeviceGroup(model="A", count=2), DeviceGroup(model="B", count=1)))
    cluster = ClusterSpec(nodes=(*make_cluster(2, 4).nodes, mixed, NodeSpec(name="login")))
    assert describe_cluster(cluster) == "2x4:A100,1x2:A+1:B,1x0"


def test_empty_workload_ends_at_once():
    result = run(FakeKernel())
    assert len(result.jobs) == 0
    assert result.capacity_device_ms == 0


def test_a_job_that_never_fits_costs_no_timers_once_nothing_runs():
    jobs = [make_trace_job(1, run_ms=1_000), make_trace_job(2, devices=64)]
    result = run(Kernel(named_policy("clearway")), *jobs, cluster=make_cluster(1, 4))
    assert result.jobs.end_ms.tolist() == [1_000, -1]
    assert result.stats.events < 20


def test_power_budget_is_told_once_and_slows_what_runs_instead_of_making_it_wait():
    jobs = [make_trace_job(number, run_ms=1_000, devices=4) for number in (1, 2)]
    plenty, scarce = (make_cluster(2, 4, watts_max=400, power_budget_watts=watts) for watts in (3_200, 1_600))
    full, capped = (run(Kernel(make_policy()), *jobs, cluster=cluster) for cluster in (plenty, scarce))
    assert full.jobs.start_ms.tolist() == capped.jobs.start_ms.tolist() == [0, 0]
    assert full.jobs.end_ms.tolist() == [1_000, 1_000]
    assert capped.jobs.end_ms.min() > 1_100


def test_real_kernel_replays_a_random_world_to_the_same_decisions():
    world = make_world(3)
    results = [
        run_twin(
            Kernel(make_policy()),
            world.workload,
            world.cluster,
            queues=world.queues,
            tenants=world.tenants,
            faults=world.faults,
            extra_events=world.extra_events,
        )
        for _ in range(2)
    ]
    assert results[0].decisions_digest == results[1].decisions_digest
    assert results[0].jobs.end_ms.tolist() == results[1].jobs.end_ms.tolist()


class WatchedKernel(Kernel):
    def __init__(self, policy):
        super().__init__(policy)
        self.seen = []

    def handle(self, event):
        self.seen.append(kinds(event))
        return super().handle(event)


class RestlessKernel(WatchedKernel):
    at_rest = False


def test_starts_are_told_with_the_next_moment_where_nothing_is_to_decide_before():
    kernel = WatchedKernel(named_policy("fifo"))
    jobs = make_trace_job(1), make_trace_job(2, submit_ms=5)
    result = run(kernel, *jobs)
    assert kernel.seen[1:] == [
        ["JobSubmitted"],
        ["JobStarted", "JobSubmitted"],
        ["JobFinished"],
        ["JobStarted", "JobFinished"],
    ]
    assert result.decisions_digest == run(RestlessKernel(named_policy("fifo")), *jobs).decisions_digest


def test_starts_have_a_moment_of_their_own_where_running_jobs_may_be_changed():
    kernel = WatchedKernel(named_policy("clearway"))
    run(kernel, make_trace_job(1))
    assert ["JobStarted"] in kernel.seen


def test_what_a_run_leaves_behind_stays_young_for_the_collector():
    run(Kernel(named_policy("fifo")), make_trace_job(1))  # compiled, imported
    gc.collect()
    kernel = Kernel(named_policy("fifo"))
    state = weakref.ref(kernel.state.inventory)
    run(kernel, make_trace_job(1))
    del kernel
    gc.collect(1)  # objects that were frozen would count as old, and old ones are hardly ever looked at
    assert state() is None


def test_links_of_the_cluster_are_told_to_the_kernel_and_slow_a_gang_that_spans_it():
    """4.29 GB each way through 4.29 GB/s take a second beside a second of work."""
    links = (
        ("leaf", LinkSpec(bandwidth_gbps=1e6, latency_us=0)),
        ("site", LinkSpec(bandwidth_gbps=4.295, latency_us=0)),
    )
    kernel = Kernel(named_policy("easy"))
    result = run(kernel, make_trace_job(run_ms=10_000, replicas=2), cluster=replace(make_cluster(2, 1), links=links))
    assert kernel.state.link_speeds == dict(links)
    assert int(result.jobs.end_ms[0] - result.jobs.start_ms[0]) == pytest.approx(20_000, rel=0.01)
