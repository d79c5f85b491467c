"""Step 11 of the cycle, when somebody asks: all the reasons why a job waits, who is in the way, and the cheapest fix.

The answer is worked out anew from the tables, apart from the planner's code, so that it also says what the planner did
not look at. It changes nothing. Nothing may wait without a reason: `check_reasons`.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import META_RESERVATIONS, RES_JOB, RES_START
from clearway.engine.dominant import rows_in_turn
from clearway.engine.explain_budgets import find_budgeted
from clearway.engine.explain_closed import find_closed, without_closed
from clearway.engine.explain_limits import find_blocks, find_limits
from clearway.engine.explain_neighbours import find_neighbours
from clearway.engine.explain_power import find_power
from clearway.engine.explain_protected import find_protected
from clearway.engine.explain_room import (
    BLOCKERS_MAX,
    DEVICES_COME_UP,
    DEVICES_GIVEN_BACK,
    START_NOW,
    Finding,
    find_down,
    find_in_use,
    find_never,
    make_finding,
)
from clearway.engine.lifecycle import WAITING
from clearway.engine.reasons import REASON_PRIORITY, REASONS
from clearway.engine.records import Claim, JobRecord
from clearway.engine.scene import (
    Need,
    Scene,
    empty_scene,
    fits,
    make_need,
    present_scene,
    reservations_before,
    scene_beside,
)
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    DEVICE_OWNER,
    JOB_BYPASSED,
    JOB_CLASS,
    JOB_MILLI,
    JOB_PLANNED_MS,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_REPLICAS_MIN,
    JOB_SAVED_MS,
    JOB_WIDEST,
    NONE,
    PHASE_BLOCKED,
)
from clearway.engine.words import count_in_words, devices_in_words, jobs_in_words, time_in_words
from clearway.model.errors import InputError
from clearway.model.events import JobCancelled, JobStarted, TimerFired
from clearway.model.ids import JobId
from clearway.model.plan import Explanation, ReasonCode
from clearway.model.units import FOREVER_MS

HARMLESS = (
    ReasonCode.QUOTA,
    ReasonCode.QUEUE_LIMIT,
    ReasonCode.QUEUE_JOB_LIMIT,
    ReasonCode.HEADROOM,
    ReasonCode.NEVER_FITS,
)
"""Reasons of jobs that wait for a limit of their own, or can never start, and hold nobody up."""

KINDS_MAX = 256
"""Kinds of jobs ahead of which it is asked whether they could ever start; of more it is taken for granted."""


def explain(state: ClusterState, job: JobId) -> Explanation:
    """Why the job waits. Raises InputError when no job of this id waits or runs."""
    record = state.jobs.get(job)
    if record is None:
        raise InputError(
            f"job {job}: expected a job that waits or runs, found none of that number; it has ended or was never "
            f"accepted, and its history is in the journal"
        )
    if record.phase not in (*WAITING, PHASE_BLOCKED) or record.cancelled:
        return Explanation(job=job)
    findings = _find_all(state, record)
    fixes = [finding.fix for finding in findings if finding.fix]
    fix = next((fix for fix in fixes if fix.endswith(START_NOW)), fixes[0] if fixes else "")
    return Explanation(
        job=job,
        reasons=tuple(finding.reason for finding in findings),
        fix=fix,
        start_ms=planned_start_ms(state, record),
    )


def check_reasons(state: ClusterState) -> tuple[str, ...]:
    """A note for each job that waits without a reason, or with one that cannot be told; () when all is well."""
    notes = []
    for job, record in state.jobs.items():
        if record.phase not in (*WAITING, PHASE_BLOCKED) or record.cancelled:
            continue
        reasons = explain(state, job).reasons
        if not reasons:
            notes.append(f"job {job} waits without a reason")
        notes.extend(f"job {job}: {reason.code.name} has no message" for reason in reasons if not reason.message)
    return tuple(notes)


def planned_start_ms(state: ClusterState, record: JobRecord) -> int | None:
    """When the job is to start by its claim or its reservation, if all that runs ends as expected; None = no plan."""
    claim = state.claims.get(record.row)
    if claim is not None:
        return max(claim.start_ms, state.now_ms)
    index = _own_reservation(state, record)
    return None if index == NONE else max(int(state.box.res[RES_START, index]), state.now_ms)


def _own_reservation(state: ClusterState, record: JobRecord) -> int:
    """Which reservation is the job's, NONE if it has none."""
    if record.phase not in WAITING:
        return NONE
    rows = state.box.res[RES_JOB, : state.meta[META_RESERVATIONS]]
    places = np.flatnonzero(rows == record.row)
    return int(places[0]) if len(places) else NONE


