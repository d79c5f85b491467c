"""A cluster is filled with pods of a trace until it was asked for all of its GPUs: who leaves fewer of them idle.

The nodes and pods are Alibaba's (openb, 2023), as the twin reads them: every `SCALE`-th GPU node of the list, and pods
drawn from a pod list, with replacement and by a fixed seed, until they ask for as many GPUs as there are. They come in
the order drawn and none leaves. What both schedulers can say is used: a share of a GPU is rounded up to a whole one,
for both; `gpu_spec` is a required node affinity on the product's label. With gangs, pods of eight GPUs are four to a
gang; kube-scheduler knows nothing of gangs as it comes. GPUs of gangs that lie there by halves serve nobody, and are
counted beside, not among those that are given out.
"""

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.figures import Figure
from bench.kube_lab import (
    CLEARWAY,
    KUBE_SCHEDULER,
    SCHEDULERS,
    Body,
    Lab,
    await_quiet,
    compare_schedulers,
    find_halves,
    find_programs,
    gang_of,
    in_gang,
    is_bound,
    make_node,
    make_pod,
    measure_in_cluster,
)
from bench.worlds import TRACES
from clearway.model.cluster import NodeSpec
from clearway.model.jobs import Request
from clearway.model.units import MIB
from clearway.sim.traces.openb import read_openb

SCALE: Final = int(os.environ.get("BENCH_KUBERNETES_SCALE", "8"))
SEEDS: Final = tuple(int(one) for one in os.environ.get("BENCH_KUBERNETES_SEEDS", "1,2,3").split(","))
LISTS: Final = tuple(os.environ.get("BENCH_KUBERNETES_LISTS", "default,multigpu50").split(","))
FOLDER: Final = TRACES / "alibaba-gpu-v2023"
GANG: Final = 4
GANG_GPUS: Final = 8
PRODUCT: Final = "nvidia.com/gpu.product"


@dataclass(frozen=True, slots=True)
class Filled:
    """gpus: given out, to whole gangs or single pods. halves: gangs that lie there in part, and halved: their GPUs."""

    gpus: int
    halves: int
    halved: int


def measure_fill() -> Iterator[Figure]:
    """GPUs given out when full, and gangs that lie there by halves."""
    if find_programs() is None or not FOLDER.exists():
        return
    for name in LISTS:
        for has_gangs in (False, True):
            yield from _measure_list(name, has_gangs=has_gangs)


def _measure_list(name: str, *, has_gangs: bool) -> Iterator[Figure]:
    path = next(FOLDER.glob(f"openb_pod_list_{name}.csv*"))
    workload = read_openb(path)
    assert workload.cluster is not None
    nodes = [node for node in workload.cluster.nodes if node.device_count][::SCALE]
    total = sum(node.device_count for node in nodes)
    asked = [job.spec.request for job in workload.jobs]

    async def measure(lab: Lab) -> list[dict[str, Filled]]:
        return [await _fill_by_turns(lab, draw(asked, total, seed), has_gangs=has_gangs) for seed in SEEDS]

    found = measure_in_cluster(map(_describe, nodes), measure)
    yield from _make_figures(f"openb {name}{', gangs' if has_gangs else ''}", total, found)


def draw(requests: Sequence[Request], gpus: int, seed: int) -> list[Request]:
    """Requests drawn until they ask for so many GPUs; those that would ask for more than are left are left out."""
    order = np.random.default_rng(seed)
    drawn: list[Request] = []
    while gpus > 0:
        one = requests[int(order.integers(len(requests)))]
        if one.devices <= gpus:
            drawn.append(one)
            gpus -= one.devices
    return drawn


async def _fill_by_turns(lab: Lab, requests: Sequence[Request], *, has_gangs: bool) -> dict[str, Filled]:
    """What each scheduler gives out of the same draw."""
    found: dict[str, Filled] = {}
    for who in SCHEDULERS:
        async with lab.scheduling(who):
            await lab.api.add_pods(_make_pods(requests, who, has_gangs=has_gangs))
            found[who] = _count(await await_quiet(lab.api))
    return found


def _describe(node: NodeSpec) -> Body:
    (group,) = node.groups
    memory = f"{node.memory_bytes // MIB}Mi"
    return make_node(node.name, cpu=f"{node.cpu_milli}m", memory=memory, gpus=group.count, model=group.model)


def _make_pods(requests: Sequence[Request], who: str, *, has_gangs: bool) -> Iterator[Body]:
    large = sum(one.devices == GANG_GPUS for one in requests)
    seen = 0
    for number, one in enumerate(requests):
        said: dict[str, str] = {}
        if has_gangs and one.devices == GANG_GPUS and seen < large - large % GANG:
            said = in_gang(f"g{seen // GANG}", GANG)
            seen += 1
        term = {"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": list(one.device_models)}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        more = {"affinity": {"nodeAffinity": required}} if one.device_models else {}
        memory = f"{one.memory_bytes // MIB}Mi"
        cpu = f"{one.cpu_milli}m"
        yield make_pod(f"p{number:05}", who, gpus=one.devices, cpu=cpu, memory=memory, annotations=said, **more)


def _count(pods: Sequence[Body]) -> Filled:
    partial = find_halves(pods, GANG)
    gpus = dict.fromkeys((False, True), 0)
    for pod in pods:
        if is_bound(pod):
            asked = pod["spec"]["containers"][0]["resources"]["requests"].get("nvidia.com/gpu", "0")
            gpus[gang_of(pod) in partial] += int(asked)
    return Filled(gpus[False], len(partial), gpus[True])


def _make_figures(name: str, total: int, found: Sequence[dict[str, Filled]]) -> Iterator[Figure]:
    what = f"GPUs given out when full, {name}, of {total:,}"
    for seed, one in zip(SEEDS, found, strict=True):
        yield compare_schedulers(f"{what}, draw {seed}", "GPUs", one[CLEARWAY].gpus, one[KUBE_SCHEDULER].gpus)
    ours, theirs = (statistics.mean(one[who].gpus for one in found) for who in (CLEARWAY, KUBE_SCHEDULER))
    yield compare_schedulers(f"{what}, mean of {len(found)} draws", "GPUs", ours, theirs, digits=1)
    if "gangs" in name:
        halves, their_halves = (sum(one[who].halves for one in found) for who in (CLEARWAY, KUBE_SCHEDULER))
        halved = sum(one[KUBE_SCHEDULER].halved for one in found)
        yield Figure(
            name=f"gangs bound by halves, {name}, {len(found)} draws",
            value=halves,
            unit="gangs",
            bar=0,
            is_rate=False,
            baseline=f"kube-scheduler {their_halves}, on {halved} GPUs",
        )
