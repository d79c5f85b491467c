"""How well a synthetic model fits: figures of the trace beside those of what is drawn from the model.

Only jobs with devices count on either side. The figures are those for which people fit: how jobs bunch, the day, sizes,
run times and load. A model whose figures are off is no failure, but whoever uses it should know.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.model.units import HOUR_MS, MILLI, MINUTE_MS, SECOND_MS
from clearway.sim.bursts import HOURS, find_batches
from clearway.sim.generate import SyntheticModel, generate
from clearway.sim.workload import TraceJob, Workload

IntArray = NDArray[np.int64]

DRAWN_MAX: Final = 300_000
"""Jobs drawn in all: enough that more change no figure, some ten seconds."""
DRAWS_MAX: Final = 5
"""Of small traces so many workloads are drawn, and the mean is told: one alone may lack the largest burst."""
QUANTILES: Final = (0.1, 0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRow:
    """One figure of the trace and of what is drawn (a mean over draws). unit: as for metrics; "" = a plain number."""

    key: str
    unit: str
    trace: float
    drawn: float

    @property
    def ratio(self) -> float | None:
        """Drawn over trace; None where the trace has 0."""
        return self.drawn / self.trace if self.trace else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuality:
    """How well a model fits. hours_trace, hours_drawn: 24 rates relative to the mean."""

    jobs: int
    jobs_without_devices: int
    draws: int
    rows: tuple[FitRow, ...]
    hours_trace: tuple[float, ...]
    hours_drawn: tuple[float, ...]


def judge_fit(workload: Workload, model: SyntheticModel, seed: int = 0) -> FitQuality:
    """Draw from a model that was fitted to the workload, and compare. seed: of the first draw."""
    jobs = [job for job in workload.jobs if job.spec.request.device_milli > 0]
    trace = replace(workload, jobs=jobs)
    count = min(len(jobs), DRAWN_MAX)
    draws = max(1, min(DRAWS_MAX, DRAWN_MAX // count))
    drawn = [generate(model, jobs=count, seed=seed + number) for number in range(draws)]
    own, others = _figures_of(trace), [_figures_of(one) for one in drawn]
    hours = np.mean([_hours_of(one) for one in drawn], axis=0)
    rows = (
        FitRow(key=key, unit=unit, trace=value, drawn=float(np.mean([other[key, unit] for other in others])))
        for (key, unit), value in own.items()
    )
    return FitQuality(
        jobs=len(jobs),
        jobs_without_devices=len(workload.jobs) - len(jobs),
        draws=draws,
        rows=tuple(rows),
        hours_trace=tuple(_hours_of(trace).tolist()),
        hours_drawn=tuple(hours.tolist()),
    )


def dispersion(times_ms: IntArray, bin_ms: int) -> float:
    """Variance over mean of the arrivals of each bin: 1 where jobs come independently of each other.

    times_ms: not falling, at least one.
    """
    bins = int((times_ms[-1] - times_ms[0]) // bin_ms) + 1
    counts = np.unique((times_ms - times_ms[0]) // bin_ms, return_counts=True)[1].astype(np.float64)
    mean = len(times_ms) / bins
    return float((np.dot(counts, counts) / bins - mean**2) / mean)


def _figures_of(workload: Workload) -> Mapping[tuple[str, str], float]:
    return dict(_iterate_figures(workload))


def _iterate_figures(workload: Workload) -> Iterator[tuple[tuple[str, str], float]]:
    """((key, unit), figure) of all that is compared, in order."""
    jobs = workload.jobs
    times_ms = np.array([job.submit_ms for job in jobs], dtype=np.int64)
    run_s = np.array([job.run_ms for job in jobs], dtype=np.float64) / SECOND_MS
    devices = np.array([_devices_of(job) for job in jobs])
    span_s = max(1, int(times_ms[-1] - times_ms[0])) / SECOND_MS
    hours = _hours_of(workload)
    yield ("jobs_per_hour", ""), len(jobs) / span_s * HOUR_MS / SECOND_MS
    yield ("dispersion_minute", ""), dispersion(times_ms, MINUTE_MS)
    yield ("dispersion_hour", ""), dispersion(times_ms, HOUR_MS)
    yield ("burst_jobs_ratio", "ratio"), _share_in_bursts(jobs, times_ms)
    yield ("busiest_hour", ""), float(hours.max())
    yield ("quietest_hour", ""), float(hours.min())
    for key, unit, values in (("devices", "", devices), ("run", "s", run_s)):
        yield (f"{key}_mean", unit), float(values.mean())
        for probability, value in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True):
            yield (f"{key}_p{probability * 100:.0f}", unit), float(value)
    yield ("device_s_per_job", "device-s"), float((run_s * devices).mean())
    yield ("load", ""), float(np.dot(run_s, devices) / span_s)
    yield ("users", ""), float(len({(job.spec.tenant, job.spec.user) for job in jobs}))


def _devices_of(job: TraceJob) -> float:
    return job.spec.replicas * job.spec.request.device_milli / MILLI


def _share_in_bursts(jobs: Sequence[TraceJob], times_ms: IntArray) -> float:
    shapes = [(job.spec.replicas, job.spec.request.device_milli) for job in jobs]
    owners = [(job.spec.tenant, job.spec.user) for job in jobs]
    sizes = find_batches(owners, shapes, times_ms.tolist()).jobs
    return float(sizes[sizes > 1].sum() / sizes.sum())


def _hours_of(workload: Workload) -> NDArray[np.float64]:
    """Arrivals by hour of the day, relative to their mean."""
    start_ms = workload.start_unix_ms or 0
    hours = np.array([(start_ms + job.submit_ms) // HOUR_MS % HOURS for job in workload.jobs])
    return np.bincount(hours, minlength=HOURS) * HOURS / len(hours)
