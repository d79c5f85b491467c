"""The keeper's end of its socket. It hears one controller at a time, the one that came last."""

import os
import selectors
import socket
import struct
from collections.abc import Callable
from typing import Final

from clearway.adapters.local.keeper.host import tick_ms
from clearway.adapters.local.keeper.messages import LINE_MAX, Message, render_message

OUT_BYTES_MAX: Final = 64 << 20
"""A controller that lets so much pile up is cut off; it connects again and asks for all there is."""


class Wire:
    """selector: of the loop, which calls what `readers` has for a descriptor. obey: takes each line that comes, does
    not raise. left_tick: when the last controller left."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        readers: dict[int, Callable[[], None]],
        obey: Callable[[bytes], None],
    ) -> None:
        self._selector = selector
        self._readers = readers
        self._obey = obey
        self._client: socket.socket | None = None
        self._in = bytearray()
        self._out = bytearray()
        self.is_greeted = False
        self.left_tick = 0

    @property
    def is_open(self) -> bool:
        """Whether a controller is there."""
        return self._client is not None

    def is_of(self, descriptor: int) -> bool:
        """Whether that is the descriptor of the connection."""
        return self._client is not None and self._client.fileno() == descriptor

    def accept(self, listener: socket.socket, *, is_refused: bool) -> bool:
        """Take the next connection, and hang up the one before; False = it may not, or is refused."""
        client, _ = listener.accept()
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in (0, os.getuid()) or is_refused:
            client.close()
            return False
        self.hang_up()
        client.setblocking(False)
        self._client = client
        self._readers[client.fileno()] = self._read
        self._selector.register(client.fileno(), selectors.EVENT_READ)
        return True

    def hang_up(self) -> None:
        """Nothing that was not sent is sent any more."""
        if self._client is not None:
            self._readers.pop(self._client.fileno(), None)
            self._selector.unregister(self._client.fileno())
            self._client.close()
        self._client = None
        self.is_greeted = False
        self.left_tick = tick_ms()
        self._in.clear()
        self._out.clear()

    def _read(self) -> None:
        assert self._client is not None
        try:
            data = self._client.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._in) > LINE_MAX:
            self.hang_up()
            return
        self._in.extend(data)
        if b"\n" not in data:
            return
        *lines, rest = bytes(self._in).split(b"\n")
        self._in[:] = rest
        for line in lines:
            self._obey(line)

    def send(self, message: Message) -> None:
        """To a controller that has said what it holds; before that, all there is to tell is in the answer to it."""
        if self._client is None or not self.is_greeted:
            return
        self._out.extend(render_message(message))
        self.flush()
        if len(self._out) > OUT_BYTES_MAX:
            self.hang_up()

    def flush(self) -> None:
        """Send what the socket takes now."""
        assert self._client is not None
        while self._out:
            try:
                sent = self._client.send(self._out)
            except BlockingIOError:
                break
            except OSError:
                self._out.clear()  # the end of the connection is read in its turn
                break
            del self._out[:sent]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        if self._selector.get_key(self._client.fileno()).events != events:
            self._selector.modify(self._client.fileno(), events)
