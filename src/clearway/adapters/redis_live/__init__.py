"""Live state through Redis, for several API servers: the newest views, and notices as a stream."""

from clearway.adapters.redis_live.fanout import RedisFanout, open_fanout

__all__ = ["RedisFanout", "open_fanout"]
