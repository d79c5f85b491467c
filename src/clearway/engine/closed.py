"""Nodes that are kept from a user, because starts of his failed there: his jobs ask for others."""

from dataclasses import replace
from typing import TYPE_CHECKING

from clearway.engine.tables import JOB_CLASS
from clearway.model.jobs import JobSpec, Request

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState


def asked_of(state: "ClusterState", spec: JobSpec) -> Request:
    """What the job asks, on none of the nodes that are kept from its user. Jobs with rules about neighbours are left as
    they are: their crowds are counted by what they ask."""
    closed = state.closed.get(spec.user) if state.closed else None
    request = spec.request
    if not closed or request.crowds or request.neighbours or request.extras:
        return request
    return replace(request, nodes_excluded=tuple(sorted({*request.nodes_excluded, *closed})))


def close_nodes(state: "ClusterState", user: str, nodes: dict[str, str]) -> None:
    """From now on these are kept from the user, and no others. nodes: by name, why."""
    state.closed.pop(user, None)
    if nodes:
        state.closed[user] = nodes
    for record in [record for record in state.jobs.values() if record.spec.user == user]:
        state.unclaim(record.row)
        number = state.classes.number(asked_of(state, record.spec), record.spec.network.fabric, state.inventory)
        state.rows.table[JOB_CLASS, record.row] = number
    state.capacity_grew = True
    state.refresh_box_if_grown()
