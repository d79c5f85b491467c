"""Steps 3 to 5 of the cycle over the ordered queue in one loop: admit, place, backfill behind reservations.

Strict FIFO, first fit, EASY, hybrid and conservative backfill are this loop with other settings. What starts is held at
once, so that each later job sees what the earlier ones took; in the end it is all undone, and becomes a plan.
"""

from typing import Final

import numpy as np

from clearway.engine.box import (
    META_LINKS_LEFT,
    META_NODE_ASKED,
    META_NODES,
    META_POOLS,
    META_RESERVATIONS,
    META_RUNNING,
    RES_BESIDE,
    RES_JOB,
    RES_START,
    RES_TOTAL,
    Box,
    Door,
    open_box,
)
from clearway.engine.capacity import fits_when_empty
from clearway.engine.compiled import compiled, compiled_inline, compiled_inside
from clearway.engine.desk import (
    AT_DEVICES,
    AT_DUE_MS,
    AT_LISTED,
    AT_LOOKED,
    AT_MOVED,
    AT_NODES,
    AT_OUTLASTING,
    AT_POSITION,
    AT_RESERVING,
    AT_STARTED,
    AT_STATUS,
    FRESH,
    GO_ON,
    MEMO,
    MEMO_BESIDE_END,
    MEMO_BESIDE_REPLICAS,
    MEMO_REASON,
    MEMO_REPLICAS,
    OUT_DEVICE,
    OUT_NODE,
    OUT_POSITION,
    OUT_REPLICAS,
    OUT_ROW,
    SET_BYPASS_MAX,
    SET_DEPTH,
    SET_ELASTIC,
    SET_HEADROOM,
    SET_HEEDS,
    SET_KEEP,
    SET_NOW,
    SET_PROTECTED,
    SET_SCAN_MAX,
    SET_STRICT,
    STATUS_CUT,
    STATUS_DONE,
    STATUS_ROOM,
    STATUS_STRICT,
    DeskDoor,
    open_desk,
)
from clearway.engine.gang import charge_reservations, fill_capacity, place, pool_of_replica
from clearway.engine.hold import (
    add_running,
    class_milli,
    hold_unlisted,
    let_go_unlisted,
    planned_end,
    remove_running,
)
from clearway.engine.place import TOTAL_ANY
from clearway.engine.quota import queue_refusal, tenant_available
from clearway.engine.reasons import (
    PLACED,
    REASON_HEADROOM,
    REASON_NEIGHBOURS,
    REASON_NEVER_FITS,
    REASON_QUEUE_JOB_LIMIT,
    REASON_QUEUE_LIMIT,
    REASON_QUOTA,
    REASON_RESERVED,
    REASON_RESOURCES,
    REASON_TOPOLOGY,
)
from clearway.engine.reserve import (
    clear_reservations,
    first_expected_end,
    first_reserved_ms,
    postpone_overdue,
    reserve,
    reserved_digest,
    stays,
)
from clearway.engine.tables import (
    CLASS_DEVICES,
    CLASS_SHARE,
    CLASS_SOCIAL,
    DEVICE_SHARE_FREE,
    JOB_BYPASSED,
    JOB_CLAIMED,
    JOB_CLASS,
    JOB_END_MS,
    JOB_KIND,
    JOB_PREFERRED,
    JOB_QUEUE,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_REPLICAS_MIN,
    JOB_TENANT,
    JOB_WHOLE,
    JOB_WIDEST,
    NONE,
    QUEUE_JOB_MAX,
)
from clearway.model.units import FOREVER_MS

RESERVE_SPARE: Final = 8
"""Tries beyond the depth: a job for which no start can be foretold (nobody knows when others end) gets no reservation,
and trying for each of a thousand such jobs in vain would be most of the work."""


@compiled_inline
def refused_by_limits(box: Box, row: int, settings: np.ndarray, milli: int) -> int:
    """The limit that forbids `milli` more for this job now, or PLACED."""
    queue = box.jobs[JOB_QUEUE, row]
    if milli > box.queues[QUEUE_JOB_MAX, queue]:
        return REASON_QUEUE_JOB_LIMIT
    if queue_refusal(box.queues, queue, milli) != 0:
        return REASON_QUEUE_LIMIT
    if tenant_available(box.tenants, box.jobs[JOB_TENANT, row]) < milli:
        return REASON_QUOTA
    is_whole = box.classes[CLASS_SHARE, box.jobs[JOB_CLASS, row]] == 1000  # a share may lie on a device in use
    if is_whole and milli > 0 and exceeds_headroom(box, row, settings, milli):
        return REASON_HEADROOM
    return PLACED


