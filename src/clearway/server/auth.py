"""Who calls: bearer tokens, and the file that says to whom each belongs.

A token is `cw_<id>_<secret>`; the file holds its id and the SHA-256 of the whole, so that who reads the file cannot
call. The secret has 256 random bits, for which a slow hash would buy nothing. The file must be a plain file of mode
0600 that belongs to whoever runs the server (or root); any other is refused, and so is every caller until it is
mended. It is read again when it has changed: a revoked token is good for nothing from the next request on.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from clearway.model.errors import ClearwayError, InputError
from clearway.model.ids import TenantName
from clearway.wire.api_rows import decode_row

PREFIX: Final = "cw"
FILE_VERSION: Final = 1
FILE_BYTES_MAX: Final = 64 << 20
TOKENS_MAX: Final = 100_000
NAME_CHARACTERS_MAX: Final = 256


class Role(StrEnum):
    """What a user may do, each more than the one before: see `access`."""

    VIEWER = "viewer"
    USER = "user"
    TENANT_ADMIN = "tenant_admin"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A known caller. tenants: as the token file names them. unix_user: in whose name his jobs run."""

    user: str
    role: Role
    tenants: tuple[TenantName, ...] = ()
    unix_user: str = ""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """A line of the token file. sha256: of the token, in hexadecimal digits. expires_ms None = never."""

    id: str
    sha256: str
    user: str
    role: Role
    tenants: tuple[TenantName, ...] = ()
    unix_user: str = ""
    expires_ms: int | None = None

    @property
    def identity(self) -> Identity:
        """The caller to whom the token belongs."""
        return Identity(
            user=self.user,
            role=self.role,
            tenants=self.tenants,
            unix_user=self.unix_user or self.user,
            expires_ms=self.expires_ms,
        )


class AuthFileError(ClearwayError):
    """The token file cannot be trusted or read; nobody is let in until it is mended."""


class Auth(Protocol):
    """Knows callers by what they show."""

    def identify(self, token: str) -> Identity | None:
        """Whose token it is; None = unknown, revoked or expired. Raises AuthFileError."""
        ...


