"""The Fanout over Redis."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clearway.adapters.redis_live.client import connection_errors, describe_place, make_client
from clearway.adapters.redis_live.keys import Keys
from clearway.adapters.redis_live.publisher import Publisher
from clearway.adapters.redis_live.rows import parse_value
from clearway.adapters.redis_live.subscriber import Subscriber
from clearway.model.ids import JobId
from clearway.ports.control import Notice
from clearway.ports.fanout import FanoutError
from clearway.ports.views import ClusterView, JobView


class RedisFanout:
    """A Fanout. Made by `open_fanout`."""

    def __init__(self, client: Any, keys: Keys, tell: Callable[[str], None]) -> None:
        self._client, self._keys = client, keys
        self._errors = connection_errors()
        self._publisher = Publisher(client, keys, secrets.token_hex(8), tell)
        self._subscribers: set[Subscriber] = set()
        self._lock = threading.Lock()

    def publish_view(self, view: ClusterView) -> None:
        """See `Fanout`."""
        self._publisher.put(view=view)

    def publish_jobs(self, jobs: Sequence[JobView]) -> None:
        """See `Fanout`."""
        self._publisher.put(jobs=jobs)

    def publish_notice(self, notice: Notice) -> None:
        """See `Fanout`."""
        self._publisher.put(notice=notice)

    def read_view(self) -> ClusterView | None:
        """See `Fanout`."""
        text = self._ask(lambda: self._client.get(self._keys.view))
        return None if text is None else parse_value(ClusterView, text)

    def read_jobs(self, jobs: Sequence[JobId]) -> Mapping[JobId, JobView]:
        """See `Fanout`."""
        if not jobs:
            return {}
        texts = self._ask(lambda: self._client.mget([self._keys.job(job) for job in jobs]))
        found = zip(jobs, texts, strict=True)
        return {job: parse_value(JobView, text) for job, text in found if text is not None}

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """See `Fanout`."""
        subscriber = Subscriber(self._client, self._keys, take)
        with self._lock:
            self._subscribers.add(subscriber)

        def end() -> None:
            subscriber.close()
            with self._lock:
                self._subscribers.discard(subscriber)

        return end

    @property
    def problem(self) -> str:
        """See `Fanout`."""
        return self._publisher.problem

    def close(self) -> None:
        """See `Fanout`."""
        with self._lock:
            subscribers, self._subscribers = self._subscribers, set()
        for subscriber in subscribers:
            subscriber.close()
        self._publisher.close()
        self._client.close()

    def _ask(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._errors as error:
            raise FanoutError(f"{describe_place(self._client)}: {error}") from error


def open_fanout(url: str, *, tell: Callable[[str], None], prefix: str = "clearway") -> RedisFanout:
    """Begin to carry live state through the Redis at `url`, whether it is there yet or not.

    tell: takes a line for people when Redis is lost or back. Raises InputError, MissingExtraError.
    """
    return RedisFanout(make_client(url), Keys(prefix), tell)
