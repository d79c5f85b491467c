"""How many calls are on their way at once: as many as the server bears, up to a bound.

Twice as many after each round of answers until it first says to come back, then one more; half as many when it does, as
TCP does with a network. No I/O.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final

from clearway.adapters.kubernetes.errors import UnreachableError

FIRST: Final = 32
"""Calls at once before anything is known of the server."""

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 15.0
"""Pauses between tries double from the one to the other."""


class Pace:
    """Around each call: `async with pace`. Those that wait go in order. most: the bound. One event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(most, FIRST))
        self._count = 0
        self._pardoned = 0
        self._was_refused = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many may be on their way now."""
        return int(self._limit)

    @property
    def is_idle(self) -> bool:
        """Whether none is on its way, and none waits."""
        return not self._count and not self._waiting

    async def __aenter__(self) -> None:
        if not self._waiting and self._count < self.limit:
            self._count += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter  # whoever lets it go on counts it
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._leave()
            raise

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if self._pardoned:
            self._pardoned -= 1
        elif isinstance(error, UnreachableError):
            # The others that are on their way now were sent by the same limit: their refusals say nothing new.
            self._pardoned = self._count - 1
            self._limit, self._was_refused = max(self._limit / 2, 1.0), True
        elif error is None:
            more = 1 / self._limit if self._was_refused else 1.0
            self._limit = min(self._limit + more, float(self._most))
        self._leave()

    def _leave(self) -> None:
        self._count -= 1
        while self._waiting and self._count < self.limit:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._count += 1


async def rest(pause_s: float) -> float:
    """Wait; returns the next, longer pause."""
    await asyncio.sleep(min(pause_s, PAUSE_MAX_S))
    return min(2 * pause_s, PAUSE_MAX_S)
