"""When a keeper is asked for a sign of life, and when it counts as silent."""

from clearway.adapters.local.pulse import SILENT_LOOKS, Pulse


def test_keeper_is_asked_once_a_look_however_often_it_answers():
    pulse = Pulse()
    asked = 0
    for _ in range(3):
        assert pulse.look()
        for _ in range(100):
            asked += pulse.ask()
            pulse.hear(is_answer=True)
    assert asked == 3
    assert not pulse.take_turn()


def test_keeper_that_owes_its_answer_is_not_asked_again_and_falls_silent():
    pulse = Pulse()
    pulse.look()
    assert pulse.ask()
    assert [pulse.look() for _ in range(SILENT_LOOKS)] == [False] * (SILENT_LOOKS - 1) + [True]
    assert not pulse.ask()
    assert pulse.take_turn()
    assert pulse.is_silent
    pulse.hear(is_answer=True)
    assert pulse.take_turn()
    assert not pulse.is_silent
