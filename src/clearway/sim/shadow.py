"""What must be true of the cluster by events and commands alone: ledgers of devices, nodes and jobs.

It is told the same events and commands as the world, shares no code or table with the engine, and is written for
plainness, not speed. It judges nothing beyond its own books; `sim.checkers` holds the rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from clearway.model.allocation import Allocation
from clearway.model.cluster import NodeSpec
from clearway.model.ids import JobId
from clearway.model.jobs import Dependency, JobSpec, Outcome, Request
from clearway.model.units import MILLI


class Phase(StrEnum):
    """Where a job is in its life. Devices are held from STARTING to LEAVING."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    MOVING = "moving"
    LEAVING = "leaving"
    SUSPENDED = "suspended"
    ENDED = "ended"


HOLDING = frozenset((Phase.STARTING, Phase.RUNNING, Phase.MOVING, Phase.LEAVING))


@dataclass(slots=True)
class ShadowJob:
    """One job. allocation: what it holds. target: what it will hold when a resize or migration is done. since_ms: when
    it first started, or ended without a start. met: dependencies on an array that were satisfied before it grew."""

    spec: JobSpec
    is_held: bool
    phase: Phase = Phase.WAITING
    generation: int = 0
    allocation: Allocation | None = None
    target: Allocation | None = None
    is_cancelled: bool = False
    has_started: bool = False
    since_ms: int | None = None
    outcome: Outcome | None = None
    met: set[Dependency] = field(default_factory=set)

    @property
    def holds_devices(self) -> bool:
        """Whether anything is booked for it."""
        return self.phase in HOLDING and self.allocation is not None


@dataclass(slots=True)
class ShadowDevice:
    """One device. holders: job → shares of it that the job's replicas hold (1 = once)."""

    node: int
    model: str
    memory_bytes: int
    holders: dict[JobId, int] = field(default_factory=dict)
    is_healthy: bool = True


@dataclass(slots=True)
class ShadowNode:
    """One node. holders: job → replicas of it that lie here."""

    spec: NodeSpec
    devices_begin: int
    holders: dict[JobId, int] = field(default_factory=dict)
    is_up: bool = True
    is_drained: bool = False


class Books:
    """Nodes and devices in the order in which they were added, all jobs ever seen, and those that wait for the job, or
    the array, of a number."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, ShadowJob] = {}
        self.dependants: dict[JobId, list[ShadowJob]] = {}
        self.nodes: list[ShadowNode] = []
        self.devices: list[ShadowDevice] = []
        self.node_index: dict[str, int] = {}
        self._places: dict[JobId, list[ShadowDevice | ShadowNode]] = {}

    def add_job(self, spec: JobSpec) -> None:
        """A job was accepted."""
        job = self.jobs[spec.id] = ShadowJob(spec, spec.held)
        for dependency in spec.dependencies:
            if dependency.job is not None:
                self.dependants.setdefault(dependency.job, []).append(job)

    def add_node(self, spec: NodeSpec) -> None:
        """A node joined."""
        number = len(self.nodes)
        self.node_index[spec.name] = number
        self.nodes.append(ShadowNode(spec, len(self.devices)))
        for group in spec.groups:
            self.devices += [ShadowDevice(number, group.model, group.memory_bytes) for _ in range(group.count)]

    def change_node(self, spec: NodeSpec) -> None:
        """A node offers something else; the last one may have more devices."""
        node = self.node(spec.name)
        begin, number = len(self.devices) - node.devices_begin, self.node_index[spec.name]
        wanted = [(group.model, group.memory_bytes) for group in spec.groups for _ in range(group.count)]
        if len(wanted) > node.spec.device_count:
            assert number == len(self.nodes) - 1, "only the last node can be given devices"
            self.devices += [ShadowDevice(number, model, memory) for model, memory in wanted[begin:]]
        node.spec = spec

    def node(self, name: str) -> ShadowNode:
        """The node of that name."""
        return self.nodes[self.node_index[name]]

    def device(self, node: str, index: int) -> ShadowDevice:
        """A node's device by its index within the node."""
        return self.devices[self.node(node).devices_begin + index]

    def book(self, job: JobId, now_held: Allocation | None, to_be_held: Allocation | None) -> None:
        """Book all that a job holds: the one, the other, or both at once (per device the larger of the two)."""
        for place in self._places.pop(job, ()):
            del place.holders[job]
        counts: dict[tuple[bool, int], int] = {}
        for allocation in (now_held, to_be_held):
            for key, count in _count_places(allocation).items():
                counts[key] = max(counts.get(key, 0), count)
        places: list[ShadowDevice | ShadowNode] = []
        for (is_device, index), count in counts.items():
            place = self.devices[index] if is_device else self.nodes[index]
            place.holders[job] = count
            places.append(place)
        if places:
            self._places[job] = places

    def request_of(self, job: JobId) -> Request:
        """What each replica of the job needs."""
        return self.jobs[job].spec.request

    def share_used_milli(self, device: ShadowDevice) -> int:
        """Thousandths of a device that its holders have together."""
        return sum(count * self.request_of(job).share_milli for job, count in device.holders.items())

    def memory_used_bytes(self, device: ShadowDevice) -> int:
        """Memory of a device that its holders have together; a share without a figure has its part, rounded up."""
        return sum(
            count * memory_of_share(self.request_of(job), device.memory_bytes) for job, count in device.holders.items()
        )

    def counted_milli(self, job: JobId) -> int:
        """Thousandths of devices that limits and quotas count for a job: while it moves, the larger of what it had
        and what it gets; that both are held for a moment is the world's matter, not the user's."""
        shadow = self.jobs[job]
        replicas = [held.replicas for held in (shadow.allocation, shadow.target) if held is not None]
        return max(replicas, default=0) * shadow.spec.request.device_milli

    def holding_jobs(self) -> Iterator[ShadowJob]:
        """The jobs that hold something, in the order in which they were last given devices."""
        return (self.jobs[job] for job in self._places)


def _count_places(allocation: Allocation | None) -> dict[tuple[bool, int], int]:
    """(is it a device, index) → how often an allocation names it."""
    counts: dict[tuple[bool, int], int] = {}
    if allocation is not None:
        keys = [(False, node) for node in allocation.nodes.tolist()]
        keys += [(True, device) for device in allocation.devices.tolist()]
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
    return counts


def memory_of_share(request: Request, memory_bytes: int) -> int:
    """Bytes of a device that a replica takes of it: all of it for a whole device."""
    if request.share_milli == MILLI:
        return memory_bytes
    return request.device_memory_bytes or -(-memory_bytes * request.share_milli // MILLI)
