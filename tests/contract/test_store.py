"""What every store promises, over every database."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa

from clearway.adapters.storage import SqlStore, open_reader, open_store
from clearway.adapters.storage import reader as reader_module
from clearway.adapters.storage.databases import find_database
from clearway.adapters.storage.tables import METADATA
from clearway.model.events import Batch, JobHeld
from clearway.model.ids import JobId, TenantName
from clearway.model.runs import RunSpec
from clearway.ports.storage import AuditLine, Changes, JobQuery, JournalError, StorageError
from clearway.ports.views import JobState
from support.stored import make_life, make_run, make_submission, make_submitted, make_view


@pytest.fixture
def store(url):
    store = open_store(url)
    yield store
    store.close()


def reopen(store: SqlStore, url: str) -> SqlStore:
    store.close()
    return open_store(url)


def ids(views) -> list[int]:
    return [view.id for view in views]


def test_a_new_store_is_empty(store):
    assert list(store.read_journal()) == []
    assert store.last_job_id() == 0
    assert store.reader.find_jobs(JobQuery()) == ()
    assert store.reader.count_jobs(JobQuery()) == {}
    assert store.reader.read_run(JobId(1)) is None
    assert store.reader.read_audit() == ()


def test_records_are_numbered_without_gaps_and_read_back_as_written(store):
    events = make_life(1) + make_life(2)
    assert store.append(Changes(events=events[:2])) == 2
    assert store.append(Changes(events=events[2:])) == 6
    assert list(store.read_journal()) == list(enumerate(events, 1))
    assert list(store.read_journal(after=4)) == list(enumerate(events, 1))[4:]


def test_everything_is_there_after_opening_again(store, url):
    changes = make_submission(1, 20)
    store.append(changes)
    again = reopen(store, url)
    assert [event for _, event in again.read_journal()] == list(changes.events)
    assert again.reader.find_jobs(JobQuery()) == changes.jobs
    assert again.read_runs([job for job, _ in changes.runs]) == dict(changes.runs)
    assert [line for _, line in again.reader.read_audit()] == list(changes.audit)
    assert again.last_job_id() == 20
    assert again.append(make_submission(21)) == 21
    again.close()


def test_an_append_of_nothing_writes_nothing(store):
    store.append(make_submission(1))
    assert store.append(Changes()) == 1


def test_a_job_row_is_replaced_by_its_last_view(store):
    store.append(Changes(jobs=(make_view(7), make_view(7, state=JobState.RUNNING, nodes=("n1", "n2")))))
    done = make_view(7, state=JobState.FAILED, exit_code=3, devices=(("n1", (0, 3)),), progress=0.5, message="it broke")
    store.append(Changes(jobs=(done,)))
    assert store.reader.find_jobs(JobQuery()) == (done,)


def test_the_last_job_number_survives_even_without_a_row(store, url):
    store.append(Changes(events=(Batch(0, (JobHeld(0, JobId(3)), make_submitted(40))),)))
    again = reopen(store, url)
    assert again.last_job_id() == 40
    again.close()


def test_members_of_an_array_share_one_run(store):
    spec = make_run(0)
    runs = tuple((JobId(number), spec) for number in range(10, 1_010))
    store.append(Changes(runs=(*runs, (JobId(1_010), make_run(1)))))
    assert store.read_runs([JobId(10), JobId(500), JobId(1_010)]) == {10: spec, 500: spec, 1_010: make_run(1)}
    assert store.reader.read_run(JobId(1_009)) == spec
    assert store.reader.read_run(JobId(9)) is None
    assert store.reader.read_run(JobId(1_011)) is None


def test_a_missing_run_is_named(store):
    store.append(Changes(runs=((JobId(1), make_run(1)),)))
    with pytest.raises(JournalError, match="how job 2 is run: missing"):
        store.read_runs([JobId(1), JobId(2)])


HARD_TEXTS = [
    "",
    "a",
    "A",
    "a ",
    "ä",
    "日本語 🙂",
    "x" * 300,
    "x" * 301,
    "nul\0inside",
    "lone \ud800",
    "%_'\"\\;--",
    "\n\t",
]


def test_texts_of_users_come_back_unchanged_and_are_never_mistaken_for_one_another(store):
    views = tuple(make_view(number, user=text, name=text) for number, text in enumerate(HARD_TEXTS, 1))
    runs = tuple((JobId(number), RunSpec(script=text)) for number, text in enumerate(HARD_TEXTS, 1))
    audit = tuple(AuditLine(at_ms=0, actor=text, action=text, target=text, detail=text) for text in HARD_TEXTS)
    store.append(Changes(jobs=views, runs=runs, audit=audit))
    for number, text in enumerate(HARD_TEXTS, 1):
        assert ids(store.reader.find_jobs(JobQuery(users=(text,)))) == [number]
        assert ids(store.reader.find_jobs(JobQuery(names=(text,)))) == [number]
    assert store.reader.find_jobs(JobQuery()) == views
    assert store.read_runs([job for job, _ in runs]) == dict(runs)
    assert [line for _, line in store.reader.read_audit()] == list(audit)


def test_queries_agree_with_the_same_filter_in_python(store):
    states, users, tenants, queues = list(JobState)[:5], ["ann", "bob", "cy"], ["root", "root/a"], ["fast", "slow"]
    views = tuple(
        make_view(
            number,
            state=states[number % 5],
            user=users[number * 7 % 3],
            tenant=TenantName(tenants[number * 5 % 2]),
            queue=queues[number // 3 % 2],
            name=f"job-{number % 4}",
            array=JobId(50) if 50 <= number < 60 else None,
        )
        for number in range(1, 120)
    )
    store.append(Changes(jobs=views))
    two = tuple(states[:2])
    conditions = [
        (JobQuery(), lambda view: True),
        (JobQuery(states=two), lambda view: view.state in two),
        (JobQuery(users=("ann",)), lambda view: view.user == "ann"),
        (JobQuery(users=("ann", "cy"), states=two), lambda view: view.user in ("ann", "cy") and view.state in two),
        (JobQuery(tenants=("root/a", "none")), lambda view: view.tenant == "root/a"),
        (
            JobQuery(tenants=("root", "root/a"), queues=("fast",), states=two),
            lambda view: view.queue == "fast" and view.state in two,
        ),
        (JobQuery(users=("bob",), tenants=("root",)), lambda view: view.user == "bob" and view.tenant == "root"),
        (JobQuery(names=("job-2", "job-3")), lambda view: view.name in ("job-2", "job-3")),
        (JobQuery(array=JobId(50)), lambda view: view.array == 50),
        (JobQuery(ids=(JobId(9), JobId(3), JobId(900))), lambda view: view.id in (9, 3)),
        (JobQuery(ids=(JobId(9), JobId(1 << 70), JobId(-1))), lambda view: view.id == 9),
        (
            JobQuery(submitted_from_ms=1_010, submitted_to_ms=1_020, queues=("slow",)),
            lambda view: 1_010 <= view.submit_ms <= 1_020 and view.queue == "slow",
        ),
    ]
    for query, condition in conditions:
        expected = [view for view in views if condition(view)]
        check_pages(store.reader, query, expected)
        check_counts(store.reader, query, expected)


def check_pages(reader, query: JobQuery, expected) -> None:
    for newest_first in (False, True):
        wanted = ids(reversed(expected)) if newest_first else ids(expected)
        got, after = [], None
        while True:
            page = reader.find_jobs(replace(query, newest_first=newest_first, after=after, limit=7))
            assert len(page) <= 7
            got.extend(ids(page))
            if len(page) < 7:
                break
            after = page[-1].id
        assert got == wanted, query


def check_counts(reader, query: JobQuery, expected) -> None:
    counts: dict[JobState, int] = {}
    for view in expected:
        counts[view.state] = counts.get(view.state, 0) + 1
    assert reader.count_jobs(query) == counts, query


def test_a_limit_of_none_gives_none(store):
    store.append(make_submission(1, 3))
    assert store.reader.find_jobs(JobQuery(limit=0)) == ()


def test_audit_is_read_in_pages(store):
    store.append(make_submission(1, 25))
    first = store.reader.read_audit(limit=10)
    assert [seq for seq, _ in first] == list(range(1, 11))
    assert [seq for seq, _ in store.reader.read_audit(after=20)] == list(range(21, 26))


@pytest.mark.parametrize("count", [10, 21])
def test_a_journal_and_an_audit_log_of_several_pages_are_read_whole(store, monkeypatch, count):
    monkeypatch.setattr(reader_module, "RECORDS_PER_PAGE", 10)
    changes = make_submission(1, count)
    store.append(changes)
    assert list(store.read_journal()) == list(enumerate(changes.events, 1))
    assert list(store.read_journal(after=10)) == list(enumerate(changes.events, 1))[10:]
    assert store.reader.read_audit() == tuple(enumerate(changes.audit, 1))
    assert store.reader.read_audit(after=3, limit=12) == tuple(enumerate(changes.audit, 1))[3:15]


def test_a_writer_may_move_to_another_thread_and_readers_come_from_many(store):
    with ThreadPoolExecutor(8) as threads:
        assert threads.submit(store.append, make_submission(1, 50)).result() == 50
        pages = [threads.submit(store.reader.find_jobs, JobQuery(users=("ann",))) for _ in range(40)]
        assert all(len(page.result()) == 50 for page in pages)


def test_a_second_writer_is_refused_and_the_first_goes_on(store, url):
    with pytest.raises(StorageError, match="writing to it: stop it first"):
        open_store(url)
    assert store.append(make_submission(1)) == 1


def test_rows_copied_to_another_database_are_whole_there(url, tmp_path):
    first = open_store(f"sqlite:///{tmp_path}/first.db")
    first.append(make_submission(1, 30))
    first.close()
    open_store(url).close()
    origin, copy = find_database(f"sqlite:///{tmp_path}/first.db", create=False), find_database(url, create=False)
    with origin.engine.begin() as source, copy.writer.begin() as target:  # type: ignore[attr-defined]
        for table in METADATA.sorted_tables:
            target.execute(sa.delete(table))
            target.execute(sa.insert(table), [dict(row) for row in source.execute(sa.select(table)).mappings()])
    origin.close()
    copy.close()
    store = open_store(url)
    assert list(store.read_journal()) == list(enumerate(make_submission(1, 30).events, 1))
    assert store.reader.find_jobs(JobQuery()) == make_submission(1, 30).jobs
    assert store.append(make_submission(31)) == 31
    store.close()


def test_a_reader_sees_what_is_appended_after_it_was_opened(store, url):
    reader = open_reader(url)
    store.append(make_submission(1, 2))
    assert ids(reader.find_jobs(JobQuery(newest_first=True))) == [2, 1]
    assert [seq for seq, _ in reader.read_journal()] == [1, 2]
    reader.close()
