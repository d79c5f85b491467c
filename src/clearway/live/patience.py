"""Who shows what can be shown without waits for the control plane's memory only so long."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

PATIENCE_S: Final = 0.02
"""A fifth of what a list may take in all; decisions take a few milliseconds, but for the first ones behind a start."""


@contextmanager
def held_soon(lock: "RLock", patience_s: float = PATIENCE_S) -> Iterator[bool]:
    """Hold the lock if it can be had soon; yields whether it is held."""
    is_held = lock.acquire(timeout=patience_s)
    try:
        yield is_held
    finally:
        if is_held:
            lock.release()
