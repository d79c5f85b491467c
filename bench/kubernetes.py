"""Clearway beside kube-scheduler of the same version: the same API server, the same nodes, the same pods, by turns.

Two loads. All pods are there before the scheduler starts: its rate, from the first pod bound to the last. And pods
come at a steady pace that neither finds hard: its latency. A loop that binds the same pods and decides nothing, with 32
calls on their way, shows roughly what the API server, etcd and kwok leave to a scheduler here. The CPU time of
every process is counted beside, because on few cores the API server's own is what bounds. kube-scheduler knows nothing
of gangs as it comes: their pods are single ones to it. Nothing is measured where `make kubernetes` has not built it.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.figures import Figure
from bench.kube_lab import (
    CLEARWAY,
    CONNECTIONS,
    KUBE_SCHEDULER,
    NODES,
    PATIENCE_S,
    PODS,
    SCHEDULERS,
    Api,
    Body,
    control_plane,
    cpu_s,
    find_programs,
    make_node,
    make_pod,
    running_cluster,
)

SIZES: Final = tuple(int(one) for one in os.environ.get("BENCH_KUBERNETES_NODES", "1000,5000").split(","))
LOADS: Final = tuple(os.environ.get("BENCH_KUBERNETES_LOADS", "plain,gpu,gangs").split(","))
COUNT: Final = int(os.environ.get("BENCH_KUBERNETES_PODS", "2000"))
ROUNDS: Final = int(os.environ.get("BENCH_KUBERNETES_ROUNDS", "1"))
PACED: Final = int(os.environ.get("BENCH_KUBERNETES_PACED", "200"))
PACE_S: Final = 0.05
GANG: Final = 8
BARE: Final = "a loop that decides nothing"

LOAD_NAMES: Final = {"plain": "pods without GPUs", "gpu": "one-GPU pods", "gangs": f"one-GPU pods in gangs of {GANG}"}
PROGRAMS: Final = {"apiserver": "API server", "etcd": "etcd", "kwok": "kwok", "controllers": "controller-manager"}


@dataclass(slots=True)
class Round:
    """What one scheduler did of one load. rate: pods bound per second. latencies_s: from made to bound, sorted.
    cpu_ms: per pod bound at full rate, by program."""

    rate: float
    cpu_ms: dict[str, float]
    latencies_s: tuple[float, ...] = ()


@dataclass(slots=True)
class Tally:
    """All rounds, by load and scheduler."""

    rounds: dict[tuple[str, str], list[Round]] = field(default_factory=dict)

    def add(self, load: str, who: str, one: Round) -> None:
        self.rounds.setdefault((load, who), []).append(one)

    def rate(self, load: str, who: str) -> float:
        return statistics.median(one.rate for one in self.rounds[load, who])

    def cpu_ms(self, load: str, who: str, program: str) -> float:
        return statistics.median(one.cpu_ms[program] for one in self.rounds[load, who])

    def latency_s(self, load: str, who: str, share: float) -> float:
        values = sorted(value for one in self.rounds[load, who] for value in one.latencies_s)
        return values[min(int(share * len(values)), len(values) - 1)]


def make_load(load: str, scheduler: str, first: int, count: int) -> Iterator[Body]:
    """Pods number `first` on; those of gangs one gang after the other."""
    for number in range(first, first + count):
        said = {"clearway.io/gang": f"g{number // GANG:05}", "clearway.io/gang-size": str(GANG)}
        yield make_pod(
            f"p{number:05}",
            scheduler,
            gpus=0 if load == "plain" else 1,
            annotations=said if load == "gangs" else None,
        )


def measure_kubernetes() -> Iterator[Figure]:
    """Rates, latencies and CPU per pod, at each size of cluster."""
    if find_programs() is None:
        return
    for size in SIZES:
        tally = Tally()
        with running_cluster("--leases", "400") as (folder, kubeconfig):
            asyncio.run(_measure(size, folder, kubeconfig, tally))
        yield from _make_figures(size, tally)


async def _measure(size: int, folder: Path, kubeconfig: Path, tally: Tally) -> None:
    api = Api(kubeconfig)
    await api.post_all((NODES, make_node(f"n{number:05}")) for number in range(size))
    for number in range(ROUNDS):
        for load in LOADS:
            for who in (KUBE_SCHEDULER, CLEARWAY) if number % 2 == 0 else (CLEARWAY, KUBE_SCHEDULER):
                tally.add(load, who, await _measure_scheduler(api, folder, kubeconfig, who, load))
        tally.add(LOADS[-1], BARE, await _measure_bare(api, folder, size))


async def _measure_scheduler(api: Api, folder: Path, kubeconfig: Path, who: str, load: str) -> Round:
    await api.post_all((PODS, pod) for pod in make_load(load, who, 0, COUNT))
    watching = asyncio.create_task(api.await_bound(COUNT))
    around = SCHEDULERS[who](folder, kubeconfig)
    pid = await asyncio.to_thread(around.__enter__)
    before, own = _read_cpu(folder), cpu_s(pid)
    try:
        bound = sorted((await asyncio.wait_for(watching, PATIENCE_S)).values())
        used = _cpu_ms(before, _read_cpu(folder)) | {"scheduler": 1000 * (cpu_s(pid) - own) / COUNT}
        result = Round((len(bound) - 1) / (bound[-1] - bound[0]), used)
        if load == "gpu" and PACED:
            watching = asyncio.create_task(api.await_bound(COUNT + PACED))
            made = await api.post_all(((PODS, pod) for pod in make_load(load, who, COUNT, PACED)), PACE_S)
            seen = await asyncio.wait_for(watching, PATIENCE_S)
            result.latencies_s = tuple(sorted(max(seen[uid] - at, 0.0) for uid, at in made.items()))
        return result
    finally:
        await asyncio.to_thread(around.__exit__, None, None, None)
        await api.delete_pods()


async def _measure_bare(api: Api, folder: Path, size: int) -> Round:
    """Bind the pods one after the other to the nodes in turn."""
    pods = list(make_load("gpu", "nobody", 0, COUNT))
    await api.post_all((PODS, pod) for pod in pods)
    before, begun = _read_cpu(folder), time.perf_counter()
    watching = asyncio.create_task(api.await_bound(COUNT))
    await api.post_all(
        (f"{PODS}/{pod['metadata']['name']}/binding", _make_binding(pod, number % size))
        for number, pod in enumerate(pods)
    )
    await watching
    took_s = time.perf_counter() - begun
    used = _cpu_ms(before, _read_cpu(folder))
    await api.delete_pods()
    return Round(COUNT / took_s, used)


def _make_binding(pod: Body, node: int) -> Body:
    target = {"apiVersion": "v1", "kind": "Node", "name": f"n{node:05}"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": target}


def _read_cpu(folder: Path) -> dict[str, float]:
    return {name: cpu_s(pid) for name, pid in control_plane(folder).items() if name in PROGRAMS}


def _cpu_ms(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: 1000 * (after[name] - used) / COUNT for name, used in before.items()}


def _make_figures(size: int, tally: Tally) -> Iterator[Figure]:
    where = f"{size:,} nodes"
    for load in LOADS:
        theirs, ours = tally.rate(load, KUBE_SCHEDULER), tally.rate(load, CLEARWAY)
        yield Figure(
            name=f"bound, {LOAD_NAMES[load]}, {where}",
            value=ours,
            unit="pods/s",
            baseline=f"kube-scheduler {theirs:.0f}/s",
            ratio=ours / theirs,
        )
        if load == "gpu":
            yield from _make_latencies(where, tally)
    yield from _make_bounds(where, tally)


def _make_latencies(where: str, tally: Tally) -> Iterator[Figure]:
    for name, share in (("p50", 0.50), ("p99", 0.99)) if PACED else ():
        ours, theirs = (1e3 * tally.latency_s("gpu", who, share) for who in (CLEARWAY, KUBE_SCHEDULER))
        yield Figure(
            name=f"made to bound, {name}, {1 / PACE_S:.0f} pods/s, {where}",
            value=ours,
            unit="ms",
            is_rate=False,
            baseline=f"kube-scheduler {theirs:.1f} ms",
            ratio=theirs / max(ours, 1e-3),
        )


def _make_bounds(where: str, tally: Tally) -> Iterator[Figure]:
    """What bounds any scheduler here, and where the CPU time of a pod goes."""
    last = LOADS[-1]
    bare, theirs = tally.rate(last, BARE), tally.rate(last, KUBE_SCHEDULER)
    yield Figure(
        name=f"bound by {BARE}, {CONNECTIONS} calls at once, {where}",
        value=bare,
        unit="pods/s",
        baseline=f"kube-scheduler {theirs:.0f}/s",
        ratio=bare / theirs,
    )
    for program, name in {"scheduler": "the scheduler itself", **PROGRAMS}.items():
        ours, theirs = (_over_loads(tally, who, program) for who in (CLEARWAY, KUBE_SCHEDULER))
        alone = "" if program == "scheduler" else f", bare {tally.cpu_ms(last, BARE, program):.2f}"
        yield Figure(
            name=f"CPU per pod of {name}, {where}",
            value=ours,
            unit="ms",
            is_rate=False,
            baseline=f"with kube-scheduler {theirs:.2f}{alone}",
            ratio=theirs / max(ours, 1e-3),
        )


def _over_loads(tally: Tally, who: str, program: str) -> float:
    values: Sequence[float] = [tally.cpu_ms(load, who, program) for load in LOADS]
    return statistics.mean(values)
