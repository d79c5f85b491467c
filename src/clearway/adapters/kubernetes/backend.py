"""The Kubernetes backend: a thread that watches and calls, and the book that it shares with a driver.

The API server is the truth about pods, the driver's journal about what was decided; `connect` brings them together.
Every object that is watched is listed first, and again whenever its watch cannot go on (410, or after a cut without a
version). Calls are retried for as long as they mean something, with a growing pause; a pod that is gone ends them.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.claiming import take_back_claims, write_claims
from clearway.adapters.kubernetes.client import Change, Client, Json
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import ApiError, ExpiredError, UnreachableError, UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import Source
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.logs import STREAMS_MAX, LogCollector
from clearway.adapters.kubernetes.looking import SIZES_S, read_size
from clearway.adapters.kubernetes.manifests import DEFAULT_NAMESPACE, OwnJob, find_fault, make_own_job, own_demand
from clearway.adapters.kubernetes.mounting import bind_volumes
from clearway.adapters.kubernetes.own_jobs import OwnJobs
from clearway.adapters.kubernetes.pace import PAUSE_MIN_S, Pace, rest
from clearway.adapters.kubernetes.parse import parse_node, parse_pod, parse_stub
from clearway.adapters.kubernetes.reasons import Reasons
from clearway.adapters.kubernetes.runs import (
    Action,
    Bind,
    End,
    Evict,
    Follow,
    Inquire,
    Launch,
    Place,
    Refuse,
    Scale,
    Unclaim,
    Unpark,
)
from clearway.adapters.kubernetes.scaling import find_refusal, scale_job, unpark_job
from clearway.adapters.kubernetes.shares import PHASE
from clearway.adapters.kubernetes.sharing import Sharing
from clearway.adapters.kubernetes.watching import NODES, OTHERS, PODS, READY_S, make_takers
from clearway.model.cluster import NodeSpec
from clearway.model.errors import InputError, InternalError
from clearway.model.events import Event
from clearway.model.ids import ROOT_TENANT, JobId, TenantName
from clearway.model.jobs import JobSpec, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.model.runs import RunSpec, Toleration
from clearway.ports.backend import BackendCommand, Holding, World

log = logging.getLogger(__name__)

REFUSED_S: Final = 1.0
"""Pause after a call that the API server refused: what it was about is looked at anew, and may come to the same."""

STARTED_S: Final = 0.2
"""How much later the driver may hear that pods run: nothing waits for it, and one that begins to write keeps pods that
come meanwhile waiting for the disk."""

DEVICE_DEFAULT: Final = "nvidia.com/gpu"
"""What a submitted job's devices are taken to be where no node has any yet."""


