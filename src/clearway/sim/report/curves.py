"""Curves with few enough points to draw, from any number of samples or jobs. Pure arithmetic."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.sim.metrics import time_weights_ms
from clearway.sim.result import IntColumn, Series

FloatColumn = NDArray[np.float64]

TIME_POINTS: Final = 320
"""Points of a curve over time: a plot is some 900 pixels wide, and finer ones hide the shape in noise."""

CDF_POINTS: Final = 240
"""Points of a distribution. They are quantiles, so both tails keep theirs."""


@dataclass(frozen=True, slots=True)
class Curve:
    """x and y: float64[m], m ≤ the bound that it was made with."""

    x: FloatColumn
    y: FloatColumn


def bin_over_time(series: Series, values: IntColumn, end_ms: int, points: int = TIME_POINTS) -> Curve:
    """Time-weighted means of `values` (one per row of `series`) in `points` equal parts of [0, end_ms], at the middles.

    x in ms. Exact: the integral under the curve is that of the series.
    """
    if len(series.time_ms) == 0 or end_ms <= 0:
        return Curve(np.zeros(0), np.zeros(0))
    edges = np.linspace(0, end_ms, points + 1)
    times = series.time_ms.astype(np.float64)
    weights = time_weights_ms(series, end_ms).astype(np.float64)
    integral = np.concatenate([[0.0], np.cumsum(values * weights)])
    at_edges = np.interp(edges, np.append(times, times[-1] + weights[-1]), integral)
    return Curve((edges[:-1] + edges[1:]) / 2, np.diff(at_edges) / np.diff(edges))


def distribution(values: FloatColumn, points: int = CDF_POINTS) -> Curve:
    """Cumulative distribution of `values`: x a value, y the share of values that are not larger, from 0 to 1."""
    if len(values) == 0:
        return Curve(np.zeros(0), np.zeros(0))
    shares = np.linspace(0.0, 1.0, min(points, len(values)))
    return Curve(np.quantile(values, shares, method="inverted_cdf").astype(np.float64), shares)
