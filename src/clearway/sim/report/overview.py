"""One picture that says at a glance what the policies did, for a README or a slide."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clearway.model.units import DAY_MS
from clearway.sim.extras import load_extra
from clearway.sim.report.canvas import LIGHT_PALETTE, PALETTE_SIZE, cut_name, drawing_style
from clearway.sim.report.figures import draw_bars, draw_share, time_unit_ms
from clearway.sim.report.numbers import render_duration, render_ratio
from clearway.sim.report.runs import ReportRun, label_runs
from clearway.sim.report.texts import ENGLISH

RUNS_DRAWN: Final = 5
"""More panels would be too flat to read."""

SIZE_INCHES: Final = (10.0, 4.8)
DOTS_PER_INCH: Final = 160
INK, MUTED, GRID = "#1f2328", "#59636e", "#d8dee4"
ON_WHITE: Final = {
    "figure.facecolor": "white",
    "figure.constrained_layout.w_pad": 0.09,
    "figure.constrained_layout.h_pad": 0.07,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "grid.color": GRID,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
}


def write_overview_png(path: Path, runs: Sequence[ReportRun]) -> None:
    """Draw use over time, waits, completion times and effective use of the first `RUNS_DRAWN` runs.

    Raises MissingExtraError.
    """
    shown = tuple(runs[:RUNS_DRAWN])
    labels = label_runs(shown)
    colours = [LIGHT_PALETTE[index % PALETTE_SIZE] for index in range(len(shown))]
    with drawing_style(ON_WHITE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = load_extra("matplotlib.figure").Figure(figsize=SIZE_INCHES, layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1), wspace=0.03)
        _draw_use(left, shown, labels, colours)
        _draw_summary(right, shown, labels, colours)
        figure.savefig(path, dpi=DOTS_PER_INCH, format="png", metadata={"Software": None})


def _draw_use(area: Any, runs: Sequence[ReportRun], labels: Sequence[str], colours: Sequence[str]) -> None:
    unit_ms = time_unit_ms(runs)
    axes = area.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
    area.suptitle("Devices in use over time", fontsize=11, fontweight="bold", x=0.01, ha="left")
    for run, label, colour, axis in zip(runs, labels, colours, axes, strict=True):
        draw_share(axis, run, colour, unit_ms, ink=MUTED)
        axis.set_title(cut_name(label))
    axes[-1].set_xlabel(ENGLISH["axis_time_h" if unit_ms < DAY_MS else "axis_time_d"])


def _draw_summary(area: Any, runs: Sequence[ReportRun], labels: Sequence[str], colours: Sequence[str]) -> None:
    axes = area.subplots(3, 1)
    waits = [run.metrics.wait_s.mean for run in runs]
    times = [run.metrics.jct_s.mean for run in runs]
    uses = [run.metrics.effective_use_ratio for run in runs]  # what is done again must not look like use
    bars = (
        (waits, "Mean wait", render_duration),
        (times, "Mean completion time", render_duration),
        (uses, "Effective use of devices", render_ratio),
    )
    for axis, (values, title, render) in zip(axes, bars, strict=True):
        draw_bars(axis, values, labels, title, colours=colours, render=render, paper="white")
    bounds = [run.bounds for run in runs if run.bounds is not None]
    if bounds:
        limits = (min(bound.jct_mean_s for bound in bounds), max(bound.device_allocation_ratio for bound in bounds))
        for axis, limit in zip(axes[1:], limits, strict=True):
            axis.axvline(limit, color=MUTED, linewidth=0.9, linestyle=(0, (5, 3)), label="best possible (bound)")
        axes[2].legend(loc="upper center", bbox_to_anchor=(0.45, -0.02), frameon=False, labelcolor=MUTED)
    axes[2].set_xlim(0, 1.28)
