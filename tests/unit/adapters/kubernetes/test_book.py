"""The book: what was seen becomes jobs, what was decided becomes calls, and nothing is bound by halves."""

import pytest

from clearway.adapters.kubernetes.allowing import REFUSALS_MAX, RETRY_MS
from clearway.adapters.kubernetes.book import NOT_WHOLE
from clearway.adapters.kubernetes.gangs import GANG, GANG_SIZE, Source
from clearway.adapters.kubernetes.orphans import EMPTY_MS
from clearway.adapters.kubernetes.placing import BIND_REFUSED, RESTING
from clearway.adapters.kubernetes.runs import CONFLICTS_MAX
from clearway.model.events import (
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobStarted,
    JobStopped,
    NodeChanged,
    NodeDown,
)
from clearway.model.jobs import Outcome, StopCause
from support.kube_book import ALL, World, make_gang, run_gang
from support.kubernetes import JOB, make_job_object

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
