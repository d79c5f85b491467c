"""Alibaba's GPU-sharing trace (cluster-trace-gpu-v2023, "openb") and the disaggregated DLRM trace (v2025).

Sources: Weng et al., "Beware of Fragmentation" (ATC 2023); Yang et al., "GPU-Disaggregated Serving" (NSDI 2025).

How openb is read: a pod is one replica with its CPUs and memory; `gpu_milli` below 1000 is a share of one device;
`gpu_spec` names the allowed models. QOS LS (latency sensitive) is a service, BE (best effort) a preemptible training
job, the rest training jobs that are not preempted. A pod runs from `scheduled_time` to `deletion_time`; one that was
never scheduled, from `creation_time`. The variants without times (multigpu) are lists for filling a cluster. The node
list beside the file is the cluster of the workload.

How DLRM is read: an instance is a service of one replica; those that existed before the trace come at 0, and those that
outlive it end with it. RDMA shares and spread limits have no counterpart in a job and are left out of the request.
"""

from pathlib import Path

from clearway.model.jobs import JobKind, Outcome, Request
from clearway.model.units import DAY_MS, GIB, MIB, MILLI, SECOND_MS
from clearway.sim.text_files import ProgressCallback, read_head
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import CsvRow, iterate_csv, parse_number, parse_seconds_ms, parse_whole, split_record
from clearway.sim.traces.inventories import read_cluster
from clearway.sim.workload import Workload

HEADER = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip
DLRM_COLUMNS = (
    "instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request", "creation_time", "deletion_time",
)  # fmt: skip
PACKING_HEADER = HEADER[:5]
PACKING_GAP_MS = SECOND_MS
PACKING_RUN_MS = 365 * DAY_MS
"""A list without times is for packing: one pod a second, none of which ends before the cluster is full."""
NODE_LIST = "openb_node_list_all_node.csv"
QOS_LATENCY_SENSITIVE = "LS"
QOS_BEST_EFFORT = "BE"
NO_TIMES = "no creation or deletion time"
ENDS_BEFORE_START = "deleted before it was scheduled"
BAD_SHARE = "a GPU share outside 1..1000, or of several GPUs"

Shape = tuple[int, int, int, int, tuple[str, ...]]


def recognise_openb(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header of a pod list."""
    return bool(head) and tuple(split_record(head[0])) in (HEADER, PACKING_HEADER)


def recognise_dlrm(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header of the DLRM trace."""
    return bool(head) and {"instance_sn", "role", "app_name", "rdma_request"} <= set(split_record(head[0]))


def read_openb(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read a pod list. Ids are 1..n in order of (creation, line)."""
    tally = SkipTally()
    drafts: list[JobDraft] = []
    requests: dict[Shape, Request] = {}
    has_times = tuple(split_record(read_head(path)[0])) != PACKING_HEADER
    for row in iterate_csv(path, HEADER if has_times else PACKING_HEADER, tally, progress):
        try:
            drafts.append(_pod_draft(row, requests) if has_times else _packing_draft(row, requests))
        except ValueError as error:
            tally.add(str(error), row.line)
    nodes = path.parent / NODE_LIST
    note = f"No times in the file: one pod each {PACKING_GAP_MS} ms, which runs {PACKING_RUN_MS // DAY_MS} days."
    facts = TraceFacts(cluster=read_cluster(nodes) if nodes.exists() else None, notes=() if has_times else (note,))
    return assemble_workload(path, drafts, tally, facts, limit)


def _pod_draft(row: CsvRow, requests: dict[Shape, Request]) -> JobDraft:
    name, _, _, _, _, _, qos, phase, created, deleted, scheduled = row.values
    if not created or not deleted:
        raise ValueError(NO_TIMES)
    submit_ms = parse_seconds_ms(created)
    run_ms = parse_seconds_ms(deleted) - parse_seconds_ms(scheduled or created)
    if run_ms < 0:
        raise ValueError(ENDS_BEFORE_START)
    options = JobOptions(
        name=name,
        qos=qos,
        kind=JobKind.SERVICE if qos == QOS_LATENCY_SENSITIVE else JobKind.TRAIN,
        preemptible=qos == QOS_BEST_EFFORT,
    )
    outcome = Outcome.FAILED if phase == "Failed" else Outcome.COMPLETED
    return JobDraft(row.line, None, submit_ms, run_ms, _pod_request(row, requests), 1, options, "", outcome)


def _packing_draft(row: CsvRow, requests: dict[Shape, Request]) -> JobDraft:
    request = _pod_request(CsvRow(row.line, [*row.values, ""]), requests)
    options = JobOptions(name=row.values[0])
    return JobDraft(row.line, None, row.line * PACKING_GAP_MS, PACKING_RUN_MS, request, 1, options)


def _pod_request(row: CsvRow, requests: dict[Shape, Request]) -> Request:
    _, cpu, memory, count, share, models = row.values[:6]
    devices, share_milli = parse_whole(count), parse_whole(share) if share else MILLI
    if devices == 0:
        share_milli = MILLI
    if not 1 <= share_milli <= MILLI or (share_milli < MILLI and devices != 1):
        raise ValueError(BAD_SHARE)
    shape = (
        devices,
        share_milli,
        parse_whole(cpu),
        parse_whole(memory),
        tuple(part for part in models.split("|") if part),
    )
    if shape not in requests:
        requests[shape] = Request(
            devices=shape[0],
            share_milli=shape[1],
            cpu_milli=shape[2],
            memory_bytes=shape[3] * MIB,
            device_models=shape[4],
        )
    return requests[shape]


def read_dlrm(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read the DLRM instances. Ids are 1..n in order of (creation, line)."""
    tally = SkipTally()
    rows = list(iterate_csv(path, DLRM_COLUMNS, tally, progress))
    end_ms = max((_time_or(row.values[position], 0) for row in rows for position in (6, 7)), default=0)
    drafts: list[JobDraft] = []
    requests: dict[tuple[int, int, int], Request] = {}
    for row in rows:
        try:
            drafts.append(_instance_draft(row, end_ms, requests))
        except ValueError as error:
            tally.add(str(error), row.line)
    facts = TraceFacts(notes=("Instances older than the trace start at 0; those that outlive it end with it.",))
    return assemble_workload(path, drafts, tally, facts, limit)


def _time_or(text: str, default_ms: int) -> int:
    """A time, or the default where the field is empty or not a number (the latter is counted when the row is read)."""
    try:
        return parse_seconds_ms(text) if text else default_ms
    except ValueError:
        return default_ms


def _instance_draft(row: CsvRow, end_ms: int, requests: dict[tuple[int, int, int], Request]) -> JobDraft:
    name, _, application, cpu, devices, memory, created, deleted = row.values
    submit_ms = parse_seconds_ms(created) if created else 0
    run_ms = (parse_seconds_ms(deleted) if deleted else end_ms) - submit_ms
    if run_ms < 0:
        raise ValueError(ENDS_BEFORE_START)
    memory_bytes = round(parse_number(memory) * GIB)
    shape = (parse_whole(devices), parse_whole(cpu), memory_bytes)
    if shape not in requests:
        requests[shape] = Request(devices=shape[0], cpu_milli=shape[1] * MILLI, memory_bytes=memory_bytes)
    options = JobOptions(name=f"{application}/{name}", user=application, kind=JobKind.SERVICE, preemptible=False)
    return JobDraft(row.line, None, submit_ms, run_ms, requests[shape], 1, options)
