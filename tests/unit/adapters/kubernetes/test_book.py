"""The book: what was seen becomes jobs, what was decided becomes calls, and nothing is bound by halves."""

import pytest

from clearway.adapters.kubernetes import nodes
from clearway.adapters.kubernetes.allowing import REFUSALS_MAX, RETRY_MS
from clearway.adapters.kubernetes.book import NOT_WHOLE
from clearway.adapters.kubernetes.convoys import PARTS_MAX, PERMIT_MS, REST_FIRST_MS
from clearway.adapters.kubernetes.gangs import GANG, GANG_SIZE, Source
from clearway.adapters.kubernetes.orphans import EMPTY_MS
from clearway.adapters.kubernetes.parse import parse_pod
from clearway.adapters.kubernetes.placement import DEMAND_PREFIX
from clearway.adapters.kubernetes.placing import BIND_REFUSED, NO_PLACE, RESTING
from clearway.adapters.kubernetes.runs import CONFLICTS_MAX, Refuse
from clearway.adapters.kubernetes.volumes import BIND_COMPLETED
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobStarted,
    JobStopped,
    NodeAdded,
    NodeChanged,
    NodeDown,
    NodeUp,
)
from clearway.model.jobs import JobKind, Outcome, Request, StopCause
from support.kube_book import ALL, CONFIG, World, make_gang, run_gang
from support.kubernetes import JOB, make_job_object

# --- arriving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policies", "preempts"), [(("PreemptLowerPriority", None), True), (("Never", None), False)])
def test_gang_evicts_nobody_where_the_class_of_one_of_its_pods_says_so(policies, preempts):
    world = World(n1=8)
    for index, said in enumerate(policies):
        world.put(f"w{index}", owner=JOB, index=index, preemptionPolicy=said)
    world.answer_sizes(make_job_object(2))
    assert [job.preempts for job in world.accept()] == [preempts]


def test_pods_may_name_the_queues_of_the_configuration_as_it_is_by_then():
    world = World(n1=8)
    named = {"labels": {"kueue.x-k8s.io/queue-name": "night"}}
    world.put("before", **named)
    assert [job.queue for job in world.accept()] == ["production"]
    world.book.set_queues(("night", "day"), "day")
    world.put("after", **named)
    world.put("other", labels={"kueue.x-k8s.io/queue-name": "noon"})
    assert [job.queue for job in world.accept()] == ["night", "day"]


@pytest.mark.parametrize(
    "key",
    [
        "clearway.io/queue",
        "kueue.x-k8s.io/queue-name",
        "kai.scheduler/queue",
        "scheduling.volcano.sh/queue-name",
        "volcano.sh/queue-name",
    ],
)
def test_queue_is_named_in_the_words_of_many(key):
    world = World(n1=8)
    world.book.set_queues(("night", "day"), "day")
    world.put("p", annotations={key: "night"})
    assert [job.queue for job in world.accept()] == ["night"]


def test_pod_becomes_a_job_that_asks_what_the_pod_asks():
    world = World(n1=8)
    world.put("p", gpus=2, cpu="3", memory="5Gi", priority=7)
    (job,) = world.accept()
    assert (job.request.devices, job.request.cpu_milli, job.request.memory_bytes) == (2, 3_000, 5 << 30)
    assert (job.replicas, job.priority, job.tenant, job.kind, job.name) == (1, 7, "vision", JobKind.TASK, "vision/p")
    assert job.request.node_labels[0][0].startswith(DEMAND_PREFIX)


def test_pods_of_other_schedulers_never_become_jobs():
    world = World(n1=8)
    world.put("p", schedulerName="default-scheduler")
    assert world.accept() == []


def test_gang_arrives_once_and_only_whole():
    world = World(n1=8)
    world.put("w0", owner=JOB, index=0)
    world.answer_sizes(make_job_object(2))
    assert world.accept() == []
    world.put("w1", owner=JOB, index=1)
    (job,) = world.accept()
    assert (job.replicas, job.kind, job.name) == (2, JobKind.TRAIN, "vision/train")
    assert world.accept() == []


def test_gated_pod_is_not_counted_until_its_gates_are_gone():
    world = World(n1=8)
    world.put("p", schedulingGates=[{"name": "wait"}])
    assert world.accept() == []
    world.put("p")
    assert len(world.accept()) == 1


def test_pods_of_a_job_without_numbers_are_jobs_of_their_own():
    world = World(n1=8)
    world.put("a", owner=JOB)
    world.put("b", owner=JOB)
    world.answer_sizes(make_job_object(3, mode="NonIndexed"))
    assert len(world.accept()) == 2
    world.put("c", owner=JOB)
    assert len(world.accept()) == 1


def put_part(world, part, *numbers, **more):
    """Pods of a replicated Job of the JobSet `s`."""
    said = {"jobset.sigs.k8s.io/jobset-name": "s", "jobset.sigs.k8s.io/replicatedjob-name": part}
    for number in numbers:
        world.put(f"{part}{number}", owner=JOB, labels=said, **more)