@compiled_inline
def exceeds_headroom(box: Box, row: int, settings: np.ndarray, milli: int) -> bool:
    """Whether fewer devices than are kept would stay wholly free, if the job took `milli` of these."""
    headroom = settings[SET_HEADROOM]
    protected = (settings[SET_PROTECTED] >> box.jobs[JOB_KIND, row]) & 1 == 1
    return headroom > 0 and not protected and box.totals[TOTAL_ANY] * 1000 - milli < headroom


@compiled_inline
def breaks_into_headroom(box: Box, row: int, settings: np.ndarray, at_devices: np.ndarray) -> bool:
    """Whether shares that were placed take wholly free devices that are kept."""
    whole = 0
    for index in range(len(at_devices)):
        if box.devices[DEVICE_SHARE_FREE, at_devices[index]] == 1000:
            is_first = True
            for other in range(index):
                if at_devices[other] == at_devices[index]:
                    is_first = False
            whole += is_first
    return whole > 0 and exceeds_headroom(box, row, settings, 1000 * whole)


@compiled_inline
def known_to_fail(memo: np.ndarray, cls: int, replicas: int, end_ms: int) -> bool:
    """Whether an equal or smaller request failed already in this scan; capacity only falls within one."""
    if replicas >= memo[MEMO_REPLICAS, cls]:
        return True
    return replicas >= memo[MEMO_BESIDE_REPLICAS, cls] and end_ms >= memo[MEMO_BESIDE_END, cls]


@compiled_inline
def is_short_beside(box: Box, milli: int, end_ms: int) -> bool:
    """Whether some reservation that begins before `end_ms` leaves too few devices in all, or of those free now:
    a quick look at sums."""
    for index in range(box.meta[META_RESERVATIONS]):
        if box.res[RES_START, index] < end_ms and min(box.res[RES_TOTAL, index], box.res[RES_BESIDE, index]) < milli:
            return True
    return False


@compiled_inline
def remember_failure(box: Box, memo: np.ndarray, cls: int, replicas: int, end_ms: int, reason: int) -> None:
    """Note a failure for equal requests. A failure of topology says nothing about jobs that may span more."""
    if reason == REASON_TOPOLOGY:
        return
    memo[MEMO_REASON, cls] = reason
    if box.meta[META_RESERVATIONS] == 0:
        memo[MEMO_REPLICAS, cls] = min(memo[MEMO_REPLICAS, cls], replicas)
    else:
        memo[MEMO_BESIDE_REPLICAS, cls] = replicas
        memo[MEMO_BESIDE_END, cls] = end_ms


@compiled_inside
def place_some(
    box: Box, row: int, replicas: int, settings: np.ndarray, weights: np.ndarray, nodes: np.ndarray, devices: np.ndarray
) -> tuple[int, int]:
    """Place the job with all replicas asked, or, if it is elastic, with as many as fit down to its minimum.

    Returns (PLACED or a reason, replicas placed).
    """
    cls = box.jobs[JOB_CLASS, row]
    widest = box.jobs[JOB_WIDEST, row]
    preferred = box.jobs[JOB_PREFERRED, row]
    needed = box.classes[CLASS_DEVICES, cls]
    now = settings[SET_NOW]
    end_ms = planned_end(box, row, now, replicas)
    reason = place(box, cls, widest, preferred, end_ms, weights, nodes[:replicas], devices[: replicas * needed])
    least = box.jobs[JOB_REPLICAS_MIN, row]
    if reason == PLACED or settings[SET_ELASTIC] == 0 or least >= replicas:
        return reason, replicas
    end_ms = planned_end(box, row, now, least)
    fewer = min(fill_capacity(box, cls, end_ms, replicas, NONE), replicas - 1)
    while fewer >= least:
        trial = place(box, cls, widest, preferred, end_ms, weights, nodes[:fewer], devices[: fewer * needed])
        if trial == PLACED:
            return PLACED, fewer
        fewer = least if fewer > least else least - 1
    return reason, replicas


