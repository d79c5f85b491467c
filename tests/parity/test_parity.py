"""One trace through the control plane and through the twin: the same decisions, byte for byte."""

from dataclasses import replace

import pytest

from clearway.engine.policy import RuntimeSource
from clearway.model.events import NodeDrained, NodeUp
from clearway.model.units import HOUR_MS
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.sim.random_world import make_power_world, make_world
from clearway.sim.synthetic import generate_from_spec
from clearway.sim.traces import read_workload
from clearway.wire.cluster import parse_cluster_short
from support.parity import LiveRun, twin_decisions
from support.shared import TRACES, needs_traces
from support.worlds import without_later

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


@pytest.mark.parametrize("seed", range(27))
def test_random_world_is_decided_alike_live_and_in_the_twin(seed):
    world = make_world(seed)
    extra = tuple(event for event in world.extra_events if not (world.faults and isinstance(event, NodeDrained)))
    check_parity(
        POLICIES[seed % len(POLICIES)],
        replace(world.workload, jobs=[without_later(job) for job in world.workload.jobs]),
        world.cluster,
        queues=tuple(replace(queue, job_devices_max_milli=None) for queue in world.queues),
        tenants=world.tenants,
        faults=world.faults,
        extra_events=extra,
    )


@pytest.mark.parametrize("seed", range(4))
def test_world_with_a_power_budget_is_decided_alike_live_and_in_the_twin(seed):
    world = make_power_world(seed)
    check_parity(
        named_policy("easy"),
        replace(world.workload, jobs=[without_later(job) for job in world.workload.jobs]),
        world.cluster,
        queues=tuple(replace(queue, job_devices_max_milli=None) for queue in world.queues),
        tenants=world.tenants,
        extra_events=tuple(event for event in world.extra_events if not isinstance(event, NodeDrained | NodeUp)),
    )


@pytest.mark.parametrize("name", ["easy", "clearway"])
def test_synthetic_centre_is_decided_alike_live_and_in_the_twin(name):
    workload = generate_from_spec("synthetic:philly-like?jobs=300", seed=1)
    plans = check_parity(named_policy(name), workload, parse_cluster_short("16x8"))
    assert plans > 100


@needs_traces
@pytest.mark.parametrize("name", ["easy", "clearway"])
def test_philly_is_decided_alike_live_and_in_the_twin(name):
    workload = read_workload(TRACES / "philly" / "philly_jobs_13vc.csv.gz", limit=100)
    # Days on end, in which orders are worked out anew every few seconds, would show nothing more.
    short = [replace(job, run_ms=min(job.run_ms, HOUR_MS)) for job in workload.jobs]
    assert check_parity(named_policy(name), replace(workload, jobs=short), parse_cluster_short("1x8")) > 50


@needs_traces
def test_ricc_is_decided_alike_live_and_in_the_twin():
    workload = read_workload(TRACES / "swf" / "RICC-2010-2.swf.gz", limit=200)
    assert check_parity(named_policy("easy"), workload, workload.cluster or parse_cluster_short("64x8")) > 100
