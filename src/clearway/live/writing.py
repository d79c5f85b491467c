"""Writing what a turn changed: once, and after a failure not before a while, which grows."""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from clearway.live.settings import ControlSettings
from clearway.model.events import (
    Batch,
    CheckpointSaved,
    Event,
    JobFinished,
    JobPreparing,
    JobResized,
    JobStarted,
    JobSuspended,
    NodeAdded,
    NodeChanged,
    TimerFired,
)
from clearway.ports.storage import Changes, StorageError, Store, TooLongError
from clearway.wire.codec import Texts

RECORD_CHARACTERS_MAX: Final = 2_000_000
"""Of reports in one record, and of patient requests beside them. What is decided must be written whole, and a store
takes a record of 16 MiB at least: four bytes for each of twice as many characters."""

REPORT_CHARACTERS: Final = 500
"""More than a report of numbers has. No report counts for less, and one about what a node offers counts twice as much
at least: what is decided upon them is written whole as well."""

OF_NUMBERS: Final = (
    CheckpointSaved,
    JobFinished,
    JobPreparing,
    JobResized,
    JobStarted,
    JobSuspended,
    TimerFired,
)
"""Reports that hold no text and no list, so that none of them is long. They come by thousands."""

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
    """The reports in as few parts as records can hold, in order; none for none. One that is longer by itself is a part
    of its own."""
    parts: list[list[Event]] = []
    texts, size = Texts(), RECORD_CHARACTERS_MAX
    for event in reports:
        length = _bound_length(event, texts)
        if size + length > RECORD_CHARACTERS_MAX:
            parts.append([])
            size = 0
        parts[-1].append(event)
        size += length
    return parts


def _bound_length(report: Event, texts: Texts) -> int:
    """Not less than the characters of its record, with a comma. What holds a text is written to be measured: one
    character of a user's may be twelve of JSON, and a node is told with a label for each thing that pods ask of it."""
    if isinstance(report, OF_NUMBERS):
        return REPORT_CHARACTERS
    least = 2 * REPORT_CHARACTERS if isinstance(report, NodeAdded | NodeChanged) else REPORT_CHARACTERS
    return max(least, len(texts.event(report)) + 1)