@compiled_inside
def charge_started(box: Box, row: int, nodes: np.ndarray, devices: np.ndarray, end_ms: int) -> None:
    """Lower what later reservations find by what the started job holds until `end_ms`."""
    if box.meta[META_RESERVATIONS] == 0:
        return
    cls = box.jobs[JOB_CLASS, row]
    needed = box.classes[CLASS_DEVICES, cls]
    count = 0
    for replica in range(len(nodes)):
        pool = pool_of_replica(box, needed, nodes, devices, replica)
        count += 1
        if replica + 1 == len(nodes) or pool_of_replica(box, needed, nodes, devices, replica + 1) != pool:
            charge_reservations(box, cls, pool, count, end_ms)
            count = 0


@compiled_inline
def has_room(box: Box, row: int, progress: np.ndarray, out: np.ndarray, nodes: np.ndarray, devices: np.ndarray) -> bool:
    """Whether outputs, links and the running list can take one more job and one more reservation."""
    replicas = box.jobs[JOB_REPLICAS, row]
    needed = replicas * box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
    return (
        progress[AT_STARTED] < out.shape[1]
        and progress[AT_NODES] + replicas <= len(nodes)
        and progress[AT_DEVICES] + needed <= len(devices)
        and box.meta[META_LINKS_LEFT] > box.meta[META_POOLS] + min(replicas, box.meta[META_NODES] * 64)
        and box.meta[META_RUNNING] + progress[AT_STARTED] - progress[AT_LISTED] < box.running.shape[1]
    )


@compiled_inside
def start(
    box: Box,
    row: int,
    position: int,
    replicas: int,
    settings: np.ndarray,
    progress: np.ndarray,
    out: np.ndarray,
    out_nodes: np.ndarray,
    out_devices: np.ndarray,
) -> None:
    """Hold what was placed at the end of the outputs and write the job down as started."""
    at_node = progress[AT_NODES]
    at_device = progress[AT_DEVICES]
    needed = box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
    nodes = out_nodes[at_node : at_node + replicas]
    devices = out_devices[at_device : at_device + replicas * needed]
    end_ms = planned_end(box, row, settings[SET_NOW], replicas)
    hold_unlisted(box, row, settings[SET_NOW], end_ms, nodes, devices)
    charge_started(box, row, nodes, devices, end_ms)
    if first_reserved_ms(box) < end_ms:
        progress[AT_OUTLASTING] = 1
    index = progress[AT_STARTED]
    out[OUT_ROW, index] = row
    out[OUT_POSITION, index] = position
    out[OUT_NODE, index] = at_node
    out[OUT_DEVICE, index] = at_device
    out[OUT_REPLICAS, index] = replicas
    progress[AT_STARTED] += 1
    progress[AT_NODES] += replicas
    progress[AT_DEVICES] += replicas * needed


@compiled_inside
def list_started(box: Box, progress: np.ndarray, out: np.ndarray) -> None:
    """Put the started jobs that are not yet there into the list of running ones, for whoever looks at the future."""
    for index in range(progress[AT_LISTED], progress[AT_STARTED]):
        row = out[OUT_ROW, index]
        add_running(box, box.jobs[JOB_END_MS, row], row)
    progress[AT_LISTED] = progress[AT_STARTED]


@compiled_inline
def wants_reservation(box: Box, settings: np.ndarray, progress: np.ndarray) -> bool:
    """Whether the next job that cannot start gets a reservation, if one can be made."""
    depth = settings[SET_DEPTH]
    return box.meta[META_RESERVATIONS] < depth and progress[AT_RESERVING] < depth + RESERVE_SPARE


@compiled_inline
def refusal_at_once(box: Box, row: int, settings: np.ndarray, memo: np.ndarray, reserves: bool) -> int:
    """The reason why the job cannot start where that is known without looking at pools, else PLACED.

    reserves: whether it would get a reservation; then its limits are asked first, for only what waits for devices does.
    """
    cls = box.jobs[JOB_CLASS, row]
    least = box.jobs[JOB_REPLICAS_MIN, row] if settings[SET_ELASTIC] == 1 else box.jobs[JOB_REPLICAS, row]
    end_ms = planned_end(box, row, settings[SET_NOW], least)
    known = known_to_fail(memo, cls, least, end_ms)
    if known and settings[SET_STRICT] == 0 and not reserves:
        return memo[MEMO_REASON, cls]
    milli = least * class_milli(box, cls)
    reason = refused_by_limits(box, row, settings, milli)
    if reason != PLACED:
        return reason
    if known:
        return memo[MEMO_REASON, cls]
    return REASON_RESERVED if is_short_beside(box, milli, end_ms) else PLACED


