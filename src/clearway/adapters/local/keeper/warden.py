"""The keeper's parent: where the keeper dies, its children become the warden's, which writes down how each ended.

It does nothing else, so that there is little by which it could die, and it lives as long as any of them. What it writes
are lines of the record of their run, which the next keeper reads.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from clearway.adapters.local.keeper.processes import become_subreaper, name_process, read_start_ticks
from clearway.adapters.local.keeper.records import Records
from clearway.adapters.local.keeper.spawn import HANDLED

NAME: Final = "clearway-warden"
AGAIN_S: Final = 1.0
"""How often it is tried again to write what could not be written."""
Read = TypeVar("Read")


def fork_keeper(state: Path, *descriptors: int) -> int:
    """Fork; return in the child, which is to be the keeper, the pid of its warden: that is this process, which never
    returns. descriptors: of the keeper alone.
    """
    become_subreaper()
    warden = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        return warden
    for descriptor in descriptors:
        os.close(descriptor)
    for number in HANDLED[1:]:
        signal.signal(number, signal.SIG_IGN)
    name_process(NAME)
    try:
        _watch(keeper, Records(state))
    finally:
        os._exit(0)


def find_family(warden: int) -> tuple[int, ...]:
    """The pids of the keeper that calls and of its warden, while that lives."""
    return (os.getpid(), warden) if os.getppid() == warden else (os.getpid(),)


def _watch(keeper: int, records: Records) -> None:
    """Until there is no child any more."""
    jobs: dict[int, int] | None = None
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return
        assert ended is not None
        pid = ended.si_pid
        if pid != keeper:
            if jobs is None:  # whatever comes to us was the keeper's, which started nothing after its death
                jobs = _persist(records.list_processes)
            if pid in jobs:  # before it is waited for: who sees that it is gone finds the line
                status = ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status
                _note_exit(records, jobs[pid], pid, status)
        os.waitpid(pid, 0)


def _note_exit(records: Records, job: int, pid: int, status: int) -> None:
    """In every record of the job: the process may be of a frozen run that went on since, or of one that is to move.
    Until that is done it stays as it is, so that the kernel says how it ended."""
    for number, generation in _persist(records.list):
        if number == job:
            records.note_exit(job, generation, pid, read_start_ticks(pid), status)
    while records.owes_lines:
        time.sleep(AGAIN_S)
        records.pay()


def _persist(read: Callable[[], Read]) -> Read:
    """The state may be out of reach for a while."""
    while True:
        try:
            return read()
        except OSError:
            time.sleep(AGAIN_S)