def make_ordered():
    """A JobSet of two replicated Jobs, of which the second is made when the first is ready."""
    parts = [{"name": name, "replicas": 2, "template": {"spec": {"parallelism": 1}}} for name in ("a", "b")]
    spec = {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": parts}
    return {"kind": "JobSet", "metadata": {"name": "s"}, "spec": spec}


def test_jobset_that_starts_in_order_is_a_gang_for_each_of_its_replicated_jobs():
    world = World(n1=8)
    put_part(world, "a", 0)
    world.answer_sizes(make_ordered())
    assert world.accept() == []
    put_part(world, "a", 1)
    assert [job.replicas for job in world.accept()] == [2]
    put_part(world, "b", 0)
    assert world.accept() == []
    put_part(world, "b", 1)
    assert [job.replicas for job in world.accept()] == [2]
    again = World(n1=8)
    put_part(again, "a", 0, 1, node="n1", phase="Running")
    again.answer_sizes(make_ordered())
    again.book.adopt(0, 1, 1, [("n1", (0,)), ("n1", (1,))], world.book.jobs[1].key, is_started=True)
    assert again.settle() == []
    assert again.book.jobs[1].run.slots[1].pod == "uid-a1"


def test_size_of_a_gang_is_read_anew_where_another_object_comes_under_its_name():
    world = World(n1=8)
    world.put("old", owner=JOB)
    world.answer_sizes(make_job_object(1))
    assert [job.replicas for job in world.accept()] == [1]
    world.put("new", owner=(*JOB[:3], "b2f4"))
    world.answer_sizes(make_job_object(2))
    assert world.accept() == []


def test_size_of_a_gang_is_read_anew_where_none_of_its_pods_is_left():
    world = World(n1=8)
    said = {"scheduling.x-k8s.io/pod-group": "g"}
    for size in (2, 3):
        world.put("a", labels=said)
        world.answer_sizes({"kind": "PodGroup", "spec": {"minMember": size}})
        assert world.accept() == []
        world.delete("a")
        world.settle()
    for name in ("b", "c", "d"):
        world.put(name, labels=said)
    world.answer_sizes({"kind": "PodGroup", "spec": {"minMember": 3}})
    assert [job.replicas for job in world.accept()] == [3]


def test_gang_of_unlike_cpus_is_given_the_most_that_any_asks():
    world = World(n1=8)
    world.put("a", owner=JOB, cpu="2", memory="8Gi")
    world.put("b", owner=JOB, cpu="4", memory="1Gi")
    world.answer_sizes(make_job_object(2))
    (job,) = world.accept()
    assert (job.request.cpu_milli, job.request.memory_bytes) == (4_000, 8 << 30)


def test_gang_with_pods_of_too_many_kinds_is_refused_and_said():
    world = World(n1=8)
    said = {GANG: "odd", GANG_SIZE: str(PARTS_MAX + 1)}
    for number in range(PARTS_MAX + 1):
        world.put(f"p{number}", annotations=said, nodeSelector={"zone": str(number)})
    world.settle()
    assert not world.book.take_arrivals()
    assert {one.message for one in world.book.take_actions() if isinstance(one, Refuse)} == {
        f"expected a gang with pods of at most {PARTS_MAX} kinds, found {PARTS_MAX + 1}"
    }


def make_convoy(world):
    """A launcher without devices and two workers, accepted: their jobs, that of the workers first."""
    world.put("l", owner=JOB, gpus=0)
    for name in ("w0", "w1"):
        world.put(name, owner=JOB, gpus=8)
    world.answer_sizes(make_job_object(3))
    return world.accept()


def test_gang_with_pods_of_two_kinds_is_two_jobs_of_which_none_is_bound_alone():
    world = World(n1=8, n2=8)
    workers, launcher = make_convoy(world)
    assert (workers.replicas, workers.request.devices) == (2, 8)
    assert (launcher.replicas, launcher.request.devices) == (1, 0)
    world.start(1, ("n1", ALL), ("n2", ALL))
    assert world.calls() == []
    world.start(2, ("n1", ()))
    assert sorted(world.calls()) == ["bind l n1", "bind w0 n1", "bind w1 n2"]


def test_part_of_a_gang_gives_its_places_back_when_the_other_finds_none_in_time():
    world = World(n1=8, n2=8)
    make_convoy(world)
    world.start(1, ("n1", ALL), ("n2", ALL))
    world.now_ms += PERMIT_MS
    stopped, held = [one for one in world.settle() if isinstance(one, JobStopped | JobHeld)]
    assert (stopped.job, held.job, held.reason) == (1, 1, NO_PLACE)
    assert world.calls() == []
    assert [one for one in world.settle() if isinstance(one, JobReleased)] == []
    world.now_ms += REST_FIRST_MS
    assert [one.job for one in world.settle() if isinstance(one, JobReleased)] == [1]
    world.start(2, ("n1", ()))
    world.start(1, ("n1", ALL), ("n2", ALL), generation=2)
    assert sorted(world.calls()) == ["bind l n1", "bind w0 n1", "bind w1 n2"]


def test_all_parts_of_a_gang_stop_when_one_does():
    world = World(n1=8, n2=8)
    make_convoy(world)
    world.start(1, ("n1", ALL), ("n2", ALL))
    world.start(2, ("n1", ()))
    for name, node in (("w0", "n1"), ("w1", "n2"), ("l", "n1")):
        world.change(name, node=node, phase="Running")
    world.settle()
    world.calls()
    world.book.stop(world.now_ms, 1, 1, StopCause.PREEMPTED)
    world.settle()
    assert sorted(world.calls()) == ["evict l", "evict w0", "evict w1"]
    for name in ("w0", "w1", "l"):
        world.delete(name)
    stopped = {one.job: one.cause for one in world.settle() if isinstance(one, JobStopped)}
    assert stopped == {1: StopCause.PREEMPTED, 2: StopCause.MIGRATED}


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        ("vision", "Preempted by job 2, pod high, priority 1000 (class high)"),
        ("b", "Preempted by a job of another namespace"),
    ],
)
def test_pod_that_is_preempted_is_told_for_whom_within_its_namespace(namespace, said):
    world = World(n1=8)
    world.put("low", gpus=8)
    world.accept()
    world.start(1, ("n1", ALL))
    world.change("low", node="n1", phase="Running")
    world.put("high", gpus=8, namespace=namespace, priority=1_000)
    world.accept()
    world.settle()
    world.book.take_actions()
    world.book.stop(world.now_ms, 1, 1, StopCause.PREEMPTED, 2)
    world.settle()
    (evicted,) = world.book.take_actions()
    assert (evicted.pod.name, evicted.why) == ("low", said)


