"""Workloads of Pollux and Sia: `name,time,application,num_replicas,batch_size`.

Sources: Qiao et al., "Pollux" (OSDI 2021); Jayaram Subramanya et al., "Sia" (SOSP 2023).

How it is read: a job is elastic, from one replica of one device to as many as its batch size fills. The files give no
run times, so they are derived: iterations to reach the end of training at that batch size (Pollux's validation
profiles), times the time of one step with the job's replicas on T4s, well placed (placement profiles, `sim.profiles`).
Approximations: the batch size stays what the file says (Pollux itself would change it, and the learning rate with it);
the last row of a validation profile is the end of training, early stopping is not modelled; interpolation as described
in `sim.profiles`. A job whose application or batch size has no profile is counted and left out.
"""

from pathlib import Path

from clearway.model.errors import InputError
from clearway.model.jobs import Elastic, Request
from clearway.model.units import SECOND_MS
from clearway.sim.profiles import PLACEMENT_REFERENCE, PlacementTable, find_placement_table, placement_profile
from clearway.sim.text_files import ProgressCallback
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import CsvRow, iterate_csv, parse_seconds_ms, parse_whole, split_record
from clearway.sim.workload import Workload

HEADER = ("name", "time", "application", "num_replicas", "batch_size")
REPLICAS_MAX = 64
"""The largest measured scale, and the size of Pollux's cluster."""
SPEEDUP_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NO_PROFILE = "an application or batch size without a profile"
NO_REPLICAS = "no replicas"

ITERATIONS: dict[str, dict[int, int]] = {
    "bert": {12: 14774, 24: 7427, 48: 3732, 96: 1885, 192: 940, 384: 480},
    "cifar10": {128: 39062, 256: 20377, 512: 10615, 1024: 5722, 2048: 3178, 4096: 2011},
    "deepspeech2": {20: 28536, 40: 14711, 80: 7683, 160: 4041, 320: 2264, 640: 1423},
    "imagenet": {200: 576525, 400: 292995, 800: 150231, 1600: 78453, 3200: 42123, 6400: 23972, 12800: 14461},
    "ncf": {256: 194174, 512: 97094, 1024: 48625, 2048: 24308, 4096: 12172, 8192: 6122, 16384: 3069, 32768: 1548},
    "yolov3": {8: 103444, 16: 52905, 32: 27430, 64: 14577, 128: 8075, 256: 4809, 512: 3143},
}
"""Iterations at the end of `validation-<batch size>.csv` of petuum/adaptdl, branch osdi21-artifact."""


def recognise_pollux(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header. Sia's files have the same one; both formats read either."""
    return bool(head) and tuple(split_record(head[0])) == HEADER


def read_pollux(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read a workload. Ids are 1..n in order of (time, line). InputError when there is no profiles folder above it."""
    table = find_placement_table(path)
    if table is None:
        raise InputError(
            f"{path}: expected a folder `profiles` in a folder above the workload, found none; "
            f"put the profiles of Pollux or Sia there, since the workload gives no run times"
        )
    tally = SkipTally()
    drafts: list[JobDraft] = []
    reader = _PolluxReader(table)
    for row in iterate_csv(path, HEADER, tally, progress):
        try:
            drafts.append(reader.draft(row))
        except ValueError as error:
            tally.add(str(error), row.line)
    notes = ("Run times are derived from scaling and convergence profiles at the batch size of the file.",)
    return assemble_workload(path, drafts, tally, TraceFacts(notes=notes), limit)


class _PolluxReader:
    """Keeps the elastic range of each (application, batch size), which is costly to work out."""

    def __init__(self, table: PlacementTable) -> None:
        self._table = table
        self._request = Request(devices=1)
        self._elastic: dict[tuple[str, int, int], Elastic] = {}

    def draft(self, row: CsvRow) -> JobDraft:
        """One job. ValueError with the reason where it is left out."""
        name, time, application, count, batch = row.values
        submit_ms, replicas, batch_size = parse_seconds_ms(time), parse_whole(count), parse_whole(batch)
        if replicas < 1:
            raise ValueError(NO_REPLICAS)
        iterations = ITERATIONS.get(application, {}).get(batch_size)
        if iterations is None or (application, PLACEMENT_REFERENCE) not in self._table.times:
            raise ValueError(NO_PROFILE)
        profile = placement_profile(application, batch_size, replicas)
        step_s = self._table.step_seconds(application, batch_size, replicas)
        assert step_s is not None, "the application is in the table"
        options = JobOptions(name=name, elastic=self._range(application, batch_size, replicas))
        run_ms = round(iterations * step_s * SECOND_MS)
        return JobDraft(row.line, None, submit_ms, run_ms, self._request, replicas, options, profile)

    def _range(self, application: str, batch_size: int, replicas: int) -> Elastic:
        key = (application, batch_size, replicas)
        if key not in self._elastic:
            self._elastic[key] = self._make_range(*key)
        return self._elastic[key]

    def _make_range(self, application: str, batch_size: int, replicas: int) -> Elastic:
        """Up to as many replicas as have the smallest measured local batch each, and at least those asked for."""
        filled = batch_size // self._table.smallest_batch(application)
        replicas_max = max(replicas, min(REPLICAS_MAX, filled))
        one = placement_profile(application, batch_size, 1)
        base = self._table.reference(one)
        assert base is not None, "the application is in the table"
        counts = sorted({count for count in (*SPEEDUP_COUNTS, replicas, replicas_max) if count <= replicas_max})
        rates = [(count, self._table.throughput(one, PLACEMENT_REFERENCE, count, 1)) for count in counts]
        speedup = tuple((count, rate / base) for count, rate in rates if rate is not None)
        return Elastic(replicas_min=1, replicas_max=replicas_max, speedup=speedup)
