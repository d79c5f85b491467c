"""A stretch: many moments in one call, for a driver that knows what comes.

At each moment jobs end and jobs are submitted, what may start is decided by the one scan (`engine.scan`), judged by the
checker and taken, and the next moment follows. What each step does to the tables is what the events `JobStarted`,
`JobFinished`, `JobSubmitted` and `PlanAccepted` do there, by the same functions; records and names are settled behind
it, for all moments at once (`engine.settle`). Only for jobs, policies and clusters as `settle.may_stretch` says.

Wherever room is short it returns, and goes on at the same stage when it is called again.
"""

from typing import Any, Final

from clearway.engine.agenda import (
    ASTRAY,
    COME_AT_MS,
    COME_CLASS,
    COME_FORM,
    COME_JOB,
    COME_LIMIT_MS,
    COME_PLANNED_MS,
    COME_PRIORITY,
    COME_QUEUE,
    COME_QUEUE_PRIORITY,
    COME_REPLICAS,
    COME_TENANT,
    ENDED_AT_MS,
    ENDED_MILLI,
    ENDED_PLACE,
    ENDED_ROW,
    ENDED_START_MS,
    ENDED_TENANT,
    HEAD_WORDS,
    OVER,
    REFUSED,
    RESTLESS,
    STAGE_ACCEPT,
    STAGE_LOOK,
    STAGE_MOMENT,
    STAGE_SCAN,
    START_AT_MS,
    START_PLACE,
    START_REPLICAS,
    START_ROW,
    START_WORD,
    TRIP_ACCEPTED,
    TRIP_AGAIN,
    TRIP_BEGIN,
    TRIP_BY_PRIORITY,
    TRIP_COUNT,
    TRIP_CULPRIT,
    TRIP_DEVICES,
    TRIP_DUE_MS,
    TRIP_ENDED,
    TRIP_ENDS,
    TRIP_EVENTS,
    TRIP_FIRST,
    TRIP_FREE,
    TRIP_FRESH,
    TRIP_GREW,
    TRIP_HAS_MOVED,
    TRIP_HAS_SCANNED,
    TRIP_KNOWN,
    TRIP_LAST,
    TRIP_LAST_PARENT,
    TRIP_LOOKED,
    TRIP_MOMENTS,
    TRIP_NEXT,
    TRIP_NODES,
    TRIP_NOW,
    TRIP_PARENT,
    TRIP_PLANS,
    TRIP_PROTECTION_MS,
    TRIP_ROUND,
    TRIP_ROWS,
    TRIP_SCANNED,
    TRIP_SEQUENCE,
    TRIP_SHRANK,
    TRIP_STAGE,
    TRIP_STARTS,
    TRIP_STATUS,
    TRIP_STRICT_STOP,
    TRIP_TOLD,
    TRIP_UNTIL,
    TRIP_VERDICT,
    TRIP_WAITING,
    TRIP_WORDS,
    WANTS_LINKS,
    WANTS_LOG,
    WANTS_ROOM,
    AgendaDoor,
    AgendaTables,
    open_agenda,
)
from clearway.engine.box import META_LINKS_LEFT, META_RESERVATIONS, META_RUNNING, RES_JOB, Box, Door, open_box
from clearway.engine.check import FINE, clear_ledger_inside, judge_all
from clearway.engine.compiled import call_scan, compiled, compiled_inside
from clearway.engine.desk import (
    AT_DEVICES,
    AT_DUE_MS,
    AT_MOVED,
    AT_NODES,
    AT_POSITION,
    AT_STARTED,
    AT_STATUS,
    FRESH,
    GO_ON,
    OUT_DEVICE,
    OUT_NODE,
    OUT_REPLICAS,
    OUT_ROW,
    SET_DEPTH,
    SET_STRICT,
    STATUS_ROOM,
    STATUS_STRICT,
    Desk,
    DeskDoor,
    open_desk,
)
from clearway.engine.endings import END_MS, END_PLACE, pop_end, push_end
from clearway.engine.hold import class_milli, hold, leave_whole
from clearway.engine.order import SORT_KEY, insert_inside, place_in, remove_from
from clearway.engine.rows import write_row_inside
from clearway.engine.tables import (
    CLASS_DEVICES,
    JOB_CLASS,
    JOB_GENERATION,
    JOB_HELD,
    JOB_ID,
    JOB_PHASE,
    JOB_PROTECTED_MS,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_TENANT,
    NONE,
    PHASE_FREE,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_STARTING,
)
from clearway.model.units import FOREVER_MS

