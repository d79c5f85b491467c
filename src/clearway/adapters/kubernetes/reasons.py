"""Why a pod waits, where its users look: its condition `PodScheduled`, and an event. Written only when it changes."""

import hashlib
import time
from datetime import UTC, datetime
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError
from clearway.adapters.kubernetes.facts import PodFacts

MESSAGE_CHARACTERS_MAX: Final = 1_024
"""What the API takes for the note of an event."""

TOLD_MAX: Final = 100_000
"""Pods of which it is remembered what they were told; one that is forgotten is told once more."""


class Reasons:
    """Remembers what each pod was told."""

    def __init__(self, client: Client, reporter: str) -> None:
        self._client = client
        self._reporter = reporter
        self._told: dict[str, tuple[str, int]] = {}

    def forget(self, uid: str) -> None:
        """The pod waits no longer."""
        self._told.pop(uid, None)

    async def tell(self, pod: PodFacts, message: str, *, is_first: bool = True, again_ns: int = 0) -> None:
        """Say to a pod why it waits; a pod that is gone needs not be told. is_first: of its gang, which gets the event;
        the others have the same condition. again_ns: it is not told again sooner after it was told something else."""
        message, now_ns = message[:MESSAGE_CHARACTERS_MAX], time.monotonic_ns()
        told, told_ns = self._told.get(pod.uid, ("", 0))
        if told == message or (told and now_ns - told_ns < again_ns):
            return
        self._told[pod.uid] = (message, now_ns)
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        try:
            await self._client.set_condition(pod.namespace, pod.name, pod.uid, condition)
            if is_first:
                path = f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events"
                await self._client.post(path, self._event(pod, message))
        except ApiError as error:
            if error.status not in (404, 409):
                self._told.pop(pod.uid, None)
                raise

    def _event(self, pod: PodFacts, message: str) -> dict[str, object]:
        now = datetime.fromtimestamp(_now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        digest = hashlib.sha256(f"{pod.uid} {now} {message}".encode()).hexdigest()
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:200]}.{digest[:16]}", "namespace": pod.namespace},
            "eventTime": now,
            "reportingController": self._reporter,
            "reportingInstance": self._reporter,
            "action": "Scheduling",
            "reason": "FailedScheduling",
            "type": "Warning",
            "note": message,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
        }


def _now_s() -> float:
    return time.time_ns() / 1e9
