"""The report page: drawings and tables put into one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
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

Texts = Mapping[str, str]
Figure = tuple[str, str, Any, bool]
"""Title, note, drawing, whether it needs a legend."""

TEMPLATE: Final = "report.html.j2"
LEGEND_DASHES: Final = ("", "10 3", "3 2.4", "12 3 3 3")
LEGEND_MARKERS: Final = "●■▲◆▼✚✖★"
"""`canvas.DASHES` in pixels, and `canvas.MARKERS` as characters."""

FIGURES_WITHOUT_LEGEND: Final = ("utilisation_title", "losses_title")
"""Their panels and bars bear the names themselves."""


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


def _legend(labels: Sequence[str]) -> list[tuple[str, int, str, str]]:
    """(name, place of its colour, dashes, marker) of each run, as `canvas.dash_of` and `canvas.marker_of` choose."""
    turns = [index + index // PALETTE_SIZE for index in range(len(labels))]
    return [
        (
            label,
            index % PALETTE_SIZE,
            LEGEND_DASHES[turns[index] % len(LEGEND_DASHES)],
            LEGEND_MARKERS[turns[index] % len(LEGEND_MARKERS)],
        )
        for index, label in enumerate(labels)
    ]


def _figures(runs: Sequence[ReportRun], labels: Sequence[str], texts: Texts, markup: Any) -> list[Figure]:
    """In the order of the page. `markup` marks text that is HTML already."""
    drawn = (
        ("utilisation_title", "utilisation_note", draw_utilisation(runs, labels, texts)),
        ("wait_title", "cdf_note", draw_distribution(runs, labels, texts, name="wait")),
        ("jct_title", "cdf_note", draw_distribution(runs, labels, texts, name="jct")),
        ("queue_title", "queue_note", draw_queue(runs, labels, texts)),
        ("fairness_title", "fairness_note", draw_fairness(runs, labels, texts)),
        ("fragmentation_title", "fragmentation_note", draw_fragmentation(runs, labels, texts)),
        ("losses_title", "losses_note", draw_losses(runs, labels, texts)),
    )
    needs_legend = len(runs) > 1
    return [
        (texts[title], texts[note], markup(drawing), needs_legend and title not in FIGURES_WITHOUT_LEGEND)
        for title, note, drawing in drawn
    ]
