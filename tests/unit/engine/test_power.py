"""The power step: devices are capped before jobs wait, and the checker judges caps and draw by itself."""

from dataclasses import replace
from itertools import pairwise

import pytest

from clearway.engine.check import Checker
from clearway.engine.policy import Backfill, Elasticity, Policy
from clearway.model.cluster import NodeSpec
from clearway.model.events import NodeAdded, PowerBudgetSet
from clearway.model.jobs import Elastic
from clearway.model.plan import Cap, Plan, ReasonCode, Resize
from clearway.model.power import CURVE, capped_speed_ppm
from clearway.model.units import HOUR_MS
from clearway.policies.orders import Fifo
from support.engine import EASY, add_nodes, finish, make_kernel, started_jobs, submit

STRICT = Policy(name="strict", order=Fifo(), backfill=Backfill(strict=True, reservation_depth=0))
CONSERVATIVE = replace(EASY, backfill=Backfill(reservation_depth=100))
ELASTIC = Policy(name="elastic", order=Fifo(), elasticity=Elasticity(enabled=True, interval_ms=0))


def make_powered(budget, *, policy=EASY, nodes=2, devices=4, watts=400):
    kernel = make_kernel(policy)
    add_nodes(kernel, nodes, devices, watts_max=watts)
    kernel.handle(PowerBudgetSet(0, budget))
    return kernel


def caps(commands):
    return [(one.node, one.watts) for one in commands if isinstance(one, Cap)]


def reason(kernel, job):
    return kernel.explain(job).reasons[0].code


def test_curve_is_concave_and_ends_at_full_speed():
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(CURVE)]
    assert slopes == sorted(slopes, reverse=True)
    assert CURVE[-1] == (100, 1_000_000)


ON_THE_CURVE = [(0, 1_000_000), (200, 850_000), (220, 890_000), (500, 1_000_000), (100, 425_000)]


@pytest.mark.parametrize(("cap", "ppm"), ON_THE_CURVE)
def test_speed_under_a_cap_is_on_the_curve(cap, ppm):
    assert capped_speed_ppm(400, cap) == ppm


def test_nothing_is_capped_while_the_budget_holds():
    kernel = make_powered(8 * 400)
    assert caps(submit(kernel, {"devices": 4}, {"devices": 4})) == []


def test_a_start_that_takes_more_than_the_budget_caps_what_runs_first():
    kernel = make_powered(2_000)
    first = submit(kernel, {"devices": 4})
    second = submit(kernel, {"devices": 4})
    assert caps(first) == []
    assert caps(second) == [(0, 240), (1, 240)]
    assert [type(one).__name__ for one in second][:2] == ["Cap", "Cap"], "before the start, not after it"


def test_caps_are_lifted_when_watts_come_back():
    kernel = make_powered(2_000)
    submit(kernel, {"devices": 4}, {"devices": 4})
    assert caps(finish(kernel, 1)) == [(0, 0), (1, 0)]


def test_a_job_that_would_break_the_budget_at_the_floor_waits_for_power():
    kernel = make_powered(1_500)
    assert started_jobs(submit(kernel, {"devices": 4}, {"devices": 4})) == [1]
    assert reason(kernel, 2) is ReasonCode.POWER
    assert PowerBudgetSet.__name__ in kernel.explain(2).helped_by
    assert started_jobs(kernel.handle(PowerBudgetSet(0, 1_600))) == [2]


def test_what_waits_for_power_is_passed_only_by_what_ends_before_it_starts():
    kernel = make_powered(1_500)
    assert started_jobs(submit(kernel, *[{"devices": 4, "limit_ms": 1_000}] * 2)) == [1]
    assert started_jobs(submit(kernel, {"devices": 1, "limit_ms": 2_000})) == []
    assert reason(kernel, 3) is ReasonCode.PRIORITY
    assert started_jobs(submit(kernel, {"devices": 1, "limit_ms": 1_000})) == [4]


def test_nothing_passes_what_waits_for_power_under_a_strict_policy():
    kernel = make_powered(1_500, policy=STRICT)
    submit(kernel, {"devices": 4, "limit_ms": 1_000}, {"devices": 4, "limit_ms": 1_000})
    assert started_jobs(submit(kernel, {"devices": 1, "limit_ms": 10})) == []


def test_what_not_even_an_idle_cluster_has_watts_for_holds_nobody_up():
    kernel = make_powered(1_000)
    assert started_jobs(submit(kernel, {"devices": 4, "replicas": 2}, {"devices": 1})) == [2]
    assert "idle cluster" in kernel.explain(1).reasons[0].message


def test_a_job_without_devices_needs_no_watts():
    kernel = make_powered(0)
    assert started_jobs(submit(kernel, {"devices": 0})) == [1]


