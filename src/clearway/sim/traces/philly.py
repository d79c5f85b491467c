"""The Philly job list as CSV: `timestamp,duration,num_gpus,gpu_time,cluster`, not sorted by time.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads" (ATC 2019), in the
form that the Sia and Pollux artifacts use. Seconds; wall clock without a zone, taken as UTC.

How it is read: the virtual cluster is the tenant; all jobs go to the default queue. A job of up to 8 GPUs is one
replica on one node. A larger one is a gang of replicas of gcd(GPUs, 8): 16 becomes 2 × 8, 12 becomes 3 × 4.
"""

from math import gcd
from pathlib import Path

from clearway.model.ids import TenantName
from clearway.model.jobs import Request
from clearway.sim.text_files import ProgressCallback
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import CsvRow, iterate_csv, parse_seconds_ms, parse_wall_clock_ms, parse_whole
from clearway.sim.workload import Workload

HEADER = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
DEVICES_PER_NODE = 8
"""GPUs of the larger Philly machines, and of every training node since: what one replica holds at most."""
NO_RUN_TIME = "duration is negative"
NO_DEVICES = "no GPUs"


def recognise_philly(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header."""
    return bool(head) and tuple(head[0].split(",")) == HEADER


def read_philly(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read the job list. Ids are 1..n in order of (submit, line)."""
    tally = SkipTally()
    drafts: list[JobDraft] = []
    requests: dict[int, tuple[Request, int]] = {}
    options: dict[str, JobOptions] = {}
    for row in iterate_csv(path, HEADER, tally, progress):
        draft = _parse_row(row, tally, requests, options)
        if draft is not None:
            drafts.append(draft)
    facts = TraceFacts(origin_unix_ms=0, notes=("Times are wall clock without a zone, taken as UTC.",))
    return assemble_workload(path, drafts, tally, facts, limit)


def split_gang(devices: int) -> tuple[int, int]:
    """(devices per replica, replicas) of a job of so many devices: whole nodes where it divides into them."""
    if devices <= DEVICES_PER_NODE:
        return devices, 1
    per_replica = gcd(devices, DEVICES_PER_NODE)
    return per_replica, devices // per_replica


def _parse_row(
    row: CsvRow, tally: SkipTally, requests: dict[int, tuple[Request, int]], shared: dict[str, JobOptions]
) -> JobDraft | None:
    timestamp, duration, count, _, virtual_cluster = row.values
    try:
        submit_ms, run_ms, devices = parse_wall_clock_ms(timestamp), parse_seconds_ms(duration), parse_whole(count)
    except ValueError as error:
        tally.add(str(error), row.line)
        return None
    if run_ms < 0 or devices < 1:
        tally.add(NO_RUN_TIME if run_ms < 0 else NO_DEVICES, row.line)
        return None
    if devices not in requests:
        per_replica, replicas = split_gang(devices)
        requests[devices] = (Request(devices=per_replica), replicas)
    request, replicas = requests[devices]
    options = shared.setdefault(virtual_cluster, JobOptions(tenant=TenantName(virtual_cluster)))
    return JobDraft(row.line, None, submit_ms, run_ms, request, replicas, options)
