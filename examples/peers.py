"""Sums over all replicas of a job, by TCP: each sends its vector to replica 0, which sends back the sum.

Enough for a few replicas on one machine; NCCL and gloo do this properly.
"""

import os
import socket
import struct
import time
from typing import Self

import numpy as np

CONNECT_S = 120.0
"""How long replicas wait for one another. They are started together, but one may have its image to fetch."""

TRY_S = 5.0
"""How long one attempt may take: the address may still be that of an earlier run, where nobody answers."""


class Peers:
    """rank 0 listens at MASTER_ADDR and MASTER_PORT, which Clearway sets; a job of one replica needs neither."""

    def __init__(self, rank: int, world: int) -> None:
        self._connections: list[socket.socket] = []
        self._is_first = rank == 0
        if world == 1:
            return
        environment = os.environ  # noqa: TID251 - the environment is how a job is told where its peers are
        address = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
        self._connections = _listen(address, world - 1) if self._is_first else [_connect(address)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def add(self, vector: np.ndarray) -> np.ndarray:
        """The sum of all replicas' vectors; each calls it, in the same order."""
        if not self._is_first:
            _send(self._connections[0], vector)
            return _receive(self._connections[0])
        total = vector.astype(np.float64)
        for connection in self._connections:
            total = total + _receive(connection)
        for connection in self._connections:
            _send(connection, total)
        return total


def _listen(address: tuple[str, int], count: int) -> list[socket.socket]:
    with socket.create_server(address) as server:
        server.settimeout(CONNECT_S)
        connections = [server.accept()[0] for _ in range(count)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connections


def _connect(address: tuple[str, int]) -> socket.socket:
    until = time.monotonic_ns() + int(CONNECT_S * 1e9)
    while True:
        try:
            connection = socket.create_connection(address, TRY_S)
        except OSError:  # replica 0 does not listen yet, or its name has no address, or still its last one
            if time.monotonic_ns() > until:
                raise
            time.sleep(0.02)
            continue
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _send(connection: socket.socket, vector: np.ndarray) -> None:
    data = vector.astype(np.float64).tobytes()
    connection.sendall(struct.pack("!Q", len(data)) + data)


def _receive(connection: socket.socket) -> np.ndarray:
    (length,) = struct.unpack("!Q", _read(connection, 8))
    return np.frombuffer(_read(connection, length), dtype=np.float64)


def _read(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("a replica of this job is gone")
        data += part
    return bytes(data)
