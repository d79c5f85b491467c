"""`clearway simulate`: one trace under one policy."""

from pathlib import Path
from typing import Annotated

import typer

from clearway.cli.options import (
    ClusterOption,
    FaultsOption,
    FormatOption,
    HtmlOption,
    JsonOption,
    LimitOption,
    SeedOption,
    SiteOption,
    TraceArgument,
)
from clearway.cli.outputs import finish_with, note_compiling, note_written, ready_outputs
from clearway.cli.session import session_of


def simulate(
    context: typer.Context,
    trace: TraceArgument,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME|FILE", help="A policy of `clearway policies`, or a YAML file.")
    ],
    cluster: ClusterOption = None,
    trace_format: FormatOption = None,
    seed: SeedOption = 0,
    limit: LimitOption = None,
    site: SiteOption = None,
    faults: FaultsOption = "none",
    json_target: JsonOption = None,
    jobs_csv: Annotated[
        Path | None, typer.Option("--jobs-csv", metavar="FILE", help="Write one line per job: times, devices, outcome.")
    ] = None,
    html: HtmlOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Let independent checkers judge the state after every event (slow).")
    ] = False,
) -> None:
    """Read, run, show, write."""
    from clearway.bootstrap import reports
    from clearway.bootstrap.simulation import SimulationRequest, prepare, run_prepared
    from clearway.cli.show_runs import show_run

    session = session_of(context)
    request = SimulationRequest(
        trace=trace,
        policy=policy,
        format_name=trace_format,
        cluster=cluster,
        site=site,
        faults=faults,
        seed=seed,
        limit=limit,
        is_checked=check,
    )
    if html is not None:
        reports.check_html_possible()
    ready_outputs(json_target, jobs_csv, html)
    with session.progress("Reading {trace}", trace=Path(trace).name) as progress:
        prepared = prepare(request, progress)
    note_compiling(session)
    with session.progress("Simulating {policy}", policy=policy) as progress:
        run = run_prepared(prepared, progress, explains=True)
    if jobs_csv is not None:
        reports.write_run_jobs(run, jobs_csv)
        note_written(session, jobs_csv)
    if html is not None:
        reports.write_runs_html([run], html, title=run.result.workload, language=session.language.value)
        note_written(session, html)
    finish_with(session, lambda: reports.run_as_json(run), json_target, lambda: show_run(session, run))
