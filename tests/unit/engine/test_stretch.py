"""Stretches by hand: what they refuse, where they end, and who may be part of them at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.engine.audit import audit_devices
from clearway.engine.endings import Endings
from clearway.engine.settle import Agenda, is_plain, is_plain_policy
from clearway.engine.tables import DEVICE_HEALTHY, DEVICE_OWNER, NODE_CPU_FREE, POOL_FREE
from clearway.kernel import Kernel
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.errors import InternalError
from clearway.model.events import NodeAdded
from clearway.model.jobs import (
    ArrayMember,
    Checkpoint,
    Dependency,
    DependencyKind,
    Elastic,
    Outcome,
)
from clearway.model.units import FOREVER_MS
from clearway.policies.named import POLICY_NAMES, named_policy
from support.engine import add_nodes, finish, make_job, submit
from support.worlds import make_trace_job

KNOWN_ATTRIBUTES = {
    # settled behind a stretch, or by it in the tables
    *("accounts", "by_row", "capacity_grew", "dependencies", "inventory", "jobs", "links", "meta", "now_ms", "order"),
    *("order_shrank", "rows", "running", "version"),
    # asked before one
    *("bounded", "budgeted", "budgets", "caps", "claims", "closed", "fresh", "power_budget_watts", "timers"),
    *("to_stop", "waiting_changed"),
    # changed only by events that end one, or by policies that have none
    *("classes", "forecast_devices", "forecast_until_ms", "history", "link_speeds", "refreshed_ms", "typical"),
}


def kernel_that_knows(**wishes):
    """A kernel with one node of two devices, to which job 1 came and went: it knows the class, queue and tenant."""
    kernel = Kernel(named_policy("fifo"))
    add_nodes(kernel, 1, 2)
    submit(kernel, wishes)
    finish(kernel, 1, at_ms=1)
    return kernel


def stretch(kernel, *jobs, until_ms=FOREVER_MS):
    agenda = Agenda(jobs, np.array([job.run_ms for job in jobs], dtype=np.int64))
    assert kernel.may_stretch
    kernel.handle_stretch(agenda, until_ms, [Outcome.COMPLETED] * len(jobs), ())
    return agenda


def test_stretch_goes_on_until_all_has_ended():
    kernel = kernel_that_knows()
    jobs = [make_trace_job(number, submit_ms=10 * number, run_ms=100) for number in range(2, 12)]
    agenda = stretch(kernel, *jobs)
    assert agenda.next == 10
    assert agenda.starts.shape[1] == agenda.ended.shape[1] == 10
    assert not kernel.state.jobs
    assert kernel.state.dependencies.outcomes[11] is Outcome.COMPLETED


def test_stretch_ends_before_the_moment_that_is_not_its_own():
    kernel = kernel_that_knows()
    agenda = stretch(kernel, make_trace_job(2, submit_ms=10), make_trace_job(3, submit_ms=20), until_ms=20)
    assert (agenda.next, agenda.now_ms, list(kernel.state.jobs)) == (1, 10, [2])


def test_job_of_a_class_that_was_never_seen_is_left_to_its_event():
    kernel = kernel_that_knows()
    agenda = stretch(kernel, make_trace_job(2, submit_ms=10), make_trace_job(3, submit_ms=20, devices=2))
    assert (agenda.next, list(kernel.state.jobs)) == (1, [2])


def test_checker_refuses_a_start_on_a_device_that_failed_though_its_pool_calls_it_free():
    kernel = kernel_that_knows()
    kernel.state.inventory.devices[DEVICE_HEALTHY, 0] = 0
    with pytest.raises(InternalError, match="refused a plan at 10 ms: job 2: a device failed"):
        stretch(kernel, make_trace_job(2, submit_ms=10))


@pytest.mark.parametrize(
    ("table", "column", "fault"),
    [
        (
            "devices",
            DEVICE_OWNER,
            "a device has an owner and is free; a job holds more or fewer devices than",
        ),
        ("pools", POOL_FREE, "a pool counts other devices as free"),
        ("nodes", NODE_CPU_FREE, "a node has given more CPUs or memory than it has"),
    ],
)
def test_books_of_devices_that_disagree_behind_a_stretch_are_told(table, column, fault):
    kernel = kernel_that_knows()
    kernel.handle(NodeAdded(5, NodeSpec(name="other", groups=(DeviceGroup(model="H100", count=2),))))
    assert not audit_devices(kernel.state)
    last = {"devices": 3, "pools": 1, "nodes": 1}[table]
    getattr(kernel.state.inventory, table)[column, last] = 0 if table == "devices" else -1
    with pytest.raises(InternalError, match=f"the books disagree after 10 ms: {fault}"):
        stretch(kernel, make_trace_job(2, submit_ms=10), until_ms=20)


def test_no_stretch_while_a_job_is_held_for_another():
    kernel = kernel_that_knows()
    assert kernel.may_stretch
    submit(kernel, {"dependencies": (Dependency(kind=DependencyKind.AFTER_OK, job=9),)}, at_ms=2)
    assert not kernel.may_stretch


@pytest.mark.parametrize(
    "wishes",
    [
        {"elastic": Elastic(replicas_min=1, replicas_max=2)},
        {"checkpoint": Checkpoint(interval_ms=1_000)},
        {"dependencies": (Dependency(kind=DependencyKind.SINGLETON),)},
        {"array": ArrayMember(array=1, index=0)},
        {"held": True},
        {"not_before_ms": 5},
        {"oracle_ms": 5},
        {"share_milli": 500},
        {"crowds": ("web",)},
        {"liked": "near"},
        {"extras": (("licence", 1),)},
    ],
    ids=lambda wishes: next(iter(wishes)),
)
def test_job_that_asks_for_more_is_not_plain(wishes):
    assert is_plain(make_job(1, devices=1, replicas=4, cpu_milli=500, limit_ms=1_000))
    assert not is_plain(make_job(1, **wishes))


def test_only_policies_in_whose_order_nothing_changes_have_stretches():
    plain = {name for name in POLICY_NAMES if is_plain_policy(named_policy(name))}
    assert plain == {"fifo", "easy", "conservative", "sjf", "deadline"}


def test_everything_that_a_state_keeps_is_known_to_stretches():
    """Who adds an attribute to the state says here what a stretch makes of it."""
    assert set(Kernel(named_policy("fifo")).state.attributes()) == KNOWN_ATTRIBUTES


@given(st.lists(st.none() | st.integers(0, 20), max_size=80))
def test_endings_come_by_time_and_sequence(steps):
    endings, waiting = Endings(), []
    for sequence, at_ms in enumerate(steps):
        if at_ms is not None:
            endings.push(at_ms, sequence, sequence)
            waiting.append((at_ms, sequence))
        elif waiting:
            assert endings.first_ms() == min(waiting)[0]
            assert endings.pop() == min(waiting)[1]
            waiting.remove(min(waiting))
    assert endings.count == len(waiting)
    assert endings.first_ms() == min(waiting, default=(FOREVER_MS, 0))[0]
