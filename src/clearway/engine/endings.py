"""When jobs that run will end, for whoever knows it: a heap of moments as a table, for compiled code and for Python.

An entry is (time, sequence, place): the earliest time comes first, and at one time the lowest sequence.
"""

from typing import Final

import numpy as np

from clearway.engine.compiled import compiled, compiled_inside
from clearway.engine.tables import Table, grow_table, make_table
from clearway.model.units import FOREVER_MS

END_MS: Final = 0
END_SEQUENCE: Final = 1
END_PLACE: Final = 2
END_COLUMNS: Final = 3


@compiled_inside
def push_end(heap: np.ndarray, count: int, at_ms: int, sequence: int, place: int) -> None:
    """Add an entry to a heap of so many, which has room for it."""
    index = count
    while index > 0:
        above = (index - 1) >> 1
        if heap[END_MS, above] < at_ms or (heap[END_MS, above] == at_ms and heap[END_SEQUENCE, above] < sequence):
            break
        for column in range(END_COLUMNS):
            heap[column, index] = heap[column, above]
        index = above
    heap[END_MS, index] = at_ms
    heap[END_SEQUENCE, index] = sequence
    heap[END_PLACE, index] = place


@compiled_inside
def pop_end(heap: np.ndarray, count: int) -> None:
    """Take the first entry out of a heap of so many."""
    last = count - 1
    at_ms, sequence = heap[END_MS, last], heap[END_SEQUENCE, last]
    place = heap[END_PLACE, last]
    index = 0
    while 2 * index + 1 < last:
        below = 2 * index + 1
        if below + 1 < last and (
            heap[END_MS, below + 1] < heap[END_MS, below]
            or (
                heap[END_MS, below + 1] == heap[END_MS, below]
                and heap[END_SEQUENCE, below + 1] < heap[END_SEQUENCE, below]
            )
        ):
            below += 1
        if at_ms < heap[END_MS, below] or (at_ms == heap[END_MS, below] and sequence < heap[END_SEQUENCE, below]):
            break
        for column in range(END_COLUMNS):
            heap[column, index] = heap[column, below]
        index = below
    heap[END_MS, index] = at_ms
    heap[END_SEQUENCE, index] = sequence
    heap[END_PLACE, index] = place


@compiled
def push_end_entry(heap: np.ndarray, count: int, at_ms: int, sequence: int, place: int) -> None:
    """`push_end`, called from Python."""
    push_end(heap, count, at_ms, sequence, place)


@compiled
def pop_end_entry(heap: np.ndarray, count: int) -> None:
    """`pop_end`, called from Python."""
    pop_end(heap, count)


class Endings:
    """The heap. table: int64[END_COLUMNS, room], of which `count` entries are in use."""

    __slots__ = ("count", "table")

    def __init__(self) -> None:
        self.table: Table = make_table(END_COLUMNS, 64)
        self.count = 0

    def make_room(self, more: int) -> None:
        """Make room for so many more entries."""
        self.table = grow_table(self.table, self.count + more)

    def push(self, at_ms: int, sequence: int, place: int) -> None:
        """Add an entry."""
        self.make_room(1)
        push_end_entry(self.table, self.count, at_ms, sequence, place)
        self.count += 1

    def pop(self) -> int:
        """Take out the first entry; returns its place."""
        place = int(self.table[END_PLACE, 0])
        pop_end_entry(self.table, self.count)
        self.count -= 1
        return place

    def first_ms(self) -> int:
        """The earliest time; FOREVER_MS where there is none."""
        return int(self.table[END_MS, 0]) if self.count else FOREVER_MS
