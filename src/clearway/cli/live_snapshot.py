"""`clearway snapshot`: the cluster that runs, as a file that the twin goes on from."""

import json
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli.connection import connect
from clearway.cli.options import JsonOption
from clearway.cli.outputs import STANDARD_OUTPUT, write_json, write_text
from clearway.cli.session import session_of


def snapshot(
    context: typer.Context,
    target: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to write it; standard output without one.")
    ] = None,
    json_target: JsonOption = None,
) -> None:
    """Write nodes, queues and all jobs that have not ended to a file, for `clearway simulate FILE`."""
    from clearway.wire.snapshots import render_snapshot

    session = session_of(context)
    with connect() as client:
        found = client.snapshot()
    text = "".join(f"{line}\n" for line in render_snapshot(found))
    if json_target is not None:
        write_json(session, [json.loads(line) for line in text.splitlines()], json_target)
        if target is None:
            return
    if target is None or str(target) == STANDARD_OUTPUT:
        session.screen.file.write(text)
        return
    write_text(session, text, target)
    session.note(
        "{nodes} node(s) and {jobs} job(s); try: clearway simulate {target} --policy clearway",
        nodes=len(found.nodes),
        jobs=len(found.jobs),
        target=target,
    )
