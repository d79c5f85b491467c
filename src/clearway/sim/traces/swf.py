"""Standard Workload Format of the Parallel Workloads Archive.

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers" (1999), and the page
"The Standard Workload Format" of the archive. 18 fields a line, separated by white space; `;` starts a header comment;
-1 is unknown. Further fields (MetaCentrum: node list, queue name, node request) are accepted.

How it is read: one processor is one device and each is a replica of its own, so a job of 80 processors is a gang of 80
one-device replicas. Processors are those requested, else those allocated. A job whose run time is unknown (negative)
or that has no processors is counted and left out; a run time of 0 is known and kept. The requested time, where it is
positive, is both the limit at which a run ends and the user's estimate. Status 0 is failed, 5 is cancelled, anything
else counts as completed.
"""

import re
from pathlib import Path

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.ids import NodeName, QueueName, TenantName
from clearway.model.jobs import Outcome, Request
from clearway.model.units import DEVICES_PER_MODEL_MAX, SECOND_MS
from clearway.sim.text_files import ProgressCallback, iterate_lines
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.workload import Workload

FIELDS_MIN = 18
QUEUE_NAME_FIELD = 19
"""Index of MetaCentrum's queue name, after the node list."""
UNIX_SECONDS_MIN = 1_000_000_000
"""A first submit beyond this is a Unix time (September 2001), not an offset: no log spans 31 years."""
MODEL = "processor"
OUTCOMES = {"0": Outcome.FAILED, "5": Outcome.CANCELLED}
NO_RUN_TIME = "run time unknown (negative)"
NO_PROCESSORS = "no processors, neither requested nor allocated"
TOO_FEW_FIELDS = f"fewer than {FIELDS_MIN} fields"
NOT_NUMBERS = "a field that must be a number is not"
NEGATIVE_SUBMIT = "submit time unknown (negative)"

_HEADER = re.compile(r";\s*(\w+):\s*(-?\d+)\s*$")


def recognise_swf(head: tuple[str, ...]) -> bool:
    """Whether the first line that is no comment has 18 fields or more, the first eleven of them numbers."""
    for line in head:
        if not line.strip() or line.startswith(";"):
            continue
        fields = line.split(None, FIELDS_MIN)
        return len(fields) >= FIELDS_MIN and all(_is_number(text) for text in fields[:11])
    return any(_HEADER.match(line) for line in head)


def read_swf(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read a log. Ids are the job numbers of the log where these are positive and unique."""
    reader = _SwfReader()
    for number, line in iterate_lines(path, progress):
        reader.take(number, line)
    return assemble_workload(path, reader.drafts, reader.tally, reader.facts(), limit)


class _SwfReader:
    """Holds what lines share: one options value for each distinct (user, group, application, queue, limit)."""

    def __init__(self) -> None:
        self.drafts: list[JobDraft] = []
        self.tally = SkipTally()
        self._header: dict[str, int] = {}
        self._options: dict[tuple[str, str, str, str, int], JobOptions] = {}
        self._request = Request(devices=1)

    def take(self, number: int, line: str) -> None:
        """Read one line: a comment, a job, or something to count and leave out."""
        fields = line.split(None, FIELDS_MIN)
        if len(fields) < FIELDS_MIN:
            self._take_other(number, line)
            return
        if fields[0].startswith(";"):
            return
        try:
            submit_ms = _milliseconds(fields[1])
            run_ms = _milliseconds(fields[3])
            processors = int(fields[7])
            if processors <= 0:
                processors = int(fields[4])
            requested_ms = _milliseconds(fields[8])
            own_number = int(fields[0])
        except (ValueError, OverflowError):
            self.tally.add(NOT_NUMBERS, number)
            return
        reason = _left_out_because(submit_ms, run_ms, processors)
        if reason is not None:
            self.tally.add(reason, number)
            return
        options = self._shared_options(fields, requested_ms)
        outcome = OUTCOMES.get(fields[10], Outcome.COMPLETED)
        draft = JobDraft(number, own_number, submit_ms, run_ms, self._request, processors, options, "", outcome)
        self.drafts.append(draft)

    def _take_other(self, number: int, line: str) -> None:
        stripped = line.strip()
        if stripped.startswith(";"):
            found = _HEADER.match(stripped)
            if found is not None:
                self._header[found[1]] = int(found[2])
        elif stripped:
            self.tally.add(TOO_FEW_FIELDS, number)

    def _shared_options(self, fields: list[str], requested_ms: int) -> JobOptions:
        queue = fields[14]
        if len(fields) > FIELDS_MIN:
            queue = _metacentrum_queue(fields[FIELDS_MIN]) or queue
        key = (fields[11], fields[12], fields[13], queue, requested_ms)
        options = self._options.get(key)
        if options is None:
            options = self._options[key] = _make_options(*key)
        return options

    def facts(self) -> TraceFacts:
        """The cluster of the header, and the wall clock of time 0."""
        start_s = self._header.get("UnixStartTime")
        if start_s is None and self.drafts and self.drafts[0].submit_ms >= UNIX_SECONDS_MIN * SECOND_MS:
            start_s = 0
        return TraceFacts(
            cluster=_header_cluster(self._header),
            origin_unix_ms=None if start_s is None else start_s * SECOND_MS,
        )


def _left_out_because(submit_ms: int, run_ms: int, processors: int) -> str | None:
    if run_ms < 0:
        return NO_RUN_TIME
    if processors <= 0:
        return NO_PROCESSORS
    return NEGATIVE_SUBMIT if submit_ms < 0 else None


def _make_options(user: str, group: str, application: str, queue: str, requested_ms: int) -> JobOptions:
    options = JobOptions()
    if user != "-1":
        options["user"] = f"user{user}"
    if group != "-1":
        options["tenant"] = TenantName(f"group{group}")
    if application != "-1":
        options["name"] = f"application{application}"
    if queue != "-1":
        options["queue"] = QueueName(f"queue{queue}" if queue.isdigit() else queue)
    if requested_ms > 0:
        options["limit_ms"] = options["estimate_ms"] = requested_ms
    return options


def _metacentrum_queue(rest: str) -> str | None:
    parts = rest.split()
    position = QUEUE_NAME_FIELD - FIELDS_MIN
    return parts[position] if len(parts) > position and parts[0].startswith("{") else None


def _milliseconds(text: str) -> int:
    """Seconds as text to ms. Whole seconds are by far the most common, so they are tried first."""
    try:
        return int(text) * SECOND_MS
    except ValueError:
        return round(float(text) * SECOND_MS)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _header_cluster(header: dict[str, int]) -> ClusterSpec | None:
    """MaxNodes nodes of MaxProcs / MaxNodes processors, where that is whole and fits a node."""
    nodes = header.get("MaxNodes", 0)
    processors = header.get("MaxProcs", nodes)
    if nodes <= 0 or processors % nodes or not 1 <= processors // nodes <= DEVICES_PER_MODEL_MAX:
        return None
    group = DeviceGroup(model=MODEL, count=processors // nodes)
    return ClusterSpec(nodes=tuple(NodeSpec(name=NodeName(f"node{i:05d}"), groups=(group,)) for i in range(nodes)))
