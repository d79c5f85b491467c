"""What nodes have beside devices, CPUs and memory: counted where it is asked for, in planning and in making room."""

from dataclasses import replace

import pytest

from clearway.engine.check import Checker
from clearway.engine.policy import Backfill, Policy, Preemption, PreemptMode
from clearway.model.events import JobStarted, JobStopped, NodeChanged
from clearway.model.jobs import StopCause
from clearway.model.plan import Plan, Start, Stop
from clearway.policies.orders import Fifo
from support.engine import add_nodes, finish, make_allocation, make_kernel, nodes_of, started, started_jobs, submit

BY_PRIORITY = Policy(
    name="by priority",
    order=Fifo(),
    backfill=Backfill(reservation_depth=1),
    preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0),
)
HCA = {"extras": (("hca", 1),)}


def make_nodes(*counts, policy=BY_PRIORITY):
    """Nodes of 8 devices, with so many adapters each."""
    kernel = make_kernel(policy)
    add_nodes(kernel, len(counts), 8, extras=lambda number: (("hca", counts[number - 1]),))
    return kernel


def stops(commands):
    return [command.job for command in commands if isinstance(command, Stop)]


def start(kernel, job, generation=1):
    return kernel.handle(JobStarted(0, job, generation))


def leave(kernel, job, generation=1):
    return kernel.handle(JobStopped(1, job, generation, StopCause.PREEMPTED))


@pytest.mark.parametrize("counts", [(1, 3), (3, 1)])
def test_gang_lies_on_each_node_only_as_often_as_its_extras_are_enough_for(counts):
    kernel = make_nodes(*counts)
    (one,) = started(submit(kernel, {"devices": 1, "replicas": 4, **HCA}))
    assert sorted(nodes_of(one)) == sorted([0] * counts[0] + [1] * counts[1])


def test_job_waits_for_extras_and_starts_when_they_are_given_back():
    kernel = make_nodes(2)
    assert started_jobs(submit(kernel, {"devices": 1, "extras": (("hca", 2),)}, {"devices": 1, **HCA})) == [1]
    (reason,) = kernel.explain(2).reasons
    assert reason.message == "Neighbours: there is room, but none where all replicas are given 1 hca"
    assert started_jobs(finish(kernel, 1)) == [2]


def test_what_a_node_does_not_name_it_has_none_of():
    kernel = make_nodes(2)
    assert started_jobs(submit(kernel, {"extras": (("fpga", 1),)})) == []


def test_node_that_has_more_now_takes_the_job_that_waits():
    kernel = make_nodes(0)
    assert started_jobs(submit(kernel, HCA)) == []
    (known,) = kernel.state.inventory.specs
    assert started_jobs(kernel.handle(NodeChanged(0, replace(known, extras=(("hca", 1),))))) == [1]


def test_room_is_made_for_extras_and_the_job_starts_when_they_are_left():
    kernel = make_nodes(2)
    submit(kernel, {"devices": 1, "extras": (("hca", 2),)})
    start(kernel, 1)
    assert stops(submit(kernel, {"devices": 1, "priority": 1, **HCA})) == [1]
    assert started_jobs(leave(kernel, 1)) == [2]


def test_checker_refuses_a_plan_that_gives_more_than_there_is():
    kernel = make_nodes(1)
    submit(kernel, {"held": True, "devices": 1, **HCA}, {"held": True, "devices": 1, **HCA})
    for record in kernel.state.jobs.values():
        record.held, record.blocked, record.phase = False, None, 1
    both = tuple(Start(job, 1, make_allocation([0], [job])) for job in (1, 2))
    notes = Checker(kernel.state).check_plan(Plan(kernel.state.version, both))
    assert notes == ("job 2: its rules about neighbours forbid where it is put",)
