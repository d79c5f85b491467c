"""Explanations: each kind of reason, blockers with a bound, planned starts, fixes; and nothing waits without one."""

import pytest

from clearway.engine.explain import check_reasons
from clearway.engine.explain_room import BLOCKERS_MAX
from clearway.engine.policy import Backfill, Policy, Preemption, PreemptMode
from clearway.engine.reasons import REASONS
from clearway.engine.tables import JOB_REASON
from clearway.model.cluster import QueueSpec, Quota, TenantSpec
from clearway.model.errors import InputError
from clearway.model.events import DeviceDown, JobFinished, NodeDown, NodeDrained, QueueSet, TenantSet
from clearway.model.jobs import ArrayMember, Dependency, DependencyKind, Outcome
from clearway.model.plan import ReasonCode
from clearway.model.units import GIB, HOUR_MS, MINUTE_MS
from clearway.policies.orders import Fifo
from support.engine import EASY, add_nodes, make_kernel, submit


def codes(kernel, job):
    return [reason.code for reason in kernel.explain(job).reasons]


def test_a_job_that_runs_has_nothing_to_explain():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    submit(kernel, {})
    assert kernel.explain(1).reasons == ()


def test_an_unknown_job_is_an_error_that_says_what_to_do():
    with pytest.raises(InputError, match="job 7: expected a job that waits or runs"):
        make_kernel().explain(7)


def test_every_message_begins_with_the_token_of_its_reason():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 2, 4)
    submit(kernel, *[{"devices": 3, "estimate_ms": HOUR_MS}] * 6, {"devices": 9}, {"held": True, "devices": 4})
    for job in range(3, 9):
        for reason in kernel.explain(job).reasons:
            assert reason.message.startswith(f"{reason.code.value}: ")


def test_totals_and_fragmentation_are_told_apart():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    submit(kernel, {"devices": 2}, {"devices": 3})
    submit(kernel, {"devices": 3}, {"devices": 4})
    assert codes(kernel, 3)[0] is ReasonCode.FRAGMENTATION
    assert codes(kernel, 4)[0] is ReasonCode.RESOURCES


def test_all_reasons_are_told_not_only_the_first():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4}, {"devices": 4, "held": True, "not_before_ms": HOUR_MS})
    assert codes(kernel, 2) == [ReasonCode.HELD, ReasonCode.BEGIN_TIME, ReasonCode.RESOURCES]


def test_what_can_never_come_is_told_with_what_to_do_and_not_waited_for():
    def after(job):
        return {"dependencies": (Dependency(kind=DependencyKind.AFTER_OK, job=job),)}

    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    tasks = [{**after(1), "array": ArrayMember(array=2, index=index)} for index in range(2)]
    submit(kernel, {}, *tasks, after(3), after(2))
    kernel.handle(JobFinished(0, 1, 1, Outcome.FAILED))
    for job, text, number in (
        (2, "job 1 ended FAILED, so afterok can never be satisfied", 1),
        (4, "job 3 can never start, so afterok can never be satisfied", 3),
        (5, "tasks of array 2 can never start, so afterok can never be satisfied", 2),
    ):
        found = kernel.explain(job)
        (reason,) = found.reasons
        assert reason.message == f"DependencyNeverSatisfied: {text}"
        assert (found.blockers, found.fix) == ((), f"submit it again without the dependency on job {number}")


def test_over_a_quota_that_was_lowered_it_says_how_many_devices_must_come_back():
    def allow(devices):
        quota = Quota(guaranteed_milli=devices * 1_000, borrow_max_milli=0)
        return TenantSet(0, TenantSpec(name="lab", quota=quota))

    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    kernel.handle(allow(6))
    submit(kernel, *[{"tenant": "lab"}] * 6)
    kernel.handle(allow(1))
    submit(kernel, {"tenant": "lab"})
    (reason,) = kernel.explain(7).reasons
    assert (
        reason.message == "AssocGrpGRES: quota of tenant lab: 6 held of 1, borrows 5 of at most 0; it asks for 1 more"
    )
    assert reason.needed_milli - reason.available_milli == 6_000
    assert len(reason.blockers) == 6


