"""A stretch decides as the events that it stands for, and leaves the same state: every table, record and account."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearway.engine.box import META_RUNNING
from clearway.engine.policy import Backfill, FairShare, Placement, Policy, RuntimeSource
from clearway.engine.settle import Agenda, is_plain
from clearway.kernel import Kernel
from clearway.model.units import HOUR_MS
from clearway.policies.named import named_policy
from clearway.policies.orders import Fifo, Shortest
from clearway.sim import recorder, stretches
from clearway.sim.random_world import make_world
from clearway.sim.twin import run_twin
from clearway.sim.workload import Workload
from support.worlds import make_cluster, make_trace_job

POLICIES = {
    "fifo": named_policy("fifo"),
    "easy": named_policy("easy"),
    "conservative": named_policy("conservative"),
    "hybrid by estimates": Policy(name="hybrid", order=Fifo(), backfill=Backfill(reservation_depth=3)),
    "sjf": named_policy("sjf"),
    "deadline": named_policy("deadline"),
    "smallest area, without priorities": Policy(
        name="area",
        order=Shortest(weigh_by_devices=True, remaining=True, by_priority=False),
        backfill=Backfill(reservation_depth=2),
    ),
    "first fit": Policy(name="first", order=Fifo(), backfill=Backfill(reservation_depth=0)),
    "easy by limits, spread, without priorities": Policy(
        name="spread",
        order=Fifo(by_priority=False),
        runtime=RuntimeSource.LIMIT,
        placement=Placement(pack=0.0, spread=1.0, spread_cpus=0.5, topology=False),
        backfill=Backfill(reservation_depth=1),
        fair_share=FairShare(half_life_ms=HOUR_MS),
    ),
}
ONLY_REMEMBERED = {"_last", "_shares", "_shares_ms"}
"""What could be asked anew, kept only to answer sooner."""
WORLDS_JOINED = 3
"""Random worlds whose jobs come together: one has some dozens, of which many are not plain."""
KINDS_FEW = 3

CLASSES_FEW = 3
SAMPLES_FEW = 4
"""A sample of the series ends a stretch; of the usual number, nearly every moment of a short run would have its own."""


def plain_world(seed):
    """A random world without faults or devices of other speeds, whose jobs are made plain where they are not. The first
    of each kind ends a stretch, and so does each sample: in one world of two there are few of both."""
    worlds = [make_world(WORLDS_JOINED * seed + index) for index in range(WORLDS_JOINED)]
    jobs = [plain_job(job) for world in worlds for job in world.workload.jobs if job.spec.request.share_milli == 1000]
    if seed % 2:
        jobs = alike(jobs)
    jobs.sort(key=lambda job: job.submit_ms)
    numbered = [replace(job, spec=replace(job.spec, id=number)) for number, job in enumerate(jobs, start=1)]
    if seed % 2:
        numbered = [like(numbered[place % KINDS_FEW], job) for place, job in enumerate(numbered)]
    cluster = replace(worlds[0].cluster, power_budget_watts=None, links=())
    nodes = tuple(
        replace(node, groups=tuple(replace(group, speed=1.0) for group in node.groups)) for node in cluster.nodes
    )
    return replace(
        worlds[0],
        workload=Workload("plain", numbered),
        cluster=replace(cluster, nodes=nodes),
        faults=(),
        extra_events=(),
    )


def like(first, job):
    """The job with what the first one asks, in its queue and tenant."""
    one = first.spec
    same = {"request": one.request, "network": one.network, "queue": one.queue, "tenant": one.tenant, "kind": one.kind}
    return replace(job, spec=replace(job.spec, **same))


def alike(jobs):
    """The same jobs, asking for what a few of them ask: that was seen before, so stretches go on over many moments.
    Some end as they start, some live longer than was said."""
    few = [job.spec for job in jobs[:CLASSES_FEW]]
    return [
        replace(
            job,
            run_ms=job.run_ms if place % 5 else 0,
            spec=replace(
                job.spec,
                request=few[place % len(few)].request,
                network=few[place % len(few)].network,
                estimate_ms=job.spec.estimate_ms if place % 3 else 1,
            ),
        )
        for place, job in enumerate(jobs)
    ]


def plain_job(job):
    spec = replace(
        job.spec,
        elastic=None,
        checkpoint=None,
        dependencies=(),
        depends_on_any=False,
        array=None,
        held=False,
        not_before_ms=None,
        request=replace(job.spec.request, crowds=(), neighbours=(), liked="", extras=()),
    )
    assert is_plain(spec)
    return replace(job, spec=spec, profile="")


def replay(world, policy, *, may_stretch, stop_ms=None):
    kernel = Kernel(policy)
    result = run_twin(
        kernel,
        world.workload,
        world.cluster,
        queues=world.queues,
        tenants=world.tenants,
        stop_ms=stop_ms,
        may_stretch=may_stretch,
    )
    return kernel, result


def assert_same(one, other, path):
    """The two values are equal, all that they hold included, and in the same order."""
    assert type(one) is type(other), path
    if isinstance(one, np.ndarray):
        assert np.array_equal(one, other), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_same(one[key], other[key], f"{path}[{key}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{path}[{index}]")
    elif is_dataclass(one) and not isinstance(one, type):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif type(one).__module__.startswith("clearway.engine"):
        for name in getattr(one, "__slots__", None) or vars(one):
            if name in ONLY_REMEMBERED:
                continue
            assert_same(getattr(one, name), getattr(other, name), f"{path}.{name}")
    else:
        assert one == other, path


def in_use(state):
    """Of the tables of a state box, what is in use: they may have grown at other times."""
    box, rows, order, meta = state.box, state.rows, state.order, state.meta
    said = {name: getattr(box, name) for name in ("nodes", "pools", "devices", "tenants", "queues", "totals", "meta")}
    said |= {"jobs": rows.table[:, : rows.count], "links": rows.link[: rows.count], "free": rows.free}
    said |= {
        "order": order.waiting(),
        "sort": order.sort[:, : rows.count],
        "running": box.running[:2, : meta[META_RUNNING]],
    }
    return said | {"footprints": [footprint(box, row) for row in range(rows.count)]}


def footprint(box, row):
    links, link = [], int(box.job_link[row])
    while link >= 0:
        links.append(box.links[:2, link].tolist())
        link = int(box.links[2, link])
    return links


def assert_same_kernels(one, other):
    state, theirs = one.state, other.state
    state.holding_rows(), theirs.holding_rows()  # it sorts the list of running jobs, which may be put off
    assert_same(in_use(state), in_use(theirs), "box")
    apart = {"rows", "order", "running", "links"}
    mine = {name: value for name, value in state.attributes().items() if name not in apart}
    assert_same(mine, {name: value for name, value in theirs.attributes().items() if name not in apart}, "state")
    assert_same((one.cycles, one.plan, one.accepted), (other.cycles, other.plan, other.accepted), "kernel")


@pytest.fixture(autouse=True)
def stretches_at_once(monkeypatch):
    """Stretches however short, which few samples interrupt."""
    monkeypatch.setattr(stretches, "WORTH_IT", 0)
    monkeypatch.setattr(recorder, "SAMPLES_AIMED", 2)


def test_in_these_worlds_stretches_have_many_moments(monkeypatch):
    """Else what follows would compare events with events."""
    moments, handle_stretch = [], Kernel.handle_stretch

    def count(kernel, agenda, *more):
        handle_stretch(kernel, agenda, *more)
        moments.append(agenda.moments)

    monkeypatch.setattr(Kernel, "handle_stretch", count)
    for seed in range(8):
        replay(plain_world(seed), POLICIES["easy"], may_stretch=True)
    assert sum(moments) > len(moments) > 100
    assert max(moments) > 20


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@given(seed=st.integers(0, 1 << 20), stop=st.none() | st.floats(0.0, 1.2))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_stretch_decides_and_leaves_the_same_as_its_events(policy, seed, stop):
    world = plain_world(seed)
    stop_ms = None if stop is None else int(stop * 2 * HOUR_MS)
    assert_same_runs(world, policy, stop_ms=stop_ms)


def assert_same_runs(world, policy, *, stop_ms=None):
    kernel, result = replay(world, policy, may_stretch=False, stop_ms=stop_ms)
    stretched, same = replay(world, policy, may_stretch=True, stop_ms=stop_ms)
    assert same.decisions_digest == result.decisions_digest
    assert_same(
        replace(same, stats=replace(same.stats, wall_s=0.0, peak_rss_bytes=0)),
        replace(result, stats=replace(result.stats, wall_s=0.0, peak_rss_bytes=0)),
        "result",
    )
    assert_same_kernels(stretched, kernel)


def test_stretch_ends_where_the_kernel_is_not_at_rest_after_a_start(monkeypatch):
    """Job 2 outlives what was said of it, and at one moment job 3 starts and job 4 is to start behind job 2."""
    ends = []
    settle = Agenda.settle

    def watch(agenda, *rest):
        ends.append(agenda.is_restless)
        settle(agenda, *rest)

    monkeypatch.setattr(Agenda, "settle", watch)
    jobs = [
        make_trace_job(1, submit_ms=0, run_ms=1, devices=2),
        make_trace_job(2, submit_ms=10, run_ms=90_000, estimate_ms=5),
        make_trace_job(3, submit_ms=100, run_ms=1_000, estimate_ms=1_000),
        make_trace_job(4, submit_ms=100, run_ms=1_000, devices=2),
        *(make_trace_job(number, submit_ms=200 * number, run_ms=number) for number in range(5, 20)),
    ]
    world = replace(
        plain_world(0), workload=Workload("overdue", jobs), cluster=make_cluster(1, 2), queues=(), tenants=()
    )
    assert_same_runs(world, named_policy("easy"))
    assert any(ends)
