"""`clearway trace`: look at a trace, or make one."""

from pathlib import Path
from typing import Annotated

import typer

from clearway.cli.options import FormatOption, JsonOption, LimitOption, SeedOption, TraceArgument
from clearway.cli.outputs import is_json_only, note_written, ready_path, write_json
from clearway.cli.session import session_of

app = typer.Typer(no_args_is_help=True, help="Look at a trace, or make one.")


@app.command(help="Show what a trace holds: jobs, sizes, run times, load, and what was left out.")
def describe(
    context: typer.Context,
    trace: TraceArgument,
    trace_format: FormatOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    json_target: JsonOption = None,
) -> None:
    """Read the trace and show its figures."""
    from clearway.bootstrap.inputs import read_trace
    from clearway.bootstrap.reports import description_as_json
    from clearway.cli.tables import show_description

    session = session_of(context)
    with session.progress("Reading {trace}", trace=trace) as progress:
        workload = read_trace(trace, format=trace_format, limit=limit, seed=seed, progress=progress)
    if not is_json_only(json_target):
        show_description(session, workload)
    if json_target is not None:
        write_json(session, description_as_json(workload), json_target)


@app.command(help="Write a generated workload as an SWF file, for other tools too.")
def generate(
    context: typer.Context,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="synthetic:SPEC, or SPEC alone.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The SWF file to write.")],
    seed: SeedOption = 0,
) -> None:
    """Generate and write."""
    from clearway.bootstrap.generation import write_synthetic_swf

    session = session_of(context)
    ready_path(out)
    jobs = write_synthetic_swf(spec, out, seed=seed)
    session.note("{count} jobs", count=f"{jobs:,}")
    note_written(session, out)


@app.command(help="List the formats that can be read.")
def formats(context: typer.Context, json_target: JsonOption = None) -> None:
    """One line per format."""
    from clearway.bootstrap.inputs import trace_formats
    from clearway.cli.tables import show_pairs

    session = session_of(context)
    known = trace_formats()
    if not is_json_only(json_target):
        show_pairs(session, ("Format", "What it is"), known)
    if json_target is not None:
        write_json(session, [{"name": name, "summary": summary} for name, summary in known], json_target)
