"""How routes are declared: each by its permission, refused before anything of it is parsed."""

import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from clearway.server.access import ROUTES
from clearway.server.services import services_of
from clearway.wire.api import ApiProblem
from clearway.wire.api_rows import encode_row, encode_rows

PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ApiProblem, "description": text, "content": {"application/problem+json": {}}}
    for status, text in (
        (401, "The token is missing, unknown, expired or revoked."),
        (403, "The token does not allow this."),
        (404, "There is no such thing, or it is another tenant's."),
        (413, "The body is too large."),
        (422, "The request is not valid."),
        (503, "Nothing was done; try again later."),
    )
}


class GuardedRoute(APIRoute):
    """A route that `access.ROUTES` knows; whoever lacks its permission is refused before its body is read."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        for method in self.methods or ():
            assert (method, path) in ROUTES, f"{method} {path} has no permission: add it to clearway.server.access"

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind the check."""
        handle = super().get_route_handler()
        path = self.path

        async def check_and_handle(request: Request) -> Response:
            services_of(request).check_permission(request, ROUTES[request.method, path])
            return await handle(request)

        return check_and_handle


def make_router() -> APIRouter:
    """A router of guarded routes."""
    return APIRouter(route_class=GuardedRoute)


def dump_json(data: object) -> bytes:
    """`data` as JSON. Lone surrogates, which names of files can hold, become question marks."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", errors="replace")


def json_response(data: object, status: int = 200) -> Response:
    """`data` as JSON. Nothing is validated again: it comes from our own rows."""
    return Response(dump_json(data), status_code=status, media_type="application/json")


def row_response(row: object) -> Response:
    """One row as JSON."""
    return json_response(encode_row(row))


def rows_response(rows: Iterable[object]) -> Response:
    """A list of rows as JSON."""
    return json_response(encode_rows(rows))