class TokenFile:
    """Callers as the token file at `path` has them now. Safe for several threads. now_ms: Unix time."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._entries: Mapping[str, TokenEntry] = {}
        self._refresh()

    def identify(self, token: str) -> Identity | None:
        entries = self._refresh()
        prefix, _, rest = token.partition("_")
        entry = entries.get(rest.partition("_")[0]) if prefix == PREFIX else None
        expected = entry.sha256 if entry is not None else "0" * 64
        is_same = hmac.compare_digest(hash_token(token), expected)
        if entry is None or not is_same:
            return None
        if entry.expires_ms is not None and entry.expires_ms <= self._now_ms():
            return None
        return entry.identity

    def _refresh(self) -> Mapping[str, TokenEntry]:
        """The entries, read again if the file is another one than before."""
        with self._lock:
            try:
                status = os.stat(self._path, follow_symlinks=False)
            except OSError as error:
                self._seen = ()
                raise _unreadable(self._path, error) from error
            seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode)
            if seen != self._seen:
                self._seen = ()
                self._entries = {entry.id: entry for entry in read_token_file(self._path)}
                self._seen = seen
            return self._entries


def hash_token(token: str) -> str:
    """What the file holds of a token."""
    return hashlib.sha256(token.encode("utf-8", errors="surrogateescape")).hexdigest()


def read_token_file(path: Path) -> tuple[TokenEntry, ...]:
    """All entries of the file. Raises AuthFileError where it is not private, not ours, or not a token file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            data = json.loads(file.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise AuthFileError(f"{path}: expected a token file in JSON, found none: {error}") from error
    if not isinstance(data, dict) or data.get("version") != FILE_VERSION or not isinstance(data.get("tokens"), list):
        raise AuthFileError(f"{path}: expected a token file of version {FILE_VERSION}, found another file")
    try:
        return tuple(decode_row(TokenEntry, entry) for entry in data["tokens"])
    except InputError as error:
        raise AuthFileError(f"{path}: {error}") from error


def make_token_file(path: Path, *, user: str, unix_user: str = "") -> str:
    """Make the file at `path` with one operator; his token, kept nowhere else. Raises InputError where it exists."""
    with _editing(path):
        if os.path.lexists(path):
            raise InputError(f"{path}: expected no file, found one; it holds tokens that are in use")
        token, entry = _make_entry(user=user, role=Role.OPERATOR, tenants=(), unix_user=unix_user, expires_ms=None)
        _write(path, (entry,))
    return token


def add_user(
    path: Path,
    *,
    user: str,
    role: Role,
    tenants: tuple[TenantName, ...] = (),
    unix_user: str = "",
    expires_ms: int | None = None,
) -> str:
    """Give `user` a token, beside those that he has; the token. Raises InputError, AuthFileError."""
    token, entry = _make_entry(user=user, role=role, tenants=tenants, unix_user=unix_user, expires_ms=expires_ms)
    with _editing(path):
        entries = read_token_file(path)
        if len(entries) >= TOKENS_MAX:
            raise InputError(f"{path}: expected at most {TOKENS_MAX} tokens; revoke those that nobody uses")
        _write(path, (*entries, entry))
    return token


def revoke_user(path: Path, *, user: str) -> int:
    """Take all tokens from `user`; how many there were. Raises InputError for the last operator, AuthFileError."""
    with _editing(path):
        entries = read_token_file(path)
        kept = tuple(entry for entry in entries if entry.user != user)
        if not any(entry.role == Role.OPERATOR for entry in kept):
            raise InputError(f"expected another operator beside {user!r}, found none; add one first")
        _write(path, kept)
    return len(entries) - len(kept)


def expire_user(path: Path, *, user: str, expires_ms: int) -> int:
    """Let all tokens of `user` end at `expires_ms`; how many there are. Raises AuthFileError."""
    with _editing(path):
        entries = read_token_file(path)
        changed = tuple(replace(entry, expires_ms=expires_ms) if entry.user == user else entry for entry in entries)
        _write(path, changed)
    return sum(1 for entry in entries if entry.user == user)


def _make_entry(
    *, user: str, role: Role, tenants: tuple[TenantName, ...], unix_user: str, expires_ms: int | None
) -> tuple[str, TokenEntry]:
    for name in (user, *([unix_user] if unix_user else []), *tenants):
        if not 1 <= len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
            raise InputError(f"expected a name of 1 to {NAME_CHARACTERS_MAX} printable characters, found {name!r:.80}")
    if role in (Role.USER, Role.TENANT_ADMIN, Role.VIEWER) and not tenants:
        raise InputError(f"expected at least one tenant for a {role}, found none; `root` is above all others")
    token_id = secrets.token_hex(6)
    token = f"{PREFIX}_{token_id}_{secrets.token_urlsafe(32)}"
    entry = TokenEntry(
        id=token_id,
        sha256=hash_token(token),
        user=user,
        role=role,
        tenants=tenants,
        unix_user=unix_user,
        expires_ms=expires_ms,
    )
    return token, entry


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise AuthFileError(f"{path}: expected a plain file, found another kind")
    if stat.S_IMODE(status.st_mode) != 0o600:
        found = f"{stat.S_IMODE(status.st_mode):04o}"
        raise AuthFileError(
            f"{path}: expected mode 0600, found {found}; chmod 600, and change its tokens if others read it"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise AuthFileError(f"{path}: expected an owner who runs the server (or root), found uid {status.st_uid}")


def _unreadable(path: Path, error: OSError) -> AuthFileError:
    return AuthFileError(f"{path}: expected a token file, found none that can be read: {error.strerror}")


@contextlib.contextmanager
def _editing(path: Path) -> Iterator[None]:
    """One editor at a time, by a lock on a file beside it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(path: Path, entries: tuple[TokenEntry, ...]) -> None:
    """Replace the file as a whole: a reader sees the old one or the new one."""
    data: dict[str, Any] = {"version": FILE_VERSION, "tokens": [asdict(entry) for entry in entries]}
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
