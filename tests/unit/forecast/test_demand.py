"""Arrivals forecast: levels, days, bursts, and quantiles against known distributions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.forecast import demand
from clearway.forecast.demand import BIN_MS, DemandHistory, count_quantile
from clearway.model.units import DAY_MS, HOUR_MS

DEVIATES = dict(demand._QUANTILES)


def observe_bins(history, counts, start_bin=0):
    """Each count arrives at once in the middle of its bin; returns the time after the last bin."""
    for index, count in enumerate(counts, start=start_bin):
        if count:
            history.observe(index * BIN_MS + BIN_MS // 2, count)
    return (start_bin + len(counts)) * BIN_MS


def test_nothing_seen_means_nothing_expected():
    forecast = DemandHistory().forecast(0, HOUR_MS)
    assert (forecast.mean, forecast.p50, forecast.p90, forecast.p99, forecast.bins_seen) == (0, 0, 0, 0, 0)


def test_steady_demand_is_expected_to_go_on():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 100)
    forecast = history.forecast(now_ms, HOUR_MS)
    assert forecast.mean == pytest.approx(8 * 12)
    assert forecast.p50 == pytest.approx(96, abs=2)
    assert forecast.p50 < forecast.p90 < forecast.p99


def test_part_of_a_bin_expects_part_of_its_demand():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 100)
    assert history.forecast(now_ms, BIN_MS + BIN_MS // 4).mean == pytest.approx(10)
    assert history.forecast(now_ms, 0).mean == 0
    assert history.forecast(now_ms, 100 * DAY_MS).mean == history.forecast(now_ms, DAY_MS).mean


def test_demand_fades_in_silence():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 100)
    means = [history.forecast(now_ms + hours * HOUR_MS, HOUR_MS).mean for hours in range(4)]
    assert means == sorted(means, reverse=True)
    assert means[-1] < 1


def test_asking_changes_nothing():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 10)
    before = history.forecast(now_ms, HOUR_MS)
    history.forecast(now_ms + DAY_MS, HOUR_MS)
    assert history.forecast(now_ms, HOUR_MS) == before


def test_burst_raises_forecast_and_its_spread():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 100 + [100])
    forecast = history.forecast(now_ms, BIN_MS)
    assert forecast.mean > 20
    assert forecast.dispersion > 5


def test_time_of_day_is_learned_over_days():
    history = DemandHistory()
    day = [0] * 8 * 12 + [10] * 12 * 12 + [0] * 4 * 12
    now_ms = observe_bins(history, day * 5 + [0] * 94 + [1] * 2)
    dawn = history.forecast(now_ms, HOUR_MS)
    unlearned = DemandHistory()
    observe_bins(unlearned, [0] * 94 + [1] * 2, start_bin=5 * 288)
    assert dawn.mean > 4 * unlearned.forecast(now_ms, HOUR_MS).mean


def test_long_silence_is_not_worked_through_bin_by_bin():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 100)
    forecast = history.forecast(now_ms + 10**9 * DAY_MS, HOUR_MS)
    assert (forecast.mean, forecast.bins_seen) == (0, 99), "the bin that was open is forgotten"


def test_late_observation_counts_in_the_bin_that_is_open():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 10)
    history.observe(now_ms, 4)
    history.observe(now_ms - DAY_MS, 4)
    assert history.forecast(now_ms + BIN_MS, BIN_MS).bins_seen == 11


def test_copy_learns_on_its_own():
    history = DemandHistory()
    now_ms = observe_bins(history, [8] * 10)
    fork = history.copy()
    before = history.forecast(now_ms + DAY_MS, HOUR_MS)
    observe_bins(fork, [100] * 288, start_bin=10)
    assert history.forecast(now_ms + DAY_MS, HOUR_MS) == before
    assert fork.forecast(now_ms + DAY_MS, HOUR_MS).mean > 500


def test_quantiles_hold_on_a_poisson_stream():
    """At the level of 20 a bin and half an hour ahead; 400 forecasts, overlapping, so the tolerance is wide."""
    counts = np.random.default_rng(7).poisson(20, size=500)
    history, within = DemandHistory(), {"p50": [], "p90": [], "p99": []}
    for index in range(494):
        now_ms = observe_bins(history, [int(counts[index])], start_bin=index)
        if index >= 94:
            forecast = history.forecast(now_ms, 6 * BIN_MS)
            for name, seen in within.items():
                seen.append(counts[index + 1 : index + 7].sum() <= getattr(forecast, name))
    assert np.mean(within["p50"]) == pytest.approx(0.5, abs=0.12)
    assert np.mean(within["p90"]) == pytest.approx(0.9, abs=0.06)
    assert np.mean(within["p99"]) > 0.96


@pytest.mark.parametrize(
    ("mean", "share", "count"),
    [(0.1, 0.5, 0), (0.1, 0.99, 1), (1.0, 0.5, 1), (1.0, 0.9, 2), (4.0, 0.9, 7), (10.0, 0.99, 18), (100.0, 0.9, 113)],
)
def test_poisson_quantiles_are_those_of_tables(mean, share, count):
    assert count_quantile(mean, 1.0, share, DEVIATES[share]) == count


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(
    ("mean", "dispersion"), [(3.0, 4.0), (50.0, 2.0), (2_000.0, 1.0), (5_000.0, 6.0), (300.0, 40.0)]
)
def test_quantiles_agree_with_sampling(mean, dispersion, share):
    rng = np.random.default_rng(3)
    if dispersion > 1:
        sampled = rng.negative_binomial(mean / (dispersion - 1), 1 / dispersion, size=100_000)
    else:
        sampled = rng.poisson(mean, size=100_000)
    expected = np.quantile(sampled, share)
    assert count_quantile(mean, dispersion, share, DEVIATES[share]) == pytest.approx(expected, rel=0.03, abs=1)


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 10_000), st.floats(1, 100))
def test_quantiles_rise_with_their_share(mean, dispersion):
    low, middle, high = (count_quantile(mean, dispersion, share, deviate) for share, deviate in DEVIATES.items())
    assert 0 <= low <= middle <= high
