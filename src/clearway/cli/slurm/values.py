"""How Slurm writes states, times, host lists and resources. Times in Unix milliseconds; zone None = the machine's."""

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from clearway.model.units import GIB, MIB, MILLI, MINUTE_MS, SECOND_MS
from clearway.ports.views import JobState, JobView, NodeState
from clearway.wire.patterns import ARRAY_OUTPUT_DEFAULT, OUTPUT_DEFAULT, name_file

STATE_CODES: Final[Mapping[JobState, str]] = {
    JobState.PENDING: "PD",
    JobState.CONFIGURING: "CF",
    JobState.RUNNING: "R",
    JobState.COMPLETING: "CG",
    JobState.SUSPENDED: "S",
    JobState.REQUEUE_HOLD: "RH",
    JobState.COMPLETED: "CD",
    JobState.CANCELLED: "CA",
    JobState.FAILED: "F",
    JobState.TIMEOUT: "TO",
    JobState.NODE_FAIL: "NF",
    JobState.OUT_OF_MEMORY: "OOM",
    JobState.DEADLINE: "DL",
}

NODE_STATE_CODES: Final[Mapping[NodeState, str]] = {
    NodeState.IDLE: "idle",
    NodeState.MIXED: "mix",
    NodeState.ALLOCATED: "alloc",
    NodeState.DRAINING: "drng",
    NodeState.DRAINED: "drain",
    NodeState.DOWN: "down",
}

_NOT_STARTED: Final = frozenset({JobState.PENDING, JobState.REQUEUE_HOLD})
_DIGITS: Final = re.compile(r"(.*?)([0-9]+)$")


def is_waiting(job: JobView) -> bool:
    """Whether the job holds nothing and has not ended."""
    return job.state in _NOT_STARTED


def job_name_of(job: JobView) -> str:
    """The number as people know it: `12`, or `12_3` for a member of an array."""
    return str(job.id) if job.array is None else f"{job.array}_{job.array_index}"


def ran_ms(job: JobView, now_ms: int) -> int:
    """How long the job has run, or ran."""
    if job.start_ms is None or is_waiting(job):
        return 0
    return max(0, (now_ms if job.end_ms is None else job.end_ms) - job.start_ms)


def ends_ms(job: JobView) -> int | None:
    """When the job ended, or must end; None = nobody knows."""
    if job.end_ms is not None or job.start_ms is None or job.limit_ms is None or is_waiting(job):
        return job.end_ms
    return job.start_ms + job.limit_ms


def node_count_of(job: JobView) -> int:
    """Nodes that the job holds or held; before, its replicas, which is the most that it can need."""
    return len(job.nodes) or job.replicas


def cpu_count_of(job: JobView) -> int:
    """Whole CPUs of all replicas; at least one each, as Slurm counts."""
    return max(job.replicas, -(-job.cpu_milli // MILLI))


def gpu_text_of(job: JobView) -> str:
    """`8`, or `0.5` of a shared device: devices of one replica."""
    return f"{job.device_milli / MILLI / job.replicas:g}"


HELD: Final = "JobHeldUser"
"""`ReasonCode.HELD`, whose module would cost quick commands an import."""

QOS_DEFAULT: Final = "normal"
"""Slurm's name for what a job gets that names no QOS."""


def qos_of(job: JobView) -> str:
    """The name of its QOS."""
    return job.qos or QOS_DEFAULT


def priority_of(job: JobView) -> int:
    """What the order makes of it, as far as that is known; held jobs have 0, and no others, as in Slurm."""
    if job.order_priority is not None:
        return job.order_priority
    is_held = job.state is JobState.REQUEUE_HOLD or (job.state is JobState.PENDING and job.reason == HELD)
    return 0 if is_held else max(job.priority, 1)


def output_of(job: JobView) -> str:
    """The file that the job writes to, by the pattern that it gave or Slurm's default, in its work folder."""
    return _file_of(job, job.output or (OUTPUT_DEFAULT if job.array is None else ARRAY_OUTPUT_DEFAULT))


def error_of(job: JobView) -> str:
    """The file that it writes errors to."""
    return _file_of(job, job.error) if job.error else output_of(job)


def _file_of(job: JobView, pattern: str) -> str:
    path = name_file(job, pattern, 0)
    return path if path.startswith("/") or not job.workdir else f"{job.workdir.rstrip('/')}/{path}"


def render_time_used(time_ms: int) -> str:
    """squeue's `[d-]h:mm:ss`: `0:05`, `12:30`, `1:02:03`, `2-00:00:00`."""
    seconds = time_ms // SECOND_MS
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def render_time_limit(time_ms: int | None, unlimited: str = "UNLIMITED") -> str:
    """A limit as squeue and sinfo write it, in whole minutes rounded up."""
    if time_ms is None:
        return unlimited
    return render_time_used(-(-time_ms // MINUTE_MS) * MINUTE_MS)


def render_elapsed(time_ms: int) -> str:
    """sacct's and scontrol's `[d-]hh:mm:ss`."""
    seconds = time_ms // SECOND_MS
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3_600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def render_moment(moment_ms: int | None, zone: datetime.tzinfo | None, missing: str = "N/A") -> str:
    """`2026-01-31T12:00:00`, in the machine's own time as Slurm has it."""
    if moment_ms is None:
        return missing
    return datetime.datetime.fromtimestamp(moment_ms // SECOND_MS, zone).strftime("%Y-%m-%dT%H:%M:%S")


def render_date(moment_ms: int, zone: datetime.tzinfo | None) -> str:
    """The line above `squeue -l`: `Sat Jan 31 12:00:00 2026`."""
    return datetime.datetime.fromtimestamp(moment_ms // SECOND_MS, zone).strftime("%a %b %d %H:%M:%S %Y")


def render_memory(size_bytes: int) -> str:
    """`512M`, `64G`: the largest unit that is exact."""
    if size_bytes and size_bytes % GIB == 0:
        return f"{size_bytes // GIB}G"
    return f"{-(-size_bytes // MIB)}M"


def render_exit(job: JobView) -> str:
    """`code:signal`."""
    return f"{job.exit_code}:{job.signal}"


def render_host_list(names: Iterable[str]) -> str:
    """`gpu[01-03,07]`: names that differ in the number at their end, in order of appearance."""
    groups: dict[tuple[str, int], list[int]] = {}
    others: list[str] = []
    for name in dict.fromkeys(names):
        match = _DIGITS.match(name)
        if match is None:
            others.append(name)
        else:
            width = len(match[2]) if match[2].startswith("0") else 0
            groups.setdefault((match[1], width), []).append(int(match[2]))
    parts = [_render_group(prefix, width, sorted(numbers)) for (prefix, width), numbers in groups.items()]
    return ",".join([*parts, *others])


def _render_group(prefix: str, width: int, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}}"
    return f"{prefix}[{render_ranges(numbers, width)}]"


def render_ranges(numbers: Sequence[int], width: int = 0) -> str:
    """`1-3,7` of rising numbers."""
    parts: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        parts.append(f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else ""))
        if number is not None:
            first = last = number
    return ",".join(parts)
