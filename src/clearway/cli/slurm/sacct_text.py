"""What `sacct` prints: one line per job, no steps."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from clearway.cli.slurm.arguments import UsageError
from clearway.cli.slurm.values import (
    cpu_count_of,
    gpu_text_of,
    is_waiting,
    job_name_of,
    node_count_of,
    priority_of,
    qos_of,
    ran_ms,
    render_elapsed,
    render_exit,
    render_host_list,
    render_memory,
    render_moment,
)
from clearway.model.units import MILLI, MINUTE_MS, SECOND_MS
from clearway.ports.views import JobView

DEFAULT_FIELDS: Final = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF_FIELDS: Final = "jobid,state,exitcode"
LONG_FIELDS: Final = (
    "jobid,jobidraw,jobname,partition,user,account,alloccpus,allocnodes,alloctres,state,exitcode,"
    "submit,start,end,elapsed,timelimit,nodelist,workdir"
)


@dataclass(frozen=True, slots=True)
class Field:
    """name: as its header shows it. width: negative = left, as `sacct --format=jobname%-20` has it."""

    name: str
    width: int
    cell: Callable[[JobView, int, datetime.tzinfo | None], str]


def render_sacct(
    jobs: Sequence[JobView],
    *,
    now_ms: int,
    zone: datetime.tzinfo | None = None,
    fields: str = DEFAULT_FIELDS,
    delimiter: str = "",
    ends_with_delimiter: bool = False,
    has_header: bool = True,
) -> str:
    """The table: in columns, or by `delimiter` (`-p`, `-P`). Raises UsageError for an unknown field."""
    wanted = parse_fields(fields)
    rows = [[field.cell(job, now_ms, zone) for field in wanted] for job in jobs]
    if delimiter:
        end = delimiter if ends_with_delimiter else ""
        lines = [[field.name for field in wanted], *rows] if has_header else rows
        return "".join(delimiter.join(line) + end + "\n" for line in lines)
    head = [[field.name for field in wanted], ["-" * abs(field.width) for field in wanted]] if has_header else []
    return "".join(_render_line(wanted, line) for line in [*head, *rows])


def parse_fields(text: str) -> list[Field]:
    """Fields of `-o`, each perhaps with `%width`."""
    fields: list[Field] = []
    for part in text.split(","):
        name, percent, width = part.strip().partition("%")
        field = FIELDS.get(name.lower())
        if field is None or (percent and not width.lstrip("-").isdigit()) or (percent and int(width) == 0):
            raise UsageError(f'Invalid field requested: "{part.strip()}"\nsacct --helpformat lists them')
        fields.append(Field(field.name, int(width), field.cell) if percent else field)
    return fields


def render_field_list() -> str:
    """What `--helpformat` prints: names in four columns."""
    names = [field.name for field in FIELDS.values()]
    lines = [names[first : first + 4] for first in range(0, len(names), 4)]
    return "".join(" ".join(f"{name:<19}" for name in line).rstrip() + "\n" for line in lines)


def _render_line(fields: Sequence[Field], texts: Sequence[str]) -> str:
    return "".join(_fit(text, field.width) + " " for field, text in zip(fields, texts, strict=True)) + "\n"


def _fit(text: str, width: int) -> str:
    """Cut with a `+` where it does not fit, as sacct does."""
    size = abs(width)
    cut = text if len(text) <= size else text[: size - 1] + "+"
    return cut.ljust(size) if width < 0 else cut.rjust(size)


def tres_of(job: JobView) -> str:
    """`billing=2,cpu=2,gres/gpu=1,mem=4G,node=1`: of all replicas."""
    cpus = cpu_count_of(job)
    parts = [f"billing={cpus}", f"cpu={cpus}"]
    if job.device_milli:
        parts.append(f"gres/gpu={job.device_milli / MILLI:g}")
    if job.memory_bytes:
        parts.append(f"mem={render_memory(job.memory_bytes)}")
    return ",".join([*parts, f"node={node_count_of(job)}"])


def _start(job: JobView) -> int | None:
    return None if is_waiting(job) else job.start_ms


def _limit(job: JobView) -> str:
    return "UNLIMITED" if job.limit_ms is None else render_elapsed(-(-job.limit_ms // MINUTE_MS) * MINUTE_MS)


def _limit_minutes(job: JobView) -> str:
    return "UNLIMITED" if job.limit_ms is None else str(-(-job.limit_ms // MINUTE_MS))


def _nodes(job: JobView) -> str:
    return render_host_list(job.nodes) or "None assigned"


def _make_fields() -> dict[str, Field]:
    simple: dict[str, tuple[int, Callable[[JobView], str]]] = {
        "Account": (10, lambda job: job.tenant),
        "AllocCPUS": (10, lambda job: str(0 if job.start_ms is None else cpu_count_of(job))),
        "AllocNodes": (10, lambda job: str(len(job.nodes))),
        "AllocTRES": (10, lambda job: "" if job.start_ms is None else tres_of(job)),
        "Cluster": (10, lambda _job: "clearway"),
        "DerivedExitCode": (15, lambda _job: "0:0"),
        "ExitCode": (8, render_exit),
        "JobID": (-12, job_name_of),
        "JobIDRaw": (-12, lambda job: str(job.id)),
        "JobName": (10, lambda job: job.name),
        "NCPUS": (10, lambda job: str(cpu_count_of(job))),
        "NNodes": (8, lambda job: str(node_count_of(job))),
        "NodeList": (15, _nodes),
        "Partition": (10, lambda job: job.queue),
        "Priority": (10, lambda job: str(priority_of(job))),
        "QOS": (10, qos_of),
        "Reason": (22, lambda job: job.reason),
        "ReqCPUS": (8, lambda job: str(cpu_count_of(job))),
        "ReqMem": (10, lambda job: render_memory(job.memory_bytes) if job.memory_bytes else "0"),
        "ReqNodes": (8, lambda job: str(job.replicas)),
        "ReqTRES": (10, tres_of),
        "Restarts": (8, lambda job: str(job.restarts)),
        "ReqGPUS": (8, gpu_text_of),
        "State": (10, lambda job: job.state.value),
        "StdErr": (20, lambda job: job.error),
        "StdOut": (20, lambda job: job.output),
        "Timelimit": (10, _limit),
        "TimelimitRaw": (12, _limit_minutes),
        "User": (9, lambda job: job.user),
        "WorkDir": (20, lambda job: job.workdir),
    }
    timed: dict[str, tuple[int, Callable[[JobView, int, datetime.tzinfo | None], str]]] = {
        "CPUTime": (10, lambda job, now, _zone: render_elapsed(ran_ms(job, now) * cpu_count_of(job))),
        "CPUTimeRAW": (10, lambda job, now, _zone: str(ran_ms(job, now) // SECOND_MS * cpu_count_of(job))),
        "Elapsed": (10, lambda job, now, _zone: render_elapsed(ran_ms(job, now))),
        "ElapsedRaw": (10, lambda job, now, _zone: str(ran_ms(job, now) // SECOND_MS)),
        "Eligible": (19, lambda job, _now, zone: render_moment(job.submit_ms, zone, "Unknown")),
        "End": (19, lambda job, _now, zone: render_moment(job.end_ms, zone, "Unknown")),
        "Start": (19, lambda job, _now, zone: render_moment(_start(job), zone, "Unknown")),
        "Submit": (19, lambda job, _now, zone: render_moment(job.submit_ms, zone, "Unknown")),
    }
    fields = [Field(name, width, _untimed(cell)) for name, (width, cell) in simple.items()]
    fields += [Field(name, width, cell) for name, (width, cell) in timed.items()]
    return {field.name.lower(): field for field in sorted(fields, key=lambda field: field.name.lower())}


def _untimed(cell: Callable[[JobView], str]) -> Callable[[JobView, int, datetime.tzinfo | None], str]:
    return lambda job, _now, _zone: cell(job)


FIELDS: Final = _make_fields()
"""By name in lower case."""
