"""What every request passes before anything looks at it: host name, authentication, size of the body.

Below the framework (plain ASGI), so that nothing of a request is parsed before its caller is known.

- A server on loopback answers only to names of loopback: a page of the web whose name was made to point here
  (DNS rebinding) is refused.
- Everything but the public routes needs a token, unknown paths included, so that nobody learns what there is.
- A body is counted as it comes, whatever its header says.
"""

import logging
from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearway.ports.storage import AuditLine
from clearway.server.access import ROUTES, Permission
from clearway.server.auth import Auth, AuthFileError
from clearway.server.problems import Refusal, problem_response
from clearway.server.settings import ServerSettings
from clearway.wire.config import is_loopback

_LOG = logging.getLogger(__name__)

TOKEN_CHARACTERS_MAX: Final = 512

REFUSALS_PER_S_MAX: Final = 20
"""Audit lines for callers that nobody knows: more would let them fill the disk."""

PUBLIC_PATHS: Final = frozenset(path for (_, path), needed in ROUTES.items() if needed == Permission.PUBLIC)

HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Gate:
    """The outermost layer of the application. audit: takes a line for each refusal. now_ms: Unix time."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        auth: Auth,
        settings: ServerSettings,
        audit: Callable[[AuditLine], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._app = app
        self._auth = auth
        self._settings = settings
        self._audit = audit
        self._now_ms = now_ms
        self._second, self._refused = 0, 0
        self._fault = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        request = Request(scope)
        try:
            self._check_host(request)
            if scope["path"] not in PUBLIC_PATHS:
                self._authenticate(request)
            self._check_length(request)
        except Refusal as refusal:
            await problem_response(refusal.status, str(refusal), refusal.headers)(scope, receive, send)
            return
        except AuthFileError as error:
            if self._fault != str(error):  # once, not for each request
                self._fault = str(error)
                _LOG.error("nobody is let in: %s", error)
            detail = "nobody is let in until an operator has mended the token file; see the server's log"
            await problem_response(503, detail)(scope, receive, send)
            return
        counted = _Counted(receive, self._settings.body_bytes_max)
        await self._app(scope, counted, send)

    def _check_host(self, request: Request) -> None:
        settings = self._settings
        hosts = request.headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else ""
        if name in settings.host_names or (is_loopback(settings.host) and is_loopback(name)):
            return
        if not is_loopback(settings.host) and not settings.host_names and name:
            return
        expected = ", ".join(settings.host_names) or settings.host
        raise Refusal(421, f"expected a request to {expected}, found one to {name!r:.80}; call the server by its name")

    def _authenticate(self, request: Request) -> None:
        header = request.headers.get("authorization", "")
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if not header:
            raise Refusal(401, "expected a token in the header `Authorization: Bearer ...`, found none")
        is_bearer = scheme.lower() == "bearer" and 0 < len(token) <= TOKEN_CHARACTERS_MAX
        identity = self._auth.identify(token) if is_bearer else None
        if identity is None:
            self._note_stranger(request)
            raise Refusal(401, "expected a good token, found one that is unknown, revoked or expired; ask for another")
        self._fault = ""
        request.scope["clearway.identity"] = identity
        request.scope["clearway.token"] = token

    def _note_stranger(self, request: Request) -> None:
        """An audit line for a token that is no good, so many a second."""
        now_ms = self._now_ms()
        if now_ms // 1_000 != self._second:
            self._second, self._refused = now_ms // 1_000, 0
        self._refused += 1
        if self._refused > REFUSALS_PER_S_MAX:
            return
        client = request.client.host if request.client else ""
        target = f"{request.method} {request.url.path[:200]}"
        line = AuditLine(
            at_ms=now_ms, actor="", action="authenticate", target=target, is_allowed=False, detail=f"from {client}"
        )
        self._audit(line)

    def _check_length(self, request: Request) -> None:
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._settings.body_bytes_max:
            raise _too_large(self._settings.body_bytes_max)


class _Counted:
    """Passes on a body as long as it is not too large."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive, self._left, self._max = receive, bytes_max, bytes_max

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            # The framework passes on this kind alone from under a body that it reads.
            raise HTTPException(413, str(_too_large(self._max)))
        return message


def _too_large(bytes_max: int) -> Refusal:
    return Refusal(413, f"expected a body of at most {bytes_max} bytes, found a larger one; submit in parts")


def _host_name(host: str) -> str:
    """`name` of `name:port`, `[::1]` of `[::1]:port`."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message.get("headers", ())}
            missing = [pair for pair in HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message.get("headers", ()), *missing]}
        await send(message)

    return send_with_headers
