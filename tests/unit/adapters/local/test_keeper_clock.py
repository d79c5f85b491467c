"""Work that is safe, where the wall clock is set while a job runs."""

from pathlib import Path

import pytest

from clearway.adapters.local.keeper import runs
from clearway.adapters.local.keeper.contract import Progress
from support.keepers import make_launch, noted_keeper

HOUR = 3_600_000


@pytest.mark.parametrize(("set_by_ms", "saved_ms"), [(0, 5_000), (2 * HOUR, 5_000)])
def test_no_more_work_is_safe_than_time_has_passed(tmp_path: Path, monkeypatch, set_by_ms, saved_ms):
    wall_ms, tick = 100 * HOUR, 7_000
    monkeypatch.setattr(runs, "now_ms", lambda: wall_ms)
    monkeypatch.setattr(runs, "tick_ms", lambda: tick)
    with noted_keeper(tmp_path) as keeper:
        run = keeper.have(make_launch(), "launching")
        run._run()
        wall_ms, tick = wall_ms + set_by_ms + 5_000, tick + 5_000
        run._take_checkpoint(Progress(checkpoint_at_ms=wall_ms))
        assert run.report.saved_ms == saved_ms
