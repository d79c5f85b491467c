"""The one place that loads the library of the extra `redis`, and what it is told."""

import importlib
from typing import Any, Final

from clearway.model.errors import InputError, MissingExtraError

ANSWER_S: Final = 5.0
"""Longest wait for an answer; a subscriber asks for less."""


def make_client(url: str) -> Any:
    """A client of the server at `url`, not connected yet. Raises InputError, MissingExtraError."""
    try:
        redis = importlib.import_module("redis")
    except ModuleNotFoundError as error:
        raise MissingExtraError("redis:// needs the library redis: pip install clearway[redis]") from error
    none = redis.retry.Retry(redis.backoff.NoBackoff(), 0)  # how often and when is decided here, not there
    try:
        return redis.Redis.from_url(url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=none)
    except ValueError as error:
        raise InputError("expected a Redis URL such as redis://:password@127.0.0.1:6379/0, found another") from error


def connection_errors() -> tuple[type[Exception], ...]:
    """What says that the server cannot be reached, or does not do what it is asked."""
    errors: tuple[type[Exception], ...] = (importlib.import_module("redis").RedisError, OSError)
    return errors


def describe_place(client: Any) -> str:
    """Where the server is, without its password."""
    options = client.connection_pool.connection_kwargs
    return f"Redis at {options['path'] if 'path' in options else options.get('host')}:{options.get('port', '')}".rstrip(
        ":"
    )
