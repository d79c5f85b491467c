"""TOML as a `Document`: the same plain data and line numbers that YAML and JSON give, so that one schema serves all.

The standard library reads TOML but does not say where a value stood. Lines are found by a second look at the text that
knows only headers and keys; a value inside an inline table or list has the line of the key that it belongs to.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Final

from clearway.model.errors import InputError
from clearway.wire.documents import CHARACTERS_MAX, Document, Place
from clearway.wire.problems import Problem, raise_problems

_HEADER: Final = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_LONG_QUOTE: Final = re.compile(r"\"{3}|'{3}")
_AT_LINE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def parse_toml_document(text: str, *, source: str) -> Document:
    """Read TOML text. source: its name in messages. Raises InputError with the line."""
    if len(text) > CHARACTERS_MAX:
        expected = f"at most {CHARACTERS_MAX} characters"
        raise_problems([Problem(source=source, line=0, field="", expected=expected, found=len(text))])
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(_describe_error(str(error), text, source)) from error
    return Document(source, data, _find_lines(text, data), {})


def _describe_error(message: str, text: str, source: str) -> str:
    match = _AT_LINE.search(message)
    line = int(match[1]) if match is not None and match[1] else len(text.splitlines()) or 1
    found = _AT_LINE.sub("", message)
    hint = 'texts stand in quotes (key = "text"), lists in [ ], tables under [name]'
    return f"{source}:{line}: expected TOML, found: {found}; {hint}"


def _find_lines(text: str, data: Mapping[str, object]) -> dict[Place, int]:
    """The line of each table and key; lines inside of a long text hold none."""
    lines: dict[Place, int] = {(): 1}
    table: Place = ()
    counts: dict[Place, int] = {}
    is_in_text = False
    for number, line in enumerate(text.splitlines(), start=1):
        was_in_text = is_in_text
        is_in_text ^= len(_LONG_QUOTE.findall(line)) % 2 == 1
        if was_in_text:
            continue
        header = _HEADER.match(line)
        if header is not None:
            place = _inside(_split_key(header[2]), counts)
            if header[1] == "[[":
                counts[place] = counts.get(place, -1) + 1
                lines.setdefault(place, number)
                place = (*place, counts[place])
            table = place
        else:
            key = _KEY.match(line)
            if key is None:
                continue
            place = (*table, *_split_key(key[1]))
        if _exists(data, place):
            lines.setdefault(place, number)
    return lines


def _split_key(text: str) -> Place:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _inside(names: Place, counts: Mapping[Place, int]) -> Place:
    """`names` with the index of the last item after each name of a list of tables, but for the last name."""
    place: Place = ()
    for position, name in enumerate(names):
        place = (*place, name)
        if place in counts and position < len(names) - 1:
            place = (*place, counts[place])
    return place


def _exists(data: object, place: Place) -> bool:
    for part in place:
        is_key = isinstance(data, dict) and part in data
        if is_key or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]  # type: ignore[index]
        else:
            return False
    return True
