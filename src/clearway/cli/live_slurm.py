"""`clearway slurm` and `clearway sbatch ...`: the Slurm-named commands, by name or as programs in a folder."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli.options import JsonOption
from clearway.cli.outputs import write_json
from clearway.cli.session import session_of
from clearway.cli.slurm.main import COMMANDS, run_slurm_command
from clearway.model.errors import InputError

slurm_app = typer.Typer(no_args_is_help=True, help="The commands of Slurm's users: sbatch, squeue, sinfo, ...")

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
"""Their options are read by their own rules."""


@slurm_app.callback()
def slurm() -> None:
    """A group even with one command, so that others can come."""


@slurm_app.command(help="Make sbatch, squeue, ... in a folder of your own, to be put into PATH.")
def install(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An own folder; never one that Slurm's lie in.")],
    force: Annotated[bool, typer.Option("--force", help="Replace what has these names there.")] = False,
    json_target: JsonOption = None,
) -> None:
    """Symbolic links to the program `clearway-slurm`, which looks at its name."""
    session = session_of(context)
    program = Path(sys.executable).with_name("clearway-slurm")
    if not program.exists():
        raise InputError(f"{program}: expected the program that comes with Clearway, found none; install it with pip")
    folder.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        link = folder / name
        if link.is_symlink() and link.readlink() == program:
            continue
        if link.is_symlink() or link.exists():
            if not force:
                raise InputError(f"{link}: expected nothing there, found something; choose another folder, or --force")
            link.unlink()
        link.symlink_to(program)
    session.note(
        'Made {count} commands; use them by: export PATH="{folder}:$PATH"',
        count=len(COMMANDS),
        folder=folder.absolute(),
    )
    if json_target is not None:
        write_json(session, {"folder": str(folder.absolute()), "commands": list(COMMANDS)}, json_target)


def register_slurm_commands(app: typer.Typer) -> None:
    """`clearway squeue ...` and the others, for help and documents; `main` runs them before they are parsed here."""
    for name, summary in COMMANDS.items():
        app.command(name, help=summary, context_settings=PASSED_ON, rich_help_panel="Slurm")(_make_command(name))


def _make_command(name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        raise typer.Exit(run_slurm_command(name, context.args))

    command.__doc__ = COMMANDS[name]
    return command
