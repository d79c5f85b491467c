"""Speeds of jobs on given devices, decisions as bytes and lines, and the timeline of outages."""

import dataclasses

import pytest

from clearway.kernel.decisions import PARTS_KEPT, DecisionDigest, render_decision
from clearway.model.cluster import ClusterSpec, DeviceGroup, LinkSpec, NodeSpec
from clearway.model.commands import WakeAt
from clearway.model.jobs import Elastic, Request, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.sim.faults import Fault
from clearway.sim.outages import make_outages
from clearway.sim.pace import Pace, speedup
from clearway.sim.profiles import SpeedModel
from clearway.sim.progress import REFERENCE_PPM
from support.worlds import make_allocation, make_cluster, make_trace_job

CURVE = Elastic(replicas_min=1, replicas_max=8, speedup=((2, 1.5), (4, 2.5)))
MIXED = ClusterSpec(
    nodes=(
        NodeSpec(name="slow", groups=(DeviceGroup(model="K80", count=2, speed=0.5),)),
        NodeSpec(name="fast", groups=(DeviceGroup(model="H100", count=2, speed=4.0),)),
    )
)
ONE = make_allocation([0], [0])


class MeasuredTable:
    """Throughput falls with the nodes that a job spans; only the model V100 was measured."""

    def throughput(self, profile, model, replicas, nodes):
        return 10.0 * replicas / nodes if model == "v100" else None

    def reference(self, profile):
        return 20.0 if profile == "known" else None

    def sharing(self, profile, other, model, /):
        return None


@pytest.mark.parametrize(("replicas", "expected"), [(1, 1.0), (2, 1.5), (3, 2.0), (4, 2.5), (8, 2.5)])
def test_speedup_is_linear_between_its_points_and_constant_beyond(replicas, expected):
    assert speedup(CURVE, replicas) == expected


def test_speedup_without_points_is_proportional():
    assert speedup(Elastic(replicas_min=1, replicas_max=9), 7) == 7.0


def test_elastic_job_is_as_fast_as_its_replicas_relative_to_those_asked():
    job = make_trace_job(replicas=2, elastic=CURVE)
    ppm = Pace(make_cluster(), None).ppm
    assert ppm(job, make_allocation([0, 0], [0, 1])) == REFERENCE_PPM
    assert ppm(job, ONE) == round(REFERENCE_PPM / 1.5)
    assert ppm(job, make_allocation([0, 0, 0, 0], [0, 1, 2, 3])) == round(REFERENCE_PPM * 2.5 / 1.5)


def test_gang_runs_at_the_speed_of_its_slowest_device():
    job = make_trace_job(replicas=2)
    assert Pace(MIXED, None).ppm(job, make_allocation([0, 1], [1, 2])) == REFERENCE_PPM // 2
    assert Pace(MIXED, None).ppm(make_trace_job(), make_allocation([1], [3])) == 4 * REFERENCE_PPM


def test_job_without_devices_runs_at_reference_speed():
    job = make_trace_job(request=Request(devices=0), profile="known")
    speeds = SpeedModel((MeasuredTable(),))
    assert Pace(MIXED, None).ppm(dataclasses.replace(job, profile=""), make_allocation([0], [])) == REFERENCE_PPM
    assert Pace(MIXED, speeds).ppm(job, make_allocation([0], [])) == REFERENCE_PPM


def test_measured_profile_decides_where_it_was_measured():
    group = DeviceGroup(model="V100", count=4, speed=3.0)
    cluster = ClusterSpec(nodes=tuple(NodeSpec(name=f"n{index}", groups=(group,)) for index in range(2)))
    ppm = Pace(cluster, SpeedModel((MeasuredTable(),))).ppm
    job = make_trace_job(replicas=2, profile="known")
    assert ppm(job, make_allocation([0, 0], [0, 1])) == REFERENCE_PPM
    assert ppm(job, make_allocation([0, 1], [0, 4])) == REFERENCE_PPM // 2
    assert ppm(make_trace_job(profile="unknown"), ONE) == 3 * REFERENCE_PPM


