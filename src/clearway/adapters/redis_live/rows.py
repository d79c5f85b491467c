"""Values from and to what stands in Redis: JSON texts. Pure."""

import json
from typing import TypeVar

from clearway.model.errors import InputError
from clearway.ports.control import Notice
from clearway.ports.fanout import FanoutError
from clearway.wire.codec import decode_value, encode_value

ValueT = TypeVar("ValueT")


def dump_value(value: object) -> str:
    """A view, as the codec writes it."""
    return json.dumps(encode_value(value), separators=(",", ":"))


def parse_value(cls: type[ValueT], text: bytes) -> ValueT:
    """The view that `dump_value` wrote. Raises FanoutError for another release's."""
    try:
        return decode_value(cls, json.loads(text))
    except (InputError, ValueError) as error:
        raise FanoutError(f"expected a {cls.__name__} of this release in Redis; {error}") from error


def dump_notice(notice: Notice) -> str:
    """A notice as JSON; what JSON has no word for, as text: one odd notice must not stop all others."""
    fields = {"seq": notice.seq, "at_ms": notice.at_ms, "kind": notice.kind, "tenant": notice.tenant}
    return json.dumps(fields | {"data": dict(notice.data)}, separators=(",", ":"), default=str)


def parse_notice(text: bytes) -> Notice:
    """The notice that `dump_notice` wrote. Raises FanoutError."""
    try:
        fields = json.loads(text)
        return Notice(**fields)
    except (TypeError, ValueError) as error:
        raise FanoutError(f"expected a notice of this release in Redis; {error}") from error
