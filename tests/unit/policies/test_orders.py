"""Sort keys by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.engine.policy import JobsView
from clearway.model.jobs import JobKind
from clearway.model.units import DAY_MS, FOREVER_MS, HOUR_MS, MINUTE_MS
from clearway.policies import orders
from clearway.policies.orders import RuntimeKnowledge


def make_view(count=1, *, now_ms=0, cluster_milli=8_000, history=(), **columns):
    """A view of `count` equal jobs except for the given columns."""
    defaults = {
        "submit_ms": 0,
        "priority": 0,
        "queue_priority": 0,
        "replicas": 1,
        "milli": 1_000,
        "planned_ms": HOUR_MS,
        "attained_device_ms": 0,
        "oracle_ms": -1,
        "deadline_ms": FOREVER_MS,
        "tenant_rank": 0,
        "kind": orders.KIND_NUMBERS[JobKind.TRAIN],
    }
    unknown = set(columns) - set(defaults) - {"remaining_ms", "tenant_factor", "qos_factor"}
    assert not unknown
    filled = {name: np.broadcast_to(np.array(columns.get(name, value)), count) for name, value in defaults.items()}
    return JobsView(
        now_ms=now_ms,
        cluster_milli=cluster_milli,
        **filled,
        remaining_ms=np.broadcast_to(np.array(columns.get("remaining_ms", filled["planned_ms"])), count),
        tenant_factor=np.broadcast_to(np.array(columns.get("tenant_factor", 1.0)), count),
        qos_factor=np.broadcast_to(np.array(columns.get("qos_factor", 0.0)), count),
        history_device_ms=np.array(history, dtype=np.float64),
    )


def test_fifo_leaves_all_to_the_submit_time_that_breaks_ties():
    assert orders.Fifo().by_arrival
    assert orders.Fifo().keys(make_view(2, submit_ms=[7, 5])).tolist() == [0, 0]


def test_shortest_takes_planned_time_and_srpt_what_is_left_of_it():
    view = make_view(2, planned_ms=[100, 90], remaining_ms=[20, 90])
    assert orders.Shortest().keys(view).tolist() == [100, 90]
    assert orders.Shortest(remaining=True).keys(view).tolist() == [20, 90]


def test_shortest_by_oracle_takes_truth_less_what_is_saved():
    view = make_view(2, planned_ms=[100, 90], remaining_ms=[60, 90], oracle_ms=[70, -1])
    assert orders.Shortest(by=RuntimeKnowledge.ORACLE).keys(view).tolist() == [70, 90]
    assert orders.Shortest(by=RuntimeKnowledge.ORACLE, remaining=True).keys(view).tolist() == [30, 90]


def test_shortest_area_counts_devices():
    view = make_view(2, planned_ms=[100, 300], milli=[8_000, 500])
    assert orders.Shortest(weigh_by_devices=True).keys(view).tolist() == [800, 150]


def test_multifactor_adds_weighted_factors():
    view = make_view(
        now_ms=DAY_MS, milli=2_000, tenant_factor=0.5, queue_priority=50, priority=-20, submit_ms=DAY_MS - 12 * HOUR_MS
    )
    order = orders.Multifactor(age=100, age_max_ms=DAY_MS, size=8, fair_share=30, queue=10, job=5)
    assert order.keys(view).tolist() == [-(50 + 2 + 15 + 5 - 1)]
    assert not order.by_priority


def test_multifactor_weighs_the_qos():
    view = make_view(3, tenant_factor=0.0, qos_factor=[1.0, 0.25, 0.0], milli=0)
    assert orders.Multifactor(qos=40).keys(view).tolist() == [-40, -10, 0]


def test_multifactor_age_stops_at_its_maximum_and_size_can_favor_small():
    view = make_view(2, now_ms=30 * DAY_MS, milli=[2_000, 16_000], tenant_factor=0.0)
    order = orders.Multifactor(age=100, size=8, favor_small=True)
    assert order.keys(view).tolist() == [-106, -100]


def test_least_attained_discretises_device_time():
    order = orders.LeastAttained(levels_device_ms=(100, 200))
    view = make_view(5, attained_device_ms=[0, 99, 100, 199, 5_000])
    assert order.keys(view).tolist() == [0, 0, 1, 1, 2]
    assert order.refresh_ms == 300_000  # running jobs fall by a level while others wait


def test_least_attained_promotes_job_that_waited_long_for_its_run_time():
    order = orders.LeastAttained(levels_device_ms=(100,), promote_after=2.0)
    # 400 device-ms on two devices are 200 ms of run time; it waited 399 or 400.
    view = make_view(2, now_ms=600, submit_ms=[1, 0], attained_device_ms=400, milli=2_000)
    assert order.keys(view).tolist() == [1, 0]
    assert order.refresh_ms == 5 * MINUTE_MS


def test_gittins_is_least_attained_before_it_knows_enough():
    view = make_view(2, attained_device_ms=[0, DAY_MS], history=[1.0] * 49)
    assert orders.Gittins().keys(view).tolist() == [0, 3]


def test_gittins_prefers_job_past_the_long_gap():
    # Half of all jobs take 1 quantum, half 10: investing 1 finishes one half, then 9 more are needed for the rest.
    quantum = 100
    order = orders.Gittins(quantum_device_ms=quantum, history_min=1)
    history = [100.0, 1_000.0] * 10
    view = make_view(4, attained_device_ms=[0, 100, 950, 1_200], history=history)
    fresh, started, nearly, beyond = order.keys(view)
    # Fresh: horizon of one quantum costs 100 per job and finishes half of them.
    assert fresh == 200
    # After one quantum only long jobs are left; the first grid step at or past 1,000 finishes them.
    assert started == 900
    assert nearly == pytest.approx(1_000 - quantum * 1.25**10)
    assert nearly < fresh < started
    assert beyond == np.inf


def test_gittins_looks_at_recent_jobs_only():
    order = orders.Gittins(quantum_device_ms=100, history_min=1, history_max=2)
    assert order.keys(make_view(history=[1_000.0] * 50 + [100.0, 100.0])).tolist() == [100]


def test_earliest_deadline_puts_jobs_without_one_last():
    assert orders.EarliestDeadline().keys(make_view(2, deadline_ms=[FOREVER_MS, 9])).tolist() == [FOREVER_MS, 9]


def test_bounded_slowdown_defers_by_root_of_remaining_work():
    order = orders.BoundedSlowdown(patience_ms=100)
    view = make_view(
        3, submit_ms=5, planned_ms=HOUR_MS, remaining_ms=[HOUR_MS, HOUR_MS // 4, HOUR_MS], milli=[1_000, 1_000, 9_000]
    )
    assert order.keys(view).tolist() == [105, 55, 305]


def test_bounded_slowdown_never_defers_beyond_its_bound():
    order = orders.BoundedSlowdown(defer_max_ms=1_000)
    assert order.keys(make_view(planned_ms=FOREVER_MS)).tolist() == [1_000]


def test_bounded_slowdown_sets_back_tenants_that_used_more():
    order = orders.BoundedSlowdown(patience_ms=0, share_ms=100)
    assert order.keys(make_view(3, tenant_factor=[1.0, 0.5, 0.0])).tolist() == [0, 50, 100]


def test_bounded_slowdown_makes_waiting_people_and_requests_due_ahead():
    order = orders.BoundedSlowdown(patience_ms=10, ahead_ms=1_000)
    kinds = [JobKind.TRAIN, JobKind.FINETUNE, JobKind.TASK, JobKind.SERVICE, JobKind.INTERACTIVE]
    view = make_view(5, kind=[orders.KIND_NUMBERS[kind] for kind in kinds])
    assert order.keys(view).tolist() == [10, 10, -990, -1_000, -1_000]


def test_bounded_slowdown_is_in_time_for_a_deadline():
    order = orders.BoundedSlowdown(deadline_margin=0.5)
    assert order.keys(make_view(planned_ms=100, deadline_ms=300)).tolist() == [150]


@given(st.integers(0, FOREVER_MS), st.integers(1, 10**6), st.integers(0, 10**12))
def test_bounded_slowdown_lets_nothing_pass_that_comes_a_bound_later(planned_ms, milli, submit_ms):
    order = orders.BoundedSlowdown()
    later_ms = submit_ms + order.defer_max_ms + order.share_ms
    first, second = order.keys(
        make_view(2, submit_ms=[submit_ms, later_ms], planned_ms=[planned_ms, 0], milli=milli, tenant_factor=[0.0, 1.0])
    )
    assert first <= second


ALL_ORDERS = [
    orders.Fifo(),
    orders.Shortest(remaining=True, weigh_by_devices=True),
    orders.Multifactor(),
    orders.LeastAttained(promote_after=1.0),
    orders.Gittins(history_min=1),
    orders.EarliestDeadline(),
    orders.BoundedSlowdown(),
]


@pytest.mark.parametrize("order", ALL_ORDERS, ids=lambda order: type(order).__name__)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 64_000)), min_size=1))
def test_key_of_a_job_does_not_depend_on_its_company(order, jobs):
    submit, run, milli = (np.array(column) for column in zip(*jobs, strict=True))
    history = [1e6, 2e7, 3e8]
    common = {"now_ms": 10**9, "history": history}
    whole = order.keys(
        make_view(len(jobs), submit_ms=submit, planned_ms=run, attained_device_ms=run, milli=milli, **common)
    )
    last = order.keys(
        make_view(submit_ms=submit[-1], planned_ms=run[-1], attained_device_ms=run[-1], milli=milli[-1], **common)
    )
    assert whole.dtype == np.float64
    assert whole.shape == (len(jobs),)
    assert whole[-1] == last[0]
    assert not np.isnan(whole).any()
