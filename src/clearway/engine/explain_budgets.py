"""Why a job that may have others preempted waits all the same: budgets let none of them leave at present."""

from bisect import bisect_left

from clearway.engine.budgets import Purse, is_leaving
from clearway.engine.explain_room import BLOCKERS_MAX, Finding, make_finding
from clearway.engine.records import JobRecord
from clearway.engine.scene import Need, Scene, fits, scene_without_jobs
from clearway.engine.tables import JOB_PROTECTED_MS
from clearway.engine.victims import may_be_evicted
from clearway.engine.words import jobs_in_words, list_in_words
from clearway.model.events import BudgetsChanged
from clearway.model.plan import ReasonCode


def find_budgeted(scene: Scene, record: JobRecord, need: Need) -> list[Finding]:
    """The jobs that would have to leave for it and are not let by their budgets; none where those that may are enough,
    or all together are not."""
    state = scene.state
    if not state.budgeted:
        return []
    purse = Purse(state)
    at_first = dict(purse.left)
    gone: list[JobRecord] = []
    kept: list[JobRecord] = []
    for row in may_be_evicted(state, record.row).tolist():
        other = state.by_row[row]
        if is_leaving(other):
            continue
        if not purse.allows(other.spec.id):
            kept.append(other)
        elif state.rows.table[JOB_PROTECTED_MS, row] <= state.now_ms:
            purse.pay(other.spec.id)
            gone.append(other)
    if not kept or fits(scene_without_jobs(scene, gone), need):
        return []

    def is_enough(count: int) -> bool:
        return fits(scene_without_jobs(scene, [*gone, *kept[:count]]), need)

    if not is_enough(len(kept)):
        return []
    needed = kept[: bisect_left(range(len(kept)), True, key=is_enough)]
    jobs = tuple(other.spec.id for other in needed)
    names = tuple(dict.fromkeys(name for job in jobs for name in purse.names_of(job)))
    left = [f"{name} (which lets {max(at_first[name], 0)} more leave)" for name in names[:BLOCKERS_MAX]]
    text = f"{jobs_in_words(jobs[:BLOCKERS_MAX], max(len(jobs) - BLOCKERS_MAX, 0))} would be preempted for it, "
    text += f"but may not be told to leave now by {list_in_words(left)}"
    return [make_finding(ReasonCode.RESOURCES, text, blockers=jobs, helped_by=(BudgetsChanged.__name__,))]
