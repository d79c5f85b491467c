"""The three databases: how to reach each, what makes its commits durable, and how one writer keeps others out.

SQLite: a lock on a file beside the database, held as long as the store is open. PostgreSQL and MariaDB: a named lock of
the writer's connection, which ends with it; `head.epoch` then still tells a writer that another one took over.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import socket
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from clearway.model.errors import InputError, MissingExtraError
from clearway.ports.storage import JournalError, StorageError

CONNECT_S: Final = 5
"""Longest wait for a server that does not answer."""

ANSWER_S: Final = 30
"""Longest wait for one statement: longer than any that we send, short enough to notice a server that is gone."""

READERS_MAX: Final = 32
"""Connections for reading: more threads than a server uses."""

DRIVERS: Final = {
    "sqlite": ("sqlite", "sqlite3", ""),
    "postgresql": ("postgresql+psycopg", "psycopg", "postgresql"),
    "mariadb": ("mariadb+pymysql", "pymysql", "mariadb"),
}
"""By the URL's scheme: SQLAlchemy's dialect and driver, the driver's module, and the extra that brings it."""


ROW_BYTES_MAX: Final = 1_000_000_000
"""Of SQLite, unless it was built otherwise; PostgreSQL takes a little more."""

PACKET_BYTES_MIN: Final = 16 << 20
"""MariaDB's own default: less than the longest scripts and arrays need."""

DRIVER_ERRORS: Final = (SQLAlchemyError, sqlite3.Error, UnicodeDecodeError)
"""What a database can raise. SQLite's own words about a damaged file may not be text."""


class Database(Protocol):
    """One database, as the store needs it."""

    @property
    def label(self) -> str:
        """The address without its password, for messages."""
        ...

    @property
    def engine(self) -> Engine:
        """Connections for reading; each transaction sees one moment."""
        ...

    @property
    def row_bytes_max(self) -> int:
        """Longest row that it takes, as it is sent. Known after `check`."""
        ...

    def connect_writer(self) -> Connection:
        """The one connection that may write. Raises StorageError where another process has it."""
        ...

    def end_writer(self) -> None:
        """Have the server end the connection of whoever writes, which is known to be no longer the one that should."""
        ...

    def check(self, connection: Connection) -> None:
        """Raise StorageError unless commits are durable here, JournalError where the database finds itself damaged."""
        ...

    def after_doubt(self, connection: Connection) -> None:
        """Make sure that what a failed commit has left all the same is on disk, before more is written behind it."""
        ...

    def is_damage(self, error: BaseException) -> bool:
        """Whether the driver's error says that what is stored is damaged."""
        ...

    def locate_damage(self) -> str:
        """Where damage is that the database found, as well as can be told."""
        ...

    def close(self) -> None:
        """Let go of everything, the lock last."""
        ...


def find_database(text: str, *, create: bool) -> Database:
    """The database of a URL. Raises InputError, MissingExtraError, StorageError."""
    url = _parse_url(text)
    if url.get_backend_name() == "sqlite":
        return SqliteDatabase.find(url, create=create)
    return PostgresDatabase(url) if url.get_backend_name() == "postgresql" else MariaDatabase(url)


def _parse_url(text: str) -> URL:
    expected = "expected a storage URL such as sqlite:////var/lib/clearway/clearway.db or postgresql://user@host/name"
    try:
        url = sa.make_url(text)
    except SQLAlchemyError as error:
        raise InputError(f"{expected}; found a text that is none") from error
    scheme = url.drivername.partition("+")[0]
    if scheme not in DRIVERS:
        raise InputError(f"{expected}, or mariadb://; found {url.drivername}://")
    drivername, module, extra = DRIVERS[scheme]
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{scheme}:// needs the library {module}: pip install clearway[{extra}]")
    return url.set(drivername=drivername)


def explain_failure(database: Database, doing: str, error: BaseException) -> NoReturn:
    """Raise what the driver's error means: JournalError for damage, else StorageError; without values of rows."""
    cause = getattr(error, "orig", None) or error
    story = f"{database.label}: {doing}: {' '.join(str(cause).split()) or type(cause).__name__}"
    if database.is_damage(cause):
        raise JournalError(f"{story}: {database.locate_damage()}; restore a backup") from error
    raise StorageError(story) from error


def describe_writer() -> str:
    """This process, for whoever finds the store taken."""
    return f"process {os.getpid()} on {socket.gethostname()}"[:200]


def refuse_second(label: str, holder: str) -> NoReturn:
    """Raise the StorageError of a store that another process writes to."""
    raise StorageError(
        f"{label}: expected to be the only control plane here; found {holder or 'another one'} writing to it: "
        "stop it first"
    )


def refuse_overtaken(label: str, holder: str) -> NoReturn:
    """Raise the JournalError of a writer whose store was taken over while it had no connection."""
    raise JournalError(
        f"{label}: expected to be the only control plane here; found that {holder or 'another one'} has taken over: "
        "stop this one"
    )


# --- SQLite -----------------------------------------------------------------------------------------------------------

