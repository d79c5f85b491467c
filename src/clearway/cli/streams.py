"""Standard output that cannot take what is written: no traceback, and nothing said twice. Light to import."""

import errno
import io
import os
import stat
import sys
from contextlib import suppress
from typing import Final

_OF_WRITING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def ready_output() -> None:
    """Have what the encoding of standard output lacks, such as in a POSIX locale, written as `\\u4e2d`. A closed output
    refuses what is written to it; errors that cannot be shown are not."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")  # not for writing: "Bad file descriptor"
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_output_lost(error: OSError) -> bool:
    """Whether `error` is standard output's, which refuses what was written to it."""
    if error.filename is None and error.errno in _OF_WRITING and _can_be_full():
        return True  # where nothing is kept back, nothing is left to refuse
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _can_be_full() -> bool:
    """Whether standard output is a file, or a device such as /dev/full, and neither a pipe nor a terminal."""
    with suppress(OSError, ValueError):
        mode = os.fstat(sys.stdout.fileno()).st_mode
        return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not sys.stdout.isatty())
    return False


def forget_output() -> None:
    """Have the rest go nowhere: the interpreter would try to write it again at its end, and complain."""
    with suppress(OSError, ValueError):  # where it is no file, or closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def describe(error: OSError) -> str:
    """What an error of the system was about, in a line. Forgets the output where that was lost."""
    if is_output_lost(error):
        forget_output()
        return f"expected to write to standard output, found: {error.strerror}"
    return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
