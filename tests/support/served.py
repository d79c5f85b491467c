"""A server over a control plane in memory, with a caller of each kind: asked in the process, or over its port."""

import asyncio
import functools
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from clearway.client import Client
from clearway.model.ids import TenantName
from clearway.server.app import make_app
from clearway.server.auth import Role, TokenFile, add_user, expire_user, make_token_file
from clearway.server.serving import Server
from clearway.server.settings import ServerSettings
from support.fake_control import NOW_MS, FakeControl

TENANTS: Mapping[str, str | None] = {
    "vision": None,
    "vision-students": "vision",
    "vision2": None,
    "Vision": None,
    "vis": None,
    "visión": None,
    "nlp": None,
}
"""Names that begin alike, differ by case or by an accent; one lies below another."""

CALLERS: Mapping[str, tuple[Role, tuple[str, ...]]] = {
    "op": (Role.OPERATOR, ()),
    "ada": (Role.USER, ("vision",)),
    "bob": (Role.USER, ("vision",)),
    "eve": (Role.USER, ("vision2",)),
    "nia": (Role.USER, ("nlp",)),
    "lead": (Role.TENANT_ADMIN, ("vision",)),
    "view": (Role.VIEWER, ("vision",)),
    "late": (Role.USER, ("vision",)),
}
"""`late` is expired."""


def add_user_of(site: "Site", user: str, role: Role, tenant: str) -> None:
    """One more caller."""
    site.tokens[user] = add_user(site.token_file, user=user, role=role, tenants=(TenantName(tenant),))


@dataclass(frozen=True)
class Site:
    """All parts of one server. tokens: by user; "wrong" is of the right form, and nobody's."""

    control: FakeControl
    app: FastAPI
    settings: ServerSettings
    token_file: Path
    tokens: dict[str, str]
    reloads: list[str] = field(default_factory=list)

    def bearer(self, user: str) -> dict[str, str]:
        """The header by which `user` is known; "" = none."""
        return {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}


@functools.cache
def _make_tokens() -> tuple[bytes, Mapping[str, str]]:
    """What the token file holds, made once: each change of it waits for the disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.json"
        tokens = {"op": make_token_file(path, user="op")}
        for user, (role, names) in CALLERS.items():
            if user != "op":
                named = tuple(TenantName(name) for name in names)
                tokens[user] = add_user(path, user=user, role=role, tenants=named)
        expire_user(path, user="late", expires_ms=NOW_MS)
        tokens["wrong"] = tokens["ada"][:-4] + "0000"
        return path.read_bytes(), tokens


def make_site(
    folder: Path, *, settings: ServerSettings | None = None, tenants: Mapping[str, str | None] = TENANTS
) -> Site:
    """A server that does not run yet."""
    path = folder / "tokens.json"
    text, tokens = _make_tokens()
    path.touch(mode=0o600)
    path.write_bytes(text)
    control = FakeControl(tenants=tenants)
    settings = settings or ServerSettings(port=0, heartbeat_s=0.2, log_poll_s=0.02, answer_s=5.0)
    reloads: list[str] = []

    def reload(actor: str) -> tuple[str, ...]:
        reloads.append(actor)
        return ("2 queues",)

    app = make_app(
        control,
        control.reader,
        TokenFile(path, lambda: control.now_ms),
        settings,
        reload=reload,
        now_ms=lambda: control.now_ms,
    )
    return Site(control=control, app=app, settings=settings, token_file=path, tokens=dict(tokens), reloads=reloads)


class Web:
    """Asks an application in this process, for everything but streams. An error of the application's own is raised."""

    def __init__(self, app: FastAPI, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One answer."""
        asked = self._client.request(method, path, **options)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(30)


@contextmanager
def asked(site: Site) -> Iterator[Web]:
    """The application, begun and ended in an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    life = site.app.router.lifespan_context(site.app)
    asyncio.run_coroutine_threadsafe(life.__aenter__(), loop).result(10)
    try:
        yield Web(site.app, loop)
    finally:
        asyncio.run_coroutine_threadsafe(life.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def running(site: Site) -> Iterator[Server]:
    """The application behind a port."""
    server = Server(site.app, site.settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def client_of(server: Server, site: Site, user: str) -> Iterator[Client]:
    """A client of a running server."""
    with Client(server.url, site.tokens.get(user, ""), timeout_s=10.0) as client:
        yield client
