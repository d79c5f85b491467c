"""A node that offers something else than before: what is free follows, what runs goes on."""

import pytest

from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.errors import InputError
from clearway.model.events import NodeChanged
from support.engine import add_nodes, finish, make_kernel, started_jobs, submit

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


def test_other_devices_than_before_are_refused():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    with pytest.raises(InputError, match="devices and place as before"):
        change(kernel)