def _find_all(state: ClusterState, record: JobRecord) -> list[Finding]:
    """Every reason, in the order in which they have to be put out of the way."""
    need = make_need(state, record, state.policy.least_replicas(record.spec))
    scene = present_scene(state)
    claim = state.claims.get(record.row)
    if claim is not None:
        return [_find_cleaning(state, claim)]
    blocks, limits = find_blocks(state, record), find_limits(scene, record, need)
    plain = without_closed(state, record, need)
    never = find_never(state, plain, lambda other: _what_forever(state, record, other, with_failed=True))
    if never is not None:
        return [*blocks, never, *limits]
    down = find_down(state, plain, lambda other: _what_forever(state, record, other, with_failed=False))
    closed = find_closed(state, record, need, plain) if down is None else None
    room = [one for one in (down, closed) if one is not None] or find_in_use(
        scene, need, lambda other: _what_else(scene, record, other)
    )
    if record.phase == PHASE_BLOCKED:
        return [*blocks, *limits, *room] if blocks else [*_as_recorded(state, record), *limits, *room]
    beside = [] if room else _find_reserved(scene, record, need)
    power = find_power(scene, record, need, has_room=not (room or beside))
    if limits or power:  # an earlier end alone would not do
        beside = [replace(finding, fix="") for finding in beside]
    if room and down is None and closed is None:
        room = [*room, *find_protected(scene, record, need), *find_budgeted(scene, record, need)]
    found = [*limits, *power, *room, *beside] or find_neighbours(state, record)
    found.extend(_find_ahead(state, record, waits_for_room=bool(room or beside or power) or not found))
    return found or _as_recorded(state, record)


def _what_else(scene: Scene, record: JobRecord, need: Need) -> str:
    """What keeps the job from starting now with another need for which there is room; "" = nothing."""
    state = scene.state
    found = find_blocks(state, record) or find_limits(scene, record, need)
    if record.phase == PHASE_BLOCKED and not found:
        found = _as_recorded(state, record)
    found = found or find_power(scene, record, need, has_room=True) or _find_reserved(scene, record, need)
    if found:
        return found[0].reason.message
    rows = rows_in_turn(state)
    places = np.flatnonzero(rows == record.row)
    ahead = _waiting_for_devices(state, rows[: places[0]]) if len(places) else rows[:0]
    return (
        f"jobs are ahead of it{_nothing_passes(state, ahead)}" if _nothing_passes(state, ahead) and len(ahead) else ""
    )


def _what_forever(state: ClusterState, record: JobRecord, need: Need, *, with_failed: bool) -> str:
    """What would keep the job from starting with another need even when nothing runs; "" = nothing.

    Of limits and power: what nothing that ends would lift. Of headroom: what is too little of an empty cluster.
    """
    empty = empty_scene(state, with_failed=with_failed)
    found = [*find_limits(empty, record, need), *find_power(empty, record, need, has_room=False)]
    for one in (finding.reason for finding in found):
        if one.code is ReasonCode.HEADROOM or set(DEVICES_GIVEN_BACK).isdisjoint(one.helped_by):
            return one.message
    return ""


def _as_recorded(state: ClusterState, record: JobRecord) -> list[Finding]:
    """What the planner wrote down, where nothing else explains it."""
    code = REASONS[int(state.rows.table[JOB_REASON, record.row])] if record.blocked is None else record.blocked
    if code is ReasonCode.PRIORITY:
        return []
    return [make_finding(code, "as the last cycle found", helped_by=(*DEVICES_GIVEN_BACK, *DEVICES_COME_UP))]


def _find_cleaning(state: ClusterState, claim: Claim) -> Finding:
    """Devices are kept for the job by name, and some of them are still held."""
    owners = state.inventory.devices[DEVICE_OWNER, claim.allocation.devices]
    rows = list(dict.fromkeys(owners[owners != NONE].tolist()))
    jobs = tuple(state.by_row[row].spec.id for row in rows)
    held = f"; {jobs_in_words(jobs[:BLOCKERS_MAX])} must leave first" if jobs else ""
    count = len(claim.allocation.devices)
    kept = f"{count_in_words(count, 'device')} {'is' if count == 1 else 'are'}" if count else "room is"
    text = f"{kept} kept for it{held}"
    return make_finding(ReasonCode.CLEANING, text, blockers=jobs, helped_by=DEVICES_GIVEN_BACK)


def _find_reserved(scene: Scene, record: JobRecord, need: Need) -> list[Finding]:
    """There is room now, but not beside the reservations of jobs ahead."""
    state = scene.state
    own = _own_reservation(state, record)
    count = int(state.meta[META_RESERVATIONS]) if own == NONE else own
    end_ms = _expected_end_ms(state, record)
    before = reservations_before(state, end_ms, count)
    if not before or fits(scene_beside(scene, before), need):
        return []
    jobs = tuple(state.by_row[int(state.box.res[RES_JOB, index])].spec.id for index in before)
    start_ms = min(int(state.box.res[RES_START, index]) for index in before)
    free, them = ("devices are free", "them") if need.devices > 0 else ("there is room", "it")
    text = f"{free}, but {jobs_in_words(jobs[:BLOCKERS_MAX])} ahead of it "
    text += f"{'is' if len(jobs) == 1 else 'are'} to have {them}, the first in {time_in_words(start_ms - state.now_ms)}"
    latest = _latest_harmless_end_ms(scene, need, before)
    fix = f"if it were to end within {time_in_words(latest - state.now_ms)} (time limit or estimate) {START_NOW}"
    finding = make_finding(
        ReasonCode.RESERVED,
        text,
        fix=fix,
        needed_milli=need.milli,
        blockers=jobs,
        helped_by=(*DEVICES_GIVEN_BACK, JobStarted.__name__, JobCancelled.__name__),
    )
    return [finding]


