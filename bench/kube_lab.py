"""A Kubernetes control plane for benchmarks, on which schedulers take turns: nodes, pods, processes and their CPU time.

kwok plays the kubelets, everything runs on this machine. Times are those at which the API server told this process.
"""

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import yaml

from bench.figures import Figure

SCRIPTS: Final = Path(__file__).parents[1] / "scripts" / "kubernetes"
CONNECTIONS: Final = 32
PATIENCE_S: Final = 600.0
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
KIB: Final = 1024
GANG: Final = "clearway.io/gang"
GANG_SIZE: Final = "clearway.io/gang-size"
QUIET_S: Final = 15.0
"""A cluster is full when nothing was bound for so long; kube-scheduler looks again at what did not fit after 10 s."""
RATIO_OF_MIN: Final = 1e-3
"""What less than this is taken for in a ratio."""

ValueT = TypeVar("ValueT")

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
        patience = aiohttp.ClientTimeout(total=PATIENCE_S)
        return aiohttp.ClientSession(
            self.server, connector=connector, headers=headers, read_bufsize=1 << 21, timeout=patience
        )

    async def post_all(
        self, calls: Iterable[tuple[str, Body]], pace_s: float = 0.0, at_once: int = 1
    ) -> dict[str, float]:
        """Post each body to its path, `at_once` of them each `pace_s`; returns when each was answered, by uid where
        there is one."""
        gate = asyncio.Semaphore(CONNECTIONS)
        made: dict[str, float] = {}

        async def post(session: aiohttp.ClientSession, path: str, body: Body) -> None:
            async with gate, session.post(path, json=body) as response:
                data = await response.json()
                assert response.status == 201, data
                made[data["metadata"].get("uid", len(made))] = time.perf_counter()

        async with self.session() as session, asyncio.TaskGroup() as group:
            for number, (path, body) in enumerate(calls, start=1):
                group.create_task(post(session, path, body))
                if pace_s and number % at_once == 0:
                    await asyncio.sleep(pace_s)
        return made

    async def add_nodes(self, nodes: Iterable[Body]) -> None:
        """Make these nodes."""
        await self.post_all((NODES, node) for node in nodes)

    async def add_pods(self, pods: Iterable[Body], pace_s: float = 0.0, at_once: int = 1) -> dict[str, float]:
        """Make these pods, `at_once` of them each `pace_s`; returns when each was made, by uid."""
        return await self.post_all(((PODS, pod) for pod in pods), pace_s, at_once)

    async def list(self, path: str) -> list[dict[str, Any]]:
        async with self.session() as session, session.get(path) as response:
            return list((await response.json())["items"])

    async def delete_pods(self) -> None:
        """Delete all pods at once, and wait until none is left. A server ends a call that takes it over a minute, and
        goes on with the next from where it was."""
        async with self.session() as session:
            while True:
                with contextlib.suppress(aiohttp.ServerDisconnectedError):
                    async with session.delete(PODS, params={"gracePeriodSeconds": "0"}) as response:
                        await response.read()
                async with session.get(PODS, params={"limit": "1"}) as response:
                    if not (await response.json())["items"]:
                        return

    async def await_bound(self, count: int, on_first: Callable[[], None] = lambda: None) -> dict[str, float]:
        """When each of `count` pods was seen bound, by uid. A server may end a watch; the next begins with what is."""
        seen: dict[str, float] = {}
        query = {"watch": "1", "timeoutSeconds": str(int(PATIENCE_S))}
        async with self.session() as session:
            while len(seen) < count:
                async with session.get(PODS, params=query) as response:
                    async for line in response.content:
                        pod = json.loads(line)["object"]
                        if pod["spec"].get("nodeName"):
                            if not seen:
                                on_first()
                            seen.setdefault(pod["metadata"]["uid"], time.perf_counter())
                            if len(seen) == count:
                                break
        return seen


async def await_quiet(api: Api) -> list[Body]:
    """All pods, once nothing was bound for a while."""
    deadline, count, since = time.monotonic() + PATIENCE_S, -1, time.monotonic()
    while True:
        pods: list[Body] = list(await api.list(PODS))
        bound = sum(is_bound(pod) for pod in pods)
        now = time.monotonic()
        if bound != count:
            count, since = bound, now
        if (bound and now - since > QUIET_S) or now > deadline:
            return pods
        await asyncio.sleep(1)


def is_bound(pod: Body) -> bool:
    """Whether a scheduler has given the pod its node."""
    return bool(pod["spec"].get("nodeName"))


def gang_of(pod: Body) -> str:
    """The name of the pod's gang; "" = it is in none."""
    return str((pod["metadata"].get("annotations") or {}).get(GANG, ""))


def find_halves(pods: Iterable[Body], size: int) -> set[str]:
    """Gangs of this size of which some pods are bound and others are not."""
    sizes = Counter(gang_of(pod) for pod in pods if is_bound(pod))
    return {gang for gang, count in sizes.items() if gang and count < size}


def in_gang(name: str, size: int) -> dict[str, str]:
    """Annotations of a gang's pod."""
    return {GANG: name, GANG_SIZE: str(size)}


