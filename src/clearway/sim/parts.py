"""One result out of the runs of parts of a machine that do not know of each other, as under static partitioning.

The parts share one time axis: their workloads count from the same moment. Counts and device-time are sums; a part that
is done early stays idle, and in the account, until the last one is done.
"""

from collections.abc import Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any, Final

import numpy as np

from clearway.model.units import MILLI
from clearway.sim.result import IntColumn, JobColumns, RunStats, Series, SimResult

NAMED_COLUMNS: Final = ("kind", "tenant", "queue", "outcome")
"""Columns of codes into names: parts may number the same name differently."""


def add_parts(parts: Sequence[SimResult], *, policy: str, cluster: str) -> SimResult:
    """The result of the whole machine. Every part has jobs, and at least one part is given."""
    end_ms = max(int(part.series.time_ms[-1]) for part in parts)
    idle_device_ms = sum(_idle_after_end(part, end_ms) for part in parts)
    digests = "".join(part.decisions_digest for part in parts)
    return SimResult(
        workload=parts[0].workload,
        policy=policy,
        cluster=cluster,
        seed=parts[0].seed,
        jobs=_add_jobs([part.jobs for part in parts]),
        series=_add_series([part.series for part in parts]),
        stats=_add_stats([part.stats for part in parts]),
        allocated_device_ms=sum(part.allocated_device_ms for part in parts),
        capacity_device_ms=sum(part.capacity_device_ms for part in parts) + idle_device_ms,
        useful_device_ms=sum(part.useful_device_ms for part in parts),
        decisions_digest=sha256(digests.encode()).hexdigest(),
    )


def _idle_after_end(part: SimResult, end_ms: int) -> int:
    """Device-ms of the part between its own end and `end_ms`, with the devices that were healthy at its end."""
    return int(part.series.capacity_milli[-1]) * (end_ms - int(part.series.time_ms[-1])) // MILLI


def _add_jobs(parts: Sequence[JobColumns]) -> JobColumns:
    """All rows by (submit, id)."""
    submit_ms = np.concatenate([part.submit_ms for part in parts])
    order = np.lexsort((np.concatenate([part.job for part in parts]), submit_ms))
    columns: dict[str, Any] = {}
    for field in fields(JobColumns):
        if field.name in NAMED_COLUMNS:
            column, columns[f"{field.name}_names"] = _add_named(parts, field.name)
            columns[field.name] = column[order]
        elif not field.name.endswith("_names"):
            columns[field.name] = np.concatenate([getattr(part, field.name) for part in parts])[order]
    job_names = [name for part in parts for name in part.job_names]
    is_named = len(job_names) == len(order)
    return JobColumns(**columns, job_names=tuple(job_names[row] for row in order) if is_named else ())


def _add_named(parts: Sequence[JobColumns], column: str) -> tuple[IntColumn, tuple[str, ...]]:
    """A column of codes over the union of the parts' names, in order of first appearance. −1 stays −1."""
    codes: dict[str, int] = {}
    added = []
    for part in parts:
        translation = [codes.setdefault(name, len(codes)) for name in getattr(part, f"{column}_names")]
        added.append(np.array([*translation, -1], dtype=np.int64)[getattr(part, column)])
    return np.concatenate(added), tuple(codes)


def _add_series(parts: Sequence[Series]) -> Series:
    """Sums at every moment at which any part was sampled; what a part ended with holds on."""
    time_ms = np.unique(np.concatenate([part.time_ms for part in parts]))
    columns = {
        field.name: np.sum([_held_at(part, field.name, time_ms) for part in parts], axis=0)
        for field in fields(Series)
        if field.name != "time_ms"
    }
    return Series(time_ms=time_ms, **columns)


def _held_at(series: Series, column: str, time_ms: IntColumn) -> IntColumn:
    """The value in force at each of `time_ms`: int64, 0 before the first sample."""
    values: IntColumn = np.concatenate([[0], getattr(series, column)])
    return values[np.searchsorted(series.time_ms, time_ms, side="right")]


def _add_stats(parts: Sequence[RunStats]) -> RunStats:
    return RunStats(
        wall_s=sum(part.wall_s for part in parts),
        events=sum(part.events for part in parts),
        cycles=sum(part.cycles for part in parts),
        peak_rss_bytes=max(part.peak_rss_bytes for part in parts),
    )
