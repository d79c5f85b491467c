"""The agenda of a stretch: what is known to come, and the log of what was made of it, as arrays.

Whoever drives a kernel over what has happened long ago knows which jobs are submitted when, and how long each will run.
A stretch (`engine.stretch`) is many moments in one compiled call over such an agenda. The decisions do not look at it:
they know of a job what its row says.

A job's *place* is its number in the agenda, in the order of submits.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import addresses_of
from clearway.engine.compiled import IS_PLAIN_PYTHON, compiled_opening, float_table_at, floats_at, line_at, table_at

# --- trip: where the stretch is, int64[TRIP] ------------------------------------------------------------------------
TRIP_STATUS: Final = 0
TRIP_STAGE: Final = 1  # at which it goes on when it is called again
TRIP_ROUND: Final = 2  # plans made in this moment
TRIP_NOW: Final = 3
TRIP_UNTIL: Final = 4  # moments from then on are not part of it
TRIP_NEXT: Final = 5  # place of the next job to come
TRIP_KNOWN: Final = 6  # places up to here are in `comes`
TRIP_FIRST: Final = 7  # place of the first line of `comes`
TRIP_ENDS: Final = 8  # entries of the heap
TRIP_SEQUENCE: Final = 9  # the number that the last start was given
TRIP_FREE: Final = 10  # entries of `free`
TRIP_ROWS: Final = 11  # job rows that were ever used
TRIP_WAITING: Final = 12  # entries of `order`
TRIP_FRESH: Final = 13  # entries of `fresh`
TRIP_TOLD: Final = 14  # entries of `untold`: jobs started of which it is not yet told that they run
TRIP_STARTS: Final = 15  # entries of `starts`
TRIP_ENDED: Final = 16  # entries of `ended`
TRIP_WORDS: Final = 17  # entries of `words`
TRIP_EVENTS: Final = 18  # that were told
TRIP_MOMENTS: Final = 19
TRIP_PLANS: Final = 20
TRIP_ACCEPTED: Final = 21  # plans with moves
TRIP_LAST: Final = 22  # entry of `starts` with which the last of these begins
TRIP_PARENT: Final = 23  # moments and accepted plans of the stretch before it
TRIP_BEGIN: Final = 24  # as the scan was called
TRIP_COUNT: Final = 25  # of the jobs that it looks at
TRIP_GREW: Final = 26  # what the state and the planner keep under these names
TRIP_SHRANK: Final = 27
TRIP_STRICT_STOP: Final = 28
TRIP_SCANNED: Final = 29
TRIP_HAS_SCANNED: Final = 30
TRIP_HAS_MOVED: Final = 31
TRIP_DUE_MS: Final = 32
TRIP_LOOKED: Final = 33  # 1 = the whole order was scanned at least once
TRIP_AGAIN: Final = 34  # 1 = what was just accepted is to be looked at once more
TRIP_PROTECTION_MS: Final = 35
TRIP_NODES: Final = 36  # of the cluster
TRIP_DEVICES: Final = 37
TRIP_BY_PRIORITY: Final = 38
TRIP_VERDICT: Final = 39  # of the checker, where it refused a start
TRIP_CULPRIT: Final = 40  # the job row of which it is said
TRIP_LAST_PARENT: Final = 41  # TRIP_PARENT of the last plan that was accepted
TRIP: Final = 42

STAGE_MOMENT: Final = 0
STAGE_LOOK: Final = 1
STAGE_SCAN: Final = 2
STAGE_ACCEPT: Final = 3

OVER: Final = 0  # the next moment is not part of the stretch
WANTS_ROOM: Final = 1  # the scan wants more room for the job TRIP_CULPRIT
WANTS_LINKS: Final = 2  # what is accepted wants more room in the box
WANTS_LOG: Final = 3  # or in the log
RESTLESS: Final = 4  # the kernel wants to decide again before time goes on
REFUSED: Final = 5  # the checker refused a start
ASTRAY: Final = 6  # a job that starts was not among the waiting

# --- comes: int64[jobs, COMES], a line for each job that is about to come ---------------------------------------------
COME_AT_MS: Final = 0
COME_JOB: Final = 1
COME_FORM: Final = 2  # row of `forms`
COME_CLASS: Final = 3
COME_REPLICAS: Final = 4
COME_PRIORITY: Final = 5
COME_QUEUE: Final = 6
COME_TENANT: Final = 7
COME_QUEUE_PRIORITY: Final = 8
COME_PLANNED_MS: Final = 9
COME_LIMIT_MS: Final = 10
COMES: Final = 11

# --- the log, one line for each --------------------------------------------------------------------------------------
START_PLACE: Final = 0
START_AT_MS: Final = 1
START_ROW: Final = 2
START_REPLICAS: Final = 3
START_WORD: Final = 4  # where its words begin
STARTS: Final = 5

ENDED_PLACE: Final = 0
ENDED_AT_MS: Final = 1
ENDED_ROW: Final = 2
ENDED_START_MS: Final = 3
ENDED_TENANT: Final = 4
ENDED_MILLI: Final = 5
ENDED: Final = 6

HEAD_WORDS: Final = 7
"""Of a start in `words`: 0, time, job, generation, 0, 0, replicas. Its nodes follow, and its devices."""


class AgendaTables(NamedTuple):
    """The arrays. Constants above name the places.

    spans_ms, row_of: int64[places], how long a job will run, and its row (NONE = it has none). place_of: int64[job
    rows]. ends: see `endings`. free: rows that may be given again, the last first. order, sort: as `PendingOrder`.
    fresh: rows that have just come, in order. untold: see TRIP_TOLD. words: all starts one behind the other.
    by_node, by_device: the ledger of the checker. keys: float64[jobs], the policy's key of each line of `comes`.
    """

    trip: NDArray[np.int64]
    comes: NDArray[np.int64]
    forms: NDArray[np.int64]
    spans_ms: NDArray[np.int64]
    row_of: NDArray[np.int64]
    place_of: NDArray[np.int64]
    ends: NDArray[np.int64]
    free: NDArray[np.int64]
    order: NDArray[np.int64]
    fresh: NDArray[np.int64]
    untold: NDArray[np.int64]
    starts: NDArray[np.int64]
    ended: NDArray[np.int64]
    words: NDArray[np.int64]
    by_node: NDArray[np.int64]
    by_device: NDArray[np.int64]
    sort: NDArray[np.float64]
    keys: NDArray[np.float64]


AgendaDoor = NDArray[np.int64] | AgendaTables
"""As a `Door` to a `Box`."""


def make_agenda_door(tables: AgendaTables) -> AgendaDoor:
    """The door to an agenda, good as long as somebody keeps the tables."""
    return tables if IS_PLAIN_PYTHON else addresses_of(tables)


def _open_plain_agenda(door: AgendaTables) -> AgendaTables:
    return door


@compiled_opening
def _line_behind(door: NDArray[np.int64], index: int) -> Any:
    return line_at(door[0, index], door[2, index])


@compiled_opening
def _table_behind(door: NDArray[np.int64], index: int) -> Any:
    return table_at(door[0, index], door[1, index], door[2, index])


@compiled_opening
def _open_compiled_agenda(door: NDArray[np.int64]) -> AgendaTables:
    return AgendaTables(
        _line_behind(door, 0),  # trip
        _table_behind(door, 1),  # comes
        _table_behind(door, 2),  # forms
        _line_behind(door, 3),  # spans_ms
        _line_behind(door, 4),  # row_of
        _line_behind(door, 5),  # place_of
        _table_behind(door, 6),  # ends
        _line_behind(door, 7),  # free
        _line_behind(door, 8),  # order
        _line_behind(door, 9),  # fresh
        _line_behind(door, 10),  # untold
        _table_behind(door, 11),  # starts
        _table_behind(door, 12),  # ended
        _line_behind(door, 13),  # words
        _table_behind(door, 14),  # by_node
        _table_behind(door, 15),  # by_device
        float_table_at(door[0, 16], door[1, 16], door[2, 16]),  # sort
        floats_at(door[0, 17], door[2, 17]),  # keys
    )


open_agenda: Any = _open_plain_agenda if IS_PLAIN_PYTHON else _open_compiled_agenda
"""`open_agenda(door) -> AgendaTables`: the arrays behind a door."""
