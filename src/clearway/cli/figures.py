"""Numbers for people, by the units of `clearway.sim.metric_definitions`."""

import math
from typing import Final

from clearway.sim.report.numbers import MISSING, render_duration, render_number, render_ratio

__all__ = [
    "MISSING",
    "render_change",
    "render_count",
    "render_duration",
    "render_number",
    "render_quantity",
    "render_ratio",
]

HOUR_S: Final = 3_600


def render_change(ratio: float) -> str:
    """As a signed percentage with one decimal."""
    return f"{ratio * 100:+.1f} %".replace("-", "−") if math.isfinite(ratio) else MISSING


def render_count(count: float) -> str:
    """With thousands apart."""
    return render_number(round(count)) if math.isfinite(count) else MISSING


def render_quantity(value: float, unit: str) -> str:
    """A value in one of the units of metrics."""
    if unit == "s":
        return render_duration(value)
    if unit == "ratio":
        return render_ratio(value)
    if unit in ("jobs", "count"):
        return render_count(value)
    if unit == "device-s":
        return f"{render_number(value / HOUR_S)} device-h" if math.isfinite(value) else MISSING
    return render_number(value)
