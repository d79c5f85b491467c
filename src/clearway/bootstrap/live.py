"""The composition root of a control plane on this machine: configuration, kernel, store, backend, controller, server.

One at a time per state directory, by a lock that the operating system gives up with the process: what was killed leaves
nothing that must be tidied. Stopping leaves jobs alone; the next start finds them again.
"""

import contextlib
import fcntl
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clearway import __version__
from clearway.adapters.local.backend import LocalBackend
from clearway.adapters.local.config import LocalConfig
from clearway.adapters.local.keeper.host import Settings as KeeperSettings
from clearway.adapters.storage import SqlStore, open_store
from clearway.bootstrap.configuration import read_config_file, resolve_policy
from clearway.bootstrap.demo.story import DEMO_CONFIG
from clearway.bootstrap.fanout import Feed, start_feed
from clearway.bootstrap.journal import database_url, guard_of, snapshots_of
from clearway.bootstrap.leftovers import find_leftovers, remove_leftovers
from clearway.bootstrap.logs import start_logging
from clearway.bootstrap.machine import KEEPER_FOLDER, find_devices
from clearway.bootstrap.places import (
    FOLDER_MODE,
    Places,
    Running,
    current_user,
    find_state_dir,
    only_account,
    read_running,
    read_secret,
    write_private,
    write_running,
)
from clearway.bootstrap.policies import fit_to_pods
from clearway.bootstrap.rehearsal import rehearse
from clearway.bootstrap.settings import make_server_settings
from clearway.bootstrap.snapshots import SnapshotMaker, snapshot_command
from clearway.client import Client
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.clock import SystemClock
from clearway.live.controller import Controller
from clearway.live.settings import ControlSettings
from clearway.model.errors import InputError, InternalError, MissingExtraError
from clearway.ports.backend import LastingBackend
from clearway.ports.control import Removed
from clearway.ports.storage import StorageError, Store
from clearway.ports.views import NodeState
from clearway.server.app import make_app
from clearway.server.auth import TokenFile, make_token_file
from clearway.server.serving import Server
from clearway.wire.config import Config, is_loopback, parse_config, parse_listen
from clearway.wire.problems import ParseError

if TYPE_CHECKING:
    from clearway.bootstrap.kubernetes import Pods

_LOG = logging.getLogger(__name__)

