"""The driver of the twin: feeds one kernel with a workload and a simulated cluster, under a clock of its own.

One turn of the loop takes the earliest moment at which anything happens, hands all that happens then to the kernel in
one call, and has the commands carried out. Order within one moment:

1. what the backend reports: effects of the last commands, then jobs that leave, jobs that start, failures, repairs;
2. submits, in workload order;
3. events from outside (cancels, holds, drains), in the order given;
4. the timer.

What commands cause in the same millisecond comes in the next turn at the same time; only starts may come together with
the next moment, where the kernel says that it has nothing to decide before. Where only plain jobs come and go, many
moments are handled in one call (`sim.stretches`), to the same effect. Nothing here depends on a clock,
on the order of a set or on hash values; the wall clock is read for `RunStats.wall_s` only.
"""

import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from clearway.engine.policy import Policy, RuntimeSource
from clearway.kernel.decisions import DecisionDigest, render_decision
from clearway.model.cluster import ClusterSpec, QueueSpec, TenantSpec
from clearway.model.commands import Command, WakeAt
from clearway.model.errors import InternalError
from clearway.model.events import (
    Batch,
    DeviceDown,
    DeviceUp,
    Event,
    JobCancelled,
    JobStopped,
    JobSubmitted,
    LinksSet,
    NodeAdded,
    NodeDown,
    NodeUp,
    PowerBudgetSet,
    QueueSet,
    TenantSet,
    TimerFired,
)
from clearway.model.ids import ROOT_TENANT, JobId
from clearway.model.units import FOREVER_MS, MILLI
from clearway.sim.backend import BackendSettings, SimulatedBackend
from clearway.sim.faults import Fault
from clearway.sim.outages import make_outages
from clearway.sim.pace import Pace
from clearway.sim.profiles import SpeedModel
from clearway.sim.recorder import Recorder
from clearway.sim.result import RunStats, SimResult
from clearway.sim.stretches import Stretches, make_stretches
from clearway.sim.workload import TraceJob, Workload, job_rows

SUBMITS_PER_BATCH_MAX: Final = 16_384
"""Jobs submitted in one call of the kernel: a burst of thousands is one decision, a trace that submits everything at
once is still taken in bites."""

IDLE_TIMERS_MAX: Final = 1_000
"""Timers in a row after which nothing was done, with nothing else to come: the waiting jobs will never start. Far more
than any policy's patience needs, far less than for ever."""

TURNS_PER_MOMENT_MAX: Final = 10_000
"""Turns in a row at the same millisecond after which the kernel will not come to rest: it wakes itself, or starts and
preempts the same jobs, without end. A million jobs submitted at once take some hundred."""

_KIB: Final = 1_024


class DecidesByEvents(Protocol):
    """What the driver needs of a kernel (`clearway.kernel.Kernel`).

    handle: takes one event, returns the commands in order. A kernel may also offer `stranded_milli() -> int`, and
    `at_rest: bool`, whether being told that jobs started as decided would make it decide anything now.
    """

    @property
    def policy(self) -> Policy:
        """The settings it decides by."""
        ...

    def handle(self, event: Event, /) -> Sequence[Command]:
        """Take in what happened, and decide."""
        ...


class WatchesDecisions(Protocol):
    """A checker, called after each decision. Raises InternalError when something is wrong."""

    def watch(self, event: Event, commands: Sequence[Command]) -> None:
        """`event` was handed over (a batch: its events in order), and then `commands` were decided."""
        ...


