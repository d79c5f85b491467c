"""Records and rows that were altered behind the store's back are found and named, in every database."""

import pytest
import sqlalchemy as sa

from clearway.adapters.storage import open_reader, open_store
from clearway.adapters.storage import reader as reader_module
from clearway.adapters.storage.databases import find_database
from clearway.ports.storage import JobQuery, JournalError
from support.stored import make_submission

COUNT = 30


@pytest.fixture
def written(url):
    """The URL of a store with jobs 1 to COUNT, that nobody has open."""
    store = open_store(url)
    store.append(make_submission(1, COUNT))
    store.close()
    return url


def alter(url: str, *statements: str) -> None:
    database = find_database(url, create=False)
    engine = database.writer  # type: ignore[attr-defined]
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement.replace(":", r"\:")))
    database.close()


def read_everything(url: str) -> None:
    store = open_store(url)
    try:
        for _ in store.read_journal():
            pass
        store.reader.read_audit()
        store.reader.find_jobs(JobQuery())
        store.read_runs([job for job, _ in make_submission(1, COUNT).runs])
    finally:
        store.close()


def test_an_unaltered_store_is_read(written):
    read_everything(written)


ALTERATIONS = {
    "a payload": (
        ["UPDATE journal SET payload = REPLACE(payload, 'job-7', 'job-8') WHERE seq = 7"],
        "journal record 7",
    ),
    "a checksum": (["UPDATE journal SET checksum = REPLACE(checksum, '1', '2') WHERE seq = 7"], "journal record 7"),
    "the last checksum": (["UPDATE journal SET checksum = 'x' WHERE seq = 30"], "journal record 30"),
    "a time": (["UPDATE journal SET at_ms = at_ms + 1 WHERE seq = 9"], "journal record 9"),
    "a kind": (["UPDATE journal SET kind = 'JobHeld' WHERE seq = 9"], "journal record 9"),
    "a missing record": (["DELETE FROM journal WHERE seq = 12"], "journal record 12"),
    "a missing first record": (["DELETE FROM journal WHERE seq = 1"], "journal record 1"),
    "a missing tail": (["DELETE FROM journal WHERE seq > 25"], "journal record 30"),
    "a missing journal": (["DELETE FROM journal"], "journal record 30"),
    "records moved down": (
        ["DELETE FROM journal WHERE seq = 30", "UPDATE head SET seq = 29"],
        "journal record 29",
    ),
    "an additional record": (
        ["INSERT INTO journal SELECT 31, at_ms, kind, payload, checksum FROM journal WHERE seq = 30"],
        "journal record 30",
    ),
    "a head that is gone": (["DELETE FROM head"], "journal record 0"),
    "an audit line": (["UPDATE audit SET payload = REPLACE(payload, 'ann', 'bob') WHERE seq = 4"], "audit record 4"),
    "a missing audit line": (["DELETE FROM audit WHERE seq = 4"], "audit record 4"),
    "a missing audit tail": (["DELETE FROM audit WHERE seq > 4"], "audit record 30"),
    "a job": (["UPDATE jobs SET view = REPLACE(view, 'ann', 'bob') WHERE id = 5"], "job 5"),
    "a script": (["UPDATE runs SET spec = REPLACE(spec, 'python', 'pythom') WHERE first_job = 5"], "job 5"),
    "the range of a script": (["UPDATE runs SET last_job = 7 WHERE first_job = 5"], "job 5"),
    "a missing script": (["DELETE FROM runs WHERE first_job = 5"], "job 5"),
    "the header": (["UPDATE meta SET value = '{}' WHERE name = 'journal'"], "the journal's header"),
    "a missing header": (["DELETE FROM meta"], "the journal's header"),
}


ON_SERVERS = ("a payload", "a missing record", "a missing tail", "a job")
"""The code that checks is the same everywhere; these show that each database gives back what it has."""


@pytest.mark.parametrize(
    ("url", "what"),
    [("sqlite", what) for what in ALTERATIONS]
    + [(kind, what) for kind in ("postgresql", "mariadb") for what in ON_SERVERS],
    indirect=["url"],
)
def test_what_was_altered_is_named(written, what):
    statements, named = ALTERATIONS[what]
    alter(written, *statements)
    with pytest.raises(JournalError, match=named):
        read_everything(written)


@pytest.mark.parametrize(("url", "per_page"), [("sqlite", 7), ("sqlite", COUNT), ("sqlite", 99)], indirect=["url"])
def test_a_reader_of_its_own_sees_another_end_than_the_head_s(written, monkeypatch, per_page):
    monkeypatch.setattr(reader_module, "RECORDS_PER_PAGE", per_page)
    alter(written, "UPDATE head SET checksum = 'x'")
    reader = open_reader(written)
    with pytest.raises(JournalError, match=f"journal record {COUNT}: expected the last one"):
        list(reader.read_journal())
    reader.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_reader_of_its_own_takes_a_store_without_its_head_for_damaged_and_not_for_empty(written):
    alter(written, "DELETE FROM head")
    reader = open_reader(written)
    with pytest.raises(JournalError, match="journal record 1: expected one row in the table head"):
        list(reader.read_journal())
    with pytest.raises(JournalError, match="audit record 1: expected one row in the table head"):
        reader.read_audit()
    reader.close()


def test_a_newer_release_s_tables_are_refused(written):
    alter(written, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(JournalError, match="found version 9999: a newer release made them"):
        open_store(written)


def test_a_journal_with_other_defaults_is_refused(written):
    alter(written, "UPDATE meta SET value = REPLACE(value, '\"Request.devices\":1', '\"Request.devices\":2')")
    with pytest.raises(JournalError, match=r"expected Request.devices = 1, found 'Request.devices = 2'"):
        open_store(written)


def test_rows_with_other_defaults_are_refused(written):
    alter(written, "UPDATE meta SET value = REPLACE(value, '\"JobView.restarts\":0', '\"JobView.restarts\":1')")
    with pytest.raises(JournalError, match=r"expected JobView.restarts = 0, found 1"):
        open_store(written)
