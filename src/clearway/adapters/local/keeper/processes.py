"""What the kernel says about processes, by /proc and prctl."""

import ctypes
import fcntl
import os
import signal
import struct
from pathlib import Path
from typing import NamedTuple

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PIDFD_GET_INFO = 0xC040FF0B
"""Fills in struct pidfd_info of include/uapi/linux/pidfd.h, 64 bytes; since Linux 6.13."""
_PIDFD_INFO_EXIT = 1 << 3
"""Asks for the exit status, and says that it is there: once the process was waited for; since Linux 6.15."""
_PIDFD_INFO = struct.Struct("=Q52xi")

MARK = "CLEARWAY_RUN"
"""Variable that names the run in the environment of each of its processes."""


def become_subreaper() -> None:
    """Children whose parent died become ours, so that none is out of sight and the end of each is seen."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def name_process(name: str) -> None:
    """What `ps -o comm` shows of this process: at most 15 characters."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def read_boot_id() -> str:
    """Differs after each restart of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_still(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that has this path now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent and start time in ticks since boot; None = no such process."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1]), int(fields[19])


class Identity(NamedTuple):
    """Whose a process is. pid: of the whole, where a thread was asked for. users: real, effective, saved, of files."""

    pid: int
    parent: int
    users: tuple[int, ...]
    has_threads: bool = False


def read_identity(pid: int) -> Identity | None:
    """None = no such process, or one that has ended."""
    lines = _read(f"/proc/{pid}/status").splitlines()
    fields = dict(line.split(b":", 1) for line in lines if b":" in line)
    if not fields or fields[b"State"].split()[0] in b"ZX":
        return None
    users = tuple(map(int, fields[b"Uid"].split()))
    return Identity(int(fields[b"Tgid"]), int(fields[b"PPid"]), users, int(fields[b"Threads"]) > 1)


def is_same_alive(pid: int, start_ticks: int) -> bool:
    """Whether the process that had this number and start time still runs."""
    stat = read_stat(pid)
    return stat is not None and stat[0] not in "ZX" and stat[2] == start_ticks


def read_start_ticks(pid: int) -> int:
    """Start time of a process in ticks since boot; 0 = it is gone."""
    stat = read_stat(pid)
    return 0 if stat is None else stat[2]


def read_exit_status(descriptor: int, pid: int) -> int | None:
    """How a process ended that is not our child, as of waitpid; None = the kernel does not say. descriptor: its pidfd,
    opened while it ran. Until its parent has waited for it, /proc says it; after that, newer kernels by the pidfd."""
    status = _ask_pidfd(descriptor)
    if status is None:
        status = _ask_zombie(pid)
    return _ask_pidfd(descriptor) if status is None else status


def _ask_pidfd(descriptor: int) -> int | None:
    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:  # an older kernel
        return None
    mask, status = _PIDFD_INFO.unpack(info)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def read_zombie(pid: int, start_ticks: int) -> int | None:
    """How a process ended for which its parent has not waited yet; None = it is none, or another of that number."""
    stat = read_stat(pid)
    return _ask_zombie(pid) if stat is not None and stat[2] == start_ticks else None


def _ask_zombie(pid: int) -> int | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[49]) if fields[:1] == [b"Z"] else None


def read_command(pid: int) -> str:
    """Short name of a process; "" = it is gone, or out of our sight."""
    return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def read_name(pid: int) -> str:
    """A process with its state, for messages."""
    stat = read_stat(pid)
    return f"pid {pid} ({read_command(pid) or 'gone'}, state {stat[0] if stat else '?'})"


def is_of_group(pid: int, name: str) -> bool:
    """Whether a process is in a control group below that name, or is marked as one of a run."""
    paths = (line.rpartition(b":")[2].split(b"/") for line in _read(f"/proc/{pid}/cgroup").splitlines())
    if any(name.encode() in path for path in paths):
        return True
    return any(entry.startswith(f"{MARK}=".encode()) for entry in _read(f"/proc/{pid}/environ").split(b"\0"))


def handles_signal(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal, so that sending it does not simply kill it."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def find_marked(mark: str) -> list[int]:
    """Processes alive with `CLEARWAY_RUN=mark` in their environment, and all their descendants."""
    parents: dict[int, list[int]] = {}
    found: list[int] = []
    needle = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        stat = read_stat(int(name))
        if stat is None or stat[0] in "ZX":
            continue
        parents.setdefault(stat[1], []).append(int(name))
        if needle in _read(f"/proc/{name}/environ").split(b"\0"):
            found.append(int(name))
    return collect_descendants(found, parents)


def collect_descendants(roots: list[int], children: dict[int, list[int]]) -> list[int]:
    """`roots` and all below them, without repeats. children: parent → pids."""
    seen: dict[int, None] = {}
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in seen:
            seen[pid] = None
            todo.extend(children.get(pid, []))
    return list(seen)


def signal_number(name: str) -> int:
    """Number of `USR1`, `SIGUSR1` or `10`. Raises ValueError."""
    text = name.strip().upper()
    if text.isdigit() and 0 < int(text) < signal.NSIG:
        return int(text)
    found = getattr(signal.Signals, text if text.startswith("SIG") else f"SIG{text}", None)
    if found is None:
        raise ValueError(f"expected the name or number of a signal, such as USR1; found {name!r}")
    return int(found)
