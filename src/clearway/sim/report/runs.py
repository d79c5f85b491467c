"""What a report is made from."""

from dataclasses import dataclass

from clearway.sim.bounds import Bounds
from clearway.sim.metrics import Metrics
from clearway.sim.result import SimResult


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One run with what was measured. bounds None = not computed."""

    result: SimResult
    metrics: Metrics
    bounds: Bounds | None = None


def label_runs(runs: tuple[ReportRun, ...]) -> tuple[str, ...]:
    """A name for each run that no other has: its policy, with the seed and then a number where that is not enough."""
    names = [run.result.policy for run in runs]
    if len(set(names)) < len(names):
        names = [f"{run.result.policy}, seed {run.result.seed}" for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name} #{number}" for number, name in enumerate(names, start=1)]
    return tuple(names)
