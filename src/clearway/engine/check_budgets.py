"""The checker's part about budgets: whether those that a plan has leave for others may, all together."""

from collections import Counter

from clearway.engine.state import ClusterState
from clearway.engine.tables import PHASE_STOPPING
from clearway.model.ids import JobId
from clearway.model.plan import Migrate, Plan, Resize, Stop, Suspend


def check_budgets(state: ClusterState, plan: Plan) -> list[str]:
    """A note for each budget that the plan exceeds by having jobs leave for others."""
    leaving = [
        move.job
        for move in plan.moves
        if isinstance(move, Stop | Suspend | Resize | Migrate) and move.beneficiary is not None
    ]
    if not any(job in state.budgeted for job in leaving):
        return []
    spent: Counter[str] = Counter()
    told = (job for job in state.budgeted if _has_been_told(state, job))
    for job in dict.fromkeys((*leaving, *told)):
        for name, count in state.budgeted.get(job, ()):
            spent[name] += count
    asked = {name for job in leaving for name, _ in state.budgeted.get(job, ())}
    return [
        f"budget {name}: {state.budgets[name]} replicas may leave, found {spent[name]} that are to"
        for name in sorted(asked)
        if name in state.budgets and spent[name] > state.budgets[name]
    ]


def _has_been_told(state: ClusterState, job: JobId) -> bool:
    record = state.jobs.get(job)
    return record is not None and (record.phase == PHASE_STOPPING or record.target is not None)
