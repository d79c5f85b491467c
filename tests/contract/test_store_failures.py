"""What every store does when the world fails under it: nothing half written, and at work again by itself."""

import contextlib
import threading
from dataclasses import replace

import pytest

from clearway.adapters.storage import open_reader, open_store
from clearway.model.events import NodeDown
from clearway.model.ids import JobId
from clearway.model.runs import RunSpec
from clearway.ports.storage import Changes, JobQuery, JournalError, StorageError, TooLongError
from clearway.ports.views import JobState
from support.proxy import Cut, CuttingProxy
from support.servers import poll
from support.stored import make_submission, make_submitted, make_view


@pytest.fixture
def proxied(server):
    """(proxy, URL through it, URL past it) of an empty database."""
    database = server.make_database()
    proxy = CuttingProxy(server.port)
    yield proxy, server.url(database, proxy.port), server.url(database)
    proxy.close()


def check_holds(store, count: int) -> None:
    """Exactly the jobs 1 to `count`, in every table."""
    expected = make_submission(1, count)
    assert list(store.read_journal()) == list(enumerate(expected.events, 1))
    assert store.reader.find_jobs(JobQuery()) == expected.jobs
    assert store.reader.read_audit() == tuple(enumerate(expected.audit, 1))
    assert store.read_runs([job for job, _ in expected.runs]) == dict(expected.runs)
    assert store.last_job_id() == count


@pytest.mark.parametrize("cut", Cut)
def test_an_append_whose_commit_was_lost_is_written_once_by_the_next(proxied, cut):
    proxy, url, _ = proxied
    store = open_store(url)
    store.append(make_submission(1))
    proxy.cut = cut
    with pytest.raises(StorageError):
        store.append(make_submission(2, 3))
    assert proxy.cuts == 1
    append_until_taken(store, make_submission(2, 3))
    assert store.append(make_submission(5)) == 5
    check_holds(store, 5)
    store.close()


@pytest.mark.parametrize("cut", Cut)
def test_an_append_whose_commit_was_lost_may_come_back_with_more(proxied, cut):
    proxy, url, _ = proxied
    store = open_store(url)
    for first, count in ((1, 2), (1, 3), (1, 5)):
        proxy.cut = cut
        with pytest.raises(StorageError):
            append_until_cut(store, make_submission(first, count), proxy)
    append_until_taken(store, make_submission(1, 6))
    check_holds(store, 6)
    store.close()


def append_until_cut(store, changes: Changes, proxy: CuttingProxy) -> None:
    """Try until the cut came: a server may hold the lock of a connection that it does not yet know to be lost."""
    while proxy.cut is not None:
        try:
            store.append(changes)
        except StorageError:
            if proxy.cut is None:
                raise


def append_until_taken(store, changes: Changes) -> None:
    def is_taken() -> bool:
        try:
            store.append(changes)
        except StorageError:
            return False
        return True

    poll(is_taken, what="the store takes writes again")


def test_an_append_that_failed_and_was_kept_gives_way_to_another(proxied):
    proxy, url, direct = proxied
    store = open_store(url)
    store.append(make_submission(1, 3))
    proxy.cut = Cut.AFTER_COMMIT
    cancelled = make_view(2, state=JobState.CANCELLED, message="never acknowledged")
    refused = make_submission(4, 7)
    with pytest.raises(StorageError):
        store.append(replace(refused, jobs=(*refused.jobs, cancelled)))
    reader = open_reader(direct)
    poll(lambda: len(list(reader.read_journal())) == 10, what="the server has carried out the commit")
    reader.close()
    append_until_taken(store, make_submission(4))
    check_holds(store, 4)
    store.close()


def test_what_failed_and_was_kept_is_not_read(proxied):
    proxy, url, direct = proxied
    store = open_store(url)
    proxy.cut = Cut.AFTER_COMMIT
    with pytest.raises(StorageError):
        store.append(make_submission(1, 3))
    reader = open_reader(direct)
    poll(lambda: len(list(reader.read_journal())) == 3, what="the server has carried out the commit")
    reader.close()
    poll(lambda: read_or_none(store) == [], what="the store reads what was acknowledged: nothing")
    check_holds(store, 0)
    store.close()


def read_or_none(store):
    try:
        return list(store.read_journal())
    except StorageError:
        return None


