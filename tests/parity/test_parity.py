"""One trace through the control plane and through the twin: the same decisions, byte for byte."""

from dataclasses import replace

import pytest

from clearway.engine.policy import RuntimeSource
from clearway.model.events import NodeDrained
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.sim.random_world import make_world
from support.parity import LiveRun, twin_decisions

POLICIES = [policy for policy in map(named_policy, POLICY_NAMES) if policy.runtime is not RuntimeSource.ORACLE]


def merge(events, forecasts):
    """What people did, and the forecasts that the control plane made by itself, in order of time."""
    return tuple(sorted((*events, *forecasts), key=lambda event: event.at_ms))


def check_parity(policy, workload, cluster, **options):
    """Both logs agree, and the journal of the one gives the same plans again. Returns the number of decisions."""
    live = LiveRun(policy, workload, cluster, **options)
    found = "\n".join(live.run()).encode()
    options["extra_events"] = merge(options.get("extra_events", ()), live.forecasts())
    expected = "\n".join(twin_decisions(policy, workload, cluster, **options)).encode()
    assert found == expected
    replayed = live.replay()
    assert replayed.difference is None
    assert replayed.plans == live.count_plans()
    return replayed.plans


@pytest.mark.parametrize("seed", range(40))
def test_random_world_is_decided_alike_live_and_in_the_twin(seed):
    world = make_world(seed)
    extra = tuple(event for event in world.extra_events if not (world.faults and isinstance(event, NodeDrained)))
    check_parity(
        POLICIES[seed % len(POLICIES)],
        world.workload,
        world.cluster,
        queues=tuple(replace(queue, job_devices_max_milli=None) for queue in world.queues),
        tenants=world.tenants,
        faults=world.faults,
        extra_events=extra,
    )
