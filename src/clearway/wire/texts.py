"""Texts that reach other people's screens, file names and programs: what may stand in them."""

import re
from typing import Final

from clearway.wire.problems import ParseError

CONTROLS: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Inside the brackets of a pattern: what moves a cursor, ends a line or turns the direction of writing. C0 and C1 of
ECMA-48, line ends and bidirectional controls of Unicode (UAX #9)."""

INTERPRETER_BYTES_MAX: Final = 255
"""Linux reads no more of a first line that names an interpreter (execve(2))."""

_CONTROL: Final = re.compile(f"[{CONTROLS}]")


def refuse_controls(text: str) -> str:
    """The text, if none of these is in it. Raises ParseError that names the first."""
    found = _CONTROL.search(text)
    if found is None:
        return text
    hint = f"character {found.start() + 1} is U+{ord(found.group()):04X}; remove it"
    raise ParseError(expected="text without control characters", found=text, hint=hint)


def refuse_nul(text: str) -> str:
    """The text, if a program can be given it. Raises ParseError."""
    if "\0" in text:
        raise ParseError(expected="text without NUL bytes", found=text, hint="no program can be given one; remove it")
    return text


def refuse_option(text: str) -> str:
    """The text, if a program takes it for a name and not for an option. Raises ParseError."""
    if text.startswith("-"):
        hint = "a program would take it for an option; leave the dash out"
        raise ParseError(expected="a name that does not begin with a dash", found=text, hint=hint)
    return text


def check_interpreter(script: str) -> str:
    """The script, if its first line does not name an interpreter, or one that a system can start. Raises ParseError."""
    first = script.partition("\n")[0]
    if first.startswith("#!"):
        refuse_controls(first.rstrip().replace("\t", " "))
        if len(first.encode()) > INTERPRETER_BYTES_MAX:
            expected = f"an interpreter in at most {INTERPRETER_BYTES_MAX} bytes"
            raise ParseError(expected=expected, found=first, hint="Linux reads no more of a first line")
    return script
