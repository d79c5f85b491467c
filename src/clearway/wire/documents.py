"""YAML and JSON with a line number for every value, checked against pydantic models, all errors of a file at once.

Read as YAML 1.2 does, not as PyYAML would by itself: `30:00` and `2026-01-01` stay text (YAML 1.1 makes 1800 of the
one and a date of the other), `no` is text, `007` is text. Only plain data is built, never an object. A key that comes
twice is an error. Size, depth and number of values are bounded, aliases counted each time they are used.
"""

import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pydantic
import yaml

from clearway.model.errors import InputError
from clearway.wire.problems import NOTHING, Problem, raise_problems
from clearway.wire.schema import make_problem, render_place

CHARACTERS_MAX: Final = 8 << 20
"""A file of 12,500 nodes written one by one is about 2 MB."""

DEPTH_MAX: Final = 32
"""Our deepest schema has 6 levels."""

VALUES_MAX: Final = 300_000
"""Bounds what aliases can unfold to; 12,500 nodes written one by one are 150,000 values."""

JSON_DIGITS_MAX: Final = 300
"""Longest number that is read as one; Python refuses to convert more than 4,300 digits."""

Place = tuple[str | int, ...]
"""Keys and indices from the root to a value."""

ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)


@dataclass(frozen=True, slots=True)
class Document:
    """A file as plain data. lines: the line of each value by place, counted from 1. texts: scalars as written."""

    source: str
    data: object
    lines: Mapping[Place, int]
    texts: Mapping[Place, str]

    def line_of(self, place: Place) -> int:
        """Line of the value at `place`, or of the nearest thing around it."""
        while place not in self.lines and place:
            place = place[:-1]
        return self.lines.get(place, 1)

    def text_of(self, place: Place) -> str:
        """The scalar at `place` as its author wrote it, without quotes; empty if there is none."""
        return self.texts.get(place, "")


