"""Runs of the twin on the screen: one in detail, several side by side."""

import math
from typing import Final

from rich.text import Text

from clearway.bootstrap.comparison import COMPARED, Comparison, Figure
from clearway.bootstrap.simulation import Run
from clearway.cli.figures import MISSING, render_change, render_count, render_duration, render_number, render_quantity
from clearway.cli.metric_labels import DEFINITIONS, label_of
from clearway.cli.session import Session
from clearway.cli.show_traces import show_skipped
from clearway.cli.tables import add_row, make_table, show_table
from clearway.model.units import MIB
from clearway.sim.metrics import GroupMetrics, Spread
from clearway.sim.outputs import render_gaps

SPREADS: Final = ("wait_s", "jct_s", "bounded_slowdown", "finish_time_fairness")
SINGLE: Final = (
    "jobs_total",
    "jobs_finished",
    "latency_target_ratio",
    "makespan_s",
    "device_allocation_ratio",
    "effective_use_ratio",
    "goodput_ratio",
    "fragmentation_ratio",
    "unfair_jobs_ratio",
    "jain_index",
    "preemptions",
    "restarts",
    "lost_device_s",
)
STATISTICS: Final = ("mean", "p50", "p90", "p99", "max")
GROUPS: Final = (("By kind", "by_kind"), ("By size in devices", "by_size"))
"""Groups shown on the screen; those by tenant and queue may be thousands and are in the files."""


def show_run(session: Session, run: Run) -> None:
    """Metrics, the gap to the limits, groups, what was left out, and what the run cost."""
    _show_metrics(session, run)
    _show_spreads(session, run)
    _show_limits(session, run)
    for title, name in GROUPS:
        _show_groups(session, session.translate(title), getattr(run.metrics, name))
    show_skipped(session, run.workload.skipped)
    for reason in run.unstarted:
        why = reason.why or session.say("of so many it is not asked why")
        text = "{count} job(s) never started, the first of them job {job}: {why}"
        session.note(text, count=reason.count, job=reason.job, why=why)
    for note in (*run.workload.notes, *run.bounds.notes):
        session.note("{note}", note=note)
    stats = run.result.stats
    session.note(
        "{jobs} jobs in {wall}: {rate} jobs/s, {events} events, {memory} MiB at most",
        jobs=render_count(run.metrics.jobs_total),
        wall=render_duration(stats.wall_s),
        rate=render_count(run.metrics.jobs_total / stats.wall_s),
        events=render_count(stats.events),
        memory=render_count(stats.peak_rss_bytes / MIB),
    )


def _show_metrics(session: Session, run: Run) -> None:
    title = session.say(
        "{workload} under {policy} on {cluster}",
        workload=run.result.workload,
        policy=run.result.policy,
        cluster=run.result.cluster,
    )
    table = make_table(session, ("Metric", "Value"))
    for key in SINGLE:
        if key == "latency_target_ratio" and math.isnan(run.metrics.latency_target_ratio):
            continue  # no job was promised anything
        definition = DEFINITIONS[key]
        add_row(table, (label_of(session, definition), render_quantity(getattr(run.metrics, key), definition.unit)))
    show_table(session, title, table)


def _show_spreads(session: Session, run: Run) -> None:
    table = make_table(session, ("Metric", *STATISTICS))
    for key in SPREADS:
        definition = DEFINITIONS[key]
        spread: Spread = getattr(run.metrics, key)
        cells = (render_quantity(getattr(spread, name), definition.unit) for name in STATISTICS)
        add_row(table, (label_of(session, definition), *cells))
    show_table(session, session.translate("Over jobs"), table)


def _show_limits(session: Session, run: Run) -> None:
    """A gap is shown only where run and limit are about the same jobs."""
    gaps = render_gaps(run.metrics, run.bounds)
    table = make_table(session, ("Metric", "Value", "Limit", "Gap"))
    rows = (
        ("Mean JCT", run.metrics.jct_s.mean, run.bounds.jct_mean_s, "s", "jct_mean_s"),
        ("Makespan", run.metrics.makespan_s, run.bounds.makespan_s, "s", "makespan_s"),
        (
            "Allocation",
            run.metrics.device_allocation_ratio,
            run.bounds.device_allocation_ratio,
            "ratio",
            "device_allocation_ratio",
        ),
    )
    for label, value, limit, unit, key in rows:
        gap = gaps[key]
        shown = MISSING if gap is None else render_change(gap if unit == "s" else -gap)
        add_row(table, (session.say(label), render_quantity(value, unit), render_quantity(limit, unit), shown))
    show_table(session, session.translate("Against the limits that no schedule can pass"), table)


def _show_groups(session: Session, title: str, groups: tuple[GroupMetrics, ...]) -> None:
    if len(groups) < 2:
        return
    headers = ("Group", "Jobs", "Finished", "Wait p50", "Wait p99", "Mean JCT", "JCT p99", "Preemptions")
    table = make_table(session, headers)
    for group in groups:
        times = (group.wait_s.p50, group.wait_s.p99, group.jct_s.mean, group.jct_s.p99)
        counts = (render_count(group.jobs), render_count(group.finished))
        add_row(table, (group.name, *counts, *map(render_duration, times), render_count(group.preemptions)))
    show_table(session, title, table)


def show_comparison(session: Session, comparison: Comparison, title: str = "") -> None:
    """One row per policy; the best of each column is bold and has a star. title: instead of workload and cluster."""
    first = comparison.first_runs[0]
    title = title or session.say(
        "{workload} on {cluster}, {count} seed(s); * best of the column",
        workload=first.result.workload,
        cluster=first.result.cluster,
        count=len(comparison.request.seeds),
    )
    table = make_table(session, ("Policy", *(metric.label for metric in COMPARED)))
    for policy, figures in zip(comparison.request.policies, comparison.figures, strict=True):
        cells = [_cell(figure, metric.unit) for figure, metric in zip(figures, COMPARED, strict=True)]
        table.add_row(Text(policy), *cells)
    limits = comparison.limits
    cells = [Text(render_quantity(limits[m.key], m.unit) if m.key in limits else "") for m in COMPARED]
    table.add_section()
    table.add_row(Text(session.say("limit"), style="italic"), *cells)
    show_table(session, title, table)
    show_skipped(session, first.workload.skipped)


def _cell(figure: Figure, unit: str) -> Text:
    """The mean, a star if it is the best, and the deviation below it if there is one."""
    text = render_quantity(figure.mean, unit) + (" *" if figure.is_best else "")
    if figure.deviation > 0:
        text += f"\n± {_render_deviation(figure, unit)}"
    return Text(text, style="bold" if figure.is_best else "")


def _render_deviation(figure: Figure, unit: str) -> str:
    """A spread of counts is no count."""
    return render_number(figure.deviation) if unit in ("jobs", "count") else render_quantity(figure.deviation, unit)