def test_new_process_finds_the_parts_of_a_gang_by_their_origins():
    world = World(n1=8, n2=8)
    make_convoy(world)
    origins = {job: bundle.key for job, bundle in world.book.jobs.items()}
    again = World(n1=8, n2=8)
    for pod in world.pods.values():
        again.book.put_pod(parse_pod(pod, CONFIG))
    again.answer_sizes(make_job_object(3))
    again.book.adopt(1, 1, 1, (("n1", ALL), ("n2", ALL)), origins[1], is_started=False)
    again.book.restore(1, 2, origins[2], 1)
    again.settle()
    assert again.calls() == []
    again.start(2, ("n1", ()))
    assert sorted(again.calls()) == ["bind l n1", "bind w0 n1", "bind w1 n2"]


def test_gang_whose_size_cannot_be_read_waits_and_is_told():
    world = World(n1=8)
    world.put("a", owner=JOB)
    world.answer_sizes(None)
    assert world.accept() == []
    assert world.calls() == ["refuse a"]


def test_job_accepted_after_its_pod_was_deleted_is_cancelled():
    world = World(n1=8)
    world.put("p")
    world.settle()
    (arrival,) = world.book.take_arrivals()
    world.delete("p")
    world.settle()
    world.book.accept(world.now_ms, arrival, 9)
    assert JobCancelled(3, 9) in world.settle() + world.settle()


def test_bare_pod_deleted_while_it_waits_cancels_its_job():
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.delete("p")
    assert world.settle() == [JobCancelled(3, 1)]


# --- starting ---------------------------------------------------------------------------------------------------------


def lose_all_pods(world, **more):
    """A gang of one pod that waits, and whose pod is deleted."""
    world.put("w", owner=JOB, **more)
    world.answer_sizes(make_job_object(1))
    assert len(world.accept()) == 1
    world.delete("w")
    assert [type(one) for one in world.settle()] == [JobHeld]


def test_waiting_job_whose_owner_was_deleted_is_cancelled():
    world = World(n1=8)
    lose_all_pods(world)
    (source,) = world.book.take_wanted()
    world.book.put_size(source, None, is_gone=True)
    assert world.settle() == [JobCancelled(world.now_ms, 1)]
    assert (world.book.bundles, world.book.jobs) == ({}, {})


def test_waiting_job_whose_pods_will_be_made_anew_is_asked_for_now_and_then_and_kept():
    world = World(n1=8)
    lose_all_pods(world)
    for _ in range(2):
        world.answer_sizes(make_job_object(1))
        assert world.settle() == []
        assert not world.book.take_wanted()
        world.now_ms += EMPTY_MS
        world.settle()
    assert len(world.book.take_wanted()) == 1
    world.put("w2", owner=JOB)
    assert world.settle() == [JobReleased(world.now_ms, 1)]
    world.book.put_size(Source(*JOB[:2], "vision", *JOB[2:]), None, is_gone=True)
    assert world.settle() == []


def test_waiting_job_of_which_no_object_says_whether_there_will_be_pods_is_kept_for_a_while():
    world = World(n1=8)
    lose_all_pods(world, annotations={GANG: "g", GANG_SIZE: "1"})
    world.now_ms += EMPTY_MS - 2
    assert world.settle() == []
    assert world.settle() == [JobCancelled(world.now_ms, 1)]


def test_start_binds_every_pod_and_is_reported_when_all_run():
    world = World(n1=8, n2=8)
    make_gang(world)
    world.start(1, ("n1", ALL), ("n2", ALL))
    assert world.calls() == ["bind w0 n1", "bind w1 n2"]
    world.change("w0", node="n1", phase="Running")
    assert world.settle() == []
    world.change("w1", node="n2", phase="Running")
    assert world.settle() == [JobStarted(world.now_ms, 1, 1)]


def test_group_that_became_whole_is_offered_without_waiting_for_the_driver():
    world = World(n1=8)
    world.put("p", gpus=1)
    world.book.look_at_new(world.now_ms)
    assert [arrival.job.request.devices for arrival in world.book.take_arrivals()] == [1]
    world.settle()
    assert not world.book.take_arrivals(), "it is offered once"


def test_pods_that_were_bound_and_run_are_no_news_that_hurries_and_one_that_leaves_is():
    world = World(n1=8)
    world.put("p", gpus=1)
    world.accept()
    assert world.book.is_urgent, "the node admits what the pod demands, and the engine is to know"
    world.start(1, ("n1", (0,)))
    world.settle()
    world.change("p", node="n1", phase="Running")
    assert not world.book.is_urgent
    assert world.settle() == [JobStarted(world.now_ms, 1, 1)], "it is told all the same"
    world.change("p", leaving=True)
    assert world.book.is_urgent


def test_start_performed_twice_binds_once():
    world = World(n1=8, n2=8)
    make_gang(world)
    world.start(1, ("n1", ALL), ("n2", ALL))
    world.calls()
    world.start(1, ("n2", ALL), ("n1", ALL))
    assert world.calls() == []


def test_gang_is_not_bound_at_all_where_one_pod_finds_its_node_taken():
    world = World(n1=8, n2=8)
    make_gang(world)
    world.put("other", node="n2", schedulerName="default-scheduler", gpus=1)
    world.start(1, ("n1", ALL), ("n2", ALL))
    assert world.calls() == []
    (stopped,) = [event for event in world.settle() if isinstance(event, JobStopped)]
    assert stopped.cause is StopCause.MIGRATED
    assert "nvidia.com/gpu" in stopped.reason
    world.start(1, ("n1", ALL), ("n3", ALL), generation=2)
    assert world.calls() == []


def test_start_of_pods_that_are_gone_binds_nothing_and_holds_the_job():
    world = World(n1=8, n2=8)
    make_gang(world)
    world.delete("w1")
    world.start(1, ("n1", ALL), ("n2", ALL))
    assert world.calls() == []
    stopped, held = world.settle()
    assert (stopped.cause, held) == (StopCause.MIGRATED, JobHeld(world.now_ms - 1, 1, NOT_WHOLE))