def run_twin(
    kernel: DecidesByEvents,
    workload: Workload,
    cluster: ClusterSpec,
    *,
    queues: Sequence[QueueSpec] = (),
    tenants: Sequence[TenantSpec] = (),
    faults: Sequence[Fault] = (),
    extra_events: Sequence[Event] = (),
    speed: SpeedModel | None = None,
    settings: BackendSettings | None = None,
    seed: int = 0,
    cluster_name: str = "",
    checkers: Sequence[WatchesDecisions] = (),
    progress: Callable[[int, int], None] | None = None,
    decision_log: Callable[[str], None] | None = None,
    stop_ms: int | None = None,
    may_stretch: bool = True,
) -> SimResult:
    """Replay `workload` through `kernel` (a new one) on `cluster`.

    queues, tenants: those that jobs name and that are not given are made, with nothing set. faults: sorted by time.
    extra_events: what people and machines do besides, sorted by at_ms; outages among them happen as faults do.
    speed: measured speeds, None = by device model only. seed: only written into the result; all randomness is in the
    arguments. progress: called with (jobs ended, jobs in all), some thousand times. decision_log: gets one line per
    command. stop_ms: nothing that happens at or after this time is looked at. may_stretch: False = every moment is an
    event of its own, also where only plain jobs come and go; for comparing the two ways, which decide the same.

    Jobs that can never start are unfinished in the result. Raises InternalError when the kernel breaks an invariant.
    """
    twin = _Twin(
        kernel,
        workload,
        cluster,
        faults=faults,
        extra_events=extra_events,
        speed=speed,
        settings=settings,
        checkers=checkers,
        progress=progress,
        decision_log=decision_log,
        may_stretch=may_stretch,
    )
    begun_s = time.perf_counter()
    with _collector_at_rest():
        twin.set_up(queues, tenants)
        now_ms = twin.replay(FOREVER_MS if stop_ms is None else stop_ms)
    end_ms = twin.recorder.close(now_ms)
    stats = RunStats(
        wall_s=time.perf_counter() - begun_s,
        events=twin.events,
        cycles=twin.cycles,
        peak_rss_bytes=_peak_rss_bytes(),
    )
    return twin.recorder.result(
        end_ms,
        policy=kernel.policy.name,
        cluster=cluster_name or describe_cluster(cluster),
        seed=seed,
        stats=stats,
        digest=twin.digest.hexdigest(),
    )


