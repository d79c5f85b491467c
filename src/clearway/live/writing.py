"""Writing what a turn changed: once, and after a failure not before a while, which grows."""

import logging

from clearway.live.settings import ControlSettings
from clearway.ports.storage import Changes, StorageError, Store, TooLongError

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
