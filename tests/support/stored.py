"""Values to store: changes as drivers write them, small and all different."""

from clearway.model.events import Event, JobFinished, JobStarted, JobSubmitted
from clearway.model.ids import JobId, QueueName, TenantName
from clearway.model.jobs import JobKind, JobSpec, Outcome, Request
from clearway.model.runs import RunSpec
from clearway.ports.storage import AuditLine, Changes
from clearway.ports.views import JobState, JobView


def make_view(number: int, **fields: object) -> JobView:
    """One job as people see it."""
    given: dict[str, object] = {
        "name": f"job-{number}",
        "user": "ann",
        "tenant": TenantName("root"),
        "queue": QueueName("production"),
        "kind": JobKind.TRAIN,
        "state": JobState.PENDING,
        "priority": 0,
        "replicas": 1,
        "device_milli": 2_000,
        "cpu_milli": 4_000,
        "memory_bytes": 1 << 33,
        "submit_ms": 1_000 + number,
    }
    return JobView(id=JobId(number), **(given | fields))  # type: ignore[arg-type]


def make_submitted(number: int, at_ms: int = 0) -> JobSubmitted:
    """A job was accepted."""
    spec = JobSpec(id=JobId(number), request=Request(devices=2), name=f"job-{number}", user="ann", limit_ms=3_600_000)
    return JobSubmitted(at_ms, spec)


def make_run(number: int) -> RunSpec:
    """How a job is run."""
    return RunSpec(script=f"#!/bin/sh\npython train.py --seed {number}\n", workdir="/home/ann", output="%j.out")


def make_submission(first: int, count: int = 1) -> Changes:
    """A driver's turn in which `count` jobs were accepted: records, specs, rows and an audit line each."""
    numbers = range(first, first + count)
    return Changes(
        events=tuple(make_submitted(number, number) for number in numbers),
        runs=tuple((JobId(number), make_run(number)) for number in numbers),
        jobs=tuple(make_view(number) for number in numbers),
        audit=tuple(
            AuditLine(at_ms=number, actor="ann", action="job.submit", target=f"job {number}") for number in numbers
        ),
    )


def make_life(number: int) -> tuple[Event, ...]:
    """A job from its acceptance to its end."""
    job = JobId(number)
    return (make_submitted(number), JobStarted(1, job, 1), JobFinished(2, job, 1, Outcome.FAILED, exit_code=3))
