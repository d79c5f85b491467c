"""A journal against all that was made of it: the rows of jobs, how jobs are run, and snapshots.

What a journal says of jobs is worked out again, record by record. A job that has ended has its last row; one that has
not may have another reason to wait than when its last record was written, for these change by themselves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Protocol

from clearway.live.books import each_part
from clearway.live.memory import Memory
from clearway.model.events import Event
from clearway.model.ids import JobId
from clearway.model.runs import RunSpec
from clearway.ports.snapshots import Snapshot
from clearway.ports.storage import JobQuery, JournalError
from clearway.ports.views import JobView

ROWS_AT_ONCE: Final = 2_000
"""Rows that are compared together, and the most that are remembered."""

BY_THEMSELVES: Final = frozenset(("reason", "start_planned_ms", "message"))
"""Of a job that has not ended."""

UNTOLD: Final = frozenset(("progress",))
"""What a job says of itself is kept in its row alone: the journal cannot tell whether it is so."""


class Reader(Protocol):
    """Where rows are read."""

    def find_jobs(self, query: JobQuery) -> Sequence[JobView]:
        """See `JobReader`."""
        ...

    def read_runs(self, jobs: Sequence[JobId]) -> Mapping[JobId, RunSpec]:
        """How to run these jobs. Raises JournalError where one is missing."""
        ...


@dataclass(slots=True)
class Checked:
    """rows: compared. rows_left: of jobs that have not ended, which were not, since they change. snapshots: records of
    those that are what the journal makes. kinds: how many there are of each event. records, last: how many records, and
    the number of the last."""

    records: int
    last: int
    rows: int
    rows_left: int
    snapshots: list[int]
    kinds: dict[str, int]


class Verifier:
    """Takes in a journal in order; `finish` compares what is left. memory: a new one. snapshots: of its basis."""

    def __init__(self, memory: Memory, reader: Reader, snapshots: Iterable[Snapshot]) -> None:
        self._memory, self._reader = memory, reader
        self._snapshots = {snapshot.record: snapshot.payload for snapshot in snapshots}
        self._ended: dict[JobId, JobView] = {}
        self.checked = Checked(0, 0, 0, 0, [], {})

    def take(self, number: int, event: Event) -> None:
        """One record. Raises JournalError for a row or a snapshot that says something else."""
        checked = self.checked
        checked.records, checked.last = checked.records + 1, number
        for part in each_part(event):
            name = type(part).__name__
            checked.kinds[name] = checked.kinds.get(name, 0) + 1
        for job, book in self._memory.recover(event).changed.items():
            if book.view.state.is_final:
                self._ended[job] = book.view
        if len(self._ended) >= ROWS_AT_ONCE:
            self._compare(self._ended)
            self._ended = {}
        payload = self._snapshots.pop(number, None)
        if payload is not None:
            if self._memory.dump() != payload:
                raise JournalError(f"the snapshot of record {number}: expected what the journal makes, found another")
            checked.snapshots.append(number)

    def finish(self, *, is_still: bool) -> Checked:
        """After the last record. is_still: nobody writes, so that the rows are as the journal ends."""
        self._compare(self._ended)
        for part in _parts([book.view for book in self._memory.books.jobs.values()]):
            if is_still:
                self._compare({view.id: view for view in part})
            else:
                self.checked.rows_left += len(part)
        return self.checked

    def _compare(self, expected: Mapping[JobId, JobView]) -> None:
        """Raise JournalError for the first row that is not as expected."""
        numbers = sorted(expected)
        runs = self._reader.read_runs(numbers)
        query = JobQuery(ids=tuple(numbers), limit=max(len(numbers), 1))
        found = {view.id: view for view in self._reader.find_jobs(query)} if numbers else {}
        for number in numbers:
            run = runs[number]
            wanted = replace(
                expected[number],
                workdir=run.workdir,
                output=run.output,
                error=run.error,
                tasks_per_replica=run.tasks_per_replica,
            )
            row = found.get(number)
            if row is None:
                raise JournalError(f"the row of job {number}: missing; the journal has the job")
            for name in _compared(wanted):
                told, stands = getattr(wanted, name), getattr(row, name)
                if told != stands:
                    raise JournalError(
                        f"the row of job {number}: expected {name} = {told!r} by the journal, found {stands!r}"
                    )
        self.checked.rows += len(numbers)


def _compared(view: JobView) -> Iterator[str]:
    for field in fields(view):
        if field.name not in UNTOLD and (view.state.is_final or field.name not in BY_THEMSELVES):
            yield field.name


def _parts(views: Sequence[JobView]) -> Iterator[Sequence[JobView]]:
    for first in range(0, len(views), ROWS_AT_ONCE):
        yield views[first : first + ROWS_AT_ONCE]
