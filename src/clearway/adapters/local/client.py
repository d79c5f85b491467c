"""The wire to the keeper: starts it where none runs, sends without waiting, and reads in a thread of its own."""

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Final

import clearway
from clearway.adapters.local.config import LocalConfig
from clearway.adapters.local.keeper.home import SOCKET
from clearway.adapters.local.keeper.messages import Message, render_message
from clearway.model.errors import ClearwayError

START_S: Final = 30.0
"""Longest wait for a new keeper to listen, and for its first answer; 0.1 s is usual, more means a fault."""
ANSWER_S: Final = 15.0
LISTEN_NS: Final = 5_000_000_000
"""Longest wait for an old keeper to be gone; each try takes 0.1 s."""
LOG: Final = "keeper.log"
LOST: Final = "lost"
"""`op` of the message that stands for the end of the connection."""


INBOX_MAX: Final = 50_000
"""Messages that may wait to be taken. Beyond that nothing is read: the keeper keeps what it has to say, up to a bound
of its own, and then hangs up; who connects again is told everything."""
OUT_BYTES_MAX: Final = 64 << 20
"""A keeper that takes nothing while so much piles up is left; the next connection says again what it must know."""
FULL_S: Final = 0.05
"""How long reading pauses where the inbox is full."""


class KeeperError(ClearwayError):
    """The keeper cannot be started or does not answer."""


class KeeperSilentError(KeeperError):
    """The keeper lives and does not answer."""


def start_keeper(config: LocalConfig) -> None:
    """Have a keeper listen in the state directory; one that does already stays. Raises KeeperError."""
    make_state(config)
    source = str(Path(clearway.__file__).parents[1])
    program = (
        f"import sys; sys.path.insert(0, {source!r}); from clearway.adapters.local.keeper.main import main; main()"
    )
    name = group_name(config.state)
    settings = {name: value for name, value in asdict(config.settings).items() if name != "files_max"}
    command = [sys.executable, "-I", "-S", "-c", program, str(config.state.resolve()), name, json.dumps(settings)]
    log = config.state / LOG
    with open(log, "ab") as output:
        os.fchmod(output.fileno(), 0o600)
        done = subprocess.run(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            timeout=START_S,
            check=False,
        )
    if done.returncode != 0:
        raise KeeperError(f"expected the keeper of {config.state} to start; it ended with {done.returncode}: see {log}")


def group_name(state: Path) -> str:
    """Of the control groups of all jobs of this state directory."""
    return f"clearway-{sha256(str(state.resolve()).encode()).hexdigest()[:8]}"


def make_state(config: LocalConfig) -> None:
    """The directories, with the modes that keep others out, and let jobs of others reach theirs."""
    is_shared = os.geteuid() == 0
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    config.state.chmod(0o711 if is_shared else 0o700)
    config.jobs_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    config.jobs_folder.chmod(0o711 if is_shared else 0o700)


class KeeperClient:
    """One connection. wake: called from the reading thread when `take` has something."""

    def __init__(self, config: LocalConfig, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._inbox: deque[Message] = deque()
        self._arrived = threading.Condition()
        self._out = bytearray()
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_given_up = False
        self._socket = _connect(config)
        self._socket.setblocking(False)
        self._poke_reader, self._poke_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="keeper-client", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Hand a message over; what the socket does not take at once follows by itself. Never waits or raises."""
        line = render_message(message)
        with self._lock:
            if self._is_closed:
                return
            was_empty = not self._out
            self._out.extend(line)
            if was_empty:
                self._flush()
            self._is_given_up = self._is_given_up or len(self._out) > OUT_BYTES_MAX
            if self._out:
                _poke(self._poke_writer)

    def take(self) -> list[Message]:
        """What has arrived since the last call, in order."""
        taken: list[Message] = []
        while self._inbox:
            taken.append(self._inbox.popleft())
        return taken

    def wait_for(self, operation: str) -> Message:
        """Wait for the first message, which must be of that kind. Raises KeeperError."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._inbox, ANSWER_S):
                raise KeeperSilentError(f"expected an answer of the keeper within {ANSWER_S:g} s; none came")
            message = self._inbox.popleft()
        if message["op"] != operation:
            raise KeeperError(f"expected the keeper to answer {operation!r}, found {message['op']!r}: see keeper.log")
        return message

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        _poke(self._poke_writer)
        self._thread.join()
        self._socket.close()
        os.close(self._poke_reader)
        os.close(self._poke_writer)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            if not self._is_closed:
                self._deliver([{"op": LOST}])

    def _serve(self) -> None:
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._poke_reader, selectors.EVENT_READ)
            while not (self._is_closed or self._is_given_up):
                is_full = len(self._inbox) >= INBOX_MAX
                reads = 0 if is_full else selectors.EVENT_READ
                events = reads | (selectors.EVENT_WRITE if self._out else 0)
                if events:
                    selector.register(self._socket, events)
                ready = {key.fileobj: mask for key, mask in selector.select(FULL_S if is_full else None)}
                if events:
                    selector.unregister(self._socket)
                if self._poke_reader in ready:
                    os.read(self._poke_reader, 4096)
                with self._lock:
                    self._flush()
                if ready.get(self._socket, 0) & selectors.EVENT_READ and not self._receive(buffer):
                    return

    def _receive(self, buffer: bytearray) -> bool:
        """False = the connection is over."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            return False
        buffer.extend(data)
        if b"\n" in data:
            *lines, rest = bytes(buffer).split(b"\n")
            buffer[:] = rest
            self._deliver([json.loads(line) for line in lines])
        return True

    def _deliver(self, messages: list[Message]) -> None:
        with self._arrived:
            self._inbox.extend(messages)
            self._arrived.notify_all()
        self._wake()

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()  # the reader sees the end of the connection
                return
            del self._out[:sent]


def _connect(config: LocalConfig) -> socket.socket:
    """To the keeper that listens, else to a new one. It is tried again for a while: one that ends holds its lock for a
    moment after it listens no more, and so do children of one that was killed, until they are executed."""
    until_ns = time.monotonic_ns() + LISTEN_NS
    while True:
        try:
            return _open(config.state)
        except (TimeoutError, BlockingIOError) as error:
            raise KeeperError(f"expected the keeper of {config.state} to take a connection; it does not") from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if time.monotonic_ns() > until_ns:
                raise KeeperError(f"expected the keeper of {config.state} to listen: {error}") from error
        start_keeper(config)


def _open(state: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_S)
    try:
        folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        finally:
            os.close(folder)
    except OSError:
        connection.close()
        raise
    return connection


def _poke(writer: int) -> None:
    try:
        os.write(writer, b"\0")
    except BlockingIOError:
        return
