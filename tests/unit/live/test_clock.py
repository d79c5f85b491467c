"""The real clock."""

import time

from clearway.live.clock import SystemClock


def test_clock_tells_unix_milliseconds():
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now_ms() <= time.time_ns() // 1_000_000


def test_clock_stands_until_the_machine_reaches_what_it_told():
    ahead = time.time_ns() // 1_000_000 + 3_600_000
    clock = SystemClock(after_ms=ahead)
    assert (clock.now_ms(), clock.now_ms()) == (ahead, ahead)