ROUNDS_MAX: Final = 8
"""Plans made for one moment, as in the kernel."""
STARTS_FEW: Final = 8
"""Up to so many starts of one plan leave the order one by one; more leave it together."""


# --- what happens ------------------------------------------------------------------------------------------------


@compiled_inside
def next_moment(agenda: AgendaTables) -> int:
    """When something happens next."""
    trip = agenda.trip
    at_ms = agenda.ends[END_MS, 0] if trip[TRIP_ENDS] > 0 else FOREVER_MS
    if trip[TRIP_NEXT] < trip[TRIP_KNOWN]:
        at_ms = min(at_ms, agenda.comes[trip[TRIP_NEXT] - trip[TRIP_FIRST], COME_AT_MS])
    return at_ms


@compiled_inside
def tell_moment(box: Box, agenda: AgendaTables, now_ms: int) -> None:
    """All that happens at a moment: jobs that were started run, others end, others come."""
    trip = agenda.trip
    trip[TRIP_NOW] = now_ms
    trip[TRIP_MOMENTS] += 1
    trip[TRIP_PARENT] += 1
    trip[TRIP_EVENTS] += trip[TRIP_TOLD]
    for index in range(trip[TRIP_TOLD]):
        box.jobs[JOB_PHASE, agenda.untold[index]] = PHASE_RUNNING
    trip[TRIP_TOLD] = 0
    while trip[TRIP_ENDS] > 0 and agenda.ends[END_MS, 0] == now_ms:
        place = agenda.ends[END_PLACE, 0]
        pop_end(agenda.ends, trip[TRIP_ENDS])
        trip[TRIP_ENDS] -= 1
        end_job(box, agenda, place, now_ms)
        trip[TRIP_EVENTS] += 1
    while trip[TRIP_NEXT] < trip[TRIP_KNOWN]:
        line = trip[TRIP_NEXT] - trip[TRIP_FIRST]
        if agenda.comes[line, COME_AT_MS] != now_ms:
            break
        submit_job(box, agenda, line, now_ms)
        trip[TRIP_EVENTS] += 1


@compiled_inside
def end_job(box: Box, agenda: AgendaTables, place: int, now_ms: int) -> None:
    """A job gives back what it holds, and its row."""
    trip = agenda.trip
    row = agenda.row_of[place]
    index = trip[TRIP_ENDED]
    agenda.ended[ENDED_PLACE, index] = place
    agenda.ended[ENDED_AT_MS, index] = now_ms
    agenda.ended[ENDED_ROW, index] = row
    agenda.ended[ENDED_TENANT, index] = box.jobs[JOB_TENANT, row]
    agenda.ended[ENDED_MILLI, index] = box.jobs[JOB_HELD, row] * class_milli(box, box.jobs[JOB_CLASS, row])
    agenda.ended[ENDED_START_MS, index] = leave_whole(box, row, now_ms, PHASE_FREE)
    trip[TRIP_ENDED] += 1
    agenda.row_of[place] = NONE
    agenda.free[trip[TRIP_FREE]] = row
    trip[TRIP_FREE] += 1
    trip[TRIP_GREW] = 1


@compiled_inside
def submit_job(box: Box, agenda: AgendaTables, line: int, now_ms: int) -> None:
    """The next job gets a row, and is fresh."""
    trip = agenda.trip
    if trip[TRIP_FREE] > 0:
        trip[TRIP_FREE] -= 1
        row = agenda.free[trip[TRIP_FREE]]
    else:
        row = trip[TRIP_ROWS]
        trip[TRIP_ROWS] += 1
    comes = agenda.comes
    replicas = comes[line, COME_REPLICAS]
    write_row_inside(
        box.jobs,
        agenda.sort,
        agenda.forms[comes[line, COME_FORM]],
        row,
        comes[line, COME_JOB],
        comes[line, COME_CLASS],
        replicas,
        replicas,
        replicas,
        comes[line, COME_PRIORITY],
        comes[line, COME_QUEUE],
        comes[line, COME_TENANT],
        comes[line, COME_QUEUE_PRIORITY],
        now_ms,
        comes[line, COME_PLANNED_MS],
        comes[line, COME_LIMIT_MS],
        trip[TRIP_BY_PRIORITY] == 1,
    )
    agenda.sort[SORT_KEY, row] = agenda.keys[line]
    place = trip[TRIP_NEXT]
    agenda.row_of[place] = row
    agenda.place_of[row] = place
    trip[TRIP_NEXT] = place + 1
    insert_inside(agenda.fresh, trip[TRIP_FRESH], agenda.sort, row)
    trip[TRIP_FRESH] += 1


