"""`clearway trace`: look at a trace, or make one."""

from pathlib import Path
from typing import Annotated

import typer

from clearway.cli.options import FormatOption, JsonOption, LimitOption, SeedOption, TraceArgument
from clearway.cli.outputs import finish_with, is_json_only, note_written, ready_outputs, write_json, write_text
from clearway.cli.session import session_of

trace_app = typer.Typer(no_args_is_help=True, help="Look at a trace, or make one.")


@trace_app.command(help="Show what a trace holds: jobs, sizes, run times, load, and what was left out.")
def describe(
    context: typer.Context,
    trace: TraceArgument,
    trace_format: FormatOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    json_target: JsonOption = None,
) -> None:
    """Read the trace and show its figures."""
    from clearway.bootstrap.inputs import describe_workload, read_trace
    from clearway.cli.show_traces import show_description

    session = session_of(context)
    ready_outputs(json_target)
    with session.progress("Reading {trace}", trace=Path(trace).name) as progress:
        workload = read_trace(trace, format_name=trace_format, limit=limit, seed=seed, progress=progress)
    described = describe_workload(workload)
    finish_with(session, lambda: described, json_target, lambda: show_description(session, described, workload.skipped))


@trace_app.command(help="Fit a synthetic model to a trace, write it, and show how well it fits.")
def fit(
    context: typer.Context,
    trace: TraceArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The model file (YAML) to write.")],
    trace_format: FormatOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    json_target: JsonOption = None,
) -> None:
    """Read, fit, draw, compare and write."""
    from clearway.bootstrap.inputs import fit_trace, read_trace, render_model
    from clearway.cli.show_fits import describe_fit, show_fit
    from clearway.cli.show_traces import show_skipped

    session = session_of(context)
    ready_outputs(json_target, out)
    with session.progress("Reading {trace}", trace=Path(trace).name) as progress:
        workload = read_trace(trace, format_name=trace_format, limit=limit, seed=seed, progress=progress)
    model, quality = fit_trace(workload, out.stem, seed)
    write_text(session, render_model(model), out)
    show_skipped(session, workload.skipped)
    finish_with(
        session,
        lambda: {"file": str(out), **describe_fit(workload.name, quality)},
        json_target,
        lambda: show_fit(session, workload.name, quality, out),
    )


@trace_app.command(help="Write a generated workload, or any trace, as an SWF file for other tools too.")
def generate(
    context: typer.Context,
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="synthetic:MODEL?jobs=N, a model file, or any trace.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The SWF file to write.")],
    seed: SeedOption = 0,
    json_target: JsonOption = None,
) -> None:
    """Generate and write."""
    from clearway.bootstrap.inputs import read_trace, write_swf

    session = session_of(context)
    ready_outputs(json_target, out)
    jobs = write_swf(read_trace(trace, seed=seed), out)
    session.note("{count} jobs", count=f"{jobs:,}")
    note_written(session, out)
    if json_target is not None:
        write_json(session, {"file": str(out), "jobs": jobs}, json_target)


def import_trace(
    context: typer.Context,
    trace: TraceArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The SWF file to write.")],
    trace_format: FormatOption = None,
    limit: LimitOption = None,
    json_target: JsonOption = None,
) -> None:
    """Read a site's history in any known format, say what was left out, and write it."""
    from clearway.bootstrap.inputs import describe_workload, read_trace, write_swf
    from clearway.cli.show_traces import show_description

    session = session_of(context)
    ready_outputs(json_target, out)
    with session.progress("Reading {trace}", trace=Path(trace).name) as progress:
        workload = read_trace(trace, format_name=trace_format, limit=limit, progress=progress)
    jobs = write_swf(workload, out)
    described = describe_workload(workload)
    result = {"file": str(out), "jobs": jobs}
    finish_with(session, lambda: result, json_target, lambda: show_description(session, described, workload.skipped))
    note_written(session, out)


@trace_app.command(help="List the formats that can be read.")
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
