"""One run of a job in the simulated backend, and when a run is simple.

A run is *simple* while it works at reference speed from its start to its end, and nothing else is asked of it.
"""

from typing import Final

from clearway.model.allocation import Allocation
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Start
from clearway.model.units import FOREVER_MS
from clearway.sim.progress import Progress
from clearway.sim.workload import TraceJob

STARTING: Final = 0
WORKING: Final = 1
SAVING: Final = 2  # told to leave, writes its checkpoint
MOVING: Final = 3  # saves, to go on with another allocation


NEVER_SIMPLE: Final = -1
"""Instead of a span, for a job whose runs are never simple."""


class Run:
    """One generation of a job on its devices. `progress` is None while the simple case holds: one stretch of work at
    reference speed from the very beginning, without checkpoints."""

    __slots__ = (
        "allocation",
        "cause",
        "generation",
        "has_begun",
        "job",
        "limit_at_ms",
        "milli",
        "outcome",
        "phase",
        "progress",
        "row",
        "sequence",
        "since_ms",
        "target",
        "truth",
    )

    def __init__(
        self, row: int, truth: TraceJob, command: Start, milli: int, progress: Progress | None, now_ms: int
    ) -> None:
        self.row = row
        self.truth = truth
        self.job = command.job
        self.generation = command.generation
        self.allocation = command.allocation
        self.milli = milli
        self.progress = progress
        self.since_ms = now_ms  # when it was given devices; then when it began to run; then when it began to save
        self.phase = STARTING
        self.has_begun = False
        self.sequence = -1
        self.limit_at_ms = FOREVER_MS
        self.outcome = Outcome.COMPLETED
        self.cause: StopCause | None = None
        self.target: Allocation | None = None

    def holds_device(self, device: int) -> bool:
        """Whether the device is its own, or will be."""
        return device in self.allocation.devices or (self.target is not None and device in self.target.devices)


def simple_span_ms(job: TraceJob) -> int:
    """How long a simple run of the job takes; NEVER_SIMPLE where it saves, has a measured speed or may be resized."""
    spec = job.spec
    if job.profile or spec.checkpoint is not None or spec.elastic is not None:
        return NEVER_SIMPLE
    return job.run_ms if spec.limit_ms is None else min(job.run_ms, spec.limit_ms)


def simple_outcome(job: TraceJob) -> Outcome:
    """How a run of the job ends that nothing interrupts."""
    limit_ms = job.spec.limit_ms
    return job.outcome if limit_ms is None or job.run_ms <= limit_ms else Outcome.TIMEOUT
