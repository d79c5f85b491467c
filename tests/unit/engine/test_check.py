"""The checker refuses each kind of bad plan, with a sentence that says why."""

import re

import pytest

from clearway.engine.check import Checker
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.events import DeviceDown, JobStarted, NodeAdded, NodeDown, PlanAccepted
from clearway.model.jobs import DomainLevel, Elastic, Network, StopCause
from clearway.model.plan import Cap, Migrate, Plan, Reserve, Resize, Start, Stop, Suspend
from clearway.model.units import GIB
from support.engine import add_nodes, make_allocation, make_kernel, submit


def make_world(*jobs):
    """Two nodes of four devices of 80 GiB, and waiting jobs that no planner touches."""
    kernel = make_kernel()
    add_nodes(kernel, 2, 4, memory_bytes=80 * GIB, cpu_milli=8_000, leaf=lambda number: f"leaf{number}")
    submit(kernel, *({"held": True, **job} for job in jobs))
    for record in kernel.state.jobs.values():
        record.held, record.blocked, record.phase = False, None, 1
    return kernel.state


def notes(state, *moves):
    return "; ".join(Checker(state).check_plan(Plan(state.version, moves)))


def start(nodes, devices, job=1, generation=1):
    return Start(job, generation, make_allocation(nodes, devices))


def run(state, *starts):
    """Apply starts as an accepted plan, and let them be confirmed."""
    for move in starts:
        state.order.insert(state.jobs[move.job].row)
    state.apply(PlanAccepted(0, Plan(state.version, starts)))
    for move in starts:
        state.apply(JobStarted(0, move.job, move.generation))


def test_a_good_plan_has_no_notes():
    assert notes(make_world({"devices": 2, "replicas": 2}), start([0, 1], [0, 1, 4, 5])) == ""


@pytest.mark.parametrize(
    ("wishes", "move", "note"),
    [
        ({}, start([7], [0]), "outside the cluster"),
        ({}, start([0], [99]), "outside the cluster"),
        ({}, start([-1], [0]), "outside the cluster"),
        ({"node_labels": (("zone", "a"),)}, start([0], [0]), "labels"),
        ({"nodes": ("n2",)}, start([0], [0]), "labels"),
        ({"nodes_excluded": ("n1",)}, start([0], [0]), "labels"),
        ({"cpu_milli": 9_000}, start([0], [0]), "too little CPU"),
        ({}, start([0], [4]), "does not lie on the node"),
        ({"device_models": ("A100",)}, start([0], [0]), "model"),
        ({"device_memory_bytes": 81 * GIB}, start([0], [0]), "too little memory"),
        ({"devices": 2}, start([0], [0, 0]), "another owner"),
        ({"share_milli": 600, "replicas": 2}, start([0, 0], [0, 0]), "share"),
        (
            {"share_milli": 400, "device_memory_bytes": 50 * GIB, "replicas": 2},
            start([0, 0], [0, 0]),
            "too little memory",
        ),
        ({"replicas": 2, "network": Network(widest=DomainLevel.NODE)}, start([0, 1], [0, 4]), "wider domain"),
        ({"replicas": 2, "network": Network(widest=DomainLevel.LEAF)}, start([0, 1], [0, 4]), "wider domain"),
        ({"replicas": 2, "network": Network(widest=DomainLevel.NVLINK)}, start([0, 1], [0, 4]), "wider domain"),
        ({"replicas": 2}, start([0], [0]), "a gang of 2..2, found 1"),
        ({"devices": 2}, start([0], [0]), "1 devices for 1 replicas"),
        ({}, start([0], [0], generation=2), "expected generation 1"),
        ({}, start([0], [0], job=9), "not known"),
        ({}, Stop(1, 0, 0, None), "does not run"),
        ({}, Suspend(1, 0), "does not run"),
        ({}, Resize(1, 1, make_allocation([0], [0])), "does not run"),
        ({"devices": 2}, Reserve(1, make_allocation([0], [0, 0]), 0), "kept twice"),
        ({}, Cap(7, 300), "no node 7"),
    ],
)
def test_a_bad_move_is_refused(wishes, move, note):
    assert re.search(note, notes(make_world(wishes), move))


def test_a_node_with_too_little_memory_is_refused():
    state = make_world({"memory_bytes": 2 * GIB, "replicas": 2})
    group = DeviceGroup(model="H100", count=4)
    state.apply(NodeAdded(0, NodeSpec(name="small", groups=(group,), memory_bytes=3 * GIB)))
    assert "too little memory left" in notes(state, start([2, 2], [8, 9]))


def test_a_node_that_is_down_is_refused():
    state = make_world({})
    state.apply(NodeDown(0, "n1"))
    assert "down or drained" in notes(state, start([0], [0]))


def test_a_device_that_failed_is_refused():
    state = make_world({})
    state.apply(DeviceDown(0, "n1", 2))
    assert "failed" in notes(state, start([0], [2]))


def test_two_starts_on_one_device_are_refused():
    assert "another owner" in notes(make_world({}, {}), start([0], [0]), start([0], [0], job=2))


def test_a_device_that_is_held_is_refused():
    state = make_world({}, {})
    run(state, start([0], [0]))
    assert "another owner" in notes(state, start([0], [0], job=2))