@compiled_inside
def try_start(
    box: Box,
    row: int,
    position: int,
    settings: np.ndarray,
    weights: np.ndarray,
    memo: np.ndarray,
    progress: np.ndarray,
    out: np.ndarray,
    out_nodes: np.ndarray,
    out_devices: np.ndarray,
) -> int:
    """Start the job if there is a place for it; returns PLACED or the reason. Its limits allow its least gang."""
    cls = box.jobs[JOB_CLASS, row]
    asked = box.jobs[JOB_REPLICAS, row]
    least = box.jobs[JOB_REPLICAS_MIN, row] if settings[SET_ELASTIC] == 1 else asked
    replicas = asked
    while replicas > least and refused_by_limits(box, row, settings, replicas * class_milli(box, cls)) != PLACED:
        replicas -= 1
    at_node = progress[AT_NODES]
    at_device = progress[AT_DEVICES]
    reason, replicas = place_some(box, row, replicas, settings, weights, out_nodes[at_node:], out_devices[at_device:])
    while reason == PLACED and box.classes[CLASS_SHARE, cls] < 1000:
        count = replicas * box.classes[CLASS_DEVICES, cls]
        if not breaks_into_headroom(box, row, settings, out_devices[at_device : at_device + count]):
            break
        if replicas == least:
            return REASON_HEADROOM
        reason, replicas = place_some(
            box, row, replicas - 1, settings, weights, out_nodes[at_node:], out_devices[at_device:]
        )
    if reason == PLACED:
        start(box, row, position, replicas, settings, progress, out, out_nodes, out_devices)
        if box.classes[CLASS_SOCIAL, cls] == 1:
            forget_social(box, memo)
    else:
        remember_failure(box, memo, cls, least, planned_end(box, row, settings[SET_NOW], least), reason)
    return reason


@compiled_inside
def forget_social(box: Box, memo: np.ndarray) -> None:
    """A new neighbour may be what others waited for: what failed before may not fail now."""
    for cls in range(min(memo.shape[1], box.classes.shape[1])):
        if box.classes[CLASS_SOCIAL, cls] == 1:
            for column in range(MEMO):
                memo[column, cls] = FOREVER_MS


@compiled_inline
def waits_for_devices(reason: int) -> bool:
    """Whether the job waits for devices, not for a limit of its own or neighbours: only such a job holds others up."""
    return reason not in (REASON_QUOTA, REASON_QUEUE_LIMIT, REASON_QUEUE_JOB_LIMIT, REASON_HEADROOM, REASON_NEIGHBOURS)


@compiled_inside
def pass_over(box: Box, order: np.ndarray, position: int, most: int, settings: np.ndarray, memo: np.ndarray) -> int:
    """Pass over jobs from `position` on, up to place `most`, that surely cannot start, hold nobody up and get no
    reservation: they need more wholly free devices than there are, or no less than what failed. Returns the place of
    the first other one. A short loop: queues are long."""
    free = box.totals[TOTAL_ANY]
    bypass_max = settings[SET_BYPASS_MAX]
    least_column = JOB_REPLICAS_MIN if settings[SET_ELASTIC] == 1 else JOB_REPLICAS
    now = settings[SET_NOW]
    heeds = settings[SET_HEEDS] == 1
    while position < most:
        row = order[position]
        if heeds and (box.jobs[JOB_CLAIMED, row] == 1 or box.jobs[JOB_BYPASSED, row] >= bypass_max):
            return position
        reason = REASON_RESOURCES
        if box.jobs[JOB_WHOLE, row] <= free:
            cls = box.jobs[JOB_CLASS, row]
            least = box.jobs[least_column, row]
            if least < memo[MEMO_REPLICAS, cls]:
                if least < memo[MEMO_BESIDE_REPLICAS, cls]:
                    return position
                if planned_end(box, row, now, least) < memo[MEMO_BESIDE_END, cls]:
                    return position
            reason = memo[MEMO_REASON, cls]
        if box.jobs[JOB_REASON, row] != reason:  # most know it already: to read costs less than to write
            box.jobs[JOB_REASON, row] = reason
        position += 1
    return position


