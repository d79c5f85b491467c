"""The simulated backend: carries out commands on nodes that do not exist, and reports what would have happened.

Implements `clearway.ports.backend.Backend`, whose rules hold here to the millisecond; on top of them:

- `observe(now)` reports in this order: what commands caused at once, in their order; then what came due, by (time,
  rank, sequence), where whatever gives devices back ranks before what starts; then failures and repairs.
- A job that is told to leave stops working at once. It saves if its checkpoint works on signal and costs no more than
  the grace; else it leaves at once with its last regular checkpoint. Without a checkpoint everything is lost.
- A migration or resize takes the cost of one checkpoint, during which the old and the new devices are held; then
  `JobResized`, then the restart time on the new ones. A job without checkpoint keeps its work over a resize (its
  replicas hand it over), and loses it in a migration (nothing of it is left).
- The work of a suspended job lies in its nodes' memory. If one of these fails, the next start is a restart.

One object per run and one entry in the heap per run: an entry counts only while its sequence number is the run's. An
entry is a number: to compare tuples is most of what a heap of ten thousand of them costs. Most runs are *simple*: they
work at reference speed from their start to their end, and nothing else is asked of them. Such a run is kept as the
`Start` that made it, and unfolded into a `Run` when something is.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import numpy as np

from clearway.engine.agenda import START_PLACE
from clearway.engine.settle import Agenda
from clearway.model.allocation import Allocation
from clearway.model.cluster import ClusterSpec
from clearway.model.errors import InternalError
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    Event,
    JobFinished,
    JobResized,
    JobStarted,
    JobStopped,
    JobSuspended,
    NodeDown,
    NodeUp,
)
from clearway.model.ids import JobId
from clearway.model.jobs import JobKind, Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.model.units import FOREVER_MS, MILLI
from clearway.ports.backend import BackendCommand
from clearway.sim.health import Health
from clearway.sim.outages import Outage
from clearway.sim.pace import Pace
from clearway.sim.progress import REFERENCE_PPM, Progress
from clearway.sim.recorder import Recorder
from clearway.sim.run import MOVING, SAVING, STARTING, WORKING, Run, simple_outcome, simple_span_ms
from clearway.sim.workload import TraceJob

_RANK_LEAVE: Final = 0
_RANK_START: Final = 1

_SEQUENCE_BITS: Final = 40
"""Bits of an entry of the heap below time and rank: for a million million waits of one run of the twin."""
_SEQUENCES: Final = (1 << _SEQUENCE_BITS) - 1
_TIME_SHIFT: Final = _SEQUENCE_BITS + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """cold_start_ms: time from a start to `JobStarted`, by kind of job; kinds left out start at once."""

    cold_start_ms: Mapping[JobKind, int] = field(default_factory=dict)


class SimulatedBackend:
    """jobs: the truth. rows: job id → place in `jobs`. outages: sorted, see `sim.outages`."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        rows: Mapping[int, int] | range,
        cluster: ClusterSpec,
        recorder: Recorder,
        *,
        pace: Pace,
        outages: Sequence[Outage] = (),
        settings: BackendSettings | None = None,
    ) -> None:
        self.jobs = jobs
        self._rows = rows
        self._nodes = cluster.nodes
        self._recorder = recorder
        self._pace = pace
        self._delays = dict((settings or BackendSettings()).cold_start_ms)
        self._runs: dict[int, Run | Start] = {}
        self._asleep: dict[int, Run] = {}
        self._progress: dict[int, Progress] = {}
        self._generations = array("q", [0]) * len(jobs)
        self._due: list[Event] = []
        self._can_wait = False
        self._heap: list[int] = []  # (time, rank, sequence) in one number each
        self._awaited: dict[int, Run | Start] = {}  # by sequence
        self._sequence = 0
        self._sequences = array("q", [0]) * len(jobs)  # by row, of simple runs: their sequence,
        self._begun_ms = array("q", [0]) * len(jobs)  # and when they began
        self.spans_ms = array("q", [simple_span_ms(job) for job in jobs])
        self.outcomes = [simple_outcome(job) for job in jobs]
        self._outages = outages
        self._outage = 0
        is_watched = bool(outages) or cluster.power_budget_watts is not None
        self._health = Health(cluster) if is_watched else None
        self._has_simple = not is_watched and not any(self._delays.values())
        self._agenda: Agenda | None = None  # in runs with stretches: it keeps the ends of simple runs
        self._performers = {
            Stop: self._stop,
            Suspend: self._suspend,
            Resize: self._move,
            Migrate: self._move,
            Cap: self._cap,
        }

    # --- the port -------------------------------------------------------------------------------------------------

    def perform(self, now_ms: int, command: BackendCommand) -> None:
        """See `Backend.perform`."""
        if type(command) is Start:
            self._start(now_ms, command)
        else:
            self._performers[type(command)](now_ms, command)  # type: ignore[operator]

    def observe(self, now_ms: int) -> list[Event]:
        """See `Backend.observe`. All that comes due at `now_ms` is told in one list, outages with their victims."""
        events, heap, awaited = self._due, self._heap, self._awaited
        later = (now_ms + 1) << _TIME_SHIFT
        if self._agenda is not None:
            self._end_simple(now_ms, self._agenda, events)
        while heap and heap[0] < later:
            run = awaited.pop(heappop(heap) & _SEQUENCES, None)
            if run is None:  # it left before
                continue
            if isinstance(run, Start):
                row = self._rows[run.job]
                outcome = self.outcomes[row]
                del self._runs[row]
                self._recorder.ended_simply(row, now_ms, outcome)
                events.append(JobFinished(now_ms, run.job, run.generation, outcome))
            elif run.phase == WORKING:
                self._finish(now_ms, run, run.outcome)
            else:
                self._come_due(now_ms, run)
        while self._outage < len(self._outages) and self._outages[self._outage].at_ms <= now_ms:
            self._break_or_mend(now_ms, self._outages[self._outage])
            self._outage += 1
        self._due = []
        return events

    def let_starts_wait(self, *, may_wait: bool) -> None:
        """If they may wait, and the last commands caused nothing but starts, these need no moment of their own to be
        told: whoever asks at the next moment is told first of them."""
        if may_wait:
            for event in self._due:
                if type(event) is not JobStarted:
                    may_wait = False
                    break
        self._can_wait = may_wait

    def next_ms(self, now_ms: int) -> int:
        """When `observe` will have something to tell that cannot wait; FOREVER_MS = never unless commands come."""
        if self._due and not self._can_wait:
            return now_ms
        if self._agenda is not None:
            return self._agenda.endings.first_ms()
        heap, awaited = self._heap, self._awaited
        while heap and heap[0] & _SEQUENCES not in awaited:
            heappop(heap)
        at_ms = heap[0] >> _TIME_SHIFT if heap else FOREVER_MS
        if self._outage < len(self._outages):
            return min(at_ms, self._outages[self._outage].at_ms)
        return at_ms

    @property
    def has_news(self) -> bool:
        """Whether the last commands caused something that is not told yet."""
        return bool(self._due)

    def has_run(self, row: int) -> bool:
        """Whether the job holds devices, or lies suspended in memory."""
        return row in self._runs or row in self._asleep

    # --- stretches ------------------------------------------------------------------------------------------------

    @property
    def has_only_simple(self) -> bool:
        """Whether every run will be simple: the cluster is whole and even, and so is every job."""
        return self._has_simple and self._pace.is_plain and min(self.spans_ms, default=0) >= 0

    def keep_endings(self, agenda: Agenda) -> None:
        """From now on the agenda keeps when runs end. All of them are simple, and nothing else is asked of them."""
        assert self.has_only_simple, "expected a run without faults, of jobs that are simple"
        self._agenda = agenda

    @property
    def is_between_moments(self) -> bool:
        """Whether all that is still to be told may wait for the next moment."""
        return self._can_wait or not self._due

    @property
    def untold(self) -> list[JobId]:
        """Jobs that were started, which is not told yet."""
        return [event.job for event in self._due if isinstance(event, JobStarted)]

    def settle(self, agenda: Agenda) -> None:
        """Take over what a stretch left."""
        np.frombuffer(self._generations, dtype=np.int64)[agenda.starts[START_PLACE]] = 1
        specs = (self.jobs[place].spec for place in agenda.untold.tolist())
        self._due = [JobStarted(agenda.now_ms, spec.id, 1) for spec in specs]
        self._can_wait = not agenda.is_restless

    def _end_simple(self, now_ms: int, agenda: Agenda, events: list[Event]) -> None:
        """The simple runs that end now."""
        endings = agenda.endings
        while endings.first_ms() <= now_ms:
            row = endings.pop()
            outcome = self.outcomes[row]
            self._recorder.ended_simply(row, now_ms, outcome)
            events.append(JobFinished(now_ms, self.jobs[row].spec.id, self._generations[row], outcome))

    # --- starting and ending --------------------------------------------------------------------------------------

    def _start(self, now_ms: int, command: Start) -> None:
        row, generation = self._rows[command.job], command.generation
        if generation <= self._generations[row]:
            return
        if row in self._runs:
            raise InternalError(f"expected job {command.job} to have left before it starts anew; found {command}")
        self._generations[row] = generation
        span_ms = self.spans_ms[row]
        is_new = row not in self._asleep and row not in self._progress
        if span_ms >= 0 and is_new and self._has_simple and self._pace.is_plain:
            self._start_simply(now_ms, row, command, now_ms + span_ms)
            return
        truth = self.jobs[row]
        request = truth.spec.request
        milli = len(command.allocation.nodes) * request.devices * request.share_milli
        run = Run(row, truth, command, milli, self._progress.get(row) if self._progress else None, now_ms)
        if self._asleep:
            self._asleep.pop(row, None)
        self._runs[row] = run
        self._recorder.took(row, now_ms, milli)
        if self._health is not None:
            if not self._health.can_run(command.allocation):
                self._fail(now_ms, run, StopCause.START_FAILED)
                return
            self._health.enter(row, run.allocation)
        if self._delays:
            self._prepare(now_ms, run)
        else:
            self._begin(now_ms, run)

    def _start_simply(self, now_ms: int, row: int, command: Start, end_ms: int) -> None:
        """`_start` for a simple run, in one step."""
        self._recorder.began_simply(row, now_ms)
        self._due.append(JobStarted(now_ms, command.job, command.generation))
        if self._agenda is not None:
            self._agenda.sequence += 1
            self._agenda.endings.push(end_ms, self._agenda.sequence, row)
            return
        self._sequence = sequence = self._sequence + 1
        self._sequences[row] = sequence
        self._begun_ms[row] = now_ms
        self._runs[row] = self._awaited[sequence] = command
        heappush(self._heap, (2 * end_ms + _RANK_LEAVE) << _SEQUENCE_BITS | sequence)

    def _run_of(self, row: int) -> Run | None:
        """The run of a job that holds devices, unfolded; None = it holds none."""
        run = self._runs.get(row)
        return self._unfold(row, run) if isinstance(run, Start) else run

    def _unfold(self, row: int, command: Start) -> Run:
        """A simple run as an object of its own, as if it had been one from its start."""
        truth = self.jobs[row]
        since_ms = self._begun_ms[row]
        milli = command.allocation.replicas * truth.spec.request.device_milli
        run = Run(row, truth, command, milli, None, since_ms)
        run.phase, run.has_begun, run.outcome = WORKING, True, self.outcomes[row]
        if truth.spec.limit_ms is not None:
            run.limit_at_ms = since_ms + truth.spec.limit_ms
        run.sequence = self._sequences[row]
        self._runs[row] = self._awaited[run.sequence] = run
        return run

    def _prepare(self, now_ms: int, run: Run) -> None:
        """The cold start, if there is one: work that lies in memory needs none."""
        delay_ms = self._delays.get(run.truth.spec.kind, 0)
        if delay_ms and not (run.progress is not None and run.progress.is_in_memory):
            self._await(run, now_ms + delay_ms, STARTING, _RANK_START)
        else:
            self._begin(now_ms, run)

    def _begin(self, now_ms: int, run: Run) -> None:
        """All replicas run."""
        truth, progress = run.truth, run.progress
        spec = truth.spec
        if run.generation > 1 and progress is not None:
            progress.waste(run.milli * (now_ms - run.since_ms))
        run.since_ms = now_ms
        run.has_begun = True
        self._recorder.started(run.row, now_ms)
        self._due.append(JobStarted(now_ms, run.job, run.generation))
        if spec.limit_ms is not None:
            run.limit_at_ms = now_ms + spec.limit_ms
        ppm = self._pace.ppm(truth, run.allocation)
        if progress is None and (ppm != REFERENCE_PPM or spec.checkpoint is not None):
            progress = run.progress = self._new_progress(run)
        self._await_end(run, now_ms + truth.run_ms if progress is None else self._work(now_ms, run, ppm))

    def _new_progress(self, run: Run) -> Progress:
        truth = run.truth
        progress = self._progress[run.row] = Progress(truth.run_ms, truth.spec.checkpoint)
        return progress

    def _work(self, now_ms: int, run: Run, ppm: int) -> int:
        """Begin a stretch of work; returns when the job would end."""
        progress = self._progress_of(run)
        checkpoint = run.truth.spec.checkpoint
        must_restart = checkpoint is not None and progress.has_work and not progress.is_in_memory
        pause_ms = checkpoint.restart_ms if checkpoint is not None and must_restart else 0
        progress.is_in_memory = False
        return progress.work(now_ms, ppm=ppm, milli=run.milli, pause_ms=pause_ms)

    def _await_end(self, run: Run, end_ms: int) -> None:
        if run.limit_at_ms < end_ms:
            run.outcome = Outcome.TIMEOUT
            end_ms = run.limit_at_ms
        else:
            run.outcome = run.truth.outcome
        self._await(run, end_ms, WORKING, _RANK_LEAVE)

    def _await(self, run: Run, at_ms: int, phase: int, rank: int) -> None:
        run.phase = phase
        self._awaited.pop(run.sequence, None)
        self._sequence = run.sequence = sequence = self._sequence + 1
        self._awaited[sequence] = run
        heappush(self._heap, (2 * at_ms + rank) << _SEQUENCE_BITS | sequence)

    def _come_due(self, now_ms: int, run: Run) -> None:
        """What a run waited for has come, other than its end."""
        if now_ms >= run.limit_at_ms:
            self._finish(now_ms, run, Outcome.TIMEOUT)
        elif run.phase == STARTING:
            self._begin(now_ms, run)
        elif run.phase == SAVING:
            self._saved(now_ms, run)
            assert run.cause is not None
            self._leave(now_ms, run, run.cause)
        else:
            self._moved(now_ms, run)

    def _finish(self, now_ms: int, run: Run, outcome: Outcome) -> None:
        """The job is over, by itself or by its user."""
        del self._runs[run.row]
        self._awaited.pop(run.sequence, None)
        if self._health is not None:
            self._forget_place(run)
        useful = 0
        if run.progress is not None:
            self._close(now_ms, run, run.progress)
        elif run.phase == WORKING:
            useful = run.milli * (now_ms - run.since_ms)
        self._recorder.finished(run.row, now_ms, outcome, useful)
        self._due.append(JobFinished(now_ms, run.job, run.generation, outcome))

    def _close(self, now_ms: int, run: Run, progress: Progress) -> None:
        """What the job had done counts, however it ended: nobody will do it again."""
        self._interrupt(now_ms, run, progress)
        progress.save()
        self._recorder.worked(run.row, *progress.settle())
        self._progress.pop(run.row, None)

    def _interrupt(self, now_ms: int, run: Run, progress: Progress) -> None:
        """End what the run is at: work, or the writing of a checkpoint, whose time is then wasted."""
        if run.phase == WORKING:
            progress.pause(now_ms)
        elif run.phase != STARTING:
            progress.waste(self._held_milli(run) * (now_ms - run.since_ms))
        run.since_ms = now_ms

    def _progress_of(self, run: Run) -> Progress:
        """The run's progress; in the simple case it is made up now, as if it had been kept from the start."""
        if run.progress is None:
            run.progress = self._new_progress(run)
            if run.phase == WORKING:
                run.progress.work(run.since_ms, ppm=REFERENCE_PPM, milli=run.milli, pause_ms=0)
        return run.progress

    # --- leaving --------------------------------------------------------------------------------------------------

    def _stop(self, now_ms: int, command: Stop) -> None:
        row = self._rows[command.job]
        run = self._run_of(row) or self._asleep.get(row)
        if run is None or command.generation < run.generation:
            return
        if command.cause is None:
            self._cancel(now_ms, run)
        elif run.phase != SAVING and row in self._runs:
            self._ask_to_leave(now_ms, run, command)

    def _cancel(self, now_ms: int, run: Run) -> None:
        if run.row in self._runs:
            self._finish(now_ms, run, Outcome.CANCELLED)
            return
        del self._asleep[run.row]
        self._close(now_ms, run, self._progress_of(run))
        self._recorder.withdrawn(run.row, now_ms)
        self._due.append(JobFinished(now_ms, run.job, run.generation, Outcome.CANCELLED))

    def _ask_to_leave(self, now_ms: int, run: Run, command: Stop) -> None:
        assert command.cause is not None
        progress = self._progress_of(run)
        if self._is_ending(now_ms, run, progress):
            return
        saving_ms = self._saving_ms(now_ms, run, command.grace_ms)
        self._interrupt(now_ms, run, progress)
        if saving_ms is None:
            progress.fall_back()
            self._leave(now_ms, run, command.cause)
        else:
            run.cause = command.cause
            self._await(run, min(now_ms + saving_ms, run.limit_at_ms), SAVING, _RANK_LEAVE)

    def _is_ending(self, now_ms: int, run: Run, progress: Progress) -> bool:
        """Whether this very moment is the job's own end, which is about to be told. Ends its stretch of work."""
        if run.phase != WORKING:
            return False
        progress.pause(now_ms)
        return progress.is_done or now_ms >= run.limit_at_ms

    def _saving_ms(self, now_ms: int, run: Run, grace_ms: int) -> int | None:
        """How long the job takes to save all its work when told to leave; None = it does not."""
        checkpoint = run.truth.spec.checkpoint
        if checkpoint is None or not checkpoint.on_signal or not run.has_begun:
            return None
        begun_ms = now_ms - run.since_ms if run.phase == MOVING else 0
        needed_ms = checkpoint.cost_ms - begun_ms
        return needed_ms if needed_ms <= grace_ms else None

    def _saved(self, now_ms: int, run: Run) -> None:
        progress = self._progress_of(run)
        self._interrupt(now_ms, run, progress)
        progress.save()

    def _held_milli(self, run: Run) -> int:
        return run.milli if run.target is None else self._union_milli(run, run.target)

    def _leave(self, now_ms: int, run: Run, cause: StopCause) -> None:
        """The job is off its devices and waits again, or has ended by that."""
        del self._runs[run.row]
        self._awaited.pop(run.sequence, None)
        self._forget_place(run)
        saved_ms = 0
        if run.progress is not None:
            saved_ms = run.progress.saved_ms
            self._recorder.worked(run.row, *run.progress.settle())
        if run.truth.spec.is_ended_by(cause):
            self._progress.pop(run.row, None)
            self._recorder.finished(run.row, now_ms, Outcome.NODE_FAIL, 0)
        else:
            is_preemption = cause is StopCause.PREEMPTED
            self._recorder.left(run.row, now_ms, was_running=run.has_begun, is_preemption=is_preemption)
        self._due.append(JobStopped(now_ms, run.job, run.generation, cause, saved_ms))

    def _suspend(self, now_ms: int, command: Suspend) -> None:
        run = self._run_of(self._rows[command.job])
        if run is None or command.generation < run.generation or run.phase == SAVING:
            return
        progress = self._progress_of(run)
        if self._is_ending(now_ms, run, progress):
            return
        self._interrupt(now_ms, run, progress)
        del self._runs[run.row]
        self._awaited.pop(run.sequence, None)
        self._forget_place(run)
        run.target = None
        run.phase = STARTING
        progress.is_in_memory = progress.is_in_memory or run.has_begun
        self._asleep[run.row] = run
        self._recorder.worked(run.row, *progress.settle())
        self._recorder.left(run.row, now_ms, was_running=run.has_begun, is_preemption=True)
        self._due.append(JobSuspended(now_ms, run.job, run.generation))

    def _forget_place(self, run: Run) -> None:
        if self._health is not None:
            self._health.leave(run.row, run.allocation)
            if run.target is not None:
                self._health.leave(run.row, run.target)

    # --- moving ---------------------------------------------------------------------------------------------------

    def _move(self, now_ms: int, command: Resize | Migrate) -> None:
        row = self._rows[command.job]
        run = self._run_of(row)
        if run is None or command.generation <= self._generations[row] or run.phase == SAVING:
            return
        progress = self._progress_of(run)
        if self._is_ending(now_ms, run, progress):
            return
        self._interrupt(now_ms, run, progress)
        self._generations[row] = run.generation = command.generation
        checkpoint = self.jobs[row].spec.checkpoint
        if checkpoint is None and isinstance(command, Migrate):
            progress.fall_back()
        self._hold_both(now_ms, run, command.allocation)
        cost_ms = checkpoint.cost_ms if checkpoint is not None and run.has_begun else 0
        self._await(run, min(now_ms + cost_ms, run.limit_at_ms), MOVING, _RANK_LEAVE)

    def _hold_both(self, now_ms: int, run: Run, target: Allocation) -> None:
        self._forget_place(run)
        run.target = target
        self._recorder.holds(run.row, now_ms, self._union_milli(run, target))
        if self._health is not None:
            self._health.enter(run.row, run.allocation)
            self._health.enter(run.row, target)

    def _union_milli(self, run: Run, target: Allocation) -> int:
        """Thousandths held while a job moves: of each device the larger of what it had and what it gets."""
        request = run.truth.spec.request
        size = int(max(run.allocation.devices.max(initial=0), target.devices.max(initial=0))) + 1
        counts = np.maximum(
            np.bincount(run.allocation.devices, minlength=size), np.bincount(target.devices, minlength=size)
        )
        return int(counts.sum()) * request.share_milli

    def _moved(self, now_ms: int, run: Run) -> None:
        assert run.target is not None
        truth = run.truth
        if truth.spec.checkpoint is not None and run.has_begun:
            self._saved(now_ms, run)
        self._forget_place(run)
        run.allocation, run.target = run.target, None
        if self._health is not None:
            self._health.enter(run.row, run.allocation)
        run.milli = run.allocation.replicas * truth.spec.request.device_milli
        self._recorder.holds(run.row, now_ms, run.milli)
        self._due.append(JobResized(now_ms, run.job, run.generation))
        if run.has_begun:
            run.phase = WORKING
            self._await_end(run, self._work(now_ms, run, self._pace.ppm(truth, run.allocation)))
        else:
            self._prepare(now_ms, run)

    def _cap(self, now_ms: int, command: Cap) -> None:
        """The devices of a node are slower or faster from now on, and with them the gangs of which they are part."""
        self._pace.cap(command.node, command.watts)
        rows = list(self._runs) if self._health is None else self._health.rows_on(command.node)
        for row in rows:
            run = self._run_of(row)
            if run is not None and run.phase == WORKING and command.node in run.allocation.nodes:
                self._change_pace(now_ms, run)

    def _change_pace(self, now_ms: int, run: Run) -> None:
        ppm = self._pace.ppm(run.truth, run.allocation)
        if ppm != (REFERENCE_PPM if run.progress is None else run.progress.ppm):
            self._await_end(run, self._progress_of(run).change_pace(now_ms, ppm))

    # --- failures -------------------------------------------------------------------------------------------------

    def _break_or_mend(self, now_ms: int, outage: Outage) -> None:
        assert self._health is not None
        name = self._nodes[outage.node].name
        if outage.device is None:
            self._due.append(NodeDown(now_ms, name) if outage.is_down else NodeUp(now_ms, name))
        else:
            change = DeviceDown if outage.is_down else DeviceUp
            self._due.append(change(now_ms, name, outage.device))
        self._recorder.capacity(now_ms, self._health.note(outage) * MILLI)
        if outage.is_down:
            if outage.device is None:
                self._lose_memory(outage.node)
            cause = StopCause.NODE_FAILED if outage.device is None else StopCause.DEVICE_FAILED
            for run in self._victims(outage):
                self._fail(now_ms, run, cause)

    def _lose_memory(self, node: int) -> None:
        for run in self._asleep.values():
            if node in run.allocation.nodes:
                self._progress_of(run).fall_back()

    def _victims(self, outage: Outage) -> list[Run]:
        """The runs that an outage hits, by job id."""
        assert self._health is not None
        runs = [run for row in self._health.rows_on(outage.node) if (run := self._run_of(row)) is not None]
        if outage.device is not None:
            device = self._health.device_index(outage.node, outage.device)
            runs = [run for run in runs if run.holds_device(device)]
        return sorted(runs, key=lambda run: run.job)

    def _fail(self, now_ms: int, run: Run, cause: StopCause) -> None:
        progress = self._progress_of(run)
        self._interrupt(now_ms, run, progress)
        progress.fall_back()
        self._leave(now_ms, run, cause)