# --- what is decided ---------------------------------------------------------------------------------------------


@compiled_inside
def begin_look(box: Box, agenda: AgendaTables, desk: Desk) -> bool:
    """Begin a cycle as `Planner.decide_plan` does; False where there is nothing to scan. What is to be scanned is in
    TRIP_BEGIN and TRIP_COUNT."""
    trip = agenda.trip
    trip[TRIP_PLANS] += 1
    trip[TRIP_AGAIN] = 0
    if trip[TRIP_FRESH] == 0 and trip[TRIP_WAITING] == 0 and trip[TRIP_DUE_MS] >= FOREVER_MS:
        trip[TRIP_GREW] = trip[TRIP_SHRANK] = trip[TRIP_STRICT_STOP] = 0
        if trip[TRIP_HAS_SCANNED] == 1:
            trip[TRIP_HAS_SCANNED] = 0
            desk.memo[:] = FOREVER_MS
        return False
    is_late = trip[TRIP_DUE_MS] <= trip[TRIP_NOW]
    has_changed = trip[TRIP_GREW] == 1 or trip[TRIP_SHRANK] == 1 or is_late
    count = trip[TRIP_FRESH]
    if not has_changed and count == 0:
        return False
    before = trip[TRIP_WAITING]
    first = before
    for index in range(count):
        place = insert_inside(agenda.order, trip[TRIP_WAITING], agenda.sort, agenda.fresh[index])
        first = min(first, place)
        trip[TRIP_WAITING] += 1
    trip[TRIP_FRESH] = 0
    if has_changed or not is_enough(box, agenda, desk, first, before):
        trip[TRIP_BEGIN] = 0
        trip[TRIP_COUNT] = trip[TRIP_WAITING]
    else:
        trip[TRIP_BEGIN] = FRESH
        trip[TRIP_COUNT] = count
        if trip[TRIP_STRICT_STOP] == 1 or count == 0:
            return False
    trip[TRIP_GREW] = trip[TRIP_SHRANK] = 0
    trip[TRIP_HAS_SCANNED] = 1
    return True


@compiled_inside
def is_enough(box: Box, agenda: AgendaTables, desk: Desk, first: int, before: int) -> bool:
    """As `Planner._is_enough`, where nothing has changed but that jobs came: the first of them at this place."""
    trip = agenda.trip
    if trip[TRIP_STRICT_STOP] == 1:
        return bool(first > trip[TRIP_SCANNED] - 1)
    if desk.settings[SET_STRICT] == 1:
        return False
    if first >= before or desk.settings[SET_DEPTH] == 0:
        return True
    count = box.meta[META_RESERVATIONS]
    if count < desk.settings[SET_DEPTH]:
        return False
    for index in range(count):
        if first <= place_in(agenda.order, trip[TRIP_WAITING], agenda.sort, box.res[RES_JOB, index]):
            return False
    return True


@compiled_inside
def note_scan(agenda: AgendaTables, desk: Desk) -> None:
    """Keep what the planner keeps of a scan that is done."""
    trip, progress = agenda.trip, desk.progress
    trip[TRIP_DUE_MS] = progress[AT_DUE_MS]
    trip[TRIP_HAS_MOVED] = progress[AT_MOVED]
    if trip[TRIP_BEGIN] == 0:
        trip[TRIP_LOOKED] = 1
        trip[TRIP_STRICT_STOP] = 1 if progress[AT_STATUS] == STATUS_STRICT else 0
        trip[TRIP_SCANNED] = progress[AT_POSITION] - progress[AT_STARTED]


@compiled_inside
def lacks_room(box: Box, agenda: AgendaTables, desk: Desk) -> int:
    """What lacks room for all that was started: WANTS_LINKS, WANTS_LOG, or OVER for nothing."""
    progress, trip = desk.progress, agenda.trip
    started = progress[AT_STARTED]
    nodes = devices = 0
    for index in range(started):
        replicas = desk.out[OUT_REPLICAS, index]
        nodes += replicas
        devices += replicas * box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, desk.out[OUT_ROW, index]]]
    if box.meta[META_LINKS_LEFT] < nodes + 1 or box.meta[META_RUNNING] + started >= box.running.shape[1]:
        trip[TRIP_CULPRIT] = nodes
        return WANTS_LINKS
    if trip[TRIP_WORDS] + started * HEAD_WORDS + nodes + devices > len(agenda.words):
        trip[TRIP_CULPRIT] = started * HEAD_WORDS + nodes + devices
        return WANTS_LOG
    return OVER


