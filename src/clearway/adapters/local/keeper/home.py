"""The state directory of a keeper: who holds the lock in it is the keeper there, until it is removed or another one."""

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Final

from clearway.adapters.local.keeper import processes

SOCKET: Final = "keeper.sock"
LOCK: Final = "keeper.lock"
LOOK_MS: Final = 1_000
LOOKS: Final = 3
"""A keeper whose state was removed knows it some seconds later."""


class Home:
    """state: the directory. lock: the open file of its lock, which is held."""

    def __init__(self, state: Path, lock: int) -> None:
        self.state = state
        self.lock = lock
        self.is_lost = False
        self._folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._looked_tick = 0
        self._misses = 0

    @property
    def is_here(self) -> bool:
        """Whether the directory is there, and is the one that it was. One that cannot be looked at now is not gone."""
        try:
            now = os.stat(self.state)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return os.path.samestat(os.fstat(self._folder), now)

    def is_newly_lost(self, tick: int) -> bool:
        """Whether it is found for the first time not to be here, by LOOKS in a row, each LOOK_MS after the last: all
        jobs depend on it."""
        if self.is_lost or tick - self._looked_tick < LOOK_MS:
            return False
        self._looked_tick = tick
        self._misses = 0 if self.is_here else self._misses + 1
        self.is_lost = self._misses >= LOOKS
        return self.is_lost

    def listen(self) -> socket.socket:
        """A socket for the state's owner alone. By way of the directory's descriptor: a socket's path must be short."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.umask(0o177)
        (self.state / SOCKET).unlink(missing_ok=True)
        listener.bind(f"/proc/self/fd/{self._folder}/{SOCKET}")
        os.umask(0o077)
        listener.listen(8)
        listener.setblocking(False)
        return listener

    def leave(self) -> None:
        """Take the socket away, but not that of the next keeper, where the state was removed and made anew."""
        if processes.is_still(self.lock, self.state / LOCK):
            with contextlib.suppress(FileNotFoundError):
                (self.state / SOCKET).unlink()


def take_home(state: Path) -> Home | None:
    """The directory's lock; None = another keeper has it."""
    lock = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return None
    return Home(state, lock)
