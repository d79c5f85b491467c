"""Server-sent events as bytes, read into messages (WHATWG HTML, 9.2)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One message. id: of the last that had one, "" = none yet. kind: its `event:`, "message" when it names none."""

    id: str
    kind: str
    data: str


def parse_messages(parts: Iterable[bytes]) -> Iterator[Message]:
    """Messages of a stream, each as soon as its empty line has come; what was cut off at the end is dropped."""
    last_id, kind, lines = "", "message", list[str]()
    for line in _split_lines(parts):
        if not line:
            if lines:
                yield Message(last_id, kind, "\n".join(lines))
            kind, lines = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            lines.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value


def _split_lines(parts: Iterable[bytes]) -> Iterator[str]:
    """Whole lines without their ends (LF or CRLF, which is all that our server writes)."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
