"""What is wrong with an input, in one form: `file:line: field: expected ..., found ...; hint`.

A parser of one value raises `ParseError`, which knows nothing of files. Whoever knows the place turns it into a
`Problem`, gathers all of a file, and raises them together.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearway.model.errors import InputError

FOUND_CHARACTERS_MAX = 80
"""Of a wrong value, so much is shown: enough to recognise it, and a message stays a line."""

NAMES_SHOWN_MAX = 12
"""Of the names that would have been right, so many are listed."""

PROBLEMS_SHOWN_MAX = 50
"""Problems of one file that are printed; a file with more is better mended in rounds."""


class ParseError(InputError, ValueError):
    """A value does not parse. Also a ValueError, so that pydantic gathers it with the rest of the file.

    field: where inside of what was being parsed, such as `elastic.min`; empty = the thing itself.
    """

    def __init__(self, *, expected: str, found: object, hint: str = "", field: str = "") -> None:
        self.expected = expected
        self.found = found
        self.hint = hint
        self.field = field
        super().__init__(describe_mismatch(expected, found, hint))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong at one place. line: counted from 1; 0 = the input as a whole."""

    source: str
    line: int
    field: str
    expected: str
    found: object
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        name = "".join(character if character.isprintable() else "?" for character in self.field)
        field = f" {name}:" if name else ""
        return f"{place}:{field} {describe_mismatch(self.expected, self.found, self.hint)}"


class Missing:
    """Stands in `found` for what is not there."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Missing()


def describe_mismatch(expected: str, found: object, hint: str) -> str:
    """`expected E, found F; hint`."""
    shown = repr(found)
    if len(shown) > FOUND_CHARACTERS_MAX:
        shown = shown[: FOUND_CHARACTERS_MAX - 1] + "…"
    return f"expected {expected}, found {shown}" + (f"; {hint}" if hint else "")


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise an InputError that lists `problems` by line, or return if there are none."""
    if not problems:
        return
    ordered = sorted(problems, key=lambda problem: problem.line)
    lines = [str(problem) for problem in ordered[:PROBLEMS_SHOWN_MAX]]
    if len(ordered) > PROBLEMS_SHOWN_MAX:
        lines.append(f"... and {len(ordered) - PROBLEMS_SHOWN_MAX} more")
    raise InputError("\n".join(lines))


def suggest_name(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the known name nearest to `name`, or the empty string when none is near."""
    by_folded = {fold_name(candidate): candidate for candidate in known}
    folded = fold_name(name)
    near = difflib.get_close_matches(folded, list(by_folded), n=1, cutoff=0.6)
    if not near and folded:
        near = [candidate for candidate in by_folded if candidate.startswith(folded)]
    return f"did you mean {by_folded[near[0]]!r}?" if near else ""


def fold_name(name: str) -> str:
    """The name as people confuse it: without case, dashes and underscores."""
    return name.lower().replace("-", "").replace("_", "")


def list_names(names: Iterable[str]) -> str:
    """`a, b, c`, cut after `NAMES_SHOWN_MAX`."""
    shown = list(names)
    tail = ", ..." if len(shown) > NAMES_SHOWN_MAX else ""
    return ", ".join(shown[:NAMES_SHOWN_MAX]) + tail
