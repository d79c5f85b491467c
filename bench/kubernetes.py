"""Clearway beside kube-scheduler of the same version: the same API server, the same nodes, the same pods.

One control plane at a time, with kwok in the place of kubelets, everything on this machine: what bounds both schedulers
is its cores and the API server. Two loads: all pods are there before the scheduler starts (its rate), and pods come at
a steady pace that neither finds hard (its latency). Times are those at which the API server told this process.
Nothing is measured where `make kubernetes` has not built one.
"""

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from bench.figures import Figure

ROOT: Final = Path(__file__).parents[1]
SCRIPTS: Final = ROOT / "scripts" / "kubernetes"
GPUS_PER_NODE: Final = 8
CONNECTIONS: Final = 32
PATIENCE_S: Final = 600.0

NODES: Final = int(os.environ.get("BENCH_KUBERNETES_NODES", "1000"))
PODS: Final = int(os.environ.get("BENCH_KUBERNETES_PODS", "2000"))
PACED: Final = 300
PACE_S: Final = 0.05
POD_PATH: Final = "/api/v1/namespaces/default/pods"

Body = Mapping[str, Any]


class Api:
    """The API server, by many connections."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self.server = config["clusters"][0]["cluster"]["server"]
        self._authority = config["clusters"][0]["cluster"]["certificate-authority"]
        self._token = config["users"][0]["user"]["token"]

    def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=2 * CONNECTIONS, ssl=ssl.create_default_context(cafile=self._authority))
        headers = {"Authorization": f"Bearer {self._token}"}
        return aiohttp.ClientSession(self.server, connector=connector, headers=headers, read_bufsize=1 << 21)

    async def create_all(self, path: str, bodies: Iterable[Body], pace_s: float = 0.0) -> dict[str, float]:
        """Make objects, one each `pace_s`; returns when each was there, by uid."""
        gate = asyncio.Semaphore(CONNECTIONS)
        made: dict[str, float] = {}

        async def create(session: aiohttp.ClientSession, body: Body) -> None:
            async with gate, session.post(path, json=body) as response:
                data = await response.json()
                assert response.status == 201, data
                made[data["metadata"]["uid"]] = time.perf_counter()

        async with self.session() as session, asyncio.TaskGroup() as group:
            for body in bodies:
                group.create_task(create(session, body))
                if pace_s:
                    await asyncio.sleep(pace_s)
        return made

    async def await_bound(self, count: int) -> dict[str, float]:
        """When each of `count` pods was seen bound, by uid. A server may end a watch; the next begins with what is."""
        seen: dict[str, float] = {}
        query = {"watch": "1", "timeoutSeconds": str(int(PATIENCE_S))}
        async with self.session() as session:
            while len(seen) < count:
                async with session.get("/api/v1/pods", params=query) as response:
                    async for line in response.content:
                        pod = json.loads(line)["object"]
                        if pod["spec"].get("nodeName"):
                            seen.setdefault(pod["metadata"]["uid"], time.perf_counter())
                            if len(seen) == count:
                                break
        return seen


def make_node(number: int) -> Body:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    metadata = {"name": f"n{number:05}", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}}


def make_pod(number: int, scheduler: str, gpus: int) -> Body:
    asked = {"cpu": "1", "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "c", "image": "x.invalid/x", "resources": {"requests": asked, "limits": asked}}
    return {
        "metadata": {"name": f"p{number:05}"},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


@contextlib.contextmanager
def running_cluster(*options: str) -> Iterator[tuple[Path, Path]]:
    """(folder, kubeconfig) of a control plane with nodes."""
    with tempfile.TemporaryDirectory(prefix="clearway-bench-kubernetes-") as name:
        folder = Path(name)
        started = subprocess.run(
            [SCRIPTS / "start", folder, "--kwok", *options], capture_output=True, text=True, check=True
        )
        try:
            yield folder, Path(started.stdout.strip())
        finally:
            subprocess.run([SCRIPTS / "stop", folder], check=True)


@contextlib.contextmanager
def running_clearway(folder: Path, kubeconfig: Path) -> Iterator[None]:
    state = folder / "clearway"
    words = [sys.executable, "-m", "clearway.cli", "up", "--backend", "kubernetes", "--kubeconfig", str(kubeconfig)]
    words += ["--state-dir", str(state), "--listen", "127.0.0.1:0"]
    with (folder / "clearway.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        _await_file(state / "server.json", process)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _await_file(path: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic_ns() + int(PATIENCE_S * 1e9)
    while not path.exists():
        assert process.poll() is None, "clearway ended"
        assert time.monotonic_ns() < deadline, "clearway did not start"
        time.sleep(0.05)


@contextlib.contextmanager
def running_kube_scheduler(folder: Path, kubeconfig: Path) -> Iterator[None]:
    """kube-scheduler as `start --scheduler` starts it, without limits on its calls."""
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 10000},
        "leaderElection": {"leaderElect": False},
    }
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(settings))
    program = Path(subprocess.run([SCRIPTS / "build"], capture_output=True, text=True, check=True).stdout.strip())
    words = [program / "kube-scheduler", "--config", folder / "scheduler.yaml", "--secure-port", "0"]
    with (folder / "scheduler.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


SCHEDULERS: Final = {"clearway": running_clearway, "default-scheduler": running_kube_scheduler}


def measure_scheduler(scheduler: str, gpus: int) -> tuple[float, tuple[float, ...]]:
    """(pods bound per second where all wait already, seconds from made to bound at a steady pace, sorted)."""
    with running_cluster() as (folder, kubeconfig):
        return asyncio.run(_measure(scheduler, gpus, folder, kubeconfig))


async def _measure(scheduler: str, gpus: int, folder: Path, kubeconfig: Path) -> tuple[float, tuple[float, ...]]:
    api = Api(kubeconfig)
    await api.create_all("/api/v1/nodes", (make_node(number) for number in range(NODES)))
    pods = [make_pod(number, scheduler, gpus) for number in range(PODS + PACED)]
    await api.create_all(POD_PATH, pods[:PODS])
    watching = asyncio.create_task(api.await_bound(PODS))
    around = SCHEDULERS[scheduler](folder, kubeconfig)
    await asyncio.to_thread(around.__enter__)
    try:
        bound = sorted((await asyncio.wait_for(watching, PATIENCE_S)).values())
        rate = (len(bound) - 1) / (bound[-1] - bound[0])
        watching = asyncio.create_task(api.await_bound(PODS + PACED))
        made = await api.create_all(POD_PATH, pods[PODS:], PACE_S)
        seen = await asyncio.wait_for(watching, PATIENCE_S)
        return rate, tuple(sorted(seen[uid] - at for uid, at in made.items()))
    finally:
        around.__exit__(None, None, None)


def measure_kubernetes() -> Iterator[Figure]:
    """Pods with one GPU each: rate and latency, Clearway against kube-scheduler."""
    if not (Path(_where()) / "complete").exists():
        return
    other_rate, other = measure_scheduler("default-scheduler", gpus=1)
    rate, own = measure_scheduler("clearway", gpus=1)
    where = f"{PODS} one-GPU pods on {NODES} nodes"
    baseline = f"kube-scheduler {other_rate:.0f}/s"
    yield Figure(name=f"pods bound, {where}", value=rate, unit="/s", baseline=baseline, ratio=rate / other_rate)
    for name, share in (("p50", 0.50), ("p99", 0.99)):
        mine, theirs = (_quantile(latency, share) * 1e3 for latency in (own, other))
        yield Figure(
            name=f"pod made to bound, {name}, {1 / PACE_S:.0f} pods/s",
            value=mine,
            unit="ms",
            is_rate=False,
            baseline=f"kube-scheduler {theirs:.1f} ms",
            ratio=theirs / mine,
        )


def _quantile(values: tuple[float, ...], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


def _where() -> str:
    return subprocess.run([SCRIPTS / "build", "--where"], capture_output=True, text=True, check=True).stdout.strip()
