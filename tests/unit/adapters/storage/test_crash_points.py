"""A process or machine that dies at any moment of an append leaves a store that opens by itself.

What is in it then: every append that returned, whole; the one in flight, whole or not at all; rows of jobs, runs and
audit exactly as the journal's records left them.
"""

import random

from clearway.adapters.storage import SqlStore, open_store
from clearway.adapters.storage import databases as databases_module
from clearway.ports.storage import Changes, JobQuery
from clearway.ports.views import JobState
from support.crash import Recorder, draw_wreck, lay, quick_folder
from support.stored import make_submission, make_view

APPENDS = 8
"""Appends of one sequence: enough that the WAL is copied and begun anew several times."""


def draw_changes(draw: random.Random) -> list[Changes]:
    """A sequence of appends: submissions of one to many jobs, and rows of jobs that change again and again."""
    sequence, last = [], 0
    for turn in range(APPENDS):
        count = draw.choice((1, 1, 2, 5, 40))
        changes = make_submission(last + 1, count)
        last += count
        again = draw.sample(range(1, last + 1), min(last, draw.randrange(4)))
        rows = [make_view(job, state=JobState.RUNNING, generation=turn, message="x" * turn * 40) for job in again]
        sequence.append(
            Changes(events=changes.events, runs=changes.runs, audit=changes.audit, jobs=(*changes.jobs, *rows))
        )
    return sequence


def record(draw: random.Random, folder, sequence: list[Changes]) -> Recorder:
    """Run the sequence on a real file and keep its moments."""
    recorder = Recorder(folder / "live.db")
    with recorder.watching():
        store = open_store(f"sqlite:///{recorder.path}")
        recorder.look()
        for changes in sequence:
            store.append(changes)
            recorder.acknowledge()
            if draw.random() < 0.1:
                store.close()
                recorder.look()
                store = open_store(f"sqlite:///{recorder.path}")
                recorder.look()
        store.close()
        recorder.look()
    return recorder


def check_wreck(store: SqlStore, sequence: list[Changes], least: int, most: int) -> int:
    """The number of appends that are there, of which every table must tell the same."""
    records = list(store.read_journal())
    assert [seq for seq, _ in records] == list(range(1, len(records) + 1))
    count, events = 0, []
    while len(events) < len(records):
        events.extend(sequence[count].events)
        count += 1
    assert [event for _, event in records] == events
    assert least <= count <= most
    there = sequence[:count]
    views = {view.id: view for changes in there for view in changes.jobs}
    assert store.reader.find_jobs(JobQuery()) == tuple(views[job] for job in sorted(views))
    assert store.read_runs(sorted(views)) == {job: spec for changes in there for job, spec in changes.runs}
    assert [line for _, line in store.reader.read_audit(limit=10_000)] == [
        line for changes in there for line in changes.audit
    ]
    assert store.last_job_id() == max(views, default=0)
    return count


def test_death_at_any_moment_leaves_every_acknowledged_append_whole(crash_points, monkeypatch):
    draw = random.Random(crash_points.start)
    monkeypatch.setattr(databases_module, "CHECKPOINT_PAGES", draw.choice((4, 30, 200)))
    monkeypatch.setattr(databases_module, "CACHE_KB", draw.choice((16, 65_536)))
    sequence = draw_changes(draw)
    with quick_folder() as folder:
        moments = record(draw, folder, sequence).moments
        for point in crash_points:
            draw = random.Random(point)
            place = draw.randrange(len(moments) - 1)
            before, after = moments[place], moments[place + 1]
            lay(draw_wreck(before, after, draw), folder / "wreck.db")
            store = open_store(f"sqlite:///{folder}/wreck.db")
            try:
                in_flight = min(before.acknowledged + 1, APPENDS)
                count = check_wreck(store, sequence, before.acknowledged, in_flight)
                if point % 4 == 0:
                    for changes in sequence[count : count + 2]:
                        store.append(changes)
                        count += 1
                    check_wreck(store, sequence, count, count)
            finally:
                store.close()
