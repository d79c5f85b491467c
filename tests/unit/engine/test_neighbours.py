"""Rules about neighbours: where replicas go, beside whom, and what a job is told that finds no such place."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Preemption, PreemptMode
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.events import JobStarted, JobStopped, NodeAdded, NodeChanged
from clearway.model.jobs import StopCause
from clearway.model.neighbours import NeighbourKind, NeighbourRule
from clearway.model.plan import Stop
from support.engine import EASY, add_nodes, finish, make_kernel, nodes_of, started, started_jobs, submit


def make_rooms(*rooms, devices=4, policy=EASY):
    """One node in each of these rooms."""
    kernel = make_kernel(policy)
    add_nodes(kernel, len(rooms), devices, labels=lambda number: (("room", rooms[number - 1]), ("host", f"n{number}")))
    return kernel


def rule(kind, crowd="a", domain="room", **more):
    return NeighbourRule(kind=NeighbourKind(kind), crowd=crowd, domain=domain, **more)


def run(kernel, **job):
    """Submit one job; the nodes on which it starts, None where it does not."""
    commands = started(submit(kernel, job))
    for one in commands:
        kernel.handle(JobStarted(0, one.job, one.generation))
    return nodes_of(commands[0]) if commands else None


APART = {"crowds": ("a",), "neighbours": (rule("apart"),)}
BESIDE = {"crowds": ("a",), "neighbours": (rule("beside"),)}
EVEN = {"crowds": ("a",), "neighbours": (rule("even"),)}


def test_gang_that_lies_apart_has_one_replica_in_each_room():
    kernel = make_rooms("x", "x", "y", "z")
    nodes = run(kernel, replicas=3, **APART)
    assert sorted(["xxyz"[node] for node in nodes]) == ["x", "y", "z"]


def test_gang_that_lies_apart_waits_whole_when_one_room_is_short():
    kernel = make_rooms("x", "x", "y")
    assert run(kernel, replicas=3, **APART) is None
    (reason,) = kernel.explain(1).reasons
    assert reason.message == "Neighbours: there is room, but none where all replicas are apart from a by room"
    node = NodeSpec(name="n9", groups=(DeviceGroup(model="H100", count=4),), labels=(("room", "z"),))
    assert started_jobs(kernel.handle(NodeAdded(1, node))) == [1]


def test_job_that_waits_for_neighbours_holds_nobody_up():
    kernel = make_rooms("x")
    assert run(kernel, **APART) == [0]
    assert run(kernel, **APART) is None
    assert run(kernel, devices=3) == [0]


def test_node_without_the_label_is_no_domain_where_only_those_apart_may_go():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    assert run(kernel, **BESIDE) is None
    assert run(kernel, **EVEN) is None
    assert run(kernel, replicas=2, **APART) == [0, 0]


def test_gang_that_begins_a_crowd_lies_in_the_one_room_that_holds_it():
    kernel = make_rooms("x", "y", "y", "x", devices=2)
    assert run(kernel, devices=1, nodes=("n1",)) == [0]
    assert sorted(run(kernel, replicas=4, **BESIDE)) == [1, 1, 2, 2]


def test_job_waits_until_a_neighbour_has_started():
    kernel = make_rooms("x", "y")
    assert run(kernel, neighbours=(rule("beside"),)) is None
    assert started_jobs(submit(kernel, {"crowds": ("a",), "nodes": ("n2",)})) == [2]
    (start,) = started(kernel.handle(JobStarted(0, 2, 1)))
    assert (start.job, nodes_of(start)) == (1, [1])


def test_gang_is_spread_evenly_over_rooms_of_different_size():
    kernel = make_rooms("x", "x", "x", "y", devices=4)
    nodes = run(kernel, replicas=7, **EVEN)
    assert sorted("xxxy"[node] for node in nodes) == ["x"] * 4 + ["y"] * 3
    assert run(kernel, replicas=3, **EVEN) is None  # y is full, and x would have two more


def test_with_too_few_domains_the_fewest_counts_as_none():
    kernel = make_rooms("x", "y")
    even = {"crowds": ("a",), "neighbours": (rule("even", domains_min=3),)}
    assert sorted(run(kernel, replicas=2, **even)) == [0, 1]
    assert run(kernel, **even) is None


def test_replicas_of_others_count_where_the_node_says_so():
    kernel = make_rooms("x", "y")
    (known, _) = kernel.state.inventory.specs
    labels = known.labels
    kernel.handle(NodeChanged(0, NodeSpec(name="n1", groups=known.groups, labels=labels, crowds=(("a", 2),))))
    assert run(kernel, **APART) == [1]
    assert run(kernel, **APART) is None
    kernel.handle(NodeChanged(1, NodeSpec(name="n1", groups=known.groups, labels=labels)))
    assert kernel.state.jobs[2].allocation.nodes.tolist() == [0]


def test_node_that_moves_to_another_room_takes_its_replicas_along():
    kernel = make_rooms("x", "y")
    assert run(kernel, **APART, nodes=("n1",)) == [0]
    known = kernel.state.inventory.specs[0]
    kernel.handle(NodeChanged(0, NodeSpec(name="n1", groups=known.groups, labels=(("room", "y"),))))
    assert run(kernel, **APART) is None
    finish(kernel, 1)
    assert kernel.state.jobs[2].allocation is not None


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (rule("apart", weight=100), [1]),
        (rule("even", weight=100), [1]),
        (rule("beside", weight=100), [0]),
    ],
)
def test_wish_is_kept_where_it_can_be_and_never_holds_a_job_up(wish, expected):
    kernel = make_rooms("x", "y", devices=2)
    run(kernel, crowds=("a",), nodes=("n1",))
    assert run(kernel, neighbours=(wish,)) == expected
    run(kernel, nodes=(f"n{expected[0] + 1}",))
    assert run(kernel, neighbours=(wish,)) == [1 - expected[0]]


def test_liked_node_is_taken_before_the_one_that_packs_better():
    kernel = make_kernel()
    add_nodes(kernel, 3, 4, labels=lambda number: (("liking", ("0", "70", "x")[number - 1]),))
    run(kernel, nodes=("n1",))
    assert run(kernel, liked="liking") == [1]
    assert run(kernel) == [0]


def test_tallies_are_given_up_whatever_rows_they_lie_in():
    kernel = make_rooms("x", "y")
    for crowd in "bcd":
        run(kernel, crowds=(crowd,))
    finish(kernel, 1)
    finish(kernel, 3)
    run(kernel, **APART)
    finish(kernel, max(kernel.state.jobs))
    assert run(kernel, **APART) is not None


MAKES_ROOM = replace(EASY, preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0))


def make_full_rooms(*rooms):
    """One node in each of these rooms, each held by a job of its own, 1 and so on."""
    kernel = make_rooms(*rooms, policy=MAKES_ROOM)
    for number in range(1, len(rooms) + 1):
        run(kernel, devices=4, nodes=(f"n{number}",))
    return kernel


def stops(commands):
    return [one.job for one in commands if isinstance(one, Stop)]


def leave(kernel, job):
    return started(kernel.handle(JobStopped(1, job, 1, StopCause.PREEMPTED)))


@pytest.mark.parametrize(("job", "victim"), [(EVEN, 2), ({"neighbours": (rule("beside", crowd="b"),)}, 2)])
def test_room_is_made_where_a_job_that_is_spread_or_lies_beside_others_may_lie(job, victim):
    kernel = make_rooms("x", "y", "x", policy=MAKES_ROOM)
    run(kernel, devices=1, nodes=("n1",), crowds=("a",), priority=1)
    run(kernel, devices=1, nodes=("n2",), crowds=("b",), priority=1)
    for node in ("n1", "n2", "n3"):
        run(kernel, devices=3 if node != "n3" else 4, nodes=(node,))
    assert stops(submit(kernel, {"devices": 2, "priority": 1, **job})) == [victim + 2]
    (start,) = leave(kernel, victim + 2)
    assert nodes_of(start) == [1]


def test_claim_of_a_job_that_is_spread_falls_when_others_come_and_goes_to_what_is_left_already():
    kernel = make_full_rooms("x", "y")
    assert stops(submit(kernel, {"devices": 4, "priority": 1, **EVEN})) == [2]
    (_, second) = kernel.state.inventory.specs
    # By now another of the crowd lies in y, whoever put it there: the job may only lie in x.
    commands = kernel.handle(NodeChanged(1, replace(second, crowds=(("a", 1),))))
    assert stops(commands) == [1]
    assert [one.job for one in leave(kernel, 2)] == [2]
    (start,) = leave(kernel, 1)
    assert (start.job, nodes_of(start)) == (3, [0])
