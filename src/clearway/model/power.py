"""What devices draw and how fast they are under a power cap: one simple model for planner, checker and twin.

A device that is used draws its cap, or its `watts_max` where it has none or a higher one. A device that is not used
draws `IDLE_PERCENT` of `watts_max`, on a node that is down too, since it may come back. Devices whose `watts_max` is
not known (0) count as nothing, cannot be capped, and are at full speed. CPUs, memory and cooling are not in the
account: a site takes them off its budget.

Source of `CURVE`: You et al., "Zeus", NSDI 2023, whose traces give the epoch time of training under power limits on
V100, A40, P100 and RTX 6000; the mean over the four models of the median over their workloads (45 to 68 each), in whole
per cent. Below half of `watts_max` workloads part ways (0.35 to 0.73 of the full speed at 33 to 40 %), so nothing is
capped lower.
"""

from itertools import pairwise
from typing import Final

IDLE_PERCENT: Final = 15
"""V100, A100 and H100 cards idle at 10 to 15 % of their limit; the upper end, to err on the safe side.
"""

FLOOR_PERCENT: Final = 50

WHOLE_PPM: Final = 1_000_000

CURVE: Final = ((50, 850_000), (60, 930_000), (70, 960_000), (80, 980_000), (90, 990_000), (100, WHOLE_PPM))
"""(cap in per cent of `watts_max`, speed in millionths of the uncapped one): concave, linear between the points."""


def idle_watts(watts_max: int) -> int:
    """Watts of a device that nobody uses, rounded up."""
    return -(-watts_max * IDLE_PERCENT // 100)


def capped_watts(watts_max: int, percent: int) -> int:
    """A cap of so many per cent, in whole watts, rounded up."""
    return -(-watts_max * percent // 100)


def floor_watts(watts_max: int) -> int:
    """The lowest cap that a device is ever given."""
    return capped_watts(watts_max, FLOOR_PERCENT)


def used_watts(watts_max: int, cap: int) -> int:
    """Watts of a device in use. cap: 0 = none."""
    return min(cap, watts_max) if cap else watts_max


def capped_speed_ppm(watts_max: int, cap: int) -> int:
    """Speed under a cap in millionths of the uncapped one. cap: 0 = none. Below the curve's first point the speed falls
    in proportion to the cap."""
    if cap == 0 or watts_max == 0 or cap >= watts_max:
        return WHOLE_PPM
    for (low, slow), (high, fast) in pairwise(((0, 0), *CURVE)):
        if 100 * cap <= high * watts_max:
            return slow + (fast - slow) * (100 * cap - low * watts_max) // ((high - low) * watts_max)
    return WHOLE_PPM
