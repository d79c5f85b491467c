"""What can go wrong in a request, split by what the caller can do about it."""

from typing import Final

from clearway.model.errors import ClearwayError, InputError
from clearway.wire.api import ApiProblem


class ApiError(ClearwayError):
    """The server did not do what was asked. problem: its answer; None where there was none."""

    def __init__(self, message: str, problem: ApiProblem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class UnauthorizedError(ApiError):
    """The token is missing, unknown, expired or revoked: get another one."""


class ForbiddenError(ApiError):
    """The token is good, but does not allow this: ask who may."""


class NotFoundError(ApiError, InputError):
    """There is no such thing, or it is another tenant's: correct its number or name."""


class RefusedError(ApiError, InputError):
    """The request is wrong as it is: correct it."""


class UnavailableError(ApiError):
    """Nothing was done; try again later."""


class UnreachableError(UnavailableError):
    """No answer came: is the server running, and at this address?"""


class TimedOutError(UnreachableError):
    """The server took the request, and no answer came in time: it may have been done all the same."""


class MisunderstoodError(ApiError):
    """The answer makes no sense: our bug, a server of another release, or no Clearway server at all."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnavailableError,
    429: UnavailableError,
    503: UnavailableError,
}


def make_error(problem: ApiProblem) -> ApiError:
    """The exception that says what `problem` says."""
    message = problem.detail or f"{problem.title} (status {problem.status})"
    fallback = RefusedError if 400 <= problem.status < 500 else MisunderstoodError
    return _BY_STATUS.get(problem.status, fallback)(message, problem)