@pytest.mark.parametrize(
    "trouble",
    [
        {"ready": False},
        {"unschedulable": True},
        {"taints": [{"key": "x", "effect": "NoSchedule"}]},
        {"cpu": "500m"},
        {"pods": "0"},
    ],
)
def test_node_that_changed_under_the_plan_is_seen_before_binding(trouble):
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.put_node("n1", **trouble)
    world.start(1, ("n1", (0,)))
    assert world.calls() == []
    cause = StopCause.START_FAILED if "ready" in trouble else StopCause.MIGRATED  # else the node is well
    assert [event.cause for event in world.settle() if isinstance(event, JobStopped)] == [cause]


# --- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        (("Succeeded", "Succeeded"), Outcome.COMPLETED),
        (("Succeeded", "Failed"), Outcome.FAILED),
    ],
)
def test_gang_ends_when_all_its_pods_have_ended(phases, outcome):
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.change("w0", phase=phases[0])
    assert world.settle() == []
    world.change("w1", phase=phases[1])
    assert world.settle() == [JobFinished(world.now_ms, 1, 1, outcome)]


def test_pod_that_replaces_a_failed_one_takes_its_place():
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.change("w0", phase="Failed")
    world.settle()
    world.put("w0b", owner=JOB, index=0, gpus=8)
    world.settle()
    assert world.calls() == ["bind w0b n1"]


def test_gang_leaves_whole_where_the_replacement_finds_its_node_gone():
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.put_node("n1", ready=False)
    world.change("w0", leaving=True)
    world.delete("w0")
    world.put("w0b", owner=JOB, index=0, gpus=8)
    world.settle()
    world.settle()
    assert world.calls() == ["evict w1"]
    world.delete("w1")
    stopped, held = world.settle()
    assert (stopped.cause, held.reason) == (StopCause.NODE_FAILED, NOT_WHOLE)
    world.put("w1b", owner=JOB, index=1, gpus=8)
    assert world.settle() == [JobReleased(world.now_ms, 1)]


def test_gang_leaves_a_silent_node_once_its_pod_there_is_replaced_though_no_kubelet_says_that_it_went():
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.put_node("n1", ready=False)
    world.change("w0", leaving=True)
    assert [type(event) for event in world.settle()] == [NodeDown]
    world.put("w0b", owner=JOB, index=0, gpus=8)
    world.settle()
    world.settle()
    assert world.calls() == ["evict w1"]
    world.change("w1", leaving=True)
    world.delete("w1")
    world.put("w1b", owner=JOB, index=1, gpus=8)
    (stopped,) = [event for event in world.settle() if isinstance(event, JobStopped)]
    assert stopped.cause is StopCause.NODE_FAILED


def test_preempted_gang_waits_until_its_pods_are_made_anew():
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.book.stop(world.now_ms, 1, 1, StopCause.PREEMPTED)
    world.settle()
    assert world.calls() == ["evict w0", "evict w1"]
    world.change("w0", leaving=True)
    world.change("w1", leaving=True)
    world.put("w0b", owner=JOB, index=0, gpus=8)
    world.put("w1b", owner=JOB, index=1, gpus=8)
    world.delete("w0")
    assert world.settle() == []
    assert world.calls() == []
    world.delete("w1")
    assert world.settle() == [JobStopped(world.now_ms, 1, 1, StopCause.PREEMPTED)]
    world.start(1, ("n2", ALL), ("n1", ALL), generation=2)
    assert world.calls() == ["bind w0b n2", "bind w1b n1"]


def test_preempted_bare_pod_ends_since_nobody_makes_it_anew():
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.start(1, ("n1", (0,)))
    world.change("p", node="n1", phase="Running")
    world.settle()
    world.book.stop(world.now_ms, 1, 1, StopCause.PREEMPTED)
    world.settle()
    world.delete("p")
    assert world.settle() == [JobFinished(world.now_ms, 1, 1, Outcome.CANCELLED)]


def test_run_whose_limit_is_over_is_evicted_and_ends_by_timeout():
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.book.start(world.now_ms, 1, 1, [("n1", (0,))], world.book.jobs[1].key, limit_ms=2)
    world.change("p", node="n1", phase="Running")
    world.settle()
    world.calls()
    world.settle()
    world.settle()
    assert world.calls() == ["evict p"]
    world.delete("p")
    assert world.settle() == [JobFinished(world.now_ms, 1, 1, Outcome.TIMEOUT)]


def test_gang_that_ended_may_come_again_as_another_job():
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.change("w0", phase="Failed")
    world.change("w1", phase="Failed")
    world.settle()
    world.put("w0b", owner=JOB, index=0)
    world.put("w1b", owner=JOB, index=1)
    assert len(world.accept()) == 1


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_devices_that_others_hold_are_down_until_they_are_given_back():
    world = World(n1=8)
    world.settle()
    world.put("other", node="n1", schedulerName="default-scheduler", gpus=2)
    assert [event for event in world.settle() if isinstance(event, DeviceDown)] == [
        DeviceDown(world.now_ms, "n1", device, "held by pods that Clearway did not place, or not given out by its node")
        for device in (6, 7)
    ]
    world.delete("other")
    assert [event.device for event in world.settle() if isinstance(event, DeviceUp)] == [6, 7]


def test_cpus_and_memory_that_others_hold_are_taken_from_the_node():
    world = World(n1=8)
    world.settle()
    world.put("other", node="n1", schedulerName="default-scheduler", gpus=0, cpu="10", memory="12Gi")
    (changed,) = world.settle()
    assert isinstance(changed, NodeChanged)
    assert (changed.node.cpu_milli, changed.node.memory_bytes) == (54_000, 500 << 30)


def test_pods_of_a_run_are_not_taken_from_the_node_a_second_time():
    world = World(n1=8)
    world.put("p", gpus=2)
    world.accept()
    world.start(1, ("n1", (0, 1)))
    world.change("p", node="n1", phase="Running")
    assert world.settle() == [JobStarted(world.now_ms, 1, 1)]


