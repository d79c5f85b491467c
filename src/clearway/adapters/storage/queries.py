"""SQL for a JobQuery.

A page of the newest jobs must not depend on how many jobs there are. So a query over several states and users, tenants
or queues is put together from ranges of indexes, one for each pair, of which each gives its newest `limit` numbers:
nothing is sorted but those.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from clearway.adapters.storage.rows import INTEGER_MAX, key_text
from clearway.adapters.storage.tables import JOBS
from clearway.ports.storage import JOBS_PER_PAGE_MAX, JobQuery

RANGES_MAX: Final = 40
"""Most ranges that one query is put together from; above it the database chooses its way."""

_COLUMNS: Final = (JOBS.c.id, JOBS.c.view, JOBS.c.crc)

Condition = sa.ColumnElement[bool]
Page = sa.Select[*tuple[Any, ...]]


def page_statement(query: JobQuery) -> Page:
    """(id, view, crc) of the page's jobs, in its order. Of `query.ids` at most JOBS_PER_PAGE_MAX are regarded."""
    axes = _axes(query)
    rest = _conditions(query)
    ranges = list(itertools.product(*(values for _, values in axes))) if axes else [()]
    if len(ranges) == 1 or len(ranges) > RANGES_MAX or query.ids:
        wide = [column.in_(values) if len(values) > 1 else column == values[0] for column, values in axes]
        return _ordered(sa.select(*_COLUMNS).where(*wide, *rest), query)
    columns = [column for column, _ in axes]
    parts = [_range_numbers(columns, values, rest, query) for values in ranges]
    numbers = sa.union_all(*parts).subquery("numbers")
    return _ordered(sa.select(*_COLUMNS).join(numbers, JOBS.c.id == numbers.c.id), query)


def count_statement(query: JobQuery) -> Page:
    """(state, how many)."""
    conditions = [column.in_(values) for column, values in _axes(query)]
    total = sa.func.count().label("total")
    return sa.select(JOBS.c.state, total).where(*conditions, *_filters(query)).group_by(JOBS.c.state)


def _axes(query: JobQuery) -> list[tuple[sa.Column[Any], list[Any]]]:
    """The columns whose values choose ranges of indexes: the state, and the narrowest of the names."""
    axes: list[tuple[sa.Column[Any], list[Any]]] = []
    if query.states:
        axes.append((JOBS.c.state, sorted({state.value for state in query.states})))
    for column, texts in _named(query)[:1]:
        axes.append((column, _keys(texts)))
    return axes


def _named(query: JobQuery) -> list[tuple[sa.Column[Any], Sequence[str]]]:
    """Conditions on names, the one that most likely leaves the fewest jobs first."""
    named = (
        (JOBS.c.user, query.users),
        (JOBS.c.tenant, query.tenants),
        (JOBS.c.queue, query.queues),
        (JOBS.c.name, query.names),
    )
    return [(column, texts) for column, texts in named if texts]


def _keys(texts: Sequence[str]) -> list[str]:
    return sorted({key_text(text) for text in texts})


def _filters(query: JobQuery) -> list[Condition]:
    """All conditions but those of `_axes`, the page and its limit."""
    conditions: list[Condition] = [column.in_(_keys(texts)) for column, texts in _named(query)[1:]]
    if query.ids:
        conditions.append(JOBS.c.id.in_(sorted(set(query.ids))))
    if query.array is not None:
        conditions.append(JOBS.c.array_id == query.array)
    if query.submitted_from_ms is not None:
        conditions.append(JOBS.c.submit_ms >= query.submitted_from_ms)
    if query.submitted_to_ms is not None:
        conditions.append(JOBS.c.submit_ms <= query.submitted_to_ms)
    return conditions


def _conditions(query: JobQuery) -> list[Condition]:
    conditions = _filters(query)
    if query.after is not None:
        after = min(query.after, INTEGER_MAX)
        conditions.append(JOBS.c.id < after if query.newest_first else JOBS.c.id > after)
    return conditions


def _ordered(statement: Page, query: JobQuery) -> Page:
    order = JOBS.c.id.desc() if query.newest_first else JOBS.c.id
    return statement.order_by(order).limit(min(query.limit, JOBS_PER_PAGE_MAX))


def _range_numbers(
    columns: Sequence[sa.Column[Any]], values: Sequence[Any], rest: list[Condition], query: JobQuery
) -> Page:
    here = [column == value for column, value in zip(columns, values, strict=True)]
    part = _ordered(sa.select(JOBS.c.id).where(*here, *rest), query)
    return sa.select(part.subquery().c.id)
