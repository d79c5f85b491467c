"""The part of CEL in which people choose devices (`device.attributes["gpu.nvidia.com"].productName == "..."`). Pure.

Logic, comparisons, `in`, `has`, `cel.bind`, lists, the string functions below, `quantity` and `semver`. What is beyond
is UnsupportedError when it is read, never a guess: arithmetic, macros over lists, and `matches`, whose patterns any
tenant may write and which may take for ever. As in CEL, an attribute that is not there is an error, which `||` and `&&`
forget where the other side decides; a device for which an error is left does not match.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from clearway.adapters.kubernetes.errors import UnsupportedError
from clearway.wire.problems import ParseError
from clearway.wire.units import parse_kubernetes_memory

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]

DEPTH_MAX: Final = 50
"""Of nested parts: no selector that a person wrote is as deep, and deeper ones would end the stack."""

TOKENS_MAX: Final = 1_000
"""Of one selector. Chains (`a || b || ...`) are evaluated one part within the other, and may not end the stack."""

LIST_MAX: Final = 1_000
"""Values in a list, those of lists within it counted each time: two lists may be compared in each part of a text."""

DIGITS_MAX: Final = 18
"""Of a number: it must fit a signed 64-bit integer."""

SHOWN_MAX: Final = 300
"""Characters of a selector in a message: what is wrong with it stands behind it."""

VERSION_CHARACTERS_MAX: Final = 64
"""As the API limits attributes."""

COMPILED_MAX: Final = 1_000

TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+)|(?P<text>"(?:[^"\\\n]|\\["\\])*"|'(?:[^'\\\n]|\\['\\])*')"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>\|\||&&|==|!=|<=|>=|[<>!().,\[\]-]))"""
)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount, in its own unit."""

    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A semantic version; one that is released is later than what came before it under the same numbers."""

    numbers: tuple[int, int, int]
    is_released: bool = True
    before: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """What selectors see. attributes, capacity: by domain, then by name."""

    driver: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Quantity]]


class EvaluationError(Exception):
    """Something is not there, or not of the kind that is needed."""


def parse_version(text: str) -> Version:
    """Raises EvaluationError."""
    if len(text) > VERSION_CHARACTERS_MAX:
        raise EvaluationError(f"expected a version of at most {VERSION_CHARACTERS_MAX} characters")
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:-([\w.-]+))?(?:\+[\w.-]+)?", text)
    if found is None:
        raise EvaluationError(f"{text!r} is no semantic version")
    major, minor, patch, before = found.groups()
    return Version((int(major), int(minor), int(patch)), before is None, before or "")


def parse_quantity(text: str) -> Quantity:
    """Raises EvaluationError."""
    try:
        return Quantity(parse_kubernetes_memory(text))
    except ParseError as error:
        raise EvaluationError(str(error)) from error


@lru_cache(COMPILED_MAX)
def compile_selector(text: str) -> Callable[[Device], bool]:
    """Whether a device is chosen. Raises UnsupportedError where the text is beyond what is read here."""
    node = _Parser(text).parse()

    def matches(device: Device) -> bool:
        try:
            return node({"device": device}) is True
        except EvaluationError:
            return False

    return matches


