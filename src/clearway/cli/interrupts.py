"""Ctrl-C is heard also while the compiler runs: it hears nothing before a function is done, which takes seconds."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PATIENCE_S: Final = 1.0
"""For Python to hear of it, which ends the command in the usual way."""
SIGNALS_READ: Final = 64


@contextmanager
def hear_interrupts(end: Callable[[], None]) -> Iterator[None]:
    """Within, `end` is called by another thread where the main one has not left a moment after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # Python tells it of signals, and no other
        yield
        return
    read, write = socket.socketpair()
    write.setblocking(False)
    has_left = threading.Event()
    watcher = threading.Thread(target=_watch, args=(read, has_left, end), daemon=True)
    before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        has_left.set()
        signal.set_wakeup_fd(before)
        write.close()  # by which the watcher ends
        watcher.join()
        read.close()


def _watch(read: socket.socket, has_left: threading.Event, end: Callable[[], None]) -> None:
    while numbers := read.recv(SIGNALS_READ):
        if signal.SIGINT in numbers and not has_left.wait(PATIENCE_S):
            end()