@compiled_inside
def make_reservation(box: Box, row: int, settings: np.ndarray, progress: np.ndarray, out: np.ndarray) -> bool:
    """Reserve devices for a job that cannot start now; False if nobody knows when it can."""
    list_started(box, progress, out)
    progress[AT_RESERVING] += 1
    replicas = least_replicas(box, row, settings)
    return reserve(box, row, replicas, settings[SET_NOW], planned_end(box, row, 0, replicas))


@compiled_inline
def least_replicas(box: Box, row: int, settings: np.ndarray) -> int:
    """The fewest replicas with which the job may start under this policy."""
    return box.jobs[JOB_REPLICAS_MIN, row] if settings[SET_ELASTIC] == 1 else box.jobs[JOB_REPLICAS, row]


@compiled_inside
def foreseen_until_ms(box: Box, progress: np.ndarray, out: np.ndarray) -> int:
    """When the first of what the reservations count on is expected: the end of a running job or a reservation's begin.
    If it does not come to pass they are to be made anew. FOREVER_MS where nothing is reserved."""
    due_ms = first_reserved_ms(box)
    if due_ms == FOREVER_MS:
        return due_ms
    for index in range(progress[AT_LISTED], progress[AT_STARTED]):
        due_ms = min(due_ms, box.jobs[JOB_END_MS, out[OUT_ROW, index]])
    return min(due_ms, first_expected_end(box))


@compiled_inside
def would_move(box: Box, settings: np.ndarray, progress: np.ndarray, out: np.ndarray) -> bool:
    """Whether a scan made now, with what this one started, would make other reservations, behind which other jobs may
    start: a limit now forbids what had one, or a job that outlasts its start left it other pools to choose from.

    In the second case they are made again here. What ends before a reservation begins changes nothing about it.
    """
    for index in range(box.meta[META_RESERVATIONS]):
        row = box.res[RES_JOB, index]
        milli = least_replicas(box, row, settings) * class_milli(box, box.jobs[JOB_CLASS, row])
        if refused_by_limits(box, row, settings, milli) != PLACED:
            return True
    if progress[AT_OUTLASTING] == 0:
        return False
    is_plain = settings[SET_KEEP] == 0 and box.meta[META_NODE_ASKED] == 0
    is_lone = box.meta[META_RESERVATIONS] == 1
    if is_plain and is_lone and stays(box, least_replicas(box, box.res[RES_JOB, 0], settings)):
        return False
    list_started(box, progress, out)
    count = box.meta[META_RESERVATIONS]
    before = reserved_digest(box)
    clear_reservations(box)
    for index in range(count):
        row = box.res[RES_JOB, index]
        if box.meta[META_LINKS_LEFT] <= box.meta[META_POOLS] or not make_reservation(box, row, settings, progress, out):
            return True
    return reserved_digest(box) != before


@compiled_inside
def scan(
    box: Box,
    order: np.ndarray,
    count: int,
    settings: np.ndarray,
    weights: np.ndarray,
    memo: np.ndarray,
    progress: np.ndarray,
    out: np.ndarray,
    out_nodes: np.ndarray,
    out_devices: np.ndarray,
) -> int:
    """Go through order[progress[AT_POSITION] : count] and start what may start. Reasons go to JOB_REASON.

    Returns the STATUS_*.
    """
    position = progress[AT_POSITION]
    most = min(count, position + settings[SET_SCAN_MAX] - progress[AT_LOOKED])
    while position < most:
        reserves = wants_reservation(box, settings, progress)
        if settings[SET_STRICT] == 0 and not reserves:
            position = pass_over(box, order, position, most, settings, memo)
            if position == most:
                break
        row = order[position]
        if box.jobs[JOB_CLAIMED, row] == 1:
            position += 1
            continue
        reason = refusal_at_once(box, row, settings, memo, reserves)
        if reason == PLACED or reserves:
            if not has_room(box, row, progress, out, out_nodes, out_devices):
                list_started(box, progress, out)
                advance(progress, position)
                return STATUS_ROOM
            if reason == PLACED:
                reason = try_start(box, row, position, settings, weights, memo, progress, out, out_nodes, out_devices)
        position += 1
        if reason == PLACED:
            continue
        box.jobs[JOB_REASON, row] = reason
        if not waits_for_devices(reason):
            continue
        if (reserves or settings[SET_STRICT] == 1) and not fits_when_empty(box, row):
            box.jobs[JOB_REASON, row] = REASON_NEVER_FITS
        elif settings[SET_STRICT] == 1 or box.jobs[JOB_BYPASSED, row] >= settings[SET_BYPASS_MAX]:
            advance(progress, position)
            return STATUS_STRICT
        elif reserves:
            make_reservation(box, row, settings, progress, out)
    advance(progress, position)
    return STATUS_DONE if position == count else STATUS_CUT