class _Parser:
    """By recursive descent; each rule returns what evaluates it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._place = 0
        self._depth = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        place, end, count = 0, len(self._text.rstrip()), 0
        while place < end:
            found = TOKEN.match(self._text, place)
            if found is None:
                raise self._refuse(self._text[place : place + 20])
            place = found.end()
            kind = found.lastgroup or ""
            count += 1
            if count > TOKENS_MAX:
                raise self._refuse(f"more than {TOKENS_MAX} words")
            if kind == "number" and len(found.group(kind)) > DIGITS_MAX:
                raise self._refuse("so large a number")
            yield kind, found.group(kind)

    def _refuse(self, what: str) -> UnsupportedError:
        text = self._text if len(self._text) <= SHOWN_MAX else self._text[:SHOWN_MAX] + "..."
        return UnsupportedError(f"the selector {text!r} (CEL), of which Clearway does not evaluate {what!r}")

    def parse(self) -> Node:
        node = self._or()
        if self._place < len(self._tokens):
            raise self._refuse(self._tokens[self._place][1])
        return node

    def _next(self) -> tuple[str, str]:
        token: tuple[str, str] = self._tokens[self._place] if self._place < len(self._tokens) else ("end", "its end")
        self._place += 1
        return token

    def _takes(self, *signs: str) -> str:
        """The sign, or `in`, that comes next, if it is one of these."""
        if self._place < len(self._tokens) and self._tokens[self._place][1] in signs:
            kind, sign = self._tokens[self._place]
            if kind in ("sign", "name"):
                self._place += 1
                return str(sign)
        return ""

    def _must(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._refuse(self._next()[1])

    def _or(self) -> Node:
        node = self._nested(self._and)
        while self._takes("||"):
            node = _join(node, self._nested(self._and), decides=True)
        return node

    def _and(self) -> Node:
        node = self._relation()
        while self._takes("&&"):
            node = _join(node, self._relation(), decides=False)
        return node

    def _relation(self) -> Node:
        left = self._unary()
        sign = self._takes("==", "!=", "<=", ">=", "<", ">", "in")
        return _compare(sign, left, self._unary()) if sign else left

    def _unary(self) -> Node:
        if self._takes("!"):
            node = self._nested(self._unary)
            return lambda scope: not _as_bool(node(scope))
        if self._takes("-"):
            kind, digits = self._next()
            if kind != "number":
                raise self._refuse(digits)
            return lambda _: -int(digits)
        return self._postfix()

    def _nested(self, rule: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._refuse("so many nested parts")
        node = rule()
        self._depth -= 1
        return node

    def _postfix(self) -> Node:
        node = self._primary()
        while sign := self._takes(".", "["):
            if sign == "[":
                node = _index(node, self._or())
                self._must("]")
                continue
            kind, name = self._next()
            if kind != "name":
                raise self._refuse(name)
            node = self._call(name, node) if self._takes("(") else _select(node, name)
        return node

    def _primary(self) -> Node:
        kind, word = self._next()
        if kind == "number":
            return lambda _: int(word)
        if kind == "text":
            plain = re.sub(r"\\(.)", r"\1", word[1:-1])
            return lambda _: plain
        if word == "(":
            node = self._or()
            self._must(")")
            return node
        if word == "[":
            return _list(self._arguments("]"))
        if kind != "name":
            raise self._refuse(word)
        if word in ("true", "false"):
            return lambda _: word == "true"
        if word == "cel" and self._takes("."):
            return self._bind()
        if self._takes("("):
            return self._function(word)
        return lambda scope: _lookup(scope, word)

    def _arguments(self, end: str) -> list[Node]:
        nodes: list[Node] = []
        while not self._takes(end):
            nodes.append(self._or())
            if not self._takes(","):
                self._must(end)
                break
        return nodes

    def _bind(self) -> Node:
        """`cel.bind(name, value, node)`."""
        if self._next()[1] != "bind" or not self._takes("("):
            raise self._refuse("cel." + self._tokens[self._place - 1][1])
        _, name = self._next()
        self._must(",")
        value = self._or()
        self._must(",")
        node = self._or()
        self._must(")")
        return lambda scope: node({**scope, name: value(scope)})

    def _function(self, name: str) -> Node:
        arguments = self._arguments(")")
        if name == "has" and len(arguments) == 1:
            return _exists(arguments[0])
        makers: dict[str, Callable[[str], Any]] = {"quantity": parse_quantity, "semver": parse_version}
        if name not in makers or len(arguments) != 1:
            raise self._refuse(f"{name}()")
        make, (node,) = makers[name], arguments
        return lambda scope: make(_as_text(node(scope)))

    def _call(self, name: str, node: Node) -> Node:
        arguments = self._arguments(")")
        if name == "lowerAscii" and not arguments:
            return lambda scope: _as_text(node(scope)).lower()
        if name in ("major", "minor", "patch") and not arguments:
            place = ("major", "minor", "patch").index(name)
            return lambda scope: _as_version(node(scope)).numbers[place]
        if len(arguments) != 1:
            raise self._refuse(f"{name}()")
        (other,) = arguments
        if name in _TEXT_CALLS:
            judge = _TEXT_CALLS[name]
            return lambda scope: judge(_as_text(node(scope)), _as_text(other(scope)))
        if name in _ORDER_CALLS:
            order = _ORDER_CALLS[name]
            return lambda scope: order(*_same_kind(node(scope), other(scope)))
        raise self._refuse(f"{name}()")


_TEXT_CALLS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
}
_ORDER_CALLS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "compareTo": lambda one, other: (one > other) - (one < other),
    "isGreaterThan": lambda one, other: one > other,
    "isLessThan": lambda one, other: one < other,
}
_SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _join(left: Node, right: Node, *, decides: bool) -> Node:
    """`||` (decides: true) or `&&`: either side may decide, and then an error of the other one does not matter."""

    def judge(scope: Scope) -> bool:
        try:
            if _as_bool(left(scope)) is decides:
                return decides
        except EvaluationError:
            if _as_bool(right(scope)) is decides:
                return decides
            raise
        return _as_bool(right(scope))

    return judge


def _compare(sign: str, left: Node, right: Node) -> Node:
    if sign == "in":
        return lambda scope: _is_in(left(scope), right(scope))
    if sign in ("==", "!="):
        return lambda scope: _is_equal(left(scope), right(scope)) is (sign == "==")
    order = _SIGNS[sign]
    return lambda scope: order(*_same_kind(left(scope), right(scope)))


def _is_equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _is_in(one: Any, many: Any) -> bool:
    if isinstance(many, list):
        return any(_is_equal(one, other) for other in many)
    if isinstance(many, Mapping):
        return isinstance(one, str) and one in many
    raise EvaluationError("expected a list or a map")


def _same_kind(one: Any, other: Any) -> tuple[Any, Any]:
    if type(one) is not type(other) or not isinstance(one, int | str | Quantity | Version):
        raise EvaluationError("expected two values of one kind")
    return one, other


def _as_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("expected true or false")
    return value


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationError("expected a text")
    return value


def _as_version(value: Any) -> Version:
    if not isinstance(value, Version):
        raise EvaluationError("expected a version")
    return value


def _list(nodes: list[Node]) -> Node:
    def make(scope: Scope) -> list[Any]:
        values = [node(scope) for node in nodes]
        _count(values)
        return values

    return make


def _count(values: list[Any], before: int = 0) -> int:
    """Values in a list and in those within it, and some before. Raises EvaluationError where they are too many."""
    for value in values:
        before = _count(value, before + 1) if isinstance(value, list) else before + 1
        if before > LIST_MAX:
            raise EvaluationError(f"expected a list of at most {LIST_MAX} values")
    return before


def _lookup(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise EvaluationError(f"{name} is not known")
    return scope[name]


def _exists(node: Node) -> Node:
    def judge(scope: Scope) -> bool:
        try:
            node(scope)
        except EvaluationError:
            return False
        return True

    return judge


def _index(node: Node, key: Node) -> Node:
    return lambda scope: _find(node(scope), key(scope))


def _select(node: Node, name: str) -> Node:
    return lambda scope: _find(node(scope), name)


def _find(value: Any, key: Any) -> Any:
    if not isinstance(key, str):
        raise EvaluationError("expected a text as the key")
    if isinstance(value, Device):
        if key == "driver":
            return value.driver
        if key in ("attributes", "capacity"):
            return _Domains(value.attributes if key == "attributes" else value.capacity)
    elif isinstance(value, _Domains):
        return value.by_domain.get(key, {})  # a domain of which a device says nothing is empty, not an error
    elif isinstance(value, Mapping) and key in value:
        return value[key]
    raise EvaluationError(f"{key!r} is not there")


@dataclass(frozen=True, slots=True)
class _Domains:
    by_domain: Mapping[str, Mapping[str, Any]]
