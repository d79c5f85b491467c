"""What `squeue` prints."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clearway.cli.slurm.arguments import UsageError, split_list
from clearway.cli.slurm.columns import Column, parse_long_format, parse_short_format, render_table
from clearway.cli.slurm.values import (
    STATE_CODES,
    cpu_count_of,
    ends_ms,
    gpu_text_of,
    is_waiting,
    job_name_of,
    node_count_of,
    priority_of,
    qos_of,
    ran_ms,
    render_date,
    render_host_list,
    render_memory,
    render_moment,
    render_ranges,
    render_time_limit,
    render_time_used,
)
from clearway.ports.views import JobState, JobView

DEFAULT_FORMAT: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT: Final = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
DEFAULT_SORT: Final = "P,t,-p"

ARRAY_CHARACTERS_MAX: Final = 64
"""Of a list of array tasks; Slurm cuts it likewise (SLURM_BITSTR_LEN)."""

_STATE_ORDER: Final = (
    JobState.PENDING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.COMPLETED,
    JobState.CANCELLED,
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.NODE_FAIL,
    JobState.OUT_OF_MEMORY,
    JobState.DEADLINE,
    JobState.CONFIGURING,
    JobState.COMPLETING,
    JobState.REQUEUE_HOLD,
)
"""Slurm numbers its states, and sorts by the number."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a job, or the waiting members of an array that wait for the same reason (`job` is the first)."""

    job: JobView
    indices: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """`12`, `12_3` or `12_[4-9]`."""
        if len(self.indices) < 2:
            return job_name_of(self.job)
        ranges = render_ranges(self.indices)
        if len(ranges) > ARRAY_CHARACTERS_MAX:
            ranges = ranges[: ARRAY_CHARACTERS_MAX - 3] + "..."
        most = "" if self.job.array_parallel_max is None else f"%{self.job.array_parallel_max}"
        return f"{self.job.array}_[{ranges}{most}]"


def render_squeue(
    jobs: Sequence[JobView],
    *,
    now_ms: int,
    zone: datetime.tzinfo | None = None,
    format_short: str = "",
    format_long: str = "",
    sort: str = DEFAULT_SORT,
    has_header: bool = True,
    is_long: bool = False,
    are_arrays_spread: bool = False,
) -> str:
    """The table. Raises UsageError for a format or an order that squeue does not have here."""
    columns = _make_columns(now_ms, zone)
    if format_long:
        cells = parse_long_format(format_long, columns)
    else:
        cells = parse_short_format(format_short or (LONG_FORMAT if is_long else DEFAULT_FORMAT), columns)
    lines = [Line(job) for job in jobs] if are_arrays_spread else fold_arrays(jobs)
    head = f"{render_date(now_ms, zone)}\n" if is_long and has_header else ""
    return head + render_table(cells, sort_lines(lines, sort or DEFAULT_SORT, now_ms), has_header=has_header)


def fold_arrays(jobs: Sequence[JobView]) -> list[Line]:
    """Waiting members of one array with one reason as one line, where the first of them stands."""
    groups: dict[tuple[object, ...], list[JobView]] = {}
    for job in jobs:
        is_folded = job.array is not None and job.state is JobState.PENDING
        key = ("array", job.array, job.reason) if is_folded else ("job", job.id)
        groups.setdefault(key, []).append(job)
    return [Line(members[0], _indices_of(members)) for members in groups.values()]


def _indices_of(members: Sequence[JobView]) -> tuple[int, ...]:
    return tuple(sorted(member.array_index for member in members if member.array_index is not None))


def sort_lines(lines: Sequence[Line], sort: str, now_ms: int) -> list[Line]:
    """By the letters of `-S`, each with + or - before it; ties by number."""
    ordered = sorted(lines, key=lambda line: line.job.id)
    keys = _sort_keys(now_ms)
    for part in reversed(split_list(sort)):
        letter = part.lstrip("+-")
        if letter not in keys:
            raise UsageError(f"Invalid sort specification: {part}; known are {', '.join(keys)}")
        ordered.sort(key=keys[letter], reverse=part.startswith("-"))
    return ordered


def _sort_keys(now_ms: int) -> Mapping[str, Callable[[Line], int | str]]:
    return {
        "i": lambda line: line.job.id,
        "P": lambda line: line.job.queue,
        "j": lambda line: line.job.name,
        "u": lambda line: line.job.user,
        "t": lambda line: _STATE_ORDER.index(line.job.state),
        "T": lambda line: _STATE_ORDER.index(line.job.state),
        "M": lambda line: ran_ms(line.job, now_ms),
        "D": lambda line: node_count_of(line.job),
        "p": lambda line: priority_of(line.job),
        "Q": lambda line: priority_of(line.job),
        "S": lambda line: line.job.start_ms or line.job.start_planned_ms or 0,
        "V": lambda line: line.job.submit_ms,
        "e": lambda line: ends_ms(line.job) or 0,
        "a": lambda line: line.job.tenant,
        "C": lambda line: cpu_count_of(line.job),
        "N": lambda line: render_host_list(line.job.nodes),
    }


