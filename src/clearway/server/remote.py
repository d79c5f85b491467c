"""A control plane that runs elsewhere, as a further server sees it: the storage, and what is carried live.

Rows come from the storage, which is the truth, with the newest reasons of waiting jobs from the fan-out; the cluster
and notices come from the fan-out alone. What changes something is passed on whole (`clearway.server.forward`) and never
reaches this object.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from itertools import count
from typing import Any, Final, NoReturn

from clearway.model.ids import JobId
from clearway.model.plan import Plan
from clearway.ports.control import Notice
from clearway.ports.fanout import Fanout, FanoutError
from clearway.ports.storage import AuditLine, JobQuery, JobReader
from clearway.ports.views import ClusterView, JobView
from clearway.server.problems import Refusal

_LOG = logging.getLogger(__name__)

VIEW_AGE_NS: Final = 200_000_000
"""How old a view of the cluster may be before it is fetched again; it is published once a second."""


class RemoteControl:
    """See `Control`. find_problem: why the control plane takes nothing now; "" = it does."""

    def __init__(self, fanout: Fanout, reader: JobReader, find_problem: Callable[[], str]) -> None:
        self._fanout, self._reader, self._find_problem = fanout, reader, find_problem
        self._lock = threading.Lock()
        self._view: ClusterView | None = None
        self._read_ns = -VIEW_AGE_NS

    def cluster(self) -> ClusterView:
        """The newest view. While the fan-out is away, the last that was seen. Raises Refusal where there is none."""
        with self._lock:
            now_ns = time.monotonic_ns()
            if self._view is None or now_ns - self._read_ns >= VIEW_AGE_NS:
                self._view, self._read_ns = self._fetch() or self._view, now_ns
            if self._view is None:
                detail = "expected a view of the cluster from a control plane, found none; has one run with this Redis?"
                raise Refusal(503, detail, headers={"Retry-After": "1"})
            return self._view

    def _fetch(self) -> ClusterView | None:
        try:
            return self._fanout.read_view()
        except FanoutError as error:
            if self._view is None:
                raise Refusal(503, f"the cluster is not known now: {error}", headers={"Retry-After": "5"}) from error
            return None

    def job(self, job: JobId) -> JobView | None:
        """The stored row, with why it waits at this moment where that is known."""
        rows = self._reader.find_jobs(JobQuery(ids=(job,)))
        if not rows or rows[0].state.is_final:
            return rows[0] if rows else None
        try:
            live = self._fanout.read_jobs((job,)).get(job)
        except FanoutError:
            return rows[0]
        is_same = live is not None and (live.state, live.generation) == (rows[0].state, rows[0].generation)
        return live if is_same else rows[0]

    def priorities(self, jobs: Iterable[JobId]) -> Mapping[JobId, int]:  # noqa: ARG002
        """None here: the order of the waiting is the control plane's own."""
        return {}

    def plans(self) -> tuple[tuple[int, Plan], ...]:
        """None here: who asks is passed on."""
        return ()

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """See `Control`. Numbers are this server's own: those of a control plane begin anew with each."""
        numbers = count(1)

        def renumber(notice: Notice) -> None:
            take(
                Notice(seq=next(numbers), at_ms=notice.at_ms, kind=notice.kind, tenant=notice.tenant, data=notice.data)
            )

        return self._fanout.subscribe(renumber)

    def note(self, line: AuditLine) -> "Future[None]":
        """What this server refused stands in its own log: the audit log has one writer."""
        _LOG.warning("refused: %s %s %s: %s", line.actor or "a stranger", line.action, line.target, line.detail)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @property
    def problem(self) -> str:
        """See `Control`."""
        return self._find_problem()

    @property
    def is_ready(self) -> bool:
        """See `Control`."""
        return not self.problem

    def _pass_on(self, *_: Any, **__: Any) -> NoReturn:
        raise Refusal(503, "expected a request that is passed on to the control plane, found that it was not")

    submit = cancel = hold = release = requeue = drain = undrain = set_site = explain = snapshot = _pass_on
