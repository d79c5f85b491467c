"""Durable submits, lists and reading of journals, on a real disk; beside them plain `sqlite3` with the same rows."""

import contextlib
import gc
import resource
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from bench.figures import REPEATS, Figure, Stopwatch, compare
from clearway.adapters.storage import open_store
from clearway.adapters.storage.rows import CHAIN_START, chain_records, draft_events, job_rows, run_rows
from clearway.model.events import JobStarted, JobSubmitted
from clearway.model.ids import JobId, QueueName, TenantName
from clearway.model.jobs import JobKind, JobSpec, Request
from clearway.model.runs import RunSpec
from clearway.ports.storage import Changes, JobQuery
from clearway.ports.views import FINAL_STATES, JobState, JobView

OUT: Final = Path(__file__).parents[1] / "out"
"""On the disk of the repository: memory would make every sync free."""

BATCH: Final = 1_000
BATCHES: Final = 10
SINGLES: Final = 300
ROWS: Final = 100_000
PAGE: Final = 100
LISTS: Final = 400
RECORDS: Final = 1_000_000
SCRIPT: Final = "#!/bin/sh\npython train.py --seed {}\n" + "# as long as a short script is\n" * 6


def make_view(number: int, state: JobState = JobState.PENDING) -> JobView:
    """The row of a job; tens of users, eight tenants, three queues."""
    return JobView(
        id=JobId(number),
        name=f"job-{number % 1_000}",
        user=f"user-{number * number % 53}",
        tenant=TenantName(f"team-{number * number % 53 % 8}"),
        queue=QueueName(("production", "research", "batch")[number % 3]),
        kind=JobKind.TRAIN,
        state=state,
        priority=0,
        replicas=1,
        device_milli=2_000,
        cpu_milli=4_000,
        memory_bytes=1 << 33,
        submit_ms=number,
        reason="Priority",
        workdir="/home/user",
        output=f"/home/user/slurm-{number}.out",
    )


def make_submission(first: int, count: int) -> Changes:
    """What a driver writes when it accepts jobs."""
    numbers = range(first, first + count)
    request = Request(devices=2, cpu_milli=4_000, memory_bytes=1 << 33)
    specs = [JobSpec(id=JobId(number), request=request, name=f"job-{number}", limit_ms=3_600_000) for number in numbers]
    return Changes(
        events=tuple(JobSubmitted(spec.id, spec) for spec in specs),
        runs=tuple((spec.id, RunSpec(script=SCRIPT.format(spec.id), workdir="/home/user")) for spec in specs),
        jobs=tuple(make_view(number) for number in numbers),
    )


@contextlib.contextmanager
def disk_folder() -> Iterator[Path]:
    """A folder on the disk, removed afterwards."""
    OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="storage-", dir=OUT))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _time_appends(changes: list[Changes]) -> float:
    with disk_folder() as folder, contextlib.closing(open_store(f"sqlite:///{folder}/store.db")) as store:
        with Stopwatch() as watch:
            for one in changes:
                store.append(one)
        return watch.seconds


def _time_plain(changes: list[Changes]) -> float:
    """The rows ready made, in the same tables with the same settings, through the standard library alone."""
    batches, seq, checksum = [], 0, CHAIN_START
    for one in changes:
        journal = chain_records(draft_events(one.events), seq, checksum)
        seq, checksum = journal[-1]["seq"], journal[-1]["checksum"]
        batches.append({"journal": journal, "runs": run_rows(one.runs), "jobs": job_rows(one.jobs)})
    with disk_folder() as folder:
        open_store(f"sqlite:///{folder}/store.db").close()
        with contextlib.closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with Stopwatch() as watch:
                for batch in batches:
                    connection.execute("BEGIN IMMEDIATE")
                    for table, rows in batch.items():
                        marks = ", ".join(f":{column}" for column in rows[0])
                        columns = ", ".join(f'"{column}"' for column in rows[0])
                        connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
                    connection.execute("COMMIT")
            return watch.seconds


