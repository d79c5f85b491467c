"""The one writer's door: one transaction and one sync for whatever one turn of a driver changed.

Invariants: `head` is where journal and audit end, and changes in the same transaction as they do. A write names the
head and the epoch that it builds on, so nothing is written after what this process does not know. When an `append`
fails, the connection is given up; before anything else is done, the head found in the database tells whether the one in
flight was kept all the same, and then it is taken back: what an append that failed wanted to write is not there.
"""

import contextlib
import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.compiler import SQLCompiler

from clearway.adapters.storage import rows
from clearway.adapters.storage.databases import (
    DRIVER_ERRORS,
    Database,
    describe_writer,
    explain_failure,
    find_database,
    refuse_overtaken,
)
from clearway.adapters.storage.reader import IDS_PER_QUERY, SqlReader
from clearway.adapters.storage.schema import SCHEMA_HEAD, check_version, migrate, read_version
from clearway.adapters.storage.tables import AUDIT, HEAD, JOBS, JOURNAL, META, METADATA, RUNS
from clearway.model.errors import InputError
from clearway.model.events import Event
from clearway.model.ids import JobId
from clearway.model.runs import RunSpec
from clearway.ports.storage import Changes, JournalError, StorageError, TooLongError
from clearway.wire.codec import check_journal_header, dump_json, make_journal_header

HEAD_ID: Final = 1

CUT_OFF_TRIES: Final = 40
CUT_OFF_PAUSE_S: Final = 0.25
"""A server ends a connection that does nothing at once, and one whose query runs within its own time limit."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where journal and audit end, and the highest job number."""

    seq: int = 0
    checksum: str = rows.CHAIN_START
    audit_seq: int = 0
    audit_checksum: str = rows.CHAIN_START
    last_job: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """One append, to be written after `before`. replaced: rows of jobs as they were, filled while it is written."""

    before: Head
    after: Head
    journal: list[rows.Row]
    audit: list[rows.Row]
    runs: list[rows.Row]
    jobs: list[rows.Row]
    replaced: list[rows.Row] = field(default_factory=list)


