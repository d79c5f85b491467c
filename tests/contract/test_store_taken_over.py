"""Whoever takes a store over from one that hangs writes alone from then on, though the other still has a connection."""

import pytest

from clearway.adapters.storage import open_store
from clearway.ports.storage import JobQuery, JournalError, StorageError
from support.stored import make_submission


@pytest.fixture
def url_of_server(server):
    return server.url(server.make_database())


def test_writer_that_hangs_is_cut_off_and_can_write_nothing_when_it_wakes_up(url_of_server):
    old = open_store(url_of_server)
    old.append(make_submission(1))
    with pytest.raises(StorageError, match="expected to be the only control plane"):
        open_store(url_of_server)
    new = open_store(url_of_server, take_over=True)
    with pytest.raises((StorageError, JournalError)):
        old.append(make_submission(2))
    new.append(make_submission(2))
    with pytest.raises((StorageError, JournalError)):
        old.append(make_submission(3))
    assert new.last_job_id() == 2
    assert len(new.reader.find_jobs(JobQuery())) == 2
    old.close()
    new.close()


def test_nobody_is_cut_off_where_nobody_writes(url_of_server):
    store = open_store(url_of_server, take_over=True)
    store.append(make_submission(1))
    assert store.last_job_id() == 1
    store.close()