def test_a_whole_device_on_top_of_a_share_is_refused():
    state = make_world({"share_milli": 100}, {})
    run(state, start([0], [0]))
    assert "another owner" in notes(state, start([0], [0], job=2))


def test_a_node_that_is_held_alone_is_refused():
    state = make_world({"exclusive": True}, {})
    run(state, start([0], [0]))
    assert "alone" in notes(state, start([0], [1], job=2))


def test_a_node_that_is_not_empty_is_refused_to_a_job_that_wants_it_alone():
    state = make_world({}, {"exclusive": True})
    run(state, start([0], [0]))
    assert "alone" in notes(state, start([0], [1], job=2))


def test_a_device_kept_for_another_job_is_refused():
    state = make_world({}, {})
    state.apply(PlanAccepted(0, Plan(state.version, (Reserve(1, make_allocation([0], [0]), 0),))))
    assert "kept for another job" in notes(state, start([0], [0], job=2))
    assert "kept for another job already" in notes(state, Reserve(2, make_allocation([0], [0]), 0))
    assert notes(state, start([0], [0], job=1)) == ""


def test_a_device_kept_for_two_jobs_by_one_plan_is_refused():
    state = make_world({}, {})
    kept = [Reserve(job, make_allocation([0], [0]), 0) for job in (1, 2)]
    assert "kept for another job by an earlier move" in notes(state, *kept)
    assert "kept for another job" in notes(state, kept[0], start([0], [0], job=2))
    assert notes(state, kept[0], Reserve(2, make_allocation([0], [1]), 0)) == ""


def test_a_job_moved_twice_is_refused():
    assert "twice" in notes(make_world({}), start([0], [0]), start([0], [1]))


def test_a_job_that_runs_is_not_started_again():
    state = make_world({})
    run(state, start([0], [0]))
    assert "does not wait" in notes(state, start([0], [1], generation=2))


@pytest.mark.parametrize("attribute", ["held", "cancelled"])
def test_a_job_that_may_not_start_is_refused(attribute):
    state = make_world({})
    setattr(state.jobs[1], attribute, True)
    assert "held, cancelled or blocked" in notes(state, start([0], [0]))


def test_a_stop_of_an_older_generation_is_refused():
    state = make_world({})
    run(state, start([0], [0]))
    assert "stale" in notes(state, Stop(1, 0, 0, StopCause.PREEMPTED))


def test_a_resize_outside_the_elastic_range_is_refused():
    state = make_world({"replicas": 2, "elastic": Elastic(replicas_min=1, replicas_max=2)})
    run(state, start([0, 0], [0, 1]))
    assert "a gang of 1..2, found 3" in notes(state, Resize(1, 2, make_allocation([0, 0, 0], [0, 1, 2])))
    assert notes(state, Resize(1, 2, make_allocation([0], [0]))) == ""


def test_a_resize_beyond_the_widest_domain_is_refused():
    within = {"network": Network(widest=DomainLevel.NODE), "elastic": Elastic(replicas_min=1, replicas_max=2)}
    state = make_world(within)
    run(state, start([0], [0]))
    assert "wider domain" in notes(state, Resize(1, 2, make_allocation([0, 1], [0, 4])))
    assert notes(state, Resize(1, 2, make_allocation([0, 0], [0, 1]))) == ""


def test_a_resize_onto_held_devices_is_refused():
    state = make_world({"elastic": Elastic(replicas_min=1, replicas_max=2)}, {})
    run(state, start([0], [0]), start([0], [1], job=2))
    assert "another owner" in notes(state, Resize(1, 2, make_allocation([0, 0], [0, 1])))


def test_a_migration_must_leave_every_device():
    state = make_world({"devices": 2})
    run(state, start([0], [0, 1]))
    assert "leave every device" in notes(state, Migrate(1, 2, make_allocation([0], [0, 2])))
    assert notes(state, Migrate(1, 2, make_allocation([1], [4, 5]))) == ""


def test_a_plan_for_another_version_is_refused():
    state = make_world({})
    assert "version" in Checker(state).check_plan(Plan(state.version - 1, (start([0], [0]),)))[0]


def test_a_refused_plan_leaves_no_trace_in_the_checker():
    state, move = make_world({"cpu_milli": 8_000}), start([0], [0])
    checker = Checker(state)
    assert checker.check_plan(Plan(state.version, (move, start([0], [1])))) != ()
    assert checker.check_plan(Plan(state.version, (move,))) == ()


def test_several_good_starts_leave_no_trace_in_the_checker():
    state = make_world({"devices": 2, "replicas": 2}, {}, {"devices": 0, "cpu_milli": 8_000})
    checker = Checker(state)
    moves = (start([0, 1], [0, 1, 4, 5]), start([0], [2], job=2), start([1], [], job=3))
    for _ in range(2):
        assert checker.check_plan(Plan(state.version, moves)) == ()


def test_the_one_bad_start_of_several_is_named():
    state = make_world({}, {"devices": 2}, {})
    found = notes(state, start([0], [0]), start([0], [0, 1], job=2), start([1], [4], job=3))
    assert found == "job 2: a device has another owner"
