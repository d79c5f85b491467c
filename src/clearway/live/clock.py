"""The real clock of a control plane."""

import time
from collections.abc import Callable
from typing import Final, Protocol

_NS_PER_MS: Final = 1_000_000
SLOWED_BY: Final = 2
"""While the machine's clock is behind, time goes on at half its pace: delays take twice as long at most, and it
catches up."""


class Clock(Protocol):
    """Where a driver takes its time from."""

    def now_ms(self) -> int:
        """Unix milliseconds; never less than what it said before."""
        ...

    def begin_after(self, at_ms: int, /) -> None:
        """That much is known from a journal: nothing comes before it."""
        ...


class SystemClock:
    """The machine's clock, which goes on slowly when it was set back, or is behind the journal, until it has caught up.

    wall_ns: Unix time. steady_ns: what nobody sets.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._ahead = (0, steady_ns())  # the latest time at which it was not behind, and when that was

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        wall_ms, steady_ns = self._wall_ns() // _NS_PER_MS, self._steady_ns()
        ahead_ms, ahead_ns = self._ahead
        slow_ms = ahead_ms + (steady_ns - ahead_ns) // (SLOWED_BY * _NS_PER_MS)
        if wall_ms <= slow_ms:
            return slow_ms
        self._ahead = (wall_ms, steady_ns)
        return wall_ms

    def begin_after(self, at_ms: int, /) -> None:
        """See `Clock.begin_after`."""
        if at_ms > self.now_ms():
            self._ahead = (at_ms, self._steady_ns())
