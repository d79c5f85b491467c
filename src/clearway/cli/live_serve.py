"""`clearway serve`: a further API server beside a control plane."""

import os
import signal
import threading
from typing import Annotated

import typer

from clearway.cli.connection import environment
from clearway.cli.live_up import ConfigOption
from clearway.cli.options import JsonOption, StateDirOption
from clearway.cli.outputs import write_json
from clearway.cli.session import session_of


def serve(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where; 0 as the port: any free one.")
    ] = "127.0.0.1:8643",
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    control: Annotated[
        str, typer.Option("--control", metavar="URL", help="The control plane; else as the state directory says.")
    ] = "",
    json_target: JsonOption = None,
) -> None:
    """Run until Ctrl-C or SIGTERM."""
    from clearway.bootstrap.configuration import find_config_file
    from clearway.bootstrap.serving import ServeRequest, start_api_server

    session, ended = session_of(context), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    request = ServeRequest(
        listen=listen,
        config_file=find_config_file(environment(), config),
        state_dir=state_dir,
        control=control,
        environment=environment(),
    )
    server = start_api_server(request)
    try:
        session.note("Ready at {url}", url=server.url)
        if server.problem:
            session.notes.print(server.problem, markup=False, soft_wrap=True)
        if json_target is not None:
            write_json(session, {"url": server.url, "pid": os.getpid()}, json_target)
            session.screen.file.flush()
        ended.wait()
    finally:
        server.stop()
