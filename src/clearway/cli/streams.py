"""Standard output that cannot take what is written: no traceback, and nothing said twice. Light to import."""

import io
import os
import sys
from contextlib import suppress


def ready_output() -> None:
    """Have what the encoding of standard output lacks, such as in a POSIX locale, written as `\\u4e2d`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_output_lost() -> bool:
    """Whether standard output refuses what was written to it."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def forget_output() -> None:
    """Have the rest go nowhere: the interpreter would try to write it again at its end, and complain."""
    with suppress(OSError, ValueError):  # where it is no file, or closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def describe(error: OSError) -> str:
    """What an error of the system was about, in a line. Forgets the output where it was that."""
    if error.filename is None and is_output_lost():
        forget_output()
        return f"expected to write to standard output, found: {error.strerror}"
    return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
