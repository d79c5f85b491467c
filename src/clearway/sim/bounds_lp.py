"""Prices of device-time on clusters of several device types, found by linear programs that HiGHS solves.

A price list makes a lower bound by weak duality, whatever the prices are: the callers evaluate it exactly over all
jobs, so neither the solver's tolerance nor the grouping of jobs that keeps the programs small can make a bound too
high. Better prices only make it higher.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clearway.sim.bounds_work import WorkTable
from clearway.sim.extras import load_extra

FloatColumn = NDArray[np.float64]
FloatTable = NDArray[np.float64]
IndexColumn = NDArray[np.int64]

CLASSES_MAX: Final = 256
"""Classes of jobs in one program. With some ten device types this is a program of a few thousand variables: well under
a second. More classes would make prices a little better."""

INTERVALS: Final = 24
"""Intervals of equal length in the program over time. Each more multiplies the variables; a day of a month is enough
to see where a queue stands."""

RATIO_STEP: Final = 1.05
"""Jobs whose areas on all types stand in the same ratios up to this factor share a class."""

SIZE_STEP: Final = 4.0
"""Jobs of one class in the program over time differ in area by at most this factor."""


@dataclass(frozen=True, slots=True)
class IntervalPrices:
    """per_device_ms: float64[T, K + 1], price of a device-ms of each type in each interval (the last, endless one: 0).

    edges_ms: float64[K + 1]: interval k begins at edges_ms[k].
    """

    per_device_ms: FloatTable
    edges_ms: FloatColumn


def find_makespan_prices(work: WorkTable) -> FloatColumn:
    """float64[T]: prices from the program "share out all areas over the types so that the fullest is least full".

    Minimise τ over shares y: Σ_t y_ct = 1 for each class c; Σ_c area_ct y_ct ≤ devices_t τ for each type t. The prices
    are the duals of the second. After Lawler and Labetoulle (JACM 25(4), 1978). Raises MissingExtraError.
    """
    areas, _ = _group(work, _ratio_codes(work, RATIO_STEP)[:, None])
    classes, types = areas.shape
    row, kind = np.nonzero(np.isfinite(areas))
    columns = len(row)
    scale = max(float(areas[row, kind].max(initial=0.0)), 1.0)
    use = np.concatenate([areas[row, kind] / scale, -work.devices])
    use_rows = np.concatenate([kind, np.arange(types)])
    use_columns = np.concatenate([np.arange(columns), np.full(types, columns)])
    solution = _solve(
        cost=np.concatenate([np.zeros(columns), [1.0]]),
        upper=_sparse(use, use_rows, use_columns, (types, columns + 1)),
        upper_limit=np.zeros(types),
        equal=_sparse(np.ones(columns), row, np.arange(columns), (classes, columns + 1)),
        equal_to=np.ones(classes),
    )
    return np.maximum(-np.asarray(solution.ineqlin.marginals, dtype=np.float64), 0.0)


def find_interval_prices(work: WorkTable, horizon_ms: float) -> IntervalPrices:
    """Prices from the interval-indexed program of mean busy times, over `horizon_ms` in `INTERVALS` parts.

    Minimise Σ mid_k y_ctk over y: Σ_tk y_ctk = jobs in class c; Σ_c area_ct y_ctk ≤ devices_t × length for each type
    and interval; y_ctk = 0 before the class is released. After Hall, Schulz, Shmoys and Wein (Mathematics of Operations
    Research 22(3), 1997). Raises MissingExtraError.
    """
    length = horizon_ms / INTERVALS
    edges = np.linspace(0.0, horizon_ms, INTERVALS + 1)
    released = np.minimum((work.release_ms / length).astype(np.int64), INTERVALS)
    sizes = np.floor(np.log(np.maximum(work.area_ms.min(axis=1), 1.0)) / np.log(SIZE_STEP)).astype(np.int64)
    areas, keys = _group(work, np.stack([released, sizes, _ratio_codes(work, RATIO_STEP**4)], axis=1))
    counts = keys[:, -1]
    row, kind, interval = np.nonzero(
        np.isfinite(areas)[:, :, None] & (np.arange(INTERVALS + 1) >= keys[:, 0, None, None])
    )
    columns, types = len(row), len(work.devices)
    bounded = np.flatnonzero(interval < INTERVALS)
    use = areas[row, kind] / counts[row] / length
    solution = _solve(
        cost=interval.astype(np.float64) + 0.5,
        upper=_sparse(
            use[bounded], kind[bounded] * INTERVALS + interval[bounded], bounded, (types * INTERVALS, columns)
        ),
        upper_limit=np.repeat(work.devices, INTERVALS),
        equal=_sparse(np.ones(columns), row, np.arange(columns), (len(counts), columns)),
        equal_to=counts,
    )
    prices = np.zeros((types, INTERVALS + 1))
    prices[:, :INTERVALS] = np.maximum(-np.asarray(solution.ineqlin.marginals), 0.0).reshape(types, INTERVALS)
    return IntervalPrices(per_device_ms=prices, edges_ms=edges)


def _ratio_codes(work: WorkTable, step: float) -> IndexColumn:
    """int64[n]: equal for jobs whose areas stand in equal ratios, up to the factor `step`, on the same types."""
    least = np.maximum(work.area_ms.min(axis=1, keepdims=True), 1e-9)
    with np.errstate(divide="ignore"):
        steps = np.log(np.maximum(work.area_ms, 1e-9) / least) / np.log(step)
    codes = np.where(np.isfinite(steps), np.round(np.minimum(steps, 1e6)), -1).astype(np.int64)
    return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _group(work: WorkTable, keys: IndexColumn) -> tuple[FloatTable, FloatTable]:
    """Total areas float64[c, T] of jobs with equal keys, and the keys with the number of jobs as a last column.

    Where there are more than `CLASSES_MAX` classes, only those of most area are kept: the rest has no say in prices.
    """
    found, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    areas = np.zeros((len(found), work.area_ms.shape[1]))
    np.add.at(areas, inverse, work.area_ms)
    described = np.concatenate([found, np.bincount(inverse, minlength=len(found))[:, None]], axis=1).astype(np.float64)
    kept = np.sort(np.argsort(-areas.min(axis=1), kind="stable")[:CLASSES_MAX])
    return areas[kept], described[kept]


def _sparse(values: FloatColumn, rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    return load_extra("scipy.sparse").csr_array((values, (rows, columns)), shape=shape)


def _solve(*, cost: FloatColumn, upper: Any, upper_limit: Any, equal: Any, equal_to: Any) -> Any:
    """The solution of: minimise cost·x, x ≥ 0, upper·x ≤ upper_limit, equal·x = equal_to, by HiGHS."""
    solution = load_extra("scipy.optimize").linprog(
        cost, A_ub=upper, b_ub=upper_limit, A_eq=equal, b_eq=equal_to, bounds=(0, None), method="highs"
    )
    assert solution.success, f"a feasible and bounded linear program was not solved: {solution.message}"
    return solution
