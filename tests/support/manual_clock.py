"""A clock that stands until it is set."""


class ManualClock:
    """`clearway.live.clock.Clock` for tests."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def begin_after(self, at_ms: int, /) -> None:
        self._now_ms = max(self._now_ms, at_ms)

    def set(self, now_ms: int) -> None:
        """Never back, as the real one."""
        assert now_ms >= self._now_ms
        self._now_ms = now_ms