@compiled_inside
def judge_starts(box: Box, agenda: AgendaTables, desk: Desk) -> bool:
    """Whether the checker finds all starts good, each after what those before it take."""
    trip, out = agenda.trip, desk.out
    verdict = FINE
    for index in range(desk.progress[AT_STARTED]):
        row, replicas = out[OUT_ROW, index], out[OUT_REPLICAS, index]
        node, device = out[OUT_NODE, index], out[OUT_DEVICE, index]
        needed = replicas * box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
        nodes, devices = desk.out_nodes[node : node + replicas], desk.out_devices[device : device + needed]
        trip[TRIP_CULPRIT] = row
        if (
            box.jobs[JOB_PHASE, row] != PHASE_PENDING
            or box.jobs[JOB_GENERATION, row] != 0
            or replicas != box.jobs[JOB_REPLICAS, row]
        ):
            verdict = NONE
        else:
            verdict = judge_all(
                box,
                row,
                0,
                nodes,
                devices,
                agenda.by_node,
                agenda.by_device,
                trip[TRIP_NODES],
                trip[TRIP_DEVICES],
            )
        if verdict != FINE:
            break
    trip[TRIP_VERDICT] = verdict
    nodes, devices = desk.out_nodes[: desk.progress[AT_NODES]], desk.out_devices[: desk.progress[AT_DEVICES]]
    clear_ledger_inside(agenda.by_node, agenda.by_device, nodes, devices)
    return bool(verdict == FINE)


@compiled_inside
def leave_order(box: Box, agenda: AgendaTables, desk: Desk) -> bool:
    """Take those that start out of the order; False if one of them was not there."""
    trip, started = agenda.trip, desk.progress[AT_STARTED]
    for index in range(started):
        row = desk.out[OUT_ROW, index]
        box.jobs[JOB_PHASE, row] = PHASE_STARTING
        if started <= STARTS_FEW:
            if remove_from(agenda.order, trip[TRIP_WAITING], agenda.sort, row) == NONE:
                return False
            trip[TRIP_WAITING] -= 1
    if started <= STARTS_FEW:
        return True
    kept = 0
    for index in range(trip[TRIP_WAITING]):
        row = agenda.order[index]
        if box.jobs[JOB_PHASE, row] == PHASE_PENDING:
            agenda.order[kept] = row
            kept += 1
    is_right = trip[TRIP_WAITING] - kept == started
    trip[TRIP_WAITING] = kept
    return bool(is_right)


@compiled_inside
def accept_starts(box: Box, agenda: AgendaTables, desk: Desk) -> None:
    """All that start take their devices, and are written down."""
    trip, out, now_ms = agenda.trip, desk.out, agenda.trip[TRIP_NOW]
    trip[TRIP_LAST] = trip[TRIP_STARTS]
    trip[TRIP_LAST_PARENT] = trip[TRIP_PARENT]
    for index in range(desk.progress[AT_STARTED]):
        row, replicas = out[OUT_ROW, index], out[OUT_REPLICAS, index]
        node, device = out[OUT_NODE, index], out[OUT_DEVICE, index]
        needed = replicas * box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
        hold(box, row, now_ms, desk.out_nodes[node : node + replicas], desk.out_devices[device : device + needed])
        box.jobs[JOB_GENERATION, row] = 1
        box.jobs[JOB_REASON, row] = NONE
        box.jobs[JOB_PROTECTED_MS, row] = now_ms + trip[TRIP_PROTECTION_MS]
        place = agenda.place_of[row]
        trip[TRIP_SEQUENCE] += 1
        push_end(agenda.ends, trip[TRIP_ENDS], now_ms + agenda.spans_ms[place], trip[TRIP_SEQUENCE], place)
        trip[TRIP_ENDS] += 1
        agenda.untold[trip[TRIP_TOLD]] = row
        trip[TRIP_TOLD] += 1
        write_start(box, agenda, desk, row, place, node, replicas, device, needed)
    trip[TRIP_ACCEPTED] += 1
    trip[TRIP_PARENT] += 1


