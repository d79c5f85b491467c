"""What the twin replays: jobs with the truth about them that no scheduler may see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clearway.model.cluster import ClusterSpec, QueueSpec, TenantSpec
from clearway.model.jobs import JobSpec, Outcome


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a workload.

    submit_ms: since the first submit of the workload. run_ms: the true run time, in reference run time: with
    `spec.replicas` replicas, well placed, on a device model of speed 1.0, without checkpoints, restarts or sharing.
    profile: key of a speed profile (`sim.profiles`); empty = speed depends on the device model's `speed` only.
    outcome: how the run ends if it is not cut by its limit.
    """

    spec: JobSpec
    submit_ms: int
    run_ms: int
    profile: str = ""
    outcome: Outcome = Outcome.COMPLETED


@dataclass(frozen=True, slots=True)
class Skipped:
    """Records left out, for one reason: how many, and the first line numbers (at most `LINES_KEPT`) to look at."""

    reason: str
    count: int
    lines: tuple[int, ...]


LINES_KEPT = 10
"""Line numbers kept per reason: enough to look at, little enough to print."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs sorted by (submit_ms, spec.id), with ids 1..n in that order where the trace has no numbers of its own.

    skipped: what was left out and why. cluster: the cluster that the trace itself describes, if it does.
    start_unix_ms: wall clock of submit_ms = 0, None where the trace has none. queues, tenants: those that the trace
    itself describes.
    """

    name: str
    jobs: Sequence[TraceJob]
    skipped: tuple[Skipped, ...] = ()
    cluster: ClusterSpec | None = None
    start_unix_ms: int | None = None
    notes: tuple[str, ...] = field(default=())
    queues: tuple[QueueSpec, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()


def job_rows(jobs: Sequence[TraceJob]) -> Mapping[int, int] | range:
    """Job id → place in the workload. Where ids are 1..n, the range −1..n−1 says it without a table."""
    if all(job.spec.id == place for place, job in enumerate(jobs, start=1)):
        return range(-1, len(jobs))
    return {job.spec.id: row for row, job in enumerate(jobs)}
