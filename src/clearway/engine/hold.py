"""A job takes its devices and gives them back: devices, quota, footprint and expected end together, in one place.

`hold` and `let_go` are exact inverses on every table that holds state of the cluster.
"""

import numpy as np

from clearway.engine.box import (
    LINK_COUNT,
    LINK_NEXT,
    LINK_POOL,
    META_GAPS,
    META_LINK_FREE,
    META_LINKS_LEFT,
    META_LISTED,
    META_RUNNING,
    RUNNING_END,
    RUNNING_ROW,
    RUNNING_SPARE_END,
    RUNNING_SPARE_ROW,
    Box,
    Door,
    open_box,
)
from clearway.engine.compiled import compiled, compiled_inline, compiled_inside
from clearway.engine.order import remove_from
from clearway.engine.place import release, release_footprint, take
from clearway.engine.quota import queue_take, tenant_take
from clearway.engine.tables import (
    CLASS_DEVICES,
    CLASS_SHARE,
    DEVICE_POOL,
    JOB_ATTAINED,
    JOB_CLASS,
    JOB_END_MS,
    JOB_GENERATION,
    JOB_HELD,
    JOB_PHASE,
    JOB_PLANNED_MS,
    JOB_PROTECTED_MS,
    JOB_QUEUE,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_SAVED_MS,
    JOB_START_MS,
    JOB_TENANT,
    NODE_POOL_BEGIN,
    NONE,
    PHASE_STARTING,
)
from clearway.model.units import FOREVER_MS

STARTED = 0
START_NO_ROOM = 1  # for its footprint, or in the list of running jobs
START_NOT_WAITING = 2  # it is not in the order
UNSORTED_MAX = 128
"""Entries of the list of running jobs that may wait to be sorted in: so many share one pass over the whole list, and
are few enough to be searched one by one."""
GAPS_PART = 4
"""One entry of so many may be a gap: to close them moves all that come after, and who walks passes over them."""


@compiled_inline
def new_link(box: Box, pool: int, count: int, next_link: int) -> int:
    """A link from the list of unused ones. The caller has made sure that one is left."""
    link = box.meta[META_LINK_FREE]
    box.meta[META_LINK_FREE] = box.links[LINK_NEXT, link]
    box.meta[META_LINKS_LEFT] -= 1
    box.links[LINK_POOL, link] = pool
    box.links[LINK_COUNT, link] = count
    box.links[LINK_NEXT, link] = next_link
    return link


@compiled_inside
def drop_links(box: Box, head: int) -> None:
    """Put a whole footprint back on the list of unused links."""
    while head != NONE:
        after = box.links[LINK_NEXT, head]
        box.links[LINK_NEXT, head] = box.meta[META_LINK_FREE]
        box.meta[META_LINK_FREE] = head
        box.meta[META_LINKS_LEFT] += 1
        head = after


