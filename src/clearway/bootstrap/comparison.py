"""One trace under several policies and seeds, one process per core.

Every run reads its inputs by itself, from the same request, so that a run in another process is the run that `simulate`
would make. Results come back in the order of policies and seeds, whatever order they were done in.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clearway.bootstrap.inputs import NO_FAULTS, ProgressCallback, is_drawn
from clearway.bootstrap.policies import read_policy
from clearway.bootstrap.simulation import Run, SimulationRequest, prepare, run_prepared
from clearway.model.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMetric:
    """A column of a comparison. path: fields of `Run` from the outside in. is_better_high: which way is better."""

    key: str
    label: str
    unit: str
    path: tuple[str, ...]
    is_better_high: bool = False


COMPARED: Final = (
    ComparedMetric(key="wait_mean_s", label="Mean wait", unit="s", path=("metrics", "wait_s", "mean")),
    ComparedMetric(key="wait_p99_s", label="Wait p99", unit="s", path=("metrics", "wait_s", "p99")),
    ComparedMetric(key="jct_mean_s", label="Mean JCT", unit="s", path=("metrics", "jct_s", "mean")),
    ComparedMetric(key="jct_p99_s", label="JCT p99", unit="s", path=("metrics", "jct_s", "p99")),
    ComparedMetric(key="makespan_s", label="Makespan", unit="s", path=("metrics", "makespan_s")),
    ComparedMetric(
        key="device_allocation_ratio",
        label="Allocation",
        unit="ratio",
        path=("metrics", "device_allocation_ratio"),
        is_better_high=True,
    ),
    ComparedMetric(
        key="finish_time_fairness_p99",
        label="Unfairness ρ p99",
        unit="1",
        path=("metrics", "finish_time_fairness", "p99"),
    ),
    ComparedMetric(key="preemptions", label="Preemptions", unit="count", path=("metrics", "preemptions")),
    ComparedMetric(key="lost_device_s", label="Lost", unit="device-s", path=("metrics", "lost_device_s")),
    ComparedMetric(
        key="jobs_finished", label="Finished", unit="jobs", path=("metrics", "jobs_finished"), is_better_high=True
    ),
)
"""What policies are compared by, in the order of the columns."""

BOUNDED: Final = ("jct_mean_s", "makespan_s", "device_allocation_ratio")
"""Metrics that have a limit, as `Bounds` names them."""

ROUNDING: Final = 1e-9
"""By so much a ratio may lie above its bound because both are rounded."""

FloatCells = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """base: what holds for every run. seeds: those that differ; fewer than asked for where chance plays no part."""

    base: SimulationRequest
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    seeds_asked: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One cell: mean over the seeds and standard deviation (of the sample; 0 for one seed)."""

    mean: float
    deviation: float
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """runs: by policy, then seed. figures: by policy, one for each of `COMPARED`."""

    request: ComparisonRequest
    runs: tuple[tuple[Run, ...], ...]
    figures: tuple[tuple[Figure, ...], ...]

    @property
    def first_runs(self) -> tuple[Run, ...]:
        """The run of the first seed of every policy."""
        return tuple(runs[0] for runs in self.runs)

    @property
    def limits(self) -> dict[str, float]:
        """By key of a metric, the mean over the seeds of its bound for the jobs that the first policy finished."""
        bounds = [run.bounds for run in self.runs[0]]
        return {key: float(np.mean([getattr(each, key) for each in bounds])) for key in BOUNDED}


def make_comparison_request(
    base: SimulationRequest, *, policies: str, seeds: int, processes: int | None
) -> ComparisonRequest:
    """Split and check what was asked for. InputError for an unknown, empty or repeated policy."""
    names = tuple(name.strip() for name in policies.split(","))
    if "" in names or len(set(names)) < len(names):
        raise InputError(f"--policies: expected different names by commas, found {policies!r}; name each policy once")
    for name in names:
        read_policy(name)
    plays_chance = base.faults != NO_FAULTS or is_drawn(base.trace, base.format_name)
    count = seeds if plays_chance else 1
    runs = len(names) * count
    return ComparisonRequest(
        base=base,
        policies=names,
        seeds=tuple(range(base.seed, base.seed + count)),
        seeds_asked=seeds,
        processes=min(runs, processes or len(os.sched_getaffinity(0))),
    )


