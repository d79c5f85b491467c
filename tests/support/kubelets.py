"""Plays the kubelets of a test cluster: nodes stay ready, pods that are bound run, pods that are told to leave go."""

import threading

import httpx

from support.cluster import make_ready

MERGE = {"Content-Type": "application/strategic-merge-patch+json"}
BEAT_S = 10.0
TURN_S = 0.1


class Kubelets:
    """Works in a thread of its own until `close`.

    silent: nodes whose kubelet says and does nothing. endings: pods that end by themselves, with their exit codes.
    """

    def __init__(self, cluster):
        self.silent = set()
        self.endings = {}
        self._cluster = cluster
        self._http = httpx.Client(
            base_url=cluster.http.base_url, headers=cluster.http.headers, verify=cluster.trust, timeout=30
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets")
        self._thread.start()

    def close(self):
        self._ended.set()
        self._thread.join()
        self._http.close()

    def _run(self):
        turns = 0
        while not self._ended.wait(TURN_S):
            try:
                if turns % int(BEAT_S / TURN_S) == 0:
                    self._beat()
                self._play_pods()
            except httpx.TransportError:
                pass  # the API server is away; a kubelet tries again
            turns += 1

    def _beat(self):
        for node in self._http.get("/api/v1/nodes").json()["items"]:
            name = node["metadata"]["name"]
            if name not in self.silent:
                body = {"status": {"conditions": [make_ready()]}}
                self._http.patch(f"/api/v1/nodes/{name}/status", json=body, headers=MERGE)

    def _play_pods(self):
        for pod in self._http.get("/api/v1/pods").json()["items"]:
            node = pod["spec"].get("nodeName")
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            if node is None or node in self.silent:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self._http.request("DELETE", path, json={"gracePeriodSeconds": 0})
            elif pod["status"]["phase"] == "Pending":
                body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
                self._http.patch(f"{path}/status", json=body, headers=MERGE)
            elif pod["status"]["phase"] == "Running" and pod["metadata"]["name"] in self.endings:
                self._end(path, self.endings[pod["metadata"]["name"]])

    def _end(self, path, code):
        container = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        container["state"] = {"terminated": {"exitCode": code}}
        body = {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}}
        self._http.patch(f"{path}/status", json=body, headers=MERGE)
