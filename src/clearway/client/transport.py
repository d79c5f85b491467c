"""One connection to the server, kept open and opened anew when it was closed.

The standard library's HTTP client, because importing a richer one takes longer than most commands that rest on this.
A request is sent again only where that cannot do a thing twice: the caller says so.
"""

import http.client
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clearway.client.errors import MisunderstoodError, TimedOutError, UnreachableError, make_error
from clearway.model.errors import InputError
from clearway.wire.api import ApiProblem
from clearway.wire.api_rows import decode_row

READ_BYTES: Final = 1 << 16
CONNECT_S: Final = 5.0
"""Longest wait for a connection: a machine that is there answers within milliseconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: its headers with names in lower case, and its body."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON. Raises MisunderstoodError."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise MisunderstoodError(f"expected JSON from the server, found {self.body[:80]!r}") from error


class Transport:
    """Sends requests to one server. Safe for several threads, which wait for one another.

    url: `http://host:port` or `https://host:port`. Raises InputError for another.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float, ca_file: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise InputError(f"expected an address such as http://127.0.0.1:8642, found {url!r}")
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._token = token
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = False,
    ) -> Answer:
        """The answer to one request. body: sent as JSON. Raises ApiError."""
        target, payload = self._target(path, query), _dump(body)
        with self._lock:
            for attempt in range(2):
                is_fresh = self._connection is None
                try:
                    connection = self._connection = self._connection or self._connect(self._timeout_s)
                    response = self._send(connection, method, target, payload, headers)
                    answer = Answer(_lower(response), response.read())
                    break
                except (OSError, http.client.HTTPException) as error:
                    self._drop()
                    # A connection that was kept may have been closed by the server before it saw the request.
                    if is_fresh or attempt or not is_repeatable:
                        raise self._explain(error, self._timeout_s) from error
                except BaseException:
                    self._drop()  # by Ctrl-C or the like: its answer is not the next request's
                    raise
            if response.will_close:
                self._drop()
        _raise_for(response.status, answer)
        return answer

    def stream(
        self, path: str, *, query: Mapping[str, object] | None, headers: Mapping[str, str], timeout_s: float
    ) -> Iterator[bytes]:
        """Parts of an answer as they come, over a connection of its own. Raises ApiError.

        timeout_s: longest silence; the server sends heartbeats.
        """
        try:
            connection = self._connect(timeout_s)
        except OSError as error:
            raise self._explain(error, timeout_s) from error
        try:
            response = self._send(connection, "GET", self._target(path, query), None, headers)
            if response.status != 200:
                _raise_for(response.status, Answer(_lower(response), response.read()))
            while part := response.read1(READ_BYTES):
                yield part
        except (OSError, http.client.HTTPException) as error:
            raise self._explain(error, timeout_s) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection that is kept."""
        with self._lock:
            self._drop()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that stands. timeout_s: longest silence after that."""
        connection = self._make_connection()
        try:
            connection.connect()
        except TimeoutError as error:
            raise ConnectionError(f"no connection within {CONNECT_S:.0f} s") from error
        assert connection.sock is not None
        connection.sock.settimeout(timeout_s)
        return connection

    def _make_connection(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_S, context=context)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        payload: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> http.client.HTTPResponse:
        sent = {"Accept": "application/json, application/problem+json, */*", **(headers or {})}
        if payload is not None:
            sent["Content-Type"] = "application/json"
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        connection.request(method, target, body=payload, headers=sent)
        return connection.getresponse()

    def _target(self, path: str, query: Mapping[str, object] | None) -> str:
        pairs = urllib.parse.urlencode(_flatten(query or {}))
        return f"{self._prefix}{path}" + (f"?{pairs}" if pairs else "")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _explain(self, error: Exception, timeout_s: float) -> UnreachableError:
        if isinstance(error, TimeoutError):
            return TimedOutError(
                f"expected an answer of the Clearway server at {self._address} within {timeout_s:.0f} s, found "
                "none; it is there, but busy or stopped"
            )
        said = str(error) or type(error).__name__
        return UnreachableError(
            f"expected a Clearway server at {self._address}, found none: {said}; is `clearway up` running?"
        )


def _dump(body: object) -> bytes | None:
    return None if body is None else json.dumps(body, separators=(",", ":")).encode()


def _lower(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _flatten(query: Mapping[str, object]) -> list[tuple[str, str]]:
    """Pairs of a query: None is left out, several values of one name follow one another."""
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        values = value if isinstance(value, tuple | list) else () if value is None else (value,)
        pairs.extend((name, str(item).lower() if isinstance(item, bool) else str(item)) for item in values)
    return pairs


def _raise_for(status: int, answer: Answer) -> None:
    if 200 <= status < 300:
        return
    if "problem+json" in answer.headers.get("content-type", ""):
        try:
            problem = decode_row(ApiProblem, answer.data)
        except InputError as error:
            raise MisunderstoodError(f"expected a problem from the server, found {answer.body[:80]!r}") from error
        raise make_error(problem)
    text = answer.body[:200].decode(errors="replace").strip()
    raise make_error(ApiProblem(title="unexpected answer", status=status, detail=f"status {status}: {text}"))
