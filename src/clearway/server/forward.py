"""Passes on what only the control plane can answer: requests that change something, and those about its decisions.

The request goes on as it came, with the caller's own token: the control plane judges it as if it had come there first,
and writes its audit log. While it is away, such requests are refused (503) and all others are answered here.
"""

import re
import ssl
from collections.abc import Callable
from typing import Final

import httpx
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from clearway.server.problems import problem_response
from clearway.wire.api import API

ELSEWHERE: Final = re.compile(rf"{API}/(?:plans|snapshot|jobs/[0-9]+/why)")
"""What is only read, and only there."""

SENT: Final = ("authorization", "content-type", "accept", "idempotency-key")
RETURNED: Final = ("content-type", "retry-after", "www-authenticate")
ANSWER_S: Final = 60.0
CONNECT_S: Final = 2.0
RETRY_AFTER: Final = {"Retry-After": "5"}

Find = Callable[[], tuple[str, str] | None]
"""Address of the control plane and its certificate ("" = the system's), None = none is known."""


class Relay:
    """Keeps connections to the control plane. find: see `Find`; asked for each request, for it may move."""

    def __init__(self, find: Find) -> None:
        self.find = find
        self._client: httpx.AsyncClient | None = None
        self._place: tuple[str, str] | None = None

    async def ask(self, place: tuple[str, str], request: Request, body: bytes) -> httpx.Response:
        """The control plane's answer. Raises httpx.HTTPError, OSError."""
        if self._client is None or place != self._place:
            await self.close()
            self._client, self._place = _make_client(place), place
        headers = {name: request.headers[name] for name in SENT if name in request.headers}
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return await self._client.request(request.method, target, content=body, headers=headers)

    async def close(self) -> None:
        """Let go of connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class Forward:
    """Inside the gate: whoever comes here is known."""

    def __init__(self, app: ASGIApp, *, relay: Relay) -> None:
        self._app, self._relay = app, relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not _is_elsewhere(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        place = self._relay.find()
        if place is None:
            detail = "read-only: expected a control plane that takes this, found none that runs; lists and logs work"
            await problem_response(503, detail, RETRY_AFTER)(scope, receive, send)
            return
        try:
            answer = await self._relay.ask(place, request, body)
        except (httpx.HTTPError, OSError) as error:
            await problem_response(503, _describe(place[0], error), RETRY_AFTER)(scope, receive, send)
            return
        start = [(name.encode(), answer.headers[name].encode()) for name in RETURNED if name in answer.headers]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": start})
        await send({"type": "http.response.body", "body": answer.content})


def _is_elsewhere(scope: Scope) -> bool:
    return scope["method"] not in ("GET", "HEAD") or ELSEWHERE.fullmatch(scope["path"]) is not None


def _make_client(place: tuple[str, str]) -> httpx.AsyncClient:
    url, certificate = place
    context = ssl.create_default_context(cafile=certificate or None) if url.startswith("https:") else True
    timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
    return httpx.AsyncClient(base_url=url, verify=context, timeout=timeout, trust_env=False)


def _describe(url: str, error: Exception) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"read-only: expected a control plane at {url}, found none that answers; lists and logs work"
    said = str(error) or type(error).__name__
    asked = "what was asked may still be done: look before asking again"
    return f"no answer from the control plane at {url} ({said}); {asked}"