@compiled_inline
def advance(progress: np.ndarray, position: int) -> None:
    """Write down that all before `position` were looked at."""
    progress[AT_LOOKED] += position - progress[AT_POSITION]
    progress[AT_POSITION] = position


@compiled
def scan_entry(order: np.ndarray, count: int, begin: int, now_ms: int, desk_door: DeskDoor, door: Door) -> None:
    """`scan` of order[begin:count], called from Python as `scan_entry(…, desk_door, door)`; what came of it is on the
    desk. A scan from 0 on forgets first what is known, and what is reserved. begin may be FRESH or GO_ON, too.
    """
    box = open_box(door)
    desk = open_desk(desk_door)
    settings, progress, out = desk.settings, desk.progress, desk.out
    if begin != GO_ON:
        settings[SET_NOW] = now_ms
        progress[:] = 0
        progress[AT_POSITION] = max(begin, 0)
        progress[AT_LOOKED] = 1 if begin == FRESH else 0
    if begin == 0:
        clear_reservations(box)
        postpone_overdue(box, now_ms)
    if begin >= 0:
        desk.memo[:] = FOREVER_MS
    status = scan(box, order, count, settings, desk.weights, desk.memo, progress, out, desk.out_nodes, desk.out_devices)
    progress[AT_STATUS] = status
    if status == STATUS_ROOM:
        return
    progress[AT_MOVED] = progress[AT_STARTED] > 0 and would_move(box, settings, progress, out)
    progress[AT_DUE_MS] = foreseen_until_ms(box, progress, out)
    if settings[SET_KEEP] == 0:
        undo(box, out, progress[AT_STARTED], progress[AT_LISTED], desk.out_nodes, desk.out_devices)
    else:
        list_started(box, progress, out)


@compiled
def undo_entry(started: int, desk_door: DeskDoor, door: Door) -> None:
    """`undo`, called from Python as `undo_entry(…, door)`, after a scan that was to keep what it started."""
    desk = open_desk(desk_door)
    undo(open_box(door), desk.out, started, started, desk.out_nodes, desk.out_devices)


@compiled_inside
def undo(box: Box, out: np.ndarray, started: int, listed: int, out_nodes: np.ndarray, out_devices: np.ndarray) -> None:
    """Let go of everything that a scan started, last first: the tables are as before the scan. listed: how many of them
    are in the list of running jobs."""
    for index in range(started - 1, -1, -1):
        row = out[OUT_ROW, index]
        node = out[OUT_NODE, index]
        device = out[OUT_DEVICE, index]
        replicas = out[OUT_REPLICAS, index]
        needed = box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
        if index < listed:
            remove_running(box, box.jobs[JOB_END_MS, row], row)
        let_go_unlisted(box, row, out_nodes[node : node + replicas], out_devices[device : device + replicas * needed])


@compiled
def count_bypassed(order: np.ndarray, count: int, out: np.ndarray, started: int, door: Door) -> None:
    """Add, to each job that was passed over, the number of jobs behind it that started."""
    box = open_box(door)
    behind = started
    next_start = 0
    for position in range(count):
        if next_start < started and out[OUT_POSITION, next_start] == position:
            next_start += 1
            behind -= 1
        elif behind == 0:
            return
        else:
            box.jobs[JOB_BYPASSED, order[position]] += behind
