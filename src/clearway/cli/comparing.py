"""`clearway compare`: one trace under several policies."""

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


def compare(
    context: typer.Context,
    trace: TraceArgument,
    policies: Annotated[
        str,
        typer.Option("--policies", metavar="A,B,C", help="Policies of `clearway policies` or YAML files, by commas."),
    ],
    cluster: ClusterOption = None,
    trace_format: FormatOption = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Repeat with N seeds and show mean ± standard deviation.")
    ] = 1,
    seed: SeedOption = 0,
    limit: LimitOption = None,
    site: SiteOption = None,
    faults: FaultsOption = "none",
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", min=1, help="Processes to use; all cores if left out.")
    ] = None,
    json_target: JsonOption = None,
    html: HtmlOption = None,
) -> None:
    """Run every policy with every seed, show one row per policy, write."""
    from clearway.bootstrap import reports
    from clearway.bootstrap.comparison import make_comparison_request, run_comparison
    from clearway.bootstrap.simulation import SimulationRequest
    from clearway.cli.show_runs import show_comparison

    session = session_of(context)
    base = SimulationRequest(
        trace=trace,
        policy="",
        format_name=trace_format,
        cluster=cluster,
        site=site,
        faults=faults,
        seed=seed,
        limit=limit,
    )
    request = make_comparison_request(base, policies=policies, seeds=seeds, processes=processes)
    if html is not None:
        reports.check_html_possible()
    ready_outputs(json_target, html)
    if request.seeds_asked > len(request.seeds):
        session.note("Nothing is drawn by chance in this trace, so one seed says all: give --faults to vary failures.")
    note_compiling(session)
    with session.progress("Comparing {count} policies", count=len(request.policies)) as progress:
        comparison = run_comparison(request, progress)
    if html is not None:
        reports.write_runs_html(comparison.first_runs, html, title=trace, language=session.language.value)
        note_written(session, html)
    finish_with(
        session,
        lambda: reports.comparison_as_json(comparison),
        json_target,
        lambda: show_comparison(session, comparison),
    )
