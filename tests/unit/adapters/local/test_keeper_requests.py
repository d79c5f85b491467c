"""What the keeper makes of requests that meet, or come at a bad moment."""

import os
import signal

import pytest

from clearway.adapters.local.keeper.host import NEVER
from clearway.adapters.local.keeper.records import Asked, Started
from support.keepers import end_processes, make_launch, noted_keeper, refuse, room_for


@pytest.fixture
def keeper(tmp_path):
    with noted_keeper(tmp_path) as keeper:
        yield keeper


def test_generation_that_fails_while_it_waits_behind_another_is_not_started(keeper):
    frozen = keeper.have(make_launch(is_movable=False), "frozen")
    keeper.hear_start(make_launch(generation=2, devices=(("n0", 2),), is_movable=False))
    keeper.hear("fail", job=5, generation=2, cause="device_failed", reason="it fell off the bus")
    assert keeper.ends() == [(2, "stopped", "device_failed")]
    end_processes(frozen, signal.SIGKILL)
    assert keeper.begun == []
    assert not keeper.has(5)
    assert len(keeper.ends()) == 1


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"op": "suspend"}, []),
        ({"op": "stop", "cause": None, "grace_ms": 0}, [(2, "finished", "CANCELLED")]),
        ({"op": "stop", "cause": "preempted", "grace_ms": 0}, [(2, "stopped", "preempted")]),
    ],
)
def test_generation_that_is_ended_while_it_waits_behind_another_is_not_started(keeper, request_, expected):
    frozen = keeper.have(make_launch(is_movable=False), "frozen")
    keeper.hear_start(make_launch(generation=2, devices=(("n0", 2),), is_movable=False))
    keeper.hear(job=5, generation=2, **request_)
    end_processes(frozen, signal.SIGKILL)
    assert keeper.begun == []
    assert not keeper.has(5)
    assert keeper.ends() == expected


def test_generation_that_waits_behind_another_starts_when_that_is_gone(keeper):
    frozen = keeper.have(make_launch(is_movable=False), "frozen")
    keeper.hear_start(make_launch(generation=2, devices=(("n0", 2),), is_movable=False))
    assert keeper.begun == []
    end_processes(frozen, signal.SIGKILL)
    assert keeper.begun == [2]


@pytest.mark.parametrize("stage", ["freezing", "frozen"])
def test_job_whose_device_fails_while_it_is_frozen_is_told_suspended_once_and_is_gone(keeper, stage):
    run = keeper.have(make_launch(), "running")
    keeper.hear("suspend", job=5, generation=1)
    assert keeper.told == []
    run.group.is_still = stage == "frozen"
    run.advance()
    assert run.stage == stage
    keeper.hear("fail", job=5, generation=1, cause="device_failed", reason="it fell off the bus")
    assert [(each.generation, each.phase) for each in keeper.told] == [(1, "suspended")]
    end_processes(run, signal.SIGKILL)
    assert not keeper.has(5)
    assert len(keeper.told) == 1


# --- a start that cannot be written down ---------------------------------------------------------------------------


def test_start_that_cannot_be_written_down_has_failed(keeper):
    with room_for(10):
        keeper.hear_start(make_launch())
    assert keeper.ends() == [(1, "stopped", "start_failed")]
    assert keeper.told[-1].reason == "write down its start: No space left on device"
    assert not keeper.has(5)


def test_start_whose_failure_was_told_is_not_made_when_it_is_asked_for_again_and_the_next_one_is(keeper):
    with room_for(10):
        keeper.hear_start(make_launch())
    keeper.hear_start(make_launch())
    assert keeper.begun == []
    keeper.hear_start(make_launch(generation=2))
    assert keeper.begun == [2]


def test_frozen_job_whose_next_start_cannot_be_written_down_is_gone_when_that_is_told(keeper):
    frozen = keeper.have(make_launch(), "frozen")
    with room_for(10):
        keeper.hear_start(make_launch(generation=2))
    assert keeper.ends() == []
    end_processes(frozen, signal.SIGKILL)
    assert keeper.ends() == [(2, "stopped", "start_failed")]
    assert not keeper.has(5)


def test_move_that_cannot_be_written_down_ends_the_job_where_it_is(keeper):
    running = keeper.have(make_launch(), "running")
    with room_for(10):
        keeper.hear_start(make_launch(generation=2, is_move=True))
    assert keeper.ends() == []
    end_processes(running, signal.SIGTERM)
    assert keeper.ends() == [(1, "stopped", "start_failed")]
    assert not keeper.has(5)


# --- what cannot be written down -----------------------------------------------------------------------------------


def test_end_that_cannot_be_written_down_is_told_and_written_down_later(keeper):
    running = keeper.have(make_launch(), "running")
    with room_for(10):
        end_processes(running, 3 << 8)
        assert keeper.ends() == [(1, "finished", "FAILED")]
        assert not keeper.has(5)
    assert keeper.records.read(5, 1).result is None
    keeper._wait()
    assert keeper.records.read(5, 1).result.exit_code == 3


def test_job_whose_progress_cannot_be_written_down_has_its_time_limit_all_the_same(keeper, tmp_path):
    (tmp_path / "progress.json").write_text('{"checkpoint_at": 2}')
    running = keeper.have(make_launch(saves=True, job_dir=str(tmp_path)), "running")
    running.progress_tick, running.limit_tick = 0, NEVER - 1
    with room_for(4):
        keeper._guard(running.advance)
    assert running.due_tick < NEVER - 1
    assert keeper.told[-1].saved_ms == 1_999


def test_frozen_job_goes_on_where_its_earlier_record_cannot_be_taken_away(keeper, monkeypatch):
    frozen = keeper.have(make_launch(), "frozen")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        keeper.hear_start(make_launch(generation=2))
    assert (frozen.stage, keeper.told[-1].generation, keeper.told[-1].phase) == ("running", 2, "running")
    keeper._wait()
    assert keeper.records.list() == [(5, 2)]


@pytest.mark.parametrize("known", [(), ((1 << 30, 1, 0),)])
def test_job_of_which_not_every_replica_had_its_process_is_stopped_by_the_next_keeper(keeper, known):
    (replica,) = make_launch().replicas
    launch = make_launch(replicas=(replica, replica), warm="/usr/bin/python3")
    keeper.records.begin(launch)
    keeper.records.note_started(5, 1, Started(boot=keeper.boot, mark="5.1", processes=known))
    keeper._adopt()
    assert keeper.ends() == [(1, "stopped", "node_failed")]
    assert keeper.told[-1].reason == "the keeper was ended while it started the job"


def test_job_that_was_cancelled_while_warm_runners_forked_it_stays_cancelled(keeper):
    launch = make_launch(warm="/usr/bin/python3")
    keeper.records.begin(launch)
    keeper.records.note_started(5, 1, Started(boot=keeper.boot, mark="5.1", processes=()))
    cancelled = {"end": "finished", "value": "CANCELLED", "reason": "", "request": ""}
    keeper.records.note_asked(5, 1, Asked(**cancelled, is_leave=False, was_signalled=True, by_tick_ms=0))
    keeper._adopt()
    assert keeper.ends() == [(1, "finished", "CANCELLED")]
