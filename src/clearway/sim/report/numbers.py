"""Numbers as people read them. A number that is not there is a dash, never 0."""

import math

from clearway.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

MISSING = "–"
DAY_S, HOUR_S, MINUTE_S = DAY_MS // SECOND_MS, HOUR_MS // SECOND_MS, MINUTE_MS // SECOND_MS


def render_duration(seconds: float) -> str:
    """Three significant figures in the largest unit that fits: `850 ms`, `42.0 s`, `3.20 h`, `12.5 d`."""
    if not math.isfinite(seconds):
        return MISSING
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms" if round(seconds * 1000) else "0 s"
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if abs(seconds) >= size:
            return f"{_significant(seconds / size)} {unit}"
    return f"{_significant(seconds)} s"


def render_ratio(ratio: float) -> str:
    """A share in per cent with one decimal."""
    return f"{ratio * 100:.1f} %" if math.isfinite(ratio) else MISSING


def render_index(value: float) -> str:
    """Three decimals: an index between 0 and 1 whose differences are small."""
    return f"{value:.3f}" if math.isfinite(value) else MISSING


def render_number(value: float) -> str:
    """Whole numbers with thousands apart, others with three significant figures."""
    if not math.isfinite(value):
        return MISSING
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{round(value):,}".replace(",", "\u202f")
    return _significant(value)


def render_gap(gap: float | None, *, is_ratio: bool = False) -> str:
    """`+12 %` beyond a bound in time; for ratios `−3.0 pp` below it."""
    if gap is None or not math.isfinite(gap):
        return ""
    if is_ratio:
        return f"−{gap * 100:.1f} pp" if gap >= 0 else f"+{-gap * 100:.1f} pp"
    sign = "+" if gap >= 0 else "−"
    return f"{sign}{abs(gap) * 100:.{0 if abs(gap) >= 0.1 else 1}f} %"


def render_bytes(size: int) -> str:
    """Binary units: `180 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{_significant(value)} {unit}"
        value /= 1024
    return MISSING


def _significant(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{digits}f}"
