"""A journal decided anew: the same plans, or the record at which they differ."""

from dataclasses import replace

from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.replay import replay_journal
from clearway.model.events import PlanAccepted
from clearway.policies.named import named_policy
from support.live import Plane, make_spec


def make_kernel(name):
    return Kernel(named_policy(name), RuntimeHistory())


def journal_of_two_starts():
    plane = Plane(devices=2).start()
    plane.submit(*[make_spec(place) for place in range(5)])
    plane.run(until_ms=1_000)
    plane.start()
    plane.submit(make_spec(devices=2))
    plane.run()
    return list(plane.store.read_journal())


def test_journal_with_a_restart_gives_the_same_plans():
    records = journal_of_two_starts()
    replayed = replay_journal(records, make_kernel)
    assert replayed.difference is None
    assert (replayed.records, replayed.starts) == (len(records), 2)
    assert replayed.plans == sum(isinstance(event, PlanAccepted) for _, event in records) > 2


def test_first_plan_that_differs_is_named_by_its_record():
    records = journal_of_two_starts()
    number = [number for number, event in records if isinstance(event, PlanAccepted)][1]
    at_ms, plan = records[number - 1][1].at_ms, records[number - 1][1].plan
    wrong = replace(plan.moves[0], generation=9)
    records[number - 1] = (number, PlanAccepted(at_ms, replace(plan, moves=(wrong, *plan.moves[1:]))))
    difference = replay_journal(records, make_kernel).difference
    assert difference.record == number
    assert '"generation":9' in difference.expected
    assert '"generation":9' not in difference.found


def test_plan_that_is_missing_is_named_by_the_next_record():
    records = journal_of_two_starts()
    place = next(place for place, (_, event) in enumerate(records) if isinstance(event, PlanAccepted))
    del records[place]
    difference = replay_journal(records, make_kernel).difference
    assert (difference.record, difference.expected) == (records[place][0], "")
    assert difference.found


def test_plan_that_died_with_its_control_plane_is_left_out():
    records = journal_of_two_starts()
    started = next(place for place, (_, event) in enumerate(records) if "ControlStarted" in repr(event) and place)
    last = max(place for place in range(started) if isinstance(records[place][1], PlanAccepted))
    cut = [record for place, record in enumerate(records[: started + 1]) if not last <= place < started]
    assert replay_journal(cut, make_kernel).difference is None


def test_another_policy_decides_otherwise():
    plane = Plane(devices=2).start()
    plane.submit(make_spec(devices=1), make_spec(1, devices=2), make_spec(2, devices=1, estimate_ms=10))
    records = list(plane.store.read_journal())
    assert replay_journal(records, lambda _: make_kernel("fifo")).difference is not None