class _Twin:
    """The parts of one run, and its loop."""

    def __init__(
        self,
        kernel: DecidesByEvents,
        workload: Workload,
        cluster: ClusterSpec,
        *,
        faults: Sequence[Fault],
        extra_events: Sequence[Event],
        speed: SpeedModel | None,
        settings: BackendSettings | None,
        checkers: Sequence[WatchesDecisions],
        progress: Callable[[int, int], None] | None,
        decision_log: Callable[[str], None] | None,
        may_stretch: bool,
    ) -> None:
        self.kernel = kernel
        self.handle = kernel.handle
        self.jobs = workload.jobs
        self.cluster = cluster
        self.recorder = Recorder(
            workload, cluster.device_count * MILLI, getattr(kernel, "stranded_milli", _nothing_stranded)
        )
        self.rows = job_rows(self.jobs)
        self.backend = SimulatedBackend(
            self.jobs,
            self.rows,
            cluster,
            self.recorder,
            pace=Pace(cluster, speed),
            outages=make_outages(faults, extra_events, cluster),
            settings=settings,
        )
        self.extra_events = [e for e in extra_events if not isinstance(e, NodeDown | NodeUp | DeviceDown | DeviceUp)]
        self.extra = 0
        self.extra_ms = _time_at(self.extra_events, 0)
        self.position = 0
        self.submit_ms = self.jobs[0].submit_ms if self.jobs else FOREVER_MS
        self.timer_ms = FOREVER_MS
        self.digest = DecisionDigest()
        self.stretches: Stretches | None = None
        if not (extra_events or checkers or decision_log) and may_stretch:
            self.stretches = make_stretches(kernel, self.backend, self.recorder, self.digest)
        self.checkers = checkers
        self.progress = progress
        self.decision_log = decision_log
        self.knows_truth = kernel.policy.runtime is RuntimeSource.ORACLE
        self.cancelled: set[JobId] = set()
        self.events = 0
        self.cycles = 0
        self.idle_timers = 0
        self.turns = 0

    # --- the loop -------------------------------------------------------------------------------------------------

    def set_up(self, queues: Sequence[QueueSpec], tenants: Sequence[TenantSpec]) -> None:
        """Tell the kernel of queues, tenants and nodes, in one batch at time 0."""
        events: list[Event] = [QueueSet(0, queue) for queue in (*queues, *missing_queues(self.jobs, queues))]
        events += [TenantSet(0, tenant) for tenant in (*tenants, *missing_tenants(self.jobs, tenants))]
        events += [NodeAdded(0, node) for node in self.cluster.nodes]
        if self.cluster.power_budget_watts is not None:
            events.append(PowerBudgetSet(0, self.cluster.power_budget_watts))
        if self.cluster.links:
            events.append(LinksSet(0, self.cluster.links))
        self.decide(0, events)

    def replay(self, stop_ms: int) -> int:
        """Run until nothing more happens, or until `stop_ms`. Returns the time of the last moment."""
        recorder, next_backend_ms = self.recorder, self.backend.next_ms
        total = len(self.jobs)
        now_ms = turn_ms = 0
        while recorder.ended < total or self.backend.has_news:
            backend_ms = next_backend_ms(now_ms)
            at_ms = backend_ms if backend_ms < self.submit_ms else self.submit_ms
            if self.extra_ms < at_ms:
                at_ms = self.extra_ms
            if self.timer_ms < at_ms:
                if self.idle_timers > IDLE_TIMERS_MAX and at_ms == FOREVER_MS:
                    break
                at_ms = self.timer_ms
            if at_ms >= stop_ms:
                now_ms = now_ms if at_ms == FOREVER_MS else stop_ms
                break
            if at_ms > recorder.next_sample_ms:
                recorder.sample(at_ms)
                if self.progress is not None:
                    self.progress(recorder.ended, total)
            if self.stretches is not None and self.pass_stretch(min(recorder.next_sample_ms + 1, stop_ms)):
                now_ms = turn_ms = self.stretches.agenda.now_ms
                continue
            self.turns = self.turns + 1 if at_ms == now_ms else 0
            if self.turns > TURNS_PER_MOMENT_MAX:
                raise InternalError(f"expected time to go on; {self.turns} decisions in a row were made at {now_ms} ms")
            now_ms = at_ms
            events = self.backend.observe(now_ms) if backend_ms == now_ms or self.backend.has_news else []
            if self.cancelled:
                self.withdraw_stopped(now_ms, events)
            if self.submit_ms == now_ms:
                self.take_submits(now_ms, events)
            if self.extra_ms == now_ms != self.submit_ms:
                self.take_extras(now_ms, events)
            if self.timer_ms == now_ms:
                self.take_timer(now_ms, events)
            else:
                self.idle_timers = 0
            self.decide(now_ms, events)
            turn_ms = now_ms
        if self.backend.has_news:
            self.decide(turn_ms, self.backend.observe(turn_ms))
        if self.progress is not None:
            self.progress(recorder.ended, total)
        return now_ms

    def pass_stretch(self, until_ms: int) -> bool:
        """Handle the moments before `until_ms` in one stretch, if there may be one; False if none was handled."""
        stretches = self.stretches
        if stretches is None or self.timer_ms != FOREVER_MS or not stretches.run(self.position, until_ms):
            return False
        self.go_to(stretches.agenda.next)
        self.events += stretches.agenda.events
        self.cycles += stretches.agenda.moments
        self.turns = self.idle_timers = 0
        return True

    def go_to(self, position: int) -> None:
        """The job there is the next to be submitted."""
        self.position = position
        self.submit_ms = self.jobs[position].submit_ms if position < len(self.jobs) else FOREVER_MS

    def decide(self, now_ms: int, events: list[Event]) -> None:
        """Hand the events over, and have the commands carried out."""
        count = len(events)
        event = events[0] if count == 1 else Batch(now_ms, tuple(events))
        commands = self.handle(event)
        self.events += count
        self.cycles += 1
        if commands:
            self.digest.add(now_ms, commands)
            backend = self.backend
            for command in commands:
                if type(command) is WakeAt:
                    self.timer_ms = max(command.at_ms, now_ms)
                else:
                    self.idle_timers = 0
                    backend.perform(now_ms, command)  # type: ignore[arg-type]
            if backend.has_news:
                backend.let_starts_wait(may_wait=self.kernel_is_at_rest())
            if self.decision_log is not None:
                for command in commands:
                    self.decision_log(render_decision(now_ms, command))
        if self.checkers:
            for checker in self.checkers:
                checker.watch(event, commands)

    # --- single events --------------------------------------------------------------------------------------------

    def kernel_is_at_rest(self) -> bool:
        """Whether the kernel, if it can say so, has nothing to decide now."""
        return bool(getattr(self.kernel, "at_rest", False))

    def take_submits(self, now_ms: int, events: list[Event]) -> None:
        """The jobs that are submitted now, so many as one call may bring."""
        jobs, position = self.jobs, self.position
        end = min(len(jobs), position + SUBMITS_PER_BATCH_MAX)
        while position < end and jobs[position].submit_ms == now_ms:
            self.recorder.submitted(position)
            job = jobs[position]
            spec = replace(job.spec, oracle_ms=job.run_ms) if self.knows_truth else job.spec
            events.append(JobSubmitted(now_ms, spec))
            position += 1
        self.go_to(position)

    def take_extras(self, now_ms: int, events: list[Event]) -> None:
        """Events from outside. A job that is cancelled while it has no devices and no memory is over at once."""
        while self.extra_ms == now_ms:
            event = self.extra_events[self.extra]
            events.append(event)
            if isinstance(event, JobCancelled):
                row = self.rows[event.job]
                if self.backend.has_run(row):
                    self.cancelled.add(event.job)
                else:
                    self.recorder.withdrawn(row, now_ms)
            self.extra += 1
            self.extra_ms = _time_at(self.extra_events, self.extra)

    def take_timer(self, now_ms: int, events: list[Event]) -> None:
        """The kernel wanted to be woken now."""
        self.timer_ms = FOREVER_MS
        self.idle_timers = 0 if events else self.idle_timers + 1
        events.append(TimerFired(now_ms))

    def withdraw_stopped(self, now_ms: int, events: list[Event]) -> None:
        """A job that was cancelled while it was leaving is over when it has left."""
        for event in events:
            if isinstance(event, JobStopped) and event.job in self.cancelled:
                self.recorder.withdrawn(self.rows[event.job], now_ms)


