"""Routes of the cluster: nodes, queues, tenants, plans, events, and logs of jobs."""

from typing import Annotated

from fastapi import Path, Query, Request, Response

from clearway.model.ids import NodeName
from clearway.ports.snapshot import ClusterSnapshot
from clearway.ports.views import ClusterView, NodeView, QueueView, TenantView
from clearway.server.logs import check_replica, find_log, read_part
from clearway.server.problems import Refusal
from clearway.server.routes_jobs import JobNumber
from clearway.server.routing import PROBLEMS, make_router, row_response, rows_response
from clearway.server.services import Services, services_of
from clearway.server.shown import jobs_of, owners_of, show_cluster, show_node, show_plan, show_tenants
from clearway.server.streams import follow_events, follow_log, read_last_id, read_last_offset, stream_response
from clearway.wire.api import API, PlanView
from clearway.wire.api_requests import DrainModel, EventParams, FollowParams, LogParams
from clearway.wire.problems import suggest_name

router = make_router()

NodeText = Annotated[str, Path(min_length=1, max_length=256, description="The node's name.")]


# --- the cluster ------------------------------------------------------------------------------------------------------


@router.get(f"{API}/cluster", response_model=ClusterView, responses=PROBLEMS, tags=["cluster"])
async def get_cluster(request: Request) -> Response:
    """Nodes, queues and tenants at one moment. Devices that other tenants hold name job 0."""
    services = services_of(request)
    reach, cluster = await services.reach(request), await services.read(services.control.cluster)
    seen = await services.seen_among(reach, owners_of(cluster.nodes))
    return row_response(show_cluster(cluster, reach, seen))


@router.get(f"{API}/nodes", response_model=list[NodeView], responses=PROBLEMS, tags=["cluster"])
async def list_nodes(request: Request) -> Response:
    """All nodes with their devices."""
    services = services_of(request)
    reach, cluster = await services.reach(request), await services.read(services.control.cluster)
    seen = await services.seen_among(reach, owners_of(cluster.nodes))
    return rows_response(show_node(node, seen) for node in cluster.nodes)


@router.get(f"{API}/nodes/{{node}}", response_model=NodeView, responses=PROBLEMS, tags=["cluster"])
async def get_node(request: Request, node: NodeText) -> Response:
    """One node with its devices."""
    services = services_of(request)
    reach, view = await services.reach(request), await _find_node(services, node)
    return row_response(show_node(view, await services.seen_among(reach, owners_of((view,)))))


@router.post(f"{API}/nodes/{{node}}/drain", response_model=NodeView, responses=PROBLEMS, tags=["cluster"])
async def drain_node(request: Request, node: NodeText, body: DrainModel) -> Response:
    """Nothing new starts on the node; what runs there goes on. The answer is the node as it is then."""
    services = services_of(request)
    view = await _find_node(services, node)
    actor = request.scope["clearway.identity"].user
    await services.answer(services.control.drain(view.name, reason=body.reason, actor=actor))
    return row_response(await _find_node(services, node))


@router.post(f"{API}/nodes/{{node}}/undrain", response_model=NodeView, responses=PROBLEMS, tags=["cluster"])
async def undrain_node(request: Request, node: NodeText) -> Response:
    """The node may be used again. The answer is the node as it is then."""
    services = services_of(request)
    view = await _find_node(services, node)
    actor = request.scope["clearway.identity"].user
    await services.answer(services.control.undrain(view.name, actor=actor))
    return row_response(await _find_node(services, node))


@router.get(f"{API}/queues", response_model=list[QueueView], responses=PROBLEMS, tags=["cluster"])
async def list_queues(request: Request) -> Response:
    """All queues: their limits, what waits and what runs."""
    return rows_response((await services_of(request).read(services_of(request).control.cluster)).queues)


@router.get(f"{API}/tenants", response_model=list[TenantView], responses=PROBLEMS, tags=["cluster"])
async def list_tenants(request: Request) -> Response:
    """The tenants that the caller may see: their quotas and what they hold."""
    services = services_of(request)
    reach, cluster = await services.reach(request), await services.read(services.control.cluster)
    return rows_response(show_tenants(cluster.tenants, reach))


