"""The root command: what holds for all commands, and the list of them."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from clearway import __version__
from clearway.cli.comparing import compare
from clearway.cli.errors import EXIT_OUTPUT, CommandGroup
from clearway.cli.jobs import job_app
from clearway.cli.live import register_live_commands
from clearway.cli.messages import Language, choose_language, translate
from clearway.cli.policies import policies_app
from clearway.cli.scenarios import scenario_app
from clearway.cli.session import make_session
from clearway.cli.simulating import simulate
from clearway.cli.streams import describe, is_output_lost, ready_output
from clearway.cli.traces import import_trace, trace_app
from clearway.cli.whatif import whatif

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dynamic allocation of GPU clusters: run jobs on this machine, or try a policy on real traces.",
)
app.command(help="Replay a trace under one policy and show waits, use, and the gap to the limits.")(simulate)
app.command(help="Replay a trace under several policies, on all cores, and mark the best of each column.")(compare)
app.command(help="Say when what waits would start under other policies or on other nodes.")(whatif)
app.command(name="import", help="Read a site's history in any known format, and write it for the twin.")(import_trace)
app.add_typer(trace_app, name="trace")
app.add_typer(policies_app, name="policies")
app.add_typer(job_app, name="job")
app.add_typer(scenario_app, name="scenario")
register_live_commands(app)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"clearway {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    language: Annotated[
        Language | None, typer.Option("--language", help="Language of messages; else that of the locale.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make the session that every command uses."""
    assert not version, "the callback has ended the program"
    context.obj = make_session(language)


def main() -> None:
    """Run the command line of this process; ends it with an exit code."""
    ready_output()
    language = choose_language(find_language(sys.argv[1:]), os.environ)  # noqa: TID251 - the command line is the border
    try:
        make_command(language)(prog_name="clearway")
    except OSError as error:  # of help, which is written before there is a command
        if not is_output_lost(error):
            raise
        sys.stderr.write(f"clearway: {describe(error)}\n")
        sys.exit(EXIT_OUTPUT)


def find_language(arguments: Sequence[str]) -> str | None:
    """The value of `--language` among raw arguments: help is written before options are parsed."""
    for place, argument in enumerate(arguments):
        if argument.startswith("--language="):
            return argument.partition("=")[2]
        if argument == "--language" and place + 1 < len(arguments):
            return arguments[place + 1]
    return None


def make_command(language: Language) -> Any:
    """The whole tree of commands with its help in `language`."""
    command = typer.main.get_command(app)
    _translate_help(command, language)
    return command


def _translate_help(command: Any, language: Language) -> None:
    """Translate the help of `command`, its parameters, and its sub-commands, in place."""
    command.help = translate(command.help, language) if command.help else command.help
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text:
            parameter.help = translate(text, language)
    children: Mapping[str, Any] = getattr(command, "commands", {})
    for child in children.values():
        _translate_help(child, language)
