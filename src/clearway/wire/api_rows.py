"""Frozen rows (dataclasses of scalars, enums, tuples, mappings and other rows) as JSON objects, and back, exactly.

For what a server shows: every field is written, so that a reader needs no defaults, and a reader takes no notice of
fields that it does not know, so that a newer server can be read. Light on purpose: quick commands import it.
`codec` is the other one: for journals, where defaults are left out and unknown fields are an error.
"""

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from clearway.model.errors import InputError

RowT = TypeVar("RowT")
Convert = Callable[[Any], Any]


def encode_row(row: object) -> dict[str, Any]:
    """All fields of a dataclass as a JSON object; tuples become lists when it is dumped."""
    plan = _plan_of(row)
    return {name: convert(getattr(row, name)) if convert else getattr(row, name) for name, convert in plan}


def encode_rows(rows: Iterable[object], fields: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Each row as by `encode_row`; of each only `fields` where any are given."""
    if not fields:
        return [encode_row(row) for row in rows]
    return [_encode_some(row, fields) for row in rows]


def _encode_some(row: object, fields: tuple[str, ...]) -> dict[str, Any]:
    kept = frozenset(fields)
    return {
        name: convert(getattr(row, name)) if convert else getattr(row, name)
        for name, convert in _plan_of(row)
        if name in kept
    }


def decode_row(cls: type[RowT], data: object) -> RowT:
    """The row that `encode_row` wrote. Raises InputError that names the field which does not fit."""
    return typing.cast(RowT, _decoder(typing.cast(Any, cls))(data))


def field_names(cls: type) -> tuple[str, ...]:
    """Names of the fields of a row, in order."""
    return tuple(field.name for field in dataclasses.fields(cls))


def _plan_of(row: object) -> tuple[tuple[str, Convert | None], ...]:
    cls: Any = type(row)
    return _plan(cls)


@functools.cache
def _plan(cls: Any) -> tuple[tuple[str, Convert | None], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((field.name, _encoder(hints[field.name])) for field in dataclasses.fields(cls))


def _encoder(kind: Any) -> Convert | None:
    """What makes JSON of a value of this type; None = it is JSON already."""
    if dataclasses.is_dataclass(kind):
        return encode_row
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = _encoder(next(argument for argument in arguments if argument is not type(None)))
        return _optional(inner) if inner else None
    if origin is tuple:
        item = next((found for found in map(_encoder, arguments) if found), None)
        return _each(item) if item else None
    return None


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _each(convert: Convert) -> Convert:
    return lambda value: [convert(part) for part in value]


@functools.cache
def _decoder(kind: Any) -> Convert:
    if isinstance(kind, typing.NewType):
        return _decoder(kind.__supertype__)
    if dataclasses.is_dataclass(kind):
        return _class_decoder(typing.cast(type, kind))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional(_decoder(next(argument for argument in arguments if argument is not type(None))))
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_decoder(arguments)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum_decoder(kind)
    if kind in (Any, object):
        return lambda data: data
    return _scalar_decoder(kind)


def _class_decoder(cls: type) -> Convert:
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    late: dict[str, Convert] = {}

    def decode(data: object) -> object:
        if not isinstance(data, dict):
            raise InputError(f"expected an object of {cls.__name__}, found {data!r:.80}")
        values = {}
        for name in names:
            if name not in data:
                continue
            convert = late.get(name) or late.setdefault(name, _decoder(hints[name]))
            try:
                values[name] = convert(data[name])
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        try:
            return cls(**values)
        except (AssertionError, TypeError) as error:
            raise InputError(f"expected the fields of {cls.__name__}, found {sorted(values)}: {error}") from error

    return decode


def _tuple_decoder(arguments: tuple[Any, ...]) -> Convert:
    is_open = len(arguments) == 2 and arguments[1] is Ellipsis
    decoders = [_decoder(argument) for argument in arguments if argument is not Ellipsis]

    def decode(data: object) -> object:
        if not isinstance(data, list | tuple) or (not is_open and len(data) != len(decoders)):
            raise InputError(f"expected a list{'' if is_open else f' of {len(decoders)}'}, found {data!r:.80}")
        if is_open:
            first = decoders[0]
            return tuple(first(part) for part in data)
        return tuple(convert(part) for convert, part in zip(decoders, data, strict=True))

    return decode


def _mapping_decoder(arguments: tuple[Any, ...]) -> Convert:
    key, value = (_decoder(argument) for argument in arguments)

    def decode(data: object) -> object:
        if not isinstance(data, dict):
            raise InputError(f"expected an object, found {data!r:.80}")
        return {key(name): value(item) for name, item in data.items()}

    return decode


def _enum_decoder(kind: type[enum.Enum]) -> Convert:
    members: dict[object, enum.Enum] = {member.value: member for member in kind}

    def decode(data: object) -> object:
        member = members.get(data) if isinstance(data, str | int) else None
        if member is None:
            raise InputError(f"expected a {kind.__name__} out of {', '.join(map(str, members))}, found {data!r:.80}")
        return member

    return decode


def _scalar_decoder(kind: Any) -> Convert:
    assert kind in (int, str, bool, float), f"no decoder for {kind!r}"

    def decode(data: object) -> object:
        if type(data) is kind:
            return data
        if kind is float and type(data) is int:
            return float(data)
        raise InputError(f"expected {kind.__name__}, found {data!r:.80}")

    return decode