class SqlStore:
    """A Store. Made by `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reader = SqlReader(database)
        self._connection: Connection | None = None
        self._head = Head()
        self._epoch = 0
        self._doubt: Batch | None = None
        self._is_open = False

    def open(self, *, create: bool) -> None:
        """Become the writer, bring the tables up to date and check what is there. Raises StorageError, JournalError."""
        try:
            connection = self._database.connect_writer()
            self._connection = connection
            self._database.check(connection)
            connection.commit()
            if not create and read_version(connection) is None:
                raise StorageError(f"{self._database.label}: expected a store, found an empty database")
            connection.commit()
            with connection.begin():
                migrate(self._database.label, connection)
                self._check_formats(connection)
                self._head = self._take_over(connection)
            self._is_open = True
        except DRIVER_ERRORS as error:
            explain_failure(self._database, "opening", error)

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, changes: Changes) -> int:
        """Write and sync; returns the number of the journal's last record. Raises StorageError, JournalError."""
        assert self._is_open, "the store is closed"
        drafts = rows.draft_events(changes.events), rows.draft_audit(changes.audit)
        try:
            connection = self._settled()
            batch = self._make_batch(changes, *drafts)
            self._check_lengths(batch)
            if _is_empty(changes):
                return self._head.seq
            self._doubt = batch
            with connection.begin():
                self._write(connection, batch)
        except DRIVER_ERRORS as error:
            self._let_go()
            explain_failure(self._database, "writing", error)
        except BaseException:
            self._let_go()
            raise
        self._doubt, self._head = None, batch.after
        return self._head.seq

    def _make_batch(self, changes: Changes, events: list[rows.Draft], lines: list[rows.Draft]) -> Batch:
        head = self._head
        journal = rows.chain_records(events, head.seq, head.checksum)
        audit = rows.chain_records(lines, head.audit_seq, head.audit_checksum)
        after = Head(
            head.seq + len(journal),
            journal[-1]["checksum"] if journal else head.checksum,
            head.audit_seq + len(audit),
            audit[-1]["checksum"] if audit else head.audit_checksum,
            max(head.last_job, rows.highest_job(changes)),
        )
        return Batch(head, after, journal, audit, rows.run_rows(changes.runs), rows.job_rows(changes.jobs))

    def _check_lengths(self, batch: Batch) -> None:
        most = self._database.row_bytes_max - rows.BYTES_BESIDE
        texts = (batch.journal, "payload"), (batch.audit, "payload"), (batch.runs, "spec"), (batch.jobs, "view")
        for table_rows, name in texts:
            for row in table_rows:
                if len(row[name]) * rows.BYTES_PER_CHARACTER > most and (size := rows.count_bytes(row[name])) > most:
                    raise TooLongError(
                        f"{self._database.label}: expected a record of at most {most} bytes, found one of {size} "
                        f"({_name_row(row)}): submit fewer jobs at once (or, with MariaDB, set max_allowed_packet to "
                        "more and start again)"
                    )

    def _write(self, connection: Connection, batch: Batch) -> None:
        self._move_head(connection, batch.before, batch.after)
        batch.replaced[:] = _rows_of(
            connection, [row["id"] for row in batch.jobs if row["id"] <= batch.before.last_job]
        )
        parts = ((JOURNAL, batch.journal), (AUDIT, batch.audit), (RUNS, batch.runs), (JOBS, batch.jobs))
        for table, batch_rows in parts:
            if batch_rows:
                _write_rows(connection, table, batch_rows)

    def _take_back(self, connection: Connection, batch: Batch) -> None:
        """Undo a write that failed for its caller and was kept all the same."""
        before = batch.before
        self._move_head(connection, batch.after, before)
        connection.execute(sa.delete(JOURNAL).where(JOURNAL.c.seq > before.seq))
        connection.execute(sa.delete(AUDIT).where(AUDIT.c.seq > before.audit_seq))
        connection.execute(sa.delete(RUNS).where(RUNS.c.first_job > before.last_job))
        connection.execute(sa.delete(JOBS).where(JOBS.c.id > before.last_job))
        if batch.replaced:
            _write_rows(connection, JOBS, batch.replaced)

    def _move_head(self, connection: Connection, old: Head, new: Head) -> None:
        """Nothing is written after what this process does not know, nor by one that was overtaken."""
        values = {f"new_{name}": value for name, value in _columns_of(new).items()}
        known = {"old_seq": old.seq, "old_checksum": old.checksum, "old_epoch": self._epoch}
        move = _prepare(connection.dialect, "move")
        if connection.exec_driver_sql(move.text, move.bind(values | known)).rowcount != 1:
            refuse_overtaken(self._database.label, "")

    # --- connecting again ---------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Give the connection up: whether the server still has it is not known."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except SQLAlchemyError:
            return  # it is gone already

    def _settled(self) -> Connection:
        """The connection, with what is stored being what was acknowledged. Raises StorageError, JournalError."""
        if self._connection is None:
            self._connection = self._database.connect_writer()
            self._settle(self._connection)
        return self._connection

    def _settle(self, connection: Connection) -> None:
        """Find out what became of the append that failed, and take it back if it was kept."""
        label = self._database.label
        with connection.begin():
            head, epoch, writer = _read_head(label, connection)
        if epoch != self._epoch:
            refuse_overtaken(label, writer)
        if self._doubt is not None and head == self._doubt.after:
            self._database.after_doubt(connection)
            with connection.begin():
                self._take_back(connection, self._doubt)
        elif head != self._head:
            raise JournalError(
                f"{label}: expected the journal to end at record {self._head.seq}, found {head.seq}: "
                "what was written is gone, or somebody else wrote"
            )
        self._doubt = None

    # --- opening ------------------------------------------------------------------------------------------------------

    def _check_formats(self, connection: Connection) -> None:
        """Hold header and defaults against ours, and write ours where they name more."""
        stored = _read_formats(connection)
        is_new = not stored and connection.execute(sa.select(sa.func.count()).select_from(JOURNAL)).scalar() == 0
        if not is_new:
            check_formats(self._database.label, stored)
        ours = _our_formats()
        if ours != stored:
            connection.execute(sa.delete(META))
            connection.execute(sa.insert(META), [{"name": name, "value": value} for name, value in ours.items()])

    def _take_over(self, connection: Connection) -> Head:
        """Begin a new epoch, and look whether the tables end where the head says."""
        label = self._database.label
        if connection.execute(sa.select(sa.func.count()).select_from(HEAD)).scalar() == 0:
            _check_tail(label, connection, Head())
            first = {"id": HEAD_ID, "epoch": 0, "writer": ""}
            connection.execute(sa.insert(HEAD), [{**first, **_columns_of(Head())}])
        head, epoch, _ = _read_head(label, connection)
        _check_tail(label, connection, head)
        self._epoch = epoch + 1
        connection.execute(sa.update(HEAD).values(epoch=self._epoch, writer=describe_writer()))
        return head

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_journal(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Records with numbers above `after`, in order, each with its number. Raises JournalError, StorageError."""
        self._settle_first()
        return self._reader.read_journal(after)

    def read_runs(self, jobs: Sequence[JobId]) -> Mapping[JobId, RunSpec]:
        """How to run these jobs. Raises JournalError where one is missing."""
        self._settle_first()
        return self._reader.read_runs(jobs)

    def _settle_first(self) -> None:
        try:
            self._settled()
        except DRIVER_ERRORS as error:
            self._let_go()
            explain_failure(self._database, "reading", error)
        except BaseException:
            self._let_go()
            raise

    def last_job_id(self) -> int:
        """The highest job number ever written; 0 = none."""
        return self._head.last_job

    @property
    def reader(self) -> SqlReader:
        """For any number of threads, until the store is closed."""
        return self._reader

    def close(self) -> None:
        """Let go of files and connections."""
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):  # a server that is gone
                connection.close()
        self._database.close()


def open_store(url: str, *, create: bool = True, take_over: bool = False) -> SqlStore:
    """Open for writing, as the only one; make what is missing if `create`.

    take_over: it is known that whoever still writes must not (a Lease was taken from him): the server cuts him off.
    Raises InputError for a URL that cannot be used, MissingExtraError without its driver, StorageError where the
    database is not there or somebody else writes to it, JournalError for damage or another release's data.
    """
    database = find_database(url, create=create)
    store = SqlStore(database)
    try:
        if take_over:
            _cut_off(database)
        store.open(create=create)
    except BaseException:
        store.close()
        raise
    return store


def _cut_off(database: Database) -> None:
    """End the writer's connection, and wait until the lock is free. Raises StorageError."""
    try:
        database.end_writer()
    except DRIVER_ERRORS as error:
        explain_failure(database, "taking over", error)
    for _ in range(CUT_OFF_TRIES):
        try:
            database.connect_writer().close()
            return
        except StorageError:
            time.sleep(CUT_OFF_PAUSE_S)


def open_reader(url: str) -> SqlReader:
    """Open for reading only, beside whoever writes. Raises as `open_store` does."""
    database = find_database(url, create=False)
    try:
        with database.engine.begin() as connection:
            version = read_version(connection)
            check_version(database.label, version)
            if version != SCHEMA_HEAD:
                raise StorageError(
                    f"{database.label}: expected tables of version {SCHEMA_HEAD}, found {version or 'none'}: "
                    "start the control plane once, which brings them up to date"
                )
            stored = _read_formats(connection)
            check_formats(database.label, stored)
    except DRIVER_ERRORS as error:
        database.close()
        explain_failure(database, "opening", error)
    except BaseException:
        database.close()
        raise
    return SqlReader(database)


def check_formats(label: str, stored: Mapping[str, str]) -> None:
    """Raise JournalError unless what is stored means the same to this release as to its writer."""
    if stored == _our_formats():
        return
    try:
        check_journal_header(json.loads(stored.get("journal", "null")))
        written = json.loads(stored.get("rows", "null"))
    except (InputError, ValueError) as error:
        raise JournalError(f"{label}: the journal's header: {error}") from error
    ours = rows.row_defaults()
    for name, default in written.items() if isinstance(written, dict) else [("the defaults of rows", written)]:
        if name not in ours or ours[name] != default:
            raise JournalError(
                f"{label}: the defaults of rows: expected {name} = {ours.get(name)!r}, found {default!r}; "
                "use the release that wrote it"
            )


def _read_formats(connection: Connection) -> dict[str, str]:
    return {row.name: row.value for row in connection.execute(sa.select(META))}


@functools.cache
def _our_formats() -> Mapping[str, str]:
    return {"journal": dump_json(make_journal_header()), "rows": dump_json(rows.row_defaults())}


def _name_row(row: rows.Row) -> str:
    """What a row is, without what is private in it."""
    return f"{row['kind']}, number {row['seq']}" if "seq" in row else f"job {row.get('id', row.get('first_job'))}"


def _is_empty(changes: Changes) -> bool:
    return not (changes.events or changes.runs or changes.jobs or changes.audit)


def _columns_of(head: Head) -> dict[str, Any]:
    return {
        "seq": head.seq,
        "checksum": head.checksum,
        "audit_seq": head.audit_seq,
        "audit_checksum": head.audit_checksum,
        "last_job": head.last_job,
    }


def _rows_of(connection: Connection, jobs: Sequence[int]) -> list[rows.Row]:
    """The rows of these jobs as they are."""
    found: list[rows.Row] = []
    for first in range(0, len(jobs), IDS_PER_QUERY):
        chosen = {"ids": jobs[first : first + IDS_PER_QUERY]}
        found.extend(dict(row) for row in connection.execute(_FIND_JOBS, chosen).mappings())
    return found


def _read_head(label: str, connection: Connection) -> tuple[Head, int, str]:
    """The head, its epoch and its writer."""
    row = connection.execute(sa.select(HEAD)).one_or_none()
    if row is None:
        raise JournalError(f"{label}: expected one row in the table head, found none; restore a backup")
    head = Head(row.seq, row.checksum, row.audit_seq, row.audit_checksum, row.last_job)
    return head, row.epoch, row.writer


def _check_tail(label: str, connection: Connection, head: Head) -> None:
    """Raise JournalError unless journal and audit end where the head says."""
    ends = ((JOURNAL, head.seq, head.checksum), (AUDIT, head.audit_seq, head.audit_checksum))
    for table, seq, checksum in ends:
        last = sa.select(table.c.seq, table.c.checksum).order_by(table.c.seq.desc()).limit(1)
        found = connection.execute(last).one_or_none() or (0, rows.CHAIN_START)
        if tuple(found) != (seq, checksum):
            raise JournalError(
                f"{label}: {table.name} record {seq}: expected it to be the last one, found {found[0]} with "
                f"{'another' if found[0] == seq else 'its own'} checksum; restore a backup"
            )


_FIND_JOBS: Final = sa.select(JOBS).where(JOBS.c.id.in_(sa.bindparam("ids", expanding=True)))

_MOVE_HEAD: Final = (
    sa.update(HEAD)
    .where(
        HEAD.c.id == sa.literal_column(str(HEAD_ID)),
        HEAD.c.seq == sa.bindparam("old_seq"),
        HEAD.c.checksum == sa.bindparam("old_checksum"),
        HEAD.c.epoch == sa.bindparam("old_epoch"),
    )
    .values(
        seq=sa.bindparam("new_seq"),
        checksum=sa.bindparam("new_checksum"),
        audit_seq=sa.bindparam("new_audit_seq"),
        audit_checksum=sa.bindparam("new_audit_checksum"),
        last_job=sa.bindparam("new_last_job"),
    )
)


def _make_upsert(dialect: str, table: sa.Table) -> sa.Insert:
    """Insert, or replace all columns of the row that is there."""
    keys = [column.name for column in table.primary_key]
    others = [column.name for column in table.columns if column.name not in keys]
    if dialect == "mariadb":
        statement = mysql.insert(table)
        return statement.on_duplicate_key_update({name: statement.inserted[name] for name in others})
    insert = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    return insert.on_conflict_do_update(index_elements=keys, set_={name: insert.excluded[name] for name in others})


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement as the driver takes it: made anew for each write it would cost more than all else of it. names: of
    its values in order; None = the driver takes them by name."""

    text: str
    names: tuple[str, ...] | None

    def bind(self, row: Mapping[str, Any]) -> Any:
        """The values of a row as the driver takes them."""
        return row if self.names is None else tuple([row[name] for name in self.names])


@functools.lru_cache(maxsize=32)
def _prepare(dialect: sa.Dialect, what: str) -> _Prepared:
    """What moves the head (`move`), or what writes a row of the table of this name."""
    if what == "move":
        compiled = _MOVE_HEAD.compile(dialect=dialect)
    else:
        table = METADATA.tables[what]
        statement = _make_upsert(dialect.name, table) if table in (RUNS, JOBS) else sa.insert(table)
        compiled = statement.compile(dialect=dialect, column_keys=[column.name for column in table.columns])
    assert isinstance(compiled, SQLCompiler)
    names = compiled.positiontup
    return _Prepared(str(compiled), None if names is None else tuple(names))


def _write_rows(connection: Connection, table: sa.Table, table_rows: list[rows.Row]) -> None:
    prepared = _prepare(connection.dialect, table.name)
    connection.exec_driver_sql(prepared.text, [prepared.bind(row) for row in table_rows])
