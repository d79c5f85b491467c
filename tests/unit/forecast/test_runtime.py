"""Run-time prediction from few samples, by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.forecast import runtime
from clearway.forecast.runtime import RuntimeHistory, Source
from clearway.model.jobs import JobSpec, Request

MINUTE = 60_000
HOUR = 60 * MINUTE


def make_spec(**settings):
    return JobSpec(**{"id": 1, "request": Request(), "user": "ada", "queue": "main", **settings})


def make_history(*runs):
    """History of (spec, run_ms) that ended by themselves."""
    history = RuntimeHistory()
    for spec, run_ms in runs:
        history.observe_finished(spec, run_ms, completed=True)
    return history


def test_nothing_is_predicted_from_nothing():
    history = RuntimeHistory()
    assert history.predict_ms(make_spec(), 0.5) is None
    assert history.predict(make_spec()) is None
    assert history.predict_ms(make_spec(), 0.5, elapsed_ms=5) is None


def test_one_run_of_anybody_is_better_than_nothing():
    history = make_history((make_spec(user="eve", queue="other"), HOUR))
    prediction = history.predict(make_spec())
    assert (prediction.median_ms, prediction.samples, prediction.source) == (HOUR, 1, Source.ALL)


def test_narrowest_key_with_two_runs_is_believed():
    name = make_spec(name="resnet")
    other = make_spec(name="bert")
    history = make_history((name, 10), (other, 1_000), (other, 1_000), (name, 20))
    assert history.predict(name).median_ms == 15
    assert history.predict(name).source is Source.USER_NAME_SIZE
    assert history.predict(other).median_ms == 1_000


def test_names_are_alike_up_to_a_trailing_number():
    history = make_history((make_spec(name="sweep-1"), 10), (make_spec(name="sweep-2"), 10), (make_spec(), 99))
    assert history.predict(make_spec(name="sweep-37")).source is Source.USER_NAME_SIZE


def test_another_size_of_a_known_name_uses_the_name():
    history = make_history(*[(make_spec(name="resnet"), 10)] * 3)
    assert history.predict(make_spec(name="resnet", replicas=8)).source is Source.USER_NAME


def test_sizes_within_a_factor_of_two_are_alike():
    history = make_history(*[(make_spec(replicas=9), 10)] * 2)
    assert history.predict(make_spec(replicas=12)).source is Source.USER_SIZE
    assert history.predict(make_spec(replicas=2)).source is Source.USER


def test_users_habit_of_overestimating_scales_a_new_estimate():
    history = make_history((make_spec(estimate_ms=100), 25), (make_spec(estimate_ms=200), 50))
    prediction = history.predict(make_spec(estimate_ms=1_000))
    assert (prediction.median_ms, prediction.source) == (250, Source.USER_RATIO)


def test_jobs_with_the_same_estimate_are_alike_before_ratios():
    history = make_history(*[(make_spec(estimate_ms=100), 25)] * 2, *[(make_spec(estimate_ms=200), 200)] * 2)
    prediction = history.predict(make_spec(estimate_ms=100))
    assert (prediction.median_ms, prediction.source) == (25, Source.USER_SIZE_SAID)


def test_limit_stands_for_an_estimate_and_caps():
    history = make_history(*[(make_spec(limit_ms=100), 100)] * 2, *[(make_spec(user="eve"), HOUR)] * 9)
    assert history.predict(make_spec(limit_ms=40)).median_ms == 40
    assert history.predict(make_spec(user="eve", limit_ms=MINUTE)).high_ms == MINUTE


def test_stranger_is_predicted_by_queue_and_size():
    history = make_history(*[(make_spec(), 10)] * 2, *[(make_spec(queue="long"), HOUR)] * 2)
    prediction = history.predict(make_spec(user="eve", queue="long"))
    assert (prediction.median_ms, prediction.source) == (HOUR, Source.QUEUE_SIZE)


def test_tenant_stands_for_user_where_there_is_none():
    history = make_history(*[(make_spec(user="", tenant="vision"), 10)] * 2)
    assert history.predict(make_spec(user="", tenant="vision")).source is Source.USER_SIZE


def test_cut_off_run_counts_twice_as_long():
    history = RuntimeHistory()
    for _ in range(2):
        history.observe_finished(make_spec(limit_ms=HOUR), HOUR, completed=False)
    assert history.predict_ms(make_spec(limit_ms=10 * HOUR), 0.5) == 10 * HOUR, "its ratio is 2"
    assert history.predict_ms(make_spec(), 0.5) == 2 * HOUR
    assert history.predict_ms(make_spec(limit_ms=HOUR), 0.5) == HOUR


def test_quantiles_lie_between_samples_with_honest_ranks():
    history = make_history(*[(make_spec(), run) for run in (10, 20, 30, 40, 50, 60, 70)])
    # Of 7 samples the k-th smallest is exceeded by the next one with probability 1 - k / 8.
    assert history.predict_ms(make_spec(), 0.25) == 20
    assert history.predict_ms(make_spec(), 0.5) == 40
    assert history.predict_ms(make_spec(), 0.75) == 60


def test_tail_beyond_few_samples_takes_in_wider_keys():
    others = [(make_spec(user="eve"), run) for run in (1, 5, HOUR)]
    history = make_history(*others, (make_spec(), 10), (make_spec(), 20))
    prediction = history.predict(make_spec())
    assert (prediction.low_ms, prediction.median_ms, prediction.high_ms) == (1, 15, HOUR)
    assert prediction.samples == 2


def test_only_longer_runs_are_alike_once_a_job_has_run():
    history = make_history(*[(make_spec(), run) for run in (10, 20, 100, 200)])
    assert history.predict_ms(make_spec(), 0.5, elapsed_ms=50) == 150
    assert history.predict_ms(make_spec(), 0.5, elapsed_ms=5_000) == 10_000, "longer than any: as long again"
    assert history.predict_ms(make_spec(limit_ms=6_000), 0.5, elapsed_ms=5_000) == 6_000


def test_old_samples_are_forgotten():
    runs = [(make_spec(), HOUR)] * runtime.SAMPLES_KEPT + [(make_spec(), 10)] * runtime.SAMPLES_KEPT
    assert make_history(*runs).predict_ms(make_spec(), 0.9) == 10


def test_keys_longest_without_news_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(runtime, "KEYS_MAX", 6)
    history = make_history(*[(make_spec(user=user), 10) for user in ("ada", "ada", "eve", "eve", "joe", "joe")])
    assert len(history) == 6
    assert history.predict(make_spec(user="ada")).source is Source.QUEUE_SIZE
    assert history.predict(make_spec(user="joe")).source is Source.USER_SIZE


runs = st.lists(
    st.tuples(
        st.sampled_from(["ada", "eve"]), st.sampled_from(["", "a", "b"]), st.integers(1, 4), st.integers(0, HOUR)
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(runs, st.integers(0, HOUR), st.none() | st.integers(1, HOUR))
def test_quantiles_rise_and_stay_between_elapsed_and_limit(observed, elapsed_ms, limit_ms):
    history = RuntimeHistory()
    for user, name, replicas, run_ms in observed:
        spec = make_spec(user=user, name=name, replicas=replicas, estimate_ms=HOUR)
        history.observe_finished(spec, run_ms, completed=True)
    spec = make_spec(limit_ms=limit_ms, name="a", estimate_ms=2 * HOUR)
    prediction = history.predict(spec, elapsed_ms)
    if prediction is None:
        assert not observed
        return
    assert prediction.low_ms <= prediction.median_ms <= prediction.high_ms
    assert prediction.high_ms <= (limit_ms or 10 * HOUR)
    assert prediction.low_ms > min(elapsed_ms, (limit_ms or elapsed_ms + 1) - 1)


@pytest.mark.parametrize("quantile", [0.1, 0.3, 0.5, 0.7, 0.9])
@given(st.lists(st.integers(1, HOUR), min_size=1, max_size=runtime.SAMPLES_KEPT))
def test_quantile_of_equal_jobs_lies_within_their_samples(quantile, run_times):
    history = make_history(*[(make_spec(), run_ms) for run_ms in run_times])
    assert min(run_times) <= history.predict_ms(make_spec(), quantile) <= max(run_times)
