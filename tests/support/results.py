"""Made-up results of the twin: `make_result` from a few columns, `make_busy_result` realistic, from a seed."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobKind, JobSpec, Outcome, Request
from clearway.model.units import DAY_MS, FOREVER_MS, HOUR_MS, MINUTE_MS
from clearway.sim.bounds import compute_bounds
from clearway.sim.result import JobColumns, RunStats, Series, SimResult
from clearway.sim.workload import TraceJob, Workload

KINDS = tuple(kind.value for kind in JobKind)
OUTCOMES = tuple(outcome.value for outcome in Outcome)
JOB_DEFAULTS = {
    "submit_ms": 0,
    "start_ms": -1,
    "end_ms": -1,
    "run_ms": 1_000,
    "limit_ms": FOREVER_MS,
    "latency_ms": FOREVER_MS,
    "devices_milli": 1_000,
    "held_device_ms": 0,
    "lost_device_ms": 0,
    "waited_ms": 0,
    "preemptions": 0,
    "restarts": 0,
    "kind": 0,
    "tenant": 0,
    "queue": 0,
    "outcome": 0,
}


def make_columns(count, *, kinds=KINDS, tenants=("root",), queues=("production",), job_names=(), **columns):
    """Columns of `count` jobs; each keyword is a list of that length or one value for all."""
    values = {"job": np.arange(1, count + 1)} | JOB_DEFAULTS | columns
    arrays = {key: np.broadcast_to(np.asarray(value, dtype=np.int64), (count,)).copy() for key, value in values.items()}
    return JobColumns(
        **arrays,
        kind_names=kinds,
        tenant_names=tenants,
        queue_names=queues,
        outcome_names=OUTCOMES,
        job_names=job_names,
    )


def make_series(*, time_ms=(0,), capacity_milli=4_000, **columns):
    """A series with zeros where nothing is said."""
    names = ("allocated_milli", "pending_jobs", "pending_milli", "running_jobs", "stranded_milli")
    values = dict.fromkeys(names, 0) | {"capacity_milli": capacity_milli} | columns
    rows = len(time_ms)
    arrays = {key: np.broadcast_to(np.asarray(value, dtype=np.int64), (rows,)).copy() for key, value in values.items()}
    return Series(time_ms=np.asarray(time_ms, dtype=np.int64), **arrays)


def make_result(jobs, *, series=None, policy="fifo", allocated=0, capacity=0, useful=0, **stats):
    """One result around `jobs`; the three integrals are in device-ms."""
    return SimResult(
        workload="made-up",
        policy=policy,
        cluster="1x4",
        seed=7,
        jobs=jobs,
        series=series or make_series(),
        stats=RunStats(**({"wall_s": 0.5, "events": 10, "cycles": 5, "peak_rss_bytes": 1 << 20} | stats)),
        allocated_device_ms=allocated,
        capacity_device_ms=capacity,
        useful_device_ms=useful,
        decisions_digest="ab" * 32,
    )


@dataclass(frozen=True)
class BusyPolicy:
    """What tells one made-up policy from another: the order of the queue, and whether later jobs may pass."""

    name: str
    key: Callable
    passes: bool
    preempted_ratio: float = 0.0


BUSY_POLICIES = (
    BusyPolicy("fifo", lambda submit, run, devices: submit, passes=False),
    BusyPolicy("easy", lambda submit, run, devices: submit, passes=True),
    BusyPolicy("sjf", lambda submit, run, devices: run, passes=True),
    BusyPolicy("clearway", lambda submit, run, devices: run * devices, passes=True, preempted_ratio=0.04),
)


def make_busy_jobs(seed, *, count=1_500, days=5.0):
    """Columns before scheduling: a daily cycle of submissions, heavy-tailed run times, gangs of powers of two."""
    rng = np.random.default_rng(seed)
    clock = rng.uniform(0, days * DAY_MS, 4 * count)
    likely = 0.35 + 0.65 * np.clip(np.sin((clock / DAY_MS - 0.3) * 2 * np.pi), 0, None)
    submit = np.sort(clock[rng.uniform(size=clock.size) < likely][:count]).astype(np.int64)
    kind = rng.choice(5, size=submit.size, p=[0.4, 0.15, 0.02, 0.33, 0.1])
    big = np.array([1, 2, 4, 8, 16, 32])[rng.choice(6, size=submit.size, p=[0.36, 0.18, 0.14, 0.2, 0.09, 0.03])]
    median = np.array([90, 60, 240, 4, 45])[kind] * MINUTE_MS
    run = np.clip(rng.lognormal(np.log(median), 1.3), 5_000, 2 * DAY_MS).astype(np.int64)
    return make_columns(
        submit.size,
        tenants=("vision", "speech", "语言", "recsys", "robotics", "bio", "<ops & infra>"),
        queues=("production", "debug", "urgent"),
        submit_ms=submit - submit[0],
        run_ms=run,
        devices_milli=np.where(kind == 3, 1, big) * 1_000,
        kind=kind,
        tenant=rng.choice(7, size=submit.size, p=[0.3, 0.22, 0.18, 0.12, 0.09, 0.06, 0.03]),
        queue=rng.choice(3, size=submit.size, p=[0.8, 0.15, 0.05]),
    )


def make_busy_bounds(result, devices=128):
    """The bounds of a result of `make_busy_result`."""
    jobs = result.jobs
    traced = [
        TraceJob(JobSpec(id=JobId(row + 1), request=Request(), replicas=milli // 1_000), submit, run)
        for row, (milli, submit, run) in enumerate(
            zip(jobs.devices_milli.tolist(), jobs.submit_ms.tolist(), jobs.run_ms.tolist(), strict=True)
        )
    ]
    node = NodeSpec(name=NodeName("n"), groups=(DeviceGroup(model="a", count=8),))
    return compute_bounds(Workload("made-up", traced), ClusterSpec(nodes=(node,) * (devices // 8)))


def make_busy_result(seed=1, policy=BUSY_POLICIES[0], *, devices=128, count=1_500):
    """A plausible run of `policy` over `make_busy_jobs(seed)`: counts devices only, decides at each submit and end."""
    jobs = make_busy_jobs(seed, count=count)
    rng = np.random.default_rng(seed + 1)
    rows = _schedule(jobs, policy, devices, rng)
    asked = jobs.devices_milli // 1_000
    held = (jobs.end_ms - jobs.start_ms) * asked
    jobs.held_device_ms[:] = held
    jobs.waited_ms[:] = jobs.start_ms - jobs.submit_ms
    return make_result(
        jobs,
        policy=policy.name,
        series=_series_of(rows, devices),
        allocated=int(held.sum()),
        capacity=int(jobs.end_ms.max()) * devices,
        useful=int((held - jobs.lost_device_ms).sum()),
        wall_s=0.21,
        events=2 * len(jobs),
        peak_rss_bytes=180 << 20,
    )


def _schedule(jobs, policy, devices, rng):
    """Fill start, end, preemption and loss columns; return rows (time, free, waiting jobs, their devices, running)."""
    asked = jobs.devices_milli // 1_000
    keys = policy.key(jobs.submit_ms, jobs.run_ms, asked)
    free, waiting, running, rows = devices, [], [], []
    events = [(int(time), 1, row) for row, time in enumerate(jobs.submit_ms)]
    heapq.heapify(events)
    while events:
        now, is_submit, row = heapq.heappop(events)
        if is_submit:
            waiting.append(row)
        else:
            free += int(asked[row])
            running.remove(row)
        for candidate in sorted(waiting, key=lambda r: (keys[r], r)):
            if asked[candidate] <= free:
                free -= int(asked[candidate])
                waiting.remove(candidate)
                running.append(candidate)
                end = now + int(jobs.run_ms[candidate]) + _lost_ms(jobs, candidate, policy, rng)
                jobs.start_ms[candidate], jobs.end_ms[candidate] = now, end
                heapq.heappush(events, (end, 0, candidate))
            elif not policy.passes:
                break
        stranded = min(free, int(rng.integers(0, 9))) if waiting else 0
        rows.append((now, free, len(waiting), int(asked[waiting].sum()), len(running), stranded))
    return np.array(rows, dtype=np.int64).T


def _lost_ms(jobs, row, policy, rng):
    """Now and then a long job is preempted once and does some minutes again."""
    if jobs.run_ms[row] < HOUR_MS or rng.uniform() >= policy.preempted_ratio:
        return 0
    lost = int(rng.integers(2, 15)) * MINUTE_MS
    jobs.preemptions[row] = jobs.restarts[row] = 1
    jobs.lost_device_ms[row] = lost * int(jobs.devices_milli[row]) // 1_000
    return lost


def _series_of(rows, devices):
    time, free, waiting, waiting_devices, running, stranded = rows
    return make_series(
        time_ms=time,
        capacity_milli=devices * 1_000,
        allocated_milli=(devices - free) * 1_000,
        pending_jobs=waiting,
        pending_milli=waiting_devices * 1_000,
        running_jobs=running,
        stranded_milli=stranded * 1_000,
    )
