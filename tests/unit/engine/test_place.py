"""Devices are taken and given back exactly, and named where they lie close together."""

import numpy as np
import pytest

from clearway.engine.hold import hold_entry, let_go_entry
from clearway.engine.tables import POOL_FREE, POOL_MASK, POOL_SHARED
from clearway.model.events import DeviceDown, DeviceUp, NodeDown, NodeUp
from clearway.model.units import GIB
from support.engine import add_nodes, devices_of, finish, make_kernel, nodes_of, started, started_jobs, submit


def snapshot(kernel):
    """All tables that say what is held, as bytes; links and the like may be in another order."""
    inventory, accounts = kernel.state.inventory, kernel.state.accounts
    tables = (inventory.nodes, inventory.pools, inventory.devices, inventory.totals, accounts.tenants, accounts.queues)
    return [table.tobytes() for table in tables]


@pytest.mark.parametrize(
    ("wishes", "nodes", "devices"),
    [
        ({"devices": 3}, [0], [1, 2, 3]),
        ({"devices": 2, "replicas": 2, "cpu_milli": 500, "memory_bytes": GIB}, [0, 1], [0, 1, 8, 9]),
        ({"share_milli": 400}, [1], [9]),
        ({"share_milli": 500, "device_memory_bytes": GIB, "replicas": 2}, [1, 1], [9, 9]),
        ({"devices": 0, "cpu_milli": 1_000}, [1], []),
        ({"devices": 1, "exclusive": True}, [1], [8]),
    ],
)
def test_letting_go_is_the_inverse_of_holding(wishes, nodes, devices):
    kernel = make_kernel()
    add_nodes(kernel, 2, 8, memory_bytes=80 * GIB)
    submit(kernel, {"held": True, **wishes})
    row = next(iter(kernel.state.by_row))
    at_nodes, at_devices = np.array(nodes, dtype=np.int64), np.array(devices, dtype=np.int64)
    before = snapshot(kernel)
    hold_entry(row, 0, at_nodes, at_devices, kernel.state.door)
    assert snapshot(kernel) != before
    let_go_entry(row, at_nodes, at_devices, kernel.state.door)
    assert snapshot(kernel) == before


def test_a_share_joins_a_device_that_is_shared_already():
    kernel = make_kernel()
    add_nodes(kernel, 2, 2)
    starts = started(submit(kernel, {"share_milli": 400}, {"share_milli": 700}, {"share_milli": 300}, {"devices": 2}))
    assert [devices_of(start) for start in starts] == [[0], [1], [1], [2, 3]]


def test_a_share_needs_its_memory_on_the_same_device():
    kernel = make_kernel()
    add_nodes(kernel, 1, 2, memory_bytes=80 * GIB)
    wishes = {"share_milli": 100, "device_memory_bytes": 50 * GIB}
    assert [devices_of(start) for start in started(submit(kernel, wishes, wishes, wishes))] == [[0], [1]]


def test_a_shared_device_is_whole_again_when_the_last_share_leaves():
    kernel = make_kernel()
    add_nodes(kernel, 1, 1)
    submit(kernel, {"share_milli": 400}, {"share_milli": 400}, {"devices": 1})
    assert started_jobs(finish(kernel, 1)) == []
    assert kernel.state.inventory.pools[POOL_SHARED, 0] == 1
    assert started_jobs(finish(kernel, 2)) == [3]
    assert kernel.state.inventory.pools[POOL_SHARED, 0] == 0


def test_devices_come_from_the_nvlink_group_with_least_to_spare():
    """Groups of four: after one device of the second group is taken, a job of three fits there best."""
    kernel = make_kernel()
    add_nodes(kernel, 1, 8, nvlink_size=4)
    submit(kernel, {"devices": 4}, {"devices": 1})
    finish(kernel, 1)
    assert devices_of(started(submit(kernel, {"devices": 3}))[0]) == [5, 6, 7]


def test_devices_cross_nvlink_groups_when_no_group_has_enough():
    kernel = make_kernel()
    add_nodes(kernel, 1, 8, nvlink_size=4)
    assert devices_of(started(submit(kernel, {"devices": 6}))[0]) == [0, 1, 2, 3, 4, 5]


def test_a_device_that_fails_in_use_does_not_become_free_when_its_job_ends():
    kernel = make_kernel()
    add_nodes(kernel, 1, 2)
    submit(kernel, {"devices": 2}, {"devices": 2})
    kernel.handle(DeviceDown(0, "n1", 1))
    assert started_jobs(finish(kernel, 1)) == []
    assert kernel.state.inventory.pools[POOL_MASK, 0] == 0b01
    assert started_jobs(kernel.handle(DeviceUp(0, "n1", 1))) == [2]


def test_free_devices_of_a_node_that_is_down_are_not_counted():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    kernel.handle(NodeDown(0, "n1"))
    assert kernel.state.inventory.totals[-1] == 4
    assert [nodes_of(start) for start in started(submit(kernel, {"devices": 4}, {"devices": 4}))] == [[1]]
    assert started_jobs(kernel.handle(NodeUp(0, "n1"))) == [2]
    assert kernel.state.inventory.pools[POOL_FREE, :2].tolist() == [0, 0]


def test_cpus_and_memory_of_a_node_bound_what_starts_there():
    kernel = make_kernel()
    add_nodes(kernel, 2, 8, cpu_milli=4_000)
    starts = started(submit(kernel, *[{"devices": 1, "cpu_milli": 3_000}] * 3))
    assert [nodes_of(start) for start in starts] == [[0], [1]]