@router.get(f"{API}/plans", response_model=list[PlanView], responses=PROBLEMS, tags=["cluster"])
async def list_plans(request: Request) -> Response:
    """The last plans that moved anything, oldest first, with the moves of jobs that the caller may see."""
    services = services_of(request)
    reach, plans = await services.reach(request), services.control.plans()
    nodes = tuple(node.name for node in (await services.read(services.control.cluster)).nodes)
    seen = await services.seen_among(reach, jobs_of(plans))
    shown = (show_plan(at_ms, plan, nodes, reach, seen) for at_ms, plan in plans)
    return rows_response(plan for plan in shown if plan.moves or reach.tenants is None)


@router.get(f"{API}/snapshot", response_model=ClusterSnapshot, responses=PROBLEMS, tags=["cluster"])
async def get_snapshot(request: Request) -> Response:
    """Nodes, queues, tenants and all jobs that have not ended, of all tenants, as a twin needs them."""
    services = services_of(request)
    snapshot = await services.answer(services.control.snapshot())
    return row_response(snapshot)


async def _find_node(services: Services, name: str) -> NodeView:
    nodes = {node.name: node for node in (await services.read(services.control.cluster)).nodes}
    node = nodes.get(NodeName(name))
    if node is None:
        raise Refusal(
            404, f"expected the name of a node, found {name!r:.80}; {suggest_name(name, nodes) or 'see /nodes'}"
        )
    return node


# --- events and logs --------------------------------------------------------------------------------------------------


@router.get(f"{API}/events", responses={**PROBLEMS, 200: {"content": {"text/event-stream": {}}}}, tags=["cluster"])
async def get_events(request: Request, params: Annotated[EventParams, Query()]) -> Response:
    """What changes, as it changes, as server-sent events. With `Last-Event-ID` from behind that event on, as far back
    as the server remembers; `gap` says that something in between is lost: look again at what you show."""
    services, last_id = services_of(request), read_last_id(request)
    return stream_response(services, follow_events(request, services, frozenset(params.kind), last_id))


@router.get(
    f"{API}/jobs/{{job}}/logs",
    responses={**PROBLEMS, 200: {"content": {"application/octet-stream": {}}}},
    tags=["jobs"],
)
async def get_log(request: Request, job: JobNumber, params: Annotated[LogParams, Query()]) -> Response:
    """Part of what a job wrote. Headers say where it lies (`X-Log-Offset`), how long the log is so far (`X-Log-Size`),
    and whether that is all (`X-Log-Final`)."""
    services = services_of(request)
    view, _ = await services.visible_job(request, job, "logs.read")
    settings = services.settings
    place = find_log(view, params.stream, params.replica, settings.account, settings.log_folder)
    part = await services.read_file(
        lambda: read_part(
            place, offset=params.offset, tail=params.tail, limit=params.limit, is_final=view.state.is_final
        )
    )
    headers = {
        "X-Log-Offset": str(part.offset),
        "X-Log-Size": str(part.size),
        "X-Log-Final": str(part.is_final and part.end >= part.size).lower(),
    }
    return Response(part.data, media_type="application/octet-stream", headers=headers)


@router.get(
    f"{API}/jobs/{{job}}/logs/follow",
    responses={**PROBLEMS, 200: {"content": {"text/event-stream": {}}}},
    tags=["jobs"],
)
async def get_log_stream(request: Request, job: JobNumber, params: Annotated[FollowParams, Query()]) -> Response:
    """What a job writes, as it writes it, as server-sent events: `log` with `data` in base64, `end` when it has ended.
    The id of each is the offset behind it, at which `Last-Event-ID` goes on."""
    services, last_offset = services_of(request), read_last_offset(request)
    view, _ = await services.visible_job(request, job, "logs.read")
    check_replica(view, params.replica)
    offset, tail = (params.offset, params.tail) if last_offset is None else (last_offset, None)
    parts = follow_log(request, services, view.id, params.stream, params.replica, offset, tail)
    return stream_response(services, parts)
