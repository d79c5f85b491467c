"""What jobs wrote, read from their own output files and from nothing else.

The path comes from the job's row, never from the request. Whoever chose it (the submitter) may have laid a trap, so a
file is shown only if, once open, it is a plain file that belongs to the job's user; where the job's user has no account
of his own on this machine, or jobs run as the server does, it must lie in the job's working directory and have been
written since the job was submitted. The last part of a path may not be a symbolic link. All this is looked at before
the file is opened for reading.
"""

import os
import pwd
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from clearway.model.errors import InputError
from clearway.ports.views import JobView
from clearway.server.problems import Refusal
from clearway.wire.api import LogPart
from clearway.wire.patterns import ARRAY_OUTPUT_DEFAULT, OUTPUT_DEFAULT, name_file

Stream = Literal["output", "error"]

CLOCK_SLACK_MS: Final = 60_000
"""How far the clock of a file server may lie behind ours."""

NO_LOG: Final = "expected the job's output file, found none of its own: nothing is written, or the file is elsewhere"
"""Said for whatever is not shown: to say more would tell which files there are."""

NOWHERE: Final = ("none", "/dev/null")

TAIL_BLOCK: Final = 1 << 16
TAIL_BYTES_MAX: Final = 16 << 20
"""Of a log's end, so much is searched for lines."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log is, and by what it is known to be the job's."""

    path: str
    workdir: str
    user: str
    submit_ms: int


def find_log(job: JobView, stream: Stream, replica: int, account: str, collected: str = "") -> LogPlace:
    """Where replica `replica` of a job writes. account: as whom all jobs run; "" = each as its user. collected: the
    folder into which the control plane itself collects what jobs write, both streams in one; "" = it does not.

    Raises Refusal where it cannot have written yet.
    """
    check_replica(job, replica)
    if job.start_ms is None:
        raise Refusal(404, f"job {job.id}: expected a job that has started, found one that is {job.state}")
    if collected:
        return LogPlace(f"{collected}/{job.id}/{replica}.log", collected, "", job.submit_ms)
    written = (job.error or job.output) if stream == "error" else job.output
    default = OUTPUT_DEFAULT if job.array is None else ARRAY_OUTPUT_DEFAULT
    path = name_file(job, written or default, replica)
    if not job.workdir.startswith("/"):
        raise Refusal(404, f"job {job.id}: expected a working directory, found none: it keeps no log")
    if path in NOWHERE:
        raise Refusal(404, f"job {job.id}: expected an output file, found none: its submitter wants none kept")
    return LogPlace(os.path.join(job.workdir, path), job.workdir, account or job.user, job.submit_ms)


def check_replica(job: JobView, replica: int) -> None:
    """Raise Refusal unless the job has such a replica."""
    if not 0 <= replica < max(job.replicas, 1):
        raise Refusal(404, f"job {job.id}: expected a replica from 0 to {job.replicas - 1}, found {replica}")


class LogFile:
    """An open log. Raises Refusal where it is not there or is not the job's own."""

    def __init__(self, place: LogPlace) -> None:
        try:
            # First without reading rights: to open a device or a pipe can already do something.
            found = os.open(place.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if find_objection(found, place):
                    raise Refusal(404, NO_LOG)
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._descriptor = os.open(f"/proc/self/fd/{found}", flags)
            finally:
                os.close(found)
        except (OSError, ValueError) as error:
            raise Refusal(404, NO_LOG) from error

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


def find_objection(descriptor: int, place: LogPlace, uid_of: Callable[[str], int | None] = find_uid) -> str:
    """Why the file that was found is not the job's own, by the rules at the head of this module; "" = it is."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "no plain file"
    uid = uid_of(place.user)
    if uid is not None and status.st_uid == uid:
        return ""
    runs_as_server = uid is None or os.geteuid() != 0
    if status.st_uid != os.geteuid() or not runs_as_server:
        return "another user's"
    if status.st_mtime_ns // 1_000_000 < place.submit_ms - CLOCK_SLACK_MS:
        return "older than the job"
    return "" if _lies_in(descriptor, place.workdir) else "outside of the working directory"


def _lies_in(descriptor: int, folder: str) -> bool:
    """Whether the open file lies in `folder`, links resolved."""
    real = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return real.is_relative_to(os.path.realpath(folder))


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
