"""What a benchmark gives: figures, each with a bar that it must reach, and how they are shown and kept."""

import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

REPEATS: Final = 3
"""Each short measurement is made so often, and the best counts: on a shared machine the others measure neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number.

    bar: what it must reach, None = shown for comparison only. is_rate: more is better; otherwise less is. baseline: the
    other way of doing the same in this run, and ratio: how many times better than it this is.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    is_rate: bool = True
    baseline: str = ""
    ratio: float | None = None

    @property
    def is_reached(self) -> bool:
        """Whether the bar is reached; True without one."""
        return self.bar is None or (self.value >= self.bar if self.is_rate else self.value <= self.bar)


Benchmark = Callable[[], Iterable[Figure]]


class Stopwatch:
    """Wall-clock seconds of a `with` block."""

    seconds = 0.0

    def __enter__(self) -> "Stopwatch":
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begun


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No collection of cycles while something is measured, as in the twin's own loop."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def compare(figure: Figure, baseline: Figure) -> Figure:
    """`figure` with its ratio to `baseline`, a rate in the same unit."""
    return Figure(**{**asdict(figure), "baseline": baseline.name, "ratio": figure.value / baseline.value})


def render_table(figures: Sequence[Figure]) -> Table:
    """All figures, one a line."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("what", no_wrap=True)
    for header in ("measured", "unit", "bar", "reached", "times the baseline"):
        table.add_column(header, justify="right")
    for figure in figures:
        bar = "" if figure.bar is None else f"{'≥' if figure.is_rate else '≤'} {_number(figure.bar)}"
        verdict = "" if figure.bar is None else "yes" if figure.is_reached else "[bold red]no[/]"
        ratio = figure.baseline if figure.ratio is None else f"{figure.ratio:.2f} × {figure.baseline}"
        table.add_row(figure.name, _number(figure.value), figure.unit, bar, verdict, ratio)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_json(figures: Sequence[Figure], path: Path) -> None:
    """All figures with their verdicts, for machines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(figure), "is_reached": figure.is_reached} for figure in figures]
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
