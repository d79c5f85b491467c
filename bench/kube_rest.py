"""What Clearway costs a cluster in which nothing happens: memory, and CPU time, with many nodes and pods that run."""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Final

from bench.figures import Figure
from bench.kube_lab import (
    CLEARWAY,
    KUBE_SCHEDULER,
    SCHEDULERS,
    Body,
    Lab,
    compare_schedulers,
    cpu_s,
    find_programs,
    make_node,
    make_pod,
    measure_in_cluster,
    memory_bytes,
)
from clearway.model.units import MIB

NODE_COUNT: Final = int(os.environ.get("BENCH_KUBERNETES_REST_NODES", "5000"))
POD_COUNT: Final = int(os.environ.get("BENCH_KUBERNETES_REST_PODS", "20000"))
REST_S: Final = 20.0
SETTLE_S: Final = 10.0


def measure_rest() -> Iterator[Figure]:
    """Resident memory, and CPU while nothing happens, beside kube-scheduler's. Half of the pods are each one's."""
    if find_programs() is None:
        return
    nodes = (make_node(f"n{number:05}") for number in range(NODE_COUNT))
    found = measure_in_cluster(nodes, _measure)
    where = f"{NODE_COUNT:,} nodes, {POD_COUNT:,} pods"
    (memory, cpu), (their_memory, their_cpu) = found[CLEARWAY], found[KUBE_SCHEDULER]
    yield compare_schedulers(f"memory at rest, {where}", "MiB", memory, their_memory, is_rate=False)
    yield compare_schedulers(f"CPU at rest, {where}", "% of a core", cpu, their_cpu, is_rate=False, digits=1)


async def _measure(lab: Lab) -> dict[str, tuple[float, float]]:
    """(MiB, percent of one core) by scheduler."""
    found = {}
    for who in SCHEDULERS:
        await lab.api.add_pods(_make_bound(number) for number in range(POD_COUNT))
        async with lab.scheduling(who) as pid:
            await asyncio.sleep(SETTLE_S)
            used, begun = cpu_s(pid), time.monotonic()
            await asyncio.sleep(REST_S)
            share = 100 * (cpu_s(pid) - used) / (time.monotonic() - begun)
            found[who] = (memory_bytes(pid) / MIB, share)
    return found


def _make_bound(number: int) -> Body:
    """A pod that was put on its node when it was made, and runs."""
    who = (CLEARWAY, KUBE_SCHEDULER)[number % 2]
    return make_pod(f"p{number:05}", who, gpus=1, nodeName=f"n{number % NODE_COUNT:05}")
