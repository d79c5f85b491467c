"""Formats of columns as Slurm's users give them: `%.18i %.9P`, and `JobID:18,Partition:9`.

A letter or name stands for a column of a table that each command has. What a table does not have is an error: a script
that asks for a column must not get another.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from clearway.cli.slurm.arguments import UsageError

RowT = TypeVar("RowT")

_SHORT: Final = re.compile(r"%(\.?)([0-9]*)([A-Za-z#])")
_LONG: Final = re.compile(r"([A-Za-z][A-Za-z_-]*)(?::(-?)(\.?)([0-9]*)([^,]*))?$")
LONG_WIDTH: Final = 20
"""Width of a column of `-O` that names none, as in Slurm."""


@dataclass(frozen=True, slots=True)
class Column(Generic[RowT]):
    """names: of `-O`, folded. header: above it. cell: text of a row."""

    letter: str
    names: tuple[str, ...]
    header: str
    cell: Callable[[RowT], str]


@dataclass(frozen=True, slots=True)
class Cell(Generic[RowT]):
    """One place of a format: `before` it comes fixed text; width 0 = as wide as it is."""

    column: Column[RowT]
    width: int = 0
    is_right: bool = False
    before: str = ""
    after: str = ""


def parse_short_format(text: str, columns: Sequence[Column[RowT]]) -> list[Cell[RowT]]:
    """The places of `%[.][width]letter` with the text between them. Raises UsageError."""
    by_letter = {column.letter: column for column in columns if column.letter}
    cells: list[Cell[RowT]] = []
    end = 0
    for match in _SHORT.finditer(text):
        column = by_letter.get(match[3])
        if column is None:
            known = " ".join(f"%{letter}" for letter in by_letter)
            raise UsageError(f"Invalid job format specification: {match[0]}; known are {known}")
        cells.append(Cell(column, int(match[2] or 0), match[1] == ".", text[end : match.start()]))
        end = match.end()
    if not cells:
        raise UsageError(f"Invalid job format specification: {text!r}; write it as %.18i %.9P")
    last = cells[-1]
    cells[-1] = Cell(last.column, last.width, last.is_right, last.before, text[end:])
    return cells


def parse_long_format(text: str, columns: Sequence[Column[RowT]]) -> list[Cell[RowT]]:
    """The places of `Name[:[.]width[suffix]],...`. Raises UsageError."""
    by_name: Mapping[str, Column[RowT]] = {name: column for column in columns for name in column.names}
    cells: list[Cell[RowT]] = []
    for part in text.split(","):
        match = _LONG.fullmatch(part.strip())
        column = by_name.get(match[1].lower()) if match else None
        if match is None or column is None:
            raise UsageError(f"Invalid job format specification: {part}\nknown are {', '.join(sorted(by_name))}")
        width = int(match[4]) if match[4] else LONG_WIDTH
        cells.append(Cell(column, width, bool(match[3]), "", match[5] or ""))
    return cells


def render_table(cells: Sequence[Cell[RowT]], rows: Sequence[RowT], *, has_header: bool = True) -> str:
    """Lines, each with its end. Cells are cut at their width."""
    lines = [_render_line(cells, [cell.column.header for cell in cells])] if has_header else []
    lines.extend(_render_line(cells, [cell.column.cell(row) for cell in cells]) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _render_line(cells: Sequence[Cell[RowT]], texts: Sequence[str]) -> str:
    return "".join(
        cell.before + _fit(text, cell.width, is_right=cell.is_right) + cell.after
        for cell, text in zip(cells, texts, strict=True)
    )


def _fit(text: str, width: int, *, is_right: bool) -> str:
    if width == 0:
        return text
    return text[:width].rjust(width) if is_right else text[:width].ljust(width)
