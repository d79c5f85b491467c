"""Slurm accounting: `sacct --parsable2` output with a header, or the headerless columns of XDMoD's shredder, and the
CSV of NREL's Eagle.

Source: the sacct manual page (Slurm 15.08 to 25.11); XDMoD, "Slurm log file format". Fields are divided by `|`, or by
`|#` where a site set its own delimiter; a record whose text fields contain line breaks is put together again.

How it is read: the allocation lines are the jobs; steps (ids with a dot) are counted and left out. The run time is
Elapsed, which leaves out suspended time. Devices are the gres/gpu of AllocTRES, else of ReqTRES, else GRES per node
times nodes. A job of g GPUs on n nodes is n replicas of g / n, or g one-device replicas where that is not whole. A job
without GPUs is n device-less replicas with its CPUs and memory. Account is the tenant, partition the queue. Times are
wall clock without a zone, taken as UTC.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clearway.model.errors import InputError
from clearway.model.ids import QueueName, TenantName
from clearway.model.jobs import Outcome, Request
from clearway.model.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MILLI, MINUTE_MS, SECOND_MS
from clearway.sim.text_files import ProgressCallback, iterate_lines
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import iterate_csv, parse_seconds_ms, parse_wall_clock_ms, parse_whole, split_record
from clearway.sim.workload import Workload

XDMOD_COLUMNS = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit", "eligible",
    "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem", "reqgres", "reqtres",
    "alloctres", "timelimit", "nodelist", "jobname",
)  # fmt: skip
"""All that XDMoD exports. `qos` and `reqgres` are each there or not, by version: four layouts."""
XDMOD_LAYOUTS = tuple(
    tuple(name for name in XDMOD_COLUMNS if name not in absent)
    for absent in (("reqgres",), (), ("qos",), ("qos", "reqgres"))
)
EAGLE_COLUMNS = (
    "job_id", "user", "account", "partition", "qos", "wallclock_req", "nodes_req", "processors_req", "gpus_req",
    "mem_req", "submit_time", "run_time", "state", "name",
)  # fmt: skip
CONTINUATION_LINES_MAX = 50
"""Lines that one record may be broken into: a submit line of this length is not worth waiting for."""
MEMORY_PER_CPU_FLAG = 1 << 31
"""Old Slurm marks "per CPU" by the top bit of a 32-bit number of MiB; some exports print it as part of the number."""
WANTED = (
    "sacct -a -P -o JobID,User,Account,Partition,QOS,JobName,State,Submit,Elapsed,Timelimit,NNodes,NCPUS,ReqMem,"
    "AllocTRES"
)

OUTCOMES = {
    "COMPLETED": Outcome.COMPLETED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.TIMEOUT,
    "CANCELLED": Outcome.CANCELLED,
    "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "DEADLINE": Outcome.DEADLINE,
}
NOT_ENDED = (
    "RUNNING",
    "PENDING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STAGE_OUT",
    "RESV_DEL_HOLD",
    "REQUEUE_HOLD",
)
ANOTHER_RUN_FOLLOWS = ("PREEMPTED", "REQUEUED", "RESIZING", "REVOKED")

STATE_LETTERS_MAX = 20
"""Letters of an unknown state that is named: longer ones are no states, and each would be a reason of its own."""
STEP = "a job step, part of a job"
NO_RECORD = "not a whole record"
ENDED_NOT = "had not ended"
ANOTHER_RUN = "a run that was requeued, preempted or resized"
UNKNOWN_STATE = "a state that is none of Slurm's"
NEVER_STARTED = "never started"
NO_RESOURCES = "neither nodes nor devices"

_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT")
_MEMORY = re.compile(r"([\d.]+)([KMGTP]?)([nc]?)$")
_GRES = re.compile(r"gpu(?::[^:,(]+)?:(\d+)")
_MEMORY_UNITS = {"K": KIB, "": MIB, "M": MIB, "G": GIB, "T": GIB << 10, "P": GIB << 20}

Record = Mapping[str, str]


def recognise_sacct(head: tuple[str, ...]) -> bool:
    """Whether the first line is a header with JobID and State, or a line of XDMoD's columns."""
    if not head or "|" not in head[0]:
        return False
    names = _split_header(head[0])[0]
    return {"jobid", "state"} <= set(names) or _xdmod_record(head[0]) is not None


