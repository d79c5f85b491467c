"""What the keeper says to people: lines of its log, which lies on a disk that may be full."""

import contextlib
import sys


def complain(text: str) -> None:
    """Nothing depends on it: where it cannot be written, it is not said."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
