"""What a control plane feeds into Redis: where the storage fails, the feed goes on."""

import pytest

from clearway.bootstrap import fanout as feeding
from clearway.ports.storage import JournalError, StorageError
from support.control_plane import wait_until
from support.fake_control import FakeControl
from support.stored import make_view


class Kept:
    """A fanout that keeps the rows that it is given."""

    def __init__(self):
        self.rows = []

    def publish_view(self, view):
        pass

    def publish_jobs(self, jobs):
        self.rows.extend(jobs)

    def publish_notice(self, notice):
        pass

    def close(self):
        pass


class Failing(FakeControl):
    """Fails to read a job once for each of `failures`."""

    def __init__(self):
        super().__init__(tenants={"vision": None})
        self.failures = []

    def job(self, job):
        if self.failures:
            raise self.failures.pop()
        return super().job(job)


@pytest.fixture
def control():
    return Failing()


@pytest.fixture
def kept(control, monkeypatch):
    monkeypatch.setattr(feeding, "VIEW_S", 0.01)
    fanout = Kept()
    feed = feeding.Feed(control, fanout)
    feed.begin()
    yield fanout
    feed.stop()


def test_a_row_that_cannot_be_read_now_is_sent_later(control, kept):
    control.failures = [StorageError("the server is away")]
    view = control.put(make_view(7, tenant="vision"))
    control.tell("job", "vision", {"id": 7})
    wait_until(lambda: view in kept.rows, "the row of job 7", 10)


def test_a_damaged_row_is_left_out_and_the_next_is_sent(control, kept, caplog):
    control.failures = [JournalError("row of job 7 is damaged")]
    control.tell("job", "vision", {"id": 7})
    wait_until(lambda: not control.failures, "the damaged row", 10)
    view = control.put(make_view(8, tenant="vision"))
    control.tell("job", "vision", {"id": 8})
    wait_until(lambda: view in kept.rows, "the row of job 8", 10)
    assert "job 7 is not sent: row of job 7 is damaged" in caplog.text