def test_over_the_limit_of_a_queue_that_was_lowered_it_says_how_many_devices_must_come_back():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    submit(kernel, *[{"queue": "night"}] * 6)
    kernel.handle(QueueSet(0, QueueSpec(name="night", devices_max_milli=1_000)))
    submit(kernel, {"queue": "night"})
    (reason,) = kernel.explain(7).reasons
    assert reason.needed_milli - reason.available_milli == 6_000


def test_needs_are_counted_in_thousandths():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 3}, {"devices": 2})
    reason = kernel.explain(2).reasons[0]
    assert (reason.needed_milli, reason.available_milli) == (2_000, 1_000)


def test_blockers_are_those_that_end_first_and_bounded():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 3, 8)
    submit(kernel, *[{"estimate_ms": hours * HOUR_MS} for hours in range(24, 0, -1)])
    submit(kernel, {"devices": 8})
    assert kernel.explain(25).reasons[0].blockers == tuple(range(24, 24 - BLOCKERS_MAX, -1))


def test_what_is_expected_counts_from_the_moment_of_the_question_and_the_engine_stays_where_it_is():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4, "estimate_ms": HOUR_MS}, {"devices": 4})
    assert "job 1 in 1 h" in kernel.explain(2).reasons[0].message
    assert "job 1 in 15 min" in kernel.explain(2, HOUR_MS * 3 // 4).reasons[0].message
    assert "was expected to end before now" in kernel.explain(2, 2 * HOUR_MS).reasons[0].message
    assert kernel.state.now_ms == 0


def test_the_planned_start_is_that_of_the_reservation():
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4, "estimate_ms": HOUR_MS}, {"devices": 4}, {"devices": 4})
    assert kernel.explain(2).start_ms == HOUR_MS
    assert kernel.explain(3).start_ms is None


@pytest.mark.parametrize("event", [NodeDown(0, "n2"), NodeDrained(0, "n2"), DeviceDown(0, "n2", 3)])
def test_what_is_down_is_the_reason_where_it_would_do(event):
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    kernel.handle(event)
    submit(kernel, {"devices": 4, "replicas": 2})
    assert codes(kernel, 1) == [ReasonCode.NODES_DOWN]
    assert "NodeUp" in kernel.explain(1).helped_by


def test_what_never_fits_is_told_even_when_everything_is_down():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    kernel.handle(NodeDown(0, "n1"))
    submit(kernel, {"devices": 5})
    assert codes(kernel, 1) == [ReasonCode.NEVER_FITS]


@pytest.mark.parametrize(
    ("wishes", "fix"),
    [
        ({"devices": 4}, "as 2 replicas of 2 devices instead of 4 devices it could start now"),
        ({"devices": 2, "replicas": 3}, "with 2 replicas instead of 3 it could start now"),
        ({"devices": 3}, "as 3 replicas of 1 device instead of 3 devices it could start now"),
        ({"devices": 5}, "with at most 2 devices instead of 5 it could start now"),
        ({"devices": 2, "exclusive": True}, "beside other jobs it could start now"),
        ({"device_models": ("A100",)}, "cancel it and ask for what the cluster has"),
        ({"device_memory_bytes": 90 * GIB}, "cancel it and ask for what the cluster has"),
    ],
)
def test_the_cheapest_fix(wishes, fix):
    """Two devices are free on each of two nodes."""
    kernel = make_kernel()
    add_nodes(kernel, 2, 8, memory_bytes=80 * GIB)
    submit(kernel, {"devices": 6}, {"devices": 6})
    submit(kernel, wishes)
    assert kernel.explain(3).fix == fix


