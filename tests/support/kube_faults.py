"""Between Clearway and a real API server: answers 409, 410, 429 and 503, cuts and delays, by a seed."""

import asyncio
import contextlib
import json
import random
import threading
from collections import Counter

import aiohttp
import yaml
from aiohttp import web

REFUSED = {
    409: {"reason": "Conflict", "message": "the object has been modified"},
    410: {"reason": "Expired", "message": "too old resource version"},
    429: {"reason": "TooManyRequests", "message": "come back later"},
    503: {"reason": "ServiceUnavailable", "message": "the server is starting"},
}
WATCH_S = 2.0
DELAY_S = 0.2


class Faults:
    """Listens on `kubeconfig`'s server until `close`. counts: what was done, by its name."""

    def __init__(self, cluster, folder, seed, share=0.3):
        self.counts = Counter()
        self._decks = {}
        self._draw = random.Random(seed)
        self._share = share
        self._cluster = cluster
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="faults", daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def close(self):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)

    async def _serve(self):
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        connector = aiohttp.TCPConnector(ssl=self._cluster.trust, limit=0)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 21) as self._session:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._port = site._server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()

    def _choose(self, *kinds):
        """One of these faults, each of which comes before any comes again."""
        left = self._decks.setdefault(kinds, [])
        if not left:
            left += kinds
            self._draw.shuffle(left)
        kind = left.pop()
        self.counts[kind] += 1
        return kind

    async def _handle(self, request):
        if request.query.get("watch"):
            return await self._watch(request)
        kinds = ["429", "503", "cut before", "delay"]
        if request.method == "POST":
            kinds += ["409", "cut after"]
        kind = self._choose(*kinds) if self._draw.random() < self._share else ""
        if kind.isdecimal():
            return _refuse(int(kind))
        if kind == "cut before":
            return _cut(request)
        if kind == "delay":
            await asyncio.sleep(self._draw.uniform(0, DELAY_S))
        body = await request.read()
        async with self._forward(request, body) as answer:
            data = await answer.read()
        if kind == "cut after":
            return _cut(request)
        headers = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
        return web.Response(status=answer.status, body=data, headers=headers)

    def _forward(self, request, body=None):
        headers = {key: request.headers[key] for key in ("Authorization", "Content-Type", "Accept")}
        return self._session.request(
            request.method, f"{self._cluster.http.base_url}{request.path_qs}".replace("//api", "/api"),
            data=body or None, headers=headers, timeout=aiohttp.ClientTimeout(total=None),
        )  # fmt: skip

    async def _watch(self, request):
        """Each watch is refused at once, or ends after a moment: cut, or told to be too old, perhaps within a line."""
        kind = self._choose("410", "429", "watch cut", "watch too old")
        if kind.isdecimal():
            return _refuse(int(kind))
        async with self._forward(request) as answer:
            response = web.StreamResponse(status=answer.status)
            await response.prepare(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._draw.uniform(0, WATCH_S)):
                    async for part in answer.content.iter_any():
                        await response.write(part)
        if kind == "watch cut":
            return _cut(request)
        line = {"type": "ERROR", "object": {"kind": "Status", "code": 410, **REFUSED[410]}}
        with contextlib.suppress(ConnectionResetError):
            await response.write(b"\n" + json.dumps(line).encode() + b"\n")
        return response


def _refuse(code):
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response({"kind": "Status", "code": code, **REFUSED[code]}, status=code, headers=headers)


def _cut(request):
    request.transport.abort()
    return web.Response(status=500)
