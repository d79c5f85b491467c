"""Machine code before it is needed: the engine plays small worlds of its own, and Numba compiles, or takes from its
cache, what they call.

Without this the first submit, and later the first resize or preemption, would each wait for a compiler, and with them
everybody who asks. Nothing of the worlds is kept.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from clearway.engine.policy import Policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.cluster import DeviceGroup, NodeSpec, Quota, TenantSpec
from clearway.model.errors import ClearwayError
from clearway.model.events import Batch, Event, JobStarted, JobSubmitted, NodeAdded, TenantSet, TimerFired
from clearway.model.ids import JobId, NodeName, TenantName
from clearway.model.jobs import DomainLevel, Elastic, JobSpec, Network, Request
from clearway.sim.random_world import make_power_world
from clearway.sim.twin import run_twin

_LOG = logging.getLogger(__name__)

SEEDS: Final = (0, 1, 6)
"""Worlds that together call all that the default policy can; the others find nothing new."""
BURST: Final = 300
"""Jobs at once: so many are sorted into the order as a whole, not one by one."""
PARTS: Final = 100


def rehearse(policy: Policy, progress: Callable[[int, int], None]) -> None:
    """Play: a second of CPU where the code is in the cache, a minute or two where it is not.

    progress: called with (done, in all), in parts of a hundred for each world; what it raises ends the rehearsal. A
    world that fails is left out with a warning: it is no reason not to start.
    """
    total = PARTS * (len(SEEDS) + 1)
    for place, seed in enumerate(SEEDS):
        begun = PARTS * place
        try:
            _play(policy, seed, partial(_tell, progress, begun, total))
        except ClearwayError as error:
            _LOG.warning("rehearsal %d was left out: %s", seed, error)
        progress(begun + PARTS, total)
    _burst(policy)
    _grow(policy)
    progress(total, total)


def _tell(progress: Callable[[int, int], None], begun: int, total: int, ended: int, jobs: int) -> None:
    progress(begun + PARTS * ended // max(1, jobs), total)


def _play(policy: Policy, seed: int, progress: Callable[[int, int], None]) -> None:
    world = make_power_world(seed)
    run_twin(
        Kernel(policy, RuntimeHistory()),
        world.workload,
        world.cluster,
        queues=world.queues,
        tenants=world.tenants,
        faults=world.faults,
        extra_events=world.extra_events,
        progress=progress,
    )


def _burst(policy: Policy) -> None:
    """Many jobs at once, of a tenant with a quota that they exceed, and why they wait."""
    team = TenantName("team")
    group = DeviceGroup(model="gpu", count=2)
    setup: list[Event] = [
        NodeAdded(0, NodeSpec(name=NodeName("node"), groups=(group,))),
        TenantSet(0, TenantSpec(name=team, quota=Quota(guaranteed_milli=1_000, borrow_max_milli=0))),
    ]
    jobs = [
        JobSpec(id=JobId(number), request=Request(devices=1), replicas=1 + number % 2, tenant=team)
        for number in range(1, BURST + 1)
    ]
    kernel = Kernel(policy, RuntimeHistory())
    kernel.handle(Batch(0, tuple(setup)))
    kernel.handle(Batch(1, tuple(JobSubmitted(1, job) for job in jobs)))
    for job in jobs[-2:]:
        kernel.explain(job.id)
    kernel.stranded_milli()


def _grow(policy: Policy) -> None:
    """An elastic job that begins on the one device there is, and has another one of its leaf when that comes."""
    kernel = Kernel(policy, RuntimeHistory())
    group = DeviceGroup(model="gpu", count=1)
    first, second = (NodeSpec(name=NodeName(name), groups=(group,), leaf="leaf") for name in ("first", "second"))
    elastic, network = Elastic(replicas_min=1, replicas_max=2), Network(widest=DomainLevel.LEAF)
    job = JobSpec(id=JobId(1), request=Request(devices=1), elastic=elastic, network=network)
    kernel.handle(NodeAdded(0, first))
    kernel.handle(JobSubmitted(1, job))
    kernel.handle(JobStarted(2, job.id, 1))
    kernel.handle(NodeAdded(3, second))
    kernel.handle(TimerFired(4))
