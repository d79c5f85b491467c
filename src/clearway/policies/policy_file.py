"""A policy as plain nested data, both ways: what a policy file holds. Reading YAML or JSON is not done here.

    name: night
    like: easy                # start from a named policy instead of from the defaults
    order:
      type: least_attained    # a name of ORDER_TYPES; other keys are fields of that order
      promote_after: 8
    backfill:
      reservation_depth: 4
    qos: {high: 100, normal: 10}  # names that jobs may give, with their priorities; an order may weigh them

Every key is a field of `Policy` or of the dataclass that it holds. `describe_policy` writes every field, and
`make_policy` gives the same policy back. Fields of an order that the base policy has too are kept if the type is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from clearway.engine.policy import Order, Policy, Qos
from clearway.model.errors import InputError
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.policies.orders import (
    BoundedSlowdown,
    EarliestDeadline,
    Fifo,
    Gittins,
    LeastAttained,
    Multifactor,
    Shortest,
)

ORDER_TYPES: Final[Mapping[str, type[Any]]] = {
    "fifo": Fifo,
    "shortest": Shortest,
    "multifactor": Multifactor,
    "least_attained": LeastAttained,
    "gittins": Gittins,
    "earliest_deadline": EarliestDeadline,
    "bounded_slowdown": BoundedSlowdown,
}

_POSITIVE: Final = frozenset(
    {"age_max_ms", "queue_max", "job_max", "quantum_device_ms", "history_max", "refresh_ms"}
    | {"scan_max", "victims_max", "history_min"}
)
"""Whole numbers that must be at least 1: divisors, periods and bounds of loops. All others may be 0."""

_SHARES: Final = frozenset({"runtime_quantile"})
"""Numbers strictly between 0 and 1."""

Place = tuple[str, ...]


class PolicyError(InputError):
    """One value of a policy is wrong. place: keys from the root to it, so that a reader can name its line."""

    def __init__(self, place: Place, expected: str, found: object, hint: str = "") -> None:
        self.place = place
        self.expected = expected
        self.found = found
        self.hint = hint
        where = ".".join(place) or "policy"
        super().__init__(f"{where}: expected {expected}, found {found!r}" + (f"; {hint}" if hint else ""))


def make_policy(data: object) -> Policy:
    """The policy that `data` describes. PolicyError for an unknown key, name or type of value, or one out of range."""
    settings = dict(_as_mapping(data, ()))
    like = settings.pop("like", None)
    if like is not None and like not in POLICY_NAMES:
        raise PolicyError(("like",), _one_of(POLICY_NAMES), like, _nearest(like, POLICY_NAMES))
    base = None if like is None else named_policy(str(like))
    for needed in ("name", "order") if base is None else ("name",):
        if needed not in settings:
            raise PolicyError((), f"the key {needed!r}", tuple(settings), f"add `{needed}:`")
    order = settings.pop("order", None)
    values = _parse_fields(Policy, settings, (), base)
    if order is not None:
        values["order"] = _parse_order(order, None if base is None else base.order)
    return Policy(**values)


def describe_policy(policy: Policy) -> dict[str, Any]:
    """Every field of `policy` as plain nested data that `make_policy` takes."""
    described: dict[str, Any] = {}
    for field in fields(policy):
        value = getattr(policy, field.name)
        described[field.name] = _describe_order(value) if field.name == "order" else _describe(value)
    described["qos"] = {one.name: one.priority for one in policy.qos}
    return described


def _describe_order(order: Order) -> dict[str, Any]:
    names = [name for name, kind in ORDER_TYPES.items() if type(order) is kind]
    if not names:
        raise InputError(f"order: expected one of {', '.join(ORDER_TYPES)}, found {type(order).__name__}")
    return {"type": names[0], **_describe(order)}


def _describe(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _describe(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _parse_order(data: object, base: Order | None) -> Order:
    """An order from `{type: NAME, field: value, ...}`, or from its name alone."""
    place = ("order",)
    settings: dict[str, object] = {"type": data} if isinstance(data, str) else dict(_as_mapping(data, place))
    if "type" not in settings:
        raise PolicyError(place, "the key 'type'", tuple(settings), "add `type:`, " + _one_of(ORDER_TYPES))
    name = settings.pop("type")
    kind = ORDER_TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise PolicyError((*place, "type"), _one_of(ORDER_TYPES), name, _nearest(name, ORDER_TYPES))
    order: Order = kind(**_parse_fields(kind, settings, place, base if type(base) is kind else None))
    return order


def _parse_fields(kind: type[Any], settings: Mapping[str, object], place: Place, base: object) -> dict[str, Any]:
    """Values of the dataclass `kind` by field name: those of `base`, if any, with `settings` over them."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    values = {} if base is None else {name: getattr(base, name) for name in names}
    for name, value in settings.items():
        if name not in names:
            raise PolicyError(place, _one_of(names), name, _nearest(name, names))
        inner = values.get(name)
        values[name] = _parse_value(hints[name], value, (*place, name), inner)
    return values


