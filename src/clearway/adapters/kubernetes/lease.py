"""Leadership: of several control planes over one cluster, the one that holds a Lease decides; the others wait.

The rules of client-go's leader election, with times of monotonic clocks alone, which no clock of a machine can disturb:

- Whoever waits takes a Lease over when it is free, or when it has not changed for its whole duration, as the waiting
  one's own clock counts from when it last saw it change. The times that stand in the Lease are for people.
- Whoever holds it counts from before it asked for a renewal that succeeded, and stops believing in it after two thirds
  of the duration. Each write to the API server asks `is_valid` first. So one that was stopped (SIGSTOP, a machine that
  was suspended) and wakes up finds that it must not write before it finds out anything else. One that was stopped
  between that and the write itself is ended by the kernel when it wakes up, after `FATAL` of the duration.
- A holder is one process: its name is made anew at each start, and nobody takes his own Lease up again.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.deadman import Deadman
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.model.errors import InputError

log = logging.getLogger(__name__)

Json = dict[str, Any]

RENEWALS: Final = 6
"""In the duration of a Lease: so many failed tries are borne, less the third for which it is not believed in."""

BELIEVED: Final = 2 / 3
FATAL: Final = 5 / 6
"""Of the duration: who is still about to write then, by what he knew before, is ended before he can."""

NOT_FOUND: Final = 404
CONFLICT: Final = 409


def read_clock_ns() -> int:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Sight:
    """What was last seen of the Lease, and since when it has been like that."""

    holder: str
    version: str
    since_ns: int
    duration_ns: int


class Lease:
    """One candidate. holder: its name, of this process alone. Asked and renewed in a thread of its own."""

    def __init__(self, config: KubernetesConfig, holder: str, *, clock_ns: Callable[[], int] = read_clock_ns) -> None:
        self.holder = holder
        self.failure: Exception | None = None
        self._config = config
        self._clock_ns = clock_ns
        self._duration_ns = config.lease_ms * 1_000_000
        self._valid_until_ns = 0
        self._seen: Sight | None = None
        self._held = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._on_wait: Callable[[str], None] = _nothing
        self._guarding = threading.Lock()
        self._fatal_ns = 0
        self._deadman: Deadman | None = None

    def guard_thread(self) -> Callable[[], None]:
        """This thread is the one that writes: from now on it runs only while the Lease can still be ours. Returns what
        ends that, to be called once it writes no more."""
        try:
            deadman = Deadman()
        except OSError as error:
            log.warning("a leader that is stopped in the moment of a write is not kept from it: %s", error)
            return _done
        with self._guarding:
            deadman.set(self._fatal_ns)
            self._deadman = deadman

        def release() -> None:
            with self._guarding:
                self._deadman = None
                deadman.close()

        return release

    def _renewed(self, asked_ns: int) -> None:
        self._valid_until_ns = asked_ns + int(self._duration_ns * BELIEVED)
        with self._guarding:
            self._fatal_ns = asked_ns + int(self._duration_ns * FATAL)
            if self._deadman is not None:
                self._deadman.set(self._fatal_ns)

    def is_valid(self) -> bool:
        """Whether it is held for certain, by what is known here and now."""
        return self._clock_ns() < self._valid_until_ns

    def acquire(self, on_wait: Callable[[str], None], look: Callable[[], None]) -> None:
        """Wait until it is held; from then on it is renewed. Raises InputError where it can never be had.

        on_wait: called, in another thread, with the name of whoever holds it. look: called now and then meanwhile; what
        it raises ends the waiting.
        """
        self._on_wait = on_wait
        self._thread.start()
        try:
            while not self._held.wait(0.1):
                look()
                if self.failure is not None:
                    raise self.failure
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give it back, so that others need not wait; nothing is written any more."""
        self._closing.set()
        self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._hold())
        except Exception as error:
            log.exception("leadership ended")
            self.failure = error
        self._valid_until_ns = 0

    async def _hold(self) -> None:
        client = await Client.connect(replace(self._config, binds_max=1))
        told = ""
        try:
            while not self._closing.is_set():
                other = await self._step(client)
                if self._held.is_set() and other:
                    raise LeaseLostError(f"expected to lead, found that {other} does; this control plane ends")
                if not other:
                    self._held.set()
                elif other != told:
                    told = other
                    self._on_wait(other)
                await self._pause()
            if self._held.is_set():
                self._valid_until_ns = 0
                await self._give_back(client)
        finally:
            await client.close()

    async def _pause(self) -> None:
        until_ns = self._clock_ns() + self._duration_ns // RENEWALS
        while self._clock_ns() < until_ns and not self._closing.is_set():
            await asyncio.sleep(0.05)

    async def _step(self, client: Client) -> str:
        """Take or renew it; returns who else holds it, "" = it is ours. Raises InputError where we may not even ask."""
        try:
            return await asyncio.wait_for(self._try(client), self._duration_ns / 1e9 * BELIEVED)
        except (UnreachableError, TimeoutError) as error:
            log.info("lease: %s", error)
        except ApiError as error:
            if error.status != CONFLICT:
                raise InputError(f"lease {self._config.lease}: {error}") from error
        if self._held.is_set() and not self.is_valid():
            raise LeaseLostError("expected to renew the lease in time, found no answer; this control plane ends")
        return "" if self._held.is_set() else "somebody whom nobody could name yet"

    async def _try(self, client: Client) -> str:
        asked_ns = self._clock_ns()
        try:
            found = await client.get(self._path())
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            await client.post(self._path(is_new=True), self._make(None))
            self._renewed(asked_ns)
            return ""
        holder = str((found.get("spec") or {}).get("holderIdentity") or "")
        if holder not in ("", self.holder) and not self._is_over(found, holder):
            return holder
        if self._held.is_set() and holder != self.holder:
            return holder or "nobody"
        await client.put(self._path(), self._make(found))
        self._renewed(asked_ns)
        return ""

    def _is_over(self, found: Json, holder: str) -> bool:
        """Whether another's Lease has not changed for so long as it said that it would hold."""
        now_ns, version = self._clock_ns(), str(found["metadata"]["resourceVersion"])
        if self._seen is None or (self._seen.holder, self._seen.version) != (holder, version):
            said_ns = int(found["spec"].get("leaseDurationSeconds") or 0) * 1_000_000_000
            self._seen = Sight(holder, version, now_ns, max(said_ns, self._duration_ns))
        return now_ns - self._seen.since_ns > self._seen.duration_ns

    async def _give_back(self, client: Client) -> None:
        try:
            found = await client.get(self._path())
            if found["spec"].get("holderIdentity") == self.holder:
                await client.put(self._path(), {**found, "spec": {**found["spec"], "holderIdentity": ""}})
        except (ApiError, UnreachableError) as error:
            log.info("the lease was not given back: %s", error)

    def _path(self, *, is_new: bool = False) -> str:
        namespace, _, name = self._config.lease.partition("/")
        root = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        return root if is_new else f"{root}/{name}"

    def _make(self, found: Json | None) -> Json:
        namespace, _, name = self._config.lease.partition("/")
        now = datetime.fromtimestamp(time.time_ns() / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: Json = {} if found is None else found.get("spec") or {}
        is_new = before.get("holderIdentity") != self.holder
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": max(-(-self._duration_ns // 1_000_000_000), 1),
            "acquireTime": now if is_new else before.get("acquireTime"),
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (is_new and found is not None),
        }
        metadata = {"namespace": namespace, "name": name} if found is None else found["metadata"]
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class LeaseLostError(InputError):
    """Another control plane leads, or nobody can say any more that this one does."""


def _done() -> None:
    """Nothing guards the thread."""


def _nothing(_name: str) -> None:
    """Nobody wants to know."""
