"""Results as files for other programs: one JSON document, and one CSV row per job. The names of keys and columns are
relied on by people's scripts: new ones may be added, none renamed or removed.
"""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from clearway.model.units import MILLI
from clearway.sim.bounds import Bounds
from clearway.sim.metrics import GroupMetrics, Metrics, Spread
from clearway.sim.result import NEVER_MS, IntColumn, JobColumns, SimResult
from clearway.sim.workload import Skipped

JOBS_CSV_COLUMNS: Final = (
    "job",
    "submit_s",
    "start_s",
    "end_s",
    "devices",
    "run_s",
    "queued_s",
    "kind",
    "tenant",
    "queue",
    "outcome",
    "preemptions",
    "restarts",
    "held_device_s",
    "lost_device_s",
    "name",
)
"""Times since the first submit of the trace; an empty cell means that it has not happened."""

CHUNK_ROWS: Final = 50_000
"""Rows turned into text at a time: some ten megabytes, whatever the length of the trace."""


def render_result_json(
    result: SimResult, metrics: Metrics, bounds: Bounds | None, *, skipped: Sequence[Skipped] = ()
) -> dict[str, Any]:
    """The document of `clearway simulate --json`. What could not be measured is None, never NaN.

    `gaps` says how far the run is from the bounds: (measured − bound) / bound for times, bound − measured for the
    allocation ratio; None where the bounds are about another number of jobs than finished.
    """
    document = {
        "workload": result.workload,
        "policy": result.policy,
        "cluster": result.cluster,
        "seed": result.seed,
        "decisions_digest": result.decisions_digest,
        "jobs_total": metrics.jobs_total,
        "jobs_started": metrics.jobs_started,
        "jobs_finished": metrics.jobs_finished,
        "skipped": [{"reason": each.reason, "count": each.count, "lines": list(each.lines)} for each in skipped],
        "wait_s": _spread(metrics.wait_s),
        "latency_target_ratio": metrics.latency_target_ratio,
        "queued_s": _spread(metrics.queued_s),
        "jct_s": _spread(metrics.jct_s),
        "bounded_slowdown": _spread(metrics.bounded_slowdown),
        "makespan_s": metrics.makespan_s,
        "device_allocation_ratio": metrics.device_allocation_ratio,
        "effective_use_ratio": metrics.effective_use_ratio,
        "goodput_ratio": metrics.goodput_ratio,
        "fragmentation_ratio": metrics.fragmentation_ratio,
        "preemptions": metrics.preemptions,
        "restarts": metrics.restarts,
        "held_device_s": metrics.held_device_s,
        "lost_device_s": metrics.lost_device_s,
        "fairness": _fairness(metrics),
        "bounds": _bounds(bounds),
        "gaps": render_gaps(metrics, bounds),
        "run": _run(result, metrics),
    }
    groups = {name: getattr(metrics, name) for name in ("by_kind", "by_size", "by_tenant", "by_queue")}
    document |= {name: {each.name: _group(each) for each in rows} for name, rows in groups.items()}
    return {key: _without_nan(value) for key, value in document.items()}


def write_result_json(path: Path, document: dict[str, Any]) -> None:
    """Write `document` as UTF-8 JSON with a line per value. Raises OSError, and ValueError if it holds a NaN."""
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def render_gaps(metrics: Metrics, bounds: Bounds | None) -> dict[str, float | None]:
    """Distance of a run to its bounds by key of `bounds`; see `render_result_json`."""
    if bounds is None or bounds.jobs != metrics.jobs_finished:
        return {"jct_mean_s": None, "makespan_s": None, "device_allocation_ratio": None}
    return {
        "jct_mean_s": _excess(metrics.jct_s.mean, bounds.jct_mean_s),
        "makespan_s": _excess(metrics.makespan_s, bounds.makespan_s),
        "device_allocation_ratio": bounds.device_allocation_ratio - metrics.device_allocation_ratio,
    }