def test_a_server_that_died_and_came_back_is_used_again(server):
    store = open_store(server.url(server.make_database()))
    store.append(make_submission(1, 2))
    server.kill()
    try:
        with pytest.raises(StorageError):
            store.append(make_submission(3))
        with pytest.raises(StorageError):
            store.append(make_submission(3))
        with pytest.raises(StorageError):
            store.reader.find_jobs(JobQuery())
    finally:
        server.start()
    append_until_taken(store, make_submission(3))
    poll(lambda: reads(store), what="the reader connects again")
    check_holds(store, 3)
    store.close()


def reads(store) -> bool:
    try:
        store.reader.find_jobs(JobQuery())
    except StorageError:
        return False
    return True


def test_a_server_killed_while_it_is_written_to_loses_nothing_that_was_acknowledged(server):
    url = server.url(server.make_database())
    store = open_store(url)
    acknowledged = 0
    killer = threading.Timer(0.3, server.kill)
    killer.start()
    with contextlib.suppress(StorageError):
        while True:
            store.append(make_submission(acknowledged + 1))
            acknowledged += 1
    killer.join()
    server.start()
    append_until_taken(store, make_submission(acknowledged + 1))
    check_holds(store, acknowledged + 1)
    store.close()


def test_a_writer_that_was_overtaken_stops_and_the_new_one_goes_on(proxied):
    proxy, url, direct = proxied
    old = open_store(url)
    old.append(make_submission(1))
    proxy.is_refusing = True
    proxy.lose_all()
    new = open_when_free(direct)
    new.append(make_submission(2))
    proxy.is_refusing = False
    with pytest.raises(StorageError):
        old.append(make_submission(2))  # the new one holds the lock
    new.close()

    def is_stopped() -> bool:
        try:
            old.append(make_submission(2))
        except JournalError as error:
            return "has taken over: stop this one" in str(error)
        except StorageError:
            return False
        raise AssertionError("it wrote after another one did")

    poll(is_stopped, what="the old writer knows")
    old.close()
    again = open_when_free(direct)
    check_holds(again, 2)
    again.close()


def open_when_free(url: str):
    """A server lets go of the lock when it notices that the connection is gone."""
    found = []

    def is_open() -> bool:
        try:
            found.append(open_store(url))
        except StorageError as error:
            if "only control plane" not in str(error):
                raise
            return False
        return True

    poll(is_open, what="the lock is free")
    return found[0]


def test_a_password_is_never_shown(server):
    url = server.url("there_is_no_such_database")
    with pytest.raises(StorageError) as refusal:
        open_store(url)
    assert server.password not in str(refusal.value)
    assert "***" in str(refusal.value)


def test_a_record_longer_than_a_server_takes_is_refused_unsent_and_all_else_goes_on(mariadb):
    store = open_store(mariadb.url(mariadb.make_database()))
    store.append(make_submission(1))
    long = Changes(runs=((JobId(2), RunSpec(script='"' * (9 << 20))),))
    with pytest.raises(TooLongError, match=r"\(job 2\).*max_allowed_packet"):
        store.append(long)
    assert store.append(make_submission(2)) == 2
    fits = Changes(runs=((JobId(3), RunSpec(script='"' * (3 << 20))),))
    store.append(fits)
    assert store.reader.read_run(JobId(3)) == fits.runs[0][1]
    store.close()


def test_a_report_longer_than_a_server_takes_is_named_and_written_by_the_next_start_with_more(mariadb):
    url = mariadb.url(mariadb.make_database())
    long = Changes(events=(NodeDown(0, '"' * (5 << 20)),))
    named = pytest.raises(TooLongError, match=r"\(NodeDown, number 1\): .*more and start again")
    with contextlib.closing(open_store(url)) as store, named:
        store.append(long)
    mariadb.run("SET GLOBAL max_allowed_packet = 67108864")
    try:
        with contextlib.closing(open_store(url)) as store:
            assert store.append(long) == 1
    finally:
        mariadb.run("SET GLOBAL max_allowed_packet = 16777216")


def test_a_server_that_takes_too_little_at_once_is_refused_at_the_start(mariadb):
    url = mariadb.url(mariadb.make_database())
    mariadb.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with pytest.raises(StorageError, match="expected max_allowed_packet of 16M at least, found 1048576"):
            open_store(url)
    finally:
        mariadb.run("SET GLOBAL max_allowed_packet = 16777216")


def test_an_event_that_cannot_be_encoded_leaves_the_store_as_it_was(url):
    store = open_store(url)
    store.append(make_submission(1))
    with pytest.raises(TypeError):
        store.append(Changes(events=(make_submitted(2, at_ms=object()),)))  # type: ignore[arg-type]
    assert store.append(make_submission(2)) == 2
    check_holds(store, 2)
    store.close()
