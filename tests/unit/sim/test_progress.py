"""The work of one job over changes of its speed."""

from hypothesis import given
from hypothesis import strategies as st

from clearway.model.jobs import Checkpoint
from clearway.sim.progress import REFERENCE_PPM, Progress

HALF = REFERENCE_PPM // 2
SAVES = Checkpoint(interval_ms=100, cost_ms=10, restart_ms=0, grace_ms=0)


def begin(run_ms=1_000, checkpoint=SAVES, ppm=REFERENCE_PPM, pause_ms=0):
    progress = Progress(run_ms, checkpoint)
    return progress, progress.work(0, ppm=ppm, milli=1_000, pause_ms=pause_ms)


@given(
    times=st.lists(st.integers(0, 1_200), max_size=8).map(sorted),
    run_ms=st.integers(1, 1_000),
    interval_ms=st.integers(1, 300),
    cost_ms=st.integers(0, 50),
    pause_ms=st.integers(0, 50),
)
def test_a_change_to_the_same_speed_changes_nothing(times, run_ms, interval_ms, cost_ms, pause_ms):
    checkpoint = Checkpoint(interval_ms=interval_ms, cost_ms=cost_ms, restart_ms=0, grace_ms=0)
    progress, end_ms = begin(run_ms, checkpoint, pause_ms=pause_ms)
    for now_ms in times:
        if now_ms < end_ms:
            assert progress.change_pace(now_ms, REFERENCE_PPM) == end_ms
    progress.pause(end_ms)
    assert progress.is_done
    progress.save()
    useful, lost = progress.settle()
    assert (useful, useful + lost) == (1_000 * run_ms, 1_000 * end_ms)


def test_half_the_speed_from_half_way_on_takes_half_as_long_again():
    progress, end_ms = begin(checkpoint=None)
    assert end_ms == 1_000
    assert progress.change_pace(500, HALF) == 1_500


def test_changes_more_often_than_checkpoints_do_not_keep_it_from_saving():
    progress, _ = begin()
    for now_ms in range(30, 210, 30):
        progress.change_pace(now_ms, REFERENCE_PPM - now_ms)
    progress.pause(210)
    progress.fall_back()
    assert progress.saved_ms >= 99


def test_a_checkpoint_that_is_written_when_the_speed_changes_is_paid_in_full():
    progress, end_ms = begin(run_ms=150)
    assert end_ms == 160
    assert progress.change_pace(104, HALF) == 110 + 100
    progress.pause(110)
    assert progress.saved_ms == 100


def test_a_restart_goes_on_though_the_speed_changes():
    progress, _ = begin(run_ms=100, checkpoint=None, pause_ms=20)
    assert progress.change_pace(5, HALF) == 20 + 200
