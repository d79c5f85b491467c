"""A TCP proxy that loses connections at chosen moments, between a client and a real server."""

import contextlib
import socket
import threading
from enum import Enum

CHUNK = 1 << 16


class Cut(Enum):
    """When the connection is lost: before the server hears COMMIT, or after it carried it out."""

    BEFORE_COMMIT = "before"
    AFTER_COMMIT = "after"


class CuttingProxy:
    """Forwards connections of `port` to a server. `cut` is for the next COMMIT, and then forgotten."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cut: Cut | None = None
        self.cuts = 0
        self.is_refusing = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.sockets: set[socket.socket] = set()
        self.threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, work, *arguments) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.is_refusing:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.target))
            self.sockets |= {client, server}
            pair = _Pair(client, server)
            self._begin(self._forward, pair)
            self._begin(self._give_back, pair)

    def _forward(self, pair: "_Pair") -> None:
        """From the client, looking for COMMIT."""
        while data := _receive(pair.client):
            if self.cut is not None and b"COMMIT" in data:
                cut, self.cut = self.cut, None
                self.cuts += 1
                if cut is Cut.BEFORE_COMMIT:
                    break
                pair.is_mute = True
            if not _send(pair.server, data):
                break
        if not pair.is_mute:
            pair.close()

    def _give_back(self, pair: "_Pair") -> None:
        """From the server; its answer to the fatal COMMIT ends the connection instead."""
        while data := _receive(pair.server):
            if pair.is_mute or not _send(pair.client, data):
                break
        pair.close()

    def lose_all(self) -> None:
        """Every connection is lost now."""
        for one in self.sockets:
            _end(one)

    def close(self) -> None:
        """End everything."""
        _end(self.listener)
        self.lose_all()
        for thread in self.threads:
            thread.join(10)


class _Pair:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server, self.is_mute = client, server, False

    def close(self) -> None:
        _end(self.client)
        _end(self.server)


def _receive(one: socket.socket) -> bytes:
    try:
        return one.recv(CHUNK)
    except OSError:
        return b""


def _send(one: socket.socket, data: bytes) -> bool:
    try:
        one.sendall(data)
    except OSError:
        return False
    return True


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