def _expected_end_ms(state: ClusterState, record: JobRecord) -> int:
    """When the job would be expected to end if it started now with all its replicas."""
    planned = int(state.rows.table[JOB_PLANNED_MS, record.row])
    if planned >= FOREVER_MS:
        return FOREVER_MS
    return state.now_ms + max(planned - int(state.rows.table[JOB_SAVED_MS, record.row]), 1)


def _latest_harmless_end_ms(scene: Scene, need: Need, reservations: list[int]) -> int:
    """The latest of the reservations' starts by which the job would have to end to start now."""
    starts = sorted({int(scene.state.box.res[RES_START, index]) for index in reservations})
    latest = starts[0]
    for start_ms in starts[1:]:
        before = [index for index in reservations if scene.state.box.res[RES_START, index] < start_ms]
        if not fits(scene_beside(scene, before), need):
            break
        latest = start_ms
    return latest


def _find_ahead(state: ClusterState, record: JobRecord, *, waits_for_room: bool) -> list[Finding]:
    """Jobs ahead of it wait for devices too, and come first; or the cycle ended before the job was looked at."""
    rows = rows_in_turn(state)
    places = np.flatnonzero(rows == record.row)
    if len(places) == 0:
        return [make_finding(ReasonCode.PRIORITY, "was not looked at yet", helped_by=(TimerFired.__name__,))]
    if places[0] >= state.policy.scan_max and state.rows.table[JOB_REASON, record.row] == REASON_PRIORITY:
        text = f"a cycle looks at {state.policy.scan_max} waiting jobs, and as many are ahead of it; the next goes on"
        return [make_finding(ReasonCode.CYCLE_CUT, text, helped_by=(TimerFired.__name__,))]
    ahead = _waiting_for_devices(state, rows[: places[0]])
    if not _nothing_passes(state, ahead):
        ahead = _able_to_start(state, ahead)
    if len(ahead) == 0 or not waits_for_room:
        return []
    jobs = tuple(state.by_row[row].spec.id for row in ahead[:BLOCKERS_MAX].tolist())
    milli = int(state.rows.table[JOB_MILLI, ahead].sum())
    text = f"{jobs_in_words(jobs, len(ahead) - len(jobs))} ahead of it "
    verb = "ask" if milli > 0 else "wait"
    text += f"{verb}{'s' if len(ahead) == 1 else ''}{f' for {devices_in_words(milli)}' if milli > 0 else ' too'}"
    text += _nothing_passes(state, ahead)
    helped_by = (JobStarted.__name__, JobCancelled.__name__, *DEVICES_GIVEN_BACK)
    return [make_finding(ReasonCode.PRIORITY, text, blockers=jobs, helped_by=helped_by)]


def _waiting_for_devices(state: ClusterState, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the rows whose jobs may hold others up."""
    harmless = [REASONS.index(code) for code in HARMLESS]
    waiting: NDArray[np.int64] = rows[~np.isin(state.rows.table[JOB_REASON, rows], harmless)]
    return waiting


def _able_to_start(state: ClusterState, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the rows whose jobs would fit if nothing ran and nothing were down. The planner writes down that one
    never does only where it would make a reservation for it."""
    replicas = state.rows.table[JOB_REPLICAS_MIN if state.policy.elasticity.enabled else JOB_REPLICAS, rows]
    kinds = np.stack([state.rows.table[JOB_CLASS, rows], state.rows.table[JOB_WIDEST, rows], replicas])
    _, first, kind = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    is_able = np.ones(len(first), dtype=np.bool_)
    scene = empty_scene(state, with_failed=True)
    for place, row in enumerate(rows[first[:KINDS_MAX]].tolist()):
        record = state.by_row[row]
        is_able[place] = fits(scene, make_need(state, record, state.policy.least_replicas(record.spec)))
    able: NDArray[np.int64] = rows[is_able[kind.reshape(-1)]]
    return able


def _nothing_passes(state: ClusterState, ahead: NDArray[np.int64]) -> str:
    """Whether later jobs may start before those ahead, where they may not."""
    backfill = state.policy.backfill
    if backfill.strict:
        return ", and the policy lets nothing pass"
    if (state.rows.table[JOB_BYPASSED, ahead] >= backfill.bypass_max).any():
        return ", and nothing passes any more: one of them was passed too often"
    return ""
