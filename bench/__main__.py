"""`python -m bench [NAME …]`: run all benchmarks, or those named, and print one table. Writes out/bench.json too."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.compiling import measure_compiled
from bench.figures import Benchmark, Figure, render_table, write_json
from bench.kube_fill import measure_fill
from bench.kube_rest import measure_rest
from bench.kubernetes import measure_kubernetes
from bench.live_driver import measure_driver
from bench.living import (
    measure_live_burst,
    measure_live_gangs,
    measure_live_latency,
    measure_live_lists,
    measure_live_rate,
    measure_live_submits,
)
from bench.memory import measure_memory
from bench.placing import measure_gangs, measure_life, measure_placements
from bench.planning import measure_plans, measure_replans
from bench.replaying import measure_accasim, measure_million, measure_philly, measure_ricc
from bench.storage import measure_journal, measure_lists, measure_submits

OUT: Final = Path(__file__).parents[1] / "out" / "bench.json"
WIDTH: Final = 150
"""Columns of the table where it does not go to a screen: no name is broken."""

BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "placements": measure_placements,
    "gangs": measure_gangs,
    "life": measure_life,
    "plans": measure_plans,
    "replans": measure_replans,
    "memory": measure_memory,
    "million": measure_million,
    "ricc": measure_ricc,
    "accasim": measure_accasim,
    "philly": measure_philly,
    "compiled": measure_compiled,
    "submits": measure_submits,
    "lists": measure_lists,
    "journal": measure_journal,
    "live-driver": measure_driver,
    "live-latency": measure_live_latency,
    "live-rate": measure_live_rate,
    "live-submits": measure_live_submits,
    "live-lists": measure_live_lists,
    "live-gangs": measure_live_gangs,
    "live-burst": measure_live_burst,
    "kubernetes": measure_kubernetes,
    "kubernetes-fill": measure_fill,
    "kubernetes-rest": measure_rest,
}


def run_benchmarks(names: list[str], console: Console) -> list[Figure]:
    """All figures of the benchmarks named, in order."""
    figures: list[Figure] = []
    columns = (TextColumn("{task.description:<12}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            figures.extend(BENCHMARKS[name]())
            progress.advance(task)
    return figures


def main() -> int:
    """Exit code 0, or 2 for an unknown name. A bar that is not reached is shown, not an error: machines differ."""
    names = sys.argv[1:] or list(BENCHMARKS)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        console.print(f"bench: expected names among {', '.join(BENCHMARKS)}; found {', '.join(unknown)}")
        return 2
    figures = run_benchmarks(names, console)
    console.print(render_table(figures))
    write_json(figures, OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
