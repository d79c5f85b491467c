"""Draws the pictures of docs/pictures from runs of the twin on generated workloads: `make pictures`."""

from pathlib import Path
from typing import Final

from clearway.bootstrap.comparison import make_comparison_request, run_comparison
from clearway.bootstrap.simulation import SimulationRequest
from clearway.sim.report import ReportRun, write_overview_png

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
WORKLOAD: Final = "synthetic:philly-like?jobs=2000&load=0.9&devices=64"
CLUSTER: Final = "8x8"
POLICIES: Final = "fifo,easy,srpt,clearway"


def draw_overview(path: Path) -> None:
    """One workload under the policies that a newcomer asks for first; README quotes the same command."""
    base = SimulationRequest(trace=WORKLOAD, policy="", cluster=CLUSTER)
    comparison = run_comparison(make_comparison_request(base, policies=POLICIES, seeds=1, processes=None))
    write_overview_png(path, [ReportRun(run.result, run.metrics, run.bounds) for run in comparison.first_runs])


def main() -> None:
    """Draw every picture."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    draw_overview(PICTURES / "overview.png")


if __name__ == "__main__":
    main()
