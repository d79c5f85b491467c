"""`clearway top`: the cluster as it is now, drawn anew each second."""

import io
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from clearway.bootstrap.places import now_ms
from clearway.cli.connection import connect
from clearway.cli.options import JsonOption
from clearway.cli.outputs import write_json
from clearway.cli.session import Session, session_of

if TYPE_CHECKING:
    from clearway.cli.show_top import Scene
    from clearway.client import Client

JOBS_MAX: Final = 200
ENDED_SHOWN: Final = 6
PICTURE_WIDTH: Final = 118


def top(
    context: typer.Context,
    interval_s: Annotated[float, typer.Option("--interval", "-d", min=0.1, metavar="S", help="Seconds between.")] = 1.0,
    is_once: Annotated[bool, typer.Option("--once", help="Draw it once and end.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw it once, as a picture.")] = None,
    json_target: JsonOption = None,
) -> None:
    """Until Ctrl-C, or the control plane ends."""
    session = session_of(context)
    with connect() as client:
        if json_target is not None:
            write_json(session, encode_scene(fetch_scene(client)), json_target)
        elif svg is not None:
            write_svg(session, fetch_scene(client), svg)
        elif is_once or not session.screen.file.isatty():  # FORCE_COLOR makes no terminal of a pipe
            from clearway.cli.show_top import draw_scene

            session.screen.print(draw_scene(session, fetch_scene(client)))
        else:
            watch(session, client, interval_s)


def watch(session: Session, client: "Client", interval_s: float) -> None:
    """Draw until interrupted."""
    from rich.live import Live

    from clearway.cli.show_top import draw_scene

    with Live(console=session.screen, screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(draw_scene(session, fetch_scene(client)), refresh=True)
                time.sleep(interval_s)
        except KeyboardInterrupt:
            return


def fetch_scene(client: "Client") -> "Scene":
    """What to draw, by four questions."""
    from clearway.cli.show_top import Scene
    from clearway.ports.views import FINAL_STATES, JobQuery, JobState

    waiting = (JobState.PENDING, JobState.REQUEUE_HOLD)
    running = tuple(state for state in JobState if not state.is_final and state not in waiting)
    ended = tuple(state for state in JobState if state in FINAL_STATES)
    return Scene(
        cluster=client.cluster(),
        running=client.jobs(JobQuery(states=running, limit=JOBS_MAX)).jobs,
        waiting=client.jobs(JobQuery(states=waiting, limit=JOBS_MAX)).jobs,
        ended=client.jobs(JobQuery(states=ended, newest_first=True, limit=ENDED_SHOWN)).jobs,
        now_ms=now_ms(),
    )


def encode_scene(scene: "Scene") -> dict[str, object]:
    """The same as plain data: rows as the API has them."""
    from clearway.wire.api_rows import encode_row, encode_rows

    jobs = {"running": scene.running, "waiting": scene.waiting, "ended": scene.ended}
    return {"cluster": encode_row(scene.cluster), **{name: encode_rows(rows) for name, rows in jobs.items()}}


def write_svg(session: Session, scene: "Scene", path: Path) -> None:
    """The picture as SVG, for documents."""
    from rich.console import Console

    from clearway.cli.outputs import note_written, ready_path
    from clearway.cli.show_top import draw_scene

    ready_path(path)
    console = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(draw_scene(session, scene))
    # Rich names fonts of a host on the network; a document must not ask it.
    path.write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="clearway top"), flags=re.DOTALL))
    note_written(session, path)
