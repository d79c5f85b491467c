"""How many calls are on their way at once: as many as the server bears, up to a bound.

One more for each round of answers, half as many when it says to come back, as TCP does with a network. No I/O.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final

from clearway.adapters.kubernetes.errors import UnreachableError

FIRST: Final = 16
"""Calls at once before anything is known of the server: enough for one that answers in a few milliseconds."""


class Pace:
    """Around each call: `async with pace`. Those that wait go in order. most: the bound. One event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(most, FIRST))
        self._count = 0
        self._pardoned = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many may be on their way now."""
        return int(self._limit)

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
            self._limit = max(self._limit / 2, 1.0)
        elif error is None:
            self._limit = min(self._limit + 1 / self._limit, float(self._most))
        self._leave()

    def _leave(self) -> None:
        self._count -= 1
        while self._waiting and self._count < self.limit:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._count += 1
