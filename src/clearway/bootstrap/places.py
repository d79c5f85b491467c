"""Where a control plane of this user keeps its things, and how commands find the one that runs. Light to import.

The state directory holds, each readable by its owner alone:

    server.json    address and process of the control plane that runs (written when it is ready, removed at its end)
    token          token of the operator who started it first, for commands of the same user
    tokens.json    digests of all tokens
    up.lock        held while a control plane runs
    snapshots/     of what the journal makes; may be deleted, the next start then reads all of it
"""

import fcntl
import json
import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from clearway.model.errors import InputError

URL_VARIABLE: Final = "CLEARWAY_URL"
TOKEN_VARIABLE: Final = "CLEARWAY_TOKEN"  # noqa: S105 - the name of a variable
STATE_DIR_VARIABLE: Final = "CLEARWAY_STATE_DIR"
CA_FILE_VARIABLE: Final = "CLEARWAY_CA_FILE"

FOLDER_MODE: Final = 0o711
"""Of the state directory: jobs of other users must reach their own folders below it; each file in it is private."""

NANOSECONDS_PER_MS: Final = 1_000_000


def now_ms() -> int:
    """Unix time."""
    return time.time_ns() // NANOSECONDS_PER_MS


@dataclass(frozen=True, slots=True)
class Places:
    """Files of one state directory."""

    folder: Path

    @property
    def server(self) -> Path:
        """Address and process of what runs."""
        return self.folder / "server.json"

    @property
    def token(self) -> Path:
        """The first operator's token."""
        return self.folder / "token"

    @property
    def tokens(self) -> Path:
        """Digests of all tokens."""
        return self.folder / "tokens.json"

    @property
    def lock(self) -> Path:
        """Held while a control plane runs."""
        return self.folder / "up.lock"

    @property
    def database(self) -> Path:
        """The default database."""
        return self.folder / "clearway.db"

    @property
    def snapshots(self) -> Path:
        """What was made of the journal, for a start that need not read all of it."""
        return self.folder / "snapshots"

    @property
    def logs(self) -> Path:
        """What pods of submitted jobs wrote, a folder for each job; it is there where the backend collects that."""
        return self.folder / "logs"

    @property
    def log(self) -> Path:
        """What a control plane in the background says."""
        return self.folder / "up.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What `server.json` says. config: the file that it was started with, "" = none. ca_file: its certificate, which is
    trusted for being named in a file of this user's; "" = it has none."""

    url: str
    pid: int
    version: str = ""
    config: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where to send requests, and in whose name. ca_file: who vouches for the server; None = the system's."""

    url: str
    token: str
    ca_file: str | None = None


def current_user() -> str:
    """Whose this process is; a number where the machine has no name for it, as in many containers."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def only_account() -> str:
    """As whom all jobs run: whoever is not root can run them as himself alone. "" = each as its user."""
    return "" if os.geteuid() == 0 else current_user()


def find_state_dir(environment: Mapping[str, str], asked: Path | None = None) -> Path:
    """What was asked for, or the environment names, or `clearway` in the user's folder for state (XDG)."""
    if asked is not None:
        return asked.expanduser().absolute()
    if environment.get(STATE_DIR_VARIABLE):
        return Path(environment[STATE_DIR_VARIABLE]).expanduser().absolute()
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "clearway"


def find_connection(environment: Mapping[str, str], asked: Path | None = None) -> Connection:
    """By CLEARWAY_URL and CLEARWAY_TOKEN, or the files of the state directory. Raises UnreachableError where no control
    plane left any."""
    places = Places(find_state_dir(environment, asked))
    url = environment.get(URL_VARIABLE, "")
    token = environment.get(TOKEN_VARIABLE, "")
    ca_file = environment.get(CA_FILE_VARIABLE, "")
    if not url or asked is not None:
        running = read_running(places)
        if running is None:
            from clearway.client.errors import UnreachableError

            raise UnreachableError(
                f"expected a control plane that runs, found none by {places.server}; start one with `clearway up`, "
                f"or name one: {URL_VARIABLE} and {TOKEN_VARIABLE}"
            )
        url, ca_file = running.url, ca_file or running.ca_file
    if not token:
        token = read_secret(places.token)
    return Connection(url=url, token=token, ca_file=ca_file or None)


def read_running(places: Places) -> Running | None:
    """What `server.json` says; None = there is none. Raises InputError for one that makes no sense."""
    try:
        data = json.loads(places.server.read_text(encoding="utf-8"))
        words = {name: str(data.get(name, "")) for name in ("version", "config", "ca_file")}
        return Running(url=data["url"], pid=int(data["pid"]), **words)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{places.server}: expected what `clearway up` writes, found: {error}") from error


def is_running(places: Places) -> bool:
    """Whether a control plane has the lock. One that was killed leaves `server.json` behind, which names a process and
    an address that may be another's by now."""
    try:
        descriptor = os.open(places.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_running(places: Places, running: Running) -> None:
    """Say that a control plane runs. The file is replaced as a whole."""
    write_private(places.server, json.dumps(asdict(running), indent=1) + "\n")


def read_secret(path: Path) -> str:
    """A token of a file that nobody else can read. Raises InputError."""
    try:
        status = path.stat()
        if status.st_mode & 0o077:
            raise InputError(
                f"{path}: expected a file that its owner alone can read, found mode {status.st_mode & 0o7777:04o}; "
                "chmod 600, and change the token if others have read it"
            )
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(
            f"{path}: expected a token, found none: {error.strerror}; give one in {TOKEN_VARIABLE}"
        ) from error


def write_private(path: Path, text: str) -> None:
    """Replace a file, which its owner alone can read from its first moment on."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
