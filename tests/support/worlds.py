"""Small clusters, workloads and allocations for tests of the twin."""

from dataclasses import replace

import numpy as np

from clearway.engine.budgets import is_leaving
from clearway.engine.claims import is_claim_ready
from clearway.engine.limits import within_limits
from clearway.engine.tables import JOB_CLASS
from clearway.model.allocation import Allocation
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.errors import InternalError
from clearway.model.jobs import JobSpec, Outcome, Request
from clearway.model.units import FOREVER_MS, MILLI
from clearway.sim.backend import SimulatedBackend
from clearway.sim.checkers import ShadowCluster, StateChecker
from clearway.sim.outages import make_outages
from clearway.sim.pace import Pace
from clearway.sim.recorder import Recorder
from clearway.sim.shadow_rules import make_queue_rule, make_quota_rule
from clearway.sim.twin import run_twin
from clearway.sim.workload import TraceJob, Workload, job_rows


def make_cluster(nodes=2, devices=4, *, speed=1.0, watts_max=0, power_budget_watts=None, **node):
    """`nodes` equal nodes of `devices` devices, named n0, n1, …"""
    group = DeviceGroup(model="A100", count=devices, speed=speed, watts_max=watts_max)
    specs = tuple(NodeSpec(name=f"n{index}", groups=(group,), **node) for index in range(nodes))
    return ClusterSpec(nodes=specs, power_budget_watts=power_budget_watts)


def make_trace_job(number=1, *, submit_ms=0, run_ms=1_000, devices=1, outcome=Outcome.COMPLETED, profile="", **spec):
    spec = {"request": Request(devices=devices)} | spec
    return TraceJob(JobSpec(id=number, **spec), submit_ms, run_ms, profile, outcome)


def make_workload(*jobs):
    return Workload("test", list(jobs))


def make_allocation(nodes, devices):
    return Allocation(np.array(nodes, dtype=np.int64), np.array(devices, dtype=np.int64))


def run_checked(world, kernel, *more_checkers):
    """Replay a random world with every checker on. Returns the result; raises InternalError with the seed."""
    shadow = ShadowCluster(world.seed, [make_queue_rule(world.queues), make_quota_rule(world.tenants)])
    result = run_twin(
        kernel,
        world.workload,
        world.cluster,
        queues=world.queues,
        tenants=world.tenants,
        faults=world.faults,
        extra_events=world.extra_events,
        seed=world.seed,
        checkers=[shadow, StateChecker(shadow, kernel.state), ClaimChecker(world.seed, kernel.state), *more_checkers],
    )
    shadow.check_end()
    names = [result.jobs.outcome_names[code] if code >= 0 else None for code in result.jobs.outcome]
    assert names == [job.outcome for job in shadow.books.jobs.values()], f"seed {world.seed}: outcomes differ"
    assert result.useful_device_ms <= result.allocated_device_ms <= result.capacity_device_ms
    return result


class ClaimChecker:
    """Devices are kept for a job only while somebody leaves, or where it can start: else they would lie idle for it."""

    def __init__(self, seed, state):
        self._seed = seed
        self._state = state

    def watch(self, _event, _commands):
        state = self._state
        if not state.claims or any(
            record.allocation is not None and is_leaving(record) for record in state.by_row.values()
        ):
            return
        for row, claim in state.claims.items():
            record, allocation = state.by_row[row], claim.allocation
            cls = int(state.rows.table[JOB_CLASS, row])
            milli = allocation.replicas * record.spec.request.device_milli
            is_ready = is_claim_ready(cls, allocation.nodes, allocation.devices, state.door)
            if not (is_ready and within_limits(state, row, milli)):
                where = f"seed {self._seed}, at {state.now_ms} ms: job {record.spec.id}"
                raise InternalError(f"{where} waits for devices that are kept for it although nobody leaves")


def without_later(job, members=None):
    """The job, without what it waits for that nobody has submitted before it: a control plane would refuse it.

    members: number of the job that is a task of an array, by (array, index), where arrays come task by task.
    """
    spec = job.spec
    earlier = tuple(
        one
        for one in spec.dependencies
        if one.job is None or max(one.job, (members or {}).get((one.job, one.task), 0)) < spec.id
    )
    return replace(job, spec=replace(spec, dependencies=earlier))


class BackendBench:
    """A backend with a recorder, told what to do at which time; `events` is all that it has reported."""

    def __init__(self, *jobs, cluster=None, faults=(), speeds=None, settings=None):
        self.cluster = cluster or make_cluster()
        self.workload = make_workload(*jobs)
        self.recorder = Recorder(self.workload, self.cluster.device_count * MILLI, lambda: 0)
        self.backend = SimulatedBackend(
            self.workload.jobs,
            job_rows(self.workload.jobs),
            self.cluster,
            self.recorder,
            pace=Pace(self.cluster, speeds),
            outages=make_outages(faults, (), self.cluster),
            settings=settings,
        )
        self.events = []
        self.now_ms = 0
        for row in range(len(jobs)):
            self.recorder.submitted(row)

    def run(self, until_ms=FOREVER_MS):
        """Let everything happen up to and including `until_ms`; returns what was reported."""
        told = []
        while (at_ms := self.backend.next_ms(self.now_ms)) <= until_ms and at_ms != FOREVER_MS:
            self.now_ms = at_ms
            told += self.backend.observe(at_ms)
        if until_ms != FOREVER_MS:
            self.now_ms = until_ms
        self.events += told
        return told

    def perform(self, at_ms, *commands):
        """Let everything happen up to `at_ms`, then carry out the commands; returns what they caused at once."""
        self.run(at_ms)
        for command in commands:
            self.backend.perform(at_ms, command)
        told = self.backend.observe(at_ms)
        self.events += told
        return told

    def columns(self):
        """The recorder's columns, closed now."""
        end_ms = self.recorder.close(self.now_ms)
        return self.recorder.result(end_ms, policy="", cluster="", seed=0, stats=None, digest="")