def test_bound_pod_of_no_known_run_counts_as_held_by_others_and_is_left_alone():
    world = World(n1=8)
    world.settle()
    world.put("p", node="n1", phase="Running", gpus=3)
    assert len([event for event in world.settle() if isinstance(event, DeviceDown)]) == 3
    assert world.calls() == []


def test_node_that_falls_silent_is_down_without_a_word_about_its_pods():
    world = World(n1=8, n2=8)
    run_gang(world, ("n1", ALL), ("n2", ALL))
    world.put_node("n1", ready=False)
    assert [type(event) for event in world.settle()] == [NodeDown]
    world.put_node("n1")
    assert [type(event) for event in world.settle()] == [NodeUp]


def test_node_is_added_once_it_is_ready():
    world = World()
    world.put_node("n1", ready=False)
    assert world.settle() == []
    world.put_node("n1")
    assert [type(event) for event in world.settle()] == [NodeAdded]


def test_node_with_other_devices_than_before_comes_again_under_another_name():
    world = World(n1=8)
    world.settle()
    world.put_node("n1", gpus=4)
    down, added = world.settle()
    assert (down.node, added.node.name, added.node.device_count) == ("n1", "n1~2", 4)
    world.put("p")
    world.accept()
    world.start(1, ("n1~2", (0,)))
    assert world.calls() == ["bind p n1"]


def test_full_node_admits_no_more_pods():
    world = World()
    world.put_node("n1", pods="1")
    world.put("p", gpus=0)
    (job,) = world.accept()
    label = job.request.node_labels[0]
    world.put("other", node="n1", schedulerName="default-scheduler", gpus=0, cpu="0", memory="0")
    (changed,) = world.settle()
    assert label not in changed.node.labels


def test_node_keeps_its_name_over_a_restart_unless_its_devices_are_others():
    world = World(n1=8, n2=4, n3=8)
    world.settle()
    known = list(world.book.nodes.specs())
    again = World(n1=8, n2=8, n3=8)
    names = [node.name for node in again.book.nodes.specs(known)]
    assert names == ["n1", "n2~2", "n3"]
    once_more = World(n1=8, n2=8, n3=4)
    known += again.book.nodes.specs(known)
    assert [node.name for node in once_more.book.nodes.specs(known)] == ["n1", "n2~2", "n3~2"]


# --- a new start ------------------------------------------------------------------------------------------------------


def test_run_is_found_again_after_a_restart_and_nothing_is_bound_twice():
    world = World(n1=8, n2=8)
    for index, node in enumerate(("n1", "n2")):
        world.put(f"w{index}", owner=JOB, index=index, node=node, phase="Running", gpus=8)
    world.answer_sizes(make_job_object(2))
    places = [("n1", ALL), ("n2", ALL)]
    world.book.adopt(0, 1, 3, places, "vision/job/a1e3#uid-w0", is_started=True)
    world.book.start(0, 1, 3, places, "vision/job/a1e3#uid-w0")
    assert world.settle() == []
    assert world.calls() == []
    world.change("w0", phase="Succeeded")
    world.change("w1", phase="Succeeded")
    assert world.settle() == [JobFinished(world.now_ms, 1, 3, Outcome.COMPLETED)]


def test_start_that_was_cut_off_is_completed_after_a_restart():
    world = World(n1=8, n2=8)
    world.put("w0", owner=JOB, index=0, node="n1", gpus=8)
    world.put("w1", owner=JOB, index=1, gpus=8)
    world.answer_sizes(make_job_object(2))
    world.book.adopt(0, 1, 1, [("n1", ALL), ("n2", ALL)], "vision/job/a1e3#uid-w0", is_started=False)
    world.settle()
    assert world.calls() == ["bind w1 n2"]


def test_run_whose_pods_are_all_gone_after_a_restart_has_ended():
    world = World(n1=8)
    world.book.adopt(0, 1, 1, [("n1", (0,))], "vision/pod/u1#u1", is_started=True)
    assert world.settle() == [JobFinished(0, 1, 1, Outcome.CANCELLED)]


def test_waiting_job_finds_its_pods_after_a_restart_and_is_not_submitted_again():
    world = World(n1=8)
    world.put("p")
    world.settle()
    world.book.restore(0, 5, "vision/pod/uid-p#uid-p", 1)
    assert world.book.take_arrivals() == ()
    assert world.settle() == []
    world.start(5, ("n1", (0,)))
    assert world.calls() == ["bind p n1"]


def test_nodes_are_told_after_a_restart_what_waiting_jobs_of_before_want():
    world = World(n1=8)
    world.put("p")
    world.book.restore(0, 5, "vision/pod/uid-p#uid-p", 1)
    (changed,) = world.settle()
    assert [key for key, _ in changed.node.labels if key.startswith("clearway.io/admits-")]


def test_waiting_job_whose_pods_are_gone_after_a_restart_is_cancelled():
    world = World(n1=8)
    world.book.restore(7, 5, "vision/pod/u1#u1", 1)
    assert world.settle() == [JobCancelled(7, 5)]


def test_what_nodes_offer_anew_after_they_were_listed_is_told_by_the_next_settling():
    world = World()
    world.put_node("n1")
    world.put("p")
    assert [node.name for node in world.book.nodes.specs()] == ["n1"]
    assert world.book.settle(5, is_first=True) == []
    assert [type(event) for event in world.settle()] == [NodeChanged]


# --- what is forgotten ------------------------------------------------------------------------------------------------


def test_node_that_is_gone_and_empty_is_forgotten_and_comes_again_under_another_name():
    world = World(n1=8)
    world.book.nodes.drop("n1")
    assert [type(one) for one in world.settle()] == [NodeDown]
    assert not world.book.nodes.entries
    world.put_node("n1", gpus=8)
    (event,) = [one for one in world.settle() if isinstance(one, NodeAdded)]
    assert event.node.name == "n1~2"


