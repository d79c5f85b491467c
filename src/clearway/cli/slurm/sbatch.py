"""`sbatch`: submit a batch script with options of the command line, which go before those of the script."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clearway.cli.connection import environment
from clearway.cli.slurm.arguments import EXIT_OPTION, UsageError, refuse_option
from clearway.cli.slurm.sbatch_text import check_script, refuse_submission
from clearway.cli.slurm.sbatch_variables import read_variables
from clearway.wire.slurm_options import OPTIONS, SHORT_NAMES, Takes

if TYPE_CHECKING:
    from clearway.client import Client
    from clearway.model.ids import JobId

OWN: Final = ("parsable", "wait", "test-only", "wrap", "quiet", "verbose", "help", "usage", "version")
"""Options that the command itself obeys; all others go to the server, which knows them."""

MAY_BE_THERE: Final = (
    "the job may have been accepted all the same: look for it with `squeue --me` before you submit it again"
)

WRAPPED: Final = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A command line: options for the server as words, the command's own by name, and what follows the options."""

    words: tuple[str, ...]
    own: Mapping[str, str]
    rest: tuple[str, ...]


def run(arguments: Sequence[str]) -> int:
    """Submit, and say the number on standard output."""
    from clearway.cli.connection import connect, submitted_environment
    from clearway.client.errors import RefusedError, TimedOutError
    from clearway.wire.api import Form, SubmittedFile

    line = split_line("sbatch", arguments, OWN)
    text, source, args = _read_script(line)
    asked = read_variables(environment(), line.words, OWN)
    own = {**dict.fromkeys(asked.own, ""), **line.own}
    options = (*asked.words, *line.words)
    file = SubmittedFile(text=text, source=source, form=Form.SCRIPT, options=options, args=args)
    with connect() as client:
        try:
            answer = client.submit(
                [file], cwd=str(Path.cwd()), environment=submitted_environment(), test_only="test-only" in line.own
            )
        except RefusedError as error:
            raise refuse_submission("sbatch", str(error)) from error
        except TimedOutError as error:
            raise UsageError(f"{error}\n{MAY_BE_THERE}") from error
        for note in (*asked.notes, *answer.notes):
            if "quiet" not in own:
                sys.stderr.write(f"sbatch: {note}\n")
        if answer.is_test:
            sys.stderr.write(f"sbatch: the script is good; it would become {len(answer.jobs)} job(s)\n")
            return 0
        _tell((answer.firsts or answer.jobs)[0], own)
        if "wait" in own:
            return _wait(client, answer.jobs)
    return 0


def _tell(number: "JobId", own: Mapping[str, str]) -> None:
    """On standard output; where that takes nothing, on standard error: the job is there all the same."""
    try:
        if "parsable" in own:
            sys.stdout.write(f"{number}\n")
        elif "quiet" not in own:
            sys.stdout.write(f"Submitted batch job {number}\n")
        sys.stdout.flush()
    except OSError:
        sys.stderr.write(f"sbatch: error: Submitted batch job {number}, whose number could not be written\n")
        raise


def _wait(client: "Client", jobs: "Sequence[JobId]") -> int:
    """Until all have ended; the highest exit code. Unlike Slurm, not for ever for a job that can never start."""
    from clearway.cli.live_submit import exit_code_of

    code = 0
    for job in client.wait(jobs):
        if not job.state.is_final:
            sys.stderr.write(
                f"sbatch: error: job {job.id} will never start: {job.reason}; scancel {job.id} removes it\n"
            )
        code = max(code, 0 if job.state.value == "COMPLETED" else exit_code_of(job))
    return code


def split_line(command: str, arguments: Sequence[str], own_names: Sequence[str]) -> Line:
    """Cut at the first word that is no option and no option's value. Raises UsageError for an unknown option.

    command: whose line it is.
    """
    words: list[str] = []
    own: dict[str, str] = {}
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word == "--":
            place += 1
            break
        if not word.startswith("-") or word == "-":
            break
        name, value, used = _read_option(command, arguments, place)
        if name in own_names:
            own[name] = value or ""
        else:
            words.append(f"--{name}" if value is None else f"--{name}={value}")
        place += used
    return Line(tuple(words), own, tuple(arguments[place:]))


def _read_option(command: str, arguments: Sequence[str], place: int) -> tuple[str, str | None, int]:
    """(long name, value, words used)."""
    word = arguments[place]
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = _complete(command, name)
        given: str | None = value if equals else None
    else:
        if word[1] not in SHORT_NAMES:
            raise refuse_option(command, f"invalid option -- '{word[1]}'", EXIT_OPTION)
        name, given = SHORT_NAMES[word[1]], word[2:] or None
        if OPTIONS[name].takes is not Takes.VALUE and given is not None:
            raise UsageError(f"expected -{word[1]} by itself, found {word!r}; write each short option as a word")
    if OPTIONS[name].takes is Takes.VALUE and given is None:
        if place + 1 >= len(arguments):
            problem = (
                f"'--{name}' requires an argument" if word.startswith("--") else f"requires an argument -- '{word[1]}'"
            )
            raise refuse_option(command, f"option {problem}", EXIT_OPTION)
        return name, arguments[place + 1], 2
    return name, given, 1


def _complete(command: str, name: str) -> str:
    """A long name, or the only one that begins so."""
    if name in OPTIONS:
        return name
    found = [known for known in OPTIONS if known.startswith(name)]
    if len(found) != 1:
        listed = "; possibilities: " + " ".join(f"'--{name}'" for name in found)
        problem = f"option '--{name}' is ambiguous{listed}" if found else f"unrecognized option '--{name}'"
        raise refuse_option(command, problem, EXIT_OPTION)
    return found[0]


def _read_script(line: Line) -> tuple[str, str, tuple[str, ...]]:
    """(text, its name in messages, words for it). Raises UsageError for what is no batch script."""
    text, source, args = _find_script(line)
    check_script(text)
    return text, source, args


def _find_script(line: Line) -> tuple[str, str, tuple[str, ...]]:
    if "wrap" in line.own:
        if line.rest:
            raise UsageError("Script arguments not permitted with --wrap option")
        return WRAPPED.format(command=line.own["wrap"]), "wrap", ()
    if not line.rest:
        return sys.stdin.read(), "sbatch", ()
    path = Path(line.rest[0])
    try:
        return path.read_bytes().decode(), str(path), tuple(line.rest[1:])
    except OSError as error:
        raise UsageError(f"Unable to open file {path}\n{error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected a script in UTF-8, found: {error}") from error
