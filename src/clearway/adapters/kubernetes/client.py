"""Raw calls to an API server: lists, watches, bindings, evictions, conditions. No decision is made here.

Objects come as the JSON that they are: typed models would cost more time than the calls. Sign-in, TLS and refreshed
tokens are kubernetes_asyncio's; requests go by a session of our own over its connections, because its own one looks for
proxies and for ~/.netrc in another thread at each request. Every call raises ApiError (the server said no),
ExpiredError (410) or UnreachableError (no answer, or one that says to come back).
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio import client as kube
from kubernetes_asyncio import config as kube_config
from yarl import URL

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import ApiError, ExpiredError, UnreachableError
from clearway.model.errors import InputError

log = logging.getLogger(__name__)

Json = dict[str, Any]

PAGE: Final = 500
"""Objects per page of a list, as kubectl asks."""

WATCH_S: Final = 290
"""A watch ends by itself after so long: below the five minutes at which many proxies cut."""

CALL_S: Final = 30
"""No call but a watch takes longer."""

SILENCE_S: Final = 120
"""A watch that says nothing so long, bookmarks included (each minute), is dead."""

REFRESH_S: Final = 60
"""How often a token that a program made is looked at."""

CLOSING_S: Final = 0.25
"""What aiohttp's own documentation gives connections with TLS to close ("Graceful shutdown")."""

READ_BYTES: Final = 1 << 21
"""Of one connection, before the server must wait: more than the largest object that etcd takes (1.5 MiB)."""

