"""One workload under one policy in the twin: from what a person named to what happened."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from clearway.bootstrap.inputs import ProgressCallback, choose_cluster, find_speeds, read_faults, read_site, read_trace
from clearway.bootstrap.policies import read_policy
from clearway.engine.policy import Policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.cluster import ClusterSpec, QueueSpec, TenantSpec
from clearway.model.ids import JobId
from clearway.model.plan import ReasonCode
from clearway.sim.bounds import Bounds, compute_bounds
from clearway.sim.bounds_ceiling import SpeedCeiling, ceiling_of_spec, ceiling_of_speeds
from clearway.sim.checkers import ShadowCluster, StateChecker
from clearway.sim.demand import forecast_demand
from clearway.sim.faults import Fault
from clearway.sim.metrics import Metrics, compute_metrics
from clearway.sim.profiles import SpeedModel
from clearway.sim.result import NEVER_MS, JobColumns, SimResult
from clearway.sim.twin import WatchesDecisions, run_twin
from clearway.sim.workload import Workload

EXPLAINED_MAX: Final = 20
"""Jobs that never started of which it is asked why: each costs some tens of milliseconds where many others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """What a person asked for, in their words. Every field means what the option of its name says."""

    trace: str
    policy: str
    format_name: str | None = None
    cluster: str | None = None
    site: Path | None = None
    faults: str = "none"
    seed: int = 0
    limit: int | None = None
    is_checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that a run needs, read and checked."""

    workload: Workload
    cluster: ClusterSpec
    cluster_name: str
    policy: Policy
    queues: tuple[QueueSpec, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()
    faults: tuple[Fault, ...] = ()
    speeds: SpeedModel | None = None
    seed: int = 0
    is_checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstarted:
    """Jobs that never started, for one reason: how many, the first of them, and what was in its way at the end; "" for
    those beyond EXPLAINED_MAX."""

    count: int
    job: JobId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened. bounds: about the jobs that finished, so that the gap compares like with like. unstarted: one
    for each reason; () where it was not asked."""

    workload: Workload
    result: SimResult
    metrics: Metrics
    bounds: Bounds
    unstarted: tuple[Unstarted, ...] = ()


def prepare(request: SimulationRequest, progress: ProgressCallback | None = None) -> Prepared:
    """Read all that `request` names; what is small is read first, so that a mistake shows at once."""
    policy = read_policy(request.policy)
    site = read_site(request.site)
    workload = read_trace(
        request.trace, format_name=request.format_name, limit=request.limit, seed=request.seed, progress=progress
    )
    cluster = choose_cluster(request.cluster, workload)
    return Prepared(
        workload=workload,
        cluster=cluster.spec,
        cluster_name=cluster.name,
        policy=policy,
        queues=site.queues or workload.queues,
        tenants=site.tenants or workload.tenants,
        faults=read_faults(request.faults, cluster.spec, workload, request.seed),
        speeds=find_speeds(request.trace, workload),
        seed=request.seed,
        is_checked=request.is_checked,
    )


def run_prepared(prepared: Prepared, progress: ProgressCallback | None = None, *, explains: bool = False) -> Run:
    """Replay and measure. explains: whether to ask, too, why jobs never started."""
    ceiling = ceiling_of_spec if prepared.speeds is None else ceiling_of_speeds(prepared.speeds)
    kernel = Kernel(prepared.policy, RuntimeHistory())
    run = measure(_replay(kernel, prepared, progress), prepared.workload, prepared.cluster, ceiling)
    return replace(run, unstarted=_explain_unstarted(kernel, run.result.jobs)) if explains else run


def _explain_unstarted(kernel: Kernel, jobs: JobColumns) -> tuple[Unstarted, ...]:
    """By reason, the first of each job; the kernel is as the replay left it."""
    rows = np.flatnonzero((jobs.start_ms == NEVER_MS) & (jobs.end_ms == NEVER_MS))
    found: dict[ReasonCode, Unstarted] = {}
    for job in map(JobId, jobs.job[rows[:EXPLAINED_MAX]].tolist()):
        reason = next(iter(kernel.explain(job).reasons), None)
        if reason is None:
            continue
        first = found.get(reason.code, Unstarted(count=0, job=job, why=reason.message))
        found[reason.code] = replace(first, count=first.count + 1)
    rest = jobs.job[rows[EXPLAINED_MAX:]].tolist()
    return (*found.values(), *(Unstarted(count=len(rest), job=JobId(job), why="") for job in rest[:1]))


def simulate(prepared: Prepared, progress: ProgressCallback | None = None) -> SimResult:
    """Replay the workload through a kernel of its own. progress: called with (jobs ended, jobs in all)."""
    return _replay(Kernel(prepared.policy, RuntimeHistory()), prepared, progress)


def _replay(kernel: Kernel, prepared: Prepared, progress: ProgressCallback | None) -> SimResult:
    return run_twin(
        kernel,
        prepared.workload,
        prepared.cluster,
        queues=prepared.queues,
        tenants=prepared.tenants,
        faults=prepared.faults,
        extra_events=forecast_demand(prepared.workload.jobs) if prepared.policy.headroom.enabled else (),
        speed=prepared.speeds,
        seed=prepared.seed,
        cluster_name=prepared.cluster_name,
        checkers=_make_checkers(kernel, prepared.seed) if prepared.is_checked else (),
        progress=progress,
    )


def _make_checkers(kernel: Kernel, seed: int) -> tuple[WatchesDecisions, ...]:
    """Books kept from events and commands alone, and a comparison of the kernel's own state with them."""
    books = ShadowCluster(seed)
    return books, StateChecker(books, kernel.state)


def measure(
    result: SimResult, workload: Workload, cluster: ClusterSpec, ceiling: SpeedCeiling = ceiling_of_spec
) -> Run:
    """Metrics and bounds of a result."""
    finished = (result.jobs.start_ms != NEVER_MS) & (result.jobs.end_ms != NEVER_MS)
    return Run(
        workload=workload,
        result=result,
        metrics=compute_metrics(result),
        bounds=compute_bounds(workload, cluster, include=finished, ceiling=ceiling),
    )
