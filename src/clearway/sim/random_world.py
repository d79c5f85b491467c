"""Small random worlds for property and soak tests: everything that can be asked, in odd mixtures, from one seed.

A world is small on purpose (a few nodes, some dozens of jobs) and crowded: collisions are what is looked for. Some of
its jobs can never start, some depend on what will never happen. The same seed gives the same world, byte for byte; the
parts have streams of their own, so that more jobs do not change the cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from clearway.model.cluster import ClusterSpec, DeviceGroup, LinkSpec, NodeSpec, QueueSpec, Quota, TenantSpec
from clearway.model.events import (
    DemandForecast,
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    NodeDrained,
    NodeUp,
    PowerBudgetSet,
)
from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT, JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import (
    ArrayMember,
    Checkpoint,
    Dependency,
    DependencyKind,
    DomainLevel,
    Elastic,
    JobKind,
    JobSpec,
    Network,
    Outcome,
    Request,
)
from clearway.model.units import GIB, HOUR_MS, MILLI, MINUTE_MS, SECOND_MS
from clearway.sim.faults import Fault
from clearway.sim.workload import TraceJob, Workload

NODES_MAX: Final = 6
JOBS_MAX: Final = 40
SPAN_MS: Final = 2 * HOUR_MS
"""Jobs are submitted, and things fail, within this time."""
URGENT: Final = QueueName("urgent")
QOS: Final = ("", "high", "normal", "unknown")
MODELS: Final = ("small", "large")

Thing = TypeVar("Thing")
Draw = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Arguments of `run_twin`."""

    seed: int
    workload: Workload
    cluster: ClusterSpec
    queues: tuple[QueueSpec, ...]
    tenants: tuple[TenantSpec, ...]
    faults: tuple[Fault, ...]
    extra_events: tuple[Event, ...]