def test_a_smaller_request_is_not_proposed_where_something_else_holds_the_job_too():
    """Two devices are free, for which a job ahead of it is reserved within the hour."""
    kernel = make_kernel(EASY)
    add_nodes(kernel, 1, 8)
    submit(kernel, {"devices": 6, "estimate_ms": HOUR_MS}, {"devices": 8, "estimate_ms": HOUR_MS})
    submit(kernel, {"devices": 4, "estimate_ms": 2 * HOUR_MS}, {"devices": 4, "estimate_ms": HOUR_MS // 2})
    long, short = kernel.explain(3), kernel.explain(4)
    assert long.fix == ""
    assert "nor would it start if it asked for less (Reservation: " in long.reasons[0].message
    assert short.fix == "with at most 2 devices instead of 4 it could start now"
    submit(kernel, {"devices": 2, "estimate_ms": 2 * HOUR_MS}, {"devices": 2, "estimate_ms": HOUR_MS // 2})
    assert kernel.explain(5).reasons
    assert kernel.explain(6).reasons == ()


def test_a_held_job_is_not_told_to_ask_for_less():
    kernel = make_kernel()
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 2}, {"devices": 4, "held": True})
    assert kernel.explain(2).fix == "release job 2"


def test_a_job_without_devices_waits_for_cpus():
    kernel = make_kernel()
    add_nodes(kernel, 1, 1, cpu_milli=2_000)
    submit(kernel, {"devices": 0, "cpu_milli": 2_000}, {"devices": 0, "cpu_milli": 1_000})
    assert codes(kernel, 2) == [ReasonCode.RESOURCES]
    assert "needs 1 CPU for each replica" in kernel.explain(2).reasons[0].message


URGENT_FIRST = Policy(
    name="urgent-first",
    order=Fifo(),
    backfill=Backfill(reservation_depth=1),
    preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=10 * MINUTE_MS),
)


def test_who_would_be_preempted_and_is_protected_yet_is_told_with_the_time_left():
    kernel = make_kernel(URGENT_FIRST)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 1}, {"devices": 1})
    submit(kernel, {"devices": 2, "priority": 9}, at_ms=2 * MINUTE_MS)
    submit(kernel, {"devices": 1, "priority": 5}, at_ms=4 * MINUTE_MS)
    (reason,) = kernel.explain(4).reasons[1:]
    assert reason.message == (
        "Resources: job 1 would be preempted for it, but not before 6 min from now: "
        "a job that has started is left alone for 10 min"
    )
    assert (reason.blockers, reason.helped_by) == ((1,), ("TimerFired",))


def test_protection_is_no_reason_where_nobody_would_be_preempted_anyway():
    kernel = make_kernel(URGENT_FIRST)
    add_nodes(kernel, 1, 4)
    submit(kernel, {"devices": 4, "priority": 9})
    submit(kernel, {"devices": 1})
    assert all("left alone" not in reason.message for reason in kernel.explain(2).reasons)


def test_an_empty_cluster_never_fits_anything():
    kernel = make_kernel()
    submit(kernel, {"devices": 1}, {"devices": 0, "cpu_milli": 1}, {"share_milli": 500})
    assert [codes(kernel, job)[0] for job in (1, 2, 3)] == [ReasonCode.NEVER_FITS] * 3


def test_a_job_without_a_reason_is_noted():
    """The table says that it may start, nothing is ahead of it, and devices are free: nobody can say why it waits."""
    kernel = make_kernel()
    submit(kernel, {"devices": 1})
    add_nodes(kernel, 1, 4)
    assert check_reasons(kernel.state) == ()
    submit(kernel, {"devices": 4})
    state = kernel.state
    assert check_reasons(state) == ()
    state.inventory.devices[1, :4], state.inventory.devices[3, :4] = 1_000, -1
    state.rows.table[JOB_REASON, state.jobs[2].row] = REASONS.index(ReasonCode.PRIORITY)
    assert check_reasons(state) == ("job 2 waits without a reason",)
