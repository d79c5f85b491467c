"""Schedules on one machine that is as fast as a whole cluster: the hot loops under the lower bounds.

All take jobs sorted by release; release and work in ms, float64[n]. Work is time on that one machine. O(n log n).
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from clearway.engine.compiled import compiled

FloatColumn = NDArray[np.float64]
IndexColumn = NDArray[np.int64]


@compiled
def srpt_flow_ms(release_ms: FloatColumn, work_ms: FloatColumn) -> FloatColumn:
    """float64[n]: completion − release under preemptive shortest remaining processing time.

    Minimal in sum over all preemptive schedules (Schrage, Operations Research 16(3), 1968).
    """
    count = len(release_ms)
    flow = np.zeros(count)
    ready = [(0.0, 0)]
    ready.pop()
    now = 0.0
    arrived = 0
    while arrived < count or len(ready) > 0:
        if len(ready) == 0:
            now = max(now, release_ms[arrived])
        while arrived < count and release_ms[arrived] <= now:
            heapq.heappush(ready, (work_ms[arrived], arrived))
            arrived += 1
        left, job = heapq.heappop(ready)
        until = release_ms[arrived] if arrived < count else np.inf
        if now + left <= until:
            now += left
            flow[job] = now - release_ms[job]
        else:
            heapq.heappush(ready, (left - (until - now), job))
            now = until
    return flow


@compiled
def mean_busy_delay_ms(release_ms: FloatColumn, work_ms: FloatColumn, rank: IndexColumn) -> FloatColumn:
    """float64[n]: mean busy time − release when at every moment the released job of lowest rank is worked on.

    The mean busy time of a job is the average moment at which it is worked on. rank: int64[n], all different;
    jobs with rank −1 do not take part and get 0. Delays, not times, are summed up, and in shares of the work that was
    done: sums of absolute times would lose the milliseconds of a trace that lasts years.
    """
    count = len(release_ms)
    delay = np.zeros(count)
    left = work_ms.copy()
    ready = [(0, 0)]
    ready.pop()
    now = 0.0
    arrived = 0
    while arrived < count or len(ready) > 0:
        if len(ready) == 0:
            now = max(now, release_ms[arrived])
        while arrived < count and release_ms[arrived] <= now:
            if rank[arrived] >= 0:
                heapq.heappush(ready, (rank[arrived], arrived))
            arrived += 1
        if len(ready) == 0:
            continue
        job = ready[0][1]
        until = release_ms[arrived] if arrived < count else np.inf
        step = min(left[job], until - now)
        delay[job] += (now - release_ms[job] + step / 2) * (step / work_ms[job])
        if left[job] <= until - now:
            heapq.heappop(ready)
            now += left[job]
        else:
            left[job] -= step
            now = until
    return delay
