"""Events, commands and plans as JSON values, and back: total and without loss, derived from the dataclasses.

A value of a dataclass is an object of its fields; fields that equal their default are left out, a class that stands in
a union (as every event and command does) says which it is under `type`. Enums are their values, tuples and arrays
lists, long runs of consecutive integers `{"runs": [start, count, ...]}`; infinite numbers are texts. Whatever does not
fit the declared type, an unknown `type` or field included, is an InputError.

A journal begins with `make_journal_header()`, and its reader calls `check_journal_header`: since defaults are left
out, a journal is only read by code with the same ones, and the header carries those of its writer.
"""

import dataclasses
import enum
import functools
import itertools
import json
import math
import operator
import types
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from clearway.model.allocation import IntArray
from clearway.model.commands import Command
from clearway.model.errors import InputError
from clearway.model.events import Event
from clearway.model.plan import Plan
from clearway.wire.problems import describe_mismatch, list_names, suggest_name

FORMAT: Final = "clearway-journal"
FORMAT_VERSION: Final = 1
"""Raise it when a class or field is renamed or removed, or changes its type."""

RUN_ITEMS_MIN: Final = 16
"""Shorter arrays are written as they are: looking for runs would cost more than it saves."""

ARRAY_ITEMS_MAX: Final = 10_000_000
"""Longest array that runs may unfold to: guards against a line of ten bytes that fills the memory."""

Json = Any
"""What `json.dumps` takes: dict, list, str, int, float, bool, None."""

dump_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""JSON, compact and in ASCII: every database takes it as it is, whatever a text of a user holds."""

ValueT = TypeVar("ValueT")


def encode_event(event: Event) -> dict[str, Json]:
    """The event as a JSON object with its `type`."""
    return typing.cast(dict[str, Json], _codec_of(Event).encode(event))


def decode_event(data: Json) -> Event:
    """The event that `encode_event` wrote. Raises InputError."""
    return typing.cast(Event, _decode(Event, data))


def encode_command(command: Command) -> dict[str, Json]:
    """The command as a JSON object with its `type`."""
    return typing.cast(dict[str, Json], _codec_of(Command).encode(command))


def decode_command(data: Json) -> Command:
    """The command that `encode_command` wrote. Raises InputError."""
    return typing.cast(Command, _decode(Command, data))


def encode_plan(plan: Plan) -> dict[str, Json]:
    """The plan as a JSON object."""
    return typing.cast(dict[str, Json], _codec_of(Plan).encode(plan))


def decode_plan(data: Json) -> Plan:
    """The plan that `encode_plan` wrote. Raises InputError."""
    return decode_value(Plan, data)


def encode_value(value: object) -> Json:
    """Any frozen dataclass of the model, such as a ClusterSpec, without `type`."""
    kind: Any = type(value)
    return _codec_of(kind).encode(value)


def decode_value(cls: type[ValueT], data: Json) -> ValueT:
    """The `cls` that `encode_value` wrote. Raises InputError."""
    return typing.cast(ValueT, _decode(cls, data))


class Texts:
    """Writes values one after another, each as `dump_json` of what `encode_event` or `encode_value` makes of it.

    What is the very object that stood at the same place of the value before is not written again: a thousand jobs of
    one template cost little more than their numbers. For one pass over values that nobody changes meanwhile.
    """

    def __init__(self) -> None:
        self._written: _Written = {}

    def event(self, event: Event) -> str:
        """The text of `encode_event(event)`."""
        return _codec_of(Event).write(event, self._written)

    def value(self, value: object) -> str:
        """The text of `encode_value(value)`."""
        kind: Any = type(value)
        return _codec_of(kind).write(value, self._written)


def make_journal_header() -> dict[str, Json]:
    """First line of a journal: format, version, and the defaults that are left out of what follows."""
    return {"format": FORMAT, "version": FORMAT_VERSION, "defaults": _collect_defaults()}


def check_journal_header(header: Json) -> None:
    """Raise InputError unless what follows `header` means the same to this code as to its writer."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(describe_mismatch(f"a header of format {FORMAT!r}", header, "is this a journal?"))
    if header.get("version") != FORMAT_VERSION:
        hint = "read it with the release that wrote it"
        raise InputError(describe_mismatch(f"journal version {FORMAT_VERSION}", header.get("version"), hint))
    written, ours = header.get("defaults"), _collect_defaults()
    if not isinstance(written, dict):
        raise InputError(describe_mismatch("defaults in the journal's header", written, "the header is damaged"))
    for name, default in written.items():
        if name not in ours or ours[name] != default:
            found = f"{name} = {default!r}"
            hint = "read the journal with the release that wrote it"
            raise InputError(describe_mismatch(f"{name} = {ours.get(name)!r}", found, hint))


