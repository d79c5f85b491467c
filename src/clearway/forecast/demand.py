"""How many devices will be asked for soon, by what was asked of late and at this time of day.

Arrivals are counted in bins. The level is smoothed exponentially with a damped trend (Holt 1957; Gardner & McKenzie
1985), after division by a profile of the day, which is learned hour by hour over days and is flat until then. The
quantiles are those of a negative binomial, a Poisson count whose rate varies. Its variance over mean is what the
forecast's own errors on past bins were, and grows with the horizon as the error of the level does.

Nothing is fitted and nothing is random; memory is bounded. Logarithm and exponential function are the only ones whose
last digit may differ between machines.
"""

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Final

from clearway.model.units import DAY_MS, HOUR_MS, MINUTE_MS

BIN_MS: Final = 5 * MINUTE_MS
"""Short enough to see a burst begin, long enough to count something: a hundred tasks an hour are eight per bin."""

BINS_PER_HOUR: Final = HOUR_MS // BIN_MS
HOURS_PER_DAY: Final = DAY_MS // HOUR_MS

LEVEL_GAIN: Final = 0.2
"""Weight of the newest bin in the level: a change of rate is half known after three bins."""

TREND_GAIN: Final = 0.05
TREND_DAMPING: Final = 0.9
"""Per bin. What is left of a trend adds at most nine bins' growth, so that a burst is not taken for a new age."""

PROFILE_GAIN: Final = 0.2
"""Weight of today in the profile of the day: a week of habit."""

PROFILE_DAYS_MIN: Final = 2
"""Days to have seen before the profile is believed."""

PROFILE_MIN: Final = 0.1
"""An hour's rate over the day's mean is taken as at least this, so that one job in a dead hour is no flood."""

DISPERSION_GAIN: Final = 0.02
"""Dispersion moves slowly: some fifty bins, four hours."""

GAP_MAX_MS: Final = 2 * DAY_MS
"""A silence up to this long is worked through bin by bin; after a longer one the level is zero, the profile kept."""

HORIZON_MAX_MS: Final = DAY_MS
"""Beyond a day a level smoothed over minutes says nothing."""

_LEVEL_ERROR: Final = LEVEL_GAIN / (2.0 - LEVEL_GAIN)
"""Variance of an exponentially smoothed level over the variance of one bin."""

_EXPONENT_MIN: Final = -600.0
"""exp below this nears the smallest float; such counts are large enough for a normal approximation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Devices that will be asked for from now to the horizon: the mean, and what is not exceeded with 50, 90 and 99 %.

    dispersion: variance over mean that was assumed. bins_seen: counted bins that the forecast rests on.
    """

    mean: float
    p50: int
    p90: int
    p99: int
    dispersion: float
    bins_seen: int


