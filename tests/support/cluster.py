"""A real Kubernetes control plane for tests: started by `scripts/kubernetes/start`, spoken to as kubectl does."""

import os
import shutil
import signal
import ssl
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import yaml

SCRIPTS = Path(__file__).parents[2] / "scripts" / "kubernetes"

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


def find_missing(more=()):
    """Why there can be no cluster here, with `more` programs than most; "" = there can."""
    folder = Path(
        subprocess.run([SCRIPTS / "build", "--where"], capture_output=True, text=True, check=True).stdout.strip()
    )
    if all((folder / program).exists() for program in (*PROGRAMS, *more)):
        return ""
    go = "" if shutil.which("go") else "; it needs Go 1.26 or newer, and there is none on PATH"
    return f"Kubernetes is not built: `make kubernetes` does it once, in ten minutes{go}"


def _state(pid):
    """The letter of a process's state, after its name in parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Cluster:
    """One control plane in a folder. Objects go in and come out as JSON."""

    def __init__(self, folder, *options):
        self.folder = folder
        result = subprocess.run([SCRIPTS / "start", folder, *options], capture_output=True, text=True, timeout=240)
        assert result.returncode == 0, result.stderr
        self.kubeconfig = Path(result.stdout.strip())
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.http = httpx.Client(
            base_url=cluster["server"],
            verify=self.trust,
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            timeout=30,
        )

    def close(self):
        self.http.close()
        subprocess.run([SCRIPTS / "stop", self.folder], check=True, timeout=120)

    def kill_api_server(self):
        pid = int((self.folder / "apiserver.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        until("no API server", lambda: not Path(f"/proc/{pid}").exists() or "Z" in _state(pid))

    def restart_api_server(self):
        subprocess.run([self.folder / "run-apiserver"], check=True, timeout=30)
        until("an API server that is ready", self._is_ready, 120)

    def _is_ready(self):
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def call(self, method, path, body=None, **more):
        response = self.http.request(method, path, json=body, **more)
        assert response.status_code < 300, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def create(self, path, body):
        return self.call("POST", path, body)

    def items(self, path):
        return self.call("GET", path)["items"]

    def pods(self, namespace="default"):
        return self.items(f"/api/v1/namespaces/{namespace}/pods")

    # --- making things --------------------------------------------------------------------------------------------

    def add_node(self, name, *, gpus=8, cpu="64", memory="512Gi", pods="110", labels=None, taints=(), more=None):
        """A node without a kubelet, once it may be used; see `support.kubelets`. more: other resources that it has."""
        amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [make_ready()]}
        body = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}, "status": status}
        self.create("/api/v1/nodes", body)
        # Every node begins with a taint, which a controller takes away from one after the other: pods that may go
        # anywhere would be placed among those nodes alone that happen to be rid of it.
        until(f"{name} without its first taint", lambda: not is_fresh(self.call("GET", f"/api/v1/nodes/{name}")))

    def add_namespace(self, name):
        self.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def add_pod(self, name, *, namespace="default", labels=None, annotations=None, **more):
        """A pod of `clearway`; `more` as in `make_pod_spec`."""
        metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        return self.create(
            f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": make_pod_spec(**more)}
        )

    def add_job(self, name, size, *, namespace="default", annotations=None, pod_annotations=None, **more):
        """An indexed Job of `size` pods, all at once."""
        template = {
            "metadata": {"annotations": pod_annotations or {}},
            "spec": make_pod_spec(restartPolicy="Never", **more),
        }
        spec = {
            "completions": size,
            "parallelism": size,
            "completionMode": "Indexed",
            "backoffLimit": 100,
            "template": template,
        }
        metadata = {"name": name, "annotations": annotations or {}}
        return self.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", {"metadata": metadata, "spec": spec})

    def delete(self, path):
        self.call("DELETE", path, {"propagationPolicy": "Background"})


def is_fresh(node):
    """Whether the node carries the taint with which every node begins."""
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ()))


def make_ready():
    """The condition with which a kubelet says that it is there."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 - what a real kubelet would say
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}


def make_pod_spec(*, gpus=1, cpu="1", memory="1Gi", scheduler="clearway", extras=None, ports=(), **more):
    """A pod's spec with one container; `more` is merged into it. extras: other resources. ports: of its host."""
    asked = {"cpu": cpu, "memory": memory, **(extras or {})}
    if gpus:
        asked["nvidia.com/gpu"] = str(gpus)
    container = {
        "name": "main",
        "image": "clearway.invalid/none",
        "resources": {"requests": asked, "limits": asked},
        "ports": [{"containerPort": port, "hostPort": port} for port in ports],
    }
    return {"schedulerName": scheduler, "containers": [container], **more}


def until(what, is_true, seconds=60):
    """Wait until `is_true()`; fails with what was awaited, and what was there instead where that is text."""
    deadline = time.monotonic_ns() + seconds * 1_000_000_000
    while not (found := is_true()):
        assert time.monotonic_ns() < deadline, f"expected {what} within {seconds} s"
        time.sleep(0.05)
    return found


def bound(pods):
    """Name → node of the pods that are bound."""
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}


def devices_used(pods):
    """Node → devices that pods which have not ended hold there."""
    used = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            for container in pod["spec"]["containers"]:
                asked = container.get("resources", {}).get("requests", {}).get("nvidia.com/gpu", "0")
                used[node] = used.get(node, 0) + int(asked)
    return used
