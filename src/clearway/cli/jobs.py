"""`clearway job`: what Clearway understands from a job file, before anything runs."""

from pathlib import Path
from typing import Annotated

import typer

from clearway.bootstrap.places import current_user, now_ms
from clearway.cli.options import JsonOption
from clearway.cli.outputs import is_json_only, write_json
from clearway.cli.session import session_of

job_app = typer.Typer(no_args_is_help=True, help="Check job files and #SBATCH scripts.")


@job_app.callback()
def jobs() -> None:
    """A group even with one command, so that `clearway job check` keeps its name when others come."""


@job_app.command(help="Read job files or #SBATCH scripts and echo what was understood; exit code 2 with all errors.")
def check(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML, JSON, or a script with #SBATCH lines.")],
    json_target: JsonOption = None,
) -> None:
    """Parse every file before failing, so that one run shows all that is wrong."""
    from clearway.bootstrap.jobs import checked_file_as_json, read_job_files
    from clearway.cli.show_jobs import show_checked_file

    session = session_of(context)
    understood = read_job_files(files, now_ms=now_ms(), user=current_user())
    if not is_json_only(json_target):
        for checked in understood:
            show_checked_file(session, checked)
    if json_target is not None:
        write_json(session, [checked_file_as_json(checked) for checked in understood], json_target)
