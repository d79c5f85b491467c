"""A journal decided anew: the same plans, or the record at which they differ."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.replay import replay_journal
from clearway.live.takeover import begin_deciding, told_policy
from clearway.model.errors import InputError
from clearway.model.events import Batch, ControlStarted, PlanAccepted
from clearway.policies.named import named_policy
from clearway.policies.orders import Fifo
from clearway.wire.codec import decode_event, encode_event
from support.live import Plane, make_spec


def make_kernel(started):
    return Kernel(named_policy(started.policy), RuntimeHistory())


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
    assert replay_journal(records, make_fifo_kernel).difference is not None


# --- policies that the journal tells ----------------------------------------------------------------------------------


def make_fifo_kernel(_started):
    return Kernel(named_policy("fifo"), RuntimeHistory())


def make_told_kernel(started):
    return Kernel(told_policy(started) or named_policy("fifo"), RuntimeHistory())


def edit(policy):
    """Another policy of the same name, as after an edit of its file: it decides otherwise."""
    return replace(named_policy(policy), name="ours")


def journal_of_an_edited_policy():
    plane = Plane(devices=2, policy=edit("easy")).start()
    plane.submit(make_spec(devices=1), make_spec(1, devices=2), make_spec(2, devices=1, estimate_ms=10))
    plane.do(plane.control.set_policy(edit("clearway")))
    plane.submit(make_spec(devices=2, priority=9))
    plane.policy = edit("fifo")
    plane.start()
    plane.submit(make_spec(), make_spec(1))
    plane.run()
    return list(plane.store.read_journal())


def test_a_policy_that_was_edited_under_its_name_decides_again_as_it_was():
    records = journal_of_an_edited_policy()
    read = [(number, decode_event(encode_event(event))) for number, event in records]
    replayed = replay_journal(read, make_told_kernel)
    assert (replayed.difference, replayed.by_name, replayed.starts) == (None, "", 3)


def without_settings(event):
    """As an older release wrote it."""
    if isinstance(event, Batch):
        return replace(event, events=tuple(without_settings(part) for part in event.events))
    return replace(event, settings="") if isinstance(event, ControlStarted) else event


def test_where_the_journal_holds_a_name_alone_a_difference_says_whose():
    records = [(number, without_settings(event)) for number, event in journal_of_an_edited_policy()]
    replayed = replay_journal(records, make_told_kernel)
    assert replayed.difference is not None
    assert replayed.by_name == "fifo"


def test_a_policy_of_another_release_is_not_taken_for_one_of_ours():
    with pytest.raises(InputError, match=r"policy 'ours' as this release knows policies.*; use the release that wrote"):
        told_policy(ControlStarted(0, "ours", '{"name":"ours","order":"fifo","aura":7}'))


def test_a_policy_that_no_file_can_name_is_told_by_name():
    assert begin_deciding(7, Policy(name="ours", order=Backwards())) == ControlStarted(7, "ours")


class Backwards(Fifo):
    """An order that a program made."""
