"""How long a control plane takes to read back what it knew: the whole journal, and from a snapshot on.

`python -m bench.starting 1000000` does so for as many jobs that have ended.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.figures import Figure, compare
from bench.live_driver import NODES, QuickBackend, submission
from clearway.adapters.storage import SnapshotFolder, open_store
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.clock import SystemClock
from clearway.live.controller import Controller
from clearway.live.guard import GuardSettings
from clearway.live.memory import Memory
from clearway.live.recall import load_newest, take_snapshot
from clearway.policies.named import named_policy

ENDED: Final = 100_000
BATCH: Final = 20
"""Jobs of one submission: some come one by one, some as arrays."""

TAIL: Final = 1_000
"""Jobs that end after the snapshot."""


def make_memory() -> Memory:
    """One that has taken nothing in."""
    return Memory(Kernel(named_policy("clearway"), RuntimeHistory()), GuardSettings())


def end_jobs(url: str, count: int) -> None:
    """Have so many jobs submitted, started and ended by a control plane over the store."""
    store, backend, clock = open_store(url), QuickBackend(NODES), SystemClock()
    control = Controller(Kernel(named_policy("easy"), RuntimeHistory()), backend, store, clock)
    control.start()
    for _ in range(count // BATCH):
        control.submit(submission(BATCH))
        control.turn(clock.now_ms())
        control.turn(clock.now_ms())
        backend.finish(clock.now_ms(), BATCH)
    while backend.running or backend.reported:
        control.turn(clock.now_ms())
        backend.finish(clock.now_ms(), BATCH)
    store.close()


def measure_start(count: int = ENDED) -> Iterator[Figure]:
    """Seconds of processor time: others on the machine do not count."""
    with TemporaryDirectory(prefix="clearway-bench-") as name:
        url = f"sqlite:///{name}/clearway.db"
        end_jobs(url, count)
        store = open_store(url)
        snapshots = SnapshotFolder(Path(name) / "snapshots", store.reader.checksum_of, print)
        begun = time.process_time()
        made = take_snapshot(make_memory(), snapshots, store.read_journal, 1)
        keeping_s = time.process_time() - begun
        assert made is not None
        yield Figure(name=f"snapshot of {count:,} ended jobs", value=len(made.payload) / 1e6, unit="MB", is_rate=False)
        yield Figure(name="reading all and keeping it", value=keeping_s, unit="s", is_rate=False)
        store.close()
        end_jobs(url, TAIL)
        store = open_store(url)
        begun = time.process_time()
        memory = make_memory()
        for _, event in store.read_journal():
            memory.recover(event)
        whole_s = time.process_time() - begun
        begun = time.process_time()
        memory = make_memory()
        for _, event in store.read_journal(load_newest(memory, snapshots)):
            memory.recover(event)
        start_s = time.process_time() - begun
        store.close()
        what = f"a start after {count:,} ended jobs, CPU"
        whole = Figure(name=f"{what}, whole journal", value=whole_s, unit="s", is_rate=False)
        yield whole
        yield compare(Figure(name=f"{what}, snapshot", value=start_s, unit="s", bar=2.0, is_rate=False), whole)


if __name__ == "__main__":
    for figure in measure_start(int(sys.argv[1]) if len(sys.argv) > 1 else ENDED):
        print(figure)
