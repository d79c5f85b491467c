"""Refusals as exceptions, and every error as `application/problem+json` (RFC 9457)."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pydantic
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from clearway.model.errors import ClearwayError, InputError
from clearway.ports.storage import JournalError, StorageError
from clearway.server.auth import AuthFileError
from clearway.wire.api import ApiProblem
from clearway.wire.api_rows import encode_row
from clearway.wire.problems import PROBLEMS_SHOWN_MAX
from clearway.wire.schema import make_problem as make_schema_problem
from clearway.wire.schema import render_place

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

_PARTS: Final = re.compile(r"expected (?P<expected>.*?), found (?P<found>.*?)(?:; (?P<hint>.*))?")


class Refusal(ClearwayError):  # noqa: N818  (an answer, not an accident)
    """What is asked is not done. status: of the answer; headers: to go with it."""

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}


def make_problem(status: int, detail: str) -> ApiProblem:
    """The answer that says `detail`, and its parts again where it is one line in our form."""
    begin = detail.find("expected ")
    parts = _PARTS.fullmatch(detail, begin) if begin >= 0 else None
    named = {name: value or "" for name, value in parts.groupdict().items()} if parts else {}
    return ApiProblem(title=TITLES.get(status, "error"), status=status, detail=detail, **named)


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An error's answer."""
    sent = dict(headers or {})
    if status == 401:
        sent["WWW-Authenticate"] = 'Bearer realm="clearway"'
    body = json.dumps(encode_row(make_problem(status, detail))).encode()
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=sent)


def describe_validation(errors: Sequence[Any]) -> str:
    """pydantic's errors in our words, one line each."""
    return "\n".join(_describe_error(error) for error in errors[:PROBLEMS_SHOWN_MAX])


def _describe_error(error: Any) -> str:
    """One error: `query: limit: expected a number less than or equal to 10000, found '99999'`."""
    where, *place = error["loc"] or ("request",)
    kind = error["type"]
    if not place:
        return f"{where}: expected a value, found none or one of another kind: {error['msg']}"
    if kind == "extra_forbidden":
        return f"{where}: expected names that this route knows, found {str(place[-1])!r:.80}; see OpenAPI"
    if kind == "json_invalid":
        return f"{where}: expected JSON, found none: {error['ctx']['error']}"
    if kind == "value_error":
        return f"{where}: {render_place(tuple(place))}: {error['ctx']['error']}"
    details = {**error, "loc": tuple(place)}
    return str(make_schema_problem(details, pydantic.BaseModel, str(where), lambda _place: 0, {}))


def install_problems(app: FastAPI) -> None:
    """Have every exception of a route answered as a problem."""
    for kind, answer in (
        (Refusal, _answer_refusal),
        (InputError, _answer_input),
        (StorageError, _answer_storage),
        (JournalError, _answer_damage),
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


async def _answer_damage(_request: Request, error: Exception) -> Response:
    return problem_response(500, f"stored data is damaged: {error}")


async def _answer_auth_file(_request: Request, _error: Exception) -> Response:
    return problem_response(503, "nobody is let in until an operator has mended the token file; see the server's log")


async def _answer_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem_response(422, describe_validation(error.errors()))


async def _answer_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # the framework could not read the body at all
        return problem_response(422, "body: expected JSON in UTF-8, found bytes that are none")
    return problem_response(error.status_code, str(error.detail), dict(error.headers or {}))


async def _answer_timeout(_request: Request, _error: Exception) -> Response:
    detail = "no answer from the control plane in time; what was asked may still be done: look before asking again"
    return problem_response(503, detail, {"Retry-After": "5"})


async def _answer_bug(_request: Request, _error: Exception) -> Response:
    return problem_response(500, "an error of the server's own; its log has the story")
