"""`sbatch`: submit a batch script with options of the command line, which go before those of the script."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clearway.cli.slurm.arguments import UsageError
from clearway.cli.slurm.common import environment
from clearway.wire.slurm_options import OPTIONS, SHORT_NAMES, Takes

OWN: Final = ("parsable", "wait", "test-only", "wrap", "quiet", "verbose", "help", "usage", "version")
"""Options that the command itself obeys; all others go to the server, which knows them."""

VARIABLES: Final[Mapping[str, str]] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_ERROR": "error",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_TIMELIMIT": "time",
}
"""Input variables of sbatch(1): they go before the script's options and behind those of the command line."""

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
    from clearway.wire.api import Form, SubmittedFile

    line = split_line(arguments, OWN)
    text, source, args = _read_script(line)
    options = (*_options_of_environment(environment(), line.words), *line.words)
    file = SubmittedFile(text=text, source=source, form=Form.SCRIPT, options=options, args=args)
    with connect() as client:
        answer = client.submit(
            [file], cwd=str(Path.cwd()), environment=submitted_environment(), test_only="test-only" in line.own
        )
        for note in answer.notes:
            if "quiet" not in line.own:
                sys.stderr.write(f"sbatch: {note}\n")
        if answer.is_test:
            sys.stderr.write(f"sbatch: the script is good; it would become {len(answer.jobs)} job(s)\n")
            return 0
        number = (answer.firsts or answer.jobs)[0]
        sys.stdout.write(f"{number}\n" if "parsable" in line.own else f"Submitted batch job {number}\n")
        sys.stdout.flush()
        if "wait" in line.own:
            from clearway.cli.live_submit import exit_code_of

            ended = client.wait(answer.jobs)
            return max((0 if job.state.value == "COMPLETED" else exit_code_of(job) for job in ended), default=0)
    return 0


def split_line(arguments: Sequence[str], own_names: Sequence[str]) -> Line:
    """Cut at the first word that is no option and no option's value. Raises UsageError for an unknown option."""
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
        name, value, used = _read_option(arguments, place)
        if name in own_names:
            own[name] = value or ""
        else:
            words.append(f"--{name}" if value is None else f"--{name}={value}")
        place += used
    return Line(tuple(words), own, tuple(arguments[place:]))


def _read_option(arguments: Sequence[str], place: int) -> tuple[str, str | None, int]:
    """(long name, value, words used)."""
    word = arguments[place]
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = _complete(name)
        given: str | None = value if equals else None
    else:
        if word[1] not in SHORT_NAMES:
            raise UsageError(f"invalid option -- '{word[1]}'")
        name, given = SHORT_NAMES[word[1]], word[2:] or None
        if OPTIONS[name].takes is not Takes.VALUE and given is not None:
            raise UsageError(f"expected -{word[1]} by itself, found {word!r}; write each short option as a word")
    if OPTIONS[name].takes is Takes.VALUE and given is None:
        if place + 1 >= len(arguments):
            raise UsageError(f"option '--{name}' requires an argument")
        return name, arguments[place + 1], 2
    return name, given, 1


def _complete(name: str) -> str:
    """A long name, or the only one that begins so."""
    if name in OPTIONS:
        return name
    found = [known for known in OPTIONS if known.startswith(name)]
    if len(found) != 1:
        kind = "ambiguous" if found else "unrecognized"
        raise UsageError(f"{kind} option '--{name}'" + (f"; could be {', '.join(found)}" if found else ""))
    return found[0]


def _options_of_environment(variables: Mapping[str, str], words: Sequence[str]) -> list[str]:
    """What the environment asks for and the command line does not."""
    given = {word[2:].partition("=")[0] for word in words}
    return [f"--{name}={variables[key]}" for key, name in VARIABLES.items() if variables.get(key) and name not in given]


def _read_script(line: Line) -> tuple[str, str, tuple[str, ...]]:
    """(text, its name in messages, words for it)."""
    if "wrap" in line.own:
        if line.rest:
            raise UsageError(f"Script arguments not permitted with --wrap option: {' '.join(line.rest)}")
        return WRAPPED.format(command=line.own["wrap"]), "wrap", ()
    if not line.rest:
        return sys.stdin.read(), "sbatch", ()
    path = Path(line.rest[0])
    try:
        return path.read_text(encoding="utf-8"), str(path), tuple(line.rest[1:])
    except OSError as error:
        raise UsageError(f"Unable to open file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected a script in UTF-8, found: {error}") from error