@compiled_inside
def write_start(
    box: Box, agenda: AgendaTables, desk: Desk, row: int, place: int, node: int, replicas: int, device: int, needed: int
) -> None:
    """Write a start into the log."""
    trip, words = agenda.trip, agenda.words
    at = trip[TRIP_WORDS]
    index = trip[TRIP_STARTS]
    agenda.starts[START_PLACE, index] = place
    agenda.starts[START_AT_MS, index] = trip[TRIP_NOW]
    agenda.starts[START_ROW, index] = row
    agenda.starts[START_REPLICAS, index] = replicas
    agenda.starts[START_WORD, index] = at
    trip[TRIP_STARTS] = index + 1
    words[at] = words[at + 4] = words[at + 5] = 0
    words[at + 1] = trip[TRIP_NOW]
    words[at + 2] = box.jobs[JOB_ID, row]
    words[at + 3] = 1
    words[at + 6] = replicas
    at += HEAD_WORDS
    for replica in range(replicas):
        words[at + replica] = desk.out_nodes[node + replica]
    at += replicas
    for one in range(needed):
        words[at + one] = desk.out_devices[device + one]
    trip[TRIP_WORDS] = at + needed


# --- the loop ----------------------------------------------------------------------------------------------------


@compiled_inside
def accept(box: Box, agenda: AgendaTables, desk: Desk) -> int:
    """Judge and take what the scan started. Returns OVER, or why not."""
    trip = agenda.trip
    if desk.progress[AT_STARTED] == 0:
        return OVER
    lacking = lacks_room(box, agenda, desk)
    if lacking != OVER:
        return lacking
    if not judge_starts(box, agenda, desk):
        return REFUSED
    if not leave_order(box, agenda, desk):
        return ASTRAY
    accept_starts(box, agenda, desk)
    if trip[TRIP_HAS_MOVED] == 1:
        trip[TRIP_GREW] = trip[TRIP_AGAIN] = 1
    return OVER


@compiled_inside
def is_at_rest(agenda: AgendaTables) -> bool:
    """As `Kernel.at_rest`."""
    trip = agenda.trip
    return bool(trip[TRIP_GREW] == 0 and trip[TRIP_SHRANK] == 0 and trip[TRIP_NOW] < trip[TRIP_DUE_MS])


@compiled
def stretch_entry(scan_address: Any, agenda_door: AgendaDoor, desk_door: DeskDoor, door: Door) -> None:
    """One moment after the other, until one is not part of the stretch, or something is wanted. See TRIP_STATUS."""
    agenda, desk, box = open_agenda(agenda_door), open_desk(desk_door), open_box(door)
    trip = agenda.trip
    while True:
        stage = trip[TRIP_STAGE]
        if stage == STAGE_MOMENT:
            at_ms = next_moment(agenda)
            if at_ms >= trip[TRIP_UNTIL]:
                trip[TRIP_STATUS] = OVER
                return
            tell_moment(box, agenda, at_ms)
            trip[TRIP_ROUND] = 0
            stage = STAGE_LOOK
        is_done = False
        if stage == STAGE_LOOK:
            trip[TRIP_ROUND] += 1
            is_done = not begin_look(box, agenda, desk)
        if not is_done and stage != STAGE_ACCEPT:
            begin = GO_ON if stage == STAGE_SCAN else trip[TRIP_BEGIN]
            # Fresh jobs alone are still in `fresh`, in order.
            queue = agenda.order if trip[TRIP_BEGIN] == 0 else agenda.fresh
            call_scan(scan_address, queue, trip[TRIP_COUNT], begin, trip[TRIP_NOW], desk_door, door)
            if desk.progress[AT_STATUS] == STATUS_ROOM:
                trip[TRIP_CULPRIT] = queue[desk.progress[AT_POSITION]]
                trip[TRIP_STAGE] = STAGE_SCAN
                trip[TRIP_STATUS] = WANTS_ROOM
                return
            note_scan(agenda, desk)
        if not is_done:
            trip[TRIP_STAGE] = STAGE_ACCEPT
            trip[TRIP_STATUS] = accept(box, agenda, desk)
            if trip[TRIP_STATUS] != OVER:
                return
        if not is_done and trip[TRIP_AGAIN] == 1 and trip[TRIP_ROUND] < ROUNDS_MAX:
            trip[TRIP_STAGE] = STAGE_LOOK
            continue
        trip[TRIP_STAGE] = STAGE_MOMENT
        if trip[TRIP_TOLD] > 0 and not is_at_rest(agenda):
            trip[TRIP_STATUS] = RESTLESS
            return
