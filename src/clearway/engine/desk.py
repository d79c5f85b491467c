"""The desk of a planner: what a scan is to go by, what it knows, and what it writes down, as arrays.

As with the box, compiled entries take a door to it: to hand over seven arrays costs more than a small scan.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import addresses_of
from clearway.engine.compiled import IS_PLAIN_PYTHON, compiled_opening, floats_at, line_at, table_at

# --- settings: int64[SETTINGS] -----------------------------------------------------------------------------------
SET_NOW: Final = 0
SET_STRICT: Final = 1
SET_DEPTH: Final = 2
SET_BYPASS_MAX: Final = 3
SET_HEADROOM: Final = 4  # milli kept free for protected kinds
SET_PROTECTED: Final = 5  # bit mask of the kinds that may use the headroom
SET_SCAN_MAX: Final = 6
SET_ELASTIC: Final = 7
SET_KEEP: Final = 8  # 1 = what starts stays held for the caller to undo; 0 = the scan itself undoes it at its end
SET_HEEDS: Final = 9  # 1 = somebody who waits may be bypassed no more, or have devices kept by name
SETTINGS: Final = 10

# --- progress: int64[PROGRESS] -----------------------------------------------------------------------------------
AT_STATUS: Final = 0
AT_POSITION: Final = 1  # the next place in the order to look at
AT_STARTED: Final = 2
AT_NODES: Final = 3  # next free place in out_nodes
AT_DEVICES: Final = 4
AT_LOOKED: Final = 5
AT_RESERVING: Final = 6  # reservations that were tried
AT_DUE_MS: Final = 7  # until when the reservations are good, see `scan.foreseen_until_ms`
AT_LISTED: Final = 8  # started jobs that are in the list of running ones; the others are not needed there yet
AT_OUTLASTING: Final = 9  # 1 = a job started that is expected to run when a reservation begins
AT_MOVED: Final = 10  # 1 = with what has started, other reservations would be made now
PROGRESS: Final = 11

STATUS_DONE: Final = 0
STATUS_CUT: Final = 1  # scan_max was reached
STATUS_ROOM: Final = 2  # an output or a table is full: give it more room and go on
STATUS_STRICT: Final = 3  # stopped at the first job that cannot start

GO_ON: Final = -1  # instead of where a scan begins: where it stopped for more room
FRESH: Final = -2  # with jobs that have just come, behind what is reserved and beside what is known

# --- what is known to fail in this scan, by class: int64[MEMO, classes] ------------------------------------------
MEMO_REPLICAS: Final = 0  # so many replicas, or more, do not fit now
MEMO_BESIDE_REPLICAS: Final = 1  # so many, or more, ending at MEMO_BESIDE_END or later, do not fit beside reservations
MEMO_BESIDE_END: Final = 2
MEMO_REASON: Final = 3
MEMO: Final = 4

# --- outputs, one column per started job: int64[OUT, n] ----------------------------------------------------------
OUT_ROW: Final = 0
OUT_POSITION: Final = 1
OUT_NODE: Final = 2
OUT_DEVICE: Final = 3
OUT_REPLICAS: Final = 4
OUT: Final = 5


class Desk(NamedTuple):
    """Where a planner works: what it is to go by, and what a scan writes down. Constants above name the places."""

    settings: NDArray[np.int64]
    memo: NDArray[np.int64]
    progress: NDArray[np.int64]
    out: NDArray[np.int64]
    out_nodes: NDArray[np.int64]
    out_devices: NDArray[np.int64]
    weights: NDArray[np.float64]


DeskDoor = NDArray[np.int64] | Desk
"""As a `Door` to a `Box`: int64[3, arrays]; in plain Python the Desk itself."""


def make_desk_door(desk: Desk) -> DeskDoor:
    """The door to a desk, good as long as somebody keeps the desk."""
    return desk if IS_PLAIN_PYTHON else addresses_of(desk)


def _open_plain_desk(door: Desk) -> Desk:
    return door


@compiled_opening
def _open_compiled_desk(door: NDArray[np.int64]) -> Desk:
    return Desk(
        line_at(door[0, 0], door[2, 0]),  # settings
        table_at(door[0, 1], door[1, 1], door[2, 1]),  # memo
        line_at(door[0, 2], door[2, 2]),  # progress
        table_at(door[0, 3], door[1, 3], door[2, 3]),  # out
        line_at(door[0, 4], door[2, 4]),  # out_nodes
        line_at(door[0, 5], door[2, 5]),  # out_devices
        floats_at(door[0, 6], door[2, 6]),  # weights
    )


open_desk: Any = _open_plain_desk if IS_PLAIN_PYTHON else _open_compiled_desk
"""`open_desk(door) -> Desk`: the arrays behind a door."""
