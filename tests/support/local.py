"""A local backend on declared devices, with jobs as the driver would have them: for tests with real processes."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from clearway.adapters.local.backend import LocalBackend
from clearway.adapters.local.config import LocalConfig
from clearway.adapters.local.devices import DEVICES_DOWN, DeclaredDevices
from clearway.adapters.local.keeper.host import Settings
from clearway.model.allocation import Allocation
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.events import Event
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Request
from clearway.model.plan import Start
from clearway.model.runs import RunSpec
from clearway.ports.backend import Holding, LastingBackend, World

PATIENCE_S = 20.0
"""Longest wait for something that takes milliseconds on an idle machine."""
QUICK = Settings(kill_wait_ms=400, leftover_wait_ms=100, quarantine_ms=300, idle_exit_ms=0)


def make_nodes(count: int = 2, devices: int = 4) -> tuple[NodeSpec, ...]:
    groups = (DeviceGroup(model="virtual", count=devices),)
    return tuple(NodeSpec(name=NodeName(f"n{index}"), groups=groups) for index in range(count))


def seconds() -> float:
    return time.monotonic_ns() / 1e9


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """A backend, the jobs given to it, and all events that it has told."""

    def __init__(self, make: Callable[[], LastingBackend], nodes: Sequence[NodeSpec]) -> None:
        self.make = make
        self.nodes = nodes
        self.jobs: dict[JobId, tuple[JobSpec, RunSpec]] = {}
        self.events: list[Event] = []
        self.woken = threading.Event()
        self.backend = make()

    def connect(self, holdings: Sequence[Holding] = ()) -> Sequence[Event]:
        world = World(launch=self.jobs.__getitem__, locate=self.locate, wake=self.woken.set)
        events = self.backend.connect(now_ms(), holdings, world)
        self.events.extend(events)
        return events

    def reconnect(self, holdings: Sequence[Holding] = ()) -> Sequence[Event]:
        """As when the control plane died and was started again."""
        self.backend.close()
        self.backend = self.make()
        return self.connect(holdings)

    def locate(self, allocation: Allocation) -> tuple[tuple[NodeName, tuple[int, ...]], ...]:
        first = np.cumsum([0, *(node.device_count for node in self.nodes)])
        per_replica = len(allocation.devices) // max(len(allocation.nodes), 1)
        devices = allocation.devices.reshape(len(allocation.nodes), per_replica)
        return tuple(
            (self.nodes[node].name, tuple(int(device - first[node]) for device in row))
            for node, row in zip(allocation.nodes, devices, strict=True)
        )

    def allocate(self, *places: tuple[int, tuple[int, ...]]) -> Allocation:
        """From (node, devices within it) of each replica."""
        first = np.cumsum([0, *(node.device_count for node in self.nodes)])
        devices = [first[node] + index for node, indices in places for index in indices]
        nodes = [node for node, _ in places]
        return Allocation(np.array(nodes, dtype=np.int64), np.array(devices, dtype=np.int64))

    def add(self, job: int, script: str, *, run: dict[str, object] | None = None, **spec: object) -> JobId:
        values = {"request": Request(devices=1), "replicas": 1, **spec}
        self.jobs[JobId(job)] = (
            JobSpec(id=JobId(job), **values),  # type: ignore[arg-type]
            RunSpec(script=script, **(run or {})),  # type: ignore[arg-type]
        )
        return JobId(job)

    def start(self, job: int, generation: int = 1, *places: tuple[int, tuple[int, ...]]) -> None:
        allocation = self.allocate(*(places or ((0, (0,)),)))
        self.perform(Start(JobId(job), generation, allocation))

    def perform(self, command: object) -> None:
        self.backend.perform(now_ms(), command)  # type: ignore[arg-type]

    def observe(self) -> Sequence[Event]:
        self.woken.clear()
        events = self.backend.observe(now_ms())
        self.events.extend(events)
        return events

    def wait(self, kind: type, job: int | None = None, *, count: int = 1) -> Event:
        """The `count`-th event of that kind, of that job, since the beginning."""
        until = seconds() + PATIENCE_S
        while True:
            found = [
                event
                for event in self.events
                if isinstance(event, kind) and (job is None or getattr(event, "job", None) == job)
            ]
            if len(found) >= count:
                return found[count - 1]
            left = until - seconds()
            assert left > 0, f"no {kind.__name__} of job {job}; seen: {self.events}"
            self.woken.wait(min(left, 0.5))
            self.observe()

    def of(self, job: int) -> list[Event]:
        return [event for event in self.events if getattr(event, "job", None) == job]


def wait_until(holds: Callable[[], object], what: str) -> None:
    until = seconds() + PATIENCE_S
    while not holds():
        assert seconds() < until, f"waited in vain for: {what}"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class LocalBench(Bench):
    """A bench whose backend is the local one, in a directory of its own."""

    def __init__(
        self, folder: Path, *, settings: Settings = QUICK, nodes: Sequence[NodeSpec] | None = None, **config: object
    ) -> None:
        nodes = make_nodes() if nodes is None else nodes
        self.folder = folder
        self.state = folder / "state"
        self.workdir = folder / "work"
        self.workdir.mkdir()
        self.config = LocalConfig(state=self.state, settings=settings, **config)  # type: ignore[arg-type]
        super().__init__(self._make, nodes)

    def _make(self) -> LastingBackend:
        return LocalBackend(self.config, DeclaredDevices(self.nodes, self.state / DEVICES_DOWN))

    def add(self, job: int, script: str, *, run: dict[str, object] | None = None, **spec: object) -> JobId:
        return super().add(job, script, run={"workdir": str(self.workdir), **(run or {})}, **spec)

    def output(self, job: int) -> str:
        return (self.workdir / f"slurm-{job}.out").read_text()

    def keeper_pid(self) -> int:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if str(self.state.resolve()).encode() in words:
                    return int(entry.name)
        raise AssertionError("no keeper runs")

    def end(self) -> None:
        """End every job and the keeper."""
        self.backend.close()
        self.backend = self.make()
        self.connect()
        wait_until(self._is_over, "the keeper's end")
        self.backend.close()

    def _is_over(self) -> bool:
        client = self.backend._client  # type: ignore[attr-defined]
        client.send({"op": "shutdown"})
        return any(message["op"] == "lost" for message in client.take())


@contextmanager
def local_bench(folder: Path, **options: object) -> Iterator[LocalBench]:
    bench = LocalBench(folder, **options)  # type: ignore[arg-type]
    bench.connect()
    try:
        yield bench
    finally:
        bench.end()
