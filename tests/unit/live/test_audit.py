"""Lines of the audit log that come from outside: what a server refused."""

import pytest

from clearway.ports.storage import AuditLine, StorageError
from support.live import Plane

LINE = AuditLine(at_ms=7, actor="eve", action="jobs.cancel", target="job 1", is_allowed=False)


def test_a_line_is_written_though_nothing_happens():
    plane = Plane().start()
    assert plane.do(plane.control.note(LINE)) is None
    assert plane.store.audit[-1] == LINE


def test_a_line_that_cannot_be_written_is_refused():
    plane = Plane().start()
    plane.store.error = "disk full"
    with pytest.raises(StorageError, match="disk full"):
        plane.do(plane.control.note(LINE))
