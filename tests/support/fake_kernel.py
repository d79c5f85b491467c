"""A kernel that decides first come, first served, on whole devices, node after node: the least that drives a twin."""

from collections import deque

import numpy as np

from clearway.engine.policy import Policy, RuntimeSource
from clearway.model.allocation import Allocation
from clearway.model.events import (
    Batch,
    DeviceDown,
    DeviceUp,
    JobCancelled,
    JobFinished,
    JobStopped,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeDown,
    NodeUp,
)
from clearway.model.plan import Start, Stop


class AnyOrder:
    """An order that is never asked."""

    refresh_ms = None
    by_priority = False
    by_arrival = False
    is_fixed = False
    learns = False

    def keys(self, jobs):
        return np.zeros(len(jobs.submit_ms))


def make_policy(**settings):
    settings = {"name": "fake", "order": AnyOrder(), "runtime": RuntimeSource.LIMIT} | settings
    return Policy(**settings)


class FakeKernel:
    """Each replica lies on one node; the queue stops at the first job that does not fit."""

    def __init__(self, policy=None):
        self.policy = policy or make_policy()
        self.seen = []
        self.jobs = {}
        self.waiting = deque()
        self.running = {}
        self.generation = {}
        self.names = {}
        self.free = []
        self.begins = []
        self.down = set()
        self.broken = set()
        self.commands = []

    def handle(self, event):
        self.seen.append(event)
        self.commands = []
        for part in event.events if isinstance(event, Batch) else (event,):
            self.take(part)
        self.start_waiting()
        return tuple(self.commands)

    def take(self, event):
        name = type(event).__name__
        handler = getattr(self, f"on_{name}", None)
        if handler is not None:
            handler(event)

    def on_NodeAdded(self, event: NodeAdded):  # noqa: N802
        self.names[event.node.name] = len(self.free)
        self.begins.append(sum(map(len, self.free)) if not self.begins else self.begins[-1] + self.sizes)
        self.sizes = event.node.device_count
        self.free.append(list(range(self.begins[-1], self.begins[-1] + event.node.device_count)))

    def on_NodeDown(self, event: NodeDown):  # noqa: N802
        self.down.add(self.names[event.node])

    def on_NodeUp(self, event: NodeUp):  # noqa: N802
        self.down.discard(self.names[event.node])

    def on_DeviceDown(self, event: DeviceDown):  # noqa: N802
        self.broken.add(self.begins[self.names[event.node]] + event.device)

    def on_DeviceUp(self, event: DeviceUp):  # noqa: N802
        self.broken.discard(self.begins[self.names[event.node]] + event.device)

    def on_JobSubmitted(self, event: JobSubmitted):  # noqa: N802
        self.jobs[event.job.id] = event.job
        self.waiting.append(event.job.id)

    def on_JobCancelled(self, event: JobCancelled):  # noqa: N802
        if event.job in self.waiting:
            self.waiting.remove(event.job)
        elif event.job in self.running:
            self.commands.append(Stop(event.job, self.generation[event.job], 0, None))

    def on_JobFinished(self, event: JobFinished):  # noqa: N802
        self.give_back(event.job)

    def on_JobStopped(self, event: JobStopped):  # noqa: N802
        self.give_back(event.job)
        self.waiting.append(event.job)

    def on_JobSuspended(self, event: JobSuspended):  # noqa: N802
        self.give_back(event.job)
        self.waiting.append(event.job)

    def give_back(self, job):
        per_replica = self.jobs[job].request.devices
        allocation = self.running.pop(job)
        for replica, node in enumerate(allocation.nodes.tolist()):
            taken = allocation.devices[replica * per_replica : (replica + 1) * per_replica].tolist()
            self.free[node].extend(taken)
            self.free[node].sort()

    def start_waiting(self):
        while self.waiting:
            allocation = self.place(self.jobs[self.waiting[0]])
            if allocation is None:
                return
            job = self.waiting.popleft()
            self.generation[job] = self.generation.get(job, 0) + 1
            self.running[job] = allocation
            self.commands.append(Start(job, self.generation[job], allocation))

    def place(self, spec):
        """Takes the devices that it returns."""
        nodes, devices = [], []
        for node, free in enumerate(self.free):
            usable = [device for device in free if device not in self.broken] if node not in self.down else []
            while len(usable) >= spec.request.devices and len(nodes) < spec.replicas:
                nodes.append(node)
                devices += usable[: spec.request.devices]
                del usable[: spec.request.devices]
            if len(nodes) == spec.replicas:
                break
        if len(nodes) < spec.replicas:
            return None
        taken = set(devices)
        for node in dict.fromkeys(nodes):
            self.free[node] = [device for device in self.free[node] if device not in taken]
        return Allocation(np.array(nodes, dtype=np.int64), np.array(devices, dtype=np.int64))


class CommandedKernel(FakeKernel):
    """As FakeKernel, and gives further commands at given moments: {at_ms: [command, …]}, in place of deciding then."""

    def __init__(self, script, policy=None):
        super().__init__(policy)
        self.script = script

    def start_waiting(self):
        at_ms = self.seen[-1].at_ms
        if at_ms in self.script:
            self.commands += self.script.pop(at_ms)
        else:
            super().start_waiting()
