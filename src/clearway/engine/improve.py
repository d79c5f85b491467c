"""Steps 6 to 8 of the cycle: what to change about jobs that run, for those that wait."""

from clearway.engine.elastic import enlarge_starts, grow_jobs
from clearway.engine.policy import Policy, PreemptMode
from clearway.engine.preempt import HELPED_REASONS, LOOKED_MAX, make_room
from clearway.engine.state import ClusterState
from clearway.engine.tables import JOB_CLAIMED, JOB_REASON
from clearway.engine.trial import Trial
from clearway.model.plan import Move


def touches_running(policy: Policy) -> bool:
    """Whether the policy ever changes a running job."""
    return policy.preemption.mode is not PreemptMode.NEVER or policy.elasticity.enabled


def improve_plan(
    trial: Trial, planned: list[Move], started: frozenset[int], stopped: frozenset[int], tried: set[int]
) -> list[Move]:
    """Moves of running jobs, given that the plan's starts are held in the tables. The trial is left as it was.

    planned: moves of the plan whose starts may be made larger. stopped: rows of running jobs that the plan tells to
    stop. tried: see `make_room`.
    """
    state, policy = trial.state, trial.state.policy
    mark = trial.mark()
    moves: list[Move] = []
    try:
        moves.extend(make_room(trial, started, stopped, tried))
        if policy.elasticity.enabled and not moves and not _someone_waits(state, started):
            enlarge_starts(trial, planned)
            moves.extend(grow_jobs(trial, stopped))
    finally:
        trial.undo_to(mark)
    return moves


def _someone_waits(state: ClusterState, started: frozenset[int]) -> bool:
    """Whether a waiting job could use devices that come free."""
    rows = state.order.waiting()[: LOOKED_MAX + len(started)].tolist()
    table = state.rows.table
    return any(
        table[JOB_CLAIMED, row] == 1 or table[JOB_REASON, row] in HELPED_REASONS for row in rows if row not in started
    )
