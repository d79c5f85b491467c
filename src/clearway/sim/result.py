"""What one run of the twin leaves behind: columns, not objects, so that a million jobs stay small."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
NEVER_MS = -1
"""In a time column: it has not happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """One row per job of the workload, in workload order. Times in ms since the first submit; NEVER_MS = not happened.

    start_ms: the first start. end_ms: the final end. run_ms: the truth given by the trace (reference run time).
    limit_ms: FOREVER_MS = none. devices_milli: devices asked for (replicas × devices × share), thousandths.
    held_device_ms: device-milliseconds that the job held, all starts together (thousandths divided out).
    lost_device_ms: of these, work done again after a preemption or a failure, plus restart and checkpoint time.
    latency_ms: the wait that its user was promised (`latency_target`); FOREVER_MS = none.
    waited_ms: time in the queue over all its waits (start_ms − submit_ms is the first wait only).
    kind, tenant, queue, outcome, model: codes into the `*_names` tuples; outcome −1 = not ended.
    """

    job: IntColumn
    submit_ms: IntColumn
    start_ms: IntColumn
    end_ms: IntColumn
    run_ms: IntColumn
    limit_ms: IntColumn
    latency_ms: IntColumn
    devices_milli: IntColumn
    held_device_ms: IntColumn
    lost_device_ms: IntColumn
    waited_ms: IntColumn
    preemptions: IntColumn
    restarts: IntColumn
    kind: IntColumn
    tenant: IntColumn
    queue: IntColumn
    outcome: IntColumn
    kind_names: tuple[str, ...]
    tenant_names: tuple[str, ...]
    queue_names: tuple[str, ...]
    outcome_names: tuple[str, ...]
    job_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """State of the cluster over time: row i holds from time_ms[i] until time_ms[i + 1].

    allocated_milli, capacity_milli: devices held, and healthy devices, thousandths. pending_jobs, running_jobs: counts.
    pending_milli: devices asked for by waiting jobs. stranded_milli: free devices that the job first in the queue
    could not use where they are (0 when nothing waits): fragmentation at that moment.
    """

    time_ms: IntColumn
    allocated_milli: IntColumn
    capacity_milli: IntColumn
    pending_jobs: IntColumn
    pending_milli: IntColumn
    running_jobs: IntColumn
    stranded_milli: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """What the run itself cost. events: kernel calls with one event each (a batch counts each event)."""

    wall_s: float
    events: int
    cycles: int
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """One workload under one policy on one cluster with one seed.

    allocated_device_ms and capacity_device_ms are exact integrals from the first submit to the last end; the series
    is sampled. useful_device_ms: device time that advanced work that was kept. decisions_digest: SHA-256 (hex) over
    all commands in order, for comparing runs byte for byte.
    """

    workload: str
    policy: str
    cluster: str
    seed: int
    jobs: JobColumns
    series: Series
    stats: RunStats
    allocated_device_ms: int
    capacity_device_ms: int
    useful_device_ms: int
    decisions_digest: str = ""