COMMANDS = [
    Start(1, 2, ONE),
    Stop(1, 2, 30, StopCause.PREEMPTED, 5),
    Stop(1, 2, 30, None),
    Suspend(1, 2, 5),
    Resize(1, 3, ONE),
    Migrate(1, 3, ONE, 5),
    Cap(4, 300),
    WakeAt(99),
]


def digest_of(*commands, now_ms=7):
    digest = DecisionDigest()
    digest.add(now_ms, commands)
    return digest.hexdigest()


def test_every_command_has_a_digest_and_a_line_of_its_own():
    assert len({digest_of(command) for command in COMMANDS}) == len(COMMANDS)
    assert [render_decision(7, command) for command in COMMANDS] == [
        "7 start job=1 generation=2 nodes=0 devices=0",
        "7 stop job=1 generation=2 cause=preempted grace_ms=30 beneficiary=5",
        "7 stop job=1 generation=2 cause=cancelled grace_ms=30",
        "7 suspend job=1 generation=2 beneficiary=5",
        "7 resize job=1 generation=3 nodes=0 devices=0",
        "7 migrate job=1 generation=3 nodes=0 devices=0 beneficiary=5",
        "7 cap node=4 watts=300",
        "7 wakeat at_ms=99",
    ]


@pytest.mark.parametrize("other", [Start(2, 2, ONE), Start(1, 3, ONE), Start(1, 2, make_allocation([0], [1]))])
def test_digest_changes_with_each_part_of_a_command(other):
    assert digest_of(Start(1, 2, ONE)) != digest_of(other)
    assert digest_of(Start(1, 2, ONE)) != digest_of(Start(1, 2, ONE), now_ms=8)


def test_digest_does_not_depend_on_how_commands_are_gathered():
    whole, parts = DecisionDigest(), DecisionDigest()
    whole.add(7, [Start(1, 2, ONE)] * PARTS_KEPT)
    for _ in range(PARTS_KEPT):
        parts.add(7, [Start(1, 2, ONE)])
    assert whole.hexdigest() == parts.hexdigest()


def test_outages_of_node_and_device_are_kept_apart_and_begin_before_others_end():
    faults = [Fault(10, 30, 0, None), Fault(20, 30, 0, 1), Fault(30, 40, 0, 1)]
    told = [(o.at_ms, o.device, o.is_down) for o in make_outages(faults, (), make_cluster())]
    assert told == [(10, None, True), (20, 1, True), (30, None, False), (40, 1, False)]


LINKS = (("node", LinkSpec(bandwidth_gbps=400, latency_us=0)), ("leaf", LinkSpec(bandwidth_gbps=10, latency_us=0)))


def test_a_gang_that_spans_nodes_without_need_pays_for_what_it_exchanges():
    """Twice 4.29 GB through 10 GB/s for two members, beside a second of work."""
    cluster = dataclasses.replace(make_cluster(nodes=2, devices=2, leaf="l"), links=LINKS)
    ppm = Pace(cluster, None).ppm
    job = make_trace_job(replicas=2)
    together, apart = ppm(job, make_allocation([0, 0], [0, 1])), ppm(job, make_allocation([0, 1], [0, 2]))
    assert together == REFERENCE_PPM
    assert apart == pytest.approx(REFERENCE_PPM * (1 + 4.295 / 400) / (1 + 4.295 / 10), rel=1e-3)


def test_a_gang_that_needs_several_nodes_is_as_fast_as_its_run_time_says():
    cluster = dataclasses.replace(make_cluster(nodes=2, devices=2, leaf="l"), links=LINKS)
    assert Pace(cluster, None).ppm(make_trace_job(replicas=4), make_allocation([0, 0, 1, 1], [0, 1, 2, 3])) == (
        REFERENCE_PPM
    )
