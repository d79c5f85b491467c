"""What Clearway costs a cluster in which nothing happens: memory, and CPU time, with many nodes and pods that run."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.figures import Figure
from bench.kube_lab import (
    CLEARWAY,
    KUBE_SCHEDULER,
    NODES,
    PODS,
    SCHEDULERS,
    Api,
    Body,
    cpu_s,
    find_programs,
    make_node,
    make_pod,
    memory_bytes,
    running_cluster,
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
    with running_cluster("--leases", "400") as (folder, kubeconfig):
        found = asyncio.run(_measure(folder, kubeconfig))
    where = f"{NODE_COUNT:,} nodes, {POD_COUNT:,} pods"
    (memory, cpu), (their_memory, their_cpu) = found[CLEARWAY], found[KUBE_SCHEDULER]
    yield Figure(
        name=f"memory at rest, {where}",
        value=memory,
        unit="MiB",
        is_rate=False,
        baseline=f"kube-scheduler {their_memory:.0f} MiB",
        ratio=their_memory / memory,
    )
    yield Figure(
        name=f"CPU at rest, {where}",
        value=cpu,
        unit="% of one",
        is_rate=False,
        baseline=f"kube-scheduler {their_cpu:.1f} %",
        ratio=their_cpu / max(cpu, 0.01),
    )


async def _measure(folder: Path, kubeconfig: Path) -> dict[str, tuple[float, float]]:
    """(MiB, percent of one CPU) by scheduler."""
    api = Api(kubeconfig)
    await api.post_all((NODES, make_node(f"n{number:05}")) for number in range(NODE_COUNT))
    await api.post_all((PODS, _make_bound(number)) for number in range(POD_COUNT))
    found = {}
    for who, running in SCHEDULERS.items():
        around = running(folder, kubeconfig)
        pid = await asyncio.to_thread(around.__enter__)
        try:
            await asyncio.sleep(SETTLE_S)
            used, begun = cpu_s(pid), time.monotonic()
            await asyncio.sleep(REST_S)
            share = 100 * (cpu_s(pid) - used) / (time.monotonic() - begun)
            found[who] = (memory_bytes(pid) / MIB, share)
        finally:
            await asyncio.to_thread(around.__exit__, None, None, None)
    return found


def _make_bound(number: int) -> Body:
    """A pod that was put on its node when it was made, and runs."""
    who = (CLEARWAY, KUBE_SCHEDULER)[number % 2]
    return make_pod(f"p{number:05}", who, gpus=1, nodeName=f"n{number % NODE_COUNT:05}")
