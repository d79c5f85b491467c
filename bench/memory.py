"""Peak memory of a kernel with 100,000 devices and 100,000 waiting jobs, in a process of its own."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from bench.figures import Figure
from bench.worlds import fill, make_kernel, mixed_jobs, submits
from clearway.model.events import Batch
from clearway.model.units import MINUTE_MS
from clearway.policies.named import named_policy

GIB: Final = 1 << 30
NODES: Final = 12_500
PENDING: Final = 100_000


def measure_memory() -> Iterator[Figure]:
    """Everything that a Python process holds then, the compiler included."""
    done = subprocess.run([sys.executable, "-m", "bench.memory"], capture_output=True, text=True, check=True)
    yield Figure(
        name="memory with 100,000 devices and 100,000 waiting jobs",
        value=int(done.stdout) / GIB,
        unit="GiB",
        bar=2.0,
        is_rate=False,
    )


def main() -> None:
    """Print the peak resident set in bytes (Linux counts it in KiB, macOS in bytes)."""
    kernel = make_kernel(named_policy("clearway"), NODES, 8)
    _, next_id = fill(kernel, seed=1)
    kernel.handle(Batch(MINUTE_MS, tuple(submits(MINUTE_MS, mixed_jobs(next_id, PENDING, seed=2)))))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak if sys.platform == "darwin" else peak * 1024)


if __name__ == "__main__":
    main()