class DemandHistory:
    """What has been learned about arrivals. Deterministic: the same observations give the same forecasts."""

    __slots__ = ("_bin", "_count", "_day_mean", "_dispersion", "_hour_count", "_level", "_profile", "_seen", "_trend")

    def __init__(self) -> None:
        self._bin: int | None = None
        self._count = 0
        self._seen = 0
        self._level = 0.0
        self._trend = 0.0
        self._dispersion = 1.0
        self._hour_count = 0
        self._day_mean = 0.0
        self._profile = [1.0] * HOURS_PER_DAY

    def observe(self, at_ms: int, devices: int) -> None:
        """`devices` were asked for at `at_ms`. A time before the bin that is being counted counts in this bin."""
        self._advance(at_ms)
        self._count += devices

    def forecast(self, now_ms: int, horizon_ms: int) -> Forecast:
        """What will be asked for within `horizon_ms` (at most HORIZON_MAX_MS) from `now_ms`."""
        state = self.copy()
        state._advance(now_ms)
        horizon_ms = min(max(horizon_ms, 0), HORIZON_MAX_MS)
        mean = state._expected(now_ms, horizon_ms)
        bins = horizon_ms / BIN_MS
        dispersion = max(state._dispersion * (1.0 + bins * _LEVEL_ERROR) / (1.0 + _LEVEL_ERROR), 1.0)
        p50, p90, p99 = (count_quantile(mean, dispersion, share, z) for share, z in _QUANTILES)
        return Forecast(mean=mean, p50=p50, p90=p90, p99=p99, dispersion=dispersion, bins_seen=state._seen)

    def copy(self) -> "DemandHistory":
        """An independent copy."""
        other = DemandHistory()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._profile = self._profile.copy()
        return other

    def _expected(self, now_ms: int, horizon_ms: int) -> float:
        """Mean devices in the horizon: level and damped trend, bin by bin, times the profile."""
        mean, growth, damping = 0.0, 0.0, TREND_DAMPING
        for start_ms in range(now_ms, now_ms + horizon_ms, BIN_MS):
            growth += damping * self._trend
            damping *= TREND_DAMPING
            part = min(now_ms + horizon_ms - start_ms, BIN_MS) / BIN_MS
            mean += max(self._level + growth, 0.0) * self._profile_at(start_ms // BIN_MS) * part
        return mean

    def _profile_at(self, number: int) -> float:
        """Rate in bin `number` over the day's mean."""
        if self._seen < PROFILE_DAYS_MIN * HOURS_PER_DAY * BINS_PER_HOUR:
            return 1.0
        return max(self._profile[number // BINS_PER_HOUR % HOURS_PER_DAY], PROFILE_MIN)

    def _advance(self, at_ms: int) -> None:
        """Close all bins that ended by `at_ms`."""
        number = at_ms // BIN_MS
        if self._bin is None:
            self._bin = number
        if number - self._bin > GAP_MAX_MS // BIN_MS:
            self._bin, self._count, self._level, self._trend, self._hour_count = number, 0, 0.0, 0.0, 0
        while self._bin < number:
            self._close_bin(self._bin)
            self._bin += 1

    def _close_bin(self, number: int) -> None:
        profile = self._profile_at(number)
        expected = max(self._level + TREND_DAMPING * self._trend, 0.0)
        if self._seen == 0:
            expected = self._count / profile
        elif expected * profile > 0:
            error = self._count - expected * profile
            self._dispersion += DISPERSION_GAIN * (error * error / (expected * profile) - self._dispersion)
        level = expected + LEVEL_GAIN * (self._count / profile - expected)
        change = level - self._level if self._seen else 0.0
        self._trend = TREND_GAIN * change + (1.0 - TREND_GAIN) * TREND_DAMPING * self._trend
        self._level = level
        self._hour_count += self._count
        self._count = 0
        self._seen += 1
        if (number + 1) % BINS_PER_HOUR == 0:
            self._close_hour(number // BINS_PER_HOUR % HOURS_PER_DAY)

    def _close_hour(self, hour: int) -> None:
        """Learn the profile: faster on the first days, when today is a large part of all that is known."""
        days = self._seen // (HOURS_PER_DAY * BINS_PER_HOUR)
        gain = max(PROFILE_GAIN, 1.0 / (days + 1))
        hours = min(self._seen // BINS_PER_HOUR, HOURS_PER_DAY) or 1
        self._day_mean += (self._hour_count - self._day_mean) / hours
        if self._day_mean > 0:
            self._profile[hour] += gain * (self._hour_count / self._day_mean - self._profile[hour])
        self._hour_count = 0


_QUANTILES: Final = ((0.5, 0.0), (0.9, 1.2815515655446004), (0.99, 2.3263478740408408))
"""Shares with the normal deviate of each."""


def count_quantile(mean: float, dispersion: float, share: float, deviate: float) -> int:
    """The smallest count that a negative binomial of this mean and variance / mean does not exceed with `share`.

    Poisson at dispersion 1. deviate: the standard normal quantile of `share`, for counts too large to sum up, where a
    Cornish-Fisher expansion with the skewness takes over.
    """
    if mean <= 0:
        return 0
    spread = max(dispersion, 1.0 + 1e-9) - 1.0
    exponent = -mean * log(1.0 + spread) / spread
    if exponent < _EXPONENT_MIN:
        skewness = (1.0 + 2.0 * spread) / sqrt(mean * (1.0 + spread))
        wanted = mean + sqrt(mean * (1.0 + spread)) * (deviate + (deviate * deviate - 1.0) * skewness / 6.0)
        return max(round(wanted), 0)
    odds = spread / (1.0 + spread)
    size = mean / spread
    probability = exp(exponent)
    count, total = 0, probability
    while total < share and probability > 0:
        probability *= odds * (size + count) / (count + 1)
        count += 1
        total += probability
    return count