def load_document(path: Path) -> Document:
    """Read a YAML or JSON file (UTF-8). Raises InputError, also where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected a file, found nothing; check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a readable UTF-8 text file, found: {error}") from error
    return parse_document(text, source=str(path))


def parse_document(text: str, *, source: str) -> Document:
    """Read YAML or JSON text. source: its name in messages. Raises InputError."""
    if len(text) > CHARACTERS_MAX:
        problem = Problem(
            source=source, line=0, field="", expected=f"at most {CHARACTERS_MAX} characters", found=len(text)
        )
        raise_problems([problem])
    builder = _Builder(source)
    root = _compose(_ease_json(text), source)
    data = builder.build(root, ()) if root is not None else None
    raise_problems(builder.problems)
    return Document(source, data, builder.lines, builder.texts)


def make_document(data: object, *, source: str) -> Document:
    """What a JSON reader gave, as a document whose errors name no line. Raises InputError for what is no plain data."""
    texts: dict[Place, str] = {}
    try:
        _write_texts(data, (), texts, source)
    except UnicodeEncodeError as error:
        raise InputError(f"{source}: expected Unicode text, found half of a surrogate pair") from error
    return Document(source, data, {(): 0}, texts)


def _write_texts(data: object, place: Place, texts: dict[Place, str], source: str) -> None:
    """Every scalar as its author would have written it."""
    if len(place) > DEPTH_MAX or len(texts) > VALUES_MAX:
        raise InputError(f"{source}: expected at most {DEPTH_MAX} levels and {VALUES_MAX} values, found more")
    if isinstance(data, dict):
        for key, value in data.items():
            key.encode()
            _write_texts(value, (*place, key), texts, source)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            _write_texts(value, (*place, index), texts, source)
    elif isinstance(data, str):
        data.encode()  # JSON can name half of a surrogate pair, which no file, database or terminal takes
        texts[place] = data
    elif data is None or isinstance(data, bool):
        texts[place] = "null" if data is None else str(data).lower()
    elif isinstance(data, float) and not math.isfinite(data):
        raise InputError(f"{source}: {render_place(place)}: expected a finite number, found {data}")
    else:
        texts[place] = repr(data)


def validate_document(
    document: Document,
    model: type[ModelT],
    *,
    synonyms: Mapping[str, str] | None = None,
    context: Mapping[str, object] | None = None,
) -> ModelT:
    """`document` as an instance of `model`.

    synonyms: foreign names of fields → ours, for hints. context: what validators need to know, such as `now_ms`.

    Raises InputError that lists every error of the file as `file:line: field: expected ..., found ...; hint`.
    """
    if document.data is None:
        missing = Problem(
            source=document.source, line=0, field="", expected="a mapping", found=NOTHING, hint="the file is empty"
        )
        raise_problems([missing])
    try:
        return model.model_validate(document.data, context=dict(context or {}))
    except pydantic.ValidationError as error:
        problems = [
            make_problem(details, model, document.source, document.line_of, synonyms or {})
            for details in error.errors(include_url=False)
        ]
        raise_problems(problems)
        raise


# --- reading --------------------------------------------------------------------------------------------------------

_INTEGER = re.compile(rf"-?(?:0|[1-9][0-9]{{0,{JSON_DIGITS_MAX}}})$")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][-+]?[0-9]{1,3})?$")
_TAG = "tag:yaml.org,2002:"

_LoaderBase: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Loader: Any = type("_Loader", (_LoaderBase,), {"yaml_implicit_resolvers": {}})
_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_TAG + "int", _INTEGER, list("-0123456789"))
_Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-0123456789"))


def _compose(text: str, source: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
    except yaml.YAMLError as error:
        raise InputError(_describe_yaml_error(error, source)) from error
    except RecursionError as error:
        raise InputError(f"{source}: expected at most {DEPTH_MAX} levels, found many more") from error
    finally:
        loader.dispose()
    return node


def _describe_yaml_error(error: yaml.YAMLError, source: str) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"{source}:{mark.line + 1}" if mark is not None else source
    found = getattr(error, "problem", None) or str(error).splitlines()[0]
    hint = "check indentation, colons and quotes; YAML is indented by spaces"
    return f"{place}: expected YAML or JSON, found: {found}; {hint}"


_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")


def _ease_json(text: str) -> str:
    """Text for the YAML reader, which takes JSON but for tabs (in valid JSON always blanks) and surrogate pairs."""
    if text.lstrip()[:1] in ("{", "[") and ("\t" in text or "\\u" in text):
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(text)
            return _SURROGATES.sub(lambda match: match[1] + str(json.loads(f'"{match[2]}"')), text.replace("\t", " "))
    return text


@dataclass(slots=True)
class _Builder:
    """Turns YAML nodes into plain data, and remembers where each value stood."""

    source: str
    lines: dict[Place, int] = field(default_factory=dict)
    texts: dict[Place, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def build(self, node: yaml.Node, place: Place) -> object:
        self.values += 1
        if len(place) > DEPTH_MAX or self.values > VALUES_MAX:
            expected = f"at most {DEPTH_MAX} levels and {VALUES_MAX} values"
            self._refuse(node, place, expected, "more", "are there aliases within aliases?")
            raise_problems(self.problems)
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*place, index)) for index, item in enumerate(node.value)]
        return self._build_scalar(node, place)

    def _build_mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, place, "a plain key", "a list or mapping as key", "")
                continue
            key: str = key_node.value
            if key in mapping:
                first = self.lines[(*place, key)]
                self._refuse(key_node, (*place, key), "each key once", key, f"it is first given in line {first}")
                continue
            self.lines[(*place, key)] = key_node.start_mark.line + 1
            mapping[key] = self.build(value_node, (*place, key))
        return mapping

    def _build_scalar(self, node: yaml.Node, place: Place) -> object:
        text: str = node.value
        self.texts[place] = text
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "int" and _INTEGER.match(text):
            return int(text)
        if kind in ("int", "float") and _FLOAT.match(text):
            return float(text)
        self._refuse(node, place, "plain text, numbers, true, false or null", node.tag, "leave out the tag")
        return None

    def _refuse(self, node: yaml.Node, place: Place, expected: str, found: object, hint: str) -> None:
        line = node.start_mark.line + 1
        name = ".".join(str(part) for part in place)
        self.problems.append(
            Problem(source=self.source, line=line, field=name, expected=expected, found=found, hint=hint)
        )
