"""Why a job that would have room may not go there: its rules about neighbours."""

from clearway.engine.explain_room import DEVICES_COME_UP, DEVICES_GIVEN_BACK, Finding, make_finding
from clearway.engine.reasons import REASON_NEIGHBOURS
from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
from clearway.engine.tables import JOB_REASON
from clearway.engine.words import list_in_words
from clearway.model.events import JobStarted, NodeChanged
from clearway.model.neighbours import NeighbourKind, NeighbourRule
from clearway.model.plan import ReasonCode

RULES_NAMED_MAX = 3
"""Rules named in one sentence."""


def find_neighbours(state: ClusterState, record: JobRecord) -> list[Finding]:
    """The last cycle found room for the job, but none where its rules let it lie."""
    if state.rows.table[JOB_REASON, record.row] != REASON_NEIGHBOURS:
        return []
    request = record.spec.request
    rules = [f"given {amount} {name}" for name, amount in request.extras]
    rules += [_in_words(rule) for rule in request.neighbours if rule.weight == 0]
    rest = len(rules) - RULES_NAMED_MAX
    named = [*rules[:RULES_NAMED_MAX], *([f"{rest} more rules"] if rest > 0 else [])]
    text = f"there is room, but none where all replicas are {list_in_words(named)}"
    helped_by = (*DEVICES_GIVEN_BACK, *DEVICES_COME_UP, JobStarted.__name__, NodeChanged.__name__)
    return [make_finding(ReasonCode.NEIGHBOURS, text, helped_by=helped_by)]


def _in_words(rule: NeighbourRule) -> str:
    match rule.kind:
        case NeighbourKind.APART:
            return f"apart from {rule.crowd}".removesuffix(f" by {rule.domain}") + f" by {rule.domain}"
        case NeighbourKind.BESIDE:
            return f"beside {rule.crowd} in one {rule.domain}"
    return f"spread with {rule.crowd} over {rule.domain}, {rule.skew} more at most than where fewest are"
