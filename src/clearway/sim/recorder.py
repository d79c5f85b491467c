"""Keeps the books of one run and fills its `SimResult`.

It is told of each change once, by job row (place in the workload), and never looks at the kernel except to ask how much
is stranded when it samples. Device-time is summed exactly, in thousandths × ms, and divided only at the end.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from clearway.model.jobs import Outcome
from clearway.model.units import FOREVER_MS, MILLI, SECOND_MS
from clearway.sim.result import NEVER_MS, IntColumn, JobColumns, RunStats, Series, SimResult
from clearway.sim.workload import TraceJob, Workload

SAMPLES_MAX: Final = 4_096
"""Rows of the series: more than a plot has pixels. When they are used up, the sampling step doubles."""

SAMPLES_AIMED: Final = 2_048
"""The first step is chosen so that the span of the submits takes at most this many samples: few doublings follow."""

OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
_CODE_OF_OUTCOME: Final = {outcome.value: code for code, outcome in enumerate(Outcome)}
_COMPLETED: Final = Outcome.COMPLETED
_CODE_COMPLETED: Final = _CODE_OF_OUTCOME[_COMPLETED.value]
_NOT_ENDED: Final = -1


class Recorder:
    """Columns of the jobs, the series, and the integrals. `rows`: number of jobs that have ended is `ended`.

    A job is pending from its submit, and again after each stop; it is running (for counts and for `allocated`) from
    the moment that devices are given to it. Its wait ends when all its replicas run.
    """

    __slots__ = (
        "_capacity_changes",
        "_end",
        "_held",
        "_held_now",
        "_held_since",
        "_jobs",
        "_lost",
        "_milli",
        "_outcome",
        "_preemptions",
        "_restarts",
        "_samples",
        "_start",
        "_step_ms",
        "_stranded",
        "_wait_since",
        "_waited",
        "_workload",
        "allocated_milli",
        "ended",
        "next_sample_ms",
        "pending_jobs",
        "pending_milli",
        "running_jobs",
        "useful_milli_ms",
    )

    def __init__(self, workload: Workload, capacity_milli: int, stranded: Callable[[], int]) -> None:
        jobs = workload.jobs
        count = len(jobs)
        self._workload = workload
        self._jobs = jobs
        self._milli = [asked_milli(job) for job in jobs]
        self._wait_since = array("q", [job.submit_ms for job in jobs])
        self._start = _filled(NEVER_MS, count)
        self._end = _filled(NEVER_MS, count)
        self._outcome = _filled(_NOT_ENDED, count)
        self._held = _filled(0, count)
        self._held_since = _filled(0, count)
        self._held_now = _filled(0, count)
        self._lost = _filled(0, count)
        self._waited = _filled(0, count)
        self._preemptions = _filled(0, count)
        self._restarts = _filled(0, count)
        self._stranded = stranded
        self._capacity_changes = [(0, capacity_milli)]
        self._samples: list[tuple[int, ...]] = []
        self._step_ms = _first_step_ms(jobs[-1].submit_ms if count else 0)
        self.next_sample_ms = 0
        self.allocated_milli = 0
        self.pending_jobs = 0
        self.pending_milli = 0
        self.running_jobs = 0
        self.useful_milli_ms = 0
        self.ended = 0

    # --- what happens to jobs -------------------------------------------------------------------------------------

    def submitted(self, row: int) -> None:
        """The job waits from its submit on."""
        self.pending_jobs += 1
        self.pending_milli += self._milli[row]

    def took(self, row: int, now_ms: int, milli: int) -> None:
        """A waiting job was given `milli` thousandths of devices."""
        self.pending_jobs -= 1
        self.pending_milli -= self._milli[row]
        self.running_jobs += 1
        self.allocated_milli += milli
        self._held_since[row] = now_ms
        self._held_now[row] = milli

    def began_simply(self, row: int, now_ms: int) -> None:
        """A waiting job was given all that it asked for, and all its replicas run: `took` and `started` in one."""
        milli = self._milli[row]
        self.pending_jobs -= 1
        self.pending_milli -= milli
        self.running_jobs += 1
        self.allocated_milli += milli
        self._held_since[row] = now_ms
        self._held_now[row] = milli
        self.started(row, now_ms)

    def ended_simply(self, row: int, now_ms: int, outcome: Outcome) -> None:
        """The job ended after one run that was all useful: `finished`, in one step."""
        held = self._held_now[row]
        useful = held * (now_ms - self._held_since[row])
        self._held[row] += useful
        self._held_now[row] = 0
        self.allocated_milli -= held
        self.running_jobs -= 1
        self.useful_milli_ms += useful
        self._end[row] = now_ms
        self._outcome[row] = _CODE_COMPLETED if outcome is _COMPLETED else _CODE_OF_OUTCOME[outcome.value]
        self.ended += 1

    # --- the same for many jobs at once, by int64[n] of rows ------------------------------------------------------

    def submitted_together(self, begin: int, end: int) -> None:
        """The jobs of these rows wait."""
        self.pending_jobs += end - begin
        self.pending_milli += sum(self._milli[begin:end])

    def began_together(self, rows: IntColumn, at_ms: IntColumn) -> None:
        """Each began at its own time, as in `began_simply`, its first run."""
        milli = np.array([self._milli[row] for row in rows.tolist()], dtype=np.int64)
        asked = int(milli.sum())
        self.pending_jobs -= len(rows)
        self.pending_milli -= asked
        self.running_jobs += len(rows)
        self.allocated_milli += asked
        _column(self._held_since)[rows] = at_ms
        _column(self._held_now)[rows] = milli
        _column(self._start)[rows] = at_ms
        _column(self._waited)[rows] += at_ms - _column(self._wait_since)[rows]

    def ended_together(self, rows: IntColumn, at_ms: IntColumn, outcomes: Sequence[Outcome]) -> None:
        """Each ended at its own time, as in `ended_simply`."""
        held = _column(self._held_now)[rows]
        useful = held * (at_ms - _column(self._held_since)[rows])
        _column(self._held)[rows] += useful
        _column(self._held_now)[rows] = 0
        self.allocated_milli -= int(held.sum())
        self.running_jobs -= len(rows)
        self.useful_milli_ms += _total(useful)
        _column(self._end)[rows] = at_ms
        _column(self._outcome)[rows] = [_CODE_OF_OUTCOME[outcomes[row].value] for row in rows.tolist()]
        self.ended += len(rows)

    def holds(self, row: int, now_ms: int, milli: int) -> None:
        """A job's devices changed to `milli` thousandths in all."""
        held = self._held_now[row]
        self._held[row] += held * (now_ms - self._held_since[row])
        self._held_since[row] = now_ms
        self._held_now[row] = milli
        self.allocated_milli += milli - held

    def started(self, row: int, now_ms: int) -> None:
        """All replicas run: the wait is over."""
        if self._start[row] < 0:
            self._start[row] = now_ms
        else:
            self._restarts[row] += 1
        self._waited[row] += now_ms - self._wait_since[row]

    def left(self, row: int, now_ms: int, *, was_running: bool, is_preemption: bool) -> None:
        """The job gave its devices back without having ended, and waits again."""
        self.holds(row, now_ms, 0)
        self.running_jobs -= 1
        self.pending_jobs += 1
        self.pending_milli += self._milli[row]
        self._preemptions[row] += is_preemption
        if was_running:
            self._wait_since[row] = now_ms

    def finished(self, row: int, now_ms: int, outcome: Outcome, useful_milli_ms: int) -> None:
        """The job ended while it held devices."""
        held = self._held_now[row]
        self._held[row] += held * (now_ms - self._held_since[row])
        self._held_now[row] = 0
        self.allocated_milli -= held
        self.running_jobs -= 1
        self.useful_milli_ms += useful_milli_ms
        self._end[row] = now_ms
        self._outcome[row] = _CODE_COMPLETED if outcome is _COMPLETED else _CODE_OF_OUTCOME[outcome.value]
        self.ended += 1

    def withdrawn(self, row: int, now_ms: int) -> None:
        """The job was cancelled while it held no devices. Said twice, it counts once."""
        if self._outcome[row] != _NOT_ENDED:
            return
        self.pending_jobs -= 1
        self.pending_milli -= self._milli[row]
        self._waited[row] += now_ms - self._wait_since[row]
        self._end[row] = now_ms
        self._outcome[row] = _CODE_OF_OUTCOME[Outcome.CANCELLED.value]
        self.ended += 1

    def worked(self, row: int, useful_milli_ms: int, lost_milli_ms: int) -> None:
        """Device-time of a job that turned out useful or lost."""
        self.useful_milli_ms += useful_milli_ms
        self._lost[row] += lost_milli_ms

    # --- the cluster over time ------------------------------------------------------------------------------------

    def capacity(self, now_ms: int, milli: int) -> None:
        """Healthy devices changed to `milli` thousandths in all."""
        self._capacity_changes.append((now_ms, milli))

    def sample(self, now_ms: int) -> None:
        """Write down what has held since the last change, for the grid points before `now_ms` (time moves there next).

        To be called when `now_ms` > `next_sample_ms`, before anything that happens at `now_ms` is told.
        """
        if self._samples and self._samples[-1][0] == self.next_sample_ms:
            self._samples.pop()  # thinning moved an older row to this time
        self._samples.append(self._row(self.next_sample_ms))
        if len(self._samples) >= SAMPLES_MAX:
            self._step_ms *= 2
            self._samples = thin_samples(self._samples, self._step_ms)
        self.next_sample_ms = -(-now_ms // self._step_ms) * self._step_ms

    def _row(self, time_ms: int) -> tuple[int, ...]:
        return (
            time_ms,
            self.allocated_milli,
            self._capacity_changes[-1][1],
            self.pending_jobs,
            self.pending_milli,
            self.running_jobs,
            self._stranded() if self.pending_jobs else 0,
        )

    # --- the result -----------------------------------------------------------------------------------------------

    def close(self, now_ms: int) -> int:
        """The run stops at `now_ms`. Counts what is still held, writes the last row of the series, and returns the end
        of the window of all integrals: the last end of a job, or the last time at which one gave devices back and never
        came to its end; `now_ms` where jobs still hold devices or none ended.
        """
        holders = [row for row, held in enumerate(self._held_now) if held]
        for row in holders:
            self.holds(row, now_ms, self._held_now[row])
        end_ms = now_ms if holders or not self.ended else max(max(self._end), max(self._held_since))
        self._samples = [sample for sample in self._samples if sample[0] < end_ms]
        self._samples.append(self._row(end_ms))
        return end_ms

    def result(self, end_ms: int, *, policy: str, cluster: str, seed: int, stats: RunStats, digest: str) -> SimResult:
        """All of it. end_ms: what `close` returned."""
        held = _column(self._held)
        return SimResult(
            workload=self._workload.name,
            policy=policy,
            cluster=cluster,
            seed=seed,
            jobs=self._job_columns(held),
            series=self._series(),
            stats=stats,
            allocated_device_ms=_total(held) // MILLI,
            capacity_device_ms=capacity_milli_ms(self._capacity_changes, end_ms) // MILLI,
            useful_device_ms=self.useful_milli_ms // MILLI,
            decisions_digest=digest,
        )

    def _job_columns(self, held: IntColumn) -> JobColumns:
        jobs = self._jobs
        specs = [job.spec for job in jobs]
        kinds, kind_names = _coded([spec.kind.value for spec in specs])
        tenants, tenant_names = _coded([spec.tenant for spec in specs])
        queues, queue_names = _coded([spec.queue for spec in specs])
        has_names = any(spec.name for spec in specs)
        return JobColumns(
            job=np.array([spec.id for spec in specs], dtype=np.int64),
            submit_ms=np.array([job.submit_ms for job in jobs], dtype=np.int64),
            start_ms=_column(self._start),
            end_ms=_column(self._end),
            run_ms=np.array([job.run_ms for job in jobs], dtype=np.int64),
            limit_ms=_times_or_forever([spec.limit_ms for spec in specs]),
            latency_ms=_times_or_forever([spec.latency_target_ms for spec in specs]),
            devices_milli=np.array(self._milli, dtype=np.int64),
            held_device_ms=held // MILLI,
            lost_device_ms=_column(self._lost) // MILLI,
            waited_ms=_column(self._waited),
            preemptions=_column(self._preemptions),
            restarts=_column(self._restarts),
            kind=kinds,
            tenant=tenants,
            queue=queues,
            outcome=_column(self._outcome),
            kind_names=kind_names,
            tenant_names=tenant_names,
            queue_names=queue_names,
            outcome_names=OUTCOMES,
            job_names=tuple(spec.name for spec in specs) if has_names else (),
        )

    def _series(self) -> Series:
        columns = np.array(self._samples, dtype=np.int64).T.copy()
        return Series(
            time_ms=columns[0],
            allocated_milli=columns[1],
            capacity_milli=columns[2],
            pending_jobs=columns[3],
            pending_milli=columns[4],
            running_jobs=columns[5],
            stranded_milli=columns[6],
        )


def _times_or_forever(times_ms: Sequence[int | None]) -> IntColumn:
    return np.array([FOREVER_MS if time_ms is None else time_ms for time_ms in times_ms], dtype=np.int64)


def asked_milli(job: TraceJob) -> int:
    """Thousandths of devices that a job asks for."""
    return job.spec.replicas * job.spec.request.device_milli


def thin_samples(samples: list[tuple[int, ...]], step_ms: int) -> list[tuple[int, ...]]:
    """`samples` on the coarser grid of `step_ms`: at each point of it the row that was in force then."""
    kept: dict[int, tuple[int, ...]] = {}
    for sample in samples:
        time_ms = -(-sample[0] // step_ms) * step_ms
        kept[time_ms] = (time_ms, *sample[1:])
    return list(kept.values())


def capacity_milli_ms(changes: Sequence[tuple[int, int]], until_ms: int) -> int:
    """Integral of a step function, (time_ms, value) with rising times, from its first time to `until_ms`."""
    ends = [time_ms for time_ms, _ in changes[1:]] + [until_ms]
    return sum(
        value * (min(end_ms, until_ms) - min(time_ms, until_ms))
        for (time_ms, value), end_ms in zip(changes, ends, strict=True)
    )


def _first_step_ms(last_submit_ms: int) -> int:
    """The smallest second × power of two that samples the span of the submits at most `SAMPLES_AIMED` times."""
    step_ms = SECOND_MS
    while step_ms * SAMPLES_AIMED < last_submit_ms:
        step_ms *= 2
    return step_ms


def _filled(value: int, count: int) -> "array[int]":
    return array("q", [value]) * count


def _column(values: "array[int]") -> IntColumn:
    """A column that shares the memory of `values`, which must not grow any more."""
    return np.frombuffer(values, dtype=np.int64) if values else np.empty(0, dtype=np.int64)


def _total(column: IntColumn) -> int:
    """Exact sum, also beyond 63 bits."""
    low = int((column & 0xFFFF_FFFF).sum())
    return (int((column >> 32).sum()) << 32) + low


def _coded(names: Sequence[str]) -> tuple[IntColumn, tuple[str, ...]]:
    """Codes in order of first appearance, and the names that they stand for."""
    codes: dict[str, int] = {}
    column = [codes.setdefault(name, len(codes)) for name in names]
    return np.array(column, dtype=np.int64), tuple(codes)