CHECKPOINT_PAGES: Final = 4_000
"""The WAL is copied into the database after so many pages (16 MB): seldom, and still quick to recover from."""

UNREADABLE: Final = "damaged in its header or its list of tables, from byte 0 on"

CACHE_KB: Final = 65_536
"""Memory for pages, for the writer: the indexes of 100,000 jobs fit."""


@dataclass(slots=True)
class SqliteDatabase:
    """A file of this machine, in WAL mode; every commit is synced."""

    path: Path
    writer: Engine
    engine: Engine
    lock_fd: int = -1

    @classmethod
    def find(cls, url: URL, *, create: bool) -> "SqliteDatabase":
        """The file of the URL, made where it is missing. It holds what users submit, so only its owner may read it."""
        if not url.database or url.database == ":memory:" or url.query:
            raise InputError(f"expected sqlite:///path/to/file.db, found {url.render_as_string()!r}")
        path = Path(os.path.realpath(url.database))
        try:
            if create:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            elif not path.is_file():
                raise StorageError(f"{path}: expected a store, found no such file")
        except OSError as error:
            raise StorageError(f"{path}: cannot be opened for writing: {error.strerror}") from error
        address = URL.create("sqlite", database=str(path))
        return cls(path, _make_sqlite(address, is_writer=True), _make_sqlite(address, is_writer=False))

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def row_bytes_max(self) -> int:
        return ROW_BYTES_MAX

    def connect_writer(self) -> Connection:
        if self.lock_fd < 0:
            self._lock()
        return self.writer.connect()

    def end_writer(self) -> None:
        """The lock of a file is given up by its process alone."""

    def _lock(self) -> None:
        """The lock file stays when the lock is let go: removing it would let two hold locks of one name."""
        try:
            fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"{self.path}.lock: cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 200, 0).decode(errors="replace")
            os.close(fd)
            refuse_second(self.label, holder)
        self.lock_fd = fd
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name in it
            os.ftruncate(fd, 0)
            os.pwrite(fd, describe_writer().encode(), 0)

    def check(self, connection: Connection) -> None:
        """A page that was lost or altered would show only when it is read: the whole file is looked at, indexes too."""
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if found != "ok":
            size = int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
            raise JournalError(f"{self.label}: {_name_offset(str(found), size)}; restore a backup")
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def after_doubt(self, connection: Connection) -> None:
        """After a sync that failed, pages of the WAL may be in memory alone, and what is behind them would be lost with
        them: copying them syncs the database itself."""
        driver: Any = connection.connection.driver_connection  # past SQLAlchemy, which would begin a transaction
        if driver.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0]:
            raise StorageError(f"{self.label}: a reader is in the way of syncing what was written; trying again")

    def is_damage(self, error: BaseException) -> bool:
        if isinstance(error, UnicodeDecodeError) or "no such column" in str(error) or "no such table" in str(error):
            return True  # the list of tables was altered: their version was right when they were looked for
        return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))

    def locate_damage(self) -> str:
        return _locate_damage(self.path)

    def close(self) -> None:
        self.engine.dispose()
        self.writer.dispose()
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1


def _locate_damage(path: Path) -> str:
    """Where a file is malformed: its length, the first finding with its offset, or else its beginning."""
    try:
        with path.open("rb") as file:
            header, size = file.read(100), os.fstat(file.fileno()).st_size
        expected = int.from_bytes(header[28:32], "big") * _page_size(header)
        if header.startswith(b"SQLite format 3") and size < expected:
            return f"cut off at byte {size} of {expected}"
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        return UNREADABLE if found == "ok" else _name_offset(found, _page_size(header))
    except (OSError, sqlite3.Error, UnicodeDecodeError):
        return UNREADABLE


def _page_size(header: bytes) -> int:
    """By SQLite's file format, in which 1 stands for 65,536."""
    size = int.from_bytes(header[16:18], "big")
    return 65_536 if size == 1 else size


def _name_offset(finding: str, page_size: int) -> str:
    """SQLite's finding, with the byte offset of the page that it names."""
    words = finding.replace(":", " ").split()
    numbers = [words[index + 1] for index, word in enumerate(words[:-1]) if word.lower() == "page"]
    text = " ".join(finding.split())
    if numbers and numbers[0].isdigit():
        return f"damaged at byte {(int(numbers[0]) - 1) * page_size}: {text}"
    return f"{UNREADABLE}: {text}" if "malformed" in text else text


def _make_sqlite(url: URL, *, is_writer: bool) -> Engine:
    """Readers never copy the WAL, so that they never wait for the disk."""
    threads = {"check_same_thread": False}  # a connection may move between threads, and is used by one at a time
    if is_writer:
        engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True, connect_args=threads)
    else:
        engine = sa.create_engine(
            url, pool_size=READERS_MAX, max_overflow=0, hide_parameters=True, connect_args=threads
        )
    pragmas = ["busy_timeout = 5000", "foreign_keys = ON"]
    if is_writer:
        pragmas += ["journal_mode = WAL", "synchronous = FULL", f"wal_autocheckpoint = {CHECKPOINT_PAGES}"]
        pragmas += [f"cache_size = -{CACHE_KB}"]
    else:
        pragmas += ["query_only = ON", "wal_autocheckpoint = 0", "mmap_size = 0"]

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # begin and commit are ours, not the driver's
        connection.text_factory = _decode_text
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine


