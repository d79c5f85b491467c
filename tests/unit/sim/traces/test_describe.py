import json

import pytest

from clearway.sim.traces import describe_workload, read_workload
from support.files import write_lines


def test_a_description_is_plain_data_with_the_expected_figures(tmp_path):
    path = write_lines(
        tmp_path / "d.swf",
        "1 0 -1 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1",
        "2 50 -1 300 4 -1 -1 4 150 -1 5 2 1 -1 1 -1 -1 -1",
        "3 100 -1 -1 4 -1 -1 4 150 -1 5 2 1 -1 1 -1 -1 -1",
    )
    described = describe_workload(read_workload(path))
    assert json.loads(json.dumps(described)) == described
    assert (described["jobs"], described["users"], described["span_s"]) == (2, 2, 50.0)
    assert described["load_device_s_per_s"] == pytest.approx((200 + 1200) / 50)
    assert described["estimates"]["cut"] == 1
    assert described["estimates"]["run_over_estimate"]["max"] == pytest.approx(2.0)
    assert [size["devices"] for size in described["sizes"]] == [2.0, 4.0]
    assert described["outcomes"] == {"CANCELLED": 1, "COMPLETED": 1}
    assert described["skipped"] == [{"reason": "run time unknown (negative)", "count": 1, "lines": [3]}]