STOP_S: Final = 30.0
POLICY_S: Final = 600.0
"""Longest wait for another policy: without a good snapshot the whole journal is read."""
SWITCH_S: Final = 0.000_5
"""How long one thread of the interpreter computes while others wait."""
GC_THRESHOLDS: Final = (20_000, 20, 50)
"""Of collections: waiting jobs by the hundred thousand are looked through seldom, for nothing else goes on then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest:
    """What the command line says. listen, devices: "" = as configured.

    backend: `local` or `kubernetes`. kubeconfig, kube_context: of the latter; None and "" = as kubectl would choose.
    is_demo: without a configuration file, the demonstration's is in force.
    """

    config_file: Path | None = None
    state_dir: Path | None = None
    listen: str = ""
    devices: str = ""
    backend: str = "local"
    kubeconfig: Path | None = None
    kube_context: str = ""
    is_demo: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


class ControlPlane:
    """A control plane that runs. places: its files. is_first_start: the token was made now. notes: what this machine
    cannot do, for people."""

    def __init__(
        self,
        *,
        places: Places,
        config: Config,
        config_file: Path | None,
        lock: int,
        store: Store,
        controller: Controller,
        server: Server,
        is_first_start: bool,
        notes: Sequence[str] = (),
        pods: "Pods | None" = None,
    ) -> None:
        self.places = places
        self.notes = tuple(notes)
        self._pods = pods
        self.is_first_start = is_first_start
        self._config = config
        self._config_file = config_file
        self._lock = lock
        self._store = store
        self._controller = controller
        self._server = server
        self._failure: BaseException | None = None
        self._reloading = threading.Lock()
        self._feed: Feed | None = None
        self._snapshots = SnapshotMaker(
            snapshot_command(places.folder), lambda: controller.last_record, begun=controller.read_from
        )
        self._thread = threading.Thread(target=self._run, name="clearway-control")

    @property
    def url(self) -> str:
        """Where it is served."""
        return self._server.url

    def begin(self) -> None:
        """Start the thread of the controller, remove what the file names no more, then serve, then say so in
        `server.json`."""
        self._thread.start()
        if self._config_file is not None:
            self.notes += tuple(self._remove_leftovers(self._config_file))
        self._server.start()
        if self._config.redis_url is not None:
            url, prefix = self._config.redis_url, self._config.redis_prefix
            self._feed = start_feed(self._controller, url, _LOG.warning, prefix=prefix)
        source = str(self._config_file.absolute()) if self._config_file else ""
        running = Running(url=self.url, pid=os.getpid(), version=__version__, config=source, ca_file=self._certificate)
        write_running(self.places, running)
        self._snapshots.begin()

    def _remove_leftovers(self, file: Path) -> Sequence[str]:
        def wait(asked: "Future[None]") -> None:
            _await(asked, STOP_S, "queues and tenants")

        try:
            return remove_leftovers(self._controller, self._config, file, wait, are_pods=self._pods is not None)
        except StorageError as error:
            return (str(error),)

    def _run(self) -> None:
        try:
            self._controller.run()
        except BaseException as error:
            self._failure = error
            raise

    def check(self) -> None:
        """Raise what ended the controller, if it has ended by itself."""
        if self._failure is not None:
            raise InternalError(f"the control plane has stopped: {self._failure}") from self._failure
        if self._pods is not None:
            self._pods.check()

    def client(self) -> Client:
        """A client in the operator's name."""
        return Client(self.url, read_secret(self.places.token), ca_file=self._certificate or None)

    @property
    def _certificate(self) -> str:
        return str(self._config.tls[0].absolute()) if self._config.tls else ""

    def summary(self) -> dict[str, object]:
        """Words for the line that says that it is ready."""
        cluster = self._controller.cluster()
        nodes = [node for node in cluster.nodes if node.state is not NodeState.DOWN]
        devices = sum(len(node.devices) for node in nodes)
        return {"url": self.url, "devices": devices, "nodes": len(nodes), "policy": cluster.policy}

    def reload(self, actor: str) -> Sequence[str]:
        """Read the configuration again; what came of it, a sentence each. Raises InputError, and nothing changed;
        StorageError says what changed and what did not."""
        if self._config_file is None:
            raise InputError("expected a configuration file to read again, found none; start with --config FILE")
        with self._reloading:
            config, before = read_config_file(self._config_file), self._config
            policy = resolve_policy(config)
            named = None if self._pods is None else [tenant.name for tenant in before.site.tenants]
            removed = find_leftovers(self._controller.cluster(), config, named_before=named)
            site = config.site
            asked = self._controller.set_site(site.queues, site.tenants, actor=actor, removed=removed)
            _await(asked, STOP_S, "queues, tenants and policy")
            if self._pods is not None:
                self._pods.set_queues(site.queues)
            kept = replace(config, state_dir=before.state_dir, listen=before.listen)
            self._config = replace(kept, policy=before.policy, document=before.document)
            notes = _note_site(self._config_file, removed)
            if policy != resolve_policy(before):
                fitted = policy if self._pods is None else fit_to_pods(policy)
                said = "queues and tenants are in force, but the policy"
                _await(self._controller.set_policy(fitted), POLICY_S, said)
                notes.append(f"policy is {policy.name}")
            self._config = kept
            return [*notes, *_note_unchanged(before, config)]

    def stop(self) -> None:
        """Stop serving, let the controller end its turn, let go of everything. Jobs go on."""
        self._snapshots.stop()
        if self._feed is not None:
            self._feed.stop()
        with contextlib.suppress(FileNotFoundError):
            self.places.server.unlink()
        self._server.stop()
        self._controller.close()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        if self._pods is not None:
            self._pods.release()
        self._store.close()
        os.close(self._lock)


