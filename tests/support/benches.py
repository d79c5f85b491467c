"""What a backend is tried with: jobs as a driver has them, and all that the backend has told.

`Bench` works for any lasting backend; one of its kind says how jobs behave there (`behave`), how time passes, and how
things fail. The local one is in `support.local`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import ClassVar

import numpy as np

from clearway.model.allocation import Allocation
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.events import Event
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Request
from clearway.model.plan import Start
from clearway.model.runs import RunSpec
from clearway.ports.backend import Holding, LastingBackend, World
from support.fake_backend import FakeBackend

PATIENCE_S = 20.0
"""Longest wait for something that takes milliseconds on an idle machine."""


class Behaviour(Enum):
    """What a job does. RUNS_ON: until it is ended. SAVES: runs on, and saves when it is asked to leave. CANNOT_START:
    its first process cannot be made."""

    ENDS_WELL = auto()
    FAILS = auto()
    RUNS_ON = auto()
    SAVES = auto()
    CANNOT_START = auto()


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
        events = self.backend.connect(self.now_ms(), holdings, world)
        self.events.extend(events)
        return events

    def reconnect(self, holdings: Sequence[Holding] = ()) -> Sequence[Event]:
        """As when the control plane died and was started again."""
        self.backend.close()
        self.backend = self.make()
        return self.connect(holdings)

    def holding(self, job: int, generation: int = 1, **more: object) -> Holding:
        """As the journal has it: it runs on the first device, unless `more` says otherwise."""
        values = {"allocation": self.allocate((0, (0,))), "is_started": True, **more}
        return Holding(job=JobId(job), generation=generation, **values)  # type: ignore[arg-type]

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

    def behave(self, job: int, behaviour: Behaviour, **spec: object) -> JobId:
        """Add a job that does so."""
        raise NotImplementedError

    def start(self, job: int, generation: int = 1, *places: tuple[int, tuple[int, ...]]) -> None:
        allocation = self.allocate(*(places or ((0, (0,)),)))
        self.perform(Start(JobId(job), generation, allocation))

    def perform(self, command: object) -> None:
        self.backend.perform(self.now_ms(), command)  # type: ignore[arg-type]

    def observe(self) -> Sequence[Event]:
        self.woken.clear()
        events = self.backend.observe(self.now_ms())
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
            assert left > 0, f"no {kind.__name__} of job {job}; the last seen: {self.events[-8:]}"
            self.pass_time(left)
            self.observe()

    def now_ms(self) -> int:
        return now_ms()

    def pass_time(self, left_s: float) -> None:
        """Until something may have happened."""
        self.woken.wait(min(left_s, 0.5))

    def fail(self, *nodes: str, devices: dict[str, list[int]] | None = None) -> None:
        """From now on these nodes and devices are down, and no others."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave nothing behind."""
        self.backend.close()

    def of(self, job: int) -> list[Event]:
        return [event for event in self.events if getattr(event, "job", None) == job]


class FakeBench(Bench):
    """On the backend that simulates: one object, which every controller finds again; time is what it says."""

    SCRIPTS: ClassVar = {
        Behaviour.ENDS_WELL: "run_ms=50",
        Behaviour.FAILS: "run_ms=50 outcome=FAILED",
        Behaviour.RUNS_ON: "run_ms=1000000 save_ms=1000000",
        Behaviour.SAVES: "run_ms=1000000 save_ms=20",
        Behaviour.CANNOT_START: "run_ms=1",
    }

    def __init__(self, _folder: Path) -> None:
        self._now_ms = 1_000_000
        self._broken: set[JobId] = set()
        nodes = make_nodes()
        self.fake = FakeBackend(nodes, lambda job, _nodes: job in self._broken)
        super().__init__(lambda: self.fake, nodes)

    def behave(self, job: int, behaviour: Behaviour, **spec: object) -> JobId:
        if behaviour is Behaviour.CANNOT_START:
            self._broken.add(JobId(job))
        return self.add(job, self.SCRIPTS[behaviour], **spec)

    def now_ms(self) -> int:
        return self._now_ms

    def pass_time(self, left_s: float) -> None:
        self._now_ms = max(self._now_ms, min(self.fake.next_ms(), self._now_ms + 10))

    def fail(self, *nodes: str, devices: dict[str, list[int]] | None = None) -> None:
        down = {(name, index) for name, indices in (devices or {}).items() for index in indices}
        for name in self.fake.down_nodes - set(nodes):
            self.fake.mend_node(self._now_ms, name)
        for name in nodes:
            self.fake.break_node(self._now_ms, name)
        for device in self.fake.down_devices - down:
            self.fake.mend_device(self._now_ms, *device)
        for device in sorted(down):
            self.fake.break_device(self._now_ms, *device)


def wait_until(holds: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """For what happens outside of any backend."""
    until = seconds() + patience_s
    while not holds():
        assert seconds() < until, f"waited in vain for: {what}"
        time.sleep(0.005)
