"""Refusals as exceptions, and every error as `application/problem+json` (RFC 9457)."""

import json
import re
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from clearway.model.errors import ClearwayError, InputError
from clearway.ports.storage import StorageError
from clearway.server.auth import AuthFileError
from clearway.wire.api import ApiProblem
from clearway.wire.api_rows import encode_row

MEDIA_TYPE: Final = "application/problem+json"

TITLES: Final = {
    400: "bad request",
    401: "not authenticated",
    403: "not allowed",
    404: "not found",
    405: "no such method here",
    409: "conflict",
    413: "too large",
    415: "wrong media type",
    416: "range not satisfiable",
    421: "wrong host",
    422: "not valid",
    429: "too many requests",
    500: "internal error",
    503: "not available now",
}

_PARTS: Final = re.compile(r"expected (?P<expected>.*), found (?P<found>.*?)(?:; (?P<hint>.*))?", re.DOTALL)


class Refusal(ClearwayError):  # noqa: N818  (an answer, not an accident)
    """What is asked is not done. status: of the answer; headers: to go with it."""

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}


def make_problem(status: int, detail: str) -> ApiProblem:
    """The answer that says `detail`, and its parts again where it is one line in our form."""
    parts = _PARTS.fullmatch(detail) if "\n" not in detail else None
    found = parts or _PARTS.search(detail.splitlines()[0]) if detail and "\n" not in detail else None
    named = {name: value or "" for name, value in found.groupdict().items()} if found else {}
    return ApiProblem(title=TITLES.get(status, "error"), status=status, detail=detail, **named)


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An error's answer."""
    sent = dict(headers or {})
    if status == 401:
        sent["WWW-Authenticate"] = 'Bearer realm="clearway"'
    body = json.dumps(encode_row(make_problem(status, detail))).encode()
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=sent)


def describe_validation(errors: list[Any]) -> str:
    """pydantic's errors in our words, one line each."""
    lines = []
    for error in errors:
        place = ".".join(str(part) for part in error.get("loc", ()) if part not in ("body", "query", "path"))
        found = repr(error.get("input"))[:80]
        said = str(error.get("msg", "a valid value")).removeprefix("Value error, ")
        lines.append(said if said.startswith("expected ") else f"{place or 'request'}: expected {said}, found {found}")
    return "\n".join(lines)


def install_problems(app: FastAPI) -> None:
    """Have every exception of a route answered as a problem."""
    for kind, answer in (
        (Refusal, _answer_refusal),
        (InputError, _answer_input),
        (StorageError, _answer_storage),
        (AuthFileError, _answer_auth_file),
        (RequestValidationError, _answer_validation),
        (HTTPException, _answer_http),
        (TimeoutError, _answer_timeout),
        (Exception, _answer_bug),
    ):
        app.add_exception_handler(kind, answer)


async def _answer_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return problem_response(error.status, str(error), error.headers)


async def _answer_input(_request: Request, error: Exception) -> Response:
    return problem_response(422, str(error))


async def _answer_storage(_request: Request, error: Exception) -> Response:
    return problem_response(503, f"nothing was done, since the storage fails: {error}", {"Retry-After": "5"})


async def _answer_auth_file(_request: Request, _error: Exception) -> Response:
    return problem_response(503, "nobody is let in until an operator has mended the token file; see the server's log")


async def _answer_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem_response(422, describe_validation(list(error.errors())))


async def _answer_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_response(error.status_code, str(error.detail), dict(error.headers or {}))


async def _answer_timeout(_request: Request, _error: Exception) -> Response:
    detail = "no answer from the control plane in time; what was asked may still be done: look before asking again"
    return problem_response(503, detail, {"Retry-After": "5"})


async def _answer_bug(_request: Request, _error: Exception) -> Response:
    return problem_response(500, "an error of the server's own; its log has the story")
