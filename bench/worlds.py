"""Clusters, kernels and jobs that the benchmarks are made of. Everything is drawn from fixed seeds."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from clearway.engine.policy import Policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec, QueueSpec, Quota, TenantSpec
from clearway.model.commands import Command
from clearway.model.events import Batch, Event, JobStarted, JobSubmitted, NodeAdded, QueueSet, TenantSet
from clearway.model.jobs import JobSpec, Request
from clearway.model.plan import Start
from clearway.model.units import HOUR_MS, MINUTE_MS

TRACES: Final = Path(__file__).parents[2] / "shared" / "traces"

NODES_PER_LEAF: Final = 16
NODES_PER_BLOCK: Final = 128
TEAMS: Final = 8

SIZES: Final = np.array([1, 2, 4, 8, 16, 32, 64])
SIZE_SHARES: Final = np.array([0.52, 0.14, 0.12, 0.14, 0.04, 0.025, 0.015])
"""Devices per job and how common they are, near Philly's and Helios's mixtures."""


def make_cluster(nodes: int, devices: int) -> ClusterSpec:
    """Equal nodes in racks and blocks."""
    group = DeviceGroup(model="gpu", count=devices)
    return ClusterSpec(
        nodes=tuple(
            NodeSpec(
                name=f"n{index}",
                groups=(group,),
                leaf=f"leaf{index // NODES_PER_LEAF}",
                block=f"block{index // NODES_PER_BLOCK}",
            )
            for index in range(nodes)
        )
    )


def make_kernel(policy: Policy, nodes: int, devices: int, *, has_quotas: bool = True) -> Kernel:
    """A kernel over such a cluster, with a tree of tenants, which may have quotas and may borrow, and three queues."""
    quota = Quota(guaranteed_milli=nodes * devices * 1000 // TEAMS) if has_quotas else None
    events: list[Event] = [NodeAdded(0, node) for node in make_cluster(nodes, devices).nodes]
    events += [QueueSet(0, QueueSpec(name=f"queue{rank}", priority=rank)) for rank in range(3)]
    for team in range(TEAMS):
        events.append(TenantSet(0, TenantSpec(name=f"team{team}", quota=quota)))
        events.append(TenantSet(0, TenantSpec(name=f"team{team}-a", parent=f"team{team}")))
    kernel = Kernel(policy, RuntimeHistory())
    kernel.handle(Batch(0, tuple(events)))
    return kernel


def equal_jobs(first: int, count: int, *, replicas: int = 1, **spec: object) -> list[JobSpec]:
    """Jobs that ask the same, of many users, tenants, queues and priorities."""
    request = Request(devices=1)
    return [
        JobSpec(  # type: ignore[arg-type]
            **{
                "id": job,
                "request": request,
                "replicas": replicas,
                "tenant": f"team{job % TEAMS}-a",
                "queue": f"queue{job % 3}",
                "user": f"user{job % 97}",
                "priority": job % 4,
                "limit_ms": HOUR_MS + job % 1009 * MINUTE_MS,
                **spec,
            }
        )
        for job in range(first, first + count)
    ]


def mixed_jobs(first: int, count: int, seed: int) -> list[JobSpec]:
    """Jobs of 1 to 64 devices on whole nodes where they can, with log-normal run times and users' generous limits."""
    draw = np.random.default_rng(seed)
    sizes = draw.choice(SIZES, count, p=SIZE_SHARES)
    run_ms = np.clip(draw.lognormal(np.log(HOUR_MS), 1.5, count), MINUTE_MS, 7 * 24 * HOUR_MS).astype(np.int64)
    limit_ms = (run_ms * draw.uniform(1.0, 5.0, count)).astype(np.int64)
    return [
        JobSpec(
            id=first + index,
            request=Request(devices=min(size, 8)),
            replicas=max(size // 8, 1),
            tenant=f"team{index % TEAMS}-a",
            queue=f"queue{index % 3}",
            user=f"user{index % 97}",
            name=f"name{index % 31}",
            limit_ms=limit,
            estimate_ms=limit,
        )
        for index, (size, limit) in enumerate(zip(sizes.tolist(), limit_ms.tolist(), strict=True))
    ]


def submits(at_ms: int, jobs: Iterable[JobSpec]) -> list[Event]:
    """One event for each job."""
    return [JobSubmitted(at_ms, job) for job in jobs]


def start_all(kernel: Kernel, at_ms: int, commands: Sequence[Command]) -> list[Start]:
    """Report all starts among the commands as carried out, and return them."""
    starts = [command for command in commands if isinstance(command, Start)]
    if starts:
        kernel.handle(Batch(at_ms, tuple(JobStarted(at_ms, start.job, start.generation) for start in starts)))
    return starts


def fill(kernel: Kernel, seed: int, *, first: int = 1, at_ms: int = 0) -> tuple[list[Start], int]:
    """Fill the cluster with mixed jobs. Returns what runs, and the next unused id. What did not fit stays waiting."""
    free = kernel.state.inventory.device_count
    jobs = mixed_jobs(first, free // 2, seed)
    total, chosen = 0, []
    for job in jobs:
        size = job.replicas * job.request.devices
        if total + size <= free:
            total += size
            chosen.append(job)
    commands = kernel.handle(Batch(at_ms, tuple(submits(at_ms, chosen))))
    return start_all(kernel, at_ms, commands), first + len(jobs)
