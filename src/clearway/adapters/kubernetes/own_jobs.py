"""Carries out what becomes of submitted jobs' Jobs: made, given their size, suspended, deleted; one call after another.

A Job of the same name that is not what would be made now (of a control plane whose journal is gone, or one that has
ended) is deleted first, if Clearway made it; any other is left alone, and the submitted job is refused.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.gangs import OWN_JOB
from clearway.adapters.kubernetes.manifests import OwnJob, make_service
from clearway.adapters.kubernetes.runs import Ending, Launch, OwnAction
from clearway.model.ids import JobId

log = logging.getLogger(__name__)

Json = dict[str, Any]

DIGEST: Final = "clearway.io/template"
"""Annotation of a Job: of what template it was made, which can only be compared before the API server completes it."""

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 15.0
REMOVING_S: Final = 0.5
"""Pause between two looks at a Job that is being deleted."""

FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409

BACKGROUND: Final = {"propagationPolicy": "Background"}


class OwnJobs:
    """spawn: runs work beside the rest. refuse: called with a job that cannot be made, why, and whether others may come
    to allow it: quotas, policies, rights. ended: called with one whose pods were told to go, and whether its Job was
    there."""

    def __init__(
        self,
        client: Client,
        spawn: Callable[[Awaitable[None]], object],
        refuse: Callable[[JobId, str, bool], None],
        ended: Callable[[JobId, bool], None],
    ) -> None:
        self._client = client
        self._spawn = spawn
        self._refuse = refuse
        self._ended = ended
        self._asked: dict[JobId, list[OwnAction]] = {}
        self._served: set[str] = set()

    def ask(self, action: OwnAction) -> None:
        """Have it carried out, after what was asked for the same job before."""
        job = action.own.job
        waiting = self._asked.get(job)
        if waiting is None:
            self._asked[job] = [action]
            self._spawn(self._work(job))
        else:
            waiting.append(action)

    async def _work(self, job: JobId) -> None:
        asked = self._asked[job]
        try:
            while asked:
                action = asked.pop(0)
                if isinstance(action, Launch):
                    await self._launch(action)
                else:
                    is_there = await self._insist(lambda own=action.own, end=action.ending: self._end(own, end))  # type: ignore[misc]
                    self._ended(job, is_there)
        finally:
            del self._asked[job]

    async def _launch(self, action: Launch) -> None:
        own = action.own
        if own.unnamed_priority:
            log.info("job %d: no PriorityClass has its priority %d: its pods name none", own.job, own.unnamed_priority)
        try:
            await self._insist(lambda: self._make(own, action.replicas))
        except ApiError as error:
            log.warning("job %d: %s", own.job, error)
            self._refuse(own.job, str(error), error.status == FORBIDDEN)

    async def _make(self, own: OwnJob, replicas: int) -> bool:
        await self._serve(own.namespace)
        size = {"parallelism": replicas, "completions": replicas, "suspend": False}
        manifest = _sized(own.manifest, size)
        while True:
            try:
                await self._client.post(_path(own.namespace), manifest)
                return True
            except ApiError as error:
                if error.status != CONFLICT:
                    raise
            try:
                found = await self._client.get(_path(own.namespace, own.name))
                _check_ours(found, own)
                if _is_same(found, manifest):
                    await self._client.patch(_path(own.namespace, own.name), {"spec": size})
                    return True
                await self._client.delete(_path(own.namespace, own.name), BACKGROUND)
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
            await asyncio.sleep(REMOVING_S)

    async def _serve(self, namespace: str) -> None:
        """The Service by which replicas find one another is there."""
        if namespace in self._served:
            return
        try:
            await self._client.post(f"/api/v1/namespaces/{namespace}/services", make_service(namespace))
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        self._served.add(namespace)

    async def _end(self, own: OwnJob, ending: Ending) -> bool:
        path = _path(own.namespace, own.name)
        try:
            match ending:
                case Ending.PARK:
                    await self._client.patch(path, {"spec": {"suspend": True}})
                case Ending.FAIL:
                    await self._client.patch(path, {"spec": {"backoffLimit": 0}})
                case Ending.REMOVE:
                    await self._client.delete(path, BACKGROUND)
        except ApiError as error:
            if error.status != NOT_FOUND:
                log.warning("job %d: %s", own.job, error)
            return error.status != NOT_FOUND
        return True

    async def _insist(self, call: Callable[[], Awaitable[bool]]) -> bool:
        """Call until there is an answer."""
        pause_s = PAUSE_MIN_S
        while True:
            try:
                return await call()
            except UnreachableError as error:
                log.info("%s; trying again", error)
                await asyncio.sleep(min(max(pause_s, error.retry_after_s), PAUSE_MAX_S))
                pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _path(namespace: str, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs" + (f"/{name}" if name else "")


def _sized(manifest: Json, size: Json) -> Json:
    template = json.dumps(manifest["spec"]["template"], sort_keys=True)
    digest = hashlib.sha256(template.encode()).hexdigest()[:16]
    metadata = {**manifest["metadata"], "annotations": {DIGEST: digest}}
    return {**manifest, "metadata": metadata, "spec": {**manifest["spec"], **size}}


def _check_ours(found: Json, own: OwnJob) -> None:
    if (found["metadata"].get("labels") or {}).get(OWN_JOB) != str(own.job):
        message = f"expected no Job {own.name!r} in {own.namespace!r}, found one that Clearway did not make"
        raise ApiError(CONFLICT, "AlreadyExists", message)


def _is_same(found: Json, manifest: Json) -> bool:
    metadata = found["metadata"]
    is_over = any(
        one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
        for one in (found.get("status") or {}).get("conditions") or ()
    )
    digest = (metadata.get("annotations") or {}).get(DIGEST)
    return not is_over and "deletionTimestamp" not in metadata and digest == manifest["metadata"]["annotations"][DIGEST]
