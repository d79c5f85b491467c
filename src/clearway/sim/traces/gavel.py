"""Gavel's job traces: tab separated, no header.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (OSDI 2020).
Two layouts: 7 columns ending in `steps, arrival seconds, workers` (the msr files), and 10 columns ending in
`steps, workers, priority weight, SLO, arrival seconds` (the physical-cluster files).

How it is read: a job of n workers is a gang of n one-device replicas. The true run time is steps divided by the
throughput of V100s, consolidated, in the tables that lie above the trace (`sim.profiles`), where n beyond the largest
measured number is extrapolated in proportion. SLO and priority weight are not used (they are constant in the files).
"""

from pathlib import Path

from clearway.model.errors import InputError
from clearway.model.jobs import Request
from clearway.model.units import SECOND_MS
from clearway.sim.profiles import GavelTable, find_gavel_table, gavel_profile
from clearway.sim.text_files import ProgressCallback, iterate_lines
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import parse_number, parse_seconds_ms, parse_whole
from clearway.sim.workload import Workload

MSR_COLUMNS = 7
PHYSICAL_COLUMNS = 10
WRONG_COLUMNS = f"neither {MSR_COLUMNS} nor {PHYSICAL_COLUMNS} tab-separated columns"
NOT_MEASURED = "a job type that the throughput table does not have"
NO_WORKERS = "no workers, or a negative number of steps"


def recognise_gavel(head: tuple[str, ...]) -> bool:
    """Whether the first line has the columns of either layout, with numbers where they belong."""
    try:
        return bool(head) and _parse_fields(head[0].split("\t"))[2] >= 1
    except ValueError:
        return False


def read_gavel(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read a trace. Ids are 1..n in order of (arrival, line). InputError when the throughput table is not there."""
    table = find_gavel_table(path)
    if table is None:
        raise InputError(
            f"{path}: expected simulation_throughputs.json[.gz] in a folder above the trace, found none; "
            f"put Gavel's table there, since the trace gives steps and not times"
        )
    tally = SkipTally()
    drafts: list[JobDraft] = []
    request = Request(devices=1)
    for number, line in iterate_lines(path, progress):
        if not line.strip():
            continue
        try:
            drafts.append(_draft(number, line.rstrip("\r\n").split("\t"), table, request))
        except ValueError as error:
            tally.add(str(error), number)
    return assemble_workload(path, drafts, tally, TraceFacts(), limit)


def _parse_fields(fields: list[str]) -> tuple[float, int, int]:
    """(steps, arrival ms, workers)."""
    if len(fields) == MSR_COLUMNS:
        steps, arrival, workers = fields[4], fields[5], fields[6]
    elif len(fields) == PHYSICAL_COLUMNS:
        steps, arrival, workers = fields[5], fields[9], fields[6]
    else:
        raise ValueError(WRONG_COLUMNS)
    return parse_number(steps), parse_seconds_ms(arrival), parse_whole(workers)


def _draft(number: int, fields: list[str], table: GavelTable, request: Request) -> JobDraft:
    steps, submit_ms, workers = _parse_fields(fields)
    if workers < 1 or steps < 0:
        raise ValueError(NO_WORKERS)
    profile = gavel_profile(fields[0], workers)
    rate = table.reference(profile)
    if rate is None:
        raise ValueError(NOT_MEASURED)
    run_ms = round(steps / rate * SECOND_MS)
    return JobDraft(number, None, submit_ms, run_ms, request, workers, JobOptions(name=fields[0]), profile)
