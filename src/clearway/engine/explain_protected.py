"""Why a job that may have others preempted waits all the same: each start is protected for a while."""

from bisect import bisect_left

import numpy as np

from clearway.engine.explain_room import BLOCKERS_MAX, Finding, make_finding
from clearway.engine.records import JobRecord
from clearway.engine.scene import Need, Scene, fits, scene_without_jobs
from clearway.engine.tables import JOB_PROTECTED_MS
from clearway.engine.victims import may_be_evicted
from clearway.engine.words import jobs_in_words, time_in_words
from clearway.model.events import TimerFired
from clearway.model.plan import ReasonCode


def find_protected(scene: Scene, record: JobRecord, need: Need) -> list[Finding]:
    """The jobs that would have to leave for it and may not be told so yet; none where those that may are enough, or all
    together are not."""
    state = scene.state
    rows = may_be_evicted(state, record.row)
    until = state.rows.table[JOB_PROTECTED_MS, rows]
    gone = [state.by_row[row] for row in rows[until <= state.now_ms].tolist()]
    if fits(scene_without_jobs(scene, gone), need):
        return []
    protected = rows[until > state.now_ms]
    protected = protected[np.argsort(state.rows.table[JOB_PROTECTED_MS, protected], kind="stable")]
    waiting = [state.by_row[row] for row in protected.tolist()]

    def is_enough(count: int) -> bool:
        return fits(scene_without_jobs(scene, [*gone, *waiting[:count]]), need)

    if not is_enough(len(waiting)):
        return []
    waited = waiting[: bisect_left(range(len(waiting)), True, key=is_enough)]
    jobs = tuple(other.spec.id for other in waited)
    left_ms = int(state.rows.table[JOB_PROTECTED_MS, waited[-1].row]) - state.now_ms
    protection = time_in_words(state.policy.preemption.protection_ms)
    text = f"{jobs_in_words(jobs[:BLOCKERS_MAX], max(len(jobs) - BLOCKERS_MAX, 0))} would be preempted for it, "
    text += f"but not before {time_in_words(left_ms)} from now: a job that has started is left alone for {protection}"
    if any(state.jobs[job].futile >= 2 for job in jobs):
        text += ", and longer where its starts before were for nothing"
    return [make_finding(ReasonCode.RESOURCES, text, blockers=jobs, helped_by=(TimerFired.__name__,))]
