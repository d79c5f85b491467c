"""What the routes of one application share: the control plane, the rows on disk, and who may see what."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from fastapi import Request

from clearway.model.ids import JobId
from clearway.ports.control import Control
from clearway.ports.storage import JOBS_PER_PAGE_MAX, AuditLine, JobQuery, JobReader
from clearway.ports.views import JobView, TenantView
from clearway.server.access import PERMISSIONS, Permission, Reach, find_reach, needs_tree
from clearway.server.auth import Auth, Identity
from clearway.server.events import Hub
from clearway.server.metrics import RequestMetrics
from clearway.server.problems import Refusal
from clearway.server.settings import ServerSettings
from clearway.server.shown import Seen
from clearway.server.submissions import Shape

_LOG = logging.getLogger(__name__)

TENANTS_AGE_S: Final = 1.0
"""How old the tree of tenants may be by which callers are judged."""

T = TypeVar("T")


class Services:
    """Shared by all requests; used in the event loop's thread only.

    reload: reads the configuration again and says what came of it. now_ms: Unix time. shape: see `parse_submission`.
    """

    def __init__(
        self,
        control: Control,
        reader: JobReader,
        auth: Auth,
        settings: ServerSettings,
        *,
        reload: Callable[[str], Sequence[str]] | None,
        now_ms: Callable[[], int],
        shape: Shape | None = None,
    ) -> None:
        self.control = control
        self.reader = reader
        self.auth = auth
        self.settings = settings
        self.reload = reload
        self.now_ms = now_ms
        self.shape = shape
        self.hub = Hub(control, life=f"{now_ms():x}")
        self.metrics = RequestMetrics()
        self.streams = 0
        self._pool = ThreadPoolExecutor(settings.reader_threads, thread_name_prefix="clearway-read")
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="clearway-parse")
        self._files = ThreadPoolExecutor(settings.reader_threads, thread_name_prefix="clearway-files")
        self._tenants: tuple[TenantView, ...] = ()
        self._tenants_read_s = -TENANTS_AGE_S

    def close(self) -> None:
        """End streams and threads."""
        self.hub.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._parser.shutdown(wait=False, cancel_futures=True)
        self._files.shutdown(wait=False, cancel_futures=True)

    async def read(self, function: Callable[..., T], *arguments: object) -> T:
        """What a function that waits for a disk or a lock returns; run in one of a few threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def parse(self, function: Callable[[], T]) -> T:
        """What a function that computes for long returns. One at a time: large submissions wait for one another, and
        neither lists nor the control plane's thread for more than one of them."""
        return await asyncio.get_running_loop().run_in_executor(self._parser, function)

    async def read_file(self, function: Callable[..., T], *arguments: object) -> T:
        """As `read`, of files of users: they can lie on a file server that does not answer, for which lists must not
        wait."""
        return await asyncio.get_running_loop().run_in_executor(self._files, function, *arguments)

    async def answer(self, future: "Future[T]") -> T:
        """The control plane's answer. Raises what it refuses with, and TimeoutError.

        Whoever gives up waiting does not take back what he asked: it may have been done.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self.settings.answer_s)
        except asyncio.CancelledError:
            if future.cancelled() and not _is_cancelling():
                raise Refusal(503, "the control plane is stopping", headers={"Retry-After": "5"}) from None
            raise

    # --- who may ------------------------------------------------------------------------------------------------------

    async def reach(self, request: Request) -> Reach:
        """What the caller of this request may see."""
        identity: Identity = request.scope["clearway.identity"]
        if not needs_tree(identity):
            return find_reach(identity, ())
        now_s = time.monotonic_ns() / 1e9
        if now_s - self._tenants_read_s >= TENANTS_AGE_S:
            self._tenants = (await self.read(self.control.cluster)).tenants
            self._tenants_read_s = now_s
        return find_reach(identity, self._tenants)

    def audit(self, line: AuditLine) -> None:
        """Have the line written soon; nobody waits for it."""
        self.control.note(line).add_done_callback(_log_failure)

    def refuse(self, identity: Identity, action: str, target: str, status: int, detail: str) -> Refusal:
        """The refusal to raise, written into the audit log. action, target: as in AuditLine."""
        line = AuditLine(
            at_ms=self.now_ms(),
            actor=identity.user,
            action=action,
            target=target[:500],
            is_allowed=False,
            detail=f"{identity.role}: status {status}",
        )
        self.audit(line)
        return Refusal(status, detail)

    def check_permission(self, request: Request, permission: Permission) -> None:
        """Raise Refusal unless the caller's role has the permission."""
        if permission is Permission.PUBLIC:
            return
        identity: Identity = request.scope["clearway.identity"]
        if permission in PERMISSIONS[identity.role]:
            return
        target = f"{request.method} {request.url.path}"
        detail = f"expected a caller who has {permission}, found a {identity.role}; ask an operator"
        raise self.refuse(identity, permission, target, 403, detail)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def visible_job(self, request: Request, job: int, action: str) -> tuple[JobView, Reach]:
        """The job as it is now. Raises Refusal (404) where there is none, or none that the caller may see."""
        reach = await self.reach(request)
        view = await self.read(self.control.job, JobId(job))
        if view is None or not reach.sees(view.tenant):
            raise self._hidden(reach, action, [job], is_there=view is not None)
        return view, reach

    async def touchable_job(self, request: Request, job: int, action: str) -> JobView:
        """The job, which the caller may change. Raises Refusal."""
        view, reach = await self.visible_job(request, job, action)
        if not reach.may_touch(view):
            raise self._untouchable(reach, action, [view.id])
        return view

    async def check_touchable(self, request: Request, jobs: tuple[JobId, ...], action: str) -> Identity:
        """Raise Refusal unless the caller may change all of `jobs`."""
        reach = await self.reach(request)
        rows = {row.id: row for row in await self.find_jobs(jobs)}
        hidden = [job for job in jobs if job not in rows or not reach.sees(rows[job].tenant)]
        if hidden:
            raise self._hidden(reach, action, hidden, is_there=any(job in rows for job in hidden))
        untouchable = [job for job in jobs if not reach.may_touch(rows[job])]
        if untouchable:
            raise self._untouchable(reach, action, untouchable)
        return reach.identity

    async def find_jobs(self, jobs: Sequence[JobId]) -> list[JobView]:
        """Rows of these jobs; those that there are not are left out."""
        rows: list[JobView] = []
        for first in range(0, len(jobs), JOBS_PER_PAGE_MAX):
            ids = tuple(jobs[first : first + JOBS_PER_PAGE_MAX])
            rows.extend(await self.read(self.reader.find_jobs, JobQuery(ids=ids, limit=len(ids))))
        return rows

    async def seen_among(self, reach: Reach, jobs: Iterable[JobId]) -> Seen:
        """Which of `jobs` the caller may see."""
        if reach.tenants is None:
            return lambda _job: True
        seen = frozenset(row.id for row in await self.find_jobs(tuple(jobs)) if reach.sees(row.tenant))
        return seen.__contains__

    def _hidden(self, reach: Reach, action: str, jobs: Sequence[int], *, is_there: bool) -> Refusal:
        """What is another tenant's is answered like what there is not; the audit log knows the difference."""
        named = ", ".join(str(job) for job in jobs[:10]) + (", ..." if len(jobs) > 10 else "")
        detail = f"expected a job that you may see, found none of number {named}"
        if not is_there:
            return Refusal(404, detail)
        return self.refuse(reach.identity, action, f"job {named}", 404, detail)

    def _untouchable(self, reach: Reach, action: str, jobs: Sequence[int]) -> Refusal:
        named = ", ".join(str(job) for job in jobs[:10]) + (", ..." if len(jobs) > 10 else "")
        detail = f"expected a job of your own, found another user's: {named}; its user or an administrator may do this"
        return self.refuse(reach.identity, action, f"job {named}", 403, detail)


def _log_failure(future: "Future[None]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        _LOG.warning("a line of the audit log was not written: %s", error)


def _is_cancelling() -> bool:
    """Whether the request itself is given up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def services_of(request: Request) -> Services:
    """The services of the application that serves this request."""
    services: Services = request.app.state.services
    return services
