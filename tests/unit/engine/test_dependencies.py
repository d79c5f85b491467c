"""Dependencies on starts long ago, by the books alone."""

import pytest

from clearway.engine import dependencies as module
from clearway.engine.dependencies import Dependencies
from clearway.model.jobs import Dependency, DependencyKind, JobSpec, Outcome, Request
from clearway.model.plan import ReasonCode


def spec_of(number, *wanted, **more):
    return JobSpec(id=number, request=Request(), dependencies=wanted, **more)


def after(job, delay_ms):
    return Dependency(kind=DependencyKind.AFTER, job=job, delay_ms=delay_ms)


@pytest.fixture
def books():
    return Dependencies()


def test_a_delay_counts_from_the_first_start_also_when_the_job_has_ended(books):
    books.note_start(spec_of(1), 1_000)
    books.note_start(spec_of(1), 5_000)
    books.note_end(spec_of(1), Outcome.FAILED, 6_000)
    waiter = spec_of(2, after(1, 10_000))
    assert books.reason(waiter, 10_999) is ReasonCode.DEPENDENCY
    assert books.due_ms(waiter, 10_999) == 11_000
    assert books.reason(waiter, 11_000) is None
    assert books.due_ms(waiter, 11_000) is None


def test_a_delay_counts_from_the_end_where_there_was_no_start(books):
    books.note_end(spec_of(1), Outcome.CANCELLED, 3_000)
    assert books.due_ms(spec_of(2, after(1, 500)), 3_000) == 3_500


def test_a_delay_after_a_start_that_is_forgotten_is_over(books, monkeypatch):
    monkeypatch.setattr(module, "SINCE_MAX", 1)
    books.note_end(spec_of(1), Outcome.COMPLETED, 0)
    books.note_end(spec_of(2), Outcome.COMPLETED, 0)
    assert books.reason(spec_of(3, after(1, 1_000_000)), 1) is None
    assert books.reason(spec_of(4, after(2, 1_000_000)), 1) is ReasonCode.DEPENDENCY


def test_any_of_is_never_satisfied_only_when_none_can_be(books):
    ok = [Dependency(kind=DependencyKind.AFTER_OK, job=number) for number in (1, 2)]
    waiter = spec_of(3, *ok, depends_on_any=True)
    books.note_end(spec_of(1), Outcome.FAILED, 0)
    assert books.reason(waiter, 0) is ReasonCode.DEPENDENCY
    books.note_end(spec_of(2), Outcome.FAILED, 0)
    assert books.reason(waiter, 0) is ReasonCode.DEPENDENCY_NEVER