def make_node(
    name: str,
    *,
    cpu: str = "64",
    memory: str = "512Gi",
    gpus: int = 8,
    model: str = "",
    labels: Mapping[str, str] | None = None,
) -> Body:
    """A node that kwok plays. model: of its GPUs, as GPU feature discovery says it."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    labels = {**(labels or {}), **({"nvidia.com/gpu.product": model} if model else {})}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels}
    return {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}}


def make_pod(
    name: str,
    scheduler: str,
    *,
    gpus: int = 0,
    cpu: str = "1",
    memory: str = "1Gi",
    annotations: Mapping[str, str] | None = None,
    **spec: object,
) -> Body:
    """A pod of one container, in `default`."""
    asked = {"cpu": cpu, "memory": memory, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "c", "image": "x.invalid/x", "resources": {"requests": asked, "limits": asked}}
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


# --- processes --------------------------------------------------------------------------------------------------------


def find_programs() -> Path | None:
    """The folder of the programs; None where `make kubernetes` has not built them all."""
    words = [SCRIPTS / "build", "--where"]
    folder = Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    return folder if all((folder / name).exists() for name in ("etcd", "kube-scheduler", "kwok")) else None


@contextlib.contextmanager
def running_cluster(*options: str) -> Iterator[tuple[Path, Path]]:
    """(folder, kubeconfig) of a control plane with kwok."""
    with tempfile.TemporaryDirectory(prefix="clearway-bench-kubernetes-") as name:
        folder = Path(name)
        words = [SCRIPTS / "start", folder, "--kwok", *options]
        started = subprocess.run(words, capture_output=True, text=True, check=True)
        try:
            yield folder, Path(started.stdout.strip())
        finally:
            subprocess.run([SCRIPTS / "stop", folder], check=True)


@contextlib.contextmanager
def running_clearway(folder: Path, kubeconfig: Path) -> Iterator[int]:
    """Its process id, once it is ready. It begins without a journal."""
    state = folder / "clearway"
    shutil.rmtree(state, ignore_errors=True)
    words = [sys.executable, "-m", "clearway.cli", "up", "--backend", "kubernetes", "--kubeconfig", str(kubeconfig)]
    words += ["--state-dir", str(state), "--listen", "127.0.0.1:0"]
    with (folder / "clearway.log").open("w") as log, _process(words, log) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not (state / "server.json").exists():
            assert process.poll() is None, (folder / "clearway.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "clearway did not start"
            time.sleep(0.02)
        yield process.pid


@contextlib.contextmanager
def running_kube_scheduler(folder: Path, kubeconfig: Path) -> Iterator[int]:
    """Its process id. Its settings are its defaults, but for no limit on its calls."""
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 10000},
        "leaderElection": {"leaderElect": False},
    }
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(settings))
    programs = find_programs()
    assert programs is not None
    words = [str(programs / "kube-scheduler"), "--config", str(folder / "scheduler.yaml"), "--secure-port", "0"]
    with (folder / "scheduler.log").open("w") as log, _process(words, log) as process:
        yield process.pid


@contextlib.contextmanager
def _process(words: list[str], log: Any) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


CLEARWAY: Final = "clearway"
KUBE_SCHEDULER: Final = "default-scheduler"
SCHEDULERS: Final = {CLEARWAY: running_clearway, KUBE_SCHEDULER: running_kube_scheduler}
"""By the name that pods give in `schedulerName`."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A cluster in which schedulers take turns. folder: of its logs and process ids."""

    api: Api
    folder: Path
    kubeconfig: Path

    @contextlib.asynccontextmanager
    async def scheduling(self, who: str) -> AsyncIterator[int]:
        """One of the schedulers runs: its process id. Afterwards there are no pods."""
        around = SCHEDULERS[who](self.folder, self.kubeconfig)
        pid = await asyncio.to_thread(around.__enter__)
        try:
            yield pid
        finally:
            await asyncio.to_thread(around.__exit__, None, None, None)
            await self.api.delete_pods()


def measure_in_cluster(nodes: Iterable[Body], measure: Callable[[Lab], Coroutine[Any, Any, ValueT]]) -> ValueT:
    """What `measure` gives in a cluster with these nodes."""

    async def measure_here(lab: Lab) -> ValueT:
        await lab.api.add_nodes(nodes)
        return await measure(lab)

    with running_cluster("--leases", "400") as (folder, kubeconfig):
        return asyncio.run(measure_here(Lab(Api(kubeconfig), folder, kubeconfig)))


def compare_schedulers(
    name: str, unit: str, ours: float, theirs: float, *, is_rate: bool = True, digits: int = 0, said: str = ""
) -> Figure:
    """Clearway's number with kube-scheduler's. digits: of the latter that are shown. said: more about it."""
    ratio = ours / theirs if is_rate else theirs / max(ours, RATIO_OF_MIN)
    baseline = f"kube-scheduler {theirs:,.{digits}f} {unit}{said}"
    return Figure(name=name, value=ours, unit=unit, is_rate=is_rate, baseline=baseline, ratio=ratio)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, bytes."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) * KIB


def control_plane(folder: Path) -> dict[str, int]:
    """Process id by program of a running control plane."""
    return {path.stem: int(path.read_text()) for path in folder.glob("*.pid")}
