"""What the keeper is told to end jobs, and what its reports of ends say as events. Pure."""

from clearway.adapters.local.keeper.messages import Message, Report
from clearway.model.events import Event, JobFinished, JobStopped
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, StopCause


def make_stop(job: JobId, generation: int, grace_ms: int, cause: str | None) -> Message:
    """Have a job save and leave; without a cause, for good."""
    return {"op": "stop", "job": job, "generation": generation, "grace_ms": grace_ms, "cause": cause}


def make_fail(job: JobId, generation: int, cause: StopCause, reason: str) -> Message:
    """Have a job ended at once."""
    return {"op": "fail", "job": job, "generation": generation, "cause": cause.value, "reason": reason}


def make_end(now_ms: int, report: Report) -> Event:
    """What became of a run that has ended."""
    job, at_ms = JobId(report.job), not_after(report.ended_ms, now_ms)
    if report.end == "finished":
        outcome = Outcome(report.outcome)
        return JobFinished(at_ms, job, report.generation, outcome, report.exit_code, report.signal)
    return JobStopped(at_ms, job, report.generation, StopCause(report.cause), report.saved_ms, report.reason)


def not_after(at_ms: int, now_ms: int) -> int:
    """When something happened, by the driver's clock: not after it was told."""
    return min(at_ms, now_ms)
