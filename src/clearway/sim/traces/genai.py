"""Requests for images, as Alibaba published them (cluster-trace-v2026-GenAI, `lora_request_trace.csv`).

A row is one request: it becomes a `task` of one device that is submitted at `gmt_create`, which its publisher shifted
and which is read as UTC, and runs for `exec_time_seconds`, loading of models included. What failed ran as long.
"""

from pathlib import Path
from typing import Final

from clearway.model.jobs import Outcome
from clearway.sim.text_files import ProgressCallback
from clearway.sim.traces.assemble import JobDraft, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import iterate_csv, parse_seconds_ms, parse_wall_clock_ms, split_record
from clearway.sim.traces.requests import ONE_DEVICE, TASK_OPTIONS
from clearway.sim.workload import Workload

COLUMNS: Final = ("gmt_create", "predict_type", "predict_status", "exec_time_seconds")
OUTCOMES: Final = {"SUCCEED": Outcome.COMPLETED, "FAILED": Outcome.FAILED}
NOT_ENDED: Final = "a request that has not ended"
NO_RUN_TIME: Final = "a request without a time above 0"


def recognise_genai(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header of the requests."""
    return bool(head) and tuple(split_record(head[0])[: len(COLUMNS)]) == COLUMNS


def read_genai(path: Path, limit: int | None = None, progress: ProgressCallback | None = None) -> Workload:
    """Read the requests; those that wait or run yet are counted and left out."""
    tally = SkipTally()
    drafts: list[JobDraft] = []
    for row in iterate_csv(path, COLUMNS, tally, progress):
        created, _, status, seconds = row.values
        try:
            drafts.append(_draft(row.line, created, OUTCOMES.get(status), seconds))
        except ValueError as error:
            tally.add(str(error), row.line)
    return assemble_workload(path, drafts, tally, TraceFacts(origin_unix_ms=0), limit)


def _draft(line: int, created: str, outcome: Outcome | None, seconds: str) -> JobDraft:
    if outcome is None:
        raise ValueError(NOT_ENDED)
    run_ms = parse_seconds_ms(seconds) if seconds else 0
    if run_ms <= 0:
        raise ValueError(NO_RUN_TIME)
    submit_ms = parse_wall_clock_ms(created)
    return JobDraft(line, None, submit_ms, run_ms, ONE_DEVICE, 1, TASK_OPTIONS, outcome=outcome)
