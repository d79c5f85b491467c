"""Forecasts of demand as time passes: what arrives goes in, and at the end of each bin of time a forecast comes out.

A forecast rests on the arrivals before it alone. Nothing is forecast before the first job whose user waits for a start.
"""

from typing import Final

from clearway.forecast.demand import BIN_MS, DemandHistory
from clearway.model.events import DemandForecast
from clearway.model.jobs import JobKind, JobSpec
from clearway.model.units import FOREVER_MS, MILLI

SUDDEN_KINDS: Final = (JobKind.SERVICE, JobKind.TASK, JobKind.INTERACTIVE)
"""Kinds whose users wait for the start."""

HORIZON_MS: Final = BIN_MS
"""Devices are wanted for what arrives until the next forecast; what comes later can be made room for by then."""

VALID_MS: Final = 2 * BIN_MS
"""A forecast counts until the next one, and no longer than one that was missed."""


QUIET_MAX: Final = 2
"""Forecasts of nothing that are made before nobody makes more: the first ends what was kept, the second is for care."""


class DemandFeed:
    """next_ms: when the next forecast is due; FOREVER_MS = not before something arrives."""

    def __init__(self) -> None:
        self.next_ms = FOREVER_MS
        self._quiet = 0
        self._history = DemandHistory()

    def observe(self, spec: JobSpec, at_ms: int) -> None:
        """A job arrives. Forecasts that are due by then are to be made before."""
        if spec.kind not in SUDDEN_KINDS:
            return
        if self.next_ms == FOREVER_MS:
            self.next_ms = (at_ms // BIN_MS + 1) * BIN_MS
        milli = spec.replicas * spec.request.device_milli
        self._history.observe(at_ms, -(-milli // MILLI))

    def forecast(self) -> DemandForecast:
        """The forecast that is due next: the devices that arrivals will not exceed, with 99 % chance, until the one
        after it."""
        due_ms = self.next_ms
        self.next_ms = due_ms + BIN_MS
        return DemandForecast(due_ms, self._history.forecast(due_ms, HORIZON_MS).p99, due_ms + VALID_MS)

    def note(self, forecast: DemandForecast) -> None:
        """A forecast was made: the next is due a bin later. After QUIET_MAX that expect nothing, not before something
        arrives."""
        self.next_ms = (forecast.at_ms // BIN_MS + 1) * BIN_MS
        self._quiet = 0 if forecast.devices else self._quiet + 1
        if self._quiet >= QUIET_MAX:
            self.next_ms = FOREVER_MS

    def skip_to(self, now_ms: int) -> None:
        """Leave out all forecasts that are due by `now_ms` but the last: nobody was there to make them."""
        if self.next_ms + BIN_MS <= now_ms:
            self.next_ms = now_ms // BIN_MS * BIN_MS