def _time_at(events: Sequence[Event], index: int) -> int:
    return events[index].at_ms if index < len(events) else FOREVER_MS


def _nothing_stranded() -> int:
    return 0


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """The loop makes millions of short-lived objects and no cycles: looking for cycles would only cost time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _peak_rss_bytes() -> int:
    """Largest resident set of this process so far; Linux counts it in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB


def missing_queues(jobs: Sequence[TraceJob], queues: Sequence[QueueSpec]) -> list[QueueSpec]:
    """Queues that jobs name and nobody described, in order of first appearance."""
    named = dict.fromkeys(job.spec.queue for job in jobs)
    known = {queue.name for queue in queues}
    return [QueueSpec(name=name) for name in named if name not in known]


def missing_tenants(jobs: Sequence[TraceJob], tenants: Sequence[TenantSpec]) -> list[TenantSpec]:
    """Tenants that jobs name and nobody described, in order of first appearance; the root is always there."""
    named = dict.fromkeys(job.spec.tenant for job in jobs)
    known = {tenant.name for tenant in tenants} | {ROOT_TENANT}
    return [TenantSpec(name=name) for name in named if name not in known]


def describe_cluster(cluster: ClusterSpec) -> str:
    """The cluster in the form of a SPEC, e.g. `64x8:V100,32x4:A100`: nodes in a row that have equal devices."""
    runs: list[tuple[str, int]] = []
    for node in cluster.nodes:
        shape = "+".join(f"{group.count}:{group.model}" for group in node.groups) or "0"
        if runs and runs[-1][0] == shape:
            runs[-1] = (shape, runs[-1][1] + 1)
        else:
            runs.append((shape, 1))
    return ",".join(f"{count}x{shape}" for shape, count in runs)
