"""Snapshots of a cluster that runs, as `clearway snapshot` writes them: the twin goes on from there.

How it is read: time 0 is the moment of the snapshot. Jobs that ran begin anew at once, with what is left of them: what
they are expected to run in all (by their like, else their user's estimate, else their time limit, else an hour) less
what they have run, at least a minute. Jobs that waited come right behind them, in their order; what they waited for and
is over is forgotten. Held jobs are left out. The cluster is that of the snapshot, without nodes that are down or
drained; so are queues and tenants.
"""

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from clearway.model.cluster import ClusterSpec
from clearway.model.ids import JobId
from clearway.model.jobs import JobSpec
from clearway.model.units import HOUR_MS, MINUTE_MS
from clearway.ports.snapshot import SnapshotJob
from clearway.sim.text_files import ProgressCallback, iterate_lines
from clearway.sim.workload import Skipped, TraceJob, Workload
from clearway.wire.snapshots import MARK, parse_snapshot

RUN_MS_DEFAULT = HOUR_MS
RUN_MS_MIN = MINUTE_MS
HELD = "held: it starts when somebody releases it"


def recognise_snapshot(head: tuple[str, ...]) -> bool:
    """Whether the first line is that of a snapshot."""
    return bool(head) and head[0].startswith(MARK)


def read_snapshot(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read a snapshot. Jobs keep their numbers."""
    snapshot = parse_snapshot(iterate_lines(path, progress), source=str(path))
    there = {job.spec.id for job in snapshot.jobs}
    drafts = [_make_job(job, snapshot.at_ms, there) for job in snapshot.jobs if not job.is_held]
    jobs = sorted(drafts, key=lambda job: (job.submit_ms, job.spec.id))
    held = len(snapshot.jobs) - len(drafts)
    return Workload(
        name=path.name,
        jobs=tuple(jobs if limit is None else jobs[:limit]),
        skipped=(Skipped(HELD, held, ()),) if held else (),
        cluster=ClusterSpec(nodes=snapshot.nodes, links=snapshot.links),
        start_unix_ms=snapshot.at_ms,
        queues=snapshot.queues,
        tenants=snapshot.tenants,
    )


def _make_job(job: SnapshotJob, at_ms: int, there: Container[JobId]) -> TraceJob:
    spec = job.spec
    in_all_ms = job.expected_ms or spec.estimate_ms or spec.limit_ms or RUN_MS_DEFAULT
    done_ms = job.saved_ms + (0 if job.start_ms is None else max(at_ms - job.start_ms, 0))
    is_waiting = job.start_ms is None
    return TraceJob(
        spec=_forget_past(spec, at_ms, there),
        submit_ms=1 if is_waiting else 0,
        run_ms=max(in_all_ms - done_ms, RUN_MS_MIN),
    )


def _forget_past(spec: JobSpec, at_ms: int, there: Container[JobId]) -> JobSpec:
    """The job without what it waited for and is over, and with times from the snapshot on."""
    return replace(
        spec,
        dependencies=tuple(one for one in spec.dependencies if one.job is None or one.job in there),
        not_before_ms=None if spec.not_before_ms is None else max(spec.not_before_ms - at_ms, 0),
        deadline_ms=None if spec.deadline_ms is None else max(spec.deadline_ms - at_ms, 1),
        held=False,
    )