def _make_columns(now_ms: int, zone: datetime.tzinfo | None) -> tuple[Column[Line], ...]:
    return (*_identity_columns(), *_resource_columns(), *_time_columns(now_ms, zone))


def _identity_columns() -> tuple[Column[Line], ...]:
    return (
        Column("i", ("jobarrayid",), "JOBID", lambda line: line.name),
        Column("A", ("jobid",), "JOBID", lambda line: str(line.job.id)),
        Column("F", ("arrayjobid",), "ARRAY_JOB_ID", lambda line: str(line.job.array or line.job.id)),
        Column("K", ("arraytaskid",), "ARRAY_TASK_ID", _task_of),
        Column("P", ("partition",), "PARTITION", lambda line: line.job.queue),
        Column("j", ("name",), "NAME", lambda line: line.job.name),
        Column("u", ("username",), "USER", lambda line: line.job.user),
        Column("a", ("account",), "ACCOUNT", lambda line: line.job.tenant),
        Column("t", ("statecompact",), "ST", lambda line: STATE_CODES[line.job.state]),
        Column("T", ("state",), "STATE", lambda line: line.job.state.value),
        Column("r", ("reason",), "REASON", lambda line: line.job.reason),
        Column("R", ("reasonlist",), "NODELIST(REASON)", nodes_or_reason),
        Column("p", (), "PRIORITY", _normal_priority),
        Column("Q", ("prioritylong",), "PRIORITY", lambda line: str(priority_of(line.job))),
        Column("q", ("qos",), "QOS", lambda line: qos_of(line.job)),
        Column("Z", ("workdir",), "WORK_DIR", lambda line: line.job.workdir),
        Column("", ("stdout",), "STDOUT", lambda line: line.job.output),
        Column("", ("stderr",), "STDERR", lambda line: line.job.error),
        Column("", ("restartcnt",), "RESTART_COUNT", lambda line: str(line.job.restarts)),
    )


def _resource_columns() -> tuple[Column[Line], ...]:
    return (
        Column("D", ("numnodes",), "NODES", lambda line: str(node_count_of(line.job))),
        Column("N", ("nodelist",), "NODELIST", lambda line: render_host_list(_held_nodes(line.job))),
        Column("C", ("numcpus",), "CPUS", lambda line: str(cpu_count_of(line.job))),
        Column(
            "m", ("minmemory",), "MIN_MEMORY", lambda line: render_memory(line.job.memory_bytes // line.job.replicas)
        ),
        Column("b", ("tres-per-node", "gres"), "TRES_PER_NODE", _gres_of),
        Column("c", ("mincpus",), "MIN_CPUS", lambda line: str(max(1, cpu_count_of(line.job) // line.job.replicas))),
        Column("B", ("batchhost",), "EXEC_HOST", lambda line: next(iter(_held_nodes(line.job)), "n/a")),
        Column("Y", ("schednodes",), "SCHEDNODES", lambda _line: "(null)"),
    )


def _time_columns(now_ms: int, zone: datetime.tzinfo | None) -> tuple[Column[Line], ...]:
    def left_of(line: Line) -> str:
        job = line.job
        return "UNLIMITED" if job.limit_ms is None else render_time_used(max(0, job.limit_ms - ran_ms(job, now_ms)))

    def start_of(line: Line) -> str:
        job = line.job
        return render_moment(job.start_planned_ms if is_waiting(job) else job.start_ms, zone)

    return (
        Column("M", ("timeused",), "TIME", lambda line: render_time_used(ran_ms(line.job, now_ms))),
        Column("l", ("timelimit",), "TIME_LIMIT", lambda line: render_time_limit(line.job.limit_ms)),
        Column("L", ("timeleft",), "TIME_LEFT", left_of),
        Column("S", ("starttime",), "START_TIME", start_of),
        Column("e", ("endtime",), "END_TIME", lambda line: render_moment(ends_ms(line.job), zone)),
        Column("V", ("submittime",), "SUBMIT_TIME", lambda line: render_moment(line.job.submit_ms, zone)),
    )


def nodes_or_reason(line: Line) -> str:
    """Where it runs, or in brackets why it does not."""
    job = line.job
    if is_waiting(job):
        return f"({job.reason})"
    if job.state.is_final and job.reason != "None":
        return f"({job.reason})"
    return render_host_list(job.nodes)


def _normal_priority(line: Line) -> str:
    """As a part of the largest 32-bit number, which is how `%p` has it."""
    return f"{priority_of(line.job) / 0xFFFF_FFFF:.14f}"


def _held_nodes(job: JobView) -> Sequence[str]:
    return () if is_waiting(job) else job.nodes


def _task_of(line: Line) -> str:
    return line.name.partition("_")[2].strip("[]") if line.job.array is not None else "N/A"


def _gres_of(line: Line) -> str:
    return f"gres/gpu:{gpu_text_of(line.job)}" if line.job.device_milli else "N/A"
