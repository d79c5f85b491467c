import math

import pytest

from clearway.cli.figures import format_change, format_count, format_duration, format_quantity, format_ratio


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.08, "80 ms"),
        (12.34, "12.3 s"),
        (59.99, "1 min 0 s"),
        (250, "4 min 10 s"),
        (3599.9, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (86_399, "1 d 0 h"),
        (273_600, "3 d 4 h"),
        (-30, "−30 s"),
        (math.nan, "–"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_fits(seconds, text):
    assert format_duration(seconds) == text


def test_ratios_are_percentages_and_changes_have_a_sign():
    assert format_ratio(0.5512) == "55.1 %"
    assert format_change(-0.15) == "−15.0 %"
    assert format_change(0.2) == "+20.0 %"
    assert format_ratio(math.nan) == format_change(math.inf) == "–"


def test_counts_separate_thousands():
    assert format_count(447_794) == "447,794"


def test_device_time_is_shown_in_hours():
    assert format_quantity(7_200, "device-s") == "2 device-h"


def test_what_was_not_measured_is_never_shown_as_zero():
    for unit in ("s", "ratio", "jobs", "count", "device-s", "1"):
        assert format_quantity(math.nan, unit) == "–"
