"""Forecasts of demand along a workload, as a forecaster beside a live kernel would have sent them.

A forecast rests on the arrivals before it alone. Arrivals do not depend on what is decided, so all forecasts of a run
can be made before it, and be handed to the twin as events from outside.
"""

from collections.abc import Iterable
from typing import Final

from clearway.forecast.demand import BIN_MS, DemandHistory
from clearway.model.events import DemandForecast
from clearway.model.jobs import JobKind
from clearway.model.units import MILLI
from clearway.sim.recorder import asked_milli
from clearway.sim.workload import TraceJob

SUDDEN_KINDS: Final = (JobKind.SERVICE, JobKind.TASK, JobKind.INTERACTIVE)
"""Kinds whose users wait for the start."""

HORIZON_MS: Final = BIN_MS
"""Devices are wanted for what arrives until the next forecast; what comes later can be made room for by then."""

VALID_MS: Final = 2 * BIN_MS
"""A forecast counts until the next one, and no longer than one that was missed."""


def forecast_demand(jobs: Iterable[TraceJob]) -> list[DemandForecast]:
    """One forecast at the end of each bin of time from the first sudden job to the last: the devices that arrivals will
    not exceed, with 99 % chance, until the next. Nothing where no job is sudden."""
    history = DemandHistory()
    forecasts: list[DemandForecast] = []
    due_ms = 0
    for job in jobs:
        if job.spec.kind not in SUDDEN_KINDS:
            continue
        if not due_ms:
            due_ms = (job.submit_ms // BIN_MS + 1) * BIN_MS
        while due_ms <= job.submit_ms:
            wanted = history.forecast(due_ms, HORIZON_MS).p99
            forecasts.append(DemandForecast(due_ms, wanted, due_ms + VALID_MS))
            due_ms += BIN_MS
        history.observe(job.submit_ms, -(-asked_milli(job) // MILLI))
    return forecasts
