"""What a caller may see of the cluster, of plans and of explanations: other tenants' jobs are not named."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from clearway.model.ids import JobId, NodeName
from clearway.model.plan import (
    Cap,
    Explanation,
    Migrate,
    Move,
    Plan,
    Rejection,
    Reserve,
    Resize,
    Start,
    Stop,
    Suspend,
)
from clearway.ports.views import ClusterView, NodeView, TenantView
from clearway.server.access import Reach
from clearway.wire.api import NOT_SHOWN, MoveView, PlanView

Seen = Callable[[JobId], bool]
"""Whether the caller may see a job."""

_JOBS_NAMED: Final = re.compile(r"\b(jobs?) (\d+(?:(?:, | and )\d+)*?)( and \d+ more)?(?!\d|, \d| and \d)")


def show_cluster(cluster: ClusterView, reach: Reach, seen: Seen) -> ClusterView:
    """The cluster as this caller may see it."""
    if reach.tenants is None:
        return cluster
    return replace(
        cluster,
        nodes=tuple(show_node(node, seen) for node in cluster.nodes),
        tenants=show_tenants(cluster.tenants, reach),
        storage_error="the storage fails; ask an operator" if cluster.storage_error else "",
    )


def show_node(node: NodeView, seen: Seen) -> NodeView:
    """The node, with owners whom the caller may not see as NOT_SHOWN."""
    if all(seen(job) for device in node.devices for job, _ in device.owners):
        return node
    devices = tuple(
        replace(device, owners=tuple((job if seen(job) else NOT_SHOWN, milli) for job, milli in device.owners))
        for device in node.devices
    )
    return replace(node, devices=devices)


def show_tenants(tenants: Iterable[TenantView], reach: Reach) -> tuple[TenantView, ...]:
    """The tenants that the caller sees; a parent that he does not see is not named."""
    return tuple(
        tenant if tenant.parent is None or reach.sees(tenant.parent) else replace(tenant, parent=None)
        for tenant in tenants
        if reach.sees(tenant.name)
    )


def owners_of(nodes: Iterable[NodeView]) -> tuple[JobId, ...]:
    """Jobs that hold devices of these nodes."""
    return tuple(dict.fromkeys(job for node in nodes for device in node.devices for job, _ in device.owners))


def jobs_of(plans: Iterable[tuple[int, Plan]]) -> tuple[JobId, ...]:
    """Jobs that are named in plans."""
    named: dict[JobId, None] = {}
    for _, plan in plans:
        for move in plan.moves:
            for job in (getattr(move, "job", None), getattr(move, "beneficiary", None)):
                if job is not None:
                    named[job] = None
    return tuple(named)


def show_plan(at_ms: int, plan: Plan, nodes: tuple[NodeName, ...], reach: Reach, seen: Seen) -> PlanView:
    """A plan with those of its moves that the caller may see. nodes: names, in the order in which they were added."""
    is_whole = reach.tenants is None
    shown = [move for move in plan.moves if is_whole or (not isinstance(move, Cap) and seen(move.job))]
    return PlanView(
        at_ms=at_ms,
        moves=tuple(_show_move(move, nodes, seen) for move in shown),
        hidden=len(plan.moves) - len(shown),
        cut_short=plan.cut_short,
        notes=plan.notes if is_whole else (),
    )


def _show_move(move: Move, nodes: tuple[NodeName, ...], seen: Seen) -> MoveView:
    kind = type(move).__name__.lower()
    match move:
        case Cap():
            return MoveView(kind=kind, nodes=_name_nodes((move.node,), nodes), watts=move.watts)
        case Reserve():
            held = move.allocation
            named = _name_nodes(held.nodes.tolist(), nodes)
            return MoveView(kind=kind, job=move.job, replicas=held.replicas, nodes=named, start_ms=move.start_ms)
        case Stop():
            return MoveView(
                kind=kind,
                job=move.job,
                generation=move.generation,
                beneficiary=_show_job(move.beneficiary, seen),
                cause=move.cause or "",
                grace_ms=move.grace_ms,
            )
        case Suspend():
            benefits = _show_job(move.beneficiary, seen)
            return MoveView(kind=kind, job=move.job, generation=move.generation, beneficiary=benefits)
        case Start() | Resize() | Migrate():
            return MoveView(
                kind=kind,
                job=move.job,
                generation=move.generation,
                replicas=move.allocation.replicas,
                nodes=_name_nodes(move.allocation.nodes.tolist(), nodes),
                beneficiary=None if isinstance(move, Start) else _show_job(move.beneficiary, seen),
            )


def _show_job(job: JobId | None, seen: Seen) -> JobId | None:
    return job if job is None or seen(job) else NOT_SHOWN


def _name_nodes(indices: Iterable[int], nodes: tuple[NodeName, ...]) -> tuple[str, ...]:
    return tuple(nodes[index] if index < len(nodes) else f"#{index}" for index in dict.fromkeys(indices))


def show_explanation(explanation: Explanation, seen: Seen) -> Explanation:
    """The explanation without the numbers of jobs that the caller may not see."""
    if all(seen(job) for job in _jobs_in(explanation)):
        return explanation
    return replace(
        explanation,
        reasons=tuple(_show_reason(reason, seen) for reason in explanation.reasons),
        fix=_show_text(explanation.fix, seen),
    )


def jobs_in(explanation: Explanation) -> tuple[JobId, ...]:
    """Jobs that an explanation names, as data or in its words."""
    return tuple(dict.fromkeys(_jobs_in(explanation)))


def _jobs_in(explanation: Explanation) -> Iterable[JobId]:
    texts = [explanation.fix, *(reason.message for reason in explanation.reasons)]
    named = (number for text in texts for match in _JOBS_NAMED.finditer(text) for number in _numbers(match[2]))
    return (*explanation.blockers, *named)


def _numbers(text: str) -> list[JobId]:
    return [JobId(int(number)) for number in re.findall(r"\d+", text)]


def _show_reason(reason: Rejection, seen: Seen) -> Rejection:
    shown = tuple(job for job in reason.blockers if seen(job))
    return replace(reason, message=_show_text(reason.message, seen), blockers=shown)


def _show_text(text: str, seen: Seen) -> str:
    def show(match: re.Match[str]) -> str:
        if all(seen(job) for job in _numbers(match[2])):
            return match[0]
        return "a job of another tenant" if match[1] == "job" else "jobs of other tenants"

    return _JOBS_NAMED.sub(show, text)


def count_states(states: Iterable[str]) -> Mapping[str, int]:
    """How many there are of each."""
    counts: dict[str, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts
