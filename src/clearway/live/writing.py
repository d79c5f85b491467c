"""Writing what a turn changed: once, and after a failure not before a while, which grows."""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from clearway.live.settings import ControlSettings
from clearway.model.events import Batch, Event, NodeAdded, NodeChanged
from clearway.ports.storage import Changes, StorageError, Store, TooLongError
from clearway.wire.codec import Texts

RECORD_CHARACTERS_MAX: Final = 2_000_000
"""Of reports in one record, and of patient requests beside them. What is decided must be written whole, and a store
takes a record of 16 MiB at least: four bytes for each of twice as many characters."""

REPORT_CHARACTERS: Final = 500
"""More than a report has that is not about what a node offers."""

_LOG = logging.getLogger(__name__)


class Writer:
    """seq: number of the journal's last record. error: why the storage takes nothing now; None = it does. retry_at_ms:
    when it is tried again."""

    def __init__(self, store: Store, settings: ControlSettings) -> None:
        self._store = store
        self._settings = settings
        self._wait_ms = settings.retry_ms
        self.seq = 0
        self.error: StorageError | None = None
        self.retry_at_ms = 0

    def append(self, changes: Changes, now_ms: int, *, can_refuse: bool = False) -> bool:
        """Write; whether it was kept. can_refuse: raise TooLongError for what can never be written."""
        try:
            self.seq = self._store.append(changes)
        except StorageError as error:
            if can_refuse and isinstance(error, TooLongError):
                raise
            if self.error is None:
                _LOG.error("requests are refused until what happens can be written: %s", error)
            self.error = error
            self.retry_at_ms = now_ms + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, self._settings.retry_max_ms)
            return False
        if self.error is not None:
            _LOG.warning("the storage takes what happens again")
        self.error = None
        self._wait_ms = self._settings.retry_ms
        return True


def make_batch(events: Sequence[Event], now_ms: int) -> Event:
    """One event by itself, several of one moment together."""
    return events[0] if len(events) == 1 and events[0].at_ms == now_ms else Batch(now_ms, tuple(events))


def are_long(events: Iterable[Event]) -> bool:
    """Whether these may be too long for one record, with what else comes in a turn."""
    texts, size = Texts(), 0
    for event in events:
        size += len(texts.event(event))
        if size > RECORD_CHARACTERS_MAX:
            return True
    return False


def cut_reports(reports: Sequence[Event]) -> list[list[Event]]:
    """The reports in as few parts as records can hold, in order; none for none."""
    parts: list[list[Event]] = []
    size = RECORD_CHARACTERS_MAX
    for event in reports:
        length = _bound_length(event)
        if size + length > RECORD_CHARACTERS_MAX:
            parts.append([])
            size = 0
        parts[-1].append(event)
        size += length
    return parts


def _bound_length(report: Event) -> int:
    """Not less than the characters of its record. A node is told with a label for each thing that pods ask of it."""
    if not isinstance(report, NodeAdded | NodeChanged):
        return REPORT_CHARACTERS + len(getattr(report, "reason", ""))
    pairs = (*report.node.labels, *report.node.crowds, *report.node.extras)
    return 2 * REPORT_CHARACTERS + sum(len(name) + len(str(value)) + len('["",""],') for name, value in pairs)
