"""Routes about the server itself: health, who calls, audit, configuration, metrics."""

from typing import Annotated

from fastapi import Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

import clearway
from clearway.server.access import PERMISSIONS
from clearway.server.metrics import render_metrics
from clearway.server.problems import Refusal
from clearway.server.routing import PROBLEMS, json_response, make_router, row_response, rows_response
from clearway.server.services import services_of
from clearway.server.shown import show_cluster
from clearway.wire.api import API, AuditRow, Health, Whoami
from clearway.wire.api_requests import AuditParams

router = make_router()


@router.get("/health", response_model=Health, tags=["server"])
async def get_health(request: Request) -> Response:
    """That the server answers, and how it is. Needs no token."""
    status = "ok" if services_of(request).control.is_ready else "not ready"
    return row_response(Health(status=status, version=clearway.__version__))


@router.get("/ready", response_model=Health, responses={503: PROBLEMS[503]}, tags=["server"])
async def get_ready(request: Request) -> Response:
    """200 where submits are taken; 503 with the reason while they are not. Needs no token."""
    if problem := services_of(request).control.problem:
        raise Refusal(503, problem, headers={"Retry-After": "1"})
    return row_response(Health(status="ok", version=clearway.__version__))


@router.get("/metrics", responses={**PROBLEMS, 200: {"content": {"text/plain": {}}}}, tags=["server"])
async def get_metrics(request: Request) -> Response:
    """Metrics in Prometheus' text form; of tenants only those that the caller may see."""
    services = services_of(request)
    reach, cluster = await services.reach(request), await services.read(services.control.cluster)
    shown = show_cluster(cluster, reach, lambda _job: True)
    body = await services.read(render_metrics, services.metrics, shown, services.streams)
    return Response(body, media_type=CONTENT_TYPE_LATEST)


@router.get(f"{API}/whoami", response_model=Whoami, responses=PROBLEMS, tags=["server"])
async def get_whoami(request: Request) -> Response:
    """Whom the server takes the caller for, and what he may do."""
    identity = request.scope["clearway.identity"]
    return row_response(
        Whoami(
            user=identity.user,
            role=identity.role,
            tenants=identity.tenants,
            unix_user=identity.unix_user,
            expires_ms=identity.expires_ms,
            permissions=tuple(sorted(PERMISSIONS[identity.role])),
        )
    )


@router.get(f"{API}/audit", response_model=list[AuditRow], responses=PROBLEMS, tags=["server"])
async def list_audit(request: Request, params: Annotated[AuditParams, Query()]) -> Response:
    """Who did what, and what was refused to whom."""
    services = services_of(request)
    lines = await services.read(services.reader.read_audit, params.after, params.limit)
    return rows_response(
        AuditRow(
            number=number,
            at_ms=line.at_ms,
            actor=line.actor,
            action=line.action,
            target=line.target,
            is_allowed=line.is_allowed,
            detail=line.detail,
        )
        for number, line in lines
    )


@router.post(f"{API}/reload", responses=PROBLEMS, tags=["server"])
async def reload_configuration(request: Request) -> Response:
    """Read the configuration again: queues, tenants and what else can change without a restart. 422 where it is wrong;
    then everything stays as it was."""
    services = services_of(request)
    if services.reload is None:
        raise Refusal(422, "expected a server that was started from a configuration file, found one that was not")
    notes = await services.read(services.reload, request.scope["clearway.identity"].user)
    return json_response({"notes": list(notes)})