def test_node_that_is_gone_is_kept_while_a_run_holds_devices_of_it():
    world = World(n1=8)
    run_gang(world, ("n1", ALL))
    world.book.nodes.drop("n1")
    world.settle()
    assert "n1" in world.book.nodes.entries
    world.delete("w0")
    world.settle()
    world.settle()
    assert not world.book.nodes.entries


def test_demands_that_nobody_has_any_more_are_forgotten_and_those_of_waiting_pods_are_kept(monkeypatch):
    monkeypatch.setattr(nodes, "WANTED_MAX", 10)
    world = World(n1=8)
    world.put("waits", nodeSelector={"zone": "kept"})
    (job,) = world.accept()
    for number in range(30):
        name = f"p{number}"
        world.put(name, nodeSelector={"zone": str(number)})
        world.accept()
        world.delete(name)
        world.settle()
    world.settle()
    assert len([key for key, _ in world.book.nodes.specs()[0].labels if key.startswith(DEMAND_PREFIX)]) == 0
    world.put_node("n1", gpus=8, labels={"zone": "kept"})
    world.settle()
    assert job.request.node_labels[0] in world.book.nodes.specs()[0].labels
    assert len(world.book.nodes._demands) < 25


def term_of(weight, app="web"):
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    return {"weight": weight, "podAffinityTerm": term} if weight else term


@pytest.mark.parametrize(
    ("kind", "weight", "expected"),
    [
        ("podAffinity", 70, ("beside", 70)),
        ("podAntiAffinity", 30, ("apart", 30)),
        ("podAffinity", 0, ("beside", 1)),
        ("podAntiAffinity", 0, ("apart", 0)),
    ],
)
def test_wishes_of_pods_that_run_already_count_for_pods_that_they_speak_of(kind, weight, expected):
    world = World(n1=8)
    when = "preferred" if weight else "required"
    world.put("old", node="n1", affinity={kind: {f"{when}DuringSchedulingIgnoredDuringExecution": [term_of(weight)]}})
    world.put("web", labels={"app": "web"})
    world.put("other", labels={"app": "other"})
    (web, other) = world.accept()
    assert [(rule.kind.value, rule.weight) for rule in web.request.neighbours] == [expected]
    assert other.request.neighbours == ()
    (rule,) = web.request.neighbours
    (spec,) = world.book.nodes.specs()
    assert dict(spec.crowds)[rule.crowd] == 1
    world.delete("old")
    world.put("later", labels={"app": "web"})
    assert [job.request.neighbours for job in world.accept()] == [()]


@pytest.mark.parametrize("order", [("hermit", "web"), ("web", "hermit")])
def test_wishes_of_a_pod_count_from_the_moment_it_has_a_node_and_are_told_before_who_came_with_it_is_placed(order):
    world = World(n1=8)
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [term_of(100)]}
    told = {"web": {"labels": {"app": "web"}}}
    told["hermit"] = {"affinity": {"podAntiAffinity": wish}, "schedulerName": "somebody"}
    for name in order:  # in one answer of a watch
        world.put(name, **told[name])
    world.book.look_at_new(world.now_ms)
    ((rule,),) = [arrival.job.request.neighbours for arrival in world.book.take_arrivals()]
    assert [one.node.crowds for one in world.settle() if isinstance(one, NodeChanged)] == [()]
    world.change("hermit", node="n1")
    (changed,) = [one for one in world.settle() if isinstance(one, NodeChanged)]
    assert dict(changed.node.crowds) == {rule.crowd: 1}
    world.change("hermit", phase="Running")
    assert world.settle() == []


@pytest.mark.parametrize("message", [NOT_WHOLE, NO_PLACE, f"{RESTING}a neighbour is there", f"{BIND_REFUSED}a policy"])
def test_job_that_an_earlier_process_held_for_a_while_is_released_by_this_one(message):
    world = World(n1=8)
    world.put("p")
    world.book.restore(0, 5, "vision/pod/uid-p#uid-p", 1, message)
    assert [one.job for one in world.settle() if isinstance(one, JobReleased)] == [5]


@pytest.mark.parametrize("message", ["", "failed to start 3 times in a row"])
def test_job_that_somebody_else_holds_stays_held_over_a_restart(message):
    world = World(n1=8)
    world.put("p")
    world.book.restore(0, 5, "vision/pod/uid-p#uid-p", 1, message)
    assert [one for one in world.settle() if isinstance(one, JobReleased)] == []


# --- calls that are refused -------------------------------------------------------------------------------------------


def refuse(world, name, status=422, times=1):
    for _ in range(times):
        world.book.note_refused_call(world.now_ms, f"uid-{name}", status, "a policy says no")


def refuse_to_the_end(world, name):
    """Each try of the book to bind the pod is refused, until it makes none."""
    tries = 0
    while any(call.startswith(f"bind {name} ") for call in world.calls()):
        tries += 1
        refuse(world, name)
        events = world.settle()
    return tries, events


def test_pod_that_may_not_be_bound_gives_its_place_back_after_some_tries_and_tries_again_later():
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.start(1, ("n1", (0,)))
    tries, events = refuse_to_the_end(world, "p")
    stopped, held = [one for one in events if isinstance(one, JobStopped | JobHeld)]
    assert (tries, stopped.cause) == (REFUSALS_MAX, StopCause.MIGRATED)
    assert held.reason == f"{BIND_REFUSED}a policy says no"
    assert world.settle() == []
    world.now_ms += RETRY_MS
    assert [type(one) for one in world.settle()] == [JobReleased]
    world.start(1, ("n1", (0,)), generation=2)
    assert world.calls() == ["bind p n1"]


def test_gang_of_which_one_pod_may_not_be_bound_leaves_whole():
    world = World(n1=8, n2=8)
    make_gang(world, 2)
    world.start(1, ("n1", ALL), ("n2", ALL))
    world.change("w0", node="n1", phase="Running")
    tries, _ = refuse_to_the_end(world, "w1")
    assert tries == REFUSALS_MAX
    world.delete("w0")
    stopped, held = [one for one in world.settle() if isinstance(one, JobStopped | JobHeld)]
    assert (stopped.job, held.reason) == (1, f"{BIND_REFUSED}a policy says no")


