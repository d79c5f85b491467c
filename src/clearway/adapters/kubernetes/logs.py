"""What pods of submitted jobs write, collected into a file for each replica, so that it outlives the pods.

FOLDER/JOB/RANK.log holds the output of all runs of a replica, one after the other; RANK.json beside it says which pod
wrote last and where its part begins, so that a collector that was cut goes on without a gap and without doubles.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.model.ids import JobId

log = logging.getLogger(__name__)

STREAMS_MAX: Final = 2_000
"""Pods whose output is collected at once; others wait until one of these has ended."""

BYTES_MAX: Final = 1 << 30
"""Of one replica's log; what comes after it is left out."""

PAUSE_MIN_S: Final = 0.25
PAUSE_MAX_S: Final = 2.0
"""Pauses between two tries double from the one to the other; a job ends no sooner than its log is read."""

LOOK_S: Final = 1.0
"""Silence after which it is looked whether the pod is still there."""

LAST_LOOKS: Final = 3
"""So many silences after its end, a pod has no more to say."""

FOLDER_MODE: Final = 0o700


class LogCollector:
    """Follows pods, from `follow` on until they have ended. is_over: whether a pod has ended or is gone, by its uid."""

    def __init__(self, client: Client, folder: Path, is_over: Callable[[str], bool]) -> None:
        self._client = client
        self._folder = folder
        self._is_over = is_over
        self._room = asyncio.Semaphore(STREAMS_MAX)

    async def follow(self, job: JobId, pod: PodFacts) -> None:
        """Collect what the pod writes until it has ended and all of it is there; never raises for the world's sake."""
        async with self._room:
            try:
                path, pause_s = self._open(job, pod), PAUSE_MIN_S
                while not await self._read_on(path, pod):
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
            except OSError as error:
                log.warning("the log of pod %s/%s is not kept: %s", pod.namespace, pod.name, error)

    def _open(self, job: JobId, pod: PodFacts) -> Path:
        """The replica's file, with the pod noted as its last writer."""
        folder = self._folder / str(job)
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        path = folder / f"{max(pod.index, 0)}.log"
        if _read_note(path)[0] != pod.uid:
            note = {"pod": pod.uid, "begin": path.stat().st_size if path.exists() else 0}
            beside = path.with_suffix(".new")
            beside.write_text(json.dumps(note))
            beside.replace(path.with_suffix(".json"))
        path.touch(mode=0o600)
        return path

    async def _read_on(self, path: Path, pod: PodFacts) -> bool:
        """Read until the stream ends; whether that is all that there is."""
        was_over = self._is_over(pod.uid)
        _, begin = _read_note(path)
        skip = max(path.stat().st_size - begin, 0)
        try:
            await self._copy(path, pod, skip)
        except UnreachableError as error:
            log.debug("log of pod %s/%s: %s", pod.namespace, pod.name, error)
            return was_over
        except ApiError:
            return was_over  # it has not begun yet, or is gone
        return was_over or self._is_over(pod.uid)

    async def _copy(self, path: Path, pod: PodFacts, skip: int) -> None:
        silences = 0
        with open(path, "ab", buffering=0) as file:
            async with self._client.follow_log(pod.namespace, pod.name, LOOK_S) as parts:
                async for part in parts:
                    if not part:
                        silences = silences + 1 if self._is_over(pod.uid) else 0
                        if silences > LAST_LOOKS:
                            return
                    fresh, skip = part[skip:], max(skip - len(part), 0)
                    if fresh and os.fstat(file.fileno()).st_size < BYTES_MAX:
                        file.write(fresh)


def _read_note(path: Path) -> tuple[str, int]:
    """The pod that wrote last, and where its part begins."""
    try:
        note = json.loads(path.with_suffix(".json").read_text())
        return str(note["pod"]), int(note["begin"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0
