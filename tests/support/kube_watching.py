"""What an API server says of pods while something is tested: a watch of its own, beside the scheduler's."""

import json
import threading
import time

import httpx

from support.cluster import until

RESOURCE = "nvidia.com/gpu"
GANG = "clearway.io/gang"
LOOK_S = 0.005
"""Between two looks: less than it takes to bind a pod, so that a kill can come between one and the next."""


class Watching:
    """Follows every pod in a thread of its own until `close`."""

    def __init__(self, cluster):
        self._http = httpx.Client(
            base_url=cluster.http.base_url, headers=cluster.http.headers, verify=cluster.trust, timeout=60
        )
        self._lock = threading.Lock()
        self._nodes = {}
        self._gangs = {}
        self._devices = {}
        self.moved = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watching", daemon=True)
        self._thread.start()

    def close(self):
        self._ended.set()
        self._http.close()
        self._thread.join(60)

    def _run(self):
        while not self._ended.is_set():
            try:
                with self._http.stream("GET", "/api/v1/pods", params={"watch": "1", "timeoutSeconds": "50"}) as answer:
                    for line in answer.iter_lines():
                        self._take(json.loads(line))
            except (httpx.HTTPError, httpx.StreamError, RuntimeError, OSError, ValueError):
                self._ended.wait(0.1)

    def _take(self, change):
        pod = change["object"]
        name = pod["metadata"]["name"]
        with self._lock:
            if change["type"] == "DELETED":
                self._nodes.pop(name, None)
                return
            node = pod["spec"].get("nodeName", "")
            if self._nodes.get(name) not in (None, "", node):
                self.moved.append((name, self._nodes[name], node))
            self._nodes[name] = node
            self._gangs[name] = (pod["metadata"].get("annotations") or {}).get(GANG, "")
            asked = pod["spec"]["containers"][0]["resources"].get("requests", {})
            self._devices[name] = int(asked.get(RESOURCE, "0"))

    @property
    def bound(self):
        """How many pods are bound."""
        with self._lock:
            return sum(bool(node) for node in self._nodes.values())

    def until_bound(self, count, seconds):
        """Wait until so many pods are bound, or the time is over; whether they are."""
        waited, deadline = threading.Event(), time.monotonic_ns() + int(seconds * 1e9)
        while self.bound < count:
            if time.monotonic_ns() > deadline:
                return False
            waited.wait(LOOK_S)
        return True

    def devices_used(self):
        """Node → devices that pods hold there."""
        used = {}
        with self._lock:
            for name, node in self._nodes.items():
                if node:
                    used[node] = used.get(node, 0) + self._devices[name]
        return used

    def gangs(self):
        """Gang → how many of its pods are bound."""
        counts = {}
        with self._lock:
            for name, node in self._nodes.items():
                if gang := self._gangs[name]:
                    counts[gang] = counts.get(gang, 0) + bool(node)
        return counts

    def await_all_bound(self, count, seconds):
        until(f"{count} pods bound", lambda: self.bound == count, seconds)