def test_devices_of_unknown_watts_are_neither_counted_nor_capped():
    kernel = make_powered(1, watts=0)
    commands = submit(kernel, {"devices": 4})
    assert (started_jobs(commands), caps(commands)) == ([1], [])


def test_a_lower_budget_stops_nothing_and_lets_nothing_start():
    kernel = make_powered(3_200)
    submit(kernel, {"devices": 4})
    assert caps(kernel.handle(PowerBudgetSet(0, 100))) == [(0, 200)]
    assert started_jobs(submit(kernel, {"devices": 1})) == []
    assert reason(kernel, 2) is ReasonCode.POWER


def test_lifting_the_budget_lifts_the_caps():
    kernel = make_powered(2_000)
    submit(kernel, {"devices": 4}, {"devices": 4})
    assert caps(kernel.handle(PowerBudgetSet(0, None))) == [(0, 0), (1, 0)]


def test_elastic_jobs_do_not_grow_beyond_the_watts():
    kernel = make_powered(1_000, policy=ELASTIC)
    elastic = Elastic(replicas_min=1, replicas_max=8)
    commands = submit(kernel, {"elastic": elastic, "replicas": 2})
    commands += kernel.handle(PowerBudgetSet(1, 1_000))
    assert [one for one in commands if isinstance(one, Resize)] == []


def notes(kernel, *moves):
    return "; ".join(Checker(kernel.state).check_plan(Plan(kernel.state.version, moves)))


def test_checker_refuses_a_cap_below_the_floor():
    assert "below the floor of 200 W" in notes(make_powered(3_200), Cap(0, 199))
    assert notes(make_powered(3_200), Cap(0, 200)) == ""


def test_checker_refuses_caps_that_take_the_draw_past_the_budget():
    kernel = make_powered(2_000)
    submit(kernel, {"devices": 4}, {"devices": 4})
    assert "would draw 2400 W, of at most 2000 W" in notes(kernel, Cap(0, 0), Cap(1, 200))
    assert notes(kernel, Cap(0, 210)) == ""


def test_checker_refuses_a_start_past_the_budget():
    unlimited = make_powered(None)
    start = next(move for move in submit(unlimited, {"devices": 4}))
    kernel = make_powered(1_000, policy=STRICT)
    submit(kernel, {"devices": 4, "replicas": 2}, {"devices": 4})
    assert "of at most 1000 W" in notes(kernel, type(start)(2, 1, start.allocation))


def test_each_reservation_begins_when_its_watts_are_there_too():
    """Six devices may be used. Job 3 could have four of node 2 after one hour, but watts for them only when job 1 ends;
    job 4 could have them then, but for the watts of job 3."""
    kernel = make_powered(8 * 60 + 6 * 140, policy=CONSERVATIVE)
    wishes = [(4, 2), (1, 1), (4, 1), (4, 1)]
    commands = submit(kernel, *[{"devices": devices, "limit_ms": run * HOUR_MS} for devices, run in wishes])
    assert started_jobs(commands) == [1, 2]
    assert [kernel.explain(job).start_ms for job in (3, 4)] == [2 * HOUR_MS, 3 * HOUR_MS]
    assert ReasonCode.POWER in [one.code for one in kernel.explain(3).reasons]


def test_what_ends_before_the_watts_of_a_reservation_are_needed_passes():
    """Job 4 outlasts the end of job 1, with which job 3 is to have its watts; job 5 does not."""
    kernel = make_powered(8 * 60 + 6 * 140, policy=CONSERVATIVE)
    wishes = [(4, 1, 2), (1, 1, 1), (3, 2, 1), (1, 1, 9), (1, 1, 2)]
    jobs = [{"devices": devices, "replicas": replicas, "limit_ms": run * HOUR_MS} for devices, replicas, run in wishes]
    assert started_jobs(submit(kernel, *jobs)) == [1, 2, 5]
    assert kernel.explain(3).start_ms == 2 * HOUR_MS


def test_without_a_budget_a_reservation_begins_as_soon_as_its_devices_are_there():
    kernel = make_powered(8 * 60 + 6 * 140, policy=CONSERVATIVE)
    submit(kernel, *[{"devices": devices, "limit_ms": run * HOUR_MS} for devices, run in [(4, 2), (1, 1), (4, 1)]])
    kernel.handle(PowerBudgetSet(0, None))
    assert kernel.explain(3).start_ms == HOUR_MS


def test_a_reservation_on_a_node_without_devices_needs_no_watts():
    kernel = make_powered(2_000)
    kernel.handle(NodeAdded(0, NodeSpec(name="n3", groups=(), cpu_milli=8_000)))
    alone = {"devices": 0, "cpu_milli": 8_000, "nodes": ("n3",), "limit_ms": 1_000}
    assert started_jobs(submit(kernel, alone, alone, {"devices": 1, "limit_ms": 9_000})) == [1, 3]
