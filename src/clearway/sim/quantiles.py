"""Distributions as tables of quantiles: fitted to data, sampled by inverse transform, linear between the quantiles.

Nothing is assumed about the form of a distribution; run times and repair times have tails that no common one follows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PROBABILITIES = (*(step / 20 for step in range(20)), 0.975, 0.99, 0.995, 0.999, 1.0)
"""Where the quantiles of every table lie: 5 % apart, closer in the upper tail, where most of the time is."""


def fit_quantiles(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    """Quantiles at PROBABILITIES. values: at least one."""
    return tuple(float(value) for value in np.quantile(np.asarray(values, dtype=np.float64), PROBABILITIES))


def mean_of_quantiles(quantiles: Sequence[float]) -> float:
    """The mean of draws from a table."""
    return float(np.trapezoid(quantiles, PROBABILITIES))


def draw_quantiles(quantiles: Sequence[float], count: int, rng: np.random.Generator) -> FloatArray:
    """`count` independent draws from a table."""
    return at_quantiles(quantiles, rng.random(count))


def at_quantiles(quantiles: Sequence[float], points: FloatArray) -> FloatArray:
    """The values of a table at points from 0 to 1."""
    return np.interp(points, PROBABILITIES, quantiles)
