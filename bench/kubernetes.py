"""Clearway beside kube-scheduler of the same version: the same API server, the same nodes, the same pods, by turns.

Two loads. All pods are there before the scheduler starts: its rate, from the first pod bound to the last. And pods
come at a steady pace that neither finds hard: its latency. The CPU time of every process is counted beside, because on
few cores that of the API server and its kin is what bounds: if all else costs c of CPU for each pod, n cores bind no
more than n / c pods a second, whatever the scheduler does. That bound is of the same run as the rate; what goes on in
any case, such as leases of nodes, is in c, so that a faster run would have a little less of it. kube-scheduler knows
nothing of gangs as it comes: their pods are single ones to it. So it is counted too how many gangs lie there by halves
when the pods of several come mixed, as from the Job controller, and there is room for half of them. Nothing is measured
where `make kubernetes` has not built it.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bench.figures import Figure
from bench.kube_lab import (
    CLEARWAY,
    KUBE_SCHEDULER,
    PATIENCE_S,
    Api,
    Body,
    Lab,
    await_quiet,
    compare_schedulers,
    control_plane,
    cpu_s,
    find_halves,
    find_programs,
    in_gang,
    make_node,
    make_pod,
    measure_in_cluster,
)

SIZES: Final = tuple(int(one) for one in os.environ.get("BENCH_KUBERNETES_NODES", "1000,5000").split(","))
LOADS: Final = tuple(os.environ.get("BENCH_KUBERNETES_LOADS", "plain,gpu,gangs").split(","))
GANG: Final = 8
COUNT: Final = int(os.environ.get("BENCH_KUBERNETES_PODS", "2000")) // GANG * GANG
ROUNDS: Final = int(os.environ.get("BENCH_KUBERNETES_ROUNDS", "1"))
PACED: Final = int(os.environ.get("BENCH_KUBERNETES_PACED", "200")) // GANG * GANG
PACE_S: Final = 0.05
MADE_AT_ONCE: Final = 5
"""Gangs of which the pods come mixed: as many Jobs are worked on at a time by the controller-manager as it comes."""
CROWDED: Final = {"bench/crowded": "yes"}
"""Label of the nodes on which there is room for half of all gangs, and for half a gang."""
NODE_GPUS: Final = 8
CROWDED_NODES: Final = max(COUNT // 2 // NODE_GPUS, 1)
SETTLE_S: Final = 10.0
"""Pause before pods come at a steady pace: what a burst leaves behind, such as pods to be started, is no part of it."""
CORES: Final = len(os.sched_getaffinity(0))
BENCH: Final = "bench"
SCHEDULER: Final = "scheduler"

GANGS: Final = "gangs"
LOAD_NAMES: Final = {"plain": "pods without GPUs", "gpu": "one-GPU pods", GANGS: f"one-GPU pods in gangs of {GANG}"}
PROGRAMS: Final = {
    SCHEDULER: "the scheduler itself",
    "apiserver": "API server",
    "etcd": "etcd",
    "kwok": "kwok",
    "controllers": "controller-manager",
    BENCH: "this benchmark",
}


@dataclass(slots=True)
class Round:
    """What one scheduler did of one load. rate: pods bound per second. latencies_s: from made to bound, sorted.
    cpu_ms: per pod, from the first bound to the last, by program. halves: gangs that lay there in part."""

    rate: float
    cpu_ms: dict[str, float]
    latencies_s: tuple[float, ...] = ()
    halves: int = 0


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

    def bound(self, load: str, who: str) -> float:
        """Pods per second that a scheduler would bind that costs no CPU, if all else costs what it did here."""
        others = [program for program in PROGRAMS if program != SCHEDULER]
        return 1000 * CORES / sum(self.cpu_ms(load, who, program) for program in others)

    def halves(self, who: str) -> int:
        return sum(one.halves for one in self.rounds[GANGS, who])

    def latency_s(self, load: str, who: str, share: float) -> float:
        values = sorted(value for one in self.rounds[load, who] for value in one.latencies_s)
        return values[min(int(share * len(values)), len(values) - 1)]


def make_load(load: str, scheduler: str, first: int, count: int) -> Iterator[Body]:
    """Pods number `first` on; those of gangs one gang after the other."""
    for number in range(first, first + count):
        said = in_gang(f"g{number // GANG:05}", GANG) if load == GANGS else None
        yield make_pod(f"p{number:05}", scheduler, gpus=0 if load == "plain" else 1, annotations=said)


def make_crowd(scheduler: str) -> Iterator[Body]:
    """Pods of gangs for nodes that hold half of them, each time a pod of some gangs in turn."""
    width = GANG * MADE_AT_ONCE
    for number in range(max(COUNT // width, 1) * width):
        gang = number // width * MADE_AT_ONCE + number % MADE_AT_ONCE
        said = in_gang(f"c{gang:05}", GANG)
        yield make_pod(f"c{number:05}", scheduler, gpus=1, annotations=said, nodeSelector=CROWDED)


def make_nodes(size: int) -> Iterator[Body]:
    """Nodes of a cluster of this size, the crowded ones first, of which one has half the GPUs."""
    for number in range(size):
        gpus = NODE_GPUS // 2 if number == 0 else NODE_GPUS
        yield make_node(f"n{number:05}", gpus=gpus, labels=CROWDED if number < CROWDED_NODES else None)


def measure_kubernetes() -> Iterator[Figure]:
    """Rates, latencies and CPU per pod, at each size of cluster."""
    if find_programs() is None:
        return
    for size in SIZES:
        tally = Tally()
        measure_in_cluster(make_nodes(size), lambda lab, tally=tally: _measure(lab, tally))  # type: ignore[misc]
        yield from _make_figures(f"{size:,} nodes", tally)


async def _measure(lab: Lab, tally: Tally) -> None:
    for number in range(ROUNDS):
        for load in LOADS:
            for who in (KUBE_SCHEDULER, CLEARWAY) if number % 2 == 0 else (CLEARWAY, KUBE_SCHEDULER):
                tally.add(load, who, await _measure_scheduler(lab, who, load))


async def _measure_scheduler(lab: Lab, who: str, load: str) -> Round:
    api, begin = lab.api, dict[str, float]()
    pids = control_plane(lab.folder)

    def read_cpu() -> dict[str, float]:
        used = {name: cpu_s(pid) for name, pid in pids.items() if name in PROGRAMS}
        return used | {BENCH: time.process_time()}

    await api.add_pods(make_load(load, who, 0, COUNT))
    watching = asyncio.create_task(api.await_bound(COUNT, lambda: begin.update(read_cpu())))
    async with lab.scheduling(who) as pids[SCHEDULER]:
        bound = sorted((await asyncio.wait_for(watching, PATIENCE_S)).values())
        used = {name: 1000 * (at - begin[name]) / COUNT for name, at in read_cpu().items()}
        result = Round((len(bound) - 1) / (bound[-1] - bound[0]), used)
        if PACED:
            result.latencies_s = await _measure_latencies(api, who, load)
    if load == GANGS:
        async with lab.scheduling(who):
            await api.add_pods(make_crowd(who))
            result.halves = len(find_halves(await await_quiet(api), GANG))
    return result


async def _measure_latencies(api: Api, who: str, load: str) -> tuple[float, ...]:
    """Seconds from made to bound, sorted, of pods that come at a steady pace, those of a gang together."""
    await asyncio.sleep(SETTLE_S)
    watching = asyncio.create_task(api.await_bound(COUNT + PACED))
    at_once = GANG if load == GANGS else 1
    made = await api.add_pods(make_load(load, who, COUNT, PACED), at_once * PACE_S, at_once)
    seen = await asyncio.wait_for(watching, PATIENCE_S)
    return tuple(sorted(max(seen[uid] - at, 0.0) for uid, at in made.items()))


def _make_figures(where: str, tally: Tally) -> Iterator[Figure]:
    for load in LOADS:
        theirs, ours = tally.rate(load, KUBE_SCHEDULER), tally.rate(load, CLEARWAY)
        name = f"{LOAD_NAMES[load]}, {where}"
        yield compare_schedulers(f"bound, {name}", "pods/s", ours, theirs)
        bound = tally.bound(load, CLEARWAY)
        said = f", {theirs / bound:.0%} of it; Clearway {ours / bound:.0%}"
        yield compare_schedulers(f"bound if scheduling were free, {name}", "pods/s", bound, theirs, said=said)
        if PACED:
            yield from _make_latencies(load, name, tally)
        if load == GANGS:
            yield _make_halves(where, tally)
    for program, words in PROGRAMS.items():
        ours, theirs = (
            statistics.mean(tally.cpu_ms(load, who, program) for load in LOADS) for who in (CLEARWAY, KUBE_SCHEDULER)
        )
        yield compare_schedulers(f"CPU per pod of {words}, {where}", "ms", ours, theirs, is_rate=False, digits=2)


def _make_latencies(load: str, where: str, tally: Tally) -> Iterator[Figure]:
    for name, share in (("p50", 0.50), ("p99", 0.99)):
        ours, theirs = (1e3 * tally.latency_s(load, who, share) for who in (CLEARWAY, KUBE_SCHEDULER))
        name = f"made to bound, {name}, {1 / PACE_S:.0f} pods/s, {where}"
        yield compare_schedulers(name, "ms", ours, theirs, is_rate=False, digits=1)


def _make_halves(where: str, tally: Tally) -> Figure:
    theirs = tally.halves(KUBE_SCHEDULER)
    return Figure(
        name=f"gangs bound by halves, room for half of all, {where}",
        value=tally.halves(CLEARWAY),
        unit="gangs",
        bar=0,
        is_rate=False,
        baseline=f"kube-scheduler {theirs} gangs",
    )
