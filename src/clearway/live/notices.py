"""News for whoever follows a control plane. Called from the driver's thread; a taker that raises is dropped."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from clearway.live.books import each_part
from clearway.live.memory import Decided
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    Event,
    NodeAdded,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeOpened,
    NodeUp,
)
from clearway.model.ids import ROOT_TENANT
from clearway.ports.control import Notice
from clearway.ports.views import JobView

_LOG = logging.getLogger(__name__)

_NODE_WORDS: Mapping[type, str] = {
    NodeAdded: "added",
    NodeDown: "down",
    NodeUp: "up",
    NodeDrained: "drained",
    NodeClosed: "closed",
    NodeOpened: "opened",
    DeviceDown: "device_down",
    DeviceUp: "device_up",
}


class Notices:
    """Takers of notices, the number of the last one, and what is not told yet: who follows hears of what is on disk."""

    def __init__(self) -> None:
        self._takers: tuple[Callable[[Notice], None], ...] = ()
        self._seq = 0
        self._noted: list[tuple[Event, Decided, int]] = []

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """Have `take` called for each notice; returns what ends it."""
        self._takers = (*self._takers, take)
        return lambda: self._drop(take)

    def _drop(self, take: Callable[[Notice], None]) -> None:
        self._takers = tuple(taker for taker in self._takers if taker is not take)

    def note(self, batch: Event, decided: Decided, now_ms: int) -> None:
        """A batch, and what was decided upon it."""
        if self._takers:
            self._noted.append((batch, decided, now_ms))

    def tell_noted(self) -> None:
        """All that was noted is on disk, or need not be: tell what became of jobs, nodes and devices."""
        noted, self._noted = self._noted, []
        for batch, decided, now_ms in noted:
            self._tell_decided(batch, decided, now_ms)

    def _tell_decided(self, batch: Event, decided: Decided, now_ms: int) -> None:
        for part in each_part(batch):
            self._tell_event(now_ms, part)
        known = dict(decided.before)
        for draft in decided.told:
            for job, book in draft.changed.items():
                old = known.get(job)
                if old is None or (old.view.state, old.view.reason) != (book.view.state, book.view.reason):
                    self._tell_job(now_ms, book.view)
                known[job] = book
        for plan in decided.plans:
            self._tell_plan(now_ms, Counter(type(move).__name__.lower() for move in plan.plan.moves))

    def _tell_job(self, at_ms: int, view: JobView) -> None:
        """A job changed its state."""
        data: dict[str, object] = {
            "id": view.id,
            "name": view.name,
            "user": view.user,
            "queue": view.queue,
            "state": view.state.value,
            "reason": view.reason,
            "nodes": list(view.nodes),
        }
        self._tell(at_ms, "job", view.tenant, data)

    def _tell_event(self, at_ms: int, event: Event) -> None:
        """Something happened to a node or a device; other events are no news."""
        word = _NODE_WORDS.get(type(event))
        if word is None:
            return
        name = event.node.name if isinstance(event, NodeAdded) else getattr(event, "node", "")
        data: dict[str, object] = {"node": name, "change": word, "reason": getattr(event, "reason", "")}
        if isinstance(event, NodeClosed | NodeOpened):
            data["user"] = event.user
        if isinstance(event, DeviceDown | DeviceUp):
            data["device"] = event.device
        self._tell(at_ms, "node", ROOT_TENANT, data)

    def _tell_plan(self, at_ms: int, moves: Mapping[str, int]) -> None:
        """A plan was accepted: how many moves of each kind."""
        self._tell(at_ms, "plan", ROOT_TENANT, dict(moves))

    def _tell(self, at_ms: int, kind: str, tenant: str, data: Mapping[str, object]) -> None:
        self._seq += 1
        notice = Notice(seq=self._seq, at_ms=at_ms, kind=kind, tenant=tenant, data=data)
        for take in self._takers:
            try:
                take(notice)
            except Exception:
                _LOG.exception("a follower of notices failed and is dropped")
                self._drop(take)