# --- codecs by type ---------------------------------------------------------------------------------------------------


_Written = dict[type, tuple[tuple[Any, ...], list[str]]]
"""By class the fields of its last value, and the text of each with a comma behind it; "" = left out."""


class _Codec:
    """Functions for one type. decode raises _Mismatch. write: the text of what `encode` gives, where there is a quicker
    way to it than by that."""

    __slots__ = ("decode", "encode", "write")

    def __init__(
        self,
        encode: Callable[[Any], Json],
        decode: Callable[[Json], Any],
        write: Callable[[Any, _Written], str] | None = None,
    ) -> None:
        self.encode = encode
        self.decode = decode
        self.write = write or (lambda value, _: dump_json(encode(value)))


class _Mismatch(Exception):  # noqa: N818  (never leaves this module)
    """What does not fit, and where: field names from the inside out."""

    def __init__(self, expected: str, found: object, hint: str = "") -> None:
        self.expected, self.found, self.hint = expected, found, hint
        self.fields: list[str] = []


def _decode(kind: Any, data: Json) -> Any:
    try:
        return _codec_of(kind).decode(data)
    except _Mismatch as mismatch:
        place = ".".join(reversed(mismatch.fields))
        text = describe_mismatch(mismatch.expected, mismatch.found, mismatch.hint)
        raise InputError(f"{place}: {text}" if place else text) from mismatch
    except RecursionError as error:
        raise InputError("expected a flat value, found hundreds of levels; the data is damaged") from error


