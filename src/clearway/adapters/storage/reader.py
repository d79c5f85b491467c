"""Reads what the writer wrote, from any thread and any process, without ever waiting for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from clearway.adapters.storage import rows
from clearway.adapters.storage.databases import DRIVER_ERRORS, Database, explain_failure
from clearway.adapters.storage.queries import count_query, packed, page_query, unpack
from clearway.adapters.storage.tables import AUDIT, HEAD, JOURNAL, RUNS
from clearway.model.events import Event
from clearway.model.ids import JobId
from clearway.model.runs import RunSpec
from clearway.ports.storage import JOBS_PER_PAGE_MAX, AuditLine, JobQuery, JournalError
from clearway.ports.views import JobState, JobView

RECORDS_PER_PAGE: Final = 2_000
"""Records that are in memory at once while the journal is read."""

IDS_PER_QUERY: Final = 5_000
"""SQLite takes 32,766 values in one statement."""


class SqlReader:
    """A JobReader, and the journal. Safe for several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._single = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._is_packed = database.engine.dialect.name == "sqlite"

    def find_jobs(self, query: JobQuery) -> tuple[JobView, ...]:
        """Rows of jobs, finished ones included. Raises StorageError, and JournalError for a damaged row."""
        limit = min(query.limit, JOBS_PER_PAGE_MAX)
        if limit < 1:
            return ()
        found: list[JobView] = []
        for part in _split_ids(query):
            page = self._read_page(replace(part, limit=limit - len(found)))
            found.extend(rows.parse_job(number, text, crc) for number, text, crc in page)
            if len(found) >= limit:
                break
        return tuple(found)

    def _read_page(self, query: JobQuery) -> Iterable[tuple[int, Any, Any]]:
        """Rows (id, view, crc) of at most one statement's jobs."""
        statement, values = page_query(query)
        with self._statement("reading jobs") as connection:
            if not self._is_packed:
                return [(number, text, crc) for number, text, crc in connection.execute(statement, values)]
            count, text = connection.execute(packed(statement), values).one()
        return unpack(count, text, newest_first=query.newest_first)

    def count_jobs(self, query: JobQuery) -> Mapping[JobState, int]:
        """How many jobs there are by state. Raises StorageError."""
        totals: dict[JobState, int] = {}
        with self._statement("counting jobs") as connection:
            for part in _split_ids(replace(query, after=None)):
                for state, total in connection.execute(*count_query(part)):
                    totals[JobState(state)] = totals.get(JobState(state), 0) + total
        return totals

    def read_run(self, job: JobId) -> RunSpec | None:
        """How a job is run; None = no such job. Raises StorageError, and JournalError for a damaged row."""
        if not 0 < job <= rows.INTEGER_MAX:
            return None
        with self._statement("reading how jobs are run") as connection:
            row = _find_run(connection, job)
        return None if row is None else rows.parse_run(*row)

    def read_runs(self, jobs: Sequence[JobId]) -> Mapping[JobId, RunSpec]:
        """How to run these jobs. Raises JournalError where one is missing, StorageError."""
        found: dict[JobId, RunSpec] = {}
        with self._snapshot("reading how jobs are run") as connection:
            for chunk in _chunks(sorted(set(jobs))):
                _read_run_chunk(connection, chunk, found)
        return found

    def read_audit(self, after: int = 0, limit: int = 1_000) -> tuple[tuple[int, AuditLine], ...]:
        """Audit lines with their numbers. Raises StorageError, and JournalError where their chain is broken."""
        with self._snapshot("reading the audit log") as connection:
            end, checksum = _read_end(connection, AUDIT, HEAD.c.audit_seq, HEAD.c.audit_checksum)
            records = _Chain(AUDIT, "audit", after, min(end, after + max(limit, 0)), end, checksum)
            found = [record for page in records.read_pages(lambda: nullcontext(connection)) for record in page]
        return tuple((seq, rows.decode_audit(seq, payload)) for seq, payload in found)

    def read_journal(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Records above `after` that are there now, in order, page by page. Raises JournalError, StorageError."""
        with self._snapshot("reading the journal") as connection:
            end, checksum = _read_end(connection, JOURNAL, HEAD.c.seq, HEAD.c.checksum)
        records = _Chain(JOURNAL, "journal", after, end, end, checksum)
        for page in records.read_pages(lambda: self._statement("reading the journal")):
            for seq, payload in page:
                yield seq, rows.decode_record(seq, payload)

    def checksum_of(self, record: int) -> str | None:
        """Of a record of the journal, and so of all before it; None = no such record. Raises StorageError."""
        with self._statement("reading the journal") as connection:
            found = connection.execute(sa.select(JOURNAL.c.checksum).where(JOURNAL.c.seq == record)).scalar()
        return None if found is None else str(found)

    def close(self) -> None:
        """Let go of connections. The store does this for its own reader."""
        self._database.close()

    @contextmanager
    def _snapshot(self, doing: str) -> Iterator[Connection]:
        """A connection whose statements all see one moment."""
        with self._connected(self._database.engine, doing) as connection:
            yield connection

    @contextmanager
    def _statement(self, doing: str) -> Iterator[Connection]:
        """A connection without a transaction: each of its statements sees a moment of its own."""
        with self._connected(self._single, doing) as connection:
            yield connection

    @contextmanager
    def _connected(self, engine: Engine, doing: str) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except DRIVER_ERRORS as error:
            explain_failure(self._database, doing, error)


class _Chain:
    """Reads records after `after` up to `last` and checks each; the chain must end at `end` with `end_checksum`."""

    def __init__(self, table: sa.Table, what: str, after: int, last: int, end: int, end_checksum: str) -> None:
        self.table, self.what = table, what
        self.after, self.last, self.end, self.end_checksum = after, last, end, end_checksum
        self.checksum: str | None = rows.CHAIN_START if after == 0 else None

    def read_pages(self, connect: Callable[[], AbstractContextManager[Connection]]) -> Iterator[list[tuple[int, str]]]:
        """(number, payload) of all records that are left, each page over a connection that is given back before."""
        while self.after < self.last:
            with connect() as connection:
                page = self._read_page(connection)
            yield page

    def _read_page(self, connection: Connection) -> list[tuple[int, str]]:
        if self.checksum is None:
            self.checksum = self._checksum_of(connection, self.after)
        columns = self.table.c
        page = (
            sa.select(columns.seq, columns.at_ms, columns.kind, columns.payload, columns.checksum)
            .where(columns.seq > self.after, columns.seq <= self.last)
            .order_by(columns.seq)
            .limit(RECORDS_PER_PAGE)
        )
        found = connection.execute(page).all()
        for row in found:
            self.checksum = rows.check_record(row, self.after + 1, self.checksum, self.what)
            self.after += 1
        self._check_end(len(found))
        return [(row[0], row[3]) for row in found]

    def _check_end(self, count: int) -> None:
        if count < RECORDS_PER_PAGE and self.after < self.last:
            raise JournalError(
                f"{self.what} record {self.after + 1}: expected records up to {self.end}, found none after "
                f"{self.after}: they are missing; restore a backup"
            )
        if self.after == self.end and self.checksum != self.end_checksum:
            raise JournalError(
                f"{self.what} record {self.end}: expected the last one as the store's head remembers it, "
                "found another; restore a backup"
            )

    def _checksum_of(self, connection: Connection, seq: int) -> str:
        checksum = connection.execute(sa.select(self.table.c.checksum).where(self.table.c.seq == seq)).scalar()
        if checksum is None:
            raise JournalError(f"{self.what} record {seq}: missing; restore a backup")
        return str(checksum)


def _read_end(
    connection: Connection, table: sa.Table, seq: sa.Column[Any], checksum: sa.Column[Any]
) -> tuple[int, str]:
    """Number and checksum of the table's last record, as the head says; without a head it must be empty."""
    row = connection.execute(sa.select(seq, checksum)).one_or_none()
    if row is not None:
        return row[0], row[1]
    first = connection.execute(sa.select(sa.func.min(table.c.seq))).scalar()
    if first is not None:
        raise JournalError(
            f"{table.name} record {first}: expected one row in the table head, which says where it ends, found none; "
            "restore a backup"
        )
    return 0, rows.CHAIN_START


def _split_ids(query: JobQuery) -> list[JobQuery]:
    """The query in parts whose ids fit into one statement, in the query's order."""
    if not query.ids:
        return [query]
    ids = [job for job in sorted(set(query.ids), reverse=query.newest_first) if 0 < job <= rows.INTEGER_MAX]
    return [replace(query, ids=tuple(chunk)) for chunk in _chunks(ids)]


def _chunks(ids: Sequence[JobId]) -> list[Sequence[JobId]]:
    return [ids[first : first + IDS_PER_QUERY] for first in range(0, len(ids), IDS_PER_QUERY)]


_RUN_COLUMNS: Final = (RUNS.c.first_job, RUNS.c.last_job, RUNS.c.spec, RUNS.c.crc)


def _find_run(connection: Connection, job: int) -> Any:
    """The row that covers a job, or None."""
    nearest = sa.select(*_RUN_COLUMNS).where(RUNS.c.first_job <= job).order_by(RUNS.c.first_job.desc()).limit(1)
    row = connection.execute(nearest).one_or_none()
    return row if row is not None and row[1] >= job else None


def _read_run_chunk(connection: Connection, jobs: Sequence[JobId], found: dict[JobId, RunSpec]) -> None:
    """Rows that begin with one of these jobs at once; then, where a job has none, the row before it."""
    begins = connection.execute(sa.select(*_RUN_COLUMNS).where(RUNS.c.first_job.in_(jobs)).order_by(RUNS.c.first_job))
    by_first = {row[0]: (row[1], rows.parse_run(*row)) for row in begins}
    last, spec = 0, None
    for job in jobs:
        if job in by_first:
            last, spec = by_first[job]
        elif job > last or spec is None:
            row = _find_run(connection, job)
            if row is None:
                raise JournalError(f"how job {job} is run: missing; restore a backup")
            last, spec = row[1], rows.parse_run(*row)
        found[job] = spec
