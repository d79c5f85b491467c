"""What if another policy, or other nodes, had the cluster from now on: the twin goes on from a snapshot under each."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from clearway.bootstrap.comparison import Comparison, ComparisonRequest, run_comparison
from clearway.bootstrap.documents import read_document
from clearway.bootstrap.inputs import ProgressCallback
from clearway.bootstrap.policies import read_policy
from clearway.bootstrap.simulation import Run, SimulationRequest
from clearway.model.errors import InputError
from clearway.model.ids import JobId
from clearway.ports.snapshot import ClusterSnapshot
from clearway.sim.result import NEVER_MS
from clearway.wire.snapshots import parse_snapshot, render_snapshot

SNAPSHOT: Final = "now.jsonl"
FORMAT: Final = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that waits. starts_ms: under each of the policies, how long from now until it starts; None = never."""

    job: JobId
    name: str
    user: str
    starts_ms: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would happen. waiting: in the order of their numbers."""

    comparison: Comparison
    waiting: tuple[Waiting, ...]


def look_ahead(
    snapshot: ClusterSnapshot, policies: str, cluster: str | None, progress: ProgressCallback | None = None
) -> Outlook:
    """Go on from `snapshot` under each of the policies, named by commas. cluster: instead of the snapshot's own.

    Raises InputError for a policy that there is not, a cluster that is none, and a snapshot without jobs.
    """
    if not any(not job.is_held for job in snapshot.jobs):
        raise InputError("expected jobs that wait or run, found none: nothing would happen; submit some first")
    names = tuple(name.strip() for name in policies.split(","))
    if "" in names or len(set(names)) < len(names):
        raise InputError(f"--policies: expected different names by commas, found {policies!r}; name each policy once")
    for name in names:
        read_policy(name)
    with TemporaryDirectory(prefix="clearway-") as folder:
        path = Path(folder) / SNAPSHOT
        path.write_text("".join(f"{line}\n" for line in render_snapshot(snapshot)), encoding="utf-8")
        base = SimulationRequest(trace=str(path), policy="", format_name=FORMAT, cluster=cluster)
        request = ComparisonRequest(base=base, policies=names, seeds=(0,), seeds_asked=1, processes=1)
        comparison = run_comparison(request, progress)
    starts = [_starts_of(run) for run in comparison.first_runs]
    waiting = tuple(
        Waiting(
            job=job.spec.id,
            name=job.spec.name,
            user=job.spec.user,
            starts_ms=tuple(start.get(job.spec.id) for start in starts),
        )
        for job in sorted(snapshot.jobs, key=lambda one: one.spec.id)
        if job.start_ms is None and not job.is_held
    )
    return Outlook(comparison=comparison, waiting=waiting)


def _starts_of(run: Run) -> dict[JobId, int | None]:
    """How long after the snapshot each job first starts."""
    jobs = run.result.jobs
    pairs = zip(jobs.job.tolist(), jobs.start_ms.tolist(), strict=True)
    return {JobId(job): None if at_ms == NEVER_MS else at_ms for job, at_ms in pairs}


def read_snapshot_file(path: Path) -> ClusterSnapshot:
    """What `clearway snapshot` wrote. Raises InputError."""
    lines = enumerate(read_document(path).splitlines(), start=1)
    return parse_snapshot(lines, source=str(path))
