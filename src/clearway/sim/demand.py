"""Forecasts of demand along a workload, as a forecaster beside a kernel would have sent them.

Arrivals do not depend on what is decided, so all forecasts of a run can be made before it, and be handed to the twin as
events from outside.
"""

from collections.abc import Iterable

from clearway.forecast.feed import SUDDEN_KINDS, DemandFeed
from clearway.model.events import DemandForecast
from clearway.sim.workload import TraceJob


def forecast_demand(jobs: Iterable[TraceJob]) -> list[DemandForecast]:
    """One forecast at the end of each bin of time from the first sudden job to the last; nothing where none is."""
    feed = DemandFeed()
    forecasts: list[DemandForecast] = []
    for job in jobs:
        if job.spec.kind in SUDDEN_KINDS:
            while feed.next_ms <= job.submit_ms:
                forecasts.append(feed.forecast())
            feed.observe(job.spec, job.submit_ms)
    return forecasts
