"""Snapshots as files of one folder: each is a line of JSON that says what it is, then its content.

A file is written under another name, synced, renamed, and the folder synced: it is there as a whole or not at all. What
it says of itself is not believed: its digest must fit its content, and the checksum of the record that it names must be
the one in the journal, which stands for the record and all before it.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from clearway.ports.snapshots import Snapshot
from clearway.ports.storage import StorageError

FORMAT: Final = "clearway-snapshot-1"
SUFFIX: Final = ".snapshot"
KEPT: Final = 2
"""The newest, and the one before, should that be damaged."""

HEADER_MAX: Final = 4_096
FOLDER_MODE: Final = 0o700


class SnapshotFolder:
    """Snapshots of one journal. checksum_of: of a record, None = there is none. tell: takes a line for people about one
    that is left out."""

    def __init__(self, folder: Path, checksum_of: Callable[[int], str | None], tell: Callable[[str], None]) -> None:
        self._folder, self._checksum_of, self._tell = folder, checksum_of, tell

    def find(self, basis: str) -> Iterator[Snapshot]:
        """See `Snapshots`."""
        for path in self._paths():
            problem, found = self._read(path, basis)
            if found is not None:
                yield found
            else:
                self._tell(f"{path}: left out: {problem}")

    def _paths(self) -> list[Path]:
        """The newest first."""
        try:
            found = [path for path in self._folder.iterdir() if path.suffix == SUFFIX and path.stem.isdecimal()]
        except OSError:
            return []
        return sorted(found, key=lambda path: int(path.stem), reverse=True)

    def _read(self, path: Path, basis: str) -> tuple[str, Snapshot | None]:
        """What is wrong with a file, or what is in it."""
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                header = json.loads(file.readline(HEADER_MAX))
                payload = file.read()
            told = {name: header[name] for name in ("format", "record", "checksum", "basis", "sha256")}
        except (OSError, ValueError, LookupError, TypeError) as error:
            return f"it cannot be read: {error}", None
        if told["format"] != FORMAT or told["record"] != int(path.stem):
            return "it is none of ours, or was renamed", None
        if hashlib.sha256(payload).hexdigest() != told["sha256"]:
            return "its content is damaged", None
        if told["basis"] != basis:
            return "it was made by another release or other settings", None
        if self._checksum_of(told["record"]) != told["checksum"]:
            return f"the journal's record {told['record']} is another", None
        return "", Snapshot(record=told["record"], basis=basis, payload=payload)

    def keep(self, snapshot: Snapshot) -> None:
        """See `Snapshots`."""
        checksum = self._checksum_of(snapshot.record)
        if checksum is None:
            raise StorageError(f"the journal has no record {snapshot.record} any more, of which a snapshot was made")
        header = {
            "format": FORMAT,
            "record": snapshot.record,
            "checksum": checksum,
            "basis": snapshot.basis,
            "sha256": hashlib.sha256(snapshot.payload).hexdigest(),
        }
        try:
            self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            path = self._folder / f"{snapshot.record}{SUFFIX}"
            self._write(path, json.dumps(header).encode() + b"\n", snapshot.payload)
            self._clean(path)
        except OSError as error:
            raise StorageError(f"{self._folder}: no snapshot was written: {error.strerror}") from error

    def _clean(self, made: Path) -> None:
        """Leave the newest ones of this journal, and nothing of writers that were killed.

        Where the journal was restored from a backup, snapshots of the other one have higher numbers, and would take the
        places of all that are made from now on.
        """
        found = self._paths()
        ours = [path for path in found if path == made or self._is_of_journal(path)]
        torn = [path for path in self._folder.glob(f".*{SUFFIX}.*") if not _is_alive(path.suffix[1:])]
        for old in (*set(found).difference(ours[:KEPT]), *torn):
            old.unlink(missing_ok=True)

    def _is_of_journal(self, path: Path) -> bool:
        """Whether a file says so; a snapshot of another release is one too."""
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                header = json.loads(file.readline(HEADER_MAX))
            return bool(header["checksum"] == self._checksum_of(int(path.stem)))
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def _write(self, path: Path, *parts: bytes) -> None:
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(new, flags, 0o600), "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
