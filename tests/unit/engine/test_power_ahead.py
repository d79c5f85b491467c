"""What is left of a power budget over time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clearway.engine.power_ahead import foresee_watts
from clearway.engine.tables import NONE
from clearway.model.units import FOREVER_MS

TIMES = st.integers(1, 30)
WATTS = st.integers(0, 20)


def make_ahead(left=10, gains=((5, 20), (7, 20), (9, FOREVER_MS))):
    watts, back_ms = (np.array(column) for column in zip(*gains, strict=True))
    return foresee_watts(left, 0, watts, back_ms)


def test_watts_come_back_when_devices_are_given_back():
    ahead = make_ahead()
    assert (ahead.times.tolist(), ahead.left.tolist()) == ([0, 20], [10, 22])
    assert ahead.has(20, 10)
    assert not ahead.has(20, 11)
    assert [ahead.first_time(3, 5, watts) for watts in (10, 11, 22, 23)] == [3, 20, 20, NONE]


def test_what_is_taken_is_there_again_afterwards():
    ahead = make_ahead().without(20, 30, 15)
    assert [ahead.first_time(3, run_ms, 8) for run_ms in (17, 18)] == [3, 30]
    assert ahead.first_time(3, FOREVER_MS, 7) == 3


@given(st.lists(st.tuples(WATTS, TIMES), min_size=1, max_size=5), st.lists(st.tuples(TIMES, TIMES, WATTS), max_size=4),
       TIMES, TIMES, WATTS)  # fmt: skip
def test_the_first_time_is_the_one_that_a_search_moment_by_moment_finds(gains, taken, from_ms, run_ms, watts):
    ahead = make_ahead(10, gains)
    for begin_ms, lasts_ms, needed in taken:
        ahead = ahead.without(begin_ms, begin_ms + lasts_ms, needed)

    def left(at_ms):
        back = sum(gain for gain, back_ms in gains if back_ms <= at_ms)
        return 10 + back - sum(used for begin, lasts, used in taken if begin <= at_ms < begin + lasts)

    fits = [at for at in range(from_ms, 200) if all(left(at + more) >= watts for more in range(run_ms))]
    assert ahead.first_time(from_ms, run_ms, watts) == (fits[0] if fits else NONE)
    assert ahead.has(from_ms, watts) == all(left(at) >= watts for at in range(from_ms))
