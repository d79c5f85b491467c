"""What a SQLite file can look like after the death of its process or its machine.

While a seeded sequence of appends runs on a real file, its bytes and those of its WAL and journal are kept before and
after every statement and commit. Between two such moments everything is possible that a death there can leave: the WAL
cut at any byte of what was written, some of its sectors missing, some pages of the database copied, one of them torn.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from support.servers import find_quick_folder

SECTOR = 512
PAGE = 4096
WAL_HEADER = 32
"""SQLite syncs a new header before it writes anything after it."""

SUFFIXES = ("", "-wal", "-journal")
"""The files of a database; the index of the WAL (`-shm`) is in memory and dies too."""

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Moment:
    """The files at one moment. acknowledged: appends that had returned."""

    files: Files
    acknowledged: int


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of small databases are made in it."""
    folder = Path(tempfile.mkdtemp(prefix="clearway-", dir=find_quick_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Recorder:
    """Keeps the moments of a database from its making on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged = 0
        self.moments: list[Moment] = []
        self.look()

    def look(self, *_: object) -> None:
        """One more moment, if anything changed."""
        files = {}
        for suffix in SUFFIXES:
            path = Path(f"{self.path}{suffix}")
            if path.exists():
                files[suffix] = path.read_bytes()
        if not self.moments or self.moments[-1].files != files or self.moments[-1].acknowledged != self.acknowledged:
            self.moments.append(Moment(files, self.acknowledged))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look before and after every statement and commit of every engine."""
        names = ("before_cursor_execute", "after_cursor_execute", "begin", "commit", "rollback")
        for name in names:
            sa.event.listen(Engine, name, self.look)
        try:
            yield
        finally:
            for name in names:
                sa.event.remove(Engine, name, self.look)

    def acknowledge(self) -> None:
        """An append has returned."""
        self.acknowledged += 1
        self.look()


def draw_wreck(before: Moment, after: Moment, draw: random.Random) -> Files:
    """Files that a death between two moments can leave.

    SQLite syncs what it writes to the WAL or the journal, then writes the database, and then may remove the log.
    """
    old, new = before.files, after.files
    stage = draw.choice(_stages(old, new))
    logs = {suffix: data for suffix, data in old.items() if suffix} | {s: data for s, data in new.items() if s}
    if stage == "log":
        begun = {
            suffix: _write_some(old.get(suffix, b""), data, draw) for suffix, data in logs.items() if suffix in new
        }
        return dict(old) | begun
    if stage == "database":
        # Without a log that is still there, SQLite wrote the database under one that we have not seen.
        mix = _copy_some_pages if logs else lambda one, other, draw: draw.choice((one, other))
        return logs | {"": mix(old.get("", b""), new.get("", b""), draw)}
    return logs | {"": new[""]} if draw.random() < 0.5 else dict(new)


def _stages(old: Files, new: Files) -> list[str]:
    """Where a death can have come, those more often in which most can happen."""
    log = ["log"] * 4 if any(old.get(suffix) != data for suffix, data in new.items() if suffix) else []
    database = ["database"] * 4 if old.get("") != new.get("") else []
    return [*log, *database, "removal"]


def _write_some(old: bytes, new: bytes, draw: random.Random) -> bytes:
    """The bytes before any place are new and the rest is old; or some sectors of what is written are missing."""
    place = draw.randrange(_first_change(old, new), max(len(old), len(new)) + 1)
    mixed = bytearray(new[:place] + old[place:])
    if draw.random() < 0.3:
        for begin in range(0, len(mixed), SECTOR):
            if draw.random() < 0.3 and begin + SECTOR > _first_change(old, new):
                lost = old[begin : begin + SECTOR].ljust(SECTOR, b"\0")[: len(mixed) - begin]
                mixed[begin : begin + SECTOR] = lost
        mixed[:WAL_HEADER] = new[: min(place, WAL_HEADER)] + old[min(place, WAL_HEADER) : WAL_HEADER]
    return bytes(mixed)


def _copy_some_pages(old: bytes, new: bytes, draw: random.Random) -> bytes:
    """Some pages are new, the last one of them in part."""
    size = len(new) if draw.random() < 0.5 else max(len(old), PAGE)
    mixed = bytearray(old.ljust(size, b"\0")[:size])
    pages = [begin for begin in range(0, size, PAGE) if old[begin : begin + PAGE] != new[begin : begin + PAGE]]
    draw.shuffle(pages)
    pages = pages[: draw.randrange(len(pages) + 1)]
    for begin in pages:
        mixed[begin : begin + PAGE] = new[begin : begin + PAGE]
    if pages:
        torn = pages[-1] + SECTOR * draw.randrange(1, PAGE // SECTOR)
        mixed[torn : pages[-1] + PAGE] = old[torn : pages[-1] + PAGE].ljust(pages[-1] + PAGE - torn, b"\0")
    return bytes(mixed[:size])


def _first_change(old: bytes, new: bytes) -> int:
    both = min(len(old), len(new))
    if old[:both] == new[:both]:
        return both
    low, high = 0, both
    while high - low > 1:
        middle = (low + high) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle
    return low


def lay(files: Files, path: Path) -> None:
    """Write files of a database at `path`, in place of what is there."""
    for suffix in (*SUFFIXES, "-shm", ".lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    for suffix, data in files.items():
        Path(f"{path}{suffix}").write_bytes(data)
