"""The built-in case study: both sides run, measured, and held against the published result."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clearway.bootstrap.inputs import ProgressCallback
from clearway.bootstrap.policies import read_policy
from clearway.bootstrap.simulation import Prepared, Run, measure, simulate
from clearway.model.jobs import JobKind
from clearway.model.units import SECOND_MS
from clearway.sim.casestudy import (
    PUBLISHED,
    STATIC_TRAINING_NODES,
    TASK_LATENCY_TARGET_MS,
    CaseStudy,
    Setup,
    make_case_study,
    offered_devices,
)
from clearway.sim.parts import add_parts
from clearway.sim.result import NEVER_MS, JobColumns, SimResult

STATIC_NAME: Final = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFigures:
    """Time from submission to start, in seconds. promised_ratio: share that started within the latency target."""

    tasks: int
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    promised_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFigures:
    """One side. use_ratio: device-time held / available; effective_use_ratio: of work that was kept.

    tasks: all inference tasks; steady: those outside the burst; burst: those of it. training_*: over training jobs;
    jct from submission to end, wait from submission to the first start, run from there to the end.
    """

    use_ratio: float
    effective_use_ratio: float
    tasks: WaitFigures
    steady: WaitFigures
    burst: WaitFigures
    training_jct_mean_s: float
    training_jct_p50_s: float
    training_wait_mean_s: float
    training_run_mean_s: float
    preemptions: int
    lost_device_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudyRun:
    """Both sides. offered_training, offered_inference: devices that the load would keep busy on average.

    burst_floor_s: no schedule on this many devices gives the tasks of the burst a smaller mean wait.
    """

    study: CaseStudy
    static: Run
    dynamic: Run
    static_figures: SideFigures
    dynamic_figures: SideFigures
    offered_training: float
    offered_inference: float
    burst_floor_s: float


def run_case_study(
    seed: int, *, training_nodes: int = STATIC_TRAINING_NODES, progress: ProgressCallback | None = None
) -> CaseStudyRun:
    """Run the parts of the static side and the dynamic side. progress: called with (jobs ended, jobs in all)."""
    return run_study(make_case_study(seed, training_nodes=training_nodes), progress)


def run_study(study: CaseStudy, progress: ProgressCallback | None = None) -> CaseStudyRun:
    """`run_case_study` for a study that is made already, or a part of one."""
    setups = (*study.static, study.dynamic)
    results = _simulate_all(setups, progress)
    whole = study.dynamic
    cluster_name = f"{len(whole.cluster.nodes)}x{whole.cluster.nodes[0].device_count}"
    static = add_parts(results[:-1], policy=STATIC_NAME, cluster=cluster_name)
    return CaseStudyRun(
        study=study,
        static=measure(static, study.static_workload, whole.cluster),
        dynamic=measure(results[-1], whole.workload, whole.cluster),
        static_figures=measure_side(static, study.burst_jobs),
        dynamic_figures=measure_side(results[-1], study.burst_jobs),
        offered_training=offered_devices(whole.workload, JobKind.TRAIN),
        offered_inference=offered_devices(whole.workload, JobKind.TASK),
        burst_floor_s=burst_floor_s(study),
    )


def burst_floor_s(study: CaseStudy) -> float:
    """Least possible mean wait of the burst: the shortest tasks first, on every device of the centre, all idle.

    Shortest first on equal machines has the smallest mean wait (Conway, Maxwell, Miller 1967).
    """
    burst = study.burst_jobs
    runs_ms = sorted(job.run_ms for job in study.dynamic.workload.jobs if job.spec.id in burst)
    free_ms = [0] * study.dynamic.cluster.device_count
    waited_ms = 0
    for place, run_ms in enumerate(runs_ms):
        device = place % len(free_ms)
        waited_ms += free_ms[device]
        free_ms[device] += run_ms
    return waited_ms / len(runs_ms) / SECOND_MS


def case_study_as_json(run: CaseStudyRun) -> dict[str, Any]:
    """Figures of both sides, the published ones, and what they rest on."""
    return {
        "seed": run.study.dynamic.seed,
        "static_devices": {
            "training": run.study.static[0].cluster.device_count,
            "inference": run.study.static[1].cluster.device_count,
        },
        "devices": run.study.dynamic.cluster.device_count,
        "offered_devices": {"training": run.offered_training, "inference": run.offered_inference},
        "latency_target_s": TASK_LATENCY_TARGET_MS / SECOND_MS,
        "burst_wait_mean_floor_s": run.burst_floor_s,
        "static": asdict(run.static_figures),
        "clearway": asdict(run.dynamic_figures),
        "training_time_change_ratio": training_time_change(run),
        "training_run_change_ratio": training_run_change(run),
        "published": asdict(PUBLISHED),
    }


def training_time_change(run: CaseStudyRun) -> float:
    """Change of the mean completion time of training jobs, as a ratio; negative is faster."""
    return run.dynamic_figures.training_jct_mean_s / run.static_figures.training_jct_mean_s - 1


def training_run_change(run: CaseStudyRun) -> float:
    """Change of the mean run time of training jobs, without the wait before their first start, as a ratio."""
    return run.dynamic_figures.training_run_mean_s / run.static_figures.training_run_mean_s - 1


def _simulate_all(setups: tuple[Setup, ...], progress: ProgressCallback | None) -> list[SimResult]:
    total = sum(len(setup.workload.jobs) for setup in setups)
    results: list[SimResult] = []
    done = 0
    for setup in setups:
        results.append(simulate(_prepare(setup), _shifted(progress, done, total)))
        done += len(setup.workload.jobs)
    return results


def _shifted(progress: ProgressCallback | None, before: int, total: int) -> Callable[[int, int], None] | None:
    """A callback that counts on from `before` jobs."""
    return None if progress is None else lambda done, _part: progress(before + done, total)


def _prepare(setup: Setup) -> Prepared:
    return Prepared(
        workload=setup.workload,
        cluster=setup.cluster,
        cluster_name=setup.name,
        policy=read_policy(setup.policy),
        queues=setup.queues,
        faults=setup.faults,
        seed=setup.seed,
    )


def measure_side(result: SimResult, burst_jobs: range) -> SideFigures:
    """The figures of one side. burst_jobs: ids of the tasks of the burst. NaN where there is nothing to measure."""
    jobs = result.jobs
    is_task = jobs.kind == jobs.kind_names.index(JobKind.TASK)
    is_burst = (jobs.job >= burst_jobs.start) & (jobs.job < burst_jobs.stop)
    training = ~is_task & (jobs.end_ms != NEVER_MS)
    jct_s = (jobs.end_ms - jobs.submit_ms)[training] / SECOND_MS
    wait_s = (jobs.start_ms - jobs.submit_ms)[training] / SECOND_MS
    return SideFigures(
        use_ratio=result.allocated_device_ms / result.capacity_device_ms,
        effective_use_ratio=result.useful_device_ms / result.capacity_device_ms,
        tasks=_waits(jobs, is_task),
        steady=_waits(jobs, is_task & ~is_burst),
        burst=_waits(jobs, is_burst),
        training_jct_mean_s=_mean(jct_s),
        training_jct_p50_s=_quantile(jct_s, 0.5),
        training_wait_mean_s=_mean(wait_s),
        training_run_mean_s=_mean(jct_s - wait_s),
        preemptions=int(jobs.preemptions.sum()),
        lost_device_s=float(jobs.lost_device_ms.sum()) / SECOND_MS,
    )


def _waits(jobs: JobColumns, chosen: NDArray[np.bool_]) -> WaitFigures:
    waits_s = (jobs.start_ms - jobs.submit_ms)[chosen & (jobs.start_ms != NEVER_MS)] / SECOND_MS
    return WaitFigures(
        tasks=int(chosen.sum()),
        mean_s=_mean(waits_s),
        p50_s=_quantile(waits_s, 0.5),
        p99_s=_quantile(waits_s, 0.99),
        max_s=_quantile(waits_s, 1.0),
        promised_ratio=_mean(waits_s <= TASK_LATENCY_TARGET_MS / SECOND_MS),
    )


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _quantile(values: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan
