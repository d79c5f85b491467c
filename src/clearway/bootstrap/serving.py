"""The composition root of a further API server: the storage for rows, Redis for what is live, and the control plane's
own API for all that changes something."""

import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import httpx

from clearway.adapters.redis_live import open_fanout
from clearway.adapters.storage import open_reader
from clearway.bootstrap.configuration import read_config_file
from clearway.bootstrap.journal import database_url
from clearway.bootstrap.logs import start_logging
from clearway.bootstrap.places import Places, find_state_dir, read_running
from clearway.bootstrap.settings import make_server_settings
from clearway.live.clock import SystemClock
from clearway.model.errors import InputError
from clearway.server.app import make_app
from clearway.server.auth import TokenFile
from clearway.server.remote import RemoteControl
from clearway.server.serving import Server
from clearway.wire.config import Config, is_loopback, parse_listen
from clearway.wire.problems import ParseError

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often the control plane is asked whether it takes submits."""

ANSWER_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """What the command line says. control: address of the control plane; "" = as its state directory says."""

    listen: str
    config_file: Path | None = None
    state_dir: Path | None = None
    control: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


class Watch:
    """Looks whether the control plane takes submits, from `begin` to `stop`. find: see `server.forward.Find`."""

    def __init__(self, find: Callable[[], tuple[str, str] | None]) -> None:
        self._find = find
        self._closing = threading.Event()
        self.problem = "read-only: the control plane was not asked yet"
        self._thread = threading.Thread(target=self._work, name="clearway-watch", daemon=True)

    def begin(self) -> None:
        """Look once, then go on in a thread."""
        self.problem = self._look()
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.problem = self._look()

    def _look(self) -> str:
        place = self._find()
        if place is None:
            return "read-only: no control plane runs"
        url, certificate = place
        try:
            answer = httpx.get(f"{url}/ready", timeout=ANSWER_S, verify=_trust(certificate), trust_env=False)
            if answer.status_code == httpx.codes.OK:
                return ""
            return f"read-only: the control plane at {url} says: {answer.json().get('detail', answer.status_code)}"
        except (httpx.HTTPError, OSError, ValueError):
            return f"read-only: the control plane at {url} does not answer"


def _trust(certificate: str) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=certificate) if certificate else True


class ApiServer:
    """Serves until `stop`. closes: what is let go of then."""

    def __init__(self, server: Server, watch: Watch, closes: Sequence[Callable[[], None]]) -> None:
        self._server, self._watch, self._closes = server, watch, tuple(closes)

    @property
    def url(self) -> str:
        """Where it is served."""
        return self._server.url

    @property
    def problem(self) -> str:
        """Why it is read-only now; "" = it is not."""
        return self._watch.problem

    def begin(self) -> None:
        """Start to watch the control plane, and to serve."""
        self._watch.begin()
        self._server.start()

    def stop(self) -> None:
        """Stop serving, and let go of everything. The control plane goes on."""
        self._server.stop()
        self._watch.stop()
        for close in self._closes:
            close()


def start_api_server(request: ServeRequest) -> ApiServer:
    """Everything from reading the configuration to taking requests. Raises InputError, StorageError, JournalError."""
    config = _read(request)
    start_logging(config.log_level)
    places = Places(config.state_dir or find_state_dir(request.environment))
    find = _finder(places, request.control, config)
    reader = open_reader(database_url(places, config))
    assert config.redis_url is not None
    fanout = open_fanout(config.redis_url, tell=_LOG.warning, prefix=config.redis_prefix)
    try:
        clock, watch = SystemClock(), Watch(find)
        settings = make_server_settings(config, str(places.logs) if places.logs.is_dir() else "")
        app = make_app(
            RemoteControl(fanout, reader, lambda: watch.problem),
            reader,
            TokenFile(places.tokens, clock.now_ms),
            settings,
            now_ms=clock.now_ms,
            find_control=find,
        )
        server = ApiServer(Server(app, settings), watch, (fanout.close, reader.close))
        server.begin()
    except BaseException:
        fanout.close()
        reader.close()
        raise
    return server


def _finder(places: Places, asked: str, config: Config) -> Callable[[], tuple[str, str] | None]:
    """Where the control plane is: as asked, else by the file that it leaves in its state directory."""
    certificate = str(config.tls[0].absolute()) if config.tls else ""

    def find() -> tuple[str, str] | None:
        if asked:
            return asked.rstrip("/"), certificate
        running = read_running(places)
        return None if running is None else (running.url, running.ca_file)

    return find


def _read(request: ServeRequest) -> Config:
    """The configuration with what the command line says over it."""
    config = read_config_file(request.config_file)
    if config.redis_url is None:
        raise InputError(
            "expected `redis_url` in the configuration, which carries live state to further servers, found none; "
            "set it, and restart the control plane with it"
        )
    if request.state_dir is not None:
        config = replace(config, state_dir=request.state_dir.expanduser().absolute())
    try:
        host, _ = parse_listen(request.listen)
    except ParseError as error:
        raise InputError(f"--listen: {error}") from error
    if config.tls is None and not is_loopback(host):
        raise InputError(f"--listen: expected TLS for a public address, found {request.listen!r}; configure `tls`")
    return replace(config, listen=request.listen)
