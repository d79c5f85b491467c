"""The door: what a submission must fulfil, and the numbers that its jobs get. Pure.

What the engine would make up or never start is refused here, with what to do about it: unknown queues and tenants, jobs
over their queue's limits, dependencies on jobs that were never accepted.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from clearway.engine.accounts import Accounts
from clearway.engine.tables import NONE
from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.model.ids import ROOT_TENANT, JobId, QueueName, TenantName
from clearway.model.jobs import ArrayMember, JobSpec
from clearway.model.units import MILLI, MINUTE_MS
from clearway.ports.control import PROVISIONAL_ID, Submission

HasTask = Callable[[JobId, int], bool]
"""Whether an array has a task of an index."""

NAMES_SHOWN: Final = 10
"""Names listed in a refusal; with more, the rest is counted."""


def number_jobs(submission: Submission, last_id: JobId) -> tuple[JobSpec, ...]:
    """The jobs with numbers from `last_id` + 1 on, and everything by which they name one another numbered alike.

    Raises InputError where jobs and runs do not belong together, or a job names one that is not in the submission.
    """
    jobs = submission.jobs
    if not jobs or len(jobs) != len(submission.runs):
        raise InputError(f"expected jobs, and how to run each; found {len(jobs)} jobs and {len(submission.runs)} runs")
    numbers: dict[int, JobId] = {}
    for place, job in enumerate(jobs, start=1):
        if job.id < PROVISIONAL_ID or job.id in numbers:
            raise InputError(f"expected each job with a provisional number of its own, found {job.id}")
        numbers[job.id] = JobId(last_id + place)
    return tuple(_numbered(job, numbers) for job in jobs)


def _numbered(job: JobSpec, numbers: dict[int, JobId]) -> JobSpec:
    if not job.dependencies and job.array is None:
        return replace(job, id=numbers[job.id], oracle_ms=None)

    def real(number: int, what: str) -> JobId:
        if number < PROVISIONAL_ID:
            return JobId(number)
        if number not in numbers:
            raise InputError(f"{_named(job)}: expected {what} of a job of this submission, found another number")
        return numbers[number]

    dependencies = tuple(
        dependency if dependency.job is None else replace(dependency, job=real(dependency.job, "a number"))
        for dependency in job.dependencies
    )
    array = job.array
    if array is not None:
        array = ArrayMember(array=real(array.array, "an array"), index=array.index, parallel_max=array.parallel_max)
    return replace(job, id=numbers[job.id], dependencies=dependencies, array=array, oracle_ms=None)


def _named(job: JobSpec) -> str:
    return f"job {job.name!r}" if job.name else "a job without a name"


def admit_job(job: JobSpec, accounts: Accounts, last_id: JobId, qos: Collection[str], has_task: HasTask) -> JobSpec:
    """The job as it is accepted: with its queue's time limit where it has none. Raises InputError.

    last_id: the highest number that jobs have, those of the submission included. qos: names that it may give; empty =
    any. has_task: of arrays of this submission, too.
    """
    queue = _queue_of(job, accounts)
    if job.qos and qos and job.qos not in qos:
        raise InputError(f"{_named(job)}: expected a QOS out of {_listed(tuple(qos))}, found {job.qos!r}")
    if accounts.tenant_names.find(job.tenant) == NONE or job.tenant in accounts.gone_tenants:
        known = [spec.name for _, spec in accounts.current_tenants()]
        raise InputError(f"{_named(job)}: expected a tenant out of {_listed(known)}, found {job.tenant!r}")
    most = queue.job_devices_max_milli
    milli = job.replicas_min * job.request.device_milli
    if most is not None and milli > most:
        raise InputError(
            f"{_named(job)}: expected at most {most / MILLI:g} devices, the limit of queue {queue.name!r}, found "
            f"{milli / MILLI:g}; ask for fewer, or use another queue"
        )
    _check_dependencies(job, last_id, has_task)
    limit_ms = job.limit_ms
    if limit_ms is None:
        limit_ms = queue.limit_max_ms if queue.limit_default_ms is None else queue.limit_default_ms
    if queue.limit_max_ms is not None and limit_ms is not None and limit_ms > queue.limit_max_ms:
        raise InputError(
            f"{_named(job)}: expected a time limit of at most {queue.limit_max_ms / MINUTE_MS:g} minutes, that of "
            f"queue {queue.name!r}, found {limit_ms / MINUTE_MS:g}; lower it, or use another queue"
        )
    return job if limit_ms == job.limit_ms else replace(job, limit_ms=limit_ms)


def _check_dependencies(job: JobSpec, last_id: JobId, has_task: HasTask) -> None:
    for dependency in job.dependencies:
        on = dependency.job
        if on is None:
            continue
        if not 0 < on <= last_id:
            raise InputError(f"{_named(job)}: expected a job that was accepted, found a dependency on {on}")
        if on == job.id:
            raise InputError(f"{_named(job)}: expected a dependency on another job, found one on itself")
        if dependency.task is not None and not has_task(on, dependency.task):
            raise InputError(
                f"{_named(job)}: expected a task that array {on} has, found a dependency on {on}_{dependency.task}"
            )


def _queue_of(job: JobSpec, accounts: Accounts) -> QueueSpec:
    row = accounts.queue_names.find(job.queue)
    if row == NONE or job.queue in accounts.gone_queues:
        known = [spec.name for _, spec in accounts.current_queues()]
        raise InputError(f"{_named(job)}: expected a queue out of {_listed(known)}, found {job.queue!r}")
    return accounts.queue_specs[row]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    return shown + (f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else "") or "none"


def check_tenants(tenants: Sequence[TenantSpec], accounts: Accounts) -> None:
    """Raise InputError unless each tenant's parent is known before it, and is the one that it had."""
    parents: dict[TenantName, TenantName | None] = {
        spec.name: None if spec.name == ROOT_TENANT else spec.parent or ROOT_TENANT for spec in accounts.tenant_specs
    }
    there = {spec.name for _, spec in accounts.current_tenants()}
    for spec in tenants:
        if spec.name == ROOT_TENANT:
            continue
        parent = spec.parent or ROOT_TENANT
        if parent not in there or parent == spec.name:
            raise InputError(f"tenant {spec.name!r}: expected a parent that stands before it, found {spec.parent!r}")
        there.add(spec.name)
        before = parents.setdefault(spec.name, parent)
        if before != parent:
            raise InputError(
                f"tenant {spec.name!r}: expected parent {before!r} as before, found {parent!r}; make a new tenant and "
                "move its users there"
            )