def make_power_world(seed: int) -> World:
    """The world of `seed` with known watts and a budget: from what idle devices draw to more than enough."""
    world, draw = make_world(seed), np.random.default_rng([seed, 5])
    watts = {model: _pick(draw, (0, 250, 400, 700)) for model in MODELS}
    nodes = tuple(
        replace(node, groups=tuple(replace(group, watts_max=watts[group.model]) for group in node.groups))
        for node in world.cluster.nodes
    )
    most = sum(group.count * group.watts_max for node in nodes for group in node.groups)
    changes = tuple(
        PowerBudgetSet(at_ms, _between(draw, most // 10, most) if _chance(draw, 0.7) else None)
        for at_ms in sorted(int(draw.integers(SPAN_MS)) for _ in range(_pick(draw, (0, 0, 1, 3))))
    )
    return replace(
        world,
        cluster=replace(world.cluster, nodes=nodes, power_budget_watts=_between(draw, most // 10, most)),
        extra_events=tuple(sorted((*world.extra_events, *changes), key=lambda event: event.at_ms)),
    )


def make_linked_world(seed: int) -> World:
    """The world of `seed` with links that cost time, wide ones most, and jobs that name a QOS or ask to come last."""
    world, draw = make_world(seed), np.random.default_rng([seed, 7])
    widest = sorted(_between(draw, 1, 400) for _ in DomainLevel)
    links = tuple(
        (str(level), LinkSpec(bandwidth_gbps=float(gbps), latency_us=float(_between(draw, 0, 500))))
        for level, gbps in zip(DomainLevel, reversed(widest), strict=True)
        if _chance(draw, 0.7)
    )
    jobs = [
        replace(job, spec=replace(job.spec, qos=_pick(draw, QOS), priority=_between(draw, -3, 3)))
        for job in world.workload.jobs
    ]
    return replace(world, workload=replace(world.workload, jobs=jobs), cluster=replace(world.cluster, links=links))


def make_world(seed: int) -> World:
    """The world of `seed`."""
    streams = [np.random.default_rng([seed, part]) for part in range(5)]
    cluster = ClusterSpec(nodes=_nodes(streams[0]))
    tenants = _tenants(streams[1], cluster.device_count)
    jobs = _jobs(streams[2], [tenant.name for tenant in tenants] or [ROOT_TENANT])
    if seed % 4 == 1:  # the other worlds are as they were before there were such dependencies
        jobs = _with_rarer_dependencies(np.random.default_rng([seed, 6]), jobs)
    return World(
        seed=seed,
        workload=Workload(f"random-{seed}", jobs),
        cluster=cluster,
        queues=_queues(streams[1], cluster.device_count),
        tenants=tenants,
        faults=_faults(streams[3], cluster),
        extra_events=_extra_events(streams[4], cluster, jobs),
    )


# --- drawing ----------------------------------------------------------------------------------------------------------


def _chance(draw: Draw, probability: float) -> bool:
    return bool(draw.random() < probability)


def _pick(draw: Draw, things: Sequence[Thing]) -> Thing:
    return things[int(draw.integers(len(things)))]


def _between(draw: Draw, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(draw.integers(low, high + 1))


def _time_ms(draw: Draw, mean_ms: int) -> int:
    """A time with a heavy tail, often on a whole minute, so that things coincide."""
    time_ms = 1 + int(draw.exponential(mean_ms))
    return max(1, round(time_ms / MINUTE_MS)) * MINUTE_MS if _chance(draw, 0.5) else time_ms


# --- the cluster ------------------------------------------------------------------------------------------------------


def _nodes(draw: Draw) -> tuple[NodeSpec, ...]:
    count = _between(draw, 1, NODES_MAX)
    is_alike = _chance(draw, 0.5)
    size = _pick(draw, (1, 2, 4, 8))
    has_limits = _chance(draw, 0.5)
    return tuple(_node(draw, index, size if is_alike else None, has_limits=has_limits) for index in range(count))


def _node(draw: Draw, index: int, size: int | None, *, has_limits: bool) -> NodeSpec:
    labels = [("fabric", "infiniband")] if _chance(draw, 0.6) else []
    labels += [("zone", _pick(draw, ("east", "west")))] if _chance(draw, 0.5) else []
    return NodeSpec(
        name=NodeName(f"node-{index}"),
        groups=_groups(draw, size),
        cpu_milli=_between(draw, 1, 32) * MILLI if has_limits else None,
        memory_bytes=_between(draw, 8, 256) * GIB if has_limits else None,
        nvlink=f"rack-{index // 2}" if _chance(draw, 0.2) else "",
        leaf=f"leaf-{index // 2}" if _chance(draw, 0.8) else "",
        block=f"block-{index // 4}" if _chance(draw, 0.8) else "",
        labels=tuple(labels),
    )


def _groups(draw: Draw, size: int | None) -> tuple[DeviceGroup, ...]:
    if size is not None:
        return (DeviceGroup(model=MODELS[0], count=size, memory_bytes=16 * GIB),)
    models = MODELS if _chance(draw, 0.2) else (_pick(draw, MODELS),)
    if _chance(draw, 0.05):
        return ()
    return tuple(
        DeviceGroup(
            model=model,
            count=_between(draw, 1, 8),
            memory_bytes=0 if _chance(draw, 0.2) else (16 if model == MODELS[0] else 80) * GIB,
            speed=1.0 if model == MODELS[0] else 2.5,
            nvlink_size=_pick(draw, (0, 0, 2, 4)),
        )
        for model in models
    )


def _queues(draw: Draw, devices: int) -> tuple[QueueSpec, ...]:
    is_limited = _chance(draw, 0.3)
    return (
        QueueSpec(
            name=DEFAULT_QUEUE,
            devices_max_milli=_between(draw, 1, max(1, devices)) * MILLI if is_limited else None,
            running_max=_between(draw, 1, 10) if _chance(draw, 0.2) else None,
            limit_default_ms=HOUR_MS if _chance(draw, 0.3) else None,
        ),
        QueueSpec(
            name=URGENT,
            priority=10,
            preempts=(DEFAULT_QUEUE,) if _chance(draw, 0.8) else (),
            job_devices_max_milli=4 * MILLI if _chance(draw, 0.2) else None,
        ),
    )


def _tenants(draw: Draw, devices: int) -> tuple[TenantSpec, ...]:
    tenants: list[TenantSpec] = []
    for index in range(_pick(draw, (0, 0, 2, 3, 4))):
        parent = _pick(draw, tenants).name if tenants and _chance(draw, 0.3) else None
        name = TenantName(f"team-{index}")
        quota = _quota(draw, devices) if _chance(draw, 0.7) else None
        tenants.append(TenantSpec(name=name, parent=parent, weight=float(_between(draw, 1, 4)), quota=quota))
    return tuple(tenants)


def _quota(draw: Draw, devices: int) -> Quota:
    return Quota(
        guaranteed_milli=_between(draw, 0, max(1, devices // 2)) * MILLI,
        borrow_max_milli=_between(draw, 0, 4) * MILLI if _chance(draw, 0.5) else None,
        lend_max_milli=_between(draw, 0, 4) * MILLI if _chance(draw, 0.5) else None,
    )


# --- the jobs ---------------------------------------------------------------------------------------------------------


def _jobs(draw: Draw, tenants: Sequence[TenantName]) -> list[TraceJob]:
    count = _between(draw, 1, JOBS_MAX)
    requests = [_request(draw) for _ in range(_between(draw, 1, 6))]
    span_ms = _pick(draw, (0, MINUTE_MS, SPAN_MS // 4, SPAN_MS))
    submits = sorted(int(draw.integers(span_ms + 1)) // SECOND_MS * SECOND_MS for _ in range(count))
    array = 0
    jobs: list[TraceJob] = []
    for number, submit_ms in enumerate(submits, start=1):
        array = array if array and _chance(draw, 0.8) else number if _chance(draw, 0.05) else 0
        member = ArrayMember(array=JobId(array), index=number, parallel_max=2) if array else None
        jobs.append(
            _job(draw, JobId(number), submit_ms - submits[0], _pick(draw, requests), _pick(draw, tenants), member)
        )
    return jobs


def _request(draw: Draw) -> Request:
    is_share = _chance(draw, 0.3)
    return Request(
        devices=1 if is_share else _pick(draw, (0, 1, 1, 1, 2, 2, 4, 8)),
        share_milli=_pick(draw, (100, 250, 400, 500, 600)) if is_share else MILLI,
        device_memory_bytes=_between(draw, 1, 20) * GIB if _chance(draw, 0.2) else 0,
        device_models=(_pick(draw, MODELS),) if _chance(draw, 0.2) else (),
        cpu_milli=_between(draw, 0, 4) * MILLI if _chance(draw, 0.5) else 0,
        memory_bytes=_between(draw, 0, 32) * GIB if _chance(draw, 0.3) else 0,
        node_labels=(("zone", "east"),) if _chance(draw, 0.1) else (),
        exclusive=_chance(draw, 0.05),
    )


def _job(
    draw: Draw, number: JobId, submit_ms: int, request: Request, tenant: TenantName, array: ArrayMember | None
) -> TraceJob:
    run_ms = _time_ms(draw, 20 * MINUTE_MS) if _chance(draw, 0.97) else 0
    replicas = _pick(draw, (1, 1, 1, 2, 3, 4, 8))
    spec = JobSpec(
        id=number,
        request=request,
        replicas=replicas,
        name=_pick(draw, ("prepare", "train", "evaluate")),
        user=_pick(draw, ("ada", "bo")),
        tenant=tenant,
        queue=URGENT if _chance(draw, 0.2) else DEFAULT_QUEUE,
        kind=_pick(draw, tuple(JobKind)),
        priority=_between(draw, 0, 3),
        limit_ms=max(1, int(run_ms * draw.uniform(0.5, 4))) if _chance(draw, 0.7) else None,
        estimate_ms=max(1, int(run_ms * draw.uniform(0.2, 3))) if _chance(draw, 0.5) else None,
        network=_network(draw),
        elastic=_elastic(draw, replicas) if _chance(draw, 0.3) else None,
        checkpoint=_checkpoint(draw) if _chance(draw, 0.5) else None,
        preemptible=_chance(draw, 0.9),
        requeue=number % 6 != 0,
        suspendable=_chance(draw, 0.2),
        held=_chance(draw, 0.03),
        dependencies=_dependencies(draw, number),
        array=array,
        not_before_ms=submit_ms + _time_ms(draw, 20 * MINUTE_MS) if _chance(draw, 0.1) else None,
        deadline_ms=submit_ms + _time_ms(draw, HOUR_MS) if _chance(draw, 0.2) else None,
    )
    outcome = _pick(draw, (Outcome.FAILED, Outcome.OUT_OF_MEMORY)) if _chance(draw, 0.15) else Outcome.COMPLETED
    return TraceJob(spec, submit_ms, run_ms, "", outcome)


def _network(draw: Draw) -> Network:
    if _chance(draw, 0.7):
        return Network()
    fabric = "infiniband" if _chance(draw, 0.3) else ""
    return Network(widest=_pick(draw, tuple(DomainLevel)), preferred=_pick(draw, tuple(DomainLevel)), fabric=fabric)


def _elastic(draw: Draw, replicas: int) -> Elastic:
    low, high = _between(draw, 1, replicas), _between(draw, replicas, 2 * replicas)
    curve = ((1, 1.0), (2, 1.8), (4, 3.0), (16, 6.0)) if _chance(draw, 0.5) else ()
    return Elastic(replicas_min=low, replicas_max=high, speedup=curve)


def _checkpoint(draw: Draw) -> Checkpoint:
    return Checkpoint(
        interval_ms=_time_ms(draw, 5 * MINUTE_MS),
        cost_ms=_between(draw, 0, 30) * SECOND_MS,
        restart_ms=_between(draw, 0, 60) * SECOND_MS,
        grace_ms=_between(draw, 0, 60) * SECOND_MS,
        on_signal=_chance(draw, 0.7),
    )


def _dependencies(draw: Draw, number: JobId) -> tuple[Dependency, ...]:
    if number == 1 or _chance(draw, 0.85):
        return ()
    kind = _pick(draw, tuple(DependencyKind))
    job = None if kind is DependencyKind.SINGLETON else JobId(_between(draw, 1, number - 1))
    return (Dependency(kind=kind, job=job),)


def _with_rarer_dependencies(draw: Draw, jobs: list[TraceJob]) -> list[TraceJob]:
    """The jobs, some of which wait for any of several, for a time after a start, or for one task of an array."""
    return [replace(job, spec=_wait_rarely(draw, job.spec, jobs)) if _chance(draw, 0.25) else job for job in jobs]


def _wait_rarely(draw: Draw, spec: JobSpec, jobs: list[TraceJob]) -> JobSpec:
    members = [job.spec.array for job in jobs if job.spec.array is not None and job.spec.id != spec.id]
    wanted: list[Dependency] = []
    for _ in range(_between(draw, 1, 3)):
        other = _pick(draw, jobs).spec.id
        if other == spec.id:
            continue
        kind = _pick(draw, (DependencyKind.AFTER, DependencyKind.AFTER_ANY, DependencyKind.AFTER_NOT_OK))
        delay_ms = _time_ms(draw, 5 * MINUTE_MS) if kind is DependencyKind.AFTER and _chance(draw, 0.7) else 0
        if members and _chance(draw, 0.5):
            member = _pick(draw, members)
            wanted.append(Dependency(kind=kind, job=member.array, task=member.index, delay_ms=delay_ms))
        else:
            wanted.append(Dependency(kind=kind, job=other, delay_ms=delay_ms))
    return replace(spec, dependencies=tuple(wanted), depends_on_any=_chance(draw, 0.5))


# --- what happens besides ---------------------------------------------------------------------------------------------


def _faults(draw: Draw, cluster: ClusterSpec) -> tuple[Fault, ...]:
    faults = []
    for _ in range(_pick(draw, (0, 0, 1, 3, 6))):
        at_ms = int(draw.integers(SPAN_MS)) // SECOND_MS * SECOND_MS
        node = int(draw.integers(len(cluster.nodes)))
        size = cluster.nodes[node].device_count
        device = int(draw.integers(size)) if size and _chance(draw, 0.5) else None
        faults.append(Fault(at_ms, at_ms + _time_ms(draw, 20 * MINUTE_MS), node, device))
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _extra_events(draw: Draw, cluster: ClusterSpec, jobs: Sequence[TraceJob]) -> tuple[Event, ...]:
    events: list[Event] = []
    for job in jobs:
        at_ms = job.submit_ms + _time_ms(draw, 10 * MINUTE_MS) - 1
        if _chance(draw, 0.08):
            events.append(JobCancelled(at_ms, job.spec.id))
        if _chance(draw, 0.05):
            events.append(JobHeld(at_ms, job.spec.id))
        if job.spec.held or _chance(draw, 0.05):
            events.append(JobReleased(at_ms + _time_ms(draw, 10 * MINUTE_MS), job.spec.id))
    if _chance(draw, 0.2):
        node = _pick(draw, cluster.nodes).name
        at_ms = int(draw.integers(SPAN_MS))
        events += [NodeDrained(at_ms, node), NodeUp(at_ms + _time_ms(draw, 20 * MINUTE_MS), node)]
    if _chance(draw, 0.1):
        at_ms = int(draw.integers(SPAN_MS))
        events.append(DemandForecast(at_ms, _between(draw, 1, 4), at_ms + 10 * MINUTE_MS))
    return tuple(sorted(events, key=lambda event: event.at_ms))
