"""Results as files: JSON for programs, CSV of jobs, HTML for people."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearway.bootstrap.comparison import COMPARED, Comparison
from clearway.bootstrap.simulation import Run
from clearway.model.errors import InputError
from clearway.sim.extras import load_extra
from clearway.sim.outputs import render_result_json, write_jobs_csv
from clearway.sim.report import ReportRun, write_report
from clearway.sim.report.texts import Language

__all__ = ["check_html_possible", "comparison_as_json", "run_as_json", "write_run_jobs", "write_runs_html"]


def run_as_json(run: Run) -> dict[str, Any]:
    """The document of `clearway simulate --json`."""
    return dict(render_result_json(run.result, run.metrics, run.bounds, skipped=run.workload.skipped))


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Every run in full by policy, and the figures over seeds: mean, deviation, and whether it is the best."""
    request = comparison.request
    return {
        "trace": request.base.trace,
        "seeds": list(request.seeds),
        "seeds_asked": request.seeds_asked,
        "policies": {
            policy: {
                "figures": {m.key: asdict(figure) for m, figure in zip(COMPARED, figures, strict=True)},
                "runs": [run_as_json(run) for run in runs],
            }
            for policy, figures, runs in zip(request.policies, comparison.figures, comparison.runs, strict=True)
        },
    }


def write_run_jobs(run: Run, path: Path) -> None:
    """One row per job. InputError if the file cannot be written."""
    try:
        write_jobs_csv(path, run.result)
    except OSError as error:
        raise InputError(f"{path}: expected a file that can be written, found: {error.strerror}") from error


def check_html_possible() -> None:
    """To be called before a long run whose report is wanted: MissingExtraError without the extra `twin`."""
    for module in ("jinja2", "matplotlib"):
        load_extra(module)


def write_runs_html(runs: Sequence[Run], path: Path, *, title: str, language: Language) -> None:
    """A report of one run, or of several side by side, on the same workload. InputError if it cannot be written."""
    shown = [ReportRun(run.result, run.metrics, run.bounds) for run in runs]
    try:
        write_report(path, shown, title=title, language=language)
    except OSError as error:
        raise InputError(f"{path}: expected a file that can be written, found: {error.strerror}") from error
