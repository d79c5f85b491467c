"""The report page: drawings and tables put into one HTML file that needs nothing else."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from clearway.sim.extras import load_extra
from clearway.sim.metric_definitions import METRICS
from clearway.sim.outputs import render_gaps
from clearway.sim.report.canvas import DARK_PALETTE, LIGHT_PALETTE, PALETTE_SIZE
from clearway.sim.report.figures import (
    draw_distribution,
    draw_fairness,
    draw_fragmentation,
    draw_losses,
    draw_queue,
    draw_utilisation,
)
from clearway.sim.report.runs import ReportRun, label_runs
from clearway.sim.report.tables import make_bound_table, make_comparison, make_group_tables, make_run_table
from clearway.sim.report.texts import TEXTS, Language

TEMPLATE: Final = "report.html.j2"
LEGEND_DASHES: Final = ("", "10 3", "3 2.4", "12 3 3 3")
"""`canvas.DASHES` in pixels."""


def write_report(path: Path, runs: Sequence[ReportRun], *, title: str, language: Language = "en") -> None:
    """Write the report on `runs`, at least one, all of the same workload and cluster.

    Raises MissingExtraError without the extra `twin`, OSError where `path` cannot be written.
    """
    assert runs, "a report is about at least one run"
    path.write_text(render_report(runs, title=title, language=language), encoding="utf-8")


def render_report(runs: Sequence[ReportRun], *, title: str, language: Language = "en") -> str:
    """The text of the page. All names are escaped; the same runs give the same text."""
    jinja2 = load_extra("jinja2")
    texts = TEXTS[language]
    labels = label_runs(tuple(runs))
    source = files("clearway.sim.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    page: str = environment.from_string(source).render(
        texts=texts,
        title=title,
        palettes=(LIGHT_PALETTE, DARK_PALETTE),
        legend=_legend(labels),
        comparison=make_comparison(runs, labels, texts),
        has_all_gaps=all(render_gaps(run.metrics, run.bounds)["makespan_s"] is not None for run in runs),
        figures=_figures(runs, labels, texts, jinja2.filters.Markup),
        groups=[(label, make_group_tables(run, texts)) for label, run in zip(labels, runs, strict=True)],
        bounds=make_bound_table(runs, texts),
        notes=sorted({note for run in runs if run.bounds is not None for note in run.bounds.notes}),
        definitions=[
            (row.label_zh, row.unit, row.definition_zh) if language == "zh" else (row.label, row.unit, row.definition)
            for row in METRICS
        ],
        run_table=make_run_table(runs, labels, texts),
    )
    return page


def _legend(labels: Sequence[str]) -> list[tuple[str, int, str]]:
    """(name, place of its colour, dashes) of each run."""
    return [
        (label, index % PALETTE_SIZE, LEGEND_DASHES[(index + index // PALETTE_SIZE) % len(LEGEND_DASHES)])
        for index, label in enumerate(labels)
    ]


def _figures(runs: Sequence[ReportRun], labels: Sequence[str], texts: Any, markup: Any) -> list[tuple[str, str, Any]]:
    """(title, note, drawing) in the order of the page. `markup` marks text that is HTML already."""
    drawn = (
        ("utilisation_title", "utilisation_note", draw_utilisation(runs, labels, texts)),
        ("wait_title", "cdf_note", draw_distribution(runs, labels, texts, name="wait")),
        ("jct_title", "cdf_note", draw_distribution(runs, labels, texts, name="jct")),
        ("queue_title", "queue_note", draw_queue(runs, labels, texts)),
        ("fairness_title", "fairness_note", draw_fairness(runs, labels, texts)),
        ("fragmentation_title", "fragmentation_note", draw_fragmentation(runs, labels, texts)),
        ("losses_title", "losses_note", draw_losses(runs, labels, texts)),
    )
    return [(texts[title], texts[note], markup(drawing)) for title, note, drawing in drawn]
