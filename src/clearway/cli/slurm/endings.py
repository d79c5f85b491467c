"""Signals that end a command which must leave nothing behind."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the usual way to end a program, and the end of its terminal."""


class EndedBySignal(BaseException):
    """The process was told to end by another signal than Ctrl-C's. Like KeyboardInterrupt, no Exception."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number


@contextmanager
def hear_endings() -> Iterator[Callable[[], None]]:
    """Within, the first of ENDINGS raises KeyboardInterrupt or EndedBySignal, and none after it is heard, so that what
    is tidied up then is done whole. Yields a function after which none is heard. What is ignored, as by nohup, stays
    so."""
    if threading.current_thread() is not threading.main_thread():  # Python lets no other choose
        yield lambda: None
        return
    before = {number: signal.getsignal(number) for number in ENDINGS}
    heard = [number for number in ENDINGS if before[number] not in (signal.SIG_IGN, None)]

    def close_ears() -> None:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)

    def end(number: int, _frame: object) -> None:
        close_ears()
        raise KeyboardInterrupt if number == signal.SIGINT else EndedBySignal(number)

    for number in heard:
        signal.signal(number, end)
    try:
        yield close_ears
    finally:
        for number in heard:
            signal.signal(number, before[number])
