"""Workloads on the screen: what a trace holds, and what was left out of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from clearway.cli.figures import render_count, render_duration, render_number, render_ratio
from clearway.cli.session import Session
from clearway.cli.tables import add_row, make_table, show_table
from clearway.sim.workload import Skipped

SUMMARY: Final = ("mean", "min", "p10", "p50", "p90", "p99", "max")
BAR_CELLS: Final = 40


def show_description(session: Session, described: Mapping[str, Any], skipped: Sequence[Skipped]) -> None:
    """What `describe_workload` found."""
    _show_totals(session, described)
    table = make_table(session, ("Quantity", *SUMMARY))
    for label, key, render in (("Run time", "run_s", render_duration), ("Devices", "devices", render_number)):
        summary = described[key]
        if summary is not None:
            add_row(table, (session.say(label), *(render(summary[name]) for name in SUMMARY)))
    show_table(session, session.translate("Over jobs"), table)
    _show_sizes(session, described["sizes"])
    _show_hours(session, described["arrivals_by_hour"])
    show_skipped(session, skipped)
    for note in described["notes"]:
        session.note("{note}", note=note)


def _show_totals(session: Session, described: Mapping[str, Any]) -> None:
    table = make_table(session, ("Quantity", "Value"))
    load = described["load_device_s_per_s"]
    cluster = described["cluster"]
    rows = [
        ("Jobs", render_count(described["jobs"])),
        ("First to last submit", render_duration(described["span_s"])),
        ("Users", render_count(described["users"])),
        ("Tenants", render_count(described["tenants"])),
        ("Queues", render_count(described["queues"])),
        ("Kinds", _render_counts(described["kinds"])),
        ("Outcomes", _render_counts(described["outcomes"])),
        ("Devices busy on average (offered load)", "" if load is None else render_number(load)),
        ("Own cluster", "" if cluster is None else session.say("{nodes} nodes, {devices} devices", **cluster)),
    ]
    for label, value in rows:
        if value:
            add_row(table, (session.say(label), value))
    show_table(session, described["name"], table)


def _render_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {render_count(count)}" for name, count in counts.items())


def _show_sizes(session: Session, sizes: Sequence[Mapping[str, float]]) -> None:
    table = make_table(session, ("Devices", "Jobs", "Share of the work"))
    for size in sizes:
        add_row(table, (render_number(size["devices"]), render_count(size["jobs"]), render_ratio(size["work_share"])))
    show_table(session, session.translate("By size in devices"), table)


def _show_hours(session: Session, arrivals: Sequence[int]) -> None:
    most = max(arrivals, default=0)
    if most == 0:
        return
    table = make_table(session, ("Hour", "Jobs", ""))
    table.columns[2].justify = "left"
    for hour, jobs in enumerate(arrivals):
        add_row(table, (f"{hour:02d}", render_count(jobs), "█" * round(BAR_CELLS * jobs / most)))
    show_table(session, session.translate("Arrivals by hour of the day"), table)


def show_skipped(session: Session, skipped: Sequence[Skipped]) -> None:
    """What was left out while reading, with the first line numbers, on standard error."""
    for part in skipped:
        session.note(
            "Left out {count}: {reason} (lines {lines})",
            count=render_count(part.count),
            reason=part.reason,
            lines=", ".join(map(str, part.lines)),
        )