@compiled_inside
def make_footprint(box: Box, cls: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> int:
    """Links that say how many replicas lie on which pool, for an allocation."""
    needed = box.classes[CLASS_DEVICES, cls]
    head = NONE
    for replica in range(len(at_nodes)):
        if needed > 0:
            pool = box.devices[DEVICE_POOL, at_devices[replica * needed]]
        else:
            pool = box.nodes[NODE_POOL_BEGIN, at_nodes[replica]]
        if head != NONE and box.links[LINK_POOL, head] == pool:
            box.links[LINK_COUNT, head] += 1
        else:
            head = new_link(box, pool, 1, head)
    return head


@compiled_inline
def row_at(box: Box, index: int) -> int:
    """The job row of an entry of the list of running jobs, a gap or not."""
    row = box.running[RUNNING_ROW, index]
    return row if row >= 0 else ~row


@compiled_inline
def stands_before(box: Box, index: int, end_ms: int, row: int) -> bool:
    """Whether an entry of the list of running jobs comes before (end, row)."""
    end = box.running[RUNNING_END, index]
    return end < end_ms or (end == end_ms and row_at(box, index) < row)


@compiled_inside
def add_running(box: Box, end_ms: int, row: int) -> None:
    """Put a job at the end of the list of running ones; where it belongs is worked out when somebody asks."""
    if box.meta[META_RUNNING] - box.meta[META_LISTED] >= UNSORTED_MAX:
        settle_running(box)
    if box.meta[META_RUNNING] == box.running.shape[1]:
        settle_running(box)
        drop_gaps(box)
    index = box.meta[META_RUNNING]
    box.running[RUNNING_END, index] = end_ms
    box.running[RUNNING_ROW, index] = row
    box.meta[META_RUNNING] += 1


@compiled_inside
def remove_running(box: Box, end_ms: int, row: int) -> None:
    """Take a job out of the list of running ones. Among the sorted ones it leaves a gap: closing it would move all
    that come after it."""
    for index in range(box.meta[META_RUNNING] - 1, box.meta[META_LISTED] - 1, -1):
        if box.running[RUNNING_ROW, index] == row:
            box.meta[META_RUNNING] -= 1
            box.running[RUNNING_END, index] = box.running[RUNNING_END, box.meta[META_RUNNING]]
            box.running[RUNNING_ROW, index] = box.running[RUNNING_ROW, box.meta[META_RUNNING]]
            return
    low = 0
    high = box.meta[META_LISTED]
    while low < high:
        middle = (low + high) // 2
        if stands_before(box, middle, end_ms, row):
            low = middle + 1
        else:
            high = middle
    while box.running[RUNNING_ROW, low] != row:  # gaps that an earlier job of the same row and end left
        low += 1
    box.running[RUNNING_ROW, low] = ~row
    box.meta[META_GAPS] += 1


@compiled_inside
def settle_running(box: Box) -> None:
    """Sort the list of running jobs by (end, row). Gaps stay where they are until there are many.

    From the end on, so that only what comes after the new ones moves: most new jobs are expected to end late.
    """
    if box.meta[META_GAPS] * GAPS_PART > box.meta[META_LISTED]:
        drop_gaps(box)
    old = box.meta[META_LISTED] - 1
    new = box.meta[META_RUNNING] - box.meta[META_LISTED] - 1
    sort_new(box, old + 1, box.meta[META_RUNNING])
    for index in range(new + 1):
        box.running[RUNNING_SPARE_END, index] = box.running[RUNNING_END, old + 1 + index]
        box.running[RUNNING_SPARE_ROW, index] = box.running[RUNNING_ROW, old + 1 + index]
    while new >= 0:
        end_ms = box.running[RUNNING_SPARE_END, new]
        row = box.running[RUNNING_SPARE_ROW, new]
        if old >= 0 and not stands_before(box, old, end_ms, row):
            end_ms = box.running[RUNNING_END, old]
            row = box.running[RUNNING_ROW, old]
            old -= 1
            place = old + new + 2
        else:
            place = old + new + 1
            new -= 1
        box.running[RUNNING_END, place] = end_ms
        box.running[RUNNING_ROW, place] = row
    box.meta[META_LISTED] = box.meta[META_RUNNING]


@compiled_inside
def drop_gaps(box: Box) -> None:
    """Close the gaps of the list of running jobs; those that are not sorted yet stay behind."""
    kept = 0
    listed = 0
    for index in range(box.meta[META_RUNNING]):
        if box.running[RUNNING_ROW, index] >= 0:
            box.running[RUNNING_END, kept] = box.running[RUNNING_END, index]
            box.running[RUNNING_ROW, kept] = box.running[RUNNING_ROW, index]
            kept += 1
            if index < box.meta[META_LISTED]:
                listed = kept
    box.meta[META_RUNNING] = kept
    box.meta[META_LISTED] = listed
    box.meta[META_GAPS] = 0


@compiled_inline
def after_gaps(box: Box, index: int) -> int:
    """The first place from `index` on, in the list of running jobs, that is no gap; its end where there is none."""
    while index < box.meta[META_RUNNING] and box.running[RUNNING_ROW, index] < 0:
        index += 1
    return index


@compiled_inside
def sort_new(box: Box, begin: int, end: int) -> None:
    """Sort entries of the list of running jobs among themselves, by insertion: they are few."""
    for index in range(begin + 1, end):
        end_ms = box.running[RUNNING_END, index]
        row = box.running[RUNNING_ROW, index]
        place = index
        while place > begin and not stands_before(box, place - 1, end_ms, row):
            box.running[RUNNING_END, place] = box.running[RUNNING_END, place - 1]
            box.running[RUNNING_ROW, place] = box.running[RUNNING_ROW, place - 1]
            place -= 1
        box.running[RUNNING_END, place] = end_ms
        box.running[RUNNING_ROW, place] = row


@compiled
def settle_running_entry(door: Door) -> None:
    """Sort the list of running jobs and close its gaps, called from Python as `settle_running_entry(door)`."""
    box = open_box(door)
    settle_running(box)
    drop_gaps(box)


@compiled_inline
def class_milli(box: Box, cls: int) -> int:
    """Thousandths of devices of one replica."""
    return box.classes[CLASS_DEVICES, cls] * box.classes[CLASS_SHARE, cls]


@compiled_inline
def planned_end(box: Box, row: int, start_ms: int, replicas: int) -> int:
    """When a job started now on so many replicas is expected to end; linear in replicas, at least 1 ms after."""
    left = box.jobs[JOB_PLANNED_MS, row]
    if left >= FOREVER_MS:
        return FOREVER_MS
    left = max(left - box.jobs[JOB_SAVED_MS, row], 1)
    asked = box.jobs[JOB_REPLICAS, row]
    if replicas != asked:
        left = (left * asked + replicas - 1) // replicas
    return start_ms + left


@compiled_inside
def hold_unlisted(box: Box, row: int, start_ms: int, end_ms: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """`hold_until` without a place in the list of running jobs: to find one costs most where many run."""
    cls = box.jobs[JOB_CLASS, row]
    replicas = len(at_nodes)
    take(box, cls, row, at_nodes, at_devices)
    milli = replicas * class_milli(box, cls)
    tenant_take(box.tenants, box.jobs[JOB_TENANT, row], milli)
    queue_take(box.queues, box.jobs[JOB_QUEUE, row], milli, 1)
    box.job_link[row] = make_footprint(box, cls, at_nodes, at_devices)
    box.jobs[JOB_HELD, row] = replicas
    box.jobs[JOB_START_MS, row] = start_ms
    box.jobs[JOB_END_MS, row] = end_ms


@compiled_inside
def hold_until(box: Box, row: int, start_ms: int, end_ms: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """Job `row` holds the allocation since `start_ms`, and is expected to leave it at `end_ms`."""
    hold_unlisted(box, row, start_ms, end_ms, at_nodes, at_devices)
    add_running(box, end_ms, row)


@compiled_inside
def hold(box: Box, row: int, start_ms: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """Job `row` holds the allocation from `start_ms` on, for the run time that planning assumes."""
    hold_until(box, row, start_ms, planned_end(box, row, start_ms, len(at_nodes)), at_nodes, at_devices)


@compiled_inside
def let_go(box: Box, row: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """The inverse of `hold`."""
    remove_running(box, box.jobs[JOB_END_MS, row], row)
    let_go_unlisted(box, row, at_nodes, at_devices)


@compiled_inside
def let_go_unlisted(box: Box, row: int, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """The inverse of `hold_unlisted`."""
    cls = box.jobs[JOB_CLASS, row]
    drop_links(box, box.job_link[row])
    box.job_link[row] = NONE
    milli = len(at_nodes) * class_milli(box, cls)
    queue_take(box.queues, box.jobs[JOB_QUEUE, row], -milli, -1)
    tenant_take(box.tenants, box.jobs[JOB_TENANT, row], -milli)
    release(box, cls, at_nodes, at_devices)
    box.jobs[JOB_HELD, row] = 0


@compiled
def start_entry(
    row: int,
    generation: int,
    start_ms: int,
    protected_ms: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    order: np.ndarray,
    waiting: int,
    sort: np.ndarray,
    door: Door,
) -> int:
    """`hold` by a new generation of a job that leaves order[:waiting]; waiting 0 = it has left the order already.

    Called from Python as `start_entry(row, …, door)`. Returns a START_* number; but for STARTED, nothing was done.
    """
    box = open_box(door)
    if box.meta[META_LINKS_LEFT] < len(at_nodes) + 1 or box.meta[META_RUNNING] + 1 >= box.running.shape[1]:
        return START_NO_ROOM
    if waiting != 0 and remove_from(order, waiting, sort, row) == NONE:
        return START_NOT_WAITING
    hold(box, row, start_ms, at_nodes.copy(), at_devices.copy())
    box.jobs[JOB_PHASE, row] = PHASE_STARTING
    box.jobs[JOB_GENERATION, row] = generation
    box.jobs[JOB_REASON, row] = NONE
    box.jobs[JOB_PROTECTED_MS, row] = protected_ms
    return STARTED


@compiled
def start_together_entry(
    starts: np.ndarray,
    start_ms: int,
    protected_ms: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    order: np.ndarray,
    waiting: int,
    sort: np.ndarray,
    door: Door,
) -> int:
    """`start_entry` for many jobs. starts: int64[3, n], for each its row, its generation and its replicas; the
    allocations lie one behind the other. With START_NO_ROOM nothing was done; with START_NOT_WAITING the jobs before
    the one that did not wait hold their devices: the caller's mistake."""
    box = open_box(door)
    count = starts.shape[1]
    if box.meta[META_LINKS_LEFT] < len(at_nodes) + 1 or box.meta[META_RUNNING] + count >= box.running.shape[1]:
        return START_NO_ROOM
    node = device = 0
    for index in range(count):
        row, replicas = starts[0, index], starts[2, index]
        if waiting != 0 and remove_from(order, waiting - index, sort, row) == NONE:
            return START_NOT_WAITING
        needed = replicas * box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
        hold(box, row, start_ms, at_nodes[node : node + replicas], at_devices[device : device + needed])
        box.jobs[JOB_PHASE, row] = PHASE_STARTING
        box.jobs[JOB_GENERATION, row] = starts[1, index]
        box.jobs[JOB_REASON, row] = NONE
        box.jobs[JOB_PROTECTED_MS, row] = protected_ms
        node += replicas
        device += needed
    return STARTED


@compiled_inside
def count_attained(box: Box, row: int, now_ms: int) -> int:
    """Put the time held on the job's account; returns since when it was held."""
    start_ms = box.jobs[JOB_START_MS, row]
    milli = box.jobs[JOB_HELD, row] * class_milli(box, box.jobs[JOB_CLASS, row])
    box.jobs[JOB_ATTAINED, row] += milli * max(now_ms - start_ms, 0) // 1000
    return start_ms


@compiled
def leave_entry(row: int, now_ms: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door) -> int:
    """`let_go`, with the time held on the job's account; returns since when it was held."""
    box = open_box(door)
    start_ms = count_attained(box, row, now_ms)
    let_go(box, row, at_nodes.copy(), at_devices.copy())
    return start_ms


@compiled_inside
def leave_whole(box: Box, row: int, now_ms: int, phase: int) -> int:
    """`leave_entry` for a job whose devices are all its own, as the tables know them. phase: in which it is then."""
    box.jobs[JOB_PHASE, row] = phase
    start_ms = count_attained(box, row, now_ms)
    remove_running(box, box.jobs[JOB_END_MS, row], row)
    cls = box.jobs[JOB_CLASS, row]
    replicas = box.jobs[JOB_HELD, row]
    milli = replicas * class_milli(box, cls)
    queue_take(box.queues, box.jobs[JOB_QUEUE, row], -milli, -1)
    tenant_take(box.tenants, box.jobs[JOB_TENANT, row], -milli)
    link = box.job_link[row]
    while link != NONE:
        release_footprint(box, cls, row, box.links[LINK_POOL, link], box.links[LINK_COUNT, link])
        link = box.links[LINK_NEXT, link]
    drop_links(box, box.job_link[row])
    box.job_link[row] = NONE
    box.jobs[JOB_HELD, row] = 0
    return start_ms


@compiled
def leave_whole_entry(row: int, now_ms: int, phase: int, door: Door) -> int:
    """`leave_whole`, called from Python as `leave_whole_entry(row, now_ms, phase, door)`."""
    return leave_whole(open_box(door), row, now_ms, phase)


@compiled
def hold_entry(row: int, start_ms: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door) -> None:
    """`hold`, called from Python as `hold_entry(row, start_ms, nodes, devices, door)`."""
    hold(open_box(door), row, start_ms, at_nodes.copy(), at_devices.copy())


@compiled
def let_go_entry(row: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door) -> None:
    """`let_go`, called from Python as `let_go_entry(row, nodes, devices, door)`."""
    let_go(open_box(door), row, at_nodes.copy(), at_devices.copy())


@compiled
def hold_until_entry(
    row: int, start_ms: int, end_ms: int, at_nodes: np.ndarray, at_devices: np.ndarray, door: Door
) -> None:
    """`hold_until`, called from Python as `hold_until_entry(row, start_ms, end_ms, nodes, devices, door)`."""
    hold_until(open_box(door), row, start_ms, end_ms, at_nodes.copy(), at_devices.copy())