def write_jobs_csv(path: Path, result: SimResult) -> None:
    """Write one row per job in workload order, a chunk at a time. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(JOBS_CSV_COLUMNS)
        for begin in range(0, len(result.jobs), CHUNK_ROWS):
            writer.writerows(_rows(result.jobs, slice(begin, begin + CHUNK_ROWS)))


def _rows(jobs: JobColumns, part: slice) -> Iterator[tuple[object, ...]]:
    return zip(
        jobs.job[part].tolist(),
        _times(jobs.submit_ms[part]),
        _times(jobs.start_ms[part]),
        _times(jobs.end_ms[part]),
        _thousandths(jobs.devices_milli[part]),
        _times(jobs.run_ms[part]),
        _times(jobs.waited_ms[part]),
        _named(jobs.kind[part], jobs.kind_names),
        _named(jobs.tenant[part], jobs.tenant_names),
        _named(jobs.queue[part], jobs.queue_names),
        _named(jobs.outcome[part], jobs.outcome_names),
        jobs.preemptions[part].tolist(),
        jobs.restarts[part].tolist(),
        _thousandths(jobs.held_device_ms[part]),
        _thousandths(jobs.lost_device_ms[part]),
        jobs.job_names[part] if jobs.job_names else [""] * len(jobs.job[part]),
        strict=True,
    )


def _times(column: IntColumn) -> list[str]:
    return ["" if value == NEVER_MS else _decimal(value) for value in column.tolist()]


def _thousandths(column: IntColumn) -> list[str]:
    return [_decimal(value) for value in column.tolist()]


def _decimal(thousandths: int) -> str:
    """`thousandths` / 1000 in exact decimals: three of them, or none for a whole number."""
    whole, rest = divmod(abs(thousandths), MILLI)
    sign = "-" if thousandths < 0 else ""
    return f"{sign}{whole}.{rest:03d}" if rest else f"{sign}{whole}"


def _named(codes: IntColumn, names: tuple[str, ...]) -> list[str]:
    return [names[code] if code >= 0 else "" for code in codes.tolist()]


def _spread(spread: Spread) -> dict[str, float]:
    values: dict[str, float] = asdict(spread)
    del values["count"]
    return values


def _group(group: GroupMetrics) -> dict[str, Any]:
    return {
        "jobs": group.jobs,
        "finished": group.finished,
        "wait_s": _spread(group.wait_s),
        "jct_s": _spread(group.jct_s),
        "service_ratio": group.service_ratio,
        "preemptions": group.preemptions,
        "held_device_s": group.held_device_s,
        "lost_device_s": group.lost_device_s,
    }


def _fairness(metrics: Metrics) -> dict[str, Any]:
    return {
        "finish_time_fairness": _spread(metrics.finish_time_fairness),
        "unfair_jobs_ratio": metrics.unfair_jobs_ratio,
        "jain_index": metrics.jain_index,
    }


def _bounds(bounds: Bounds | None) -> dict[str, Any]:
    if bounds is None:
        return {"jct_mean_s": None, "makespan_s": None, "device_allocation_ratio": None}
    return {
        "jobs": bounds.jobs,
        "jct_mean_s": bounds.jct_mean_s,
        "makespan_s": bounds.makespan_s,
        "device_allocation_ratio": bounds.device_allocation_ratio,
        "details": [asdict(detail) for detail in bounds.details],
        "notes": list(bounds.notes),
    }


def _run(result: SimResult, metrics: Metrics) -> dict[str, Any]:
    stats = result.stats
    return {
        "wall_s": stats.wall_s,
        "events": stats.events,
        "cycles": stats.cycles,
        "jobs_per_s": metrics.jobs_total / stats.wall_s if stats.wall_s > 0 else None,
        "peak_rss_bytes": stats.peak_rss_bytes,
    }


def _excess(measured: float, bound: float) -> float | None:
    return (measured - bound) / bound if bound > 0 else None


def _without_nan(value: Any) -> Any:
    """`value` with None for every float that JSON cannot write."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
