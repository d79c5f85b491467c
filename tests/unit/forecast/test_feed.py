"""Forecasts as time passes: when they are due, and when nobody needs any."""

from clearway.forecast.demand import BIN_MS
from clearway.forecast.feed import DemandFeed
from clearway.model.events import DemandForecast
from clearway.model.jobs import JobKind, JobSpec, Request
from clearway.model.units import FOREVER_MS

TASK = JobSpec(id=1, request=Request(devices=2), kind=JobKind.TASK)


def test_nothing_is_due_before_a_job_comes_whose_user_waits():
    feed = DemandFeed()
    feed.observe(JobSpec(id=1, request=Request(), kind=JobKind.TRAIN), 10)
    assert feed.next_ms == FOREVER_MS
    feed.observe(TASK, 10)
    assert feed.next_ms == BIN_MS


def test_forecasts_that_nobody_was_there_to_make_are_left_out_but_the_last():
    feed = DemandFeed()
    feed.observe(TASK, 10)
    feed.skip_to(10 * BIN_MS + 5)
    assert feed.forecast().at_ms == 10 * BIN_MS
    assert feed.next_ms == 11 * BIN_MS


def test_after_two_forecasts_of_nothing_none_is_made_until_something_arrives():
    feed = DemandFeed()
    feed.observe(TASK, 10)
    feed.note(DemandForecast(BIN_MS, 0, 3 * BIN_MS))
    assert feed.next_ms == 2 * BIN_MS
    feed.note(DemandForecast(2 * BIN_MS, 0, 4 * BIN_MS))
    assert feed.next_ms == FOREVER_MS
    feed.observe(TASK, 9 * BIN_MS)
    assert feed.next_ms == 10 * BIN_MS
