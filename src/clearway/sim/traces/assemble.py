"""From what a reader understood to a `Workload`: sorting, numbering, the origin of time, and the count of what was
left out.

Invariants: every record of a trace becomes either one job or one count in `Workload.skipped`; jobs come sorted by
(submit, id); the first kept job is submitted at 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

from clearway.model.cluster import ClusterSpec
from clearway.model.errors import InputError
from clearway.model.ids import JobId, QueueName, TenantName
from clearway.model.jobs import Checkpoint, Elastic, JobKind, JobSpec, Outcome, Request
from clearway.model.units import DAY_MS
from clearway.sim.workload import LINES_KEPT, Skipped, TraceJob, Workload

TOO_LARGE = "a number too large to be true"
TIME_MAX_MS: Final = 1_000_000 * DAY_MS
REPLICAS_MAX: Final = 100_000_000
NUMBER_MAX: Final = 1 << 53


class JobOptions(TypedDict, total=False):
    """Fields of `JobSpec` that a trace may give; what is missing keeps the default of `JobSpec`."""

    name: str
    user: str
    tenant: TenantName
    queue: QueueName
    kind: JobKind
    priority: int
    qos: str
    limit_ms: int | None
    estimate_ms: int | None
    elastic: Elastic | None
    checkpoint: Checkpoint | None
    preemptible: bool
    deadline_ms: int | None
    latency_target_ms: int | None


class JobDraft(NamedTuple):
    """One kept record. submit_ms: on the trace's own clock. number: the trace's own id, None where it has none.

    options is shared between drafts where it is equal: readers must not change it after use.
    """

    line: int
    number: int | None
    submit_ms: int
    run_ms: int
    request: Request
    replicas: int
    options: JobOptions
    profile: str = ""
    outcome: Outcome = Outcome.COMPLETED


@dataclass(slots=True)
class SkipTally:
    """Counts what is left out, by reason, and keeps the first line numbers."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, reason: str, line: int) -> None:
        """Count one record that is left out."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        kept = self.lines.setdefault(reason, [])
        if len(kept) < LINES_KEPT:
            kept.append(line)

    def finish(self) -> tuple[Skipped, ...]:
        """Reasons in the order in which they first occurred."""
        return tuple(Skipped(reason, count, tuple(self.lines[reason])) for reason, count in self.counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """What a trace says about itself besides its jobs. origin_unix_ms: wall clock of 0 on the trace's own clock."""

    cluster: ClusterSpec | None = None
    origin_unix_ms: int | None = None
    notes: tuple[str, ...] = ()


def assemble_workload(
    path: Path, drafts: list[JobDraft], tally: SkipTally, facts: TraceFacts, limit: int | None
) -> Workload:
    """Sort, number and cut the drafts. limit: keep the first so many in submit order (None = all).

    A trace's own numbers are kept as ids when every draft has one and they are positive and unique; otherwise jobs are
    numbered 1..n in order of (submit, line). InputError when no record is usable.
    """
    for draft in drafts:
        if not _can_be_counted(draft):
            tally.add(TOO_LARGE, draft.line)
    if TOO_LARGE in tally.counts:
        drafts = [draft for draft in drafts if _can_be_counted(draft)]
    skipped = tally.finish()
    if not drafts:
        raise InputError(_nothing_usable(path, skipped))
    numbers = [draft.number for draft in drafts if draft.number is not None and 0 < draft.number <= NUMBER_MAX]
    own_numbers = len(numbers) == len(drafts) == len(set(numbers))
    if own_numbers:
        drafts.sort(key=lambda draft: (draft.submit_ms, draft.number))
    else:
        drafts.sort(key=lambda draft: (draft.submit_ms, draft.line))
    kept = drafts if limit is None else drafts[:limit]
    first_ms = kept[0].submit_ms
    jobs = _build_jobs(kept, first_ms, own_numbers)
    origin = facts.origin_unix_ms
    return Workload(
        name=trace_name(path),
        jobs=jobs,
        skipped=skipped,
        cluster=facts.cluster,
        start_unix_ms=None if origin is None else origin + first_ms,
        notes=facts.notes,
    )


def _can_be_counted(draft: JobDraft) -> bool:
    """Whether its numbers, and sums of them, fit where they are added up."""
    longest_ms = max(draft.submit_ms, draft.run_ms, draft.options.get("limit_ms") or 0)
    return longest_ms <= TIME_MAX_MS and draft.replicas <= REPLICAS_MAX


def cut_workload(workload: Workload, limit: int | None) -> Workload:
    """The first `limit` jobs of a workload (None = all of them)."""
    return workload if limit is None else replace(workload, jobs=workload.jobs[:limit])


def _build_jobs(drafts: Sequence[JobDraft], first_ms: int, own_numbers: bool) -> tuple[TraceJob, ...]:
    jobs = []
    for position, draft in enumerate(drafts, start=1):
        number = draft.number if own_numbers and draft.number is not None else position
        spec = JobSpec(id=JobId(number), request=draft.request, replicas=draft.replicas, **draft.options)
        jobs.append(TraceJob(spec, draft.submit_ms - first_ms, draft.run_ms, draft.profile, draft.outcome))
    return tuple(jobs)


def _nothing_usable(path: Path, skipped: Sequence[Skipped]) -> str:
    found = "; ".join(f"{part.count} × {part.reason} (line {part.lines[0]})" for part in skipped) or "no records at all"
    return f"{path}: expected at least one usable job, found: {found}; check the file and --format"


def trace_name(path: Path) -> str:
    """The file's name without `.gz` and without its own ending: how reports name the workload."""
    stem = path.name.removesuffix(".gz")
    return stem.rpartition(".")[0] or stem
