"""Follows the stream of notices from a thread of its own, across losses of the connection and of Redis' memory."""

import threading
from collections.abc import Callable
from typing import Any, Final

from clearway.adapters.redis_live.client import connection_errors
from clearway.adapters.redis_live.keys import Keys
from clearway.adapters.redis_live.rows import parse_notice
from clearway.ports.control import Notice
from clearway.ports.fanout import FanoutError

WAIT_MS: Final = 1_000
"""Redis answers after this time even when there is nothing new; a subscriber that is ended waits no longer."""

BATCH: Final = 500
"""Notices that are taken at once."""

PAUSE_S: Final = 0.5
"""Between tries to reach a Redis that is lost."""

FIRST: Final = "0-0"
"""Before any entry of a stream."""


class Subscriber:
    """One follower. Begins at the end of the stream, as it is when it is made."""

    def __init__(self, client: Any, keys: Keys, take: Callable[[Notice], None]) -> None:
        self._client, self._keys, self._take = client, keys, take
        self._errors = connection_errors()
        self._ending = threading.Event()
        self._place: str | None = None
        self._last: dict[str, int] = {}
        try:
            self._place = self._end_of_stream()
        except self._errors:
            self._place = None  # begins where the stream ends when Redis is there
        self._thread = threading.Thread(target=self._work, name="clearway-redis-subscriber", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; `take` is not called any more when this returns, unless it is what called."""
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        is_connected = self._place is not None
        while not self._ending.is_set():
            try:
                if not is_connected:
                    self._find_place()
                    is_connected = True
                self._read()
            except self._errors:
                is_connected = False
                self._ending.wait(PAUSE_S)

    def _find_place(self) -> None:
        """Where to go on after a loss: a stream that ends before our place was begun anew, and all of it is news."""
        end = self._end_of_stream()
        if self._place is None:
            self._place = end
        elif _order(end) < _order(self._place):
            self._place = FIRST

    def _end_of_stream(self) -> str:
        entries = self._client.xrevrange(self._keys.notices, count=1)
        return entries[0][0].decode() if entries else FIRST

    def _read(self) -> None:
        for _, entries in self._client.xread({self._keys.notices: self._place}, count=BATCH, block=WAIT_MS) or ():
            for place, fields in entries:
                if self._ending.is_set():
                    return
                self._place = place.decode()
                self._give(fields)

    def _give(self, fields: dict[bytes, bytes]) -> None:
        run = fields.get(b"run", b"").decode("utf-8", "replace")
        try:
            notice = parse_notice(fields.get(b"notice", b""))
        except FanoutError:
            return  # another release's: who follows sees that a number is left out
        if notice.seq > self._last.get(run, 0):
            self._last = {run: notice.seq}  # the one before is over
            self._take(notice)


def _order(place: str) -> tuple[int, ...]:
    return tuple(int(part) for part in place.split("-"))
