"""What can go wrong between Clearway and an API server, by what the caller can do about it."""

from clearway.model.errors import ClearwayError


class UnreadableError(ClearwayError):
    """One object is not what the API promises. It is left out and named; the rest goes on."""


class ApiError(ClearwayError):
    """The API server said no. status: the HTTP status. reason: its own word for it, such as `AlreadyExists`."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the API server answered {status} {reason}: {message}")
        self.status = status
        self.reason = reason


class ExpiredError(ApiError):
    """410: the resource version is too old; list again."""


class UnreachableError(ClearwayError):
    """No answer, or one that says to come back (429, 5xx). retry_after_s: what the server asked for; 0 = nothing."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnsupportedError(ClearwayError):
    """What is asked is right, and more than Clearway evaluates: nothing is done for it, and its pod is told so."""