def _decode_text(raw: bytes) -> str:
    """A byte that was altered must reach the checksum, which names the record, and not end the reading before."""
    return raw.decode("utf-8", "replace")


# --- servers ----------------------------------------------------------------------------------------------------------


def _make_server_engines(url: URL, arguments: dict[str, Any]) -> tuple[Engine, Engine]:
    writer = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True, connect_args=arguments)
    readers = sa.create_engine(
        url,
        pool_size=READERS_MAX,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args=arguments,
        isolation_level="REPEATABLE READ",
    )
    return writer, readers


END_POSTGRES_WRITER: Final = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks"
    " WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND ((CAST(classid AS bigint) << 32) | CAST(objid AS bigint)) = :lock"
)


class PostgresDatabase:
    """A PostgreSQL server."""

    LOCK: Final = int.from_bytes(hashlib.sha256(b"clearway writer").digest()[:8], "big", signed=True)

    def __init__(self, url: URL) -> None:
        milli = ANSWER_S * 1_000
        arguments = {
            "connect_timeout": CONNECT_S,
            "tcp_user_timeout": milli,
            "keepalives_idle": ANSWER_S,
            "options": f"-c synchronous_commit=on -c statement_timeout={milli} -c lock_timeout={milli}",
        }
        self.label = url.render_as_string(hide_password=True)
        self.row_bytes_max = ROW_BYTES_MAX
        self.writer, self.engine = _make_server_engines(url, arguments)

    def connect_writer(self) -> Connection:
        connection = self.writer.connect()
        is_ours = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({self.LOCK})").scalar()
        connection.commit()
        if not is_ours:
            connection.close()
            refuse_second(self.label, "")
        return connection

    def end_writer(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(END_POSTGRES_WRITER, {"lock": self.LOCK})

    def check(self, connection: Connection) -> None:
        if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
            raise StorageError(f"{self.label}: expected fsync = on, found off: what is accepted could be lost")

    def after_doubt(self, connection: Connection) -> None:
        """A PostgreSQL whose sync failed restarts from its log: what it shows is on disk."""

    def is_damage(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in ("XX001", "XX002")  # data or index corrupted

    def locate_damage(self) -> str:
        return "its own log has more"

    def close(self) -> None:
        self.engine.dispose()
        self.writer.dispose()


class MariaDatabase:
    """A MariaDB server, with InnoDB tables."""

    def __init__(self, url: URL) -> None:
        arguments = {
            "connect_timeout": CONNECT_S,
            "read_timeout": ANSWER_S,
            "write_timeout": ANSWER_S,
            "charset": "utf8mb4",
            "init_command": "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        }
        self.label = url.render_as_string(hide_password=True)
        self.writer, self.engine = _make_server_engines(url, arguments)
        self.row_bytes_max = PACKET_BYTES_MIN
        name = hashlib.sha256(str(url.database).encode()).hexdigest()[:32]
        self.lock = f"clearway writer {name}"

    def connect_writer(self) -> Connection:
        connection = self.writer.connect()
        is_ours = connection.execute(sa.text("SELECT GET_LOCK(:name, 0)"), {"name": self.lock}).scalar()
        connection.commit()
        if is_ours != 1:
            connection.close()
            refuse_second(self.label, "")
        return connection

    def end_writer(self) -> None:
        with self.engine.begin() as connection:
            holder = connection.execute(sa.text("SELECT IS_USED_LOCK(:name)"), {"name": self.lock}).scalar()
            if holder is not None:
                connection.exec_driver_sql(f"KILL {int(holder)}")

    def check(self, connection: Connection) -> None:
        value = connection.exec_driver_sql("SELECT @@innodb_flush_log_at_trx_commit").scalar()
        if value != 1:
            raise StorageError(
                f"{self.label}: expected innodb_flush_log_at_trx_commit = 1, found {value}: "
                "what is accepted could be lost"
            )
        self.row_bytes_max = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
        if self.row_bytes_max < PACKET_BYTES_MIN:
            raise StorageError(
                f"{self.label}: expected max_allowed_packet of 16M at least, found {self.row_bytes_max} bytes: some of "
                "what is accepted could not be written; set it to 64M"
            )

    def after_doubt(self, connection: Connection) -> None:
        """A MariaDB whose sync failed ends itself and recovers from its log: what it shows is on disk."""

    def is_damage(self, error: BaseException) -> bool:
        return bool(error.args) and error.args[0] in _MARIA_DAMAGE

    def locate_damage(self) -> str:
        return "its own log has more"

    def close(self) -> None:
        self.engine.dispose()
        self.writer.dispose()


_MARIA_DAMAGE: Final = frozenset({126, 127, 134, 144, 145, 1034, 1194, 1712})
"""Error numbers of crashed tables and corrupt indexes."""
