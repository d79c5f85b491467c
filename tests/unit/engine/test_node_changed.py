"""A node that offers something else than before: what is free follows, what runs goes on."""

from dataclasses import replace

import pytest

from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.errors import InputError
from clearway.model.events import NodeAdded, NodeChanged, NodeDrained
from support.engine import add_nodes, finish, make_kernel, started, started_jobs, submit

GROUPS = (DeviceGroup(model="H100", count=8),)


def change(kernel, **said):
    return kernel.handle(NodeChanged(0, NodeSpec(name="n1", groups=GROUPS, **said)))


def make_full_kernel():
    """One node of 8 CPUs, 6 of them held by job 1; job 2 waits for 4."""
    kernel = make_kernel()
    add_nodes(kernel, 1, 8, cpu_milli=8_000)
    assert started_jobs(submit(kernel, {"devices": 1, "cpu_milli": 6_000})) == [1]
    assert started_jobs(submit(kernel, {"devices": 1, "cpu_milli": 4_000})) == []
    return kernel


def test_job_starts_when_others_give_cpus_back():
    assert started_jobs(change(make_full_kernel(), cpu_milli=10_000)) == [2]


def test_job_waits_while_more_is_held_than_is_left():
    kernel = make_full_kernel()
    assert started_jobs(change(kernel, cpu_milli=3_000)) == []
    assert started_jobs(finish(kernel, 1)) == []
    assert started_jobs(change(kernel, cpu_milli=4_000)) == [2]


def test_job_starts_when_the_node_gets_the_label_that_it_asks_for():
    kernel = make_kernel()
    add_nodes(kernel, 1, 8)
    assert started_jobs(submit(kernel, {"node_labels": (("zone", "a"),)})) == []
    assert started_jobs(change(kernel, labels=(("zone", "a"),))) == [1]


def test_nothing_new_starts_when_the_label_is_gone():
    kernel = make_kernel()
    add_nodes(kernel, 1, 8, labels=(("zone", "a"),))
    change(kernel)
    assert started_jobs(submit(kernel, {"node_labels": (("zone", "a"),)})) == []


@pytest.mark.parametrize(
    "groups",
    [
        (DeviceGroup(model="H100", count=3),),
        (DeviceGroup(model="A100", count=4),),
        (DeviceGroup(model="A100", count=1), DeviceGroup(model="H100", count=4)),
    ],
)
def test_other_devices_than_before_are_refused(groups):
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    with pytest.raises(InputError, match="devices and place as before"):
        kernel.handle(NodeChanged(0, NodeSpec(name="n1", groups=groups)))


def test_only_the_last_node_can_have_more_devices():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    with pytest.raises(InputError, match="devices and place as before"):
        change(kernel)


def test_jobs_start_on_devices_that_came_and_those_that_run_keep_theirs():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 3})
    assert started_jobs(submit(kernel, {"devices": 5}, {"devices": 2, "device_models": ("T4",)})) == []
    groups = (*GROUPS, DeviceGroup(model="T4", count=2, memory_bytes=16))
    commands = kernel.handle(NodeChanged(0, NodeSpec(name="n1", groups=groups)))
    assert [(start.job, start.allocation.devices.tolist()) for start in started(commands)] == [
        (2, [3, 4, 5, 6, 7]),
        (3, [8, 9]),
    ]
    assert kernel.state.device_shares_free().tolist() == [0] * 10


@pytest.mark.parametrize("is_drained", [True, False])
def test_node_that_was_given_devices_is_as_one_that_had_them_from_the_beginning(is_drained):
    kernel, other = make_kernel(), make_kernel()
    whole = NodeSpec(name="n1", groups=(*GROUPS, DeviceGroup(model="T4", count=2, memory_bytes=16)))
    other.handle(NodeAdded(0, whole))
    kernel.handle(NodeAdded(0, NodeSpec(name="n1", groups=(DeviceGroup(model="H100", count=2),))))
    for one in (kernel, other) if is_drained else ():
        one.handle(NodeDrained(0, "n1"))
    kernel.handle(NodeChanged(0, replace(whole, groups=GROUPS)))
    kernel.handle(NodeChanged(0, whole))
    ours, theirs = kernel.state.inventory, other.state.inventory
    for name in ("nodes", "pools", "devices"):
        assert (getattr(ours, name) == getattr(theirs, name)).all(), name
    assert (ours.totals == theirs.totals).all()
    assert (ours.pool_count, ours.device_count, ours.milli) == (theirs.pool_count, theirs.device_count, theirs.milli)
