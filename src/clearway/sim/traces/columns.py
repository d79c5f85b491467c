"""Reading delimited files with a header, and the values in them, strictly: what is not understood is a ValueError
whose message is the reason under which the record is counted, so it must not contain the value itself.
"""

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from clearway.model.errors import InputError
from clearway.model.units import SECOND_MS
from clearway.sim.text_files import ProgressCallback, iterate_lines
from clearway.sim.traces.assemble import SkipTally

EPOCH = datetime(1970, 1, 1)
WRONG_FIELD_COUNT = "not as many fields as the header has"


class CsvRow(NamedTuple):
    """One record: its line number, and its values in the order that the reader asked for."""

    line: int
    values: list[str]


def iterate_csv(
    path: Path,
    columns: Sequence[str],
    tally: SkipTally,
    progress: ProgressCallback | None = None,
    delimiter: str = ",",
) -> Iterator[CsvRow]:
    """Yield the named columns of each record, in the order asked, whatever their order in the file.

    A record with another number of fields than the header is counted in `tally`. InputError when the header lacks a
    column. A record is one line: quoted line breaks are not part of any trace that is read by this function.
    """
    lines = iterate_lines(path, progress)
    _, header_line = next(lines, (0, ""))
    header = split_record(header_line, delimiter)
    missing = [name for name in columns if name not in header]
    if missing:
        message = f"{path}:1: expected the columns {', '.join(columns)}, found no {', '.join(missing)}"
        raise InputError(f"{message}; check the file and --format")
    positions = [header.index(name) for name in columns]
    for number, line in lines:
        fields = split_record(line, delimiter)
        if len(fields) == len(header):
            yield CsvRow(number, [fields[position] for position in positions])
        elif line.strip():
            tally.add(WRONG_FIELD_COUNT, number)


def split_record(line: str, delimiter: str = ",") -> list[str]:
    """The fields of one line, with CSV quoting; empty when it is blank or cannot be split."""
    if '"' not in line:
        stripped = line.rstrip("\r\n")
        return stripped.split(delimiter) if stripped else []
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def parse_wall_clock_ms(text: str) -> int:
    """`YYYY-MM-DD[T ]HH:MM:SS[.fraction]` to ms since 1970, read as UTC. ValueError otherwise."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a time that is not YYYY-MM-DD HH:MM:SS") from None
    return round((moment - EPOCH).total_seconds() * SECOND_MS)


def parse_seconds_ms(text: str) -> int:
    """Seconds, whole or with a fraction, to ms. ValueError otherwise."""
    try:
        return round(float(text) * SECOND_MS)
    except (ValueError, OverflowError):
        raise ValueError("a duration that is not a number of seconds") from None


def parse_number(text: str) -> float:
    """A finite number. ValueError otherwise."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a field that must be a number is not") from None
    if not isfinite(value):
        raise ValueError("a number that is not finite")
    return value


def parse_whole(text: str) -> int:
    """A whole number, also written as 4.0. ValueError otherwise."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a count that is not a whole number") from None
    if not value.is_integer():
        raise ValueError("a count that is not a whole number")
    return int(value)
