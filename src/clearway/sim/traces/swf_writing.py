"""Writing a workload as Standard Workload Format, for other simulators.

What the format cannot say is lost: kinds, models, shares, elastic ranges. One device is one processor; a share of a
device counts as a whole one. Users, tenants and queues are numbered in order of appearance.
"""

from collections.abc import Iterator
from pathlib import Path

from clearway.model.errors import InputError
from clearway.model.jobs import Outcome
from clearway.model.units import SECOND_MS
from clearway.sim.workload import TraceJob, Workload

STATUS = {Outcome.COMPLETED: 1, Outcome.CANCELLED: 5}
STATUS_FAILED = 0
UNKNOWN = -1

Numbers = dict[str, dict[str, int]]
"""By column, the number of each name."""


def write_swf(workload: Workload, path: str | Path) -> int:
    """Write all jobs that hold devices, and return how many. InputError when the file cannot be written."""
    numbers: Numbers = {}
    count = 0
    try:
        with Path(path).open("w", encoding="ascii") as out:
            out.writelines(_header(workload))
            for job in workload.jobs:
                if job.spec.request.devices:
                    out.write(_line(job, numbers))
                    count += 1
    except OSError as error:
        raise InputError(
            f"{path}: expected a file that can be written, found: {error.strerror}; check the path"
        ) from error
    return count


def _header(workload: Workload) -> Iterator[str]:
    yield "; Version: 2.2\n"
    yield f"; Computer: {workload.name.encode('ascii', 'replace').decode()}\n"
    yield f"; MaxJobs: {len(workload.jobs)}\n"
    if workload.start_unix_ms is not None:
        yield f"; UnixStartTime: {workload.start_unix_ms // SECOND_MS}\n"


def _line(job: TraceJob, numbers: Numbers) -> str:
    """Times in whole seconds: a run is rounded up, so that it does not become 0; a limit is rounded up too."""
    spec = job.spec
    processors = spec.replicas * spec.request.devices
    limit_s = UNKNOWN if spec.limit_ms is None else -(-spec.limit_ms // SECOND_MS)
    fields = (
        spec.id,
        job.submit_ms // SECOND_MS,
        UNKNOWN,
        -(-job.run_ms // SECOND_MS),
        processors,
        UNKNOWN,
        UNKNOWN,
        processors,
        limit_s,
        UNKNOWN,
        STATUS.get(job.outcome, STATUS_FAILED),
        _number(numbers, "user", spec.user),
        _number(numbers, "group", spec.tenant),
        _number(numbers, "application", spec.name),
        _number(numbers, "queue", spec.queue),
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
    )
    return " ".join(map(str, fields)) + "\n"


def _number(numbers: Numbers, column: str, value: str) -> int:
    """The number of a name within its column, from 1; empty is unknown."""
    if not value:
        return UNKNOWN
    known = numbers.setdefault(column, {})
    return known.setdefault(value, len(known) + 1)
