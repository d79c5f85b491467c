"""The book: what the engine is told of nodes, of what others hold there, and of what is forgotten."""

import pytest

from clearway.adapters.kubernetes import nodes
from clearway.adapters.kubernetes.book import NOT_WHOLE
from clearway.adapters.kubernetes.placement import DEMAND_PREFIX
from clearway.adapters.kubernetes.placing import BIND_REFUSED, NO_PLACE, RESTING
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    JobReleased,
    JobStarted,
    NodeAdded,
    NodeChanged,
    NodeDown,
    NodeUp,
)
from clearway.model.jobs import Request
from support.kube_book import ALL, World, run_gang

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
