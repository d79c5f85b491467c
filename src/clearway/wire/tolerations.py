"""Taints that a job bears, as job files write them: `key`, `key:Effect`, `key=value:Effect`, or as Kubernetes does."""

import re
from collections.abc import Mapping
from typing import Final

from clearway.model.runs import Toleration
from clearway.wire.problems import ParseError

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS: Final = ("Equal", "Exists")

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")

WANTED: Final = "a taint that it bears, such as `team=vision:NoSchedule`, `team` or `{key: team, operator: Exists}`"
TOLERATIONS_MAX: Final = 64


def parse_tolerations(value: object) -> tuple[Toleration, ...]:
    """One toleration or a list of them. `*` = every taint. Raises ParseError."""
    items = value if isinstance(value, list) else [value]
    if len(items) > TOLERATIONS_MAX:
        raise ParseError(expected=f"at most {TOLERATIONS_MAX} of them", found=len(items))
    return tuple(_parse_mapping(one) if isinstance(one, Mapping) else _parse_text(one) for one in items)


def _parse_text(text: object) -> Toleration:
    if not isinstance(text, str):
        raise ParseError(expected=WANTED, found=text)
    taint, _, effect = text.partition(":")
    key, is_equal, value = taint.partition("=")
    return _make("" if key == "*" else key, value if is_equal else None, effect, text, is_any=key == "*")


def _parse_mapping(data: Mapping[object, object]) -> Toleration:
    unknown = [str(key) for key in data if key not in ("key", "operator", "value", "effect")]
    texts = {str(key): text for key, text in data.items() if isinstance(text, str)}
    operator = texts.get("operator", "Equal")
    if unknown or len(texts) < len(data) or operator not in OPERATORS:
        hint = "keys are `key`, `operator` (Equal or Exists), `value` and `effect`; all are texts"
        raise ParseError(expected=WANTED, found=dict(data), hint=hint)
    value = None if operator == "Exists" else texts.get("value", "")
    if value is None and texts.get("value"):
        raise ParseError(expected="no `value` with the operator Exists", found=texts["value"])
    key = texts.get("key", "")
    return _make(key, value, texts.get("effect", ""), dict(data), is_any=not key)


def _make(key: str, value: str | None, effect: str, found: object, *, is_any: bool) -> Toleration:
    if effect not in ("", *EFFECTS):
        raise ParseError(expected=f"one of the effects {', '.join(EFFECTS)}, or none", found=effect)
    if not (is_any or _KEY.fullmatch(key)) or (is_any and value is not None):
        raise ParseError(expected=WANTED, found=found)
    if value is not None and not _VALUE.fullmatch(value):
        raise ParseError(expected="a value of letters, digits, `-`, `_` and `.`, at most 63", found=value)
    return Toleration(key=key, value=value, effect=effect)
