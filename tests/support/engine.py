"""A kernel on a small cluster, driven by hand: builders for tests of the engine that state only what matters."""

from dataclasses import fields

import numpy as np

from clearway.engine.policy import Backfill, Policy
from clearway.kernel import Kernel
from clearway.model.allocation import Allocation
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.events import Batch, JobFinished, JobSubmitted, NodeAdded
from clearway.model.jobs import JobSpec, Outcome, Request
from clearway.model.plan import Start
from clearway.policies.orders import Fifo

FIRST_FIT = Policy(name="first-fit", order=Fifo(), backfill=Backfill(reservation_depth=0))
"""Whatever fits starts; nothing is kept for anybody."""
EASY = Policy(name="easy", order=Fifo(), backfill=Backfill(reservation_depth=1))

REQUEST_FIELDS = tuple(field.name for field in fields(Request))


def make_job(number, **wishes):
    """A job by what its replicas ask (fields of Request) and what else is said of it (fields of JobSpec)."""
    request = Request(**{name: wishes.pop(name) for name in REQUEST_FIELDS if name in wishes})
    return JobSpec(id=number, request=request, **wishes)


def make_kernel(policy=FIRST_FIT):
    return Kernel(policy)


def add_nodes(kernel, nodes, devices, *, model="H100", memory_bytes=0, nvlink_size=0, watts_max=0, **node):
    """`nodes` more equal nodes, named n1, n2, …; a value in `node` may be a function of the node's number."""
    group = DeviceGroup(
        model=model, count=devices, memory_bytes=memory_bytes, nvlink_size=nvlink_size, watts_max=watts_max
    )
    for _ in range(nodes):
        number = kernel.state.inventory.node_count + 1
        said = {key: value(number) if callable(value) else value for key, value in node.items()}
        kernel.handle(NodeAdded(0, NodeSpec(name=f"n{number}", groups=(group,), **said)))


def submit(kernel, *jobs, at_ms=0):
    """Submit jobs given by their wishes, at once, numbered on from the last; returns the commands."""
    first = kernel.state.rows.count + len(kernel.state.dependencies.outcomes) + 1
    specs = [make_job(number, **dict(wishes)) for number, wishes in enumerate(jobs, start=first)]
    return kernel.handle(Batch(at_ms, tuple(JobSubmitted(at_ms, spec) for spec in specs)))


def finish(kernel, job, *, at_ms=0):
    generation = kernel.state.jobs[job].generation
    return kernel.handle(JobFinished(at_ms, job, generation, Outcome.COMPLETED))


def started(commands):
    return [command for command in commands if isinstance(command, Start)]


def started_jobs(commands):
    return [command.job for command in started(commands)]


def devices_of(start):
    return start.allocation.devices.tolist()


def nodes_of(start):
    return start.allocation.nodes.tolist()


def make_allocation(nodes, devices):
    return Allocation(np.array(nodes, dtype=np.int64), np.array(devices, dtype=np.int64))
