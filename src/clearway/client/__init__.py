"""A typed client of the server: `Client(url, token)`. Light: importing it loads neither numpy nor pydantic."""

from clearway.client.client import Client, Stream
from clearway.client.errors import (
    ApiError,
    ForbiddenError,
    MisunderstoodError,
    NotFoundError,
    RefusedError,
    TimedOutError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
)

__all__ = [
    "ApiError",
    "Client",
    "ForbiddenError",
    "MisunderstoodError",
    "NotFoundError",
    "RefusedError",
    "Stream",
    "TimedOutError",
    "UnauthorizedError",
    "UnavailableError",
    "UnreachableError",
]