def test_only_pods_that_lie_somewhere_are_told_to_leave_a_gang_that_may_not_be_bound():
    world = World(n1=8, n2=8, n3=8)
    make_gang(world, 3)
    world.start(1, ("n1", ALL), ("n2", ALL), ("n3", ALL))
    world.change("w0", node="n1", phase="Running")
    for _ in range(REFUSALS_MAX - 1):
        refuse(world, "w1")
        world.settle()
    world.calls()  # the binding of the third pod is still on its way
    refuse(world, "w1")
    world.settle()
    assert world.calls() == ["evict w0"]
    world.delete("w0")
    assert world.settle() == []
    refuse(world, "w2")
    assert [one.job for one in world.settle() if isinstance(one, JobStopped)] == [1]
    assert world.calls() == []


def test_job_that_finds_its_node_full_again_and_again_rests_and_blames_no_node():
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.put("other", node="n1", schedulerName="default-scheduler", gpus=8)
    for generation in range(1, CONFLICTS_MAX + 1):
        world.start(1, ("n1", (0,)), generation=generation)
        events = world.settle()
        assert [one.cause for one in events if isinstance(one, JobStopped)] == [StopCause.MIGRATED]
    (held,) = [one for one in events if isinstance(one, JobHeld)]
    assert held.reason.startswith(f"{RESTING}n1: nvidia.com/gpu")
    assert world.calls() == []


def test_answer_that_says_that_the_pod_is_another_by_now_is_no_refusal():
    world = World(n1=8)
    world.put("p")
    world.accept()
    world.start(1, ("n1", (0,)))
    for _ in range(2 * REFUSALS_MAX):
        assert world.calls() == ["bind p n1"]
        refuse(world, "p", 409)
        assert world.settle() == []


def test_pod_whose_eviction_is_refused_is_asked_again():
    world = World(n1=8)
    run_gang(world, ("n1", ALL))
    world.book.stop(world.now_ms, 1, 1, StopCause.PREEMPTED)
    world.settle()
    assert world.calls() == ["evict w0"]
    world.settle()
    assert world.calls() == []
    refuse(world, "w0", 403)
    world.settle()
    assert world.calls() == ["evict w0"]


# --- resized in place -------------------------------------------------------------------------------------------------


def offers(events):
    """CPUs in thousandths of each node that is told to offer something else."""
    return [(event.node.name, event.node.cpu_milli) for event in events if isinstance(event, NodeChanged)]


def test_what_a_pod_of_a_run_was_given_beside_what_its_job_asks_is_not_offered_to_others():
    world = World(n1=8)
    world.put("p", cpu="4")
    world.accept()
    world.start(1, ("n1", (0,)))
    world.settle()
    world.put("p", cpu="20", node="n1", phase="Running")
    assert offers(world.settle()) == [("n1", 48_000)]
    world.put("p", cpu="2", node="n1", phase="Running")
    assert offers(world.settle()) == [("n1", 64_000)], "what its job asks is kept for it"
    world.put("p", cpu="20", node="n1", phase="Running")
    world.settle()
    world.delete("p")
    assert offers(world.settle()) == [("n1", 64_000)]


def test_new_scheduler_knows_what_the_engine_counts_for_a_pod_that_was_resized_before():
    world = World(n1=8)
    world.put("p", cpu="20", node="n1", phase="Running")
    request = Request(devices=1, cpu_milli=4_000, memory_bytes=1 << 30)
    world.book.adopt(0, 1, 1, [("n1", (0,))], "vision/pod/uid-p#uid-p", is_started=True, request=request)
    assert offers(world.settle()) == [("n1", 48_000)]


# --- volumes of gangs -------------------------------------------------------------------------------------------------


