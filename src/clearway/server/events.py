"""Notices of the control plane, fanned out to those who follow them by server-sent events.

The last `KEPT_MAX` notices are kept, so that who was cut off goes on where he was (`Last-Event-ID`). Who cannot follow
as fast as things change, or comes back too late, is told that there is a gap and goes on at the oldest that is kept:
nobody's slowness holds up the control plane or fills the memory.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice, takewhile
from typing import Any, Final

from clearway.model.ids import ROOT_TENANT, TenantName
from clearway.ports.control import Control, Notice
from clearway.server.access import Reach
from clearway.wire.api import EventView

KEPT_MAX: Final = 20_000
BATCH_MAX: Final = 500
"""Notices that one follower is given at a time, before others have their turn."""

SHOWN_OF_ALL: Final[Mapping[str, frozenset[str]]] = {
    "node": frozenset({"node", "change", "device", "reason"}),
    "plan": frozenset(),
}
"""Of notices about the whole cluster, which belong to the root of the tenants, what callers see who do not see all:
kinds, and names of their data."""


class Hub:
    """Takes notices from the control plane's thread and wakes followers in the server's event loop.

    life: tells this control plane's numbers from those of an earlier one, which began at 1 as well.
    """

    def __init__(self, control: Control, life: str) -> None:
        self.life = life
        self._lock = threading.Lock()
        self._kept: deque[Notice] = deque(maxlen=KEPT_MAX)
        self._taken = 0
        self._last_seq = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._followers: set[asyncio.Event] = set()
        self._is_waking = False
        self.is_closed = False
        self._end: Callable[[], None] = control.subscribe(self._take)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wake followers in `loop`."""
        self._loop = loop

    def close(self) -> None:
        """End all followers; in the loop's thread. More than once does no harm."""
        if self.is_closed:
            return
        self.is_closed = True
        self._end()
        self._loop = None
        self._wake_all()

    def close_soon(self) -> None:
        """As `close`, from any thread."""
        loop = self._loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(self.close)

    def join(self) -> asyncio.Event:
        """An event that is set when there is something new; give it back with `leave`."""
        follower = asyncio.Event()
        self._followers.add(follower)
        return follower

    def leave(self, follower: asyncio.Event) -> None:
        """Nobody waits for `follower` any more."""
        self._followers.discard(follower)

    def name_place(self, seq: int) -> str:
        """What a client gives back as `Last-Event-ID` to go on behind notice `seq`."""
        return f"{self.life}.{seq}"

    def position_after(self, last_id: str) -> tuple[int, bool, str]:
        """Where to begin behind what `last_id` names ("" = behind all there are), whether some in between are lost
        (then it is behind all there are as well), and the name of that place."""
        life, _, number = last_id.rpartition(".")
        with self._lock:
            end = self.name_place(self._last_seq)
            if not last_id:
                return self._taken, False, end
            oldest = self._kept[0].seq - 1 if self._kept else self._last_seq
            is_known = life == self.life and number.isascii() and number.isdigit() and len(number) < 19
            if not is_known or not oldest <= int(number) <= self._last_seq:
                return self._taken, True, end
            newer = sum(1 for _ in takewhile(lambda notice: notice.seq > int(number), reversed(self._kept)))
            return self._taken - newer, False, last_id

    def read(self, position: int) -> tuple[int, bool, tuple[Notice, ...]]:
        """Notices from `position` on, at most BATCH_MAX: the position behind them, whether some before them are lost,
        and themselves."""
        with self._lock:
            oldest = self._taken - len(self._kept)
            first = max(position, oldest)
            skip = first - oldest
            notices = tuple(islice(self._kept, skip, skip + BATCH_MAX))
            return first + len(notices), position < oldest, notices

    def _take(self, notice: Notice) -> None:
        """In the control plane's thread."""
        with self._lock:
            self._kept.append(notice)
            self._taken += 1
            self._last_seq = notice.seq
            loop = self._loop
            is_needed = loop is not None and bool(self._followers) and not self._is_waking  # who joins later reads it
            self._is_waking |= is_needed
        if loop is not None and is_needed:
            try:
                loop.call_soon_threadsafe(self._wake_all)
            except RuntimeError:  # the loop was closed between the two lines
                self._loop = None

    def _wake_all(self) -> None:
        with self._lock:
            self._is_waking = False
        for follower in self._followers:
            follower.set()


def show_notice(notice: Notice, reach: Reach, kinds: frozenset[str]) -> EventView | None:
    """The notice as this caller may see it; None = not at all, or of a kind that he did not ask for."""
    if kinds and notice.kind not in kinds:
        return None
    data: Mapping[str, Any] = notice.data
    if not reach.sees(TenantName(notice.tenant)):
        names = SHOWN_OF_ALL.get(notice.kind) if notice.tenant in ("", ROOT_TENANT) else None
        if names is None:
            return None
        data = {name: value for name, value in data.items() if name in names}
    return EventView(seq=notice.seq, at_ms=notice.at_ms, kind=notice.kind, tenant=notice.tenant, data=data)