def run_comparison(request: ComparisonRequest, progress: ProgressCallback | None = None) -> Comparison:
    """Make every run. progress: called with (runs done, runs in all)."""
    cells = [replace(request.base, policy=name, seed=seed) for name in request.policies for seed in request.seeds]
    done = _run_cells(cells, request.processes, progress)
    runs = tuple(tuple(next(done) for _ in request.seeds) for _ in request.policies)
    return Comparison(request=request, runs=runs, figures=figures_of(runs))


def run_request(request: SimulationRequest) -> Run:
    """One cell of the comparison, start to end."""
    return run_prepared(prepare(request))


def _run_cells(cells: Sequence[SimulationRequest], processes: int, progress: ProgressCallback | None) -> Iterator[Run]:
    """Runs in the order of `cells`."""
    tell = progress if progress is not None else lambda _done, _total: None
    tell(0, len(cells))
    run_all = _run_here if processes == 1 else partial(_run_apart, processes=processes)
    return iter(run_all(cells, tell))


def _run_here(cells: Sequence[SimulationRequest], tell: ProgressCallback) -> list[Run]:
    runs = []
    for done, cell in enumerate(cells, start=1):
        runs.append(run_request(cell))
        tell(done, len(cells))
    return runs


def _run_apart(cells: Sequence[SimulationRequest], tell: ProgressCallback, *, processes: int) -> list[Run]:
    """Fresh processes, not forks: a fork of a process with threads (the progress bar, linear algebra) may hang."""
    spawn = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=follow_parent) as pool:
        futures = [pool.submit(run_request, cell) for cell in cells]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                if future.exception() is not None:
                    pool.shutdown(wait=False, cancel_futures=True)
                    future.result()
                tell(done, len(cells))
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                if child not in others:
                    child.terminate()
            raise
        return [future.result() for future in futures]


def follow_parent() -> None:
    """In a process for runs: Ctrl-C is its parent's to hear, and it ends with its parent, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process for runs has been started by another"
    parent.join()
    os._exit(1)


def value_of(run: Run, metric: ComparedMetric) -> float:
    """The value of one metric in one run."""
    value: Any = run
    for name in metric.path:
        value = getattr(value, name)
    return float(value)


def figures_of(runs: Sequence[Sequence[Run]]) -> tuple[tuple[Figure, ...], ...]:
    """float64[policies, metrics, seeds] reduced over seeds. A metric that is equal everywhere has no best; nor is it
    good to hold more devices than the work can use: an allocation beyond its bound was spent on what was lost."""
    values = np.array([[[value_of(run, metric) for run in row] for metric in COMPARED] for row in runs])
    means = values.mean(axis=2)
    deviations = values.std(axis=2, ddof=1) if values.shape[2] > 1 else np.zeros_like(means)
    sound = np.where(_beyond_bound(runs, values).any(axis=2), np.nan, means)
    is_best = np.stack([_best(sound[:, place], metric) for place, metric in enumerate(COMPARED)], axis=1)
    return tuple(
        tuple(
            Figure(mean=float(mean), deviation=float(deviation), is_best=bool(best))
            for mean, deviation, best in zip(*row, strict=True)
        )
        for row in zip(means, deviations, is_best, strict=True)
    )


def _beyond_bound(runs: Sequence[Sequence[Run]], values: FloatCells) -> NDArray[np.bool_]:
    """bool[policies, metrics, seeds]: allocations above what the jobs could hold without losses."""
    limits = np.array([[run.bounds.device_allocation_ratio for run in row] for row in runs])
    is_allocation = np.array([metric.key == "device_allocation_ratio" for metric in COMPARED])
    beyond: NDArray[np.bool_] = (values > limits[:, None, :] + ROUNDING) & is_allocation[None, :, None]
    return beyond


def _best(means: np.ndarray[Any, np.dtype[np.float64]], metric: ComparedMetric) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool[policies]: which are best; none where all are equal or nothing was measured."""
    known = means[np.isfinite(means)]
    if len(known) == 0 or known.min() == known.max():
        return np.zeros(len(means), dtype=np.bool_)
    return np.asarray(means == (known.max() if metric.is_better_high else known.min()), dtype=np.bool_)