def put_volume(world, name, zone=""):
    """A claim of this name; with a zone it is bound to a volume there."""
    put = world.book.put_other
    put(
        "storageclasses",
        {"metadata": {"name": "fast"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"},
    )
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": "vision", "uid": f"uid-{name}"}
    if zone:
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        place = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "capacity": {"storage": "1Gi"}}
        put("persistentvolumes", {"metadata": {"name": f"v-{name}"}, "spec": place, "status": {"phase": "Bound"}})
        spec["volumeName"], metadata["annotations"] = f"v-{name}", {BIND_COMPLETED: "yes"}
    put("persistentvolumeclaims", {"metadata": metadata, "spec": spec})


def make_scattered(world, *zones):
    """A gang of as many pods, each with a claim of its own, bound in its zone; "" = not bound yet."""
    for name in ("a", "b"):
        world.put_node(f"n-{name}", gpus=8, labels={"zone": name})
    for number, zone in enumerate(zones):
        put_volume(world, f"data-{number}", zone)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        world.put(f"w{number}", owner=JOB, index=number, volumes=[volume])
    world.answer_sizes(make_job_object(len(zones)))
    return world.accept()


def fitting(world, job):
    """Nodes that are told to admit the job's pods."""
    world.settle()
    (label,) = job.request.node_labels
    return [name for name, entry in world.book.nodes.entries.items() if label in entry.told.labels]


def test_gang_whose_volumes_are_in_two_zones_goes_to_both():
    world = World()
    jobs = make_scattered(world, "a", "b", "a")
    assert [job.replicas for job in jobs] == [2, 1]
    assert [fitting(world, job) for job in jobs] == [["n-a"], ["n-b"]]
    world.start(1, ("n-a", (0,)), ("n-a", (1,)))
    assert world.calls() == [], "none of a gang is bound before all have places"
    world.start(2, ("n-b", (0,)))
    assert sorted(world.calls()) == ["bind w0 n-a", "bind w1 n-b", "bind w2 n-a"]


def test_gang_whose_volumes_are_in_one_zone_or_not_bound_yet_is_one_job():
    assert [job.replicas for job in make_scattered(World(), "a", "a")] == [2]
    assert [job.replicas for job in make_scattered(World(), "", "")] == [2]


def test_gang_whose_volumes_were_bound_apart_while_it_waited_is_told_anew_by_their_places():
    world = World()
    (job,) = make_scattered(world, "", "")
    assert job.replicas == 2
    put_volume(world, "data-0", "a")
    put_volume(world, "data-1", "b")
    world.start(1, ("n-b", (0,)), ("n-a", (0,)))
    assert world.calls() == []
    jobs = world.accept()
    assert [fitting(world, job) for job in jobs] == [["n-a"], ["n-b"]]


def test_new_process_finds_the_parts_of_a_gang_by_the_places_of_their_volumes():
    world = World()
    make_scattered(world, "a", "b")
    origins = {job: bundle.key for job, bundle in world.book.jobs.items()}
    again = World()
    for name in ("a", "b"):
        again.put_node(f"n-{name}", gpus=8, labels={"zone": name})
    for pod in world.pods.values():
        again.book.put_pod(parse_pod(pod, CONFIG))
    put_volume(again, "data-0", "a")
    put_volume(again, "data-1", "b")
    again.answer_sizes(make_job_object(2))
    again.book.adopt(1, 1, 1, (("n-a", (0,)),), origins[1], is_started=False)
    again.book.restore(1, 2, origins[2], 1)
    again.settle()
    assert again.calls() == []
    again.start(2, ("n-b", (0,)))
    assert sorted(again.calls()) == ["bind w0 n-a", "bind w1 n-b"]


@pytest.mark.parametrize("zone", ["b", ""])
def test_pod_that_replaces_one_of_a_scattered_gang_takes_its_place(zone):
    world = World()
    make_scattered(world, "a", "b", "b")
    world.start(1, ("n-b", (0,)), ("n-b", (1,)))
    world.start(2, ("n-a", (0,)))
    assert sorted(world.calls()) == ["bind w0 n-a", "bind w1 n-b", "bind w2 n-b"]
    for name, node in (("w0", "n-a"), ("w1", "n-b"), ("w2", "n-b")):
        world.change(name, node=node, phase="Running")
    world.settle()
    world.delete("w1")
    put_volume(world, "new", zone)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "new"}}
    world.put("x1", owner=JOB, index=1, volumes=[volume])
    world.settle()
    assert world.calls() == ["bind x1 n-b"]


def put_free_volume(world, name, zone):
    """A volume that nobody has, which can be reached from the zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    world.book.put_other(
        "persistentvolumes", {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
    )


def make_local(world):
    """A gang of two pods whose claims are to be given volumes, of which there is one in each of two zones."""
    make_scattered(world, "", "")
    for zone in ("a", "b"):
        put_free_volume(world, f"v-{zone}", zone)
    provisioner = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    world.book.put_other("storageclasses", {"metadata": {"name": "fast"}} | provisioner)
    world.settle()
    world.calls()


def test_gang_is_not_bound_where_there_is_a_volume_for_one_of_its_pods_alone():
    world = World()
    make_local(world)
    world.start(1, ("n-a", (0,)), ("n-a", (1,)))
    assert world.calls() == []
    (stopped,) = [one for one in world.settle() if isinstance(one, JobStopped)]
    assert stopped.cause is StopCause.MIGRATED, "no node is to blame"
    assert stopped.reason == "n-a: node(s) didn't match PersistentVolume's node affinity"
    world.accept()
    (job,) = world.book.jobs
    world.start(job, ("n-b", (0,)), ("n-a", (0,)), generation=2)
    assert sorted(world.calls()) == ["bind w0 n-b", "bind w1 n-a"]


def test_volume_that_was_promised_to_a_pod_that_is_gone_is_free_again():
    world = World()
    make_local(world)
    world.start(1, ("n-a", (0,)), ("n-b", (0,)))
    assert len(world.calls()) == 2
    for name in ("w0", "w1"):
        world.delete(name)
    world.settle()
    put_volume(world, "other")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "other"}}
    world.put("p", volumes=[volume])
    world.accept()
    world.start(max(world.book.jobs), ("n-a", (0,)))
    assert world.calls() == ["bind p n-a"]


@pytest.mark.parametrize(("node", "calls"), [("n-a2", ["bind w0 n-a", "bind w1 n-a2"]), ("n-b", [])])
def test_pods_that_share_a_claim_which_is_not_bound_yet_lie_in_one_zone(node, calls):
    world = World()
    for name, zone in (("n-a", "a"), ("n-a2", "a"), ("n-b", "b")):
        world.put_node(name, gpus=8, labels={"topology.kubernetes.io/zone": zone})
    put_volume(world, "data")
    for name in ("w0", "w1"):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        world.put(name, owner=JOB, index=int(name[1]), volumes=[volume])
    world.answer_sizes(make_job_object(2))
    world.accept()
    world.start(1, ("n-a", (0,)), (node, (0,)))
    assert sorted(world.calls()) == calls


# --- queues -----------------------------------------------------------------------------------------------------------


def queues_of_job(*, size=2, said="team", labels=(), **more):
    """Queues in which the jobs lie that a Job's pods become, the Job naming one and its pods these `labels`."""
    world = World(n1=8)
    world.book.set_queues(("team", "other"), "default")
    for index in range(size):
        world.put(f"w{index}", owner=JOB, index=index, labels=dict(labels))
    data = make_job_object(size, **more)
    data["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": said}
    world.answer_sizes(data)
    return [job.queue for job in world.accept()]


def test_pods_lie_in_the_queue_that_their_job_names_unless_they_name_another():
    assert queues_of_job() == ["team"]
    assert queues_of_job(mode="NonIndexed") == ["team", "team"], "each is a job of its own"
    assert queues_of_job(labels={"kai.scheduler/queue": "other"}) == ["other"]
    assert queues_of_job(said="unknown") == ["default"]
