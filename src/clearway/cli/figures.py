"""Numbers for people: durations, ratios, counts. Pure functions from values to short texts."""

import math
from typing import Final

MISSING: Final = "–"
"""What is shown where there is nothing to measure."""

SHOWN_AS_SECONDS_S: Final = 59.95
"""From here on three figures would read 60.0 s."""
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400


def format_duration(seconds: float) -> str:
    """Two or three significant figures in the unit that fits: 80 ms, 12.3 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 0:
        return f"−{format_duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1_000:.3g} ms"
    if seconds < SHOWN_AS_SECONDS_S:
        return f"{seconds:.3g} s"
    # Rounded before the unit is chosen, so that 3,599.9 s is an hour and not 60 minutes.
    if round(seconds) < HOUR_S:
        return "{} min {} s".format(*divmod(round(seconds), MINUTE_S))
    if round(seconds / MINUTE_S) < DAY_S // MINUTE_S:
        return "{} h {} min".format(*divmod(round(seconds / MINUTE_S), HOUR_S // MINUTE_S))
    return "{:,} d {} h".format(*divmod(round(seconds / HOUR_S), DAY_S // HOUR_S))


def format_ratio(ratio: float) -> str:
    """As a percentage with one decimal."""
    return f"{ratio * 100:.1f} %" if math.isfinite(ratio) else MISSING


def format_change(ratio: float) -> str:
    """As a signed percentage with one decimal."""
    return f"{ratio * 100:+.1f} %".replace("-", "−") if math.isfinite(ratio) else MISSING


def format_count(count: float) -> str:
    """With thousands separated."""
    return f"{count:,.0f}" if math.isfinite(count) else MISSING


def format_number(number: float) -> str:
    """A plain number with three significant figures."""
    return f"{number:.3g}" if math.isfinite(number) else MISSING


def format_quantity(value: float, unit: str) -> str:
    """By the units of `clearway.sim.metric_definitions`."""
    if unit == "s":
        return format_duration(value)
    if unit == "ratio":
        return format_ratio(value)
    if unit in ("jobs", "count"):
        return format_count(value)
    if unit == "device-s":
        return f"{format_number(value / HOUR_S)} device-h" if math.isfinite(value) else MISSING
    return format_number(value)
