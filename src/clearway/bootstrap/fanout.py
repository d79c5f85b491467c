"""Feeds what a control plane knows into the Redis that its configuration names: notices at once, views each second."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from clearway.adapters.redis_live import open_fanout
from clearway.model.ids import JobId
from clearway.ports.control import Control, Notice
from clearway.ports.fanout import Fanout
from clearway.ports.storage import JournalError, StorageError
from clearway.ports.views import JobView

_LOG = logging.getLogger(__name__)

VIEW_S: Final = 1.0
"""Between two views of the cluster."""


class Feed:
    """Runs from `begin` to `stop`. Nothing waits for it: where Redis is gone, the control plane goes on."""

    def __init__(self, control: Control, fanout: Fanout) -> None:
        self._control = control
        self._fanout = fanout
        self._ended = threading.Event()
        self._changed: dict[JobId, None] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="clearway-fanout", daemon=True)
        self._unsubscribe = control.subscribe(self._take)

    def begin(self) -> None:
        """Start the thread that sends views and rows."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._ended.set()
        self._unsubscribe()
        self._thread.join()
        self._fanout.close()

    def _take(self, notice: Notice) -> None:
        self._fanout.publish_notice(notice)
        number = notice.data.get("id")
        if notice.kind == "job" and isinstance(number, int):
            with self._lock:
                self._changed[JobId(number)] = None

    def _run(self) -> None:
        while not self._ended.wait(VIEW_S):
            with self._lock:
                changed, self._changed = list(self._changed), {}
            self._fanout.publish_view(self._control.cluster())
            rows = [row for job in changed if (row := self._read(job)) is not None]
            if rows:
                self._fanout.publish_jobs(rows)

    def _read(self, job: JobId) -> JobView | None:
        """The job as it is now. One that has ended is in the storage; while that is away, it waits."""
        try:
            return self._control.job(job)
        except StorageError:
            with self._lock:
                self._changed[job] = None
        except JournalError as error:
            _LOG.warning("job %s is not sent: %s", job, error)
        return None


def start_feed(control: Control, url: str, tell: Callable[[str], None], *, prefix: str) -> Feed:
    """A feed into the Redis at `url`. tell: takes a line for people when it is lost or back. prefix: of its keys."""
    feed = Feed(control, open_fanout(url, tell=tell, prefix=prefix))
    feed.begin()
    return feed
