"""Units of the whole system, in one place.

Time is integer milliseconds since an epoch that the driver chooses. Memory is bytes. CPUs and shares of a device are
integer thousandths ("milli"), so that sums are exact: 400 + 400 is 800, never 0.7999.
"""

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

MILLI: Final = 1_000
"""Thousandths in one whole device or one whole CPU."""

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

FOREVER_MS: Final = 1 << 60
"""Later than every time that can occur. Used only inside the engine; on the border "no limit" is None."""

DEVICES_PER_MODEL_MAX: Final = 62
"""Devices of one model on one node: they are a bit mask in a signed 64-bit integer, with two bits to spare."""
