"""Opening text files of data: plain or gzip, line by line, with progress in bytes of the file as it lies on disk.

Invariants: whether a file is compressed is told by its first bytes, never by its name; bytes that are not UTF-8 become
U+FFFD, so that one bad name does not hide a whole log. Nothing here knows any format.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from clearway.model.errors import InputError

ProgressCallback = Callable[[int, int], None]
"""Called with (bytes read so far, bytes in all) of the file on disk, and once more at the end with equal values."""

GZIP_MAGIC = b"\x1f\x8b"
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading compressed data that was cut or altered raises."""
PROGRESS_EVERY_LINES = 20_000
"""Lines between two progress calls: some ten a second at reading speed, too few to cost anything."""
HEAD_LINES = 40
"""Lines looked at to recognise a format: more than the comment header of any log of the Parallel Workloads Archive."""
HEAD_CHARS = 200_000
"""Bound of the head: a JSON file may be one line of any length."""


@contextmanager
def open_text(path: Path) -> Iterator[tuple[io.TextIOWrapper, io.BufferedReader]]:
    """Yield (text stream, the raw stream below it, whose `tell` is the progress). InputError if it cannot be read."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: expected a readable trace file, found: {error.strerror}; check the path") from error
    with raw:
        compressed = raw.peek(2)[:2] == GZIP_MAGIC
        binary = gzip.GzipFile(fileobj=raw) if compressed else raw
        yield io.TextIOWrapper(binary, encoding="utf-8", errors="replace"), raw


def iterate_lines(path: Path, progress: ProgressCallback | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line with its end) of a plain or gzip file. InputError when gzip data is broken."""
    total = path.stat().st_size if path.exists() else 0
    number = 0
    with open_text(path) as (text, raw):
        try:
            for number, line in enumerate(text, start=1):
                if progress is not None and number % PROGRESS_EVERY_LINES == 0:
                    progress(raw.tell(), total)
                yield number, line
        except BROKEN_GZIP as error:
            message = f"{path}:{number}: expected whole gzip data, found: {error}; fetch the file again"
            raise InputError(message) from error
    if progress is not None:
        progress(total, total)


def read_head(path: Path) -> tuple[str, ...]:
    """The first lines without their ends, for recognising the format; bounded in lines and in characters."""
    with open_text(path) as (text, _):
        try:
            block = text.read(HEAD_CHARS)
        except BROKEN_GZIP as error:
            raise InputError(f"{path}: expected whole gzip data, found: {error}; fetch the file again") from error
    return tuple(line.rstrip("\r\n") for line in islice(io.StringIO(block), HEAD_LINES))
