"""`#SBATCH` scripts, taken as they are: options become a job, and the script its run.

As Slurm does: options stand in lines that begin with `#SBATCH`, up to the first line that is neither blank nor a
comment; of an option given twice the later counts; the first line names the interpreter. Unlike Slurm, nothing is
guessed: an option that is unknown, or whose value does not parse, is an error, and so is one that cannot be kept
though the job would get something else without it. Options that change nothing for the job yield a note.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from clearway.model.errors import InputError
from clearway.wire.dependencies import parse_slurm_dependencies
from clearway.wire.moments import parse_moment
from clearway.wire.problems import NOTHING, ParseError, Problem, raise_problems, suggest_name
from clearway.wire.ranges import expand_names, parse_array
from clearway.wire.sbatch_job import make_submission
from clearway.wire.slurm_options import OPTIONS, SHORT_NAMES, Option, Takes
from clearway.wire.slurm_values import (
    parse_constraint,
    parse_exclusive,
    parse_export,
    parse_gpus,
    parse_gres,
    parse_nice,
    parse_nodes,
    parse_open_mode,
    parse_positive,
    parse_signal,
    parse_switches,
    parse_text,
)
from clearway.wire.submission import ParsedSubmission
from clearway.wire.texts import check_interpreter
from clearway.wire.units import parse_slurm_memory, parse_slurm_time

SCRIPT_CHARACTERS_MAX: Final = 4 << 20
"""Slurm's default for the size of a batch script (max_script_size)."""

Parser = Callable[[Any], Any]

EXCLUSIVE_GROUPS: Final[tuple[tuple[str, ...], ...]] = (
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("gres", "gpus-per-node"),
    ("cpus-per-task", "cpus-per-gpu"),
    ("requeue", "no-requeue"),
)
"""Options of which a script may give one. `gres` counts where it asks for GPUs."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One option as written. value None = it has none."""

    line: int
    option: Option
    value: str | None


@dataclass(slots=True)
class Script:
    """What was read of a script. values: parsed, by long name of the option; lines: where each was given."""

    source: str
    text: str
    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, line: int, field: str, error: ParseError) -> None:
        """Keep a problem for the end, when all are told at once."""
        self.problems.append(
            Problem(
                source=self.source,
                line=line,
                field=field,
                expected=error.expected,
                found=error.found,
                hint=error.hint,
            )
        )


def parse_sbatch(
    text: str, *, source: str, now_ms: int, first_id: int, user: str, options: Sequence[str] = ()
) -> ParsedSubmission:
    """The job, or the members of the array, that a batch script asks for.

    source: name of the script in messages; without `-J` the job is called like its last part. now_ms: Unix time, for
    --begin and --deadline. first_id: number of the first job. options: words of the command line, which go before what
    the script says. Raises InputError that lists all errors with lines.
    """
    script = Script(source=source, text=text)
    _check_script(script)
    read_moment: Parser = partial(parse_moment, now_ms=now_ms)
    parsers: dict[str, Parser] = {**_PARSERS, "begin": read_moment, "deadline": read_moment}
    for line, words in _read_directive_lines(script):
        for directive in _split_options(words, line, script):
            _read_value(directive, parsers, script)
    _read_command_line(options, parsers, script)
    _check_exclusive(script)
    raise_problems(script.problems)
    try:
        return make_submission(
            script.values,
            script.texts,
            script_text=text,
            script_name=PurePath(source).name,
            notes=tuple(script.notes),
            now_ms=now_ms,
            first_id=first_id,
            user=user,
        )
    except ParseError as error:
        script.refuse(script.lines.get(error.field, 0), f"--{error.field}", error)
        raise_problems(script.problems)
        raise


def _read_command_line(options: Sequence[str], parsers: Mapping[str, Parser], script: Script) -> None:
    """Options of the command line: each takes the place of the script's own, and of what it excludes."""
    directives = list(_split_options(list(options), 0, script))
    for group in EXCLUSIVE_GROUPS:
        if any(directive.option.name in group for directive in directives):
            for name in group:
                script.values.pop(name, None)
                script.texts.pop(name, None)
    for directive in directives:
        _read_value(directive, parsers, script)


# --- lines and words --------------------------------------------------------------------------------------------------


def _check_script(script: Script) -> None:
    """What Slurm itself refuses: no script, no interpreter, DOS line ends."""
    first = script.text.split("\n", 1)[0]
    if len(script.text) > SCRIPT_CHARACTERS_MAX:
        raise InputError(f"{script.source}: expected at most {SCRIPT_CHARACTERS_MAX} characters, found more")
    if not first.startswith("#!"):
        error = ParseError(
            expected="a first line that names the interpreter", found=first or NOTHING, hint="such as #!/bin/bash"
        )
        script.refuse(1, "", error)
    if "\r\n" in script.text:
        line = script.text[: script.text.index("\r\n")].count("\n") + 1
        error = ParseError(expected="Unix line ends", found="DOS line ends", hint="convert it with dos2unix")
        script.refuse(line, "", error)
    if "\0" in script.text:
        line = script.text[: script.text.index("\0")].count("\n") + 1
        script.refuse(line, "", ParseError(expected="text", found="a NUL byte", hint="is it a program, not a script?"))
    raise_problems(script.problems)
    try:
        check_interpreter(script.text)
    except ParseError as error:
        script.refuse(1, "", error)
        raise_problems(script.problems)


