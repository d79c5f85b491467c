"""What a workload holds, as plain data for `clearway trace describe`: numbers, strings, lists and dicts only."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearway.model.units import HOUR_MS, MILLI, SECOND_MS
from clearway.sim.workload import TraceJob, Workload

PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
HOURS = 24
SIZES_SHOWN = 20
"""Sizes listed at most, the most frequent ones: a trace of CPU jobs has hundreds."""

FloatArray = NDArray[np.float64]


def describe_workload(workload: Workload) -> dict[str, object]:
    """Counts, span, sizes, run times, arrivals by hour, load, accuracy of the users' estimates, and what was left out.

    Times in seconds, sizes in devices. `load_device_s_per_s` is the work of all jobs over the time between the first
    and the last submit: the number of devices that would be busy on average. `arrivals_by_hour` counts jobs by hour of
    the day, of the wall clock where the trace has one, else of the time since the first submit.
    """
    jobs = workload.jobs
    run_s = np.array([job.run_ms for job in jobs], dtype=np.float64) / SECOND_MS
    devices = np.array([_devices(job) for job in jobs], dtype=np.float64)
    span_s = (jobs[-1].submit_ms - jobs[0].submit_ms) / SECOND_MS if jobs else 0.0
    work = float(np.dot(run_s, devices))
    return {
        "name": workload.name,
        "jobs": len(jobs),
        "span_s": span_s,
        "start_unix_s": None if workload.start_unix_ms is None else workload.start_unix_ms / SECOND_MS,
        "users": len({job.spec.user for job in jobs if job.spec.user}),
        "tenants": len({job.spec.tenant for job in jobs}),
        "queues": len({job.spec.queue for job in jobs}),
        "kinds": _counts([str(job.spec.kind) for job in jobs]),
        "outcomes": _counts([str(job.outcome) for job in jobs]),
        "sizes": _sizes(devices, run_s * devices),
        "devices": _summary(devices),
        "run_s": _summary(run_s),
        "device_s": work,
        "load_device_s_per_s": work / span_s if span_s > 0 else None,
        "arrivals_by_hour": _arrivals_by_hour(jobs, workload.start_unix_ms or 0),
        "estimates": _estimates(jobs),
        "elastic_jobs": sum(job.spec.elastic is not None for job in jobs),
        "fractional_jobs": sum(job.spec.request.is_fractional for job in jobs),
        "cluster": _cluster(workload),
        "skipped": [
            {"reason": part.reason, "count": part.count, "lines": list(part.lines)} for part in workload.skipped
        ],
        "notes": list(workload.notes),
    }


def _devices(job: TraceJob) -> float:
    return job.spec.replicas * job.spec.request.device_milli / MILLI


def _counts(values: Sequence[str]) -> dict[str, int]:
    """The most frequent first, ties by name."""
    found: dict[str, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _summary(values: FloatArray) -> dict[str, float] | None:
    if not len(values):
        return None
    points = {f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTILES}
    return {"mean": float(values.mean()), "min": float(values.min()), **points, "max": float(values.max())}


def _sizes(devices: FloatArray, work: FloatArray) -> list[dict[str, float]]:
    """By devices: jobs, and their share of the work. The most frequent sizes, in order of size."""
    sizes, index = np.unique(devices, return_inverse=True)
    jobs = np.bincount(index, minlength=len(sizes))
    shares = np.bincount(index, weights=work, minlength=len(sizes)) / max(float(work.sum()), 1e-9)
    shown = np.sort(np.argsort(-jobs, kind="stable")[:SIZES_SHOWN])
    return [
        {"devices": float(sizes[row]), "jobs": int(jobs[row]), "work_share": float(shares[row])}
        for row in shown.tolist()
    ]


def _arrivals_by_hour(jobs: Sequence[TraceJob], start_unix_ms: int) -> list[int]:
    counts = [0] * HOURS
    for job in jobs:
        counts[(start_unix_ms + job.submit_ms) // HOUR_MS % HOURS] += 1
    return counts


def _estimates(jobs: Sequence[TraceJob]) -> dict[str, object]:
    """run_over_estimate: 1.0 is a perfect estimate, 0.1 one of ten times the run. cut: runs longer than their limit."""
    ratios = [job.run_ms / job.spec.estimate_ms for job in jobs if job.spec.estimate_ms]
    cut = sum(job.spec.limit_ms is not None and job.run_ms > job.spec.limit_ms for job in jobs)
    return {"jobs": len(ratios), "cut": cut, "run_over_estimate": _summary(np.array(ratios, dtype=np.float64))}


def _cluster(workload: Workload) -> dict[str, int] | None:
    if workload.cluster is None:
        return None
    return {"nodes": len(workload.cluster.nodes), "devices": workload.cluster.device_count}