class KubernetesBackend:
    """Implements `clearway.ports.backend.LastingBackend` on a real cluster.

    Public beside the port. For the composition, to be set before `nodes` is called: `may_write`, see `Client`;
    `guard_thread`, called in the thread that writes, which returns what is called once it writes no more;
    `known_nodes`, which gives those of the journal, in the order in which they were added; `known_models` of
    devices, in the order of their numbers in the engine. For the intake: `book` under `lock`; `now_ms`, the time of
    the last observation; `reasons` and `call_later`, for the backend's own thread; `serve` and `poke`.
    """

    def __init__(self, config: KubernetesConfig) -> None:
        self.book = Book(config)
        self.lock = threading.Lock()
        self.now_ms = 0
        self.known_nodes: Callable[[], Iterable[NodeSpec]] = tuple
        self.known_models: Callable[[], Iterable[str]] = tuple
        self.may_write: Callable[[], bool] | None = None
        self.guard_thread: Callable[[], Callable[[], None]] = lambda: _nothing
        self._on_change: Callable[[], None] = _nothing
        self._config = config
        self._world: World | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listed = {path: threading.Event() for path in (NODES, PODS, *OTHERS)}
        self._is_poked = self._is_served = self._is_waking = self._has_performed = False
        self._failure: Exception | None = None
        self._main: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the port -------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeSpec, ...]:
        """The nodes as they are now, by name; the first call signs in and lists. InputError, UnreachableError."""
        if self._thread is None:
            self._begin()
        with self.lock:
            self.book.nodes.models.know(self.known_models())
            return self.book.nodes.specs(self.known_nodes())

    def connect(self, now_ms: int, holdings: Sequence[Holding], world: World) -> Sequence[Event]:
        """See the port. Pods of no holding, or on devices that are gone, are left alone: they count as of others."""
        self._world = world
        with self.lock:
            self._know_own(())
            for holding in (each for each in holdings if not each.has_lost_devices):
                spec, run = world.launch(holding.job)
                places = world.locate(holding.allocation)
                self.book.adopt(
                    now_ms,
                    holding.job,
                    holding.generation,
                    places,
                    run.origin,
                    spec.limit_ms,
                    is_started=holding.is_started,
                    own=self._make_own(spec, run, places),
                    is_moving=holding.generation_before != 0,
                    request=spec.request,
                )
        events = self._settle(now_ms, is_first=True)
        world.wake()
        return events

    def perform(self, now_ms: int, command: BackendCommand) -> None:
        """Begin to carry out a command; its effects are reported by `observe`."""
        assert self._world is not None, "connect comes first"
        with self.lock:
            match command:
                case Start():
                    spec, run = self._world.launch(command.job)
                    places = self._world.locate(command.allocation)
                    own = self._make_own(spec, run, places)
                    known, had_news = (spec.limit_ms, own, spec.request), self.book.nodes.has_news
                    self.book.start(now_ms, command.job, command.generation, places, run.origin, *known)
                    self.book.nodes.has_news = had_news  # where it lies now the engine knows
                case Stop():
                    self.book.stop(now_ms, command.job, command.generation, command.cause, command.beneficiary)
                case Migrate() | Resize():
                    places = self._world.locate(command.allocation)
                    self.book.resize(now_ms, command.job, command.generation, places)
                case Suspend():
                    # The policy of this backend makes none; whoever does so all the same stops the job.
                    self.book.stop(now_ms, command.job, command.generation - 1, StopCause.MIGRATED)
                case Cap():
                    pass
        self._has_performed = True
        self.poke()

    def _make_own(self, spec: JobSpec, run: RunSpec, places: Sequence[Place]) -> OwnJob | None:
        """The Job of a job that was submitted here; None for one of pods that others made."""
        if run.origin:
            return None
        node, devices = places[0]
        resource = self.book.nodes.resource_at(node, devices[0]) or DEVICE_DEFAULT if devices else ""
        named = self.book.classes.find_name(spec.priority)
        return make_own_job(spec, run, resource, self._config.scheduler_name, self._config.shared, named)

    def restore_own(self, job: JobId, run: RunSpec, message: str) -> None:
        """A submitted job waits, as the journal says. message: why it is held."""
        with self.lock:
            self._know_own(run.tolerations)
            self.book.release_own(self.now_ms, job, message)

    def _know_own(self, borne: Sequence[Toleration]) -> None:
        """Have nodes told with what pods of submitted jobs demand that bear these taints."""
        for resource in ("", *self.book.nodes.resources()):
            self.book.nodes.add_lasting_demand(own_demand(resource, borne))

    def shape(self, job: JobSpec, run: RunSpec) -> JobSpec:
        """A job that is submitted, with what its pods demand of nodes; from any thread. Raises InputError where it
        cannot run as pods."""
        if fault := find_fault(job, run):
            raise InputError(f"{job.name or 'a job without a name'}: {fault}")
        with self.lock:
            nodes = self.book.nodes
            found = nodes.find_resource(job.request.device_models) or DEVICE_DEFAULT
            demand = own_demand(found if job.request.devices else "", run.tolerations)
            if nodes.is_full and demand not in nodes.lasting_demands:
                raise InputError(
                    "expected `tolerations` as some other job has them, found more that differ than are kept"
                )
            label = nodes.add_lasting_demand(demand)
            models = job.request.device_models or nodes.models.keep_known(nodes.models.named(found))
            if not nodes.models.has_room(models):
                raise InputError(
                    f"{job.name or 'a job without a name'}: expected device models that nodes have, found others"
                )
        labels = (*job.request.node_labels, label)
        return replace(job, request=replace(job.request, node_labels=labels, device_models=models))

    def forget_own(self, jobs: Iterable[JobId]) -> None:
        """Jobs that have ended while they waited: their Jobs are deleted. From any thread."""
        with self.lock:
            for job in jobs:
                self.book.forget_own(job)
        self.poke()

    def observe(self, now_ms: int) -> Sequence[Event]:
        """What happened since the last call."""
        return self._settle(now_ms)

    def _settle(self, now_ms: int, *, is_first: bool = False) -> Sequence[Event]:
        if self._failure is not None:
            raise InternalError(f"the thread of the Kubernetes backend has ended: {self._failure!r}") from self._failure
        with self.lock:
            self.now_ms = now_ms
            events = self.book.settle(now_ms, is_first=is_first)
        self.poke()
        return events

    def progress(self) -> Mapping[JobId, float]:
        """See `LastingBackend.progress`. Pods say nothing of it."""
        return {}

    def bounds(self) -> Mapping[TenantName, tuple[str, ...]]:
        """See `BoundingBackend.bounds`: the quotas of namespaces."""
        with self.lock:
            found = self.book.quotas.describe_all().items()
        return {ROOT_TENANT if space == DEFAULT_NAMESPACE else TenantName(space): said for space, said in found}

    def close(self) -> None:
        """End the thread; nothing in the cluster is touched."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(self._cancel)
        thread.join()
        self._thread = None

    # --- the thread -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)
        self._thread.start()
        deadline = time.monotonic_ns() + int(READY_S * 1e9)
        for listed in self._listed.values():
            while not listed.wait(0.05):
                if self._failure is not None:
                    raise self._failure
                if time.monotonic_ns() > deadline:
                    self.close()
                    raise UnreachableError(f"kubernetes: expected lists of nodes and pods within {READY_S:.0f} s")

    def _run(self) -> None:
        release = self.guard_thread()
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except Exception as error:  # handed to the thread that waits for the lists
            log.exception("the thread of the Kubernetes backend ended")
            self._failure = error
        finally:
            release()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        client = await Client.connect(self._config, self.may_write)
        self._client = client
        self._binding = Pace(self._config.binds_max)
        # Apart from bindings: a disruption budget's no says nothing of the server.
        self._evicting = asyncio.Semaphore(self._config.binds_max)
        self.reasons = Reasons(client, self._config.scheduler_name)
        self._sharing = Sharing(client, self.book, self.lock)
        self._own_jobs = OwnJobs(client, self.spawn, self._on_refused, self._on_ended)
        readers = await Client.connect(replace(self._config, binds_max=STREAMS_MAX // 2))
        self._logs = LogCollector(readers, Path(self._config.log_folder), self._is_over)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(NODES, self._take_nodes, self._take_node))
                group.create_task(self._follow(PODS, self._take_pods, self._take_pod))
                group.create_task(self.reasons.tell_bound(lambda: self._binding.is_idle))
                group.create_task(self._sharing.look_for_binder(self._changed))
                for path in OTHERS:
                    group.create_task(self._follow(path, *make_takers(path, self.lock, self._put_other)))
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await client.close()
            await readers.close()

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run `work` beside the rest; only from the backend's thread."""

        async def run() -> None:
            try:
                await work
            except (ApiError, UnreachableError) as error:
                log.warning("%s", error)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- watching -------------------------------------------------------------------------------------------------

    async def _follow(self, path: str, take_list: Callable[[list[Json]], None], take: Callable[[Change], None]) -> None:
        """List, then watch, for ever."""
        version, refused, pause_s = "", "", PAUSE_MIN_S
        while True:
            try:
                if not version:
                    items, version = await self._client.list_all(path)
                    take_list(items)
                    if (asked := self._ask_sizes()) and not self._listed[path].is_set():
                        await asyncio.wait(asked, timeout=SIZES_S)
                    self._listed[path].set()
                    self._changed()
                async for changes in self._client.watch(path, version):
                    with self.lock:
                        for change in changes:
                            if change.kind != "BOOKMARK":
                                take(change)
                    version, pause_s = changes[-1].version, PAUSE_MIN_S
                    self._changed()
            except ExpiredError as error:
                log.info("%s is listed anew: %s", path, error)
                version = ""
                await rest(PAUSE_MIN_S)
            except ApiError as error:
                if not self._listed[path].is_set() and path not in OTHERS:
                    raise
                is_new, refused = str(error) != refused, str(error)
                log.log(logging.WARNING if is_new else logging.DEBUG, "%s", error)
                self._listed[path].set()
                version = ""
                pause_s = await rest(pause_s)
            except UnreachableError as error:
                log.info("%s", error)
                pause_s = await rest(max(pause_s, error.retry_after_s))

    def _put_other(self, kind: str, change: Change) -> None:
        try:
            self.book.put_other(kind, change.data, is_gone=change.kind == "DELETED")
        except UnreadableError as error:
            log.warning("left out: %s", error)
        except Exception:  # about this object alone
            self._note_fault(kind, change.data)

    def _take_nodes(self, items: list[Json]) -> None:
        names = set()
        with self.lock:
            for data in items:
                names.add(data["metadata"]["name"])
                self._put_node(data)
            for name in set(self.book.nodes.entries) - names:
                self.book.nodes.drop(name)

    def _take_node(self, change: Change) -> None:
        if change.kind == "DELETED":
            self.book.nodes.drop(change.data["metadata"]["name"])
        else:
            self._put_node(change.data)

    def _put_node(self, data: Json) -> None:
        try:
            self.book.nodes.put(parse_node(data, self._config))
        except UnreadableError as error:
            log.warning("left out: %s", error)

    def _take_pods(self, items: list[Json]) -> None:
        with self.lock:
            # A list comes by name; who came first is looked at first.
            for data in sorted(items, key=lambda data: data["metadata"].get("creationTimestamp") or ""):
                self._put_pod(data)
            self.book.keep_pods(data["metadata"]["uid"] for data in items)

    def _take_pod(self, change: Change) -> None:
        if change.kind == "DELETED":
            self.book.drop_pod(change.data["metadata"]["uid"])
        else:
            self._put_pod(change.data)

    def _note_fault(self, kind: str, data: Json) -> None:
        """In an `except`: an object could not be judged as it is."""
        metadata = data["metadata"]
        name = f"{kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        self.book.guard.note((kind, metadata.get("uid")), metadata.get("resourceVersion"), name)

    def _put_pod(self, data: Json) -> None:
        try:
            known = self.book.pods.get(data["metadata"]["uid"])
            self.book.put_pod(parse_pod(data, self._config, known))
        except UnreadableError as error:
            log.warning("left out: %s", error)
            self._refuse_unread(data, str(error))
        except Exception:  # about this pod alone
            self._note_fault("pod", data)
            self._refuse_unread(data, BROKEN)

    def _refuse_unread(self, data: Json, message: str) -> None:
        """A pod that cannot be read is told so, if it waits for us."""
        pod = parse_stub(data)
        if pod is not None and pod.scheduler == self._config.scheduler_name and not pod.node:
            self.book.refuse_pod(pod, message)
            self.poke()

    def _changed(self) -> None:
        """The book changed: look up what it wants to know, offer what became whole, and wake the driver."""
        with self.lock:
            if self._is_served:
                self.book.look_at_new(self.now_ms)
            is_urgent = not self._is_served or self.book.is_urgent
        self._ask_sizes()
        self._on_change()
        self._wake_soon(is_urgent=is_urgent)

    def _wake_soon(self, *, is_urgent: bool) -> None:
        if is_urgent:
            self._wake()
        elif not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_later(STARTED_S, self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        if self._world is not None:
            self._world.wake()

    def _ask_sizes(self) -> list[asyncio.Task[None]]:
        """Read what the book wants to know of gangs. Where it cannot be read their pods wait, and are told so: none
        starts alone."""
        with self.lock:
            wanted = self.book.take_wanted()
        return [self.spawn(self._look_up(source)) for source in wanted]

    async def _look_up(self, source: Source) -> None:
        size, is_gone, said = await read_size(self._client, source)
        with self.lock:
            self.book.put_size(source, size, is_gone=is_gone, said=said)
        self._changed()

    # --- acting ---------------------------------------------------------------------------------------------------

    def serve(self, on_change: Callable[[], None], work: Callable[[], Awaitable[None]]) -> None:
        """Have `on_change` called in the backend's thread after each change of the book, and run `work` there."""
        loop = self._loop
        assert loop is not None, "nodes comes first"
        self._on_change, self._is_served = on_change, True
        loop.call_soon_threadsafe(lambda: self.spawn(work()))
        self.poke()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Have `call` called in the backend's thread after so many seconds; from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: loop.call_later(seconds, call))

    def poke(self) -> None:
        """Have the backend's thread carry out what the book asks for; from any thread."""
        loop = self._loop
        if loop is not None and not self._is_poked and not loop.is_closed():
            self._is_poked = True
            loop.call_soon_threadsafe(self._act)

    def _act(self) -> None:
        self._is_poked = False  # before the book is read: what comes after that pokes again
        with self.lock:
            actions, is_urgent = self.book.take_actions(), not self._is_served or self.book.is_urgent
        self._ask_sizes()
        for action in actions:
            self.spawn(self._carry_out(action))
        self._on_change()
        if self._has_performed:  # else it was the driver that just looked
            self._has_performed = False
            self._wake_soon(is_urgent=is_urgent)

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Bind(pod, node):
                ready = await self._await_volumes(pod, node) and await self._write_claims(pod)
                if ready and await self._bind(action):
                    self.reasons.note_bound(pod, node)
                self.reasons.forget(pod.uid)
            case Evict(pod, why):
                evict = partial(self._client.evict, pod.namespace, pod.name, pod.uid)
                if await self._insist(pod, self._evicting, evict) and why:
                    await self.reasons.note_preempted(pod, why)
            case Scale():
                await self._scale(action)
            case Unpark(namespace, uid):
                await unpark_job(self._client, namespace, uid)
            case Unclaim(pod, claims):
                await self._insist(pod, nullcontext(), partial(take_back_claims, self._client, pod, claims))
            case Refuse(pod, message):
                await self.reasons.insist(pod, message)
            case Launch() | End():
                self._own_jobs.ask(action)
            case Inquire():
                await self._inquire(action)
            case Follow(job, pod):
                await self._logs.follow(job, pod)
                with self.lock:
                    self.book.note_followed(job, pod.uid)
                self._changed()

    async def _bind(self, bind: Bind) -> bool:
        """Whether the pod is bound, by whoever must do it."""
        pod, node = bind.pod, bind.node
        if bind.device is not None:
            return await self._insist(pod, nullcontext(), partial(self._sharing.ask_binder, bind))

        def call(told: dict[str, str]) -> Awaitable[bool]:
            put = partial(self._client.bind, pod.namespace, pod.name, pod.uid, node, told)
            return self._insist(pod, self._binding, put)

        told = dict(bind.annotations)
        return await (self._sharing.in_turn(bind, call) if PHASE in told else call(told))

    async def _await_volumes(self, pod: PodFacts, node: str) -> bool:
        """Whether the pod's claims are bound. They may take minutes, in which they keep no other binding waiting."""
        if not pod.claims:
            return True
        bind = partial(bind_volumes, self._client, self.book.nodes, self.lock, pod, node)
        return await self._insist(pod, nullcontext(), bind)

    async def _write_claims(self, pod: PodFacts) -> bool:
        """Whether the pod's claims on devices say which it has."""
        if not pod.device_claims:
            return True
        write = partial(write_claims, self._client, self.book.nodes.claims, self.lock, pod)
        return await self._insist(pod, nullcontext(), write)

    async def _scale(self, scale: Scale) -> None:
        if refusal := await scale_job(self._client, scale):
            log.warning("job %d: %s", scale.job, refusal)
            with self.lock:
                self.book.refuse_scale(self.now_ms, scale.job, refusal)
            self._changed()

    async def _inquire(self, about: Inquire) -> None:
        if refusal := await find_refusal(self._client, about):
            with self.lock:
                self.book.note_refusal(self.now_ms, about.job, about.generation, refusal)
            self._changed()

    # --- what became of submitted jobs, in the backend's thread ---------------------------------------------------

    def _on_refused(self, job: JobId, reason: str, is_for_now: bool) -> None:
        with self.lock:
            self.book.refuse_own(self.now_ms, job, reason, is_for_now=is_for_now)
        self._changed()

    def _on_ended(self, job: JobId, is_there: bool) -> None:
        with self.lock:
            self.book.note_ended(job, is_there=is_there)
        self._changed()

    def _is_over(self, uid: str) -> bool:
        with self.lock:
            return (pod := self.book.pods.get(uid)) is None or pod.is_over

    async def _insist(
        self, pod: PodFacts, gate: AbstractAsyncContextManager[None], call: Callable[[], Awaitable[None]]
    ) -> bool:
        """Call until it is done, or no longer means anything; whether it is done."""
        pause_s = PAUSE_MIN_S
        while True:
            with self.lock:
                if pod.uid not in self.book.pods:
                    return False
            try:
                async with gate:
                    await call()
                return True
            except UnreachableError as error:
                log.info("pod %s/%s: %s; trying again", pod.namespace, pod.name, error)
                pause_s = await rest(max(pause_s, error.retry_after_s))
            except ApiError as error:
                log.warning("pod %s/%s: %s", pod.namespace, pod.name, error)
                await asyncio.sleep(REFUSED_S)
                with self.lock:
                    self.book.note_refused_call(self.now_ms, pod.uid, error.status, str(error))
                self._changed()
                return False


def _nothing() -> None:
    """Nobody is served yet."""
