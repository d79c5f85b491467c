"""Absolute times, from a present that the test chooses: 2026-01-01T12:00 UTC, a Thursday."""

import datetime

import pytest

from clearway.model.errors import InputError
from clearway.wire.moments import parse_moment, render_moment

NOON_MS = int(datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-01-01T12:00:00Z"),
        ("now+1hour", "2026-01-01T13:00:00Z"),
        ("now+90", "2026-01-01T12:01:30Z"),
        ("now+2days", "2026-01-03T12:00:00Z"),
        ("2026-01-02", "2026-01-02T00:00:00Z"),
        ("2026-01-02T08:30", "2026-01-02T08:30:00Z"),
        ("2026-01-02T08:30:15+02:00", "2026-01-02T06:30:15Z"),
        ("18:30", "2026-01-01T18:30:00Z"),
        ("06:30", "2026-01-02T06:30:00Z"),
        ("6:30 PM", "2026-01-01T18:30:00Z"),
        ("12:00am", "2026-01-02T00:00:00Z"),
        ("midnight", "2026-01-02T00:00:00Z"),
        ("teatime", "2026-01-01T16:00:00Z"),
        ("noon", "2026-01-02T12:00:00Z"),
        ("tomorrow", "2026-01-02T00:00:00Z"),
        ("today", "2026-01-01T12:00:00Z"),
    ],
)
def test_every_form_of_a_moment_is_read(text, moment):
    assert render_moment(parse_moment(text, now_ms=NOON_MS)) == moment


def test_a_time_without_zone_is_taken_in_the_given_one():
    zone = datetime.timezone(datetime.timedelta(hours=8))
    assert render_moment(parse_moment("2026-01-02T08:00", now_ms=NOON_MS, zone=zone)) == "2026-01-02T00:00:00Z"


def test_milliseconds_are_kept():
    assert render_moment(parse_moment("now+250ms", now_ms=NOON_MS)) == "2026-01-01T12:00:00.250Z"


@pytest.mark.parametrize(
    "text", ["010226", "01/02/26", "soon", "25:00", "13:00pm", "2026-02-30", "now+", "now+1fortnight", 5]
)
def test_a_moment_that_is_not_understood_is_an_error(text):
    with pytest.raises(InputError, match=r"expected a .*, found"):
        parse_moment(text, now_ms=NOON_MS)