def start_control_plane(request: UpRequest, progress: Callable[[int, int], None]) -> ControlPlane:
    """Everything from reading the configuration to taking requests. Raises InputError, StorageError, JournalError.

    progress: called with (done, in all) while the engine is compiled; what it raises ends the start.
    """
    config = _read(request)
    start_logging(config.log_level)
    policy = resolve_policy(config)
    places = Places(config.state_dir or find_state_dir(request.environment))
    lock = take_lock(places)
    store: SqlStore | None = None
    try:
        places.server.unlink(missing_ok=True)  # of one that was killed
        is_first_start = _make_token(places)
        site = config.site
        pods = _make_pods(request, config, places)
        if config.lease:
            rehearse(policy, progress)
        leads = pods is not None and pods.lead(config.address, lambda: progress(1, 1))
        store = open_store(database_url(places, config), take_over=leads)
        if not config.lease:
            rehearse(policy, progress)
        backend = _make_local(request, config, places) if pods is None else pods.backend
        make_kernel = Kernel if pods is None else pods.make_kernel
        kernel = make_kernel(policy, RuntimeHistory())
        controller = Controller(
            kernel,
            backend,
            store,
            SystemClock(),
            queues=site.queues,
            tenants=site.tenants,
            power_budget_watts=config.power_budget_watts,
            links=config.links,
            settings=ControlSettings(guard=guard_of(config), paces_starts=pods is None),
            snapshots=snapshots_of(places, store.reader),
        )
        controller.start()
        server, bind = _make_server(config, places, controller, store, pods)
        plane = ControlPlane(
            places=places,
            config=config,
            config_file=request.config_file,
            lock=lock,
            store=store,
            controller=controller,
            server=server,
            is_first_start=is_first_start,
            notes=backend.notes if isinstance(backend, LocalBackend) else (),
            pods=pods,
        )
        bind.append(plane)
    except BaseException:
        if store is not None:
            store.close()
        os.close(lock)
        raise
    _tune_interpreter()
    try:
        plane.begin()
        if pods is not None:
            pods.begin_intake(controller, store)
    except BaseException:
        plane.stop()
        raise
    return plane


def _tune_interpreter() -> None:
    """Have a server that answers while the controller computes: threads take turns more often than every 5 ms, and
    collections do not look at what was there before the first job."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _make_local(request: UpRequest, config: Config, places: Places) -> LastingBackend:
    return LocalBackend(_local_config(request, config, places), find_devices(config, request.devices, places.folder))


def _make_pods(request: UpRequest, config: Config, places: Places) -> "Pods | None":
    """What schedules a Kubernetes cluster, where that is asked for. Raises InputError, MissingExtraError."""
    if request.backend == "local":
        return None
    if request.backend != "kubernetes":
        raise InputError(f"--backend: expected local or kubernetes, found {request.backend!r}")
    if config.power_budget_watts is not None:
        raise InputError("power_budget: expected none with --backend kubernetes, found one; no device is capped there")
    try:
        from clearway.adapters.kubernetes.config import KubernetesConfig, SharedFolder
        from clearway.bootstrap.kubernetes import Pods, find_kubeconfig
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a Kubernetes cluster needs the extra `kubernetes`: pip install clearway[kubernetes]"
        ) from error
    places.logs.mkdir(mode=0o700, exist_ok=True)  # by it further servers know where logs are
    settings = KubernetesConfig(
        kubeconfig=find_kubeconfig(request.environment, request.kubeconfig),
        context=request.kube_context,
        shared=SharedFolder(path=config.shared_folder, claim=config.shared_claim),
        log_folder=str(places.logs),
        lease=config.lease,
        lease_ms=config.lease_ms,
    )
    return Pods(settings, config.site.queues)


def _read(request: UpRequest) -> Config:
    """The configuration with what the command line says over it."""
    config = read_config_file(request.config_file)
    if request.is_demo and request.config_file is None:
        config = parse_config(DEMO_CONFIG, source="demonstration.yaml")
    if request.state_dir is not None:
        config = replace(config, state_dir=request.state_dir.expanduser().absolute())
    if request.listen:
        try:
            host, _ = parse_listen(request.listen)
        except ParseError as error:
            raise InputError(f"--listen: {error}") from error
        if config.tls is None and not is_loopback(host):
            raise InputError(f"--listen: expected TLS for a public address, found {request.listen!r}; configure `tls`")
        config = replace(config, listen=request.listen)
    return config


def take_lock(places: Places) -> int:
    """The lock of a state directory, which is made if need be. Raises InputError where it cannot be, or somebody else
    has it."""
    try:
        places.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"{places.folder}: expected a folder that {current_user()} may write, found {error.strerror}; choose "
            "another --state-dir"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        running = read_running(places)
        found = f"one at {running.url}, process {running.pid}" if running else "one that starts or stops"
        raise InputError(
            f"{places.folder}: expected no control plane, found {found}; `clearway down` stops it, or choose another "
            "--state-dir"
        ) from error
    return descriptor


def _make_token(places: Places) -> bool:
    """Make the file of tokens and the operator's token at the first start; whether it is the first."""
    if os.path.lexists(places.tokens):
        return False
    user = current_user()
    write_private(places.token, make_token_file(places.tokens, user=user, unix_user=user) + "\n")
    return True


