"""What the keeper makes of requests that meet, or come at a bad moment."""

import signal

import pytest

from support.keepers import end_processes, make_launch, noted_keeper


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
