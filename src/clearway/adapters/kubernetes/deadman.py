"""A deadline that a thread cannot outlive: should it come to run after that, the kernel ends its process first.

A check of the clock right before a write is not enough: the process may be stopped between the two, and write when it
wakes up. A timer of the kernel that has expired meanwhile has a signal wait for that very thread, which is delivered
before the thread runs any instruction of its own. So what comes after the check is done in time, or never.
"""

import ctypes
import logging
import os
import signal
import threading
import time
from typing import Final

log = logging.getLogger(__name__)

SIGEV_THREAD_ID: Final = 4
TIMER_ABSTIME: Final = 1
SIGEV_BYTES: Final = 64
S_NS: Final = 1_000_000_000


class _Event(ctypes.Structure):
    """struct sigevent, as Linux has it."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("_rest", ctypes.c_char * (SIGEV_BYTES - ctypes.sizeof(ctypes.c_void_p) - 3 * ctypes.sizeof(ctypes.c_int))),
    )


class _Spec(ctypes.Structure):
    """struct itimerspec: the second time is when it expires first."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("again_s", "again_ns", "at_s", "at_ns"))


class Deadman:
    """For the thread that makes it. Raises OSError where the kernel has no such timers.

    SIGALRM must do what it does by default, which is to end the process.
    """

    def __init__(self) -> None:
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            raise OSError("expected SIGALRM as it is by default, found that something handles it")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Event(signo=signal.SIGALRM, notify=SIGEV_THREAD_ID, thread=threading.get_native_id())
        self._call("timer_create", time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer))

    def set(self, until_ns: int) -> None:
        """From now on this is the deadline, of CLOCK_BOOTTIME; from any thread. 0 = none."""
        spec = _Spec(0, 0, *divmod(max(until_ns, 0), S_NS))
        self._call("timer_settime", self._timer, TIMER_ABSTIME, ctypes.byref(spec), None)

    def close(self) -> None:
        """There is none any more."""
        self._call("timer_delete", self._timer)

    def _call(self, name: str, *args: object) -> None:
        try:
            function = getattr(self._libc, name)
        except AttributeError as error:
            raise OSError(f"expected {name} in the C library, found none") from error
        if function(*args) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
