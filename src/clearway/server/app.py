"""The application: routes, guards and errors around one control plane."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import clearway
from clearway.ports.control import Control
from clearway.ports.storage import JobReader
from clearway.server import routes_cluster, routes_jobs, routes_server
from clearway.server.access import ROUTES, Permission
from clearway.server.auth import Auth
from clearway.server.forward import Find, Forward, Relay
from clearway.server.gate import Gate
from clearway.server.metrics import RequestMetrics
from clearway.server.problems import install_problems
from clearway.server.services import Services
from clearway.server.settings import ServerSettings
from clearway.server.submissions import Shape
from clearway.wire.api import API

DESCRIPTION: Final = """Submit jobs, look at them, and at the cluster that runs them.

Every request but `/health` and `/ready` needs a token in the header `Authorization: Bearer ...`. Errors are
`application/problem+json` with `detail`, and `expected`, `found` and `hint` where there are such. Times are Unix
milliseconds; devices and CPUs are counted in thousandths where a name ends in `_milli`.
"""


def read_clock_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def make_app(
    control: Control,
    reader: JobReader,
    auth: Auth,
    settings: ServerSettings,
    *,
    reload: Callable[[str], Sequence[str]] | None = None,
    now_ms: Callable[[], int] = read_clock_ms,
    shape: Shape | None = None,
    find_control: Find | None = None,
) -> FastAPI:
    """An application that speaks for `control`.

    reload: reads the configuration again in the name of a user, and returns notes; None = it cannot be. shape: see
    `parse_submission`. find_control: where what changes something is passed on to; None = it is done here.
    """
    services = Services(control, reader, auth, settings, reload=reload, now_ms=now_ms, shape=shape)

    relay = None if find_control is None else Relay(find_control)

    @asynccontextmanager
    async def run(_app: FastAPI) -> AsyncIterator[None]:
        services.hub.open(asyncio.get_running_loop())
        try:
            yield
        finally:
            services.close()
            if relay is not None:
                await relay.close()

    app = _Application(
        title="Clearway",
        version=clearway.__version__,
        description=DESCRIPTION,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=run,
        separate_input_output_schemas=False,
    )
    app.state.services = services
    install_problems(app)
    for module in (routes_jobs, routes_cluster, routes_server):
        # As they are: `include_router` would make each anew at the first request, which then waits for a second.
        app.router.routes.extend(module.router.routes)
    if relay is not None:
        app.add_middleware(Forward, relay=relay)
    app.add_middleware(Gate, auth=auth, settings=settings, audit=services.audit, now_ms=now_ms)
    app.add_middleware(_Measure, metrics=services.metrics)
    return app


class _Application(FastAPI):
    """Describes also what the framework does not see: that a token is needed, and which permission it must have."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description."""
        if self.openapi_schema is None:
            described = super().openapi()
            described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in described["paths"].items():
                for method, operation in operations.items():
                    permission = ROUTES[method.upper(), path]
                    operation["security"] = [] if permission is Permission.PUBLIC else [{"token": []}]
                    operation["x-permission"] = permission.value
        assert self.openapi_schema is not None
        return self.openapi_schema


class _Measure:
    """Counts answers, and how long each took to begin."""

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin_ns = time.monotonic_ns()

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Only declared paths: others would make a label of whatever anybody asks for.
                route = getattr(scope.get("route"), "path", "") or "none"
                method = scope["method"] if route != "none" else "none"
                self._metrics.note(method, route, message["status"], (time.monotonic_ns() - begin_ns) / 1e9)
            await send(message)

        await self._app(scope, receive, send_and_note)
