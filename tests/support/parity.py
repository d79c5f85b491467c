"""One world through both drivers: the twin, and a control plane over the same simulated backend."""

from dataclasses import replace

from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.books import each_part
from clearway.live.controller import Controller
from clearway.live.guard import GuardSettings
from clearway.live.replay import replay_journal
from clearway.live.settings import ControlSettings
from clearway.model.events import (
    DemandForecast,
    DeviceDown,
    DeviceUp,
    JobCancelled,
    JobHeld,
    JobReleased,
    NodeDown,
    NodeDrained,
    NodeUp,
    PlanAccepted,
)
from clearway.model.runs import RunSpec
from clearway.model.units import FOREVER_MS
from clearway.ports.control import PROVISIONAL_ID, Submission
from clearway.sim.backend import SimulatedBackend
from clearway.sim.outages import make_outages
from clearway.sim.pace import Pace
from clearway.sim.twin import IDLE_TIMERS_MAX, SUBMITS_PER_BATCH_MAX, missing_queues, missing_tenants, run_twin
from clearway.sim.workload import job_rows
from support.manual_clock import ManualClock
from support.memory_store import MemoryStore

RUN = RunSpec(script="")


class _NoRecorder:
    """Takes all that a simulated backend wants to have recorded."""

    def __getattr__(self, _name):
        return lambda *_args, **_options: None


class LastingSimulation(SimulatedBackend):
    """The twin's backend as one that a control plane can find again: only for planes that do not die."""

    def __init__(self, workload, cluster, *, faults=(), extra_events=(), speed=None):
        super().__init__(
            workload.jobs,
            job_rows(workload.jobs),
            cluster,
            _NoRecorder(),
            pace=Pace(cluster, speed),
            outages=make_outages(faults, extra_events, cluster),
        )
        self.cluster = cluster

    def nodes(self):
        return self.cluster.nodes

    def connect(self, _now_ms, holdings, _world):
        assert not holdings
        return ()

    def progress(self):
        return {}

    def close(self):
        """Nothing runs."""


def twin_decisions(policy, workload, cluster, *, queues=(), tenants=(), faults=(), extra_events=(), speed=None):
    """The decision log of a run in the twin."""
    lines = []
    run_twin(
        Kernel(policy, RuntimeHistory()),
        workload,
        cluster,
        queues=queues,
        tenants=tenants,
        faults=faults,
        extra_events=extra_events,
        speed=speed,
        decision_log=lines.append,
    )
    return lines


def _split(extra_events):
    """What happens to machines, for the backend, and what people do: a NodeUp after a drain is an operator's."""
    drained = {event.node for event in extra_events if isinstance(event, NodeDrained)}
    outages, others = [], []
    for event in extra_events:
        is_outage = isinstance(event, NodeDown | NodeUp | DeviceDown | DeviceUp)
        is_undrain = isinstance(event, NodeUp) and event.node in drained
        (outages if is_outage and not is_undrain else others).append(event)
    return outages, others


class LiveRun:
    """The same through a control plane, whose clock is set to each moment at which something happens."""

    def __init__(self, policy, workload, cluster, *, queues=(), tenants=(), faults=(), extra_events=(), speed=None):
        self.lines = []
        self.policy = policy
        self.jobs = workload.jobs
        outages, self.extra = _split(extra_events)
        self.backend = LastingSimulation(workload, cluster, faults=faults, extra_events=outages, speed=speed)
        self.store = MemoryStore(encodes=True)
        self.clock = ManualClock()
        self.control = Controller(
            Kernel(policy, RuntimeHistory()),
            self.backend,
            self.store,
            self.clock,
            queues=(*queues, *missing_queues(self.jobs, queues)),
            tenants=(*tenants, *missing_tenants(self.jobs, tenants)),
            power_budget_watts=cluster.power_budget_watts,
            links=cluster.links,
            settings=ControlSettings(guard=GuardSettings(retries_max=0)),
            decision_log=self.lines.append,
        )
        self.answers = []

    def run(self):
        """The decision log, after the last event."""
        self.control.start()
        submitted = extra = idle = 0
        while True:
            at_ms = self.backend.next_ms(self.clock.now_ms())
            submit_ms = self.jobs[submitted].submit_ms if submitted < len(self.jobs) else FOREVER_MS
            extra_ms = self.extra[extra].at_ms if extra < len(self.extra) else FOREVER_MS
            if self._is_over(submitted):
                break
            at_ms = min(at_ms, submit_ms, extra_ms)
            timer_ms = self.control.next_due_ms()
            is_timer = timer_ms < at_ms
            if is_timer:
                if idle > IDLE_TIMERS_MAX and at_ms == FOREVER_MS:
                    break
                at_ms = timer_ms
            if at_ms == FOREVER_MS:
                break
            self.clock.set(at_ms)
            end = min(len(self.jobs), submitted + SUBMITS_PER_BATCH_MAX)
            while submitted < end and self.jobs[submitted].submit_ms == at_ms:
                self._submit(self.jobs[submitted])
                submitted += 1
            if submitted == len(self.jobs) or self.jobs[submitted].submit_ms != at_ms:
                while extra < len(self.extra) and self.extra[extra].at_ms == at_ms:
                    self._tell(self.extra[extra])
                    extra += 1
            before = len(self.lines)
            self.control.turn(at_ms)
            moved = any(" wakeat " not in line for line in self.lines[before:])
            idle = idle + 1 if is_timer and not moved else 0
        for answer in self.answers:
            answer.result(timeout=0)
        return self.lines

    def _is_over(self, submitted):
        if submitted < len(self.jobs) or self.backend.has_news:
            return False
        return not self.control._memory.books.jobs

    def _submit(self, job):
        spec = replace(job.spec, id=PROVISIONAL_ID)
        if spec.array is not None and spec.array.array == job.spec.id:
            spec = replace(spec, array=replace(spec.array, array=PROVISIONAL_ID))
        self.answers.append(self.control.submit(Submission(jobs=(spec,), runs=(RUN,), actor=spec.user)))

    def _tell(self, event):
        """By the request for it, where it changes something; else as something that was seen."""
        job = getattr(event, "job", None)
        asks = {JobCancelled: self.control.cancel, JobHeld: self.control.hold, JobReleased: self.control.release}
        row = None if job is None else self.store.rows.get(job)
        if type(event) in asks and row is not None and not row.state.is_final:
            self.answers.append(asks[type(event)]((job,), actor="ada"))
        elif isinstance(event, NodeDrained):
            self.answers.append(self.control.drain(event.node, reason=event.reason, actor="ada"))
        elif isinstance(event, NodeUp):
            self.answers.append(self.control.undrain(event.node, actor="ada"))
        else:
            self.answers.append(self.control.report((event,)))

    def forecasts(self):
        """The forecasts of demand that the control plane made, by its journal."""
        parts = (part for _, event in self.store.read_journal() for part in each_part(event))
        return [part for part in parts if isinstance(part, DemandForecast) and part not in self.extra]

    def count_plans(self):
        """The plans in the journal."""
        return sum(isinstance(event, PlanAccepted) for _, event in self.store.read_journal())

    def replay(self):
        """The journal of this run, decided anew."""
        return replay_journal(self.store.read_journal(), lambda _: Kernel(self.policy, RuntimeHistory()))
