"""The tables of the report as rows of finished text, so that the template has nothing to compute."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clearway.model.units import HOUR_MS, SECOND_MS
from clearway.sim.bounds import Bounds
from clearway.sim.metrics import GroupMetrics, Metrics
from clearway.sim.outputs import render_gaps
from clearway.sim.report.figures import largest_groups
from clearway.sim.report.numbers import (
    render_bytes,
    render_duration,
    render_gap,
    render_index,
    render_number,
    render_ratio,
)
from clearway.sim.report.runs import ReportRun

Texts = Mapping[str, str]

GROUPS_SHOWN: Final = 20
"""Rows of a table by tenant or queue; the JSON document has all of them."""

HOUR_S: Final = HOUR_MS // SECOND_MS


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. gap: a second, smaller text. is_best: best of its line. note: what stands behind it, on hover."""

    text: str
    gap: str = ""
    is_best: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the comparison. better: 1 = more is better, −1 = less is. bound: key of its bound, or empty."""

    text: str
    measure: Callable[[Metrics], float]
    render: Callable[[float], str]
    better: int
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """title may be empty. head: column titles. rows: one cell per column; the first is the name of the row."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]


LINES: Final = (
    Line("wait_mean", lambda m: m.wait_s.mean, render_duration, -1),
    Line("wait_p99", lambda m: m.wait_s.p99, render_duration, -1),
    Line("latency", lambda m: m.latency_target_ratio, render_ratio, 1),
    Line("jct_mean", lambda m: m.jct_s.mean, render_duration, -1, "jct_mean_s"),
    Line("jct_p99", lambda m: m.jct_s.p99, render_duration, -1),
    Line("makespan", lambda m: m.makespan_s, render_duration, -1, "makespan_s"),
    Line("allocation", lambda m: m.device_allocation_ratio, render_ratio, 1, "device_allocation_ratio"),
    Line("effective", lambda m: m.effective_use_ratio, render_ratio, 1),
    Line("goodput", lambda m: m.goodput_ratio, render_ratio, 1),
    Line("fragmentation", lambda m: m.fragmentation_ratio, render_ratio, -1),
    Line("slowdown", lambda m: m.bounded_slowdown.mean, render_number, -1),
    Line("rho", lambda m: m.finish_time_fairness.p99, render_number, -1),
    Line("jain", lambda m: m.jain_index, render_index, 1),
    Line("preemptions", lambda m: m.preemptions, render_number, -1),
    Line("lost", lambda m: m.lost_device_s / HOUR_S, render_number, -1),
)


def make_comparison(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> Table:
    """A line for each measure, a column for each run, and one for the bounds."""
    bounds = _common_bounds(runs)
    rows = [_comparison_row(line, runs, bounds, texts) for line in LINES if _is_measured(line, runs)]
    finished = (f"{render_number(run.metrics.jobs_finished)} / {render_number(run.metrics.jobs_total)}" for run in runs)
    rows.append([Cell(texts["finished"]), *map(Cell, finished), *([Cell("")] if bounds else [])])
    return Table("", ["", *labels, *([texts["bound"]] if bounds else [])], rows)


def make_group_tables(run: ReportRun, texts: Texts) -> list[Table]:
    """Tables by kind, size, tenant and queue of one run."""
    keys = ("jobs", "finished", "wait_mean", "wait_p99", "jct_mean", "jct_p99", "service", "held", "lost")
    head = [texts[key] for key in keys]
    named = ("by_kind", "by_size", "by_tenant", "by_queue")
    return [
        Table(texts[name], ["", *head], [_group_row(group) for group in largest_groups(groups, GROUPS_SHOWN)])
        for name in named
        if (groups := getattr(run.metrics, name))
    ]


def make_bound_table(runs: Sequence[ReportRun], texts: Texts) -> Table | None:
    """All bounds of the first run that has any."""
    bounds = next((run.bounds for run in runs if run.bounds is not None), None)
    if bounds is None:
        return None
    rows = [
        [
            Cell(detail.name, is_best=math.isclose(detail.value, getattr(bounds, detail.unit))),
            Cell(
                f"{texts['bound_kind_' + detail.unit]} "
                + (render_ratio if detail.unit.endswith("_ratio") else render_duration)(detail.value)
            ),
            Cell(detail.definition),
        ]
        for detail in bounds.details
    ]
    return Table("", [texts["bound"], texts["value"], texts["why"]], rows)


def make_run_table(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts) -> Table:
    """What each run was, what it cost, and the digest by which it can be compared byte for byte."""
    keys = ("policy", "workload", "cluster", "seed", "events", "wall", "speed", "memory", "digest")
    rows = []
    for run, label in zip(runs, labels, strict=True):
        result, stats = run.result, run.result.stats
        speed = run.metrics.jobs_total / stats.wall_s if stats.wall_s > 0 else math.nan
        words = [
            label,
            result.workload,
            result.cluster,
            str(result.seed),
            render_number(stats.events),
            render_duration(stats.wall_s),
            render_number(speed),
            render_bytes(stats.peak_rss_bytes),
        ]
        rows.append([*map(Cell, words), Cell(result.decisions_digest[:16], note=result.decisions_digest)])
    return Table("", [texts[key] for key in keys], rows)


def _comparison_row(line: Line, runs: Sequence[ReportRun], bounds: Bounds | None, texts: Texts) -> list[Cell]:
    best = _best(line, runs)
    cells = [_measured(line, run, best) for run in runs]
    limit = [Cell(line.render(getattr(bounds, line.bound)) if line.bound else "")] if bounds else []
    return [Cell(texts[line.text]), *cells, *limit]


def _is_measured(line: Line, runs: Sequence[ReportRun]) -> bool:
    """A share of promises is a line where somebody was promised something; all others always are."""
    return line.text != "latency" or any(math.isfinite(line.measure(run.metrics)) for run in runs)


def _measured(line: Line, run: ReportRun, best: float) -> Cell:
    value = line.measure(run.metrics)
    gap = render_gaps(run.metrics, run.bounds)[line.bound] if line.bound else None
    return Cell(line.render(value), gap=render_gap(gap, is_ratio=line.bound.endswith("_ratio")), is_best=value == best)


def _best(line: Line, runs: Sequence[ReportRun]) -> float:
    """The best value; NaN, which equals nothing, where all are alike or there is only one run."""
    values = [value for run in runs if math.isfinite(value := line.measure(run.metrics))]
    if len(set(values)) < 2:
        return math.nan
    return max(values) if line.better > 0 else min(values)


def _common_bounds(runs: Sequence[ReportRun]) -> Bounds | None:
    """The bounds, where all runs that have any have the same."""
    found = [run.bounds for run in runs if run.bounds is not None]
    return found[0] if found and all(bounds == found[0] for bounds in found) else None


def _group_row(group: GroupMetrics) -> list[Cell]:
    return [
        Cell(group.name),
        Cell(render_number(group.jobs)),
        Cell(render_number(group.finished)),
        Cell(render_duration(group.wait_s.mean)),
        Cell(render_duration(group.wait_s.p99)),
        Cell(render_duration(group.jct_s.mean)),
        Cell(render_duration(group.jct_s.p99)),
        Cell(render_ratio(group.service_ratio)),
        Cell(render_number(group.held_device_s / HOUR_S)),
        Cell(render_number(group.lost_device_s / HOUR_S)),
    ]
