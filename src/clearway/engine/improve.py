"""Steps 6 to 8 of the cycle: what to change about jobs that run, for those that wait."""

from typing import Final

from clearway.engine.choose import suitable_pools
from clearway.engine.elastic import enlarge_starts, grow_jobs
from clearway.engine.policy import Policy, PreemptMode
from clearway.engine.preempt import HELPED_REASONS, Room, make_room
from clearway.engine.state import ClusterState
from clearway.engine.tables import JOB_CLASS, JOB_REASON, POOL_FREE, POOL_SHARED
from clearway.engine.trial import Trial
from clearway.model.plan import Move

LOOKED_MAX: Final = 64
"""Waiting jobs looked at per cycle for whether they could use what is free."""


def touches_running(policy: Policy) -> bool:
    """Whether the policy ever changes a running job."""
    return policy.preemption.mode is not PreemptMode.NEVER or policy.elasticity.enabled


def improve_plan(
    trial: Trial,
    planned: list[Move],
    started: frozenset[int],
    stopped: frozenset[int],
    tried: set[int],
    *,
    goes_on: bool,
) -> Room:
    """Moves of running jobs, given that the plan's starts are held in the tables. The trial is left as it was.

    planned: moves of the plan whose starts may be made larger, or put off. The rest: see `make_room`.
    """
    state, policy = trial.state, trial.state.policy
    mark = trial.mark()
    try:
        room = make_room(trial, planned, started, stopped, tried, goes_on=goes_on)
        if policy.elasticity.enabled and not room.moves and not _someone_waits(state, started):
            enlarge_starts(trial, planned)
            room.moves.extend(grow_jobs(trial, stopped))
    finally:
        trial.undo_to(mark)
    return room


def _someone_waits(state: ClusterState, started: frozenset[int]) -> bool:
    """Whether a waiting job could use what is free, or comes free: jobs that grew would only have to shrink for it."""
    table, pools = state.rows.table, state.inventory.pools[:, : state.inventory.pool_count]
    first = state.order.waiting()[: LOOKED_MAX + len(started)].tolist()
    rows = [row for row in first if row not in started and table[JOB_REASON, row] in HELPED_REASONS]
    if state.claims or any(state.by_row[row].spec.request.devices == 0 for row in rows):
        return True
    free = (pools[POOL_FREE] > 0) | (pools[POOL_SHARED] > 0)
    kinds = {int(table[JOB_CLASS, row]): row for row in rows}
    return any((suitable_pools(state, row) & free).any() for row in kinds.values())
