import json

import pytest

from clearway.model.errors import InputError
from clearway.sim.profiles import (
    SPEED_MIN,
    SpeedModel,
    StepTimes,
    find_speed_model,
    gavel_profile,
    interpolate_rate,
    match_model,
    placement_profile,
    read_gavel_table,
    read_placement_table,
)
from support.files import write_lines
from support.shared import TRACES, needs_traces

A, B = "('A (batch size 1)', 1)", "('B', 1)"


@pytest.fixture
def gavel(tmp_path):
    raw = {
        "v100": {
            A: {"null": 10.0, B: [6.0, 3.0], A: [0.0, 0.0]},
            "('A (batch size 1)', 4)": {"null": 20.0},
            B: {"null": 5.0},
        },
        "v100_unconsolidated": {A: {"null": 10.0}, "('A (batch size 1)', 4)": {"null": 30.0}},
        "p100": {A: {"null": 4.0}},
    }
    return SpeedModel((read_gavel_table(write_lines(tmp_path / "t.json", json.dumps(raw))),))


def test_without_a_profile_the_device_model_decides():
    assert SpeedModel().speed("", "V100", 1, 1) == 1.0
    assert SpeedModel().speed("", "V100", 8, 8, device_speed=2.5) == 2.5


def test_a_profile_that_is_not_measured_runs_at_the_speed_of_the_device(gavel):
    assert gavel.speed("gavel/C/1", "V100", 1, 1, device_speed=0.5) == 0.5
    assert gavel.speed(gavel_profile("A (batch size 1)", 1), "H100", 1, 1, device_speed=3.0) == 3.0


def test_the_reference_is_one_and_other_models_relate_to_it(gavel):
    profile = gavel_profile("A (batch size 1)", 1)
    assert gavel.speed(profile, "V100", 1, 1) == 1.0
    assert gavel.speed(profile, "Tesla-V100", 1, 1, device_speed=7.0) == 7.0
    assert gavel.speed(profile, "V100M32", 1, 1) == 1.0
    assert gavel.speed(profile, "P100", 1, 1, device_speed=9.0) == pytest.approx(0.4)


def test_spreading_uses_the_unconsolidated_figure_even_where_it_is_faster(gavel):
    profile = gavel_profile("A (batch size 1)", 4)
    assert gavel.speed(profile, "V100", 4, 1) == 1.0
    assert gavel.speed(profile, "V100", 4, 2) == pytest.approx(1.5)


def test_sharing_keeps_the_measured_part_or_half(gavel):
    a, b = gavel_profile("A (batch size 1)", 1), gavel_profile("B", 1)
    assert gavel.speed(a, "V100", 1, 1, b) == pytest.approx(0.6)
    assert gavel.speed(b, "V100", 1, 1, a) == pytest.approx(0.5)
    assert gavel.speed(a, "V100", 1, 1, a) == SPEED_MIN


def test_rates_between_and_beyond_the_measured_numbers():
    points = [(2, 10.0), (4, 8.0)]
    assert [interpolate_rate(points, count) for count in (1, 2, 3, 4, 8)] == [10.0, 10.0, 9.0, 8.0, 16.0]


def test_the_longest_measured_model_that_begins_the_name_is_meant():
    assert match_model("a100sxm480gb", ("a10", "a100")) == "a100"
    assert match_model("h100", ("a10", "a100")) is None


def test_a_large_batch_accumulates_and_only_the_last_micro_batch_synchronises():
    times = StepTimes((4, 8), (1.0, 2.0), (0.2, 0.4))
    assert times.seconds(6) == pytest.approx(1.5)
    assert times.seconds(2) == pytest.approx(1.0)
    assert times.seconds(16) == pytest.approx(2 * 2.0 - 0.4)


def test_placements_on_as_many_nodes_are_averaged_and_the_nearest_number_of_nodes_is_taken(tmp_path):
    write_lines(
        tmp_path / "m" / "placements.csv",
        "placement,local_bsz,step_time,sync_time",
        "1,8,1.0,0.0", "13,2,1.0,0.0", "22,2,0.5,0.0", "4,2,0.25,0.0",
    )  # fmt: skip
    write_lines(tmp_path / "m" / "placements-rtx.csv", "local_bsz,step_time,sync_time,placement", "8.0,0.5,0.0,1")
    model = SpeedModel((read_placement_table(tmp_path),))
    profile = placement_profile("m", 8, 4)
    assert model.speed(profile, "T4", 4, 1) == 1.0
    assert model.speed(profile, "T4", 4, 2) == pytest.approx((8.0 + 16.0) / 2 / 32.0)
    assert model.speed(profile, "T4", 4, 9) == model.speed(profile, "T4", 4, 2)
    assert model.speed(profile, "RTX 2080Ti", 1, 1) == pytest.approx(16.0 / 32.0)


def test_a_broken_profile_is_an_error_with_its_line(tmp_path):
    write_lines(tmp_path / "m" / "placements.csv", "placement,local_bsz,step_time,sync_time", "1,8,fast,0.0")
    with pytest.raises(InputError, match=r"placements\.csv:2"):
        read_placement_table(tmp_path)


def test_a_file_that_is_no_table_is_an_error(tmp_path):
    with pytest.raises(InputError, match="throughput table"):
        read_gavel_table(write_lines(tmp_path / "t.json", "[1, 2]"))


@needs_traces
def test_the_real_tables_keep_their_known_oddity():
    model = find_speed_model(TRACES / "gavel" / "traces" / "msr_seed0" / "0e4a51.trace")
    profile = gavel_profile("ResNet-50 (batch size 64)", 4)
    assert model.speed(profile, "V100", 4, 4) == pytest.approx(11.14 / 9.45, rel=1e-3)


@needs_traces
def test_the_real_sia_profiles_span_device_models():
    model = find_speed_model(TRACES / "sia" / "workloads" / "saturn" / "workload-1.csv")
    profile = placement_profile("bert", 384, 12)
    assert model.speed(profile, "T4", 12, 3) == pytest.approx(1.0)
    assert model.speed(profile, "A100-SXM4-80GB", 12, 2) > model.speed(profile, "RTX 2080Ti", 12, 2) > 1.0