def _read_directive_lines(script: Script) -> Iterator[tuple[int, list[str]]]:
    """(line number, words) of each `#SBATCH` line before the first command."""
    commands_begin = 0
    for number, line in enumerate(script.text.split("\n"), start=1):
        is_directive = re.match(r"#SBATCH(?:\s|$)", line) is not None
        if commands_begin and is_directive:
            script.notes.append(
                f"line {number}: not read, as in Slurm: options end at the first command (line {commands_begin})"
            )
        elif is_directive:
            words = _split_words(line[len("#SBATCH") :], number, script)
            if words:
                yield number, words
        elif line.strip() and not line.lstrip().startswith("#"):
            commands_begin = commands_begin or number


def _split_words(text: str, line: int, script: Script) -> list[str]:
    """Words as a shell splits them, quotes removed; a word that begins with # begins a comment."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if word.startswith("#"):
                break
            words.append(word)
    except ValueError:
        script.refuse(line, "", ParseError(expected="closed quotes", found=text.strip(), hint="add the missing quote"))
        return []
    return words


def _split_options(words: list[str], line: int, script: Script) -> Iterator[Directive]:
    """Options with their values: `--name=value`, `--name value`, `-Nvalue`, `-N value`."""
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        option, value = _find_option(word)
        if option is None:
            script.refuse(line, "", _describe_unknown(word))
            return
        if value is not None and option.takes is Takes.NOTHING:
            if word.startswith("--"):
                error = ParseError(expected="no value", found=value, hint=f"write --{option.name}")
                script.refuse(line, f"--{option.name}", error)
                return
            queue.append(f"-{value}")  # flags in one word: -HQ
            value = None
        if value is None and option.takes is Takes.VALUE:
            if not queue:
                error = ParseError(expected="a value", found=NOTHING, hint=f"write --{option.name}=value")
                script.refuse(line, f"--{option.name}", error)
                return
            value = queue.pop()
        yield Directive(line, option, value)


def _find_option(word: str) -> tuple[Option | None, str | None]:
    """The option that a word names, and the value within the word, if any."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return OPTIONS.get(name), value if equals else None
    if word.startswith("-") and len(word) > 1:
        return OPTIONS.get(SHORT_NAMES.get(word[1], "")), word[2:] or None
    return None, None


def _describe_unknown(word: str) -> ParseError:
    if not word.startswith("-"):
        return ParseError(expected="an option of sbatch", found=word, hint="options begin with - or --; quote blanks")
    name = word.split("=", 1)[0]
    near = suggest_name(name.lstrip("-"), OPTIONS) if name.startswith("--") else ""
    hint = near.replace("mean '", "mean '--") or "see the man page of sbatch for its options"
    return ParseError(expected="an option of sbatch", found=name, hint=hint)


# --- values -----------------------------------------------------------------------------------------------------------


def _read_flag(_value: str | None) -> bool:
    return True


_PARSERS: Final[Mapping[str, Parser]] = {
    **dict.fromkeys(("account", "chdir", "error", "input", "job-name", "output", "partition", "qos"), parse_text),
    **dict.fromkeys(("cpus-per-gpu", "cpus-per-task", "ntasks", "ntasks-per-node", "segment"), parse_positive),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task"), parse_gpus),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), parse_slurm_memory),
    **dict.fromkeys(("nodelist", "exclude"), expand_names),
    **dict.fromkeys(("time", "time-min"), parse_slurm_time),
    **dict.fromkeys(("hold", "requeue", "no-requeue"), _read_flag),
    "array": parse_array,
    "constraint": parse_constraint,
    "dependency": parse_slurm_dependencies,
    "exclusive": parse_exclusive,
    "export": parse_export,
    "gres": parse_gres,
    "nice": parse_nice,
    "nodes": parse_nodes,
    "open-mode": parse_open_mode,
    "signal": parse_signal,
    "switches": parse_switches,
}


def _read_value(directive: Directive, parsers: Mapping[str, Parser], script: Script) -> None:
    option, name = directive.option, directive.option.name
    if option.refusal:
        error = ParseError(expected="options that can be kept", found=f"--{name}", hint=option.refusal)
        script.refuse(directive.line, f"--{name}", error)
        return
    if not option.is_acted:
        place = f"line {directive.line}: " if directive.line else ""
        script.notes.append(f"{place}--{name} is known, but not acted upon")
        return
    try:
        script.values[name] = parsers[name](directive.value)
    except ParseError as error:
        script.refuse(directive.line, f"--{name}", error)
        return
    script.texts[name] = directive.value or ""
    script.lines[name] = directive.line


def _check_exclusive(script: Script) -> None:
    for group in EXCLUSIVE_GROUPS:
        given = [name for name in group if name in script.values]
        if "gres" in given and script.values["gres"].gpu is None:
            given.remove("gres")
        if len(given) > 1:
            found = " and ".join(f"--{name}" for name in given)
            line = max(script.lines[name] for name in given)
            error = ParseError(expected="one of them", found=found, hint="Slurm takes only one: remove the others")
            script.refuse(line, f"--{given[-1]}", error)
