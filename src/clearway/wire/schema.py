"""What our pydantic models have in common, and their errors in our words."""

import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pydantic

from clearway.wire.problems import NOTHING, ParseError, Problem, list_names, suggest_name
from clearway.wire.texts import refuse_controls, refuse_nul


class Schema(pydantic.BaseModel):
    """Base of what a file may hold: unknown keys and keys without a value are errors, values are frozen."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _refuse_nothing(cls, value: object) -> object:
        if value is None:
            raise ParseError(expected="a value", found=NOTHING, hint="leave the key out, or give it a value")
        return value


def _refuse_boolean(value: object) -> object:
    """`true` is not 1: pydantic would take it for a number."""
    if isinstance(value, bool):
        raise ParseError(expected="a number", found=value)
    return value


Text = Annotated[str, pydantic.Field(max_length=4096), pydantic.AfterValidator(refuse_controls)]
Word = Annotated[str, pydantic.Field(max_length=4096), pydantic.AfterValidator(refuse_nul)]
Name = Annotated[str, pydantic.Field(min_length=1, max_length=256), pydantic.AfterValidator(refuse_controls)]
Whole = Annotated[int, pydantic.Field(strict=True)]
Count = Annotated[int, pydantic.Field(strict=True, ge=0, lt=1 << 31)]
Positive = Annotated[int, pydantic.Field(strict=True, ge=1, lt=1 << 31)]
PositiveNumber = Annotated[float, pydantic.BeforeValidator(_refuse_boolean), pydantic.Field(gt=0, allow_inf_nan=False)]
NotNegativeNumber = Annotated[
    float, pydantic.BeforeValidator(_refuse_boolean), pydantic.Field(ge=0, allow_inf_nan=False)
]
Flag = Annotated[bool, pydantic.Field(strict=True)]


def require_items(value: object) -> object:
    """A list that is not empty (pydantic's own check also counts items that are wrong as missing)."""
    if isinstance(value, list | tuple) and not value:
        raise ParseError(expected="a list of at least one item", found=value)
    return value


def convert(parser: Callable[[Any], Any]) -> pydantic.BeforeValidator:
    """A field read by one of the parsers of `wire.units` and its like, which raise ParseError."""
    return pydantic.BeforeValidator(lambda value: parser(value))


def list_one(value: object) -> object:
    """One text is a list of one."""
    return [value] if isinstance(value, str) else value


def make_problem(
    details: Any,
    model: type[pydantic.BaseModel],
    source: str,
    line_of: Callable[[tuple[str | int, ...]], int],
    synonyms: Mapping[str, str],
) -> Problem:
    """One of pydantic's error details as a Problem. line_of: from place to line."""
    place: tuple[str | int, ...] = tuple(part for part in details["loc"] if part != "[key]")
    expected, found, hint, inner = _word_error(details, model, place, synonyms)
    place += tuple(int(part) if part.isdigit() else part for part in inner.split(".") if part)
    name = render_place(place)
    return Problem(source=source, line=line_of(place), field=name, expected=expected, found=found, hint=hint)


def render_place(place: tuple[str | int, ...]) -> str:
    """`jobs[0].resources.gpus`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    return "".join(parts).removeprefix(".")


def _word_error(
    details: Any, model: type[pydantic.BaseModel], place: tuple[str | int, ...], synonyms: Mapping[str, str]
) -> tuple[str, object, str, str]:
    """(expected, found, hint, field inside of `place`)."""
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, ParseError):
        return cause.expected, cause.found, cause.hint, cause.field
    kind = details["type"]
    if kind == "extra_forbidden":
        known, name = _fields_at(model, place[:-1]), str(place[-1])
        return f"one of {list_names(known)}", name, _hint_unknown(name, known, synonyms), ""
    if kind == "missing":
        return f"a value for {str(place[-1])!r}", NOTHING, "add it", ""
    return _EXPECTED.get(kind) or _plain_words(details["msg"]), details["input"], _HINTS.get(kind, ""), ""


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
}
_HINTS = {
    "string_type": "put it in quotes if it is meant as text",
    "int_type": "write digits without quotes",
    "list_type": "write it as [a, b] or as lines that begin with a dash",
    "tuple_type": "write it as [a, b] or as lines that begin with a dash",
}


def _plain_words(message: str) -> str:
    """pydantic's sentence as the object of `expected`."""
    words = re.sub(r"^(?=greater|less)", "a number ", message.removeprefix("Input should be "))
    words = words.replace("String should match pattern", "text that matches")
    return words[:1].lower() + words[1:]


def _hint_unknown(name: str, known: Mapping[str, Any], synonyms: Mapping[str, str]) -> str:
    """Where the key belongs, or what it is called here, or the nearest name."""
    ours = synonyms.get(name, name)
    if ours in known:
        return f"did you mean {ours!r}?"
    for outer, model in known.items():
        if model is not None and ours in model.model_fields:
            return f"write {ours!r} inside of {outer!r}"
    return suggest_name(name, known) or "remove it, or look up the keys of this file"


def _fields_at(model: type[pydantic.BaseModel], place: tuple[str | int, ...]) -> dict[str, Any]:
    """Fields of the model that stands at `place` below `model`, with the model that each holds, if any."""
    current: Any = model
    for part in place:
        if isinstance(part, str) and current is not None:
            info = current.model_fields.get(part)
            current = _find_model(info.annotation) if info is not None else None
    if current is None:
        return {}
    return {name: _find_model(info.annotation) for name, info in current.model_fields.items()}


def _find_model(annotation: Any) -> Any:
    """The model named in an annotation such as `tuple[M, ...] | None`; None if there is none."""
    if _is_model(annotation):
        return annotation
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is not None:
        candidates = (_find_model(argument) for argument in typing.get_args(annotation))
        return next((found for found in candidates if found is not None), None)
    return None


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, pydantic.BaseModel)