def check_removal(
    queues: Collection[QueueName], tenants: Collection[TenantName], accounts: Accounts, jobs: Iterable[JobSpec]
) -> None:
    """Raise InputError unless all of these can be removed: no job, and no tenant that stays, needs them.

    jobs: those that have not ended.
    """
    found: dict[str, list[JobId]] = {}
    for job in jobs:
        for what, name, names in (("queue", job.queue, queues), ("tenant", job.tenant, tenants)):
            if name in names:
                found.setdefault(f"{what} {name!r}", []).append(job.id)
    for named, numbers in found.items():
        raise InputError(
            f"{named}: expected no jobs where it is to be removed, found {len(numbers)} that wait or run: "
            f"{_listed([str(number) for number in numbers])}; it stays until they have ended"
        )
    for _, spec in accounts.current_tenants():
        if spec.parent in tenants and spec.name not in tenants:
            raise InputError(
                f"tenant {spec.parent!r}: expected no tenants below it where it is to be removed, found {spec.name!r}"
            )
    if ROOT_TENANT in tenants:
        raise InputError(f"tenant {ROOT_TENANT!r}: it cannot be removed, all others lie below it")
    if queues and all(spec.name in queues for _, spec in accounts.current_queues()):
        raise InputError("expected a queue that stays, found that all are to be removed")