def measure_submits() -> Iterator[Figure]:
    """Submits that are on disk when the call returns: a thousand at a time, and one at a time."""
    many = [make_submission(1 + BATCH * index, BATCH) for index in range(BATCHES)]
    few = [make_submission(1 + index, 1) for index in range(SINGLES)]
    for what, changes, count, bar in (
        ("1,000 at a time", many, BATCH * BATCHES, 5_000),
        ("one by one", few, SINGLES, 150),
    ):
        plain = min(_time_plain(changes) for _ in range(REPEATS))
        ours = min(_time_appends(changes) for _ in range(REPEATS))
        baseline = Figure(name=f"plain sqlite3, the same rows, {what}", value=count / plain, unit="jobs/s")
        yield baseline
        yield compare(
            Figure(name=f"storage: durable submits, {what}", value=count / ours, unit="jobs/s", bar=bar), baseline
        )


QUERIES: Final = {
    "all": JobQuery(),
    "by state": JobQuery(states=(JobState.RUNNING,)),
    "not ended": JobQuery(states=tuple(state for state in JobState if state not in FINAL_STATES)),
    "by user": JobQuery(users=("user-4",)),
    "by user, not ended": JobQuery(users=("user-4",), states=(JobState.PENDING, JobState.RUNNING)),
    "by tenants": JobQuery(tenants=(TenantName("team-1"), TenantName("team-4"))),
    "by queue": JobQuery(queues=(QueueName("batch"),)),
}


def measure_lists() -> Iterator[Figure]:
    """First pages of 100,000 jobs, newest first, while a writer submits and changes jobs without a pause."""
    with disk_folder() as folder, contextlib.closing(open_store(f"sqlite:///{folder}/store.db")) as store:
        states = [JobState.COMPLETED] * 95 + [
            JobState.RUNNING,
            JobState.PENDING,
            JobState.FAILED,
            JobState.CANCELLED,
        ] * 1
        for first in range(1, ROWS, 2_000):
            rows = (make_view(number, states[number * 31 % len(states)]) for number in range(first, first + 2_000))
            store.append(Changes(jobs=tuple(rows)))
        ending = threading.Event()

        def write() -> None:
            number = ROWS
            while not ending.is_set():
                store.append(make_submission(number + 1, 10))
                store.append(
                    Changes(jobs=tuple(make_view(job, JobState.RUNNING) for job in range(number, number + 10)))
                )
                number += 10

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield from _time_lists(store.reader.find_jobs)
        finally:
            ending.set()
            writer.join()


def _time_lists(find) -> Iterator[Figure]:
    taken_ms: dict[str, list[float]] = {name: [] for name in QUERIES}
    for _ in range(LISTS):
        for name, query in QUERIES.items():
            begun = time.perf_counter()
            find(JobQuery(**{**asdict(query), "newest_first": True, "limit": PAGE}))
            taken_ms[name].append((time.perf_counter() - begun) * 1_000)
    every = [value for values in taken_ms.values() for value in values]
    yield Figure(
        name="storage: list 100 of 100,000 jobs while writing, median",
        value=float(np.median(every)),
        unit="ms",
        is_rate=False,
    )
    yield Figure(
        name="storage: list 100 of 100,000 jobs while writing, p99",
        value=float(np.percentile(every, 99)),
        unit="ms",
        bar=20.0,
        is_rate=False,
    )
    slowest = max(taken_ms, key=lambda name: float(np.percentile(taken_ms[name], 99)))
    yield Figure(
        name=f"storage: the slowest kind of list, {slowest}, p99",
        value=float(np.percentile(taken_ms[slowest], 99)),
        unit="ms",
        is_rate=False,
    )


def measure_journal() -> Iterator[Figure]:
    """A journal of a million records: opened, which looks at every page, and read, which checks every record."""
    with disk_folder() as folder:
        url = f"sqlite:///{folder}/store.db"
        with contextlib.closing(open_store(url)) as store:
            for first in range(1, RECORDS, 20_000):
                store.append(Changes(events=tuple(JobStarted(at, JobId(at), 1) for at in range(first, first + 20_000))))
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Stopwatch() as watch, contextlib.closing(open_store(url)) as store:
            pass
        yield Figure(name="storage: open a journal of 1,000,000 records", value=watch.seconds, unit="s", is_rate=False)
        with contextlib.closing(open_store(url)) as store:
            with Stopwatch() as watch:
                count = sum(1 for _ in store.read_journal())
            assert count == RECORDS
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_024
        yield Figure(
            name="storage: read a journal of 1,000,000 records", value=RECORDS / watch.seconds, unit="records/s"
        )
        yield Figure(
            name="storage: memory that reading it needs more", value=grown, unit="MB", bar=200.0, is_rate=False
        )
