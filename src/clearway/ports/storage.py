"""What the shell must offer to keep what was decided: a journal that is the truth, and rows that are made from it.

- `append` returns only when everything given to it would survive the death of the process and of the machine: one
  transaction, one sync, whatever the number of records. Either all of it is kept or, when it raises, none.
- Records are numbered 1, 2, 3... without gaps; each carries a checksum chained to the one before, so that a record that
  was altered or lost inside the journal is found and named by its number when it is read.
- Jobs, runs and audit lines are written in the same transaction as the records that caused them, and are never ahead
  of the journal or behind it.
- `StorageError` says that the world failed (disk full, read-only, server gone): the caller keeps what it wanted to
  write and tries again, or drops it. Where the answer of a commit was lost, readers may see for a while what was
  written; before the store does anything else it takes that back. `JournalError` says that what is stored is damaged:
  nobody may go on from there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clearway.model.errors import ClearwayError
from clearway.model.events import Event
from clearway.model.ids import JobId
from clearway.model.runs import RunSpec
from clearway.ports.views import JobQuery as JobQuery
from clearway.ports.views import JobState, JobView

JOBS_PER_PAGE_MAX = 10_000
"""Most rows that one query returns; who wants more asks for the next page."""


class StorageError(ClearwayError):
    """The storage cannot be reached, or does not take what is written to it, for now."""


class TooLongError(StorageError):
    """A record or row is longer than the storage takes, now or ever. Nothing was sent to it, and all else is well."""


class JournalError(ClearwayError):
    """What is stored is damaged or was written by another release; the message names the record or offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """Who did what. actor: user name. action: such as `job.submit`. target: such as `job 12`. detail: short text."""

    at_ms: int
    actor: str
    action: str
    target: str
    is_allowed: bool = True
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What one turn of a driver writes, all or nothing.

    events: for the journal, in order. runs: how to run the jobs that these events submit. jobs: rows that changed.
    """

    events: tuple[Event, ...] = ()
    runs: tuple[tuple[JobId, RunSpec], ...] = ()
    jobs: tuple[JobView, ...] = ()
    audit: tuple[AuditLine, ...] = ()


class Store(Protocol):
    """The one writer's door. Not safe for several threads at once; `reader` is."""

    def append(self, changes: Changes) -> int:
        """Write and sync; returns the number of the journal's last record. Raises StorageError, and of its
        kind TooLongError."""
        ...

    def read_journal(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Records with numbers above `after`, in order, each with its number. Raises JournalError, StorageError."""
        ...

    def read_runs(self, jobs: Sequence[JobId]) -> Mapping[JobId, RunSpec]:
        """How to run these jobs. Raises JournalError where one is missing."""
        ...

    def last_job_id(self) -> int:
        """The highest job number ever written; 0 = none."""
        ...

    @property
    def reader(self) -> "JobReader":
        """For any number of threads."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class JobReader(Protocol):
    """Reads what was written; safe for several threads, never waits for the writer."""

    def find_jobs(self, query: JobQuery) -> tuple[JobView, ...]:
        """Rows of jobs, finished ones included. Raises StorageError."""
        ...

    def count_jobs(self, query: JobQuery) -> Mapping[JobState, int]:
        """How many jobs there are by state; `after` and `limit` are not regarded. Raises StorageError."""
        ...

    def read_run(self, job: JobId) -> RunSpec | None:
        """How a job is run; None = no such job. Raises StorageError."""
        ...

    def read_audit(self, after: int = 0, limit: int = 1_000) -> tuple[tuple[int, AuditLine], ...]:
        """Audit lines with their numbers. Raises StorageError, and JournalError where their chain is broken."""
        ...
