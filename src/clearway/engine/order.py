"""The waiting jobs in the order in which they are looked at, kept sorted as jobs come and go.

A job's place is decided by five numbers, each smaller first: minus its queue's priority, minus its own priority, the
policy's key, its submit time, its id. Inserting is a binary search and a shift of one contiguous line.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.compiled import compiled, compiled_inline, compiled_inside
from clearway.engine.tables import grow_table

FloatTable = NDArray[np.float64]

SORT_QUEUE: Final = 0
SORT_PRIORITY: Final = 1
SORT_KEY: Final = 2
SORT_SUBMIT: Final = 3
SORT_ID: Final = 4
SORT_COLUMNS: Final = 5

SORT_INSTEAD: Final = 256
"""So many new jobs at once are sorted in with all others: to insert one by one would move half the line for each."""


@compiled_inline
def comes_before(sort: FloatTable, one: int, other: int) -> bool:
    """Whether job row `one` is looked at before row `other`."""
    for column in range(SORT_COLUMNS):
        if sort[column, one] != sort[column, other]:
            return sort[column, one] < sort[column, other]
    return False


@compiled_inside
def place_in(order: np.ndarray, count: int, sort: FloatTable, row: int) -> int:
    """The first place in order[:count] whose job does not come before `row`."""
    low = 0
    high = count
    if count > 0 and comes_before(sort, order[count - 1], row):
        return count
    while low < high:
        middle = (low + high) // 2
        if comes_before(sort, order[middle], row):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def place_entry(order: np.ndarray, count: int, sort: FloatTable, row: int) -> int:
    """`place_in`, called from Python."""
    return place_in(order, count, sort, row)


@compiled_inside
def insert_inside(order: np.ndarray, count: int, sort: FloatTable, row: int) -> int:
    """Insert `row` into order[:count], which has room for one more; returns its place."""
    place = place_in(order, count, sort, row)
    for index in range(count, place, -1):
        order[index] = order[index - 1]
    order[place] = row
    return place


@compiled
def insert_row(order: np.ndarray, count: int, sort: FloatTable, row: int) -> int:
    """`insert_inside`, called from Python."""
    return insert_inside(order, count, sort, row)


@compiled_inside
def remove_from(order: np.ndarray, count: int, sort: FloatTable, row: int) -> int:
    """Remove `row` from order[:count]; returns the place that it had, or −1 if it was not there."""
    place = 0 if count == 1 or order[0] == row else place_in(order, count, sort, row)
    if place >= count or order[place] != row:
        return -1
    for index in range(place, count - 1):
        order[index] = order[index + 1]
    return place


@compiled
def remove_row(order: np.ndarray, count: int, sort: FloatTable, row: int) -> int:
    """`remove_from`, called from Python."""
    return remove_from(order, count, sort, row)


class PendingOrder:
    """Sorted rows of waiting jobs: `rows[:count]`, with sort columns `sort[:, row]` by job row."""

    __slots__ = ("count", "rows", "sort")

    def __init__(self) -> None:
        self.rows = np.zeros(64, dtype=np.int64)
        self.count = 0
        self.sort: FloatTable = np.zeros((SORT_COLUMNS, 64), dtype=np.float64)

    def grow_sort(self, job_rows: int) -> None:
        """Make room for sort columns of `job_rows` job rows."""
        have = self.sort.shape[1]
        if job_rows > have:
            grown = np.zeros((SORT_COLUMNS, max(job_rows, 2 * have)), dtype=np.float64)
            grown[:, :have] = self.sort
            self.sort = grown

    def make_room(self, more: int) -> None:
        """Make room for so many more rows."""
        if self.count + more > len(self.rows):
            self.rows = grow_table(self.rows[None, :], self.count + more)[0]

    def insert(self, row: int) -> int:
        """Insert a row whose sort columns are set; returns its place."""
        if self.count == 0:
            self.rows[0] = row
            self.count = 1
            return 0
        if self.count == len(self.rows):
            self.rows = grow_table(self.rows[None, :], 2 * len(self.rows))[0]
        place = insert_row(self.rows, self.count, self.sort, row)
        self.count += 1
        return place

    def insert_all(self, rows: list[int]) -> int:
        """Insert several; returns the first of their places."""
        if len(rows) == 1:
            return self.insert(rows[0])
        if len(rows) < SORT_INSTEAD:
            return min(self.insert(row) for row in rows)
        before, self.count = self.count, self.count + len(rows)
        if self.count > len(self.rows):
            self.rows = grow_table(self.rows[None, :], self.count)[0]
        self.rows[before : self.count] = rows
        first = min(rows, key=lambda row: tuple(self.sort[:, row].tolist()))
        self.sort_all()
        return self.place(first)

    def place(self, row: int) -> int:
        """The place of a row in the order."""
        return place_entry(self.rows, self.count, self.sort, row)

    def remove(self, row: int) -> int:
        """Remove a row by its sort columns; returns the place that it had. A row that is not there is our bug."""
        if self.count == 1 and self.rows[0] == row:
            self.count = 0
            return 0
        place = remove_row(self.rows, self.count, self.sort, row)
        assert place >= 0, f"job row {row} is not among the waiting"
        self.count -= 1
        return place

    def remove_many(self, rows: NDArray[np.int64]) -> None:
        """Remove all of `rows` that are there, in one pass: one by one, each would shift all that come after it."""
        waiting = self.rows[: self.count]
        kept = waiting[~np.isin(waiting, rows)]
        self.rows[: len(kept)] = kept
        self.count = len(kept)

    def set_keys(self, rows: NDArray[np.int64], keys: NDArray[np.float64]) -> None:
        """Give the rows new policy keys. Only for rows that are not inserted, or before `sort_all`."""
        self.sort[SORT_KEY, rows] = keys

    def sort_all(self) -> None:
        """Sort all waiting rows anew, after keys changed."""
        rows = self.rows[: self.count]
        order = np.lexsort(self.sort[::-1, rows])
        self.rows[: self.count] = rows[order]

    def waiting(self) -> NDArray[np.int64]:
        """int64[count]: rows of waiting jobs, in order (a view)."""
        return self.rows[: self.count]