def _parse_value(hint: Any, value: object, place: Place, base: object) -> Any:
    """`value` as the type `hint`, one of those that policies have: dataclass, enum, number, text, tuple of numbers."""
    if get_origin(hint) in (Union, UnionType):
        if value is None and NoneType in get_args(hint):
            return None
        (hint,) = [one for one in get_args(hint) if one is not NoneType]
    if hint == tuple[Qos, ...]:
        return _parse_qos(value, place)
    if get_origin(hint) is tuple:
        return _parse_rising(value, place)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return hint(**_parse_fields(hint, _as_mapping(value, place), place, base))
    if issubclass(hint, StrEnum):
        return _parse_choice(hint, value, place)
    return _parse_scalar(hint, value, place)


def _parse_choice(hint: type[StrEnum], value: object, place: Place) -> StrEnum:
    choices = [choice.value for choice in hint]
    if value not in choices:
        raise PolicyError(place, _one_of(choices), value, _nearest(value, choices))
    return hint(str(value))


def _parse_scalar(hint: type[Any], value: object, place: Place) -> Any:
    if hint is float:
        return _parse_number(value, place)
    if hint is int:
        return _parse_whole(value, place)
    if type(value) is not hint or value == "":
        raise PolicyError(place, "true or false" if hint is bool else "a text that is not empty", value)
    return value


def _parse_whole(value: object, place: Place) -> int:
    minimum = 1 if place[-1] in _POSITIVE else 0
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise PolicyError(place, f"a whole number of at least {minimum}", value, _unit_hint(place))
    return value


def _parse_number(value: object, place: Place) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise PolicyError(place, "a number", value)
    if place[-1] in _SHARES and not 0 < value < 1:
        raise PolicyError(place, "a number between 0 and 1", value)
    if value < 0:
        raise PolicyError(place, "a number of at least 0", value)
    return float(value)


def _parse_rising(value: object, place: Place) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise PolicyError(place, "a list of whole numbers", value)
    numbers = tuple(_parse_whole(one, place) for one in value)
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise PolicyError(place, "numbers that rise", list(numbers))
    return numbers


def _parse_qos(value: object, place: Place) -> tuple[Qos, ...]:
    named = _as_mapping(value, place)
    if not all(named):
        raise PolicyError(place, "names that are not empty", "")
    return tuple(Qos(name=name, priority=_parse_whole(one, (*place, name))) for name, one in named.items())


def _as_mapping(data: object, place: Place) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise PolicyError(place, "keys with values", data)
    return {str(key): value for key, value in data.items()}


def _one_of(names: Mapping[str, object] | Sequence[str]) -> str:
    return "one of " + ", ".join(names)


def _nearest(found: object, names: Mapping[str, object] | Sequence[str]) -> str:
    nearest = get_close_matches(str(found), list(names), n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else ""


def _unit_hint(place: Place) -> str:
    return "times are in milliseconds" if place[-1].endswith("_ms") else ""
