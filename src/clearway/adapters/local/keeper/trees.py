"""Takes away folders below one that belongs to a job's user, who may lay traps there while it is done.

What he could not take away himself stays: it is done with his rights. Links are not followed, and every step is taken
from an open folder, so that none of them is led elsewhere by what he exchanges. Both are needed: he can move folders of
others, with what they keep in them, to where we look.

Of the keeper's identity its effective one alone changes: nobody can signal or trace it meanwhile, and root comes back.
"""

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from typing import Final

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ENTRIES_MAX: Final = 10_000
"""So much is taken away at a time: ten times what the tools of a gang's containers leave, and some tenths of a second
of the keeper's time, which all other jobs wait for."""
DEPTH_MAX: Final = 8
"""Twice as deep as what a container's tool leaves."""


@contextlib.contextmanager
def rights_of_owner(folder: int) -> Iterator[None]:
    """Files are touched with the rights of who owns the open folder, where we are root. Raises OSError."""
    found = os.fstat(folder)
    if os.geteuid() != 0 or found.st_uid == 0:
        yield
        return
    gid, groups = os.getegid(), os.getgroups()
    try:
        os.setgroups(())
        os.setegid(found.st_gid)
        os.seteuid(found.st_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def remove_tree(above: int, name: str, most: int, depth: int = DEPTH_MAX) -> int:
    """Take `name` away from the open folder `above`, with all below it, as far as that may be; how many more entries
    may be taken away."""
    if most <= 0 or depth <= 0:
        return max(most - 1, 0)
    try:
        os.unlink(name, dir_fd=above)
    except IsADirectoryError:
        with contextlib.suppress(OSError):
            most = _empty(above, name, most, depth)
            os.rmdir(name, dir_fd=above)
    except OSError:  # it is gone, or not the user's
        pass
    return max(most - 1, 0)


def _empty(above: int, name: str, most: int, depth: int) -> int:
    folder = os.open(name, FOLDER, dir_fd=above)
    try:
        if os.fstat(folder).st_dev != os.fstat(above).st_dev:  # something is mounted there
            return most
        for each in list_some(folder, most):
            most = remove_tree(folder, each, most, depth - 1)
    finally:
        os.close(folder)
    return most


def list_some(folder: int, most: int) -> list[str]:
    """Names in an open folder, at most so many. Raises OSError."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, max(most, 0))]
