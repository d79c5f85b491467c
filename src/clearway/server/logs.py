"""What jobs wrote, read from their own output files and from nothing else.

The path comes from the job's row, never from the request. Whoever chose it (the submitter) may have laid a trap, so a
file is shown only if, once open, it is a plain file that belongs to the job's user; where the job's user has no account
of his own on this machine, or jobs run as the server does, it must lie in the job's working directory and have been
written since the job was submitted. The last part of a path may not be a symbolic link, and opening it does not wait
(named pipes).
"""

import os
import pwd
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from clearway.model.errors import InputError
from clearway.ports.views import JobView
from clearway.server.problems import Refusal
from clearway.wire.api import LogPart

Stream = Literal["output", "error"]

CLOCK_SLACK_MS: Final = 60_000
"""How far the clock of a file server may lie behind ours."""

TAIL_BLOCK: Final = 1 << 16
TAIL_BYTES_MAX: Final = 16 << 20
"""Of a log's end, so much is searched for lines."""

_PATTERN: Final = re.compile(r"%(?:(\d{0,9})([jAaxuNntsJb])|%)")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log is, and by what it is known to be the job's."""

    path: str
    workdir: str
    user: str
    submit_ms: int


def find_log(job: JobView, stream: Stream, replica: int) -> LogPlace:
    """Where replica `replica` of a job writes. Raises Refusal where it cannot have written yet."""
    check_replica(job, replica)
    if job.start_ms is None:
        raise Refusal(404, f"job {job.id}: expected a job that has started, found one that is {job.state}")
    written = (job.error or job.output) if stream == "error" else job.output
    default = "slurm-%j.out" if job.array is None else "slurm-%A_%a.out"
    path = expand_pattern(written or default, job, replica)
    if not job.workdir.startswith("/"):
        raise Refusal(404, f"job {job.id}: expected a working directory, found none: it keeps no log")
    return LogPlace(os.path.join(job.workdir, path), job.workdir, job.user, job.submit_ms)


def check_replica(job: JobView, replica: int) -> None:
    """Raise Refusal unless the job has such a replica."""
    if not 0 <= replica < max(job.replicas, 1):
        raise Refusal(404, f"job {job.id}: expected a replica from 0 to {job.replicas - 1}, found {replica}")


def expand_pattern(pattern: str, job: JobView, replica: int) -> str:
    """A file pattern as sbatch's: `%j %A %a %x %u %N %n %t %s %J %b %%`, numbers padded as in `%4t`.

    A backslash anywhere turns it off, as in Slurm.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    node = job.nodes[min(replica, len(job.nodes) - 1)] if job.nodes else ""
    values: dict[str, str | int] = {
        "j": job.id,
        "J": job.id,
        "A": job.array if job.array is not None else job.id,
        "a": job.array_index if job.array_index is not None else 0,
        "b": (job.array_index or 0) % 10,
        "x": _flatten(job.name),
        "u": _flatten(job.user),
        "N": _flatten(node.partition(".")[0]),
        "n": replica,
        "t": replica,
        "s": "batch",
    }

    def expand(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter is None:
            return "%"
        value = values[letter]
        return f"{value:0{min(int(width or 0), 10)}d}" if isinstance(value, int) else value

    return _PATTERN.sub(expand, pattern)


def _flatten(name: str) -> str:
    """A name as part of a file's: it names no folder."""
    return name.replace("/", "_").replace("\0", "_")


class LogFile:
    """An open log. Raises Refusal where it is not there or is not the job's own."""

    def __init__(self, place: LogPlace) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self._descriptor = os.open(place.path, flags)
        except (OSError, ValueError) as error:
            raise _missing(error) from error
        try:
            check_owned(self._descriptor, place)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes that the file has now."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`."""
        return os.pread(self._descriptor, limit, offset)

    def tail_offset(self, lines: int) -> int:
        """Where the last `lines` lines begin, as far as TAIL_BYTES_MAX reaches back."""
        end = size = self.size
        if lines == 0:
            return size
        wanted = lines + (1 if size and self.read(size - 1, 1) == b"\n" else 0)
        while end > max(size - TAIL_BYTES_MAX, 0):
            begin = max(end - TAIL_BLOCK, 0)
            block = self.read(begin, end - begin)
            found = block.count(b"\n")
            if found >= wanted:
                place = len(block)
                for _ in range(wanted):
                    place = block.rindex(b"\n", 0, place)
                return begin + place + 1
            wanted -= found
            end = begin
        return end

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def find_uid(user: str) -> int | None:
    """The account of this name on this machine; None = there is none."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None


def check_owned(descriptor: int, place: LogPlace, uid_of: Callable[[str], int | None] = find_uid) -> None:
    """Raise Refusal unless the open file is the job's own, by the rules at the head of this module."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Refusal(404, "expected a plain file for the job's output, found another kind; it is not shown")
    uid = uid_of(place.user)
    if uid is not None and status.st_uid == uid:
        return
    runs_as_server = uid is None or os.geteuid() != 0
    if status.st_uid != os.geteuid() or not runs_as_server:
        raise Refusal(404, "expected an output file of the job's user, found another's; it is not shown")
    is_old = status.st_mtime_ns // 1_000_000 < place.submit_ms - CLOCK_SLACK_MS
    if is_old or not _lies_in(descriptor, place.workdir):
        raise Refusal(404, "expected an output file that the job wrote in its folder, found another; it is not shown")


def _lies_in(descriptor: int, folder: str) -> bool:
    """Whether the open file lies in `folder`, links resolved."""
    real = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return real.is_relative_to(os.path.realpath(folder))


def _missing(error: Exception) -> Refusal:
    if isinstance(error, FileNotFoundError):
        return Refusal(404, "expected the job's output file, found none: it has written nothing, or the file was moved")
    said = error.strerror if isinstance(error, OSError) else "not a path"
    return Refusal(404, f"expected the job's output file, found none that can be opened: {said}")


def read_part(place: LogPlace, *, offset: int, tail: int | None, limit: int, is_final: bool) -> LogPart:
    """Part of a log. Raises Refusal; InputError where `offset` lies behind its end."""
    log = LogFile(place)
    try:
        size = log.size
        begin = log.tail_offset(tail) if tail is not None else offset
        if begin > size:
            raise InputError(f"expected an offset of at most {size}, found {begin}; the log was begun anew")
        return LogPart(data=log.read(begin, limit), offset=begin, size=size, is_final=is_final)
    finally:
        log.close()
