"""Why a pod waits, where its users look: its condition `PodScheduled`, and an event. Written only when it changes. And
where it was bound, as an event."""

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.pace import PAUSE_MIN_S, rest

log = logging.getLogger(__name__)

MESSAGE_CHARACTERS_MAX: Final = 1_024
"""What the API takes for the note of an event."""

ACTIONS: Final = {"Scheduled": "Binding", "FailedScheduling": "Scheduling", "Preempted": "Preempting"}
"""Reason of an event → what was being done, both in kube-scheduler's words."""

TOLD_MAX: Final = 100_000
"""Pods of which it is remembered what they were told; one that is forgotten is told once more."""


BOUND_MAX: Final = 10_000
"""Events about bindings that wait to be written; where there are more, the oldest are never written."""

RESTS: Final = 2.0
"""How many times as long as an event took it is waited before the next one: pods that come meanwhile find the API
server busy with a third of one call at the most."""

QUIET_S: Final = 0.5
"""Pause before events are written: one costs the API server more than a binding, so they wait until a burst is over."""


class Reasons:
    """Remembers what each pod was told."""

    def __init__(self, client: Client, reporter: str) -> None:
        self._client = client
        self._reporter = reporter
        self._told: dict[str, tuple[str, int]] = {}  # "" = it could not be told
        self._bound: deque[tuple[PodFacts, str]] = deque(maxlen=BOUND_MAX)
        self._some = asyncio.Event()

    def note_bound(self, pod: PodFacts, node: str) -> None:
        """The pod is bound: its event is to be written when there is time."""
        self._bound.append((pod, node))
        self._some.set()

    async def tell_bound(self, is_idle: Callable[[], bool]) -> None:
        """Write events about bindings, for ever, one after the other, while no bindings are to be made."""
        while True:
            await self._some.wait()
            await asyncio.sleep(QUIET_S)
            while self._bound and is_idle():
                pod, node = self._bound.popleft()
                note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
                begun_ns = time.monotonic_ns()
                try:
                    await self._client.post(_events_of(pod), self._event(pod, note, "Scheduled"))
                except (ApiError, UnreachableError) as error:
                    log.debug("pod %s/%s: %s", pod.namespace, pod.name, error)
                await asyncio.sleep(RESTS * (time.monotonic_ns() - begun_ns) / 1e9)
            if not self._bound:
                self._some.clear()

    async def note_preempted(self, pod: PodFacts, why: str) -> None:
        """Write an event that says for whom the pod was told to leave. Where none may be written, there is none."""
        try:
            await self._client.post(_events_of(pod), self._event(pod, why, "Preempted"))
        except (ApiError, UnreachableError) as error:
            log.info("pod %s/%s: no event: %s", pod.namespace, pod.name, error)

    def forget(self, uid: str) -> None:
        """The pod waits no longer."""
        self._told.pop(uid, None)

    async def tell(self, pod: PodFacts, message: str, *, is_first: bool = True, again_ns: int = 0) -> None:
        """Say to a pod why it waits; a pod that is gone needs not be told. is_first: of its gang, which gets the event;
        the others have the same condition. again_ns: it is not told again sooner after it was told something else."""
        message, now_ns = message[:MESSAGE_CHARACTERS_MAX], time.monotonic_ns()
        told, told_ns = self._told.get(pod.uid, ("", now_ns - again_ns))
        if told == message or now_ns - told_ns < again_ns:
            return
        self._told[pod.uid] = (message, now_ns)
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        if pod.created:
            condition["lastTransitionTime"] = pod.created  # it never was scheduled
        try:
            await self._client.set_condition(pod.namespace, pod.name, pod.uid, condition)
            if is_first:
                await self._write_event(pod, message)
        except (ApiError, UnreachableError) as error:
            if isinstance(error, UnreachableError) or error.status not in (404, 409):
                self._told[pod.uid] = ("", now_ns)
                raise

    async def insist(self, pod: PodFacts, message: str) -> None:
        """Say it until the API server answers, or something else was said to the pod."""
        pause_s = PAUSE_MIN_S
        while True:
            try:
                await self.tell(pod, message)
                return
            except UnreachableError as error:
                pause_s = await rest(max(pause_s, error.retry_after_s))
            if self._told.get(pod.uid, ("", 0))[0]:
                return

    async def _write_event(self, pod: PodFacts, message: str) -> None:
        """A pod whose condition says it already needs no event where none may be written."""
        try:
            await self._client.post(_events_of(pod), self._event(pod, message))
        except ApiError as error:
            log.info("pod %s/%s: no event: %s", pod.namespace, pod.name, error)

    def _event(self, pod: PodFacts, message: str, reason: str = "FailedScheduling") -> dict[str, object]:
        now = datetime.fromtimestamp(_now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        digest = hashlib.sha256(f"{pod.uid} {now} {message}".encode()).hexdigest()
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:200]}.{digest[:16]}", "namespace": pod.namespace},
            "eventTime": now,
            "reportingController": self._reporter,
            "reportingInstance": self._reporter,
            "action": ACTIONS[reason],
            "reason": reason,
            "type": "Warning" if reason == "FailedScheduling" else "Normal",
            "note": message,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
        }


def _events_of(pod: PodFacts) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events"


def _now_s() -> float:
    return time.time_ns() / 1e9
