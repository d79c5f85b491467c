"""Sends what is published to Redis from a thread of its own, so that nobody waits for it.

What waits is bounded: the newest view, the newest row of each job, and the last notices. Everything that waits is sent
as one pipeline. When that fails it is tried again, with pauses that grow; a notice that arrives twice for that reason
has the same run and number, by which subscribers know it.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clearway.adapters.redis_live.client import connection_errors, describe_place
from clearway.adapters.redis_live.keys import JOB_LIVES_S, NOTICES_MAX, Keys
from clearway.adapters.redis_live.rows import dump_notice, dump_value
from clearway.model.ids import JobId
from clearway.ports.control import Notice
from clearway.ports.views import ClusterView, JobView

JOBS_MAX: Final = 100_000
"""Rows that wait at most; beyond it the oldest are left to the storage."""

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
"""Pauses between tries double from the first to the longest."""


@dataclass(slots=True)
class Waiting:
    """What is not sent yet."""

    view: ClusterView | None = None
    jobs: dict[JobId, JobView] = field(default_factory=dict)
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return self.view is None and not self.jobs and not self.notices


class Publisher:
    """The thread that sends. tell: takes one line for people when Redis is lost, and when it is back."""

    def __init__(self, client: Any, keys: Keys, run: str, tell: Callable[[str], None]) -> None:
        self._client, self._keys, self._run, self._tell = client, keys, run, tell
        self._errors = connection_errors()
        self._waiting = Waiting()
        self._last_view: ClusterView | None = None
        self._changed = threading.Condition()
        self._is_closing = False
        self._place = describe_place(client)
        self.problem = ""
        self._thread = threading.Thread(target=self._work, name="clearway-redis-publisher", daemon=True)
        self._thread.start()

    def put(self, view: ClusterView | None = None, jobs: Sequence[JobView] = (), notice: Notice | None = None) -> None:
        """Have it sent soon."""
        with self._changed:
            waiting = self._waiting
            if view is not None:
                waiting.view = view
            for job in jobs:
                waiting.jobs.pop(job.id, None)  # so that it stands last
                waiting.jobs[job.id] = job
            while len(waiting.jobs) > JOBS_MAX:
                del waiting.jobs[next(iter(waiting.jobs))]
            if notice is not None:
                waiting.notices.append(notice)
            self._changed.notify()

    def close(self) -> None:
        """Send once what waits, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        pause = PAUSE_FIRST_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or not self._waiting.is_empty)
                waiting, self._waiting = self._waiting, Waiting()
            is_sent = waiting.is_empty or self._send(waiting)
            with self._changed:
                if self._is_closing and (not is_sent or self._waiting.is_empty):
                    return
                if is_sent:
                    pause = PAUSE_FIRST_S
                    continue
                self._put_back(waiting)
                self._changed.wait_for(lambda: self._is_closing, pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    def _put_back(self, waiting: Waiting) -> None:
        """What came meanwhile is newer than what could not be sent. After a loss the view is sent in any case."""
        newer = self._waiting
        view = newer.view or waiting.view or self._last_view
        notices = deque([*waiting.notices, *newer.notices], maxlen=NOTICES_MAX)
        self._waiting = Waiting(view, waiting.jobs | newer.jobs, notices)

    def _send(self, waiting: Waiting) -> bool:
        pipeline = self._client.pipeline(transaction=False)
        if waiting.view is not None:
            pipeline.set(self._keys.view, dump_value(waiting.view))
        for job in waiting.jobs.values():
            pipeline.set(self._keys.job(job.id), dump_value(job), ex=JOB_LIVES_S)
        for notice in waiting.notices:
            fields = {"run": self._run, "notice": dump_notice(notice)}
            pipeline.xadd(self._keys.notices, fields, maxlen=NOTICES_MAX, approximate=True)
        try:
            pipeline.execute()
        except self._errors as error:
            self._report(f"{self._place} is lost ({error}); the control plane goes on without it")
            return False
        self._last_view = waiting.view or self._last_view
        self._report("")
        return True

    def _report(self, problem: str) -> None:
        """Tell when it begins and when it ends, not at every try."""
        was, self.problem = self.problem, problem
        if bool(was) != bool(problem):
            self._tell(problem or f"{self._place} is back")
