"""How a command ends that could not do its work: one clear block on standard error, and a code that scripts can use.

Codes: 0 done; 2 something given is wrong (also Typer's code for wrong options); 3 an optional part is not installed;
from sysexits.h 65 stored data is damaged, 69 the control plane does not answer or takes nothing now, 70 our bug, with
the story, 74 standard output cannot be written, 76 it speaks another language, 77 not allowed; 130 interrupted.
"""

import traceback
from typing import Any, Final

import typer
from rich.text import Text
from typer.core import TyperGroup

from clearway.cli.session import Session, make_session
from clearway.cli.streams import describe, is_output_lost
from clearway.model.errors import ClearwayError, InputError, InternalError, MissingExtraError

EXIT_INPUT: Final = 2
EXIT_MISSING_EXTRA: Final = 3
EXIT_INTERNAL: Final = 70
EXIT_DATA: Final = 65
EXIT_UNAVAILABLE: Final = 69
EXIT_OUTPUT: Final = 74
EXIT_PROTOCOL: Final = 76
EXIT_NOT_ALLOWED: Final = 77


class CommandGroup(TyperGroup):
    """A group of commands that turns exceptions into messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            _show(ctx, "Input error", str(error))
            raise typer.Exit(EXIT_INPUT) from error
        except MissingExtraError as error:
            _show(ctx, "Not installed", str(error))
            raise typer.Exit(EXIT_MISSING_EXTRA) from error
        except Exception as error:
            if _is_of_typer(error):
                raise
            if isinstance(error, OSError) and is_output_lost(error):
                _show(ctx, "Not written", describe(error))
                raise typer.Exit(EXIT_OUTPUT) from error
            world = find_world_error(error)
            if world is not None:
                _show(ctx, world[0], str(error))
                raise typer.Exit(world[1]) from error
            _show(ctx, "Internal error; please report it with what follows", traceback.format_exc())
            raise typer.Exit(EXIT_INTERNAL) from error


def find_world_error(error: Exception) -> tuple[str, int] | None:
    """(heading, exit code) where the world failed and not we; None where it is our bug."""
    if not isinstance(error, ClearwayError) or isinstance(error, InternalError):
        return None
    from clearway.client.errors import ApiError, ForbiddenError, MisunderstoodError, UnauthorizedError

    if isinstance(error, UnauthorizedError | ForbiddenError):
        return "Not allowed", EXIT_NOT_ALLOWED
    if isinstance(error, MisunderstoodError):
        return "Not understood", EXIT_PROTOCOL
    if isinstance(error, ApiError):
        return "Not available", EXIT_UNAVAILABLE
    from clearway.ports.storage import JournalError

    if isinstance(error, JournalError):
        return "Stored data is damaged", EXIT_DATA
    return "Not available", EXIT_UNAVAILABLE


def _is_of_typer(error: Exception) -> bool:
    """Whether Typer itself knows what to do: wrong options, `typer.Exit`, an aborted prompt, a closed pipe.

    Its exceptions have no common public base, but all that end the program by themselves carry an exit code."""
    return hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError)


def _show(context: Any, heading: str, story: str) -> None:
    session = context.obj if isinstance(context.obj, Session) else make_session(None)
    session.notes.print(Text(session.say(heading), style="bold red"), soft_wrap=True)
    for line in story.rstrip().splitlines():
        session.notes.print(Text(f"  {line}"), soft_wrap=True)
