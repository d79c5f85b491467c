"""The present state through Redis, for other servers to show: the newest views, and notices as a stream."""

from clearway.adapters.redis_live.fanout import RedisFanout, open_fanout

__all__ = ["RedisFanout", "open_fanout"]
