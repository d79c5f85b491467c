"""Whoever makes the decision path faster must not change a single decision: digests of all commands of whole runs.

The worlds are small and hold everything that can be asked; the crowded run has long queues of gangs and real backfill.
"""

from dataclasses import replace

import numpy as np
import pytest

from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.jobs import JobSpec, Network, Outcome, Request
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.sim.random_world import make_world
from clearway.sim.twin import run_twin
from clearway.sim.workload import TraceJob, Workload

WORLDS = 6


def make_crowd(jobs=200, seed=7):
    """Gangs of 1 to 40 replicas with bad estimates, twice as many as a cluster of 16 × 4 in two models can run."""
    draw = np.random.default_rng(seed)
    submit_ms = np.cumsum(draw.integers(0, 60_000, jobs))
    rows = []
    for index, at_ms in enumerate(submit_ms.tolist()):
        run_ms = int(draw.integers(1_000, 3_600_000))
        request = Request(
            devices=int(draw.choice([1, 1, 1, 2, 4])), device_models=("old",) if index % 7 == 0 else (), cpu_milli=1_000
        )
        spec = JobSpec(
            id=index + 1,
            request=request,
            replicas=int(draw.choice([1, 1, 2, 3, 8, 12])),
            user=f"u{index % 9}",
            limit_ms=run_ms + int(draw.integers(-500, 3_600_000)),
            priority=int(index % 11 == 0),
        )
        rows.append(TraceJob(spec=spec, submit_ms=at_ms, run_ms=run_ms, outcome=Outcome.COMPLETED))
    return Workload(name="crowd", jobs=tuple(rows))


def make_crowded_cluster():
    nodes = [
        NodeSpec(
            name=f"n{index}",
            groups=(DeviceGroup(model="old" if index < 6 else "new", count=4),),
            cpu_milli=3_500,
            leaf=f"leaf{index // 4}",
        )
        for index in range(16)
    ]
    return ClusterSpec(nodes=tuple(nodes))


def decide(policy, workload, cluster, **world):
    result = run_twin(Kernel(named_policy(policy), RuntimeHistory()), workload, cluster, **world)
    return result.decisions_digest


def without_preferences(workload):
    """The same jobs, none of which names a preferred domain."""
    jobs = [
        replace(job, spec=replace(job.spec, network=replace(job.spec.network, preferred=Network().preferred)))
        for job in workload.jobs
    ]
    return replace(workload, jobs=tuple(jobs))


def decide_world(policy, seed, change=lambda workload: workload):
    world = make_world(seed)
    return decide(
        policy,
        change(world.workload),
        world.cluster,
        queues=world.queues,
        tenants=world.tenants,
        faults=world.faults,
        extra_events=world.extra_events,
    )


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_decisions_are_those_that_were_accepted(golden, policy):
    lines = [f"crowd {decide(policy, make_crowd(), make_crowded_cluster())}"]
    lines += [f"world {seed} {decide_world(policy, seed, without_preferences)}" for seed in range(WORLDS)]
    golden(f"decisions/{policy}", "\n".join(lines))


def test_decisions_by_preferred_domains_are_those_that_were_accepted(golden):
    lines = [f"world {seed} {decide_world('clearway', seed)}" for seed in range(WORLDS)]
    golden("decisions/preferred_domains", "\n".join(lines))
