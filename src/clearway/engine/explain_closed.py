"""Why a job waits that would have room on nodes which are kept from its user (`closed`)."""

from dataclasses import replace

from clearway.engine.explain_room import Finding, make_finding
from clearway.engine.records import JobRecord
from clearway.engine.scene import Need, empty_scene, fits, present_scene
from clearway.engine.state import ClusterState
from clearway.engine.tables import CLASS_LABELS
from clearway.model.events import NodeAdded, NodeOpened
from clearway.model.plan import ReasonCode


def without_closed(state: ClusterState, record: JobRecord, need: Need) -> Need:
    """The need as if no node were kept from the user."""
    spec = record.spec
    plain = state.classes.numbers.get((spec.request, spec.network.fabric))
    if plain is None or spec.user not in state.closed:
        return need
    return replace(need, labels=int(state.classes.table[CLASS_LABELS, plain]))


def find_closed(state: ClusterState, record: JobRecord, need: Need, plain: Need) -> Finding | None:
    """The job would have room, or would get it, were it not for nodes that are kept from its user."""
    if need == plain or fits(present_scene(state), need):
        return None
    if fits(empty_scene(state, with_failed=False), need) and not fits(present_scene(state), plain):
        return None  # it waits for others in any case
    told = "; ".join(f"{node}: {why}" for node, why in state.closed[record.spec.user].items())
    return make_finding(
        ReasonCode.LAUNCH_FAILED,
        f"nodes are kept from jobs of {record.spec.user} ({told})",
        fix="an operator who knows that the node is well may let it be used: clearway undrain",
        needed_milli=need.milli,
        helped_by=(NodeOpened.__name__, NodeAdded.__name__),
    )
