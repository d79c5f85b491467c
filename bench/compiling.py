"""What compiling the hot loops buys: the same small run as plain Python, and one loop as NumPy vectors."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from bench.figures import REPEATS, Figure, Stopwatch, collector_at_rest, compare
from bench.planning import HYBRID
from bench.worlds import equal_jobs, fill, make_kernel, mixed_jobs, start_all, submits
from clearway.engine.gang import place_entry
from clearway.engine.load import make_weights
from clearway.engine.policy import Placement
from clearway.engine.tables import LEVEL_SITE, NONE, POOL_FREE, POOL_NODE
from clearway.kernel import Kernel
from clearway.model.events import Batch, JobFinished
from clearway.model.jobs import Outcome
from clearway.model.units import FOREVER_MS, MINUTE_MS
from clearway.policies.named import named_policy

JOBS: Final = 100
"""Jobs of the small run: in plain Python each takes milliseconds."""
NODES: Final = 1_250
CALLS: Final = 2_000


def measure_compiled() -> Iterator[Figure]:
    """Placing and planning, compiled and not; then the choice of a node, compiled and as NumPy vectors."""
    plain, compiled = _small_run(is_compiled=False), _small_run(is_compiled=True)
    for what, unit in (("placements", "placements/s"), ("backfill plans", "plans/s")):
        slow = Figure(name=f"{what} without the compiler", value=plain[what], unit=unit)
        yield slow
        yield compare(Figure(name=f"{what} compiled", value=compiled[what], unit=unit), slow)
    kernel = make_kernel(named_policy("easy"), NODES, 8)
    start_all(kernel, 1, kernel.handle(Batch(1, tuple(submits(1, equal_jobs(1, NODES * 4))))))
    vectors = Figure(name="best node of 1,250 by NumPy vectors", value=_rate(_by_vectors(kernel)), unit="choices/s")
    yield vectors
    yield compare(Figure(name="best node of 1,250 compiled", value=_rate(_by_loop(kernel)), unit="choices/s"), vectors)


def _small_run(*, is_compiled: bool) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0" if is_compiled else "1"}
    command = [sys.executable, "-m", "bench.compiling"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def _rate(choose: Callable[[], int]) -> float:
    """Choices a second."""
    choose()
    best = 0.0
    for _ in range(REPEATS):
        with collector_at_rest(), Stopwatch() as watch:
            for _ in range(CALLS):
                choose()
        best = max(best, CALLS / watch.seconds)
    return best


def _by_vectors(kernel: Kernel) -> Callable[[], int]:
    """Best fit as one would write it with NumPy: free devices where they suffice, the least of them, its node."""
    pools = kernel.state.inventory.pools[:, : kernel.state.inventory.pool_count]

    def choose() -> int:
        free = pools[POOL_FREE]
        return int(pools[POOL_NODE, np.where(free >= 1, free, 1 << 30).argmin()])

    return choose


def _by_loop(kernel: Kernel) -> Callable[[], int]:
    """The same by the compiled loop, with everything else that a placement looks at, and the devices named."""
    weights = make_weights(Placement())
    nodes, devices = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)

    def choose() -> int:
        place_entry(0, LEVEL_SITE, NONE, FOREVER_MS, weights, nodes, devices, kernel.state.door)
        return int(nodes[0])

    return choose


def main() -> None:
    """The small run; prints its rates as JSON. What is compiled is compiled before the time is taken."""
    jobs = submits(1, equal_jobs(1, 2 * JOBS))
    kernel = make_kernel(named_policy("easy"), NODES, 8)
    for event in jobs[:JOBS]:
        kernel.handle(event)
    with collector_at_rest(), Stopwatch() as placing:
        for event in jobs[JOBS:]:
            kernel.handle(event)
    kernel = make_kernel(HYBRID, 64, 8, has_quotas=False)
    running, next_id = fill(kernel, seed=1)
    kernel.handle(Batch(MINUTE_MS, tuple(submits(MINUTE_MS, mixed_jobs(next_id, 4 * JOBS, seed=2)))))
    ends = [JobFinished(2 * MINUTE_MS, start.job, 1, Outcome.COMPLETED) for start in running[:4]]
    kernel.handle(ends[0])
    with collector_at_rest(), Stopwatch() as planning:
        for end in ends[1:]:
            kernel.handle(end)
    rates = {"placements": JOBS / placing.seconds, "backfill plans": (len(ends) - 1) / planning.seconds}
    json.dump(rates, sys.stdout)


if __name__ == "__main__":
    main()
