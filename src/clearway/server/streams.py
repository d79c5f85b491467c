"""Server-sent events: how messages are written, and streams that end when they must.

A stream ends when its client goes, when the server stops, and, at its next heartbeat, when its token is no longer
good. Messages are bounded, and so is the number of streams.
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from fastapi.responses import StreamingResponse

from clearway.model.ids import JobId
from clearway.server.auth import AuthFileError, Identity
from clearway.server.events import show_notice
from clearway.server.logs import LogFile, LogPlace, Stream, find_log
from clearway.server.problems import Refusal
from clearway.server.services import Services
from clearway.wire.api import BEGIN, GAP
from clearway.wire.api_rows import encode_row

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = b": still here\n\n"
LOG_PART_BYTES: Final = 1 << 16


def make_message(kind: str, data: object, message_id: str = "") -> bytes:
    """One message; JSON has no line ends, so that it is one line."""
    place = f"id: {message_id}\n" if message_id else ""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str)
    return f"{place}event: {kind}\ndata: {text}\n\n".encode("utf-8", errors="replace")


def stream_response(services: Services, parts: AsyncIterator[bytes]) -> StreamingResponse:
    """The answer that sends `parts` as they come. Raises Refusal where too many streams are open."""
    if services.streams >= services.settings.streams_max:
        raise Refusal(
            503, f"expected at most {services.settings.streams_max} streams at once, found as many; try again later"
        )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_count(services, parts), media_type=MEDIA_TYPE, headers=headers)


async def _count(services: Services, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    services.streams += 1
    try:
        async for part in parts:
            yield part
    finally:
        services.streams -= 1


def read_last_id(request: Request) -> str:
    """The header `Last-Event-ID`; "" = there is none."""
    return request.headers.get("last-event-id", "").strip()


def read_last_offset(request: Request) -> int | None:
    """The offset in `Last-Event-ID`; None = there is none. Raises Refusal."""
    text = read_last_id(request)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:19]) < 1 << 60):
        raise Refusal(422, f"Last-Event-ID: expected an offset in bytes, found {text!r:.80}")
    return int(text)


class _Pulse:
    """Beats once in a while, however busy a stream is: the time to look whether its caller is still known."""

    def __init__(self, request: Request, services: Services) -> None:
        self._request = request
        self._services = services
        self._every_ns = int(services.settings.heartbeat_s * 1e9)
        self._due_ns = time.monotonic_ns() + self._every_ns

    def is_due(self) -> bool:
        """Whether it is time; then the next time is so much later."""
        now_ns = time.monotonic_ns()
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + self._every_ns
        return True

    def is_alive(self) -> bool:
        """Whether the token with which the stream began is good for the same caller."""
        identity: Identity = self._request.scope["clearway.identity"]
        try:
            return self._services.auth.identify(self._request.scope["clearway.token"]) == identity
        except AuthFileError:
            return False


async def follow_events(
    request: Request, services: Services, kinds: frozenset[str], last_id: str
) -> AsyncIterator[bytes]:
    """`begin`, then what the caller may see of what changes; `gap` where some of it is lost to him."""
    hub, pulse = services.hub, _Pulse(request, services)
    news = hub.join()
    try:
        reach = await services.reach(request)
        position, is_lost, place = hub.position_after(last_id)
        yield make_message(BEGIN, {}, place)
        while not hub.is_closed:
            if pulse.is_due():
                if not pulse.is_alive():
                    return
                reach = await services.reach(request)
                yield HEARTBEAT
            news.clear()
            position, is_behind, notices = hub.read(position)
            is_lost = is_lost or is_behind
            shown = [event for notice in notices if (event := show_notice(notice, reach, kinds))]
            if is_lost or shown:
                yield b"".join(
                    [make_message(GAP, {})] * is_lost
                    + [make_message(event.kind, encode_row(event), hub.name_place(event.seq)) for event in shown]
                )
                is_lost = False
            if notices:
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), services.settings.heartbeat_s)
    finally:
        hub.leave(news)


async def follow_log(
    request: Request, services: Services, job: JobId, stream: Stream, replica: int, offset: int, tail: int | None
) -> AsyncIterator[bytes]:
    """What a job writes, as base64 in JSON; `end` when it has ended and all is sent. The id is the next offset."""
    settings, pulse = services.settings, _Pulse(request, services)
    position, path = offset, ""
    yield HEARTBEAT
    while not services.hub.is_closed:
        if pulse.is_due():
            if not pulse.is_alive():
                return
            yield HEARTBEAT
        view = await services.read(services.control.job, job)
        is_final, data = view is None or view.state.is_final, b""
        if view is not None and view.start_ms is not None:
            place = find_log(view, stream, replica, settings.account, settings.log_folder)
            position = position if path in ("", place.path) else 0
            path = place.path
            position, data, tail = await services.read_file(_read_on, place, position, tail)
        if data:
            encoded = base64.b64encode(data).decode()
            yield make_message("log", {"offset": position - len(data), "data": encoded}, str(position))
        elif is_final:
            yield make_message("end", {"offset": position}, str(position))
            return
        else:
            await asyncio.sleep(settings.log_poll_s)


def _read_on(place: LogPlace, position: int, tail: int | None) -> tuple[int, bytes, int | None]:
    """The position behind what was read, what was read, and the tail that is still wanted.

    A file that is not there yet is empty; one that has become shorter was begun anew, and is read from its begin.
    """
    try:
        log = LogFile(place)
    except Refusal:
        return position, b"", tail
    with contextlib.closing(log):
        if tail is not None:
            position = log.tail_offset(tail)
        elif position > log.size:
            position = 0
        data = log.read(position, LOG_PART_BYTES)
        return position + len(data), data, None
