"""The real clock."""

import time

from clearway.live.clock import SystemClock

NS = 1_000_000
HOUR = 3_600_000


class Machine:
    """What a machine says, in milliseconds: its wall clock may be set, the other goes on."""

    def __init__(self, wall_ms):
        self.wall_ms = wall_ms
        self.steady_ms = 77

    def pass_ms(self, ms):
        self.wall_ms += ms
        self.steady_ms += ms

    def clock(self):
        return SystemClock(lambda: self.wall_ms * NS, lambda: self.steady_ms * NS)


def test_clock_tells_unix_milliseconds():
    before = time.time_ns() // NS
    assert before <= SystemClock().now_ms() <= time.time_ns() // NS


def test_clock_that_is_set_back_goes_on_at_half_its_pace_until_the_machine_has_caught_up():
    machine = Machine(10 * HOUR)
    clock = machine.clock()
    assert clock.now_ms() == 10 * HOUR
    machine.wall_ms -= 2 * HOUR
    assert clock.now_ms() == 10 * HOUR
    machine.pass_ms(HOUR)
    assert clock.now_ms() == 10 * HOUR + HOUR // 2
    machine.pass_ms(3 * HOUR)
    assert clock.now_ms() == machine.wall_ms == 12 * HOUR
    machine.pass_ms(1)
    assert clock.now_ms() == machine.wall_ms


def test_clock_that_is_set_forth_for_a_moment_does_not_stand_afterwards():
    machine = Machine(10 * HOUR)
    clock = machine.clock()
    machine.wall_ms += 24 * HOUR
    assert clock.now_ms() == 34 * HOUR
    machine.wall_ms -= 24 * HOUR
    machine.pass_ms(10_000)
    assert clock.now_ms() == 34 * HOUR + 5_000


def test_clock_begins_after_what_a_journal_tells_and_goes_on():
    machine = Machine(10 * HOUR)
    clock = machine.clock()
    clock.begin_after(9 * HOUR)
    assert clock.now_ms() == 10 * HOUR
    clock.begin_after(12 * HOUR)
    assert clock.now_ms() == 12 * HOUR
    machine.pass_ms(10_000)
    assert clock.now_ms() == 12 * HOUR + 5_000
