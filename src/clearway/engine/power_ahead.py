"""Watts left over time, as far as it can be foreseen: what runs gives its devices back when it is expected to end.

A reservation, or a start, takes watts from one time to another; what is left is a line of steps. Reservations of
devices know nothing of watts: `power` asks here when the watts of each are there too. No table is looked at or changed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearway.engine.tables import NONE
from clearway.model.units import FOREVER_MS

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WattsAhead:
    """times: int64[n], rising, the first is the present. left: int64[n], watts left from each time to the next."""

    times: IntArray
    left: IntArray

    def has(self, until_ms: int, watts: int) -> bool:
        """Whether so many watts are left at every moment from now to then."""
        return bool(self.left[self.times < until_ms].min() >= watts)

    def first_time(self, from_ms: int, run_ms: int, watts: int) -> int:
        """The first time from `from_ms` on when so many watts are left for `run_ms` on end; NONE if none is known."""
        ends = np.append(self.times[1:], FOREVER_MS)
        is_short = (self.left < watts) & (ends > from_ms)
        begins = np.append(from_ms, np.maximum(ends[is_short], from_ms))  # whatever is long enough begins after a gap
        lasts = np.append(self.times[is_short], FOREVER_MS)
        found = np.flatnonzero((lasts - begins >= run_ms) | (lasts >= FOREVER_MS))
        first_ms = int(begins[found[0]])
        return NONE if first_ms >= FOREVER_MS else first_ms

    def without(self, from_ms: int, until_ms: int, watts: int) -> "WattsAhead":
        """With so many watts less from one time to the other."""
        times = np.unique(np.append(self.times, [from_ms, min(until_ms, FOREVER_MS)]))
        times = times[times >= self.times[0]]
        left = self.left[np.searchsorted(self.times, times, side="right") - 1]
        return WattsAhead(times, left - np.where((times >= from_ms) & (times < until_ms), watts, 0))


def foresee_watts(left: int, now_ms: int, gains: IntArray, back_ms: IntArray) -> WattsAhead:
    """What is left over time. left: now. gains: int64[devices], watts that each gives back. back_ms: when."""
    is_known = (gains > 0) & (back_ms < FOREVER_MS)
    times, place = np.unique(np.append(now_ms, np.maximum(back_ms[is_known], now_ms + 1)), return_inverse=True)
    gained = np.bincount(place, weights=np.append(0, gains[is_known]), minlength=len(times)).astype(np.int64)
    return WattsAhead(times, left + np.cumsum(gained))
