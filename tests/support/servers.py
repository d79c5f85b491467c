"""Real database servers for tests: from temporary folders, on the loopback address, as a user without rights.

Each server of a kind is started once in a test process, when a test first asks for it, and ended with the process.
Tests take databases of their own from it. Where its package is missing, tests that need it are skipped;
`scripts/servers` installs them.
"""

import ctypes
import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest
import redis
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

START_S = 60
"""Longest wait for a server to answer: a busy machine takes long to write its first files."""


class Server:
    """A server that can be stopped, killed and started again on the same port with the same files."""

    name = ""
    packages = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = find_free_port()
        self.password = secrets.token_hex(16)
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find_program(cls) -> str | None:
        """Where the server's program is; None = not installed."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make its files."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def ask(self) -> None:
        """Raise unless it answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self.folder, preexec_fn=end_with_parent, **unprivileged()
            )
        self.wait()

    def wait(self) -> None:
        """Until it answers."""
        deadline = time.perf_counter() + START_S
        while True:
            try:
                self.ask()
            except (OSError, SQLAlchemyError, redis.RedisError, pymysql.MySQLError) as error:
                assert self.process is not None
                if self.process.poll() is not None or time.perf_counter() > deadline:
                    log = (self.folder / "log").read_text(errors="replace")[-2_000:]
                    raise RuntimeError(f"{self.name} does not answer: {error}\n{log}") from error
                time.sleep(0.05)
            else:
                return

    def end(self, number: int) -> None:
        """Send a signal that ends it, and wait."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(START_S)

    def kill(self) -> None:
        """End it as the machine's death would."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self.end(signal.SIGTERM)


class DatabaseServer(Server):
    """One that has databases."""

    scheme = ""
    user = "clearway"
    first = ""

    def url(self, database: str, port: int | None = None) -> str:
        """Of a database, for `open_store`; `port` where something stands between."""
        return f"{self.scheme}://{self.user}:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def ask(self) -> None:
        self.run("SELECT 1")

    def run(self, statement: str) -> None:
        """One statement outside of any transaction, such as CREATE DATABASE."""
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}[self.scheme]
        url = sa.make_url(self.url(self.first)).set(drivername=driver)
        engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    def make_database(self) -> str:
        """The name of a new and empty one."""
        name = f"t{secrets.token_hex(6)}"
        self.run(f"CREATE DATABASE {name}")
        return name


class PostgresServer(DatabaseServer):
    """PostgreSQL, as Debian installs it."""

    name, packages, scheme, first = "PostgreSQL", "postgresql", "postgresql", "postgres"

    @classmethod
    def find_program(cls) -> str | None:
        return max(glob.glob("/usr/lib/postgresql/*/bin/postgres"), default=None)

    def prepare(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        give_away(secret)
        initdb = Path(str(self.find_program())).with_name("initdb")
        run_unprivileged(
            self.folder,
            str(initdb),
            *("-D", str(self.folder / "data"), "-U", self.user, f"--pwfile={secret}", "-A", "scram-sha-256"),
            *("--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"),
        )

    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.folder}"]
        settings += ["shared_buffers=32MB", "max_connections=100"]
        return [str(self.find_program()), "-D", str(self.folder / "data"), *(f"--{text}" for text in settings)]

    def kill(self) -> None:
        """PostgreSQL's own word for a crash: its children end too, and it recovers when it is started."""
        self.end(signal.SIGQUIT)

    def stop(self) -> None:
        self.end(signal.SIGINT)


class MariaServer(DatabaseServer):
    """MariaDB, as Debian installs it."""

    name, packages, scheme, first = "MariaDB", "mariadb-server", "mariadb", "mysql"

    @classmethod
    def find_program(cls) -> str | None:
        return shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")

    def prepare(self) -> None:
        users = self.folder / "users.sql"
        users.write_text(
            f"CREATE USER IF NOT EXISTS {self.user}@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO {self.user}@'127.0.0.1';\n"
        )
        give_away(users)
        run_unprivileged(
            self.folder,
            *("mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data", "--skip-test-db"),
            *("--auth-root-authentication-method=normal", "--innodb-flush-method=fsync", "--innodb-log-file-size=8M"),
        )

    def command(self) -> list[str]:
        place = [f"--datadir={self.folder}/data", f"--socket={self.folder}/socket", f"--pid-file={self.folder}/pid"]
        place += ["--bind-address=127.0.0.1", f"--port={self.port}", f"--init-file={self.folder}/users.sql"]
        size = ["--innodb-log-file-size=8M", "--skip-name-resolve", "--performance-schema=OFF"]
        return [str(self.find_program()), "--no-defaults", *place, *size]


class RedisServer(Server):
    """Redis, as Debian installs it. It keeps nothing on disk."""

    name, packages = "Redis", "redis-server"

    @classmethod
    def find_program(cls) -> str | None:
        return shutil.which("redis-server")

    @property
    def url(self) -> str:
        """With the password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        config = self.folder / "redis.conf"
        lines = ["bind 127.0.0.1", f"port {self.port}", f"requirepass {self.password}", 'save ""', "appendonly no"]
        config.write_text("\n".join(lines) + "\n")
        give_away(config)

    def command(self) -> list[str]:
        return [str(self.find_program()), str(self.folder / "redis.conf")]

    def ask(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.ping()


# --- running ----------------------------------------------------------------------------------------------------------


@contextmanager
def running(kind: type[Server]) -> Iterator[Server]:
    """A server with files of its own, ended and removed afterwards; skips the test where its package is missing."""
    if kind.find_program() is None:
        pytest.skip(f"{kind.name} is not installed; scripts/servers installs it")
    folder = Path(tempfile.mkdtemp(prefix="clearway-", dir=find_quick_folder()))
    server = kind(folder)
    try:
        give_away(folder)
        server.prepare()
        server.start()
        yield server
    finally:
        server.kill()  # nobody needs its files
        shutil.rmtree(folder, ignore_errors=True)


def find_quick_folder() -> str:
    """In memory where there is such a place: servers sync often. Short: the path of a socket has a limit."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"


def find_free_port() -> int:
    """A port of the loopback address that nobody listens to now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def end_with_parent() -> None:
    """Called in the new process: it is to end when the tests do, however they do (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def unprivileged() -> dict[str, object]:
    """Arguments of Popen: servers refuse to run as root, and should."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def give_away(path: Path) -> None:
    """Make `path` the servers' own, and nobody else's."""
    path.chmod(0o700 if path.is_dir() else 0o600)
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        os.chown(path, account.pw_uid, account.pw_gid)


def run_unprivileged(folder: Path, *command: str) -> None:
    """Run what makes a server's files."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, **unprivileged())  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}")


def poll(condition: Callable[[], bool], *, what: str, seconds: float = 60.0) -> None:
    """Until `condition` holds; fails after `seconds`."""
    deadline = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < deadline, f"expected within {seconds} s: {what}"
        time.sleep(0.01)