_COME_BACK: Final = frozenset({408, 429, 500, 502, 503, 504})
_MERGE: Final = {"Content-Type": "application/strategic-merge-patch+json"}


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a watch. kind: ADDED, MODIFIED, DELETED or BOOKMARK. version: to go on from."""

    kind: str
    data: Json
    version: str


class Client:
    """One API server. Make it by `connect`, in the event loop that uses it; `close` it there.

    may_write: asked right before each call that changes something; one that must not be made is as if nobody answered.
    """

    def __init__(self, api: kube.ApiClient, may_write: Callable[[], bool] | None = None) -> None:
        self._api = api
        self._may_write = may_write
        self._refreshing: asyncio.Task[None] | None = None
        self._settings = api.configuration
        self._root = str(self._settings.host).rstrip("/")
        self._more = _find_way(self._settings)
        self._session = aiohttp.ClientSession(
            connector=api.rest_client.pool_manager.connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
            headers={"User-Agent": "clearway"},
            trace_configs=[] if may_write is None else [self._make_fence()],
        )

    @staticmethod
    async def connect(config: KubernetesConfig, may_write: Callable[[], bool] | None = None) -> "Client":
        """Sign in as the configuration says. Raises InputError where there is nothing to sign in with."""
        settings = kube.Configuration()
        settings.connection_pool_maxsize = 2 * config.binds_max
        loader = None
        try:
            if config.kubeconfig:
                loader = await kube_config.load_kube_config(config.kubeconfig, config.context or None, settings)
            else:
                kube_config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        except (kube_config.ConfigException, OSError) as error:
            place = config.kubeconfig or "the pod's service account"
            raise InputError(
                f"kubernetes: expected credentials in {place}, found {error}; name a file by `kubeconfig`"
            ) from error
        client = Client(kube.ApiClient(settings), may_write)
        if loader is not None:
            client._refreshing = asyncio.create_task(_refresh(loader, settings))
        return client

    def _make_fence(self) -> aiohttp.TraceConfig:
        """Asks `may_write` when a connection is there and all that is left is to send."""
        trace = aiohttp.TraceConfig()

        async def ask(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
            if context.trace_request_ctx != "GET" and self._may_write is not None and not self._may_write():
                raise ConnectionError("it was not made, for this control plane does not lead any more")

        trace.on_connection_create_end.append(ask)
        trace.on_connection_reuseconn.append(ask)
        return trace

    async def close(self) -> None:
        """Let go of the connections, and wait until they are gone: aiohttp closes those with TLS a little later."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self._session.close()
        await self._api.close()
        await asyncio.sleep(CLOSING_S)

    async def get(self, path: str, **query: str) -> Json:
        """One object, or one page of a list."""
        return await self._call("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """Create an object, or ask for a subresource to be done."""
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Json:
        """Change an object by a strategic merge."""
        return await self._call("PATCH", path, body=body, headers=_MERGE)

    async def put(self, path: str, body: Mapping[str, Any]) -> Json:
        """Replace an object, if it is still of the version that `body` names."""
        return await self._call("PUT", path, body=body)

    async def delete(self, path: str, body: Mapping[str, Any]) -> Json:
        """Delete an object; body: DeleteOptions."""
        return await self._call("DELETE", path, body=body)

    async def list_all(self, path: str) -> tuple[list[Json], str]:
        """Every object of a kind, page by page, and the version of the list."""
        items: list[Json] = []
        query = {"limit": str(PAGE)}
        while True:
            page = await self.get(path, **query)
            items += page.get("items") or ()
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return items, metadata["resourceVersion"]
            query["continue"] = metadata["continue"]

    async def watch(self, path: str, version: str) -> AsyncIterator[list[Change]]:
        """Changes since `version`, those that came together in one list, until the server ends it, as it does every few
        minutes."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_S, sock_read=SILENCE_S)
        response = await self._send("GET", path, query, None, {}, timeout)
        async with response:
            await _check(response)
            try:
                rest = b""
                async for part in response.content.iter_any():
                    *lines, rest = (rest + part).split(b"\n")
                    changes, refusal = _read_changes(lines)
                    if changes:
                        yield changes
                    if refusal is not None:
                        raise refusal
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise UnreachableError(f"the watch of {path} was cut: {error!r}") from error

    # --- what a scheduler does ------------------------------------------------------------------------------------

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Put a pod on a node, and these annotations on the pod. A second time is an ApiError 409."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations or {}},
            "target": target,
        }
        await self.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask a pod to leave, within its own grace; a disruption budget may say no (UnreachableError, 429)."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)

    async def set_condition(self, namespace: str, name: str, uid: str, condition: Mapping[str, Any]) -> None:
        """Write one condition into a pod's status."""
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", body)

    @asynccontextmanager
    async def follow_log(self, namespace: str, name: str, look_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """What the first container of a pod writes, from its start on, as it is written; b"" after each `look_s` of
        silence."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_S)
        response = await self._send("GET", path, {"follow": "true"}, None, {"Accept": "*/*"}, timeout)
        async with response:
            await _check(response)
            yield _read_parts(response, look_s)

    # --- calls ----------------------------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        response = await self._send(method, path, query or {}, body, headers or {}, timeout)
        async with response:
            await _check(response)
            try:
                data: Json = json.loads(await response.read())
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise UnreachableError(f"{method} {path}: the answer was cut: {error!r}") from error
            except ValueError as error:
                raise UnreachableError(f"{method} {path}: the answer is no JSON: {error}") from error
        return data

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        sent = {"Accept": "application/json", "Content-Type": "application/json", **headers}
        try:
            if token := await self._settings.get_api_key_with_prefix("BearerToken"):
                sent["Authorization"] = token
        except (kube_config.ConfigException, OSError) as error:  # read anew each minute; it may be there again soon
            raise UnreachableError(f"{method} {path}: the token cannot be read: {error}") from error
        url = f"{self._root}{path}?{urlencode(query)}" if query else self._root + path
        data = None if body is None else json.dumps(body).encode()
        try:
            return await self._session.request(
                method,
                URL(url, encoded=True),
                data=data,
                headers=sent,
                timeout=timeout,
                trace_request_ctx=method,
                **self._more,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            raise UnreachableError(f"{method} {path}: no answer: {error!r}") from error


async def _read_parts(response: aiohttp.ClientResponse, look_s: float) -> AsyncIterator[bytes]:
    while True:
        try:
            part = await asyncio.wait_for(response.content.readany(), look_s)
        except TimeoutError:
            yield b""
            continue
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"a log was cut: {error!r}") from error
        if not part:
            return
        yield part


async def _refresh(loader: Any, settings: kube.Configuration) -> None:
    """Ask the program that a kubeconfig names for a token again before the last one ends; over at once without one."""
    while True:
        try:
            await kube_config.refresh_token(loader, settings, REFRESH_S)
            return
        except Exception as error:  # whatever the program does: the next try may succeed
            log.warning("kubernetes: the token was not made anew: %s", error)


def _find_way(settings: kube.Configuration) -> dict[str, Any]:
    """What each request must say of proxies and names: of the kubeconfig, else of the environment."""
    parts = urlsplit(str(settings.host))
    found = settings.proxy
    if not found and not proxy_bypass(parts.hostname or ""):
        found = getproxies().get(parts.scheme)
    more = {"proxy": found, "proxy_headers": settings.proxy_headers, "server_hostname": settings.tls_server_name}
    return {key: value for key, value in more.items() if value}


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    text = await response.read()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    raise _refusal(response.status, status, _seconds(response.headers.get("Retry-After", "")))


def _refusal(code: int, status: Mapping[str, Any], retry_after_s: float) -> Exception:
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    if code == 410:
        return ExpiredError(code, reason, message)
    if code in _COME_BACK:
        return UnreachableError(f"the API server answered {code} {reason}: {message}", retry_after_s)
    return ApiError(code, reason, message)


def _read_changes(lines: Iterable[bytes]) -> tuple[list[Change], Exception | None]:
    """The changes that these lines of a watch tell, and the refusal that ends it, if there is one."""
    changes: list[Change] = []
    for line in lines:
        try:
            told = json.loads(line)
            data = told["object"]
            if told["type"] == "ERROR":
                return changes, _refusal(int(data.get("code", 500)), data, 0.0)
            changes.append(Change(told["type"], data, data["metadata"]["resourceVersion"]))
        except (ValueError, KeyError, TypeError) as error:  # something between us and the server cut or changed it
            return changes, ApiError(200, "Unreadable", f"expected a line of a watch, found {error!r}")
    return changes, None


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0
