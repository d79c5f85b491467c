"""The drawings of the report, each from all runs, as inline SVG."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clearway.model.units import DAY_MS, HOUR_MS, SECOND_MS
from clearway.sim.metrics import SIZE_BUCKETS, GroupMetrics, size_bucket_of
from clearway.sim.report.canvas import (
    INK,
    colour_of,
    cut_name,
    dash_of,
    drawing_style,
    make_axes,
    marker_of,
    render_svg,
)
from clearway.sim.report.curves import TIME_POINTS, Curve, bin_over_time, distribution
from clearway.sim.report.numbers import render_number
from clearway.sim.report.runs import ReportRun
from clearway.sim.result import NEVER_MS, IntColumn, JobColumns

Texts = Mapping[str, str]
BoolColumn = NDArray[np.bool_]

TENANTS_DRAWN: Final = 12
SIZES_DRAWN: Final = 3
KINDS_DRAWN: Final = 4
"""Panels of a distribution: all jobs and three sizes above, four kinds below. The tables have all."""

FRAGMENTATION_POINTS: Final = 80
"""Stranded devices come and go with every job; several lines of it can be read only as averages over longer times."""

HOURS_AXIS_MAX_MS: Final = 3 * DAY_MS
"""Longer runs have an axis in days."""

DURATION_TICKS: Final = ((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 d"))


def draw_utilisation(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> str:
    """One panel per run over a common time: the share of healthy devices that jobs hold, with its mean and bound."""
    unit_ms = time_unit_ms(runs)
    with drawing_style():
        figure, axes = make_axes(len(runs), 1, 0.5 + 1.05 * len(runs), sharex=True)
        for index, (run, label, axis) in enumerate(zip(runs, labels, axes, strict=True)):
            draw_share(axis, run, colour_of(index), unit_ms)
            axis.set_title(cut_name(label))
        axes[-1].set_xlabel(_time_label(unit_ms, texts))
        figure.supylabel(texts["axis_share"], fontsize="medium")
        return render_svg(figure, "utilisation", texts["utilisation_title"])


def draw_share(axis: Any, run: ReportRun, colour: str, unit_ms: int, ink: str = INK) -> None:
    """Fill one panel of `draw_utilisation`."""
    curve = _share_over_time(run, run.result.series.allocated_milli)
    axis.fill_between(curve.x / unit_ms, curve.y, color=colour, alpha=0.28, linewidth=0)
    axis.plot(curve.x / unit_ms, curve.y, color=colour, linewidth=1.0)
    axis.axhline(run.metrics.device_allocation_ratio, color=ink, linewidth=0.9, linestyle=":")
    if run.bounds is not None:
        axis.axhline(run.bounds.device_allocation_ratio, color=ink, linewidth=0.9, linestyle=(0, (5, 3)))
    axis.set_ylim(0, 1.04)
    axis.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axis.margins(x=0)


def draw_queue(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> str:
    """Waiting jobs over time."""
    return _draw_lines(runs, labels, texts, "queue", "axis_jobs", _jobs_over_time)


def draw_fragmentation(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> str:
    """Stranded devices over time, as a share of healthy ones."""
    return _draw_lines(
        runs,
        labels,
        texts,
        "fragmentation",
        "axis_share",
        lambda run: _share_over_time(run, run.result.series.stranded_milli, FRAGMENTATION_POINTS),
    )


def draw_distribution(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts, *, name: str) -> str:
    """Distributions of the wait or completion time (`name`: "wait" or "jct"): all, by size, by kind."""
    panels = _panels(runs[0].result.jobs, texts)
    columns = 1 + SIZES_DRAWN
    rows = -(-len(panels) // columns)
    with drawing_style():
        figure, axes = make_axes(rows, columns, 0.35 + 1.75 * rows, sharex=True, sharey=True)
        for axis, (title, choose) in zip(axes, panels, strict=False):
            axis.set_title(cut_name(title))
            for index, run in enumerate(runs):
                seconds = _seconds(run.result.jobs, choose(run.result.jobs), name)
                curve = distribution(np.maximum(seconds, 1.0))
                axis.plot(curve.x, curve.y, color=colour_of(index), linestyle=dash_of(index), label=labels[index])
            _scale_to_durations(axis)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        figure.supylabel(texts["axis_cdf"], fontsize="medium")
        return render_svg(figure, name, texts[f"{name}_title"])


def draw_fairness(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> str:
    """Service ratio of the tenants with most device-time, a point for each run."""
    names = [group.name for group in largest_groups(runs[0].metrics.by_tenant, TENANTS_DRAWN)]
    with drawing_style():
        figure, (axis,) = make_axes(1, 1, 0.7 + 0.28 * len(names))
        offsets = np.linspace(-0.22, 0.22, len(runs)) if len(runs) > 1 else np.zeros(1)
        for index, (run, label, offset) in enumerate(zip(runs, labels, offsets, strict=True)):
            ratios = {group.name: group.service_ratio for group in run.metrics.by_tenant}
            axis.plot(
                [ratios.get(name, np.nan) for name in names],
                np.arange(len(names)) + offset,
                linestyle="none",
                marker=marker_of(index),
                markersize=5,
                color=colour_of(index),
                label=label,
            )
        axis.set_yticks(range(len(names)), [cut_name(name) for name in names])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.03)
        axis.set_xlabel(texts["axis_service"])
        return render_svg(figure, "fairness", texts["fairness_title"])


def draw_losses(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> str:
    """Preemptions and lost device-hours, a bar for each run."""
    lost_hours = [run.metrics.lost_device_s * SECOND_MS / HOUR_MS for run in runs]
    with drawing_style():
        figure, axes = make_axes(1, 2, 0.55 + 0.3 * len(runs), sharey=True)
        draw_bars(axes[0], [run.metrics.preemptions for run in runs], labels, texts["preemptions"])
        draw_bars(axes[1], lost_hours, labels, texts["lost"])
        return render_svg(figure, "losses", texts["losses_title"])


def draw_bars(
    axis: Any,
    values: Sequence[float],
    labels: Sequence[str],
    title: str,
    *,
    colours: Sequence[str] | None = None,
    render: Callable[[float], str] = render_number,
    paper: str = "none",
) -> None:
    """Horizontal bars from top to bottom, each with its value in words behind it, on a patch of colour `paper`."""
    places = range(len(values))
    marks = colours or [colour_of(index) for index in places]
    bars = axis.barh(places, np.nan_to_num(values), color=marks, height=0.66)
    patch = {"facecolor": paper, "edgecolor": "none", "pad": 1.0}
    axis.bar_label(bars, [render(value) for value in values], padding=4, bbox=patch)
    axis.set_yticks(places, [cut_name(label) for label in labels])
    axis.set_xlim(0, max(1e-9, float(np.nan_to_num(values).max())) * 1.28)
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.set_title(title)


def largest_groups(groups: Sequence[GroupMetrics], count: int) -> tuple[GroupMetrics, ...]:
    """The `count` groups with most device-time, in their own order."""
    kept = sorted(range(len(groups)), key=lambda place: (-groups[place].held_device_s, place))[:count]
    return tuple(groups[place] for place in sorted(kept))


def time_unit_ms(runs: Sequence[ReportRun]) -> int:
    """An hour, or a day where the longest run has several."""
    longest = max(_end_ms(run) for run in runs)
    return HOUR_MS if longest <= HOURS_AXIS_MAX_MS else DAY_MS


def _draw_lines(
    runs: Sequence[ReportRun],
    labels: Sequence[str],
    texts: Texts,
    name: str,
    y_label: str,
    curve_of: Callable[[ReportRun], Curve],
) -> str:
    unit_ms = time_unit_ms(runs)
    with drawing_style():
        figure, (axis,) = make_axes(1, 1, 2.3)
        for index, (run, label) in enumerate(zip(runs, labels, strict=True)):
            curve = curve_of(run)
            axis.plot(curve.x / unit_ms, curve.y, color=colour_of(index), linestyle=dash_of(index), label=label)
        axis.set_ylim(bottom=0)
        axis.margins(x=0)
        axis.set_xlabel(_time_label(unit_ms, texts))
        axis.set_ylabel(texts[y_label])
        if y_label == "axis_share":
            axis.yaxis.set_major_formatter(lambda share, _: f"{share * 100:.3g} %")
        return render_svg(figure, name, texts[f"{name}_title"])


def _time_label(unit_ms: int, texts: Texts) -> str:
    return texts["axis_time_h" if unit_ms == HOUR_MS else "axis_time_d"]


def _end_ms(run: ReportRun) -> int:
    return max(round(run.metrics.makespan_s * SECOND_MS), int(run.result.series.time_ms.max(initial=0)), 1)


def _share_over_time(run: ReportRun, milli: IntColumn, points: int = TIME_POINTS) -> Curve:
    series, end_ms = run.result.series, _end_ms(run)
    part = bin_over_time(series, milli, end_ms, points)
    whole = bin_over_time(series, series.capacity_milli, end_ms, points)
    return Curve(part.x, part.y / np.maximum(whole.y, 1.0))


def _jobs_over_time(run: ReportRun) -> Curve:
    return bin_over_time(run.result.series, run.result.series.pending_jobs, _end_ms(run))


def _panels(jobs: JobColumns, texts: Texts) -> list[tuple[str, Callable[[JobColumns], BoolColumn]]]:
    """(title, which jobs) of each panel; the sizes and kinds with most jobs, in their own order."""
    sizes = np.bincount(size_bucket_of(jobs.devices_milli), minlength=len(SIZE_BUCKETS))
    kinds = np.bincount(jobs.kind, minlength=len(jobs.kind_names))
    panels: list[tuple[str, Callable[[JobColumns], BoolColumn]]] = [
        (texts["all_jobs"], lambda columns: np.ones(len(columns), dtype=np.bool_))
    ]
    panels += [(_size_title(SIZE_BUCKETS[code][0], texts), _has_size(code)) for code in _most(sizes, SIZES_DRAWN)]
    if len(_most(kinds, KINDS_DRAWN)) > 1:
        panels += [(jobs.kind_names[code], _has_kind(jobs.kind_names[code])) for code in _most(kinds, KINDS_DRAWN)]
    return panels


def _size_title(name: str, texts: Texts) -> str:
    return texts["one_device"] if name == "1" else texts["some_devices"].format(name)


def _most(counts: IntColumn, limit: int) -> list[int]:
    """Codes of the largest counts above 0, rising."""
    best = np.argsort(-counts, kind="stable")[:limit]
    return sorted(int(code) for code in best if counts[code] > 0)


def _has_size(code: int) -> Callable[[JobColumns], BoolColumn]:
    return lambda jobs: np.asarray(size_bucket_of(jobs.devices_milli) == code)


def _has_kind(name: str) -> Callable[[JobColumns], BoolColumn]:
    """By name: another run may number its kinds in another way."""
    return lambda jobs: np.isin(jobs.kind, [code for code, kind in enumerate(jobs.kind_names) if kind == name])


def _seconds(jobs: JobColumns, chosen: BoolColumn, name: str) -> NDArray[np.float64]:
    """Waits of started jobs, or completion times of finished ones."""
    until = jobs.start_ms if name == "wait" else jobs.end_ms
    rows = chosen & (jobs.start_ms != NEVER_MS) & (until != NEVER_MS)
    return np.asarray((until[rows] - jobs.submit_ms[rows]) / SECOND_MS, dtype=np.float64)


def _scale_to_durations(axis: Any) -> None:
    axis.set_xscale("log")
    axis.set_xlim(left=0.9)
    axis.set_xticks([seconds for seconds, _ in DURATION_TICKS], [text for _, text in DURATION_TICKS])
    axis.set_xticks([], minor=True)
    axis.set_ylim(0, 1.03)
    axis.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axis.tick_params(labelbottom=True)
