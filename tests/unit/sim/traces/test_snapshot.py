"""A snapshot of a cluster that runs is a workload and its cluster, from that moment on."""

from dataclasses import replace

import pytest

from clearway.bootstrap.simulation import SimulationRequest, prepare, run_prepared
from clearway.model.cluster import DeviceGroup, LinkSpec, NodeSpec, QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import Dependency, DependencyKind, JobSpec, Request
from clearway.model.units import HOUR_MS, MINUTE_MS
from clearway.ports.snapshot import ClusterSnapshot, SnapshotJob
from clearway.sim.traces import read_workload
from clearway.wire.snapshots import parse_snapshot, render_snapshot

NOW_MS = 1_000 * HOUR_MS


def make_job(number, *, dependencies=(), start_ms=None, **more):
    spec = JobSpec(
        id=JobId(number),
        request=Request(devices=4, node_labels=(("zone", "a"),)),
        queue=QueueName("night"),
        tenant=TenantName("vision"),
        estimate_ms=2 * HOUR_MS,
        dependencies=tuple(Dependency(kind=DependencyKind.AFTER_OK, job=JobId(one)) for one in dependencies),
    )
    return SnapshotJob(spec=spec, submit_ms=NOW_MS - HOUR_MS, start_ms=start_ms, **more)


def make_snapshot(*jobs):
    node = NodeSpec(name=NodeName("n1"), groups=(DeviceGroup(model="H100", count=8),), labels=(("zone", "a"),))
    return ClusterSnapshot(
        at_ms=NOW_MS,
        nodes=(node,),
        nodes_away=(NodeName("n2"),),
        queues=(QueueSpec(name=QueueName("night")),),
        tenants=(TenantSpec(name=TenantName("vision")),),
        jobs=jobs,
    )


@pytest.fixture
def write(tmp_path):
    def write(snapshot):
        path = tmp_path / "now.jsonl"
        path.write_text("".join(f"{line}\n" for line in render_snapshot(snapshot)))
        return path

    return write


def test_what_was_written_is_read_as_it_was():
    snapshot = make_snapshot(make_job(3, start_ms=NOW_MS - 5), make_job(4, dependencies=[3], expected_ms=7))
    snapshot = replace(snapshot, links=(("site", LinkSpec(bandwidth_gbps=25, latency_us=0.5)),))
    assert parse_snapshot(enumerate(render_snapshot(snapshot), 1), source="now") == snapshot


def test_running_jobs_have_what_is_left_of_them_and_come_before_those_that_wait(write):
    running = make_job(9, start_ms=NOW_MS - HOUR_MS // 2, saved_ms=HOUR_MS)
    workload = read_workload(write(make_snapshot(make_job(2), running, make_job(5, start_ms=NOW_MS - 9 * HOUR_MS))))
    found = [(job.spec.id, job.submit_ms, job.run_ms) for job in workload.jobs]
    assert found == [(5, 0, MINUTE_MS), (9, 0, HOUR_MS // 2), (2, 1, 2 * HOUR_MS)]


def test_what_is_over_is_not_waited_for_and_held_jobs_are_left_out(write):
    workload = read_workload(write(make_snapshot(make_job(7, dependencies=[1]), make_job(8, is_held=True))))
    assert [(job.spec.id, job.spec.dependencies) for job in workload.jobs] == [(7, ())]
    assert [skipped.count for skipped in workload.skipped] == [1]


def test_twin_goes_on_with_the_cluster_the_queues_and_the_tenants_of_the_snapshot(write):
    path = write(make_snapshot(*(make_job(number) for number in range(1, 5))))
    prepared = prepare(SimulationRequest(trace=str(path), policy="fifo"))
    assert (prepared.queues[0].name, prepared.tenants[0].name) == ("night", "vision")
    assert run_prepared(prepared).metrics.makespan_s == pytest.approx(4 * 3600, abs=1)


def test_line_that_is_cut_is_named(write):
    path = write(make_snapshot(make_job(1)))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match=r"now.jsonl:5: expected a line of a snapshot"):
        read_workload(path)


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"format": "clearway-snapshot", "version": 1}',
        '{"format": "clearway-snapshot", "version": 1, "at_ms": "x", "nodes_away": []}',
        '{"format": "clearway-snapshot", "version": 1, "at_ms": 1, "nodes_away": 3}',
    ],
)
def test_first_line_that_is_none_of_a_snapshot_is_named(line):
    with pytest.raises(InputError, match="file:1: expected a line of a snapshot"):
        parse_snapshot([(1, line)], source="file")
