"""What the keeper writes down, and what becomes of it where it cannot be written."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from clearway.adapters.local.keeper.records import Asked, Records, Started
from support.keepers import make_launch

ASKED = Asked(
    end="stopped",
    value="preempted",
    reason="",
    request="5.1.leave",
    is_leave=True,
    was_signalled=True,
    by_tick_ms=7,
)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file grows beyond `size`: the kernel then writes what has room, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_run_was_asked_last_is_told_to_another_keeper(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    assert records.read(5, 1).asked is None
    records.note_asked(5, 1, ASKED)
    records.note_asked(5, 1, replace(ASKED, end="finished", value="CANCELLED"))
    assert Records(tmp_path).read(5, 1).asked == replace(ASKED, end="finished", value="CANCELLED")


def test_ends_of_processes_that_are_not_named_any_more_are_those_of_the_run_alone(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    started = Started(boot="b", mark="5.1", processes=((10, 11, 0), (20, 21, 1)))
    records.note_started(5, 1, started)
    records.note_exit(5, 1, 10, 11, 3 << 8)
    records.note_exit(5, 1, 30, 31, 9)  # of another generation, which the warden cannot tell
    assert records.read(5, 1).list_earlier_exits() == []
    records.note_started(5, 1, replace(started, processes=((20, 21, 1),)))
    assert Records(tmp_path).read(5, 1).list_earlier_exits() == [3 << 8]


def test_line_that_has_no_room_leaves_no_part_of_it_behind(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    path = tmp_path / "runs" / "5.1"
    size = path.stat().st_size
    with room_for(size + 10), pytest.raises(OSError, match="No space"):
        records.note_asked(5, 1, ASKED)
    assert path.stat().st_size == size
    records.note_asked(5, 1, ASKED)
    assert records.read(5, 1).asked == ASKED


def test_saved_work_that_has_no_room_leaves_what_was_known(tmp_path):
    records = Records(tmp_path)
    records.note_saved(5, 1_234)
    with room_for(4), pytest.raises(OSError, match="No space"):
        records.note_saved(5, 2_345)
    assert records.read_saved(5) == 1_234
