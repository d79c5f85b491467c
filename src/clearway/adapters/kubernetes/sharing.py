"""Binds pods that are given parts of devices, so that whoever makes the parts on the node learns of it.

KAI's binder is asked by a BindRequest, and binds the pod itself. HAMi's device plugin takes the first pod of its node
that is `allocating` for the one for which the kubelet asks, so there is one such pod on a node at a time.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.entries import real_name
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.runs import Bind
from clearway.adapters.kubernetes.shares import ALLOCATING, BIND_REQUESTS, PHASE, TIMES, make_bind_request
from clearway.adapters.kubernetes.sightings import Sightings
from clearway.model.ids import NodeName

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""Pause between two looks at what the watch has brought."""

BINDER_S: Final = 120
"""How long KAI's binder may take: it waits for a pod that keeps the device, with its image to be pulled."""

PLUGIN_S: Final = 60
"""How long the next pod of a node waits for HAMi's plugin, which HAMi's own scheduler does for five minutes."""

AGAIN_S: Final = 60
"""Pause between two looks whether there is a binder."""

NOT_FOUND: Final = 404
CONFLICT: Final = 409


class Sharing:
    """book: under the lock."""

    def __init__(self, client: Client, book: Sightings, lock: threading.Lock) -> None:
        self._client = client
        self._book = book
        self._lock = lock
        self._turns: dict[str, asyncio.Lock] = {}
        self._doubt = asyncio.Event()

    async def look_for_binder(self, changed: Callable[[], None]) -> None:
        """Look for KAI's API, for ever; `changed` is called whenever it came or went."""
        while True:
            self._doubt.clear()
            try:
                await self._client.get(BIND_REQUESTS)
                self._note_binder(True, changed)
            except ApiError:
                self._note_binder(False, changed)
            except UnreachableError:
                pass  # says nothing of it
            with suppress(TimeoutError):
                await asyncio.wait_for(self._doubt.wait(), AGAIN_S)

    def _note_binder(self, is_there: bool, changed: Callable[[], None]) -> None:
        with self._lock:
            is_same = self._book.nodes.has_binder == is_there
            if not is_same:
                self._book.nodes.has_binder = is_there
                self._book.touch_all()
        if not is_same:
            log.info("KAI's binder %s", "is there" if is_there else "is gone: shares of devices wait")
            changed()

    async def ask_binder(self, bind: Bind) -> None:
        """Return once KAI's binder has bound the pod. Raises ApiError where it gave up, or takes too long."""
        pod, device = bind.pod, bind.device
        assert device is not None
        with self._lock:
            entry = self._book.nodes.entries.get(real_name(NodeName(bind.node)))
        if entry is None:
            raise ApiError(NOT_FOUND, "NotFound", f"node {bind.node} is gone")
        root = f"{BIND_REQUESTS}/namespaces/{pod.namespace}/bindrequests"
        try:
            await self._client.post(root, make_bind_request(pod, entry.facts, device))
        except ApiError as error:
            if error.status == NOT_FOUND:  # KAI may have been removed
                self._doubt.set()
            if error.status != CONFLICT:  # of an earlier process
                raise
        deadline = time.monotonic_ns() + BINDER_S * 1_000_000_000
        while not self._is_bound(pod):
            request = await self._client.get(f"{root}/{pod.name}")
            status = request.get("status") or {}
            is_late = time.monotonic_ns() > deadline
            if status.get("phase") == "Failed" or is_late or request["spec"].get("selectedNode") != bind.node:
                await self._client.delete(f"{root}/{pod.name}", {})
                why = status.get("reason") or ("it took too long" if is_late else "of an earlier request")
                raise ApiError(CONFLICT, "Failed", f"KAI's binder did not bind {pod.name}: {why}")
            await asyncio.sleep(LOOK_S)

    async def in_turn(self, bind: Bind, call: Callable[[dict[str, str]], Awaitable[bool]]) -> bool:
        """Have `call` bind the pod with these annotations, and wait until HAMi's plugin has served it."""
        turn = self._turns.setdefault(bind.node, asyncio.Lock())
        async with turn:
            now = str(time.time_ns() // 1_000_000_000)
            if not await call(dict(bind.annotations) | dict.fromkeys(TIMES, now)):
                return False
            deadline = time.monotonic_ns() + PLUGIN_S * 1_000_000_000
            while self._is_allocating(bind.pod.uid) and time.monotonic_ns() < deadline:
                await asyncio.sleep(LOOK_S)
            return True

    def _is_bound(self, pod: PodFacts) -> bool:
        with self._lock:
            known = self._book.pods.get(pod.uid)
        return known is None or bool(known.node)

    def _is_allocating(self, uid: str) -> bool:
        with self._lock:
            known = self._book.pods.get(uid)
        if known is None or known.is_over:
            return False
        return not known.node or dict(known.annotations).get(PHASE) == ALLOCATING
