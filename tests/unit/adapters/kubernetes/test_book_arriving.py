"""The book: which pods become which jobs, how large, in which queue, and what becomes of those that do not."""

import pytest

from clearway.adapters.kubernetes.convoys import PARTS_MAX, PERMIT_MS, REST_FIRST_MS
from clearway.adapters.kubernetes.gangs import GANG, GANG_SIZE
from clearway.adapters.kubernetes.parse import parse_pod
from clearway.adapters.kubernetes.placement import DEMAND_PREFIX
from clearway.adapters.kubernetes.placing import NO_PLACE
from clearway.adapters.kubernetes.runs import Refuse
from clearway.model.events import (
    JobCancelled,
    JobHeld,
    JobReleased,
    JobStopped,
)
from clearway.model.jobs import JobKind, StopCause
from support.kube_book import ALL, CONFIG, World
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
