"""What a program holds, as JSON and back: only classes that are named beforehand, the same text for the same content.

For state of our own between two runs of one release. It is not a format for others, and nothing in it is ever called:
a box is made empty and given the attributes that were written; a value goes through `clearway.wire.codec`, which
checks it.

Scalars stand for themselves; everything else is a list that begins with what it is. Boxes and shared values are written
once, and then referred to by number, so that what was one object is one again. Dictionaries keep their order, sets are
sorted; dictionaries of whole numbers are two arrays, for they may have a million entries.
"""

import base64
import binascii
import enum
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from clearway.model.errors import InputError
from clearway.wire.codec import Json, decode_value, encode_value

_MAPPINGS: Final[Mapping[str, type]] = {"dict": dict, "ordered": OrderedDict, "counter": Counter}
_MAPPING_NAMES: Final = {kind: name for name, kind in _MAPPINGS.items()}
_LISTS: Final[Mapping[str, Callable[[Iterable[Any]], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_LIST_NAMES: Final[Mapping[type, str]] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_NUMBERS: Final[Mapping[str, Any]] = {"i8": np.int64, "f8": np.float64}


class Packing:
    """Which classes there are.

    values: frozen classes that the codec knows; shared: those of them of which one object may stand in several places.
    boxes: classes with attributes that change, each with the names of those that are not written. names: enumerations
    and named tuples.
    """

    def __init__(
        self,
        *,
        values: Iterable[type],
        shared: Iterable[type] = (),
        boxes: Mapping[type, frozenset[str]],
        names: Iterable[type] = (),
    ) -> None:
        self._shared = frozenset(shared)
        self._values = frozenset((*values, *self._shared))
        self._boxes = dict(boxes)
        self._names = frozenset(names)
        self._by_name = {cls.__name__: cls for cls in (*self._values, *self._boxes, *self._names)}
        self._attributes = {cls: attributes_of(cls) for cls in self._boxes}

    def pack(self, value: object) -> Json:
        """The value as JSON."""
        return _Packer(self._values, self._shared, self._boxes, self._names, self._attributes).pack(value)

    def unpack(self, data: Json) -> Any:
        """The value that `pack` wrote. Raises InputError for what it cannot have written."""
        try:
            return _Unpacker(self._by_name, self._boxes).unpack(data)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"expected what this release packed, found other data: {error}") from error


def attributes_of(cls: type) -> tuple[str, ...]:
    """Names of slots, in order; empty = the class has a dictionary."""
    return tuple(name for one in cls.__mro__ for name in vars(one).get("__slots__", ()))


class _Packer:
    def __init__(
        self,
        values: frozenset[type],
        shared: frozenset[type],
        boxes: Mapping[type, frozenset[str]],
        names: frozenset[type],
        attributes: Mapping[type, tuple[str, ...]],
    ) -> None:
        self._values, self._shared, self._boxes, self._names = values, shared, boxes, names
        self._attributes = attributes
        self._seen: dict[int, int] = {}

    def pack(self, value: Any) -> Json:
        kind = type(value)
        if value is None or kind in (bool, int, str, float):
            return value
        if kind in self._boxes or kind in self._shared:
            return self._pack_once(value, kind)
        if kind in self._values:
            return ["value", kind.__name__, encode_value(value)]
        if kind in self._names:
            if isinstance(value, enum.Enum):
                return ["member", kind.__name__, value.value]
            return ["named", kind.__name__, *map(self.pack, value)]
        if kind in _MAPPING_NAMES:
            return self._pack_mapping(value, _MAPPING_NAMES[kind])
        if kind in _LIST_NAMES:
            items = sorted(value) if kind in (set, frozenset) else value
            return [_LIST_NAMES[kind], *map(self.pack, items)]
        if kind is np.ndarray:
            return ["array", value.dtype.str[1:], list(value.shape), _as_text(value)]
        if isinstance(value, np.generic):
            return value.item()
        raise AssertionError(f"{kind.__name__} is not among the classes that may be packed")

    def _pack_once(self, value: Any, kind: type) -> Json:
        known = self._seen.get(id(value))
        if known is not None:
            return ["again", known]
        self._seen[id(value)] = len(self._seen)
        if kind in self._shared:
            return ["shared", kind.__name__, encode_value(value)]
        names = self._attributes[kind] or tuple(vars(value))
        left_out = self._boxes[kind]
        return ["box", kind.__name__, {name: self.pack(getattr(value, name)) for name in names if name not in left_out}]

    def _pack_mapping(self, value: Mapping[Any, Any], name: str) -> Json:
        if len(value) and all(type(key) is int for key in value):
            found = set(map(type, value.values()))
            if found == {int}:
                return ["numbers", name, _as_text(list(value)), _as_text(list(value.values()))]
            if len(found) == 1 and issubclass(kind := found.pop(), enum.Enum) and kind in self._names:
                places = {member: place for place, member in enumerate(kind)}
                members = [places[member] for member in value.values()]
                return ["members", name, kind.__name__, _as_text(list(value)), _as_text(members)]
        return [name, *((self.pack(key), self.pack(item)) for key, item in value.items())]


class _Unpacker:
    def __init__(self, by_name: Mapping[str, Any], boxes: Mapping[type, frozenset[str]]) -> None:
        self._by_name, self._boxes = by_name, boxes
        self._seen: list[Any] = []
        self._makers: dict[str, Callable[..., Any]] = {
            "again": self._seen.__getitem__,
            "value": self._unpack_value,
            "shared": self._unpack_shared,
            "member": lambda name, value: by_name[name](value),
            "named": lambda name, *items: by_name[name](*map(self.unpack, items)),
            "box": self._unpack_box,
            "array": lambda dtype, shape, text: _as_array(text, _NUMBERS[dtype]).reshape(shape),
            "numbers": self._unpack_numbers,
            "members": self._unpack_members,
        }

    def unpack(self, data: Json) -> Any:
        if not isinstance(data, list):
            return data
        what, *rest = data
        if what in _LISTS:
            return _LISTS[what](map(self.unpack, rest))
        if what in _MAPPINGS:
            return _MAPPINGS[what]({self.unpack(key): self.unpack(item) for key, item in rest})
        return self._makers[what](*rest)

    def _unpack_value(self, name: str, data: Json) -> Any:
        return decode_value(self._by_name[name], data)

    def _unpack_shared(self, name: str, data: Json) -> Any:
        value = decode_value(self._by_name[name], data)
        self._seen.append(value)
        return value

    def _unpack_box(self, name: str, attributes: dict[str, Json]) -> Any:
        cls = self._by_name[name]
        if cls not in self._boxes:
            raise InputError(f"expected a class with attributes, found {name}")
        value = cls.__new__(cls)
        self._seen.append(value)
        for attribute, data in attributes.items():
            object.__setattr__(value, attribute, self.unpack(data))
        return value

    def _unpack_numbers(self, name: str, keys: str, values: str) -> Any:
        return _MAPPINGS[name](dict(zip(_as_array(keys).tolist(), _as_array(values).tolist(), strict=True)))

    def _unpack_members(self, name: str, enumeration: str, keys: str, places: str) -> Any:
        members = list(self._by_name[enumeration])
        found = [members[place] for place in _as_array(places).tolist()]
        return _MAPPINGS[name](dict(zip(_as_array(keys).tolist(), found, strict=True)))


def _as_text(numbers: Any) -> str:
    array = np.ascontiguousarray(numbers, dtype=None if isinstance(numbers, np.ndarray) else np.int64)
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()).decode()


def _as_array(text: str, dtype: Any = np.int64) -> Any:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype).copy()
    except binascii.Error as error:
        raise InputError(f"expected base64, found other text: {error}") from error
