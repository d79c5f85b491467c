"""`clearway whatif`: when what waits now would start, under other policies or on other nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearway.cli.connection import connect
from clearway.cli.options import ClusterOption, JsonOption
from clearway.cli.outputs import finish_with, note_compiling, ready_outputs
from clearway.cli.session import Session, session_of

if TYPE_CHECKING:
    from clearway.bootstrap.whatif import Outlook

ROWS_MAX = 20
"""Waiting jobs on the screen; all are in the JSON."""

AT_ONCE_MS = 1_000
"""What the twin starts sooner would start in the next decision."""


def whatif(
    context: typer.Context,
    snapshot: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Of `clearway snapshot`; else the cluster that runs, now.")
    ] = None,
    policies: Annotated[
        str,
        typer.Option("--policies", metavar="A,B,C", help="Policies of `clearway policies` or YAML files, by commas."),
    ] = "clearway,easy,fifo",
    cluster: ClusterOption = None,
    json_target: JsonOption = None,
) -> None:
    """The twin goes on from now under each policy, with the run times that are expected of the jobs."""
    from clearway.bootstrap.whatif import look_ahead, read_snapshot_file

    session = session_of(context)
    ready_outputs(json_target)
    if snapshot is None:
        with connect() as client:
            found = client.snapshot()
    else:
        found = read_snapshot_file(snapshot)
    note_compiling(session)
    with session.progress("Looking ahead under {count} policies", count=policies.count(",") + 1) as progress:
        outlook = look_ahead(found, policies, cluster, progress)
    source = "" if snapshot is None else str(snapshot)
    finish_with(session, lambda: _as_json(outlook), json_target, lambda: _show(session, outlook, source))


def _as_json(outlook: "Outlook") -> dict[str, object]:
    from clearway.bootstrap.reports import comparison_as_json

    names = outlook.comparison.request.policies
    waiting = [
        {
            "job": one.job,
            "name": one.name,
            "user": one.user,
            "starts_in_s": {
                name: None if start is None else start / 1_000 for name, start in zip(names, one.starts_ms, strict=True)
            },
        }
        for one in outlook.waiting
    ]
    return {"waiting": waiting, "policies": comparison_as_json(outlook.comparison)["policies"]}


def _show(session: Session, outlook: "Outlook", source: str) -> None:
    """source: the file that the snapshot comes from; "" = it is of now."""
    from clearway.cli.show_runs import show_comparison
    from clearway.cli.tables import add_row, make_table, show_table

    names = outlook.comparison.request.policies
    table = make_table(session, ("Job", "Name", "User", *names))
    for one in outlook.waiting[:ROWS_MAX]:
        starts = [_render_start(session, start) for start in one.starts_ms]
        add_row(table, (str(one.job), one.name, one.user, *starts))
    if outlook.waiting:
        show_table(session, session.translate("How long until what waits would start"), table)
    if len(outlook.waiting) > ROWS_MAX:
        session.note("{count} more in the JSON", count=len(outlook.waiting) - ROWS_MAX)
    begin = source or session.translate("now")
    title = session.say("All jobs, from {begin} until the last has ended; * best of the column", begin=begin)
    show_comparison(session, outlook.comparison, title)


def _render_start(session: Session, start_ms: int | None) -> str:
    """How long until a job starts."""
    from clearway.cli.figures import MISSING, render_duration

    if start_ms is None:
        return MISSING
    return session.translate("at once") if start_ms < AT_ONCE_MS else render_duration(start_ms / 1_000)
