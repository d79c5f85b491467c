"""What the keeper writes down, and what becomes of it where it cannot be written."""

import os
from dataclasses import replace

import pytest

from clearway.adapters.local.keeper.messages import Report
from clearway.adapters.local.keeper.records import Asked, Records, Started
from support.keepers import make_launch, refuse, room_for

ASKED = Asked(
    end="stopped",
    value="preempted",
    reason="",
    request="5.1.leave",
    is_leave=True,
    was_signalled=True,
    by_tick_ms=7,
)


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


def test_end_of_a_process_is_found_in_whichever_record_of_its_job_the_warden_wrote_it(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    records.begin(make_launch(generation=2, is_move=True))
    records.note_exit(5, 2, 10, 11, 9)
    assert (records.find_exit(5, 10, 11), records.find_exit(5, 10, 12), records.find_exit(6, 10, 11)) == (9, None, None)


def test_line_that_has_no_room_leaves_no_part_of_it_behind_and_is_written_when_there_is_room(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    path = tmp_path / "runs" / "5.1"
    size = path.stat().st_size
    with room_for(size + 10):
        records.note_asked(5, 1, ASKED)
        assert path.stat().st_size == size
        records.pay()
        assert (records.obstacle, records.owes_lines) == ("No space left on device", True)
    records.pay()
    assert (records.obstacle, records.owes_lines) == ("", False)
    assert records.read(5, 1).asked == ASKED


def test_lines_that_are_owed_are_written_together_and_in_order(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    started = Started(boot="b", mark="5.1", processes=((10, 11, 0), (20, 21, 1)))
    with room_for(10):
        records.note_started(5, 1, started)
        records.note_exit(5, 1, 10, 11, 0)
        records.note_started(5, 1, replace(started, started_ms=7))
        records.note_exit(5, 1, 20, 21, 9)
    records.note_result(Report(job=5, generation=1, end="finished", outcome="FAILED"))
    assert Records(tmp_path).read(5, 1).result is None
    records.pay()
    record = Records(tmp_path).read(5, 1)
    assert (record.started.started_ms, record.exits, record.result.outcome) == (7, {(10, 11): 0, (20, 21): 9}, "FAILED")


def test_part_of_a_line_that_could_not_be_taken_back_spoils_nothing(tmp_path, monkeypatch):
    records = Records(tmp_path)
    records.begin(make_launch())
    with room_for((tmp_path / "runs" / "5.1").stat().st_size + 10), monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        records.note_asked(5, 1, ASKED)
    records.pay()
    assert records.read(5, 1).asked == ASKED


def test_saved_work_that_has_no_room_is_known_and_written_when_there_is_room(tmp_path):
    records = Records(tmp_path)
    records.note_saved(5, 1_234)
    with room_for(4):
        records.note_saved(5, 2_345)
    assert (Records(tmp_path).read_saved(5), records.read_saved(5)) == (1_234, 2_345)
    records.pay()
    assert Records(tmp_path).read_saved(5) == 2_345


def test_what_cannot_be_taken_away_is_taken_away_later(tmp_path, monkeypatch):
    records = Records(tmp_path)
    records.begin(make_launch())
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        records.forget(5, 1)
        assert (records.list(), records.owes_lines) == ([(5, 1)], False)
        with pytest.raises(OSError, match="Input/output"):
            records.begin(make_launch())
    assert records.begin(make_launch())  # of a control plane that counts from the beginning
    records.pay()
    assert records.read(5, 1).launch == make_launch()


def test_start_that_cannot_be_written_down_leaves_no_mark_and_can_be_made_again(tmp_path):
    records = Records(tmp_path)
    with room_for(10), pytest.raises(OSError, match="No space"):
        records.begin(make_launch())
    assert records.list() == []
    assert records.begin(make_launch())
