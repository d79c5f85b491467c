"""Other ways to replay a trace of processors, for comparison: plain Python that only counts, and AccaSim."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from bench.figures import Stopwatch
from clearway.sim.traces import write_swf
from clearway.sim.workload import TraceJob, Workload

WORKER = Path(__file__).with_name("accasim_worker.py")


@dataclass(slots=True)
class CountedJob:
    """A job as the plain loops see it: how many processors, for how long, and how long its user said."""

    index: int
    submit_ms: int
    run_ms: int
    size: int
    limit_ms: int


def count_jobs(jobs: Sequence[TraceJob]) -> list[CountedJob]:
    """All jobs of a workload; a run ends at its limit."""
    counted = []
    for index, job in enumerate(jobs):
        limit_ms = job.spec.limit_ms or job.run_ms
        size = job.spec.replicas * job.spec.request.devices
        counted.append(CountedJob(index, job.submit_ms, min(job.run_ms, limit_ms), size, limit_ms))
    return counted


class CountingLoop:
    """The loop of a simulator that knows of the cluster only how many processors are free."""

    def __init__(self, jobs: Sequence[CountedJob], processors: int) -> None:
        self.jobs = jobs
        self.free = processors
        self.starts_ms = [-1] * len(jobs)
        self.queue: list[CountedJob] = []
        self.ends: list[tuple[int, int]] = []
        self.expected: dict[int, tuple[int, int]] = {}

    def replay(self, decide: Callable[["CountingLoop", int], None]) -> list[int]:
        """Start times in ms by place of the job. `decide` starts what may start at a time."""
        position, total = 0, len(self.jobs)
        while position < total or self.ends:
            submit_ms = self.jobs[position].submit_ms if position < total else None
            if self.ends and (submit_ms is None or self.ends[0][0] <= submit_ms):
                now_ms, index = heappop(self.ends)
                self.free += self.jobs[index].size
                del self.expected[index]
                if self.ends and self.ends[0][0] == now_ms:
                    continue
                if submit_ms == now_ms:
                    continue
            else:
                job = self.jobs[position]
                now_ms = job.submit_ms
                self.queue.append(job)
                position += 1
                if position < total and self.jobs[position].submit_ms == now_ms:
                    continue
            decide(self, now_ms)
        return self.starts_ms

    def start(self, job: CountedJob, now_ms: int) -> None:
        """The job takes its processors."""
        self.free -= job.size
        self.starts_ms[job.index] = now_ms
        self.expected[job.index] = (now_ms + job.limit_ms, job.size)
        heappush(self.ends, (now_ms + job.run_ms, job.index))

    def start_in_order(self, now_ms: int) -> None:
        """First come, first served, up to the first job that does not fit."""
        started = 0
        for job in self.queue:
            if job.size > self.free:
                break
            self.start(job, now_ms)
            started += 1
        del self.queue[:started]

    def start_easy(self, now_ms: int) -> None:
        """The same, then whatever does not delay the first that waits; the queue is looked through each time."""
        self.start_in_order(now_ms)
        if not self.queue or self.free == 0:
            return
        shadow_ms, extra = self.shadow()
        left = self.queue[:1]
        for job in self.queue[1:]:
            ends_before = now_ms + job.limit_ms <= shadow_ms
            if job.size <= self.free and (ends_before or job.size <= extra):
                self.start(job, now_ms)
                extra -= 0 if ends_before else job.size
            else:
                left.append(job)
        self.queue = left

    def shadow(self) -> tuple[int, int]:
        """When the first waiting job is expected to start, and how many processors are left over then."""
        needed, free = self.queue[0].size, self.free
        for end_ms, size in sorted(self.expected.values()):
            free += size
            if free >= needed:
                return end_ms, free - needed
        raise AssertionError("a job is larger than the cluster")


def count_fifo(jobs: Sequence[CountedJob], processors: int) -> list[int]:
    """Start times in ms, first come, first served."""
    return CountingLoop(jobs, processors).replay(CountingLoop.start_in_order)


def count_easy(jobs: Sequence[CountedJob], processors: int) -> list[int]:
    """Start times in ms under EASY backfill."""
    return CountingLoop(jobs, processors).replay(CountingLoop.start_easy)


def time_counting(way: Callable[[Sequence[CountedJob], int], list[int]], workload: Workload, processors: int) -> float:
    """Jobs a second of a plain loop."""
    jobs = count_jobs(workload.jobs)
    with Stopwatch() as watch:
        starts_ms = way(jobs, processors)
    assert min(starts_ms) >= 0, "a job never started"
    return len(jobs) / watch.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AccaSimRun:
    """What AccaSim took for a workload, and when it started each job; or the error that kept it from running."""

    seconds: float = 0.0
    starts_s: dict[int, int]
    error: str = ""


def run_accasim(workload: Workload, nodes: int, cores: int, dispatcher: str) -> AccaSimRun:
    """AccaSim on the workload in a process of its own. dispatcher: `fifo` or `easy`."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.swf"
        write_swf(workload, trace)
        command = [sys.executable, str(WORKER), str(trace), str(nodes), str(cores), dispatcher]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return AccaSimRun(starts_s={}, error=(done.stderr.strip().splitlines() or ["no message"])[-1])
    found = json.loads(done.stdout)
    return AccaSimRun(seconds=found["seconds"], starts_s={int(job): start for job, start in found["starts"].items()})
