import math

from clearway.cli.figures import render_change, render_count, render_quantity


def test_changes_have_a_sign():
    assert render_change(-0.15) == "−15.0 %"
    assert render_change(0.2) == "+20.0 %"


def test_counts_are_whole_with_thousands_apart():
    assert render_count(447_794.0) == "447\u202f794"


def test_every_unit_of_the_metrics_is_shown_in_its_own_way():
    assert render_quantity(90, "s") == "1.50 min"
    assert render_quantity(0.551, "ratio") == "55.1 %"
    assert render_quantity(12, "jobs") == "12"
    assert render_quantity(7_200, "device-s") == "2 device-h"
    assert render_quantity(1.234, "1") == "1.23"


def test_what_was_not_measured_is_never_shown_as_zero():
    for unit in ("s", "ratio", "jobs", "count", "device-s", "1"):
        assert render_quantity(math.nan, unit).startswith("–")
    assert render_change(math.inf) == "–"
