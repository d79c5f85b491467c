"""Runs an application: binds its port or says why not, serves in a thread of its own, stops cleanly."""

import asyncio
import ipaddress
import socket
import threading
from typing import Final

import uvicorn
from fastapi import FastAPI

from clearway.model.errors import InputError, InternalError
from clearway.server.services import Services
from clearway.server.settings import ServerSettings, check_listen_address

BACKLOG: Final = 1_024
START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 5
"""Requests in progress get so long to end."""

KEEP_ALIVE_S: Final = 60

CONNECTIONS_MAX: Final = 4_000
"""Connections at once, streams among them; further ones are answered 503 at once."""


class Server:
    """Serves `app` at the address of `settings`, from `start` to `stop`; by HTTPS alone where a certificate is given.

    has_auth: whether the application knows its callers; without, only this machine may reach it.
    """

    def __init__(self, app: FastAPI, settings: ServerSettings, *, has_auth: bool = True) -> None:
        check_listen_address(settings.host, has_tls=settings.has_tls, has_auth=has_auth)
        self._app = app
        self._settings = settings
        self._socket: socket.socket | None = None
        self._uvicorn: _Uvicorn | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where clients of this machine find it. Only while it runs."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        # Who listens at every address is found at this machine's own.
        is_every = ipaddress.ip_address(host).is_unspecified
        shown = host if not is_every else "::1" if ":" in host else "127.0.0.1"
        scheme = "https" if self._settings.has_tls else "http"
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}"

    def start(self) -> None:
        """Begin to serve; returns when requests are taken. Raises InputError where the address cannot be had."""
        self._socket = bind_socket(self._settings.host, self._settings.port)
        try:
            self._uvicorn = _Uvicorn(self._configure())
        except OSError as error:
            self._socket.close()
            raise InputError(f"expected a certificate and its key for TLS, found none to use: {error}") from error
        self._thread = threading.Thread(target=self._run, name="clearway-server", daemon=True)
        self._thread.start()
        self._uvicorn.settled.wait(START_S_MAX)
        if not self._uvicorn.started:
            self.stop()
            raise InternalError("expected the server to start, found that it did not; its log has the story")

    def stop(self) -> None:
        """End streams, let requests end, give the port back. Nothing where it does not run."""
        if self._uvicorn is None or self._thread is None:
            return
        services: Services = self._app.state.services
        services.hub.close_soon()
        self._uvicorn.should_exit = True
        self._thread.join(STOP_S_MAX + 5)
        if self._thread.is_alive():
            self._uvicorn.force_exit = True
            self._thread.join(STOP_S_MAX)
        self._uvicorn = self._thread = None

    def _run(self) -> None:
        assert self._uvicorn is not None
        assert self._socket is not None
        try:
            asyncio.run(self._uvicorn.serve(sockets=[self._socket]))
        finally:
            self._socket.close()
            self._uvicorn.settled.set()

    def _configure(self) -> uvicorn.Config:
        settings = self._settings
        config = uvicorn.Config(
            self._app,
            access_log=False,
            backlog=BACKLOG,
            date_header=False,
            http="h11",
            limit_concurrency=CONNECTIONS_MAX,
            lifespan="on",
            log_config=None,
            # Whoever stands before the server could otherwise say where requests come from.
            proxy_headers=False,
            server_header=False,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.private_key,
            timeout_graceful_shutdown=STOP_S_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            ws="none",
        )
        config.load()
        return config


class _Uvicorn(uvicorn.Server):
    """Says when it takes requests. settled: it does, or it has ended."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self.settled.set()


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError that says why there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"expected an address of this machine, found {host!r}: {error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise InputError(
            f"expected to listen at {host} port {port}, found that this cannot be: {error.strerror}; "
            f"is another server running? choose another port, or 0 for any"
        ) from error
    return bound
