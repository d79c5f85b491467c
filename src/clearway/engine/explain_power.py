"""Why a job for which there is room may not start: the site's power budget (step 10)."""

import numpy as np

from clearway.engine.explain_room import DEVICES_GIVEN_BACK, Finding, make_finding
from clearway.engine.power import PowerAccount
from clearway.engine.reasons import REASON_POWER
from clearway.engine.records import JobRecord
from clearway.engine.scene import Need, Scene, suits_pools
from clearway.engine.tables import JOB_REASON, JOB_WATTS_MS
from clearway.engine.words import devices_in_words, power_in_words, time_in_words
from clearway.model.events import PowerBudgetSet
from clearway.model.plan import ReasonCode
from clearway.model.power import FLOOR_PERCENT
from clearway.model.units import FOREVER_MS, MILLI


def find_power(scene: Scene, record: JobRecord, need: Need, *, has_room: bool) -> list[Finding]:
    """The budget does not hold with the job's devices in use, though all were capped to their floor.

    The account takes the devices that would draw least, wherever they are; where only that would fit, the planner's own
    choice did not, and its word stands.
    """
    state = scene.state
    budget = state.power_budget_watts
    was_refused = state.rows.table[JOB_REASON, record.row] == REASON_POWER
    watts_ms = int(state.rows.table[JOB_WATTS_MS, record.row])
    if budget is None or need.milli == 0:
        return []
    account = PowerAccount(state)
    each = (account.least - account.idle)[suits_pools(scene, need)[account.pool]]
    added = int(np.sort(each)[: -(-need.milli // MILLI)].sum())
    drawn, idle = account.least_watts(), account.idle_watts()
    can_wait = idle + added <= budget
    is_late = watts_ms > state.now_ms and not has_room
    if can_wait and not was_refused and not is_late and not (has_room and drawn + added > budget):
        return []
    text = f"with every used device capped at {FLOOR_PERCENT} % all devices draw {power_in_words(drawn)} of at most "
    text += f"{power_in_words(budget)}; its start adds {power_in_words(added)}"
    if not can_wait:
        text += f", and even an idle cluster leaves only {power_in_words(max(budget - idle, 0))}"
    elif is_late:
        when = "at no time that is known" if watts_ms >= FOREVER_MS else f"in {time_in_words(watts_ms - state.now_ms)}"
        text += f", which are to be had {when}"
    finding = make_finding(
        ReasonCode.POWER,
        text,
        fix=_fix(budget - drawn, added, need, more=drawn + added - budget),
        needed_milli=need.milli,
        helped_by=(*(DEVICES_GIVEN_BACK if can_wait else ()), PowerBudgetSet.__name__),
    )
    return [finding]


def _fix(left: int, added: int, need: Need, *, more: int) -> str:
    """Ask for so much less that it fits, or give the site so much more."""
    fewer = need.milli // MILLI * max(left, 0) // max(added, 1)
    if 1 <= fewer < need.milli // MILLI:
        return f"ask for at most {devices_in_words(fewer * MILLI)}"
    return f"raise the power budget by {power_in_words(more)}" if more > 0 else ""
