"""The real clock of a control plane."""

import time
from typing import Final, Protocol

_NS_PER_MS: Final = 1_000_000


class Clock(Protocol):
    """Where a driver takes its time from."""

    def now_ms(self) -> int:
        """Unix milliseconds; never less than what it said before."""
        ...


class SystemClock:
    """The machine's clock, which is held when it is set back until the time that was told is reached again.

    after_ms: the latest time that is known from a journal, which nothing may come before.
    """

    def __init__(self, after_ms: int = 0) -> None:
        self._latest_ms = after_ms

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        now_ms = time.time_ns() // _NS_PER_MS
        if now_ms > self._latest_ms:
            self._latest_ms = now_ms
        return self._latest_ms