def _local_config(request: UpRequest, config: Config, places: Places) -> LocalConfig:
    return LocalConfig(
        state=places.folder / KEEPER_FOLDER,
        account=only_account(),
        settings=KeeperSettings(kill_wait_ms=config.kill_wait_ms),
        docker_host=request.environment.get("DOCKER_HOST", ""),
    )


def _make_server(
    config: Config, places: Places, controller: Controller, store: Store, pods: "Pods | None"
) -> tuple[Server, list[ControlPlane]]:
    """The server, and the list into which to put the control plane that its `reload` speaks to."""
    settings = make_server_settings(config, "" if pods is None else pods.log_folder)
    clock = SystemClock()
    planes: list[ControlPlane] = []
    app = make_app(
        controller,
        store.reader,
        TokenFile(places.tokens, clock.now_ms),
        settings,
        reload=lambda actor: planes[0].reload(actor),
        now_ms=clock.now_ms,
        shape=None if pods is None else pods.backend.shape,
    )
    return Server(app, settings), planes


def _await(future: "Future[None]", seconds: float, what: str) -> None:
    """Raise StorageError where it is not known, or known not to be, that `what` was taken over."""
    try:
        future.result(seconds)
    except TimeoutError as error:
        raise StorageError(
            f"{what}: expected an answer of the control plane within {seconds:g} s, found none; it may still be taken "
            "over: look, and reload again"
        ) from error
    except StorageError as error:
        raise StorageError(f"{what}: not taken over: {error}; reload again") from error


def _note_site(file: Path, removed: Removed) -> list[str]:
    notes = [f"queues and tenants of {file} are in force"]
    for what, names in (("queues", removed.queues), ("tenants", removed.tenants)):
        if names:
            notes.append(f"{what} removed: {', '.join(names)}")
    return notes


def _note_unchanged(before: Config, after: Config) -> list[str]:
    """What is only read at a start, where it has changed."""
    names = (
        "listen",
        "host_names",
        "tls",
        "database_url",
        "redis_url",
        "redis_prefix",
        "devices",
        "visible_devices",
        "cluster",
        "kill_wait_ms",
        "links",
        "power_budget_watts",
        "retries",
        "log_level",
    )
    changed = [name.removesuffix("_ms") for name in names if getattr(before, name) != getattr(after, name)]
    return [f"{', '.join(changed)}: taken over by the next start"] if changed else []
