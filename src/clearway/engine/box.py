"""The tables of the state box as one tuple of arrays, which compiled code takes as a single argument.

A compiled *entry* is called from Python with a *door* to them, one small array of addresses (`entry(row, state.door)`),
and opens it (`box = open_box(door)`): handing over twenty arrays costs more than most of what is done with them. A door
is good as long as the box that it was made of is the state's.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearway.engine.compiled import IS_PLAIN_PYTHON, compiled_opening, line_at, table_at
from clearway.engine.tables import Table

# --- meta: counters and limits, int64[META_SIZE] ---------------------------------------------------------------------
META_RUNNING: Final = 0  # entries of `running` in use, gaps included
META_LINK_FREE: Final = 1  # head of the list of unused links; NONE = none left
META_LINKS_LEFT: Final = 2  # unused links
META_RESERVATIONS: Final = 3  # rows of the reservation tables in use
META_POOLS: Final = 4  # pools in use (rows of `pools` beyond are spare)
META_NODES: Final = 5
META_MODELS: Final = 6  # device models known
META_MANY_POOLS: Final = 7  # 1 = some node has several pools
META_TYPICAL: Final = 8  # entries of `typical` in use
META_LEVELS: Final = 9  # bit mask of topology levels at which some domain holds two nodes
META_NODE_ASKED: Final = 10  # 1 = some class asks for CPUs or memory; else nobody looks at what `res_*` has of them
META_LISTED: Final = 11  # so many entries of `running` from its beginning are sorted; those behind are new
META_GAPS: Final = 12  # sorted entries whose job has left
META_BEGIN_IN: Final = 13  # a node in whose domains a crowd that lies nowhere yet must begin; NONE = anywhere
META_FILLED: Final = 14  # entries of WORK_LIST in use
META_SIZE: Final = 15

# --- typical: int64[2, n], the classes that are expected and how often, for the fragmentation score ------------------
TYPICAL_CLASS: Final = 0
TYPICAL_PPM: Final = 1

# --- running: int64[RUNNING_COLUMNS, capacity], sorted by (end, job row) once `settle_running` was called -------------
RUNNING_END: Final = 0
RUNNING_ROW: Final = 1  # ~row (negative) = the job has left; the entry is a gap
RUNNING_SPARE_END: Final = 2  # work space for sorting
RUNNING_SPARE_ROW: Final = 3
RUNNING_COLUMNS: Final = 4

# --- links: footprints as linked lists; one link = `count` replicas on a pool --------------------------------------
LINK_POOL: Final = 0
LINK_COUNT: Final = 1
LINK_NEXT: Final = 2
LINK_COLUMNS: Final = 3

# --- reservations: int64[RES_COLUMNS, depth] in the order in which they were made -----------------------------------
RES_START: Final = 0
RES_END: Final = 1
RES_JOB: Final = 2
RES_LINK: Final = 3  # head of its footprint
RES_TOTAL: Final = 4  # free device milli at its start, after all that is reserved then
RES_BY_START: Final = 5  # i-th reservation by start time
RES_BY_END: Final = 6
RES_BESIDE: Final = 7  # device milli that were free when it was made and stay free: no more are there beside it
RES_COLUMNS: Final = 8

# --- work space, int64[WORK_ROWS, max(pools, nodes)] --------------------------------------------------------------
WORK_CAPACITY: Final = 0
WORK_DOMAIN: Final = 1
WORK_POOL: Final = 2
WORK_CPU: Final = 3
WORK_MEM: Final = 4
WORK_COUNT: Final = 5  # of pools in WORK_LIST
WORK_LIST: Final = 6  # pools that have capacity at all, in order; META_FILLED of them
WORK_ROWS: Final = 7


class Box(NamedTuple):
    """All tables. Columns are defined in `tables` and above.

    eligible: int64[label requirements, nodes], 1 = the node carries the labels. totals: see `place`.
    job_link: int64[job rows], head of the footprint of a job that holds devices.
    rules, tallies, domains, counts, liked: see `crowds`.
    res_pool: int64[pools, depth], what is free on a pool at the start of each reservation: a pool's line is short, and
    only the lines of pools that matter are looked at. res_cpu, res_mem: int64[depth, nodes], the same of nodes.
    """

    nodes: Table
    pools: Table
    devices: Table
    classes: Table
    jobs: Table
    tenants: Table
    queues: Table
    eligible: Table
    totals: NDArray[np.int64]
    meta: NDArray[np.int64]
    running: Table
    links: Table
    job_link: NDArray[np.int64]
    res: Table
    res_pool: Table
    res_cpu: Table
    res_mem: Table
    work: Table
    typical: Table
    rules: Table
    tallies: Table
    domains: Table
    counts: Table
    liked: Table


Door = NDArray[np.int64] | Box
"""int64[3, tables]: address, rows and columns of each table, in the order of `Box`; in plain Python the Box itself."""


def make_door(box: Box) -> Door:
    """The door to a box."""
    assert all(table.dtype == np.int64 for table in box)
    return box if IS_PLAIN_PYTHON else addresses_of(box)


def addresses_of(tables: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """int64[3, tables]: address, rows and columns of each. Somebody must keep them alive."""
    facts = []
    for table in tables:
        assert table.flags.c_contiguous
        facts.append((table.__array_interface__["data"][0], *(1, *table.shape)[-2:]))
    return np.array(facts, dtype=np.int64).T.copy()


def _open_plain(door: Box) -> Box:
    return door


@compiled_opening
def _table(door: NDArray[np.int64], index: int) -> Any:
    return table_at(door[0, index], door[1, index], door[2, index])


@compiled_opening
def _line(door: NDArray[np.int64], index: int) -> Any:
    return line_at(door[0, index], door[2, index])


@compiled_opening
def _open_compiled(door: NDArray[np.int64]) -> Box:
    return Box(
        _table(door, 0),  # nodes
        _table(door, 1),  # pools
        _table(door, 2),  # devices
        _table(door, 3),  # classes
        _table(door, 4),  # jobs
        _table(door, 5),  # tenants
        _table(door, 6),  # queues
        _table(door, 7),  # eligible
        _line(door, 8),  # totals
        _line(door, 9),  # meta
        _table(door, 10),  # running
        _table(door, 11),  # links
        _line(door, 12),  # job_link
        _table(door, 13),  # res
        _table(door, 14),  # res_pool
        _table(door, 15),  # res_cpu
        _table(door, 16),  # res_mem
        _table(door, 17),  # work
        _table(door, 18),  # typical
        _table(door, 19),  # rules
        _table(door, 20),  # tallies
        _table(door, 21),  # domains
        _table(door, 22),  # counts
        _table(door, 23),  # liked
    )


open_box: Any = _open_plain if IS_PLAIN_PYTHON else _open_compiled
"""`open_box(door) -> Box`: the tables behind a door."""
