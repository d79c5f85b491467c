"""SQL for a JobQuery.

A page of the newest jobs must not depend on how many jobs there are. So a query over several states and users, tenants
or queues is put together from ranges of indexes, one for each pair, of which each gives its newest `limit` numbers:
nothing is sorted but those, and only the rows of the page are read.

Statements are made once for each shape of a query, since making one takes longer than carrying it out.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from clearway.adapters.storage.rows import INTEGER_MAX, key_text
from clearway.adapters.storage.tables import JOBS
from clearway.ports.storage import JOBS_PER_PAGE_MAX, JobQuery, JournalError

RANGES_MAX: Final = 40
"""Most ranges that one query is put together from; above it the database chooses its way."""

SHAPES_MAX: Final = 500
"""Statements that are kept."""

NAMED: Final = ("user", "tenant", "queue", "name")
"""Columns of names, the one that most likely leaves the fewest jobs first."""

Condition = sa.ColumnElement[bool]
Page = sa.Select[*tuple[Any, ...]]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A query without its values. counts: of values by column, for the state and NAMED. tests: names of the rest."""

    counts: tuple[tuple[str, int], ...]
    tests: frozenset[str]
    newest_first: bool

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns whose values choose ranges of indexes: the state, and the narrowest of the names."""
        given = [column for column, count in self.counts if count]
        return tuple(given[:2] if given[:1] == ["state"] else given[:1])

    @property
    def ranges(self) -> list[tuple[tuple[str, int], ...]]:
        """Each a choice of (column, place of its value); none where they would be too many, or numbers are given."""
        counts = dict(self.counts)
        choices = [[(column, place) for place in range(counts[column])] for column in self.axes]
        ranges = list(itertools.product(*choices))
        return [] if len(ranges) > RANGES_MAX or "ids" in self.tests else ranges


def page_query(query: JobQuery) -> tuple[Page, Values]:
    """A statement for (id, view, crc) of the page's jobs, in its order, and its values."""
    shape, values = _take_apart(query)
    return _page_statement(shape), values | {"limit": min(query.limit, JOBS_PER_PAGE_MAX)}


def count_query(query: JobQuery) -> tuple[Page, Values]:
    """A statement for (state, how many), and its values."""
    shape, values = _take_apart(query)
    return _count_statement(shape), values


def _take_apart(query: JobQuery) -> tuple[Shape, Values]:
    """Values are named by their column and place; those of a column together, too."""
    lists = {"state": sorted({state.value for state in query.states})}
    for column, texts in zip(NAMED, (query.users, query.tenants, query.queues, query.names), strict=True):
        lists[column] = sorted({key_text(text) for text in texts})
    values: Values = {f"{column}_{place}": text for column, texts in lists.items() for place, text in enumerate(texts)}
    values |= {f"{column}_all": texts for column, texts in lists.items() if texts}
    rest: Values = {
        "ids": sorted(set(query.ids)) or None,
        "array": query.array,
        "from": query.submitted_from_ms,
        "to": query.submitted_to_ms,
        "after": None if query.after is None else min(query.after, INTEGER_MAX),
    }
    rest = {name: value for name, value in rest.items() if value is not None}
    counts = tuple((column, len(texts)) for column, texts in lists.items())
    return Shape(counts, frozenset(rest), query.newest_first), values | rest


@functools.lru_cache(maxsize=SHAPES_MAX)
def _page_statement(shape: Shape) -> Page:
    """Numbers first: a row is long, and most that are looked at are not on the page."""
    ranges = shape.ranges
    if ranges:
        others = _tests(shape) + _memberships(shape, without=shape.axes)
        parts = [
            _numbers(shape, [JOBS.c[column] == _bind(f"{column}_{place}") for column, place in one] + others)
            for one in ranges
        ]
    else:
        parts = [_numbers(shape, _tests(shape) + _memberships(shape))]
    if len(parts) == 1:
        numbers = parts[0].subquery("numbers")
    else:
        numbers = sa.union_all(*(sa.select(part.subquery().c.id) for part in parts)).subquery("numbers")
    return _ordered(sa.select(JOBS.c.id, JOBS.c.view, JOBS.c.crc).join(numbers, JOBS.c.id == numbers.c.id), shape)


@functools.lru_cache(maxsize=SHAPES_MAX)
def packed(page: Page) -> Page:
    """A page as one row: how many jobs, and a line for each.

    SQLite's driver lets other threads go before every row. Where those are busy, it gets its turn back only after some
    milliseconds, which for a hundred rows adds up to what a person notices.
    """
    rows = page.subquery("page")
    line = sa.cast(rows.c.id, sa.Text) + " " + sa.cast(rows.c.crc, sa.Text) + " " + rows.c.view
    return sa.select(sa.func.count(), sa.func.group_concat(line, "\n"))


def unpack(count: int, text: Any, *, newest_first: bool) -> Iterable[tuple[int, str, int]]:
    """(id, view, crc) of the rows that `packed` put together. Raises JournalError."""
    lines = text.split("\n") if isinstance(text, str) else []
    try:
        rows = [_unpack_line(line) for line in lines]
    except ValueError as error:
        raise JournalError("a job's row was altered or damaged; restore a backup") from error
    if len(rows) != count:
        raise JournalError(f"expected {count} rows of jobs, found {len(rows)}: one is damaged; restore a backup")
    return sorted(rows, reverse=newest_first)


def _unpack_line(line: str) -> tuple[int, str, int]:
    number, crc, view = line.split(" ", 2)
    return int(number), view, int(crc)


@functools.lru_cache(maxsize=SHAPES_MAX)
def _count_statement(shape: Shape) -> Page:
    total = sa.func.count().label("total")
    return sa.select(JOBS.c.state, total).where(*_tests(shape), *_memberships(shape)).group_by(JOBS.c.state)


def _bind(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, unique=False)


def _tests(shape: Shape) -> list[Condition]:
    """All conditions but those on the state and on names."""
    tests: dict[str, Condition] = {
        "ids": JOBS.c.id.in_(sa.bindparam("ids", expanding=True)),
        "array": JOBS.c.array_id == _bind("array"),
        "from": JOBS.c.submit_ms >= _bind("from"),
        "to": JOBS.c.submit_ms <= _bind("to"),
        "after": JOBS.c.id < _bind("after") if shape.newest_first else JOBS.c.id > _bind("after"),
    }
    return [condition for name, condition in tests.items() if name in shape.tests]


def _memberships(shape: Shape, without: Sequence[str] = ()) -> list[Condition]:
    """Conditions on the state and on names."""
    conditions: list[Condition] = []
    for column, count in shape.counts:
        if count == 1 and column not in without:
            conditions.append(JOBS.c[column] == _bind(f"{column}_0"))
        elif count and column not in without:
            conditions.append(JOBS.c[column].in_(sa.bindparam(f"{column}_all", expanding=True)))
    return conditions


def _numbers(shape: Shape, conditions: Sequence[Condition]) -> Page:
    return _ordered(sa.select(JOBS.c.id).where(*conditions), shape)


def _ordered(statement: Page, shape: Shape) -> Page:
    return statement.order_by(JOBS.c.id.desc() if shape.newest_first else JOBS.c.id).limit(_bind("limit"))