def recognise_eagle(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header of NREL's Eagle export."""
    return bool(head) and set(EAGLE_COLUMNS) <= set(split_record(head[0]))


def read_sacct(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read accounting output. Ids are JobIDRaw, else JobID, where these are positive and unique."""
    reader = _SacctReader()
    for number, record in _iterate_records(path, reader.tally, progress):
        reader.take(number, record)
    return assemble_workload(path, reader.drafts, reader.tally, _facts(), limit)


def read_eagle(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read NREL's CSV: the same jobs in columns of their own. mem_req is MB of the whole job."""
    reader = _SacctReader()
    for row in iterate_csv(path, EAGLE_COLUMNS, reader.tally, progress):
        values = dict(zip(EAGLE_COLUMNS, row.values, strict=True))
        reader.take(row.line, _eagle_record(values))
    return assemble_workload(path, reader.drafts, reader.tally, _facts(), limit)


def _facts() -> TraceFacts:
    return TraceFacts(origin_unix_ms=0, notes=("Times are wall clock without a zone, taken as UTC.",))


def _eagle_record(values: Record) -> dict[str, str]:
    return {
        "jobid": values["job_id"],
        "user": values["user"],
        "account": values["account"],
        "partition": values["partition"],
        "qos": values["qos"],
        "jobname": values["name"],
        "state": values["state"],
        "submit": values["submit_time"],
        "elapsedraw": values["run_time"],
        "timelimitraw_s": values["wallclock_req"],
        "nnodes": values["nodes_req"],
        "ncpus": values["processors_req"],
        "alloctres": f"gres/gpu={values['gpus_req']}",
        "reqmem": f"{values['mem_req']}M",
    }


def _split_header(line: str) -> tuple[list[str], str]:
    """Column names in lower case, and the delimiter: `|#` where every name but the first carries a `#`."""
    text = line.rstrip("\r\n")
    delimiter = "|#" if "|#" in text else "|"
    return [name.strip().lower() for name in text.split(delimiter)], delimiter


def _iterate_records(path: Path, tally: SkipTally, progress: ProgressCallback | None) -> Iterator[tuple[int, Record]]:
    lines = iterate_lines(path, progress)
    first_number, first = next(lines, (0, ""))
    names, delimiter = _split_header(first)
    if "jobid" in names:
        _require_columns(path, names)
        yield from _headed_records(lines, names, delimiter, tally)
        return
    for number, line in _chain_first((first_number, first), lines):
        record = _xdmod_record(line)
        if record is not None:
            yield number, record
        elif line.strip():
            tally.add(NO_RECORD, number)


def _chain_first(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


def _require_columns(path: Path, names: list[str]) -> None:
    has_time = "elapsed" in names or "elapsedraw" in names
    has_size = bool({"alloctres", "reqtres", "nnodes", "allocnodes"} & set(names))
    if {"state", "submit"} <= set(names) and has_time and has_size:
        return
    raise InputError(
        f"{path}:1: expected State, Submit, Elapsed and AllocTRES or NNodes among the columns, "
        f"found {', '.join(names[:8])}; export again, for example by: {WANTED}"
    )


def _headed_records(
    lines: Iterator[tuple[int, str]], names: list[str], delimiter: str, tally: SkipTally
) -> Iterator[tuple[int, Record]]:
    """Yield records with as many fields as the header; lines in between are joined, since text may hold line breaks."""
    wanted = len(names)
    pending = _Broken()
    for number, line in lines:
        text = line.rstrip("\r\n")
        fields = text.split(delimiter)
        if len(fields) < wanted and (pending.parts or len(fields) > 1):
            pending.add(number, text)
            fields = "\n".join(pending.parts).split(delimiter)
            if len(fields) < wanted and len(pending.parts) < CONTINUATION_LINES_MAX:
                continue
            number = pending.first_line
        elif pending.parts:
            tally.add(NO_RECORD, pending.first_line)
        pending = _Broken()
        if len(fields) >= wanted:
            yield number, dict(zip(names, fields, strict=False))
        elif text.strip():
            tally.add(NO_RECORD, number)
    if pending.parts:
        tally.add(NO_RECORD, pending.first_line)


@dataclass(slots=True)
class _Broken:
    """The lines read so far of a record that is broken over several."""

    first_line: int = 0
    parts: list[str] = field(default_factory=list)

    def add(self, number: int, text: str) -> None:
        self.first_line = self.first_line or number
        self.parts.append(text)


def _xdmod_record(line: str) -> Record | None:
    """The columns of one headerless line; which layout it is, the places of the submit time and the limit tell."""
    fields = line.rstrip("\r\n").split("|")
    for columns in XDMOD_LAYOUTS:
        last = len(columns) - 1
        if len(fields) <= last:
            continue
        # A job name may itself hold `|`: it is last, so what is too much belongs to it.
        record = dict(zip(columns, [*fields[:last], "|".join(fields[last:])], strict=True))
        limit = record["timelimit"]
        limit_fits = _is_time_limit(limit) or (not limit and len(fields) == len(columns))
        if _DATE.match(record["submit"]) and not _DATE.match(record["uid"]) and limit_fits:
            return record
    return None


def _is_time_limit(text: str) -> bool:
    return _ELAPSED.match(text) is not None or text.lower() in ("unlimited", "partition_limit", "invalid")


class _SacctReader:
    """Turns records into drafts; equal requests are one object."""

    def __init__(self) -> None:
        self.drafts: list[JobDraft] = []
        self.tally = SkipTally()
        self._requests: dict[tuple[int, int, int], Request] = {}

    def take(self, number: int, record: Record) -> None:
        """Keep one record as a draft, or count why not."""
        reason = _left_out_because(record)
        if reason is None:
            try:
                self.drafts.append(self._draft(number, record))
            except ValueError as error:
                reason = str(error)
        if reason is not None:
            self.tally.add(reason, number)

    def _draft(self, number: int, record: Record) -> JobDraft:
        request, replicas = self._shape(record)
        own = record.get("jobidraw") or record["jobid"]
        return JobDraft(
            line=number,
            number=int(own) if own.isdigit() else None,
            submit_ms=parse_wall_clock_ms(record["submit"]),
            run_ms=_run_ms(record),
            request=request,
            replicas=replicas,
            options=_options(record),
            outcome=OUTCOMES[_state_word(record)],
        )

    def _shape(self, record: Record) -> tuple[Request, int]:
        nodes = _count(record.get("nnodes") or record.get("allocnodes", ""))
        cpus = _count(record.get("ncpus") or record.get("alloccpus", ""))
        devices = _device_count(record, nodes)
        if nodes < 1 and devices < 1:
            raise ValueError(NO_RESOURCES)
        replicas = nodes if nodes >= 1 and devices % nodes == 0 else devices
        key = (
            devices // replicas,
            cpus * MILLI // replicas,
            _memory_bytes(record.get("reqmem", ""), max(nodes, 1), cpus) // replicas,
        )
        if key not in self._requests:
            self._requests[key] = Request(devices=key[0], cpu_milli=key[1], memory_bytes=key[2])
        return self._requests[key], replicas


def _state_word(record: Record) -> str:
    words = record["state"].split()
    return words[0].rstrip("+") if words else ""


def _left_out_because(record: Record) -> str | None:
    state = _state_word(record)
    if "." in record["jobid"]:
        return STEP
    if state in NOT_ENDED:
        return f"{ENDED_NOT} ({state})"
    if state in ANOTHER_RUN_FOLLOWS:
        return f"{ANOTHER_RUN} ({state})"
    if state not in OUTCOMES:
        return f"{UNKNOWN_STATE} ({state or 'empty'})" if len(state) <= STATE_LETTERS_MAX else UNKNOWN_STATE
    return NEVER_STARTED if record.get("start", "-").lower() in ("unknown", "none") else None


def _run_ms(record: Record) -> int:
    raw = record.get("elapsedraw", "")
    return parse_seconds_ms(raw) if raw else parse_elapsed_ms(record["elapsed"])


def _options(record: Record) -> JobOptions:
    options = JobOptions()
    if record.get("jobname"):
        options["name"] = record["jobname"]
    if record.get("user"):
        options["user"] = record["user"]
    if record.get("account"):
        options["tenant"] = TenantName(record["account"])
    if record.get("partition"):
        options["queue"] = QueueName(record["partition"])
    if record.get("qos"):
        options["qos"] = record["qos"]
    limit_ms = _limit_ms(record)
    if limit_ms > 0:
        options["limit_ms"] = options["estimate_ms"] = limit_ms
    return options


def _limit_ms(record: Record) -> int:
    """0 = none. `Partition_Limit` and `UNLIMITED` say nothing that holds here."""
    seconds = record.get("timelimitraw_s", "")
    if seconds:
        return parse_seconds_ms(seconds)
    text = record.get("timelimit", "")
    return parse_elapsed_ms(text) if _ELAPSED.match(text) else 0


def parse_elapsed_ms(text: str) -> int:
    """sacct's `[D-][HH:]MM:SS[.fraction]` to ms, the fraction dropped. ValueError otherwise."""
    found = _ELAPSED.match(text)
    if found is None:
        raise ValueError("an elapsed time that is not [D-]HH:MM:SS")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS


def _count(text: str) -> int:
    """A count; sacct shortens large ones to 1.5K. Empty is 0."""
    if text.endswith("K"):
        return parse_whole(text[:-1]) * 1000
    return parse_whole(text) if text else 0


def _device_count(record: Record, nodes: int) -> int:
    for column in ("alloctres", "reqtres"):
        devices = _tres_devices(record.get(column, ""))
        if devices:
            return devices
    for column in ("allocgres", "reqgres"):
        found = _GRES.search(record.get(column, ""))
        if found is not None:
            return int(found[1]) * max(nodes, 1)
    return 0


def _tres_devices(text: str) -> int:
    """`gres/gpu=4` is the total; a site that counts only by type has `gres/gpu:a100=4` alone."""
    pairs = [item.partition("=") for item in text.split(",") if item.startswith("gres/gpu")]
    total = sum(_count(value) for name, _, value in pairs if name == "gres/gpu")
    return total or sum(_count(value) for name, _, value in pairs if name.startswith("gres/gpu:"))


def _memory_bytes(text: str, nodes: int, cpus: int) -> int:
    """ReqMem of the whole job in bytes: suffix n = per node, c = per CPU, none (since Slurm 21.08) = of the job."""
    if not text:
        return 0
    found = _MEMORY.match(text)
    if found is None:
        raise ValueError("a memory that is not a number with K, M, G or T")
    amount, unit, per = float(found[1]), found[2], found[3]
    if unit in ("", "M") and amount >= MEMORY_PER_CPU_FLAG:
        amount, per = amount - MEMORY_PER_CPU_FLAG, "c"
    factor = {"n": nodes, "c": cpus, "": 1}[per]
    return int(amount * _MEMORY_UNITS[unit]) * factor