@functools.cache
def _codec_of(kind: Any) -> _Codec:
    """The codec of a type: a dataclass, enum, scalar, tuple, array, NewType or union of these."""
    if isinstance(kind, typing.NewType):
        return _codec_of(kind.__supertype__)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _make_union(typing.get_args(kind))
    if origin is tuple:
        return _make_tuple(typing.get_args(kind))
    if origin is np.ndarray:
        return _Codec(_encode_array, _decode_array)
    if dataclasses.is_dataclass(kind):
        return _make_class(typing.cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _make_enum(kind)
    scalar = _SCALARS.get(kind)
    assert scalar is not None, f"no codec for {kind!r}: extend clearway.wire.codec"
    return scalar


def _make_class(cls: type) -> _Codec:
    """Fields by name; those equal to their default are left out."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    codecs = {field.name: _late_codec(hints[field.name]) for field in fields}
    defaults = {field.name: _default_of(field) for field in fields}
    required = [name for name, default in defaults.items() if default is dataclasses.MISSING]
    assert "type" not in codecs, "`type` tells classes apart"

    columns, ordinary = list(codecs.items()), list(defaults.values())
    read, places = _field_reader(tuple(codecs)), range(len(columns))
    nothing, blank = (dataclasses.MISSING,) * len(columns), [""] * len(columns)

    def encode(value: Any) -> Json:
        items = read(value)
        data = {}
        for place in itertools.compress(places, map(operator.is_not, items, ordinary)):
            item, default = items[place], ordinary[place]
            if default is dataclasses.MISSING or not _is_same(item, default):
                name, codec = columns[place]
                data[name] = codec().encode(item)
        return data

    def write(value: Any, written: _Written) -> str:
        items = read(value)
        before, known = written.get(cls) or (nothing, blank)
        texts = known.copy()  # a value may hold others of its class
        for place in itertools.compress(places, map(operator.is_not, items, before)):
            item, default = items[place], ordinary[place]
            if default is not dataclasses.MISSING and _is_same(item, default):
                texts[place] = ""
            else:
                name, codec = columns[place]
                texts[place] = f'"{name}":{codec().write(item, written)},'
        written[cls] = items, texts
        return "{" + "".join(texts)[:-1] + "}"

    def decode(data: Json) -> Any:
        if not isinstance(data, dict):
            raise _Mismatch(f"an object of {cls.__name__}", data)
        arguments = {}
        for name, item in data.items():
            codec = codecs.get(name)
            if codec is None:
                raise _Mismatch(f"fields of {cls.__name__}: {list_names(codecs)}", name, suggest_name(name, codecs))
            try:
                arguments[name] = codec().decode(item)
            except _Mismatch as mismatch:
                mismatch.fields.append(name)
                raise
        for name in required:
            if name not in arguments:
                raise _Mismatch(f"field {name!r} of {cls.__name__}", sorted(arguments), "the data is cut off")
        try:
            return cls(**arguments)
        except AssertionError as error:
            raise _Mismatch(f"values that make a {cls.__name__}", data, str(error)) from error

    return _Codec(encode, decode, write)


def _field_reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads all of these fields at once."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _late_codec(kind: Any) -> Callable[[], _Codec]:
    """The codec of a field, looked up when first used: classes may hold one another (Batch holds events)."""
    return functools.cache(lambda: _codec_of(kind))


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _is_same(item: object, default: object) -> bool:
    """Equal and of one type (True is not 1 here), zeros with the same sign."""
    if item is default:
        return True
    return type(item) is type(default) and item == default and (item != 0.0 or repr(item) == repr(default))


def _make_union(members: tuple[Any, ...]) -> _Codec:
    """None or one type: as that type. Several classes: an object with `type`."""
    has_none = type(None) in members
    rest = tuple(member for member in members if member is not type(None))
    inner = _codec_of(rest[0]) if len(rest) == 1 else _make_tagged(rest)
    if not has_none:
        return inner

    def encode(value: Any) -> Json:
        return None if value is None else inner.encode(value)

    def write(value: Any, written: _Written) -> str:
        return "null" if value is None else inner.write(value, written)

    def decode(data: Json) -> Any:
        return None if data is None else inner.decode(data)

    return _Codec(encode, decode, write)


def _make_tagged(members: tuple[Any, ...]) -> _Codec:
    by_name = {member.__name__: _codec_of(member) for member in members}

    def encode(value: Any) -> Json:
        name = type(value).__name__
        return {"type": name, **by_name[name].encode(value)}

    def write(value: Any, written: _Written) -> str:
        name = type(value).__name__
        rest = by_name[name].write(value, written)[1:]
        return f'{{"type":"{name}"}}' if rest == "}" else f'{{"type":"{name}",{rest}'

    def decode(data: Json) -> Any:
        if not isinstance(data, dict):
            raise _Mismatch("an object with a `type`", data)
        name = data.get("type")
        codec = by_name.get(name) if isinstance(name, str) else None
        if codec is None:
            raise _Mismatch(f"a type out of {list_names(by_name)}", name, suggest_name(str(name), by_name))
        try:
            return codec.decode({key: item for key, item in data.items() if key != "type"})
        except _Mismatch as mismatch:
            mismatch.fields.append(str(name))
            raise

    return _Codec(encode, decode, write)


def _make_tuple(arguments: tuple[Any, ...]) -> _Codec:
    """`tuple[X, ...]`, or a fixed number of items."""
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _late_codec(arguments[0])
        return _Codec(
            lambda value: [item().encode(part) for part in value],
            lambda data: tuple(_decode_item(item(), part, index) for index, part in enumerate(_listed(data))),
            lambda value, written: f"[{','.join([item().write(part, written) for part in value])}]",
        )
    items = [_late_codec(argument) for argument in arguments]

    def decode(data: Json) -> Any:
        if len(_listed(data)) != len(items):
            raise _Mismatch(f"a list of {len(items)}", data)
        return tuple(
            _decode_item(item(), part, index) for index, (item, part) in enumerate(zip(items, data, strict=True))
        )

    return _Codec(lambda value: [item().encode(part) for item, part in zip(items, value, strict=True)], decode)


def _decode_item(codec: _Codec, data: Json, index: int) -> Any:
    try:
        return codec.decode(data)
    except _Mismatch as mismatch:
        mismatch.fields.append(str(index))
        raise


def _listed(data: Json) -> list[Json]:
    if not isinstance(data, list | tuple):
        raise _Mismatch("a list", data)
    return list(data)


def _make_enum(kind: type[enum.Enum]) -> _Codec:
    by_value = {member.value: member for member in kind}

    def decode(data: Json) -> Any:
        member = by_value.get(data) if isinstance(data, str | int) else None
        if member is None:
            raise _Mismatch(f"a {kind.__name__} out of {list_names(map(str, by_value))}", data)
        return member

    return _Codec(lambda value: value.value, decode)


# --- scalars and arrays -----------------------------------------------------------------------------------------------


def _decode_integer(data: Json) -> int:
    if type(data) is not int:
        raise _Mismatch("a whole number", data)
    return data


def _decode_text(data: Json) -> str:
    if not isinstance(data, str):
        raise _Mismatch("text", data)
    return data


def _decode_flag(data: Json) -> bool:
    if not isinstance(data, bool):
        raise _Mismatch("true or false", data)
    return data


def _encode_float(value: float) -> Json:
    """JSON has no infinity: its name as text."""
    return float(value) if math.isfinite(value) else repr(float(value))


def _decode_float(data: Json) -> float:
    if isinstance(data, bool) or not (isinstance(data, int | float) or data in ("inf", "-inf", "nan")):
        raise _Mismatch("a number", data)
    return float(data)


def _write_integer(value: Any, _: _Written) -> str:
    return repr(value) if type(value) is int else dump_json(operator.index(value))


_SCALARS: Final[dict[Any, _Codec]] = {
    int: _Codec(operator.index, _decode_integer, _write_integer),
    str: _Codec(str, _decode_text),
    bool: _Codec(bool, _decode_flag),
    float: _Codec(_encode_float, _decode_float),
}


def _encode_array(array: IntArray) -> Json:
    """int64[n] as a list, or as runs of consecutive numbers where that is at most a quarter as many numbers."""
    if len(array) < RUN_ITEMS_MIN:
        return array.tolist()
    begins = np.append(0, np.flatnonzero(np.diff(array) != 1) + 1)
    if len(begins) * 8 > len(array):
        return array.tolist()
    counts = np.diff(begins, append=len(array))
    return {"runs": np.column_stack((array[begins], counts)).ravel().tolist()}


def _decode_array(data: Json) -> IntArray:
    """int64[n]."""
    if isinstance(data, list):
        return _make_array(data)
    if not isinstance(data, dict) or list(data) != ["runs"]:
        raise _Mismatch("a list of numbers, or their runs", data)
    flat = _make_array(_listed(data["runs"]))
    begins, counts = flat[::2], flat[1::2]
    if len(flat) % 2 or (counts < 1).any() or (counts > ARRAY_ITEMS_MAX).any() or counts.sum() > ARRAY_ITEMS_MAX:
        raise _Mismatch(f"pairs of start and count, together at most {ARRAY_ITEMS_MAX}", data)
    steps = np.arange(counts.sum(), dtype=np.int64)
    array: IntArray = steps + np.repeat(begins - np.cumsum(counts) + counts, counts)
    return array


def _make_array(items: list[Json]) -> IntArray:
    if any(type(item) is not int or not -(1 << 63) <= item < 1 << 63 for item in items):
        raise _Mismatch("whole numbers of 64 bits", items)
    return np.array(items, dtype=np.int64)


# --- defaults ---------------------------------------------------------------------------------------------------------


def _collect_defaults() -> dict[str, Json]:
    """`Class.field` → encoded default, of every class that an event or command can hold, by name."""
    defaults: dict[str, Json] = {}
    for cls in sorted(_classes_in((Event, Command), set()), key=lambda found: found.__name__):
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            default = _default_of(field)
            if default is not dataclasses.MISSING:
                defaults[f"{cls.__name__}.{field.name}"] = _codec_of(hints[field.name]).encode(default)
    return defaults


def _classes_in(kinds: tuple[Any, ...], seen: set[Any]) -> set[Any]:
    """Every dataclass that is reachable from `kinds` by fields, unions and tuples."""
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and kind not in seen:
            seen.add(kind)
            _classes_in(tuple(typing.get_type_hints(kind).values()), seen)
        else:
            _classes_in(typing.get_args(kind), seen)
    return seen
