"""How well a synthetic model fits its trace, on the screen and as plain data."""

from pathlib import Path
from typing import Any, Final

from clearway.cli.figures import MISSING, render_count, render_number, render_quantity
from clearway.cli.session import Session
from clearway.cli.tables import add_row, make_table, show_table
from clearway.sim.fit_quality import FitQuality, FitRow

FEW_JOBS: Final = 100
"""Below it the tables of quantiles are mostly made of the gaps between jobs."""
OFF_FACTOR: Final = 1.25
"""Figures of the trace and of what is drawn that differ by more are named, so that nobody overlooks them."""

_LABELS: Final = (
    ("jobs_per_hour", "Jobs per hour"),
    ("dispersion_minute", "Bunching per minute (variance over mean)"),
    ("dispersion_hour", "Bunching per hour (variance over mean)"),
    ("burst_jobs_ratio", "Jobs in bursts"),
    ("busiest_hour", "Busiest hour of the day over the mean"),
    ("quietest_hour", "Quietest hour of the day over the mean"),
    ("devices_mean", "Devices, mean"),
    ("devices_p10", "Devices, p10"),
    ("devices_p50", "Devices, p50"),
    ("devices_p90", "Devices, p90"),
    ("devices_p99", "Devices, p99"),
    ("run_mean", "Run time, mean"),
    ("run_p10", "Run time, p10"),
    ("run_p50", "Run time, p50"),
    ("run_p90", "Run time, p90"),
    ("run_p99", "Run time, p99"),
    ("device_s_per_job", "Work of a job, mean"),
    ("load", "Devices busy on average (offered load)"),
    ("users", "Users"),
)
LABELS: Final = dict(_LABELS)


def describe_fit(name: str, quality: FitQuality) -> dict[str, Any]:
    """As plain data: times in seconds, `ratio` is drawn over trace."""
    return {
        "trace": name,
        "jobs": quality.jobs,
        "jobs_without_devices": quality.jobs_without_devices,
        "draws": quality.draws,
        "figures": {row.key: {"trace": row.trace, "drawn": row.drawn, "ratio": row.ratio} for row in quality.rows},
        "hours": {"trace": list(quality.hours_trace), "drawn": list(quality.hours_drawn)},
    }


def show_fit(session: Session, name: str, quality: FitQuality, out: Path) -> None:
    """The table, what to mistrust, and how to use the model."""
    table = make_table(session, ("Quantity", "Trace", "Drawn", "Drawn / trace"))
    for row in quality.rows:
        cells = (render_quantity(row.trace, row.unit), render_quantity(row.drawn, row.unit), _render_factor(row))
        add_row(table, (session.say(LABELS[row.key]), *cells))
    show_table(session, name, table)
    if quality.jobs_without_devices:
        session.note(
            "Left out {count} jobs that ask for no device: models are of jobs with devices",
            count=render_count(quality.jobs_without_devices),
        )
    if quality.jobs < FEW_JOBS:
        session.note("{jobs} jobs are few: expect little of this model", jobs=quality.jobs)
    off = [session.say(LABELS[row.key]) for row in quality.rows if is_off(row)]
    if off:
        session.note("Off by more than a quarter: {figures}", figures="; ".join(off))
    session.note("Draw from it: clearway simulate {spec}", spec=f'"synthetic:{out}?jobs={quality.jobs}"')


def is_off(row: FitRow) -> bool:
    """Whether the two differ by more than OFF_FACTOR."""
    if row.ratio is None:
        return row.drawn != 0
    return not 1 / OFF_FACTOR <= row.ratio <= OFF_FACTOR


def _render_factor(row: FitRow) -> str:
    return MISSING if row.ratio is None else render_number(row.ratio)
