"""A damaged file is refused by name of the record, job or byte, or what it tells is right: never something else."""

import contextlib
import random
import re
from pathlib import Path

import pytest

from clearway.adapters.storage import open_store
from clearway.ports.storage import Changes, JobQuery, JournalError
from clearway.ports.views import JobState
from support.crash import SUFFIXES, Files, lay, quick_folder
from support.stored import make_submission, make_view

NAMES_THE_PLACE = re.compile(r"record \d+|job \d+|byte \d+|row \d+ missing|table head|journal's header|defaults")
DAMAGES_PER_SEED = 8


@pytest.fixture(scope="module")
def sequence() -> list[Changes]:
    again = Changes(jobs=tuple(make_view(job, state=JobState.RUNNING, message="again") for job in range(1, 30)))
    return [make_submission(1, 40), again, make_submission(41, 3), make_submission(44), make_submission(45, 9)]


@pytest.fixture(scope="module")
def intact(sequence) -> dict[str, Files]:
    """The files after closing, when the database holds all; and before, when the last appends are in the WAL alone."""
    with quick_folder() as folder:
        path = folder / "store.db"
        store = open_store(f"sqlite:///{path}")
        for changes in sequence[:2]:
            store.append(changes)
        store.close()
        store = open_store(f"sqlite:///{path}")
        for changes in sequence[2:]:
            store.append(changes)
        running = read_files(path)
        store.close()
        return {"closed": read_files(path), "running": running}


def read_files(path: Path) -> Files:
    paths = {suffix: Path(f"{path}{suffix}") for suffix in SUFFIXES}
    return {suffix: path.read_bytes() for suffix, path in paths.items() if path.exists()}


def damage(data: bytes, draw: random.Random) -> bytes:
    """Flip one bit, cut the end off, or overwrite a sector."""
    altered = bytearray(data)
    place = draw.randrange(len(data))
    way = draw.choice(("flip", "flip", "flip", "cut", "sector"))
    if way == "flip":
        altered[place] ^= 1 << draw.randrange(8)
    elif way == "cut":
        del altered[place:]
    else:
        altered[place : place + 512] = draw.randbytes(min(512, len(data) - place))
    return bytes(altered)


def count_appends(path: Path, sequence: list[Changes]) -> int | None:
    """How many appends the store tells of, all tables agreeing; None = refused, with the place named."""
    try:
        with contextlib.closing(open_store(f"sqlite:///{path}")) as store:
            return read_all(store, sequence)
    except JournalError as refusal:
        story = str(refusal)
    assert NAMES_THE_PLACE.search(story), story
    return None


def read_all(store, sequence: list[Changes]) -> int:
    records = [event for _, event in store.read_journal()]
    views = store.reader.find_jobs(JobQuery())
    for count in range(len(sequence) + 1):
        there = sequence[:count]
        rows = {view.id: view for changes in there for view in changes.jobs}
        if records == [event for changes in there for event in changes.events] and views == tuple(rows.values()):
            audit = [line for _, line in store.reader.read_audit()]
            assert audit == [line for changes in there for line in changes.audit]
            assert store.read_runs(list(rows)) == {job: spec for changes in there for job, spec in changes.runs}
            by_user = store.reader.find_jobs(JobQuery(users=("ann",), states=tuple(JobState)))
            assert by_user == views
            return count
    raise AssertionError("the store tells something that was never written")


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_database_is_refused_or_whole(seed, intact, sequence):
    draw = random.Random(seed)
    with quick_folder() as folder:
        for _ in range(DAMAGES_PER_SEED):
            lay({"": damage(intact["closed"][""], draw)}, folder / "store.db")
            assert count_appends(folder / "store.db", sequence) in (None, len(sequence))


def test_an_altered_list_of_tables_is_refused(intact, sequence):
    data = intact["closed"][""].replace(b"spec TEXT NOT NULL", b"spek TEXT NOT NULL")
    assert data != intact["closed"][""]
    with quick_folder() as folder:
        lay({"": data}, folder / "store.db")
        assert count_appends(folder / "store.db", sequence) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_wal_loses_whole_appends_from_its_end(seed, intact, sequence):
    draw = random.Random(seed)
    files = intact["running"]
    with quick_folder() as folder:
        for _ in range(DAMAGES_PER_SEED):
            lay(files | {"-wal": damage(files["-wal"], draw)}, folder / "store.db")
            count = count_appends(folder / "store.db", sequence)
            assert count is not None
            assert 2 <= count <= len(sequence)


@pytest.mark.parametrize("seed", range(6))
def test_a_database_damaged_under_its_wal_is_refused_or_whole(seed, intact, sequence):
    draw = random.Random(seed)
    files = intact["running"]
    with quick_folder() as folder:
        for _ in range(DAMAGES_PER_SEED):
            lay(files | {"": damage(files[""], draw)}, folder / "store.db")
            assert count_appends(folder / "store.db", sequence) in (None, len(sequence))
