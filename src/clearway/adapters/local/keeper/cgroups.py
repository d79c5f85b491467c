"""A group of processes per run: cgroup v2, else the v1 freezer, else marked processes found by a scan of /proc.

Where v2 is mounted without its controllers (hybrid machines), processes are tracked by v2 and limited by v1. Nothing
here decides: it makes, fills, signals, freezes and removes groups, and says what it could not limit.
"""

import errno
import os
import shlex
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from clearway.adapters.local.keeper.device_limits import DeviceFile, deny_by_controller, deny_by_program
from clearway.adapters.local.keeper.log import complain
from clearway.adapters.local.keeper.processes import find_marked, send_signal

CPU_PERIOD_US: Final = 100_000
"""The kernel's default period of CPU bandwidth."""
V1_LIMITS: Final = ("memory", "cpu", "pids")
DEVICES: Final = "devices"
"""The controller of version 1; on version 2, a program instead of one."""


class Limits(Protocol):
    """What a run may use; 0 = no limit."""

    @property
    def cpu_milli(self) -> int:
        """CPUs in thousandths."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        ...

    @property
    def processes_max(self) -> int:
        """Processes and threads."""
        ...

    @property
    def files_denied(self) -> Sequence[DeviceFile]:
        """Device files that it may not open."""
        ...


def write_text(path: str | Path, text: str) -> bool:
    """Write to a control file; False = the kernel refused."""
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(text.encode())
    except OSError:
        return False
    return True


def read_text(path: str | Path) -> str:
    """A control file's text; "" = it is not there."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode()
    except OSError:
        return ""


def read_key(path: str | Path, key: str) -> int:
    """The number after `key` in a file of `key number` lines; 0 = it is not there."""
    for line in read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def find_mounts(mounts: str) -> tuple[str, dict[str, str]]:
    """Where cgroups are mounted, from the text of /proc/self/mounts: path of v2 ("" = none), v1 controller → path."""
    v2, v1 = "", {}
    for line in mounts.splitlines():
        _, path, kind, options = line.split()[:4]
        if kind == "cgroup2" and not v2:
            v2 = path
        elif kind == "cgroup":
            v1.update({option: path for option in options.split(",") if option in (*V1_LIMITS, DEVICES, "freezer")})
    return v2, v1


class Group:
    """The processes of one run. tracker: the directory that holds them, in the hierarchy mounted at `mount`; limiters:
    those that limit them, by controller; others: where a container's tool may have made some."""

    def __init__(
        self,
        mark: str,
        tracker: str,
        limiters: dict[str, str],
        kind: str,
        mount: str = "",
        others: Sequence[str] = (),
    ) -> None:
        self.mark = mark
        self.kind = kind
        self.tracker = tracker
        self.limiters = limiters
        self._mount = mount
        self._others = others

    @property
    def path(self) -> str:
        """Of the group that tracks them, from the root of its hierarchy; "" = there is none."""
        return self.tracker.removeprefix(self._mount.rstrip("/"))

    @property
    def line_below(self) -> str:
        """What the line of /proc/self/cgroup of a process in a group below it looks like, as a pattern of the shell."""
        return f"{'0::' if self.kind == 'v2' else '*freezer*:'}{shlex.quote(self.path)}/*"

    @property
    def entry_files(self) -> tuple[str, ...]:
        """Files to which a process of one thread writes `0` to enter. Those of v1 for threads: a process that enters as
        such makes the kernel wait until every processor has been elsewhere, some 10 ms."""
        paths = dict.fromkeys((self.tracker, *self.limiters.values()) if self.tracker else ())
        is_v2 = self.kind == "v2"
        return tuple(f"{path}/{'cgroup.procs' if is_v2 and path == self.tracker else 'tasks'}" for path in paths)

    def take(self, pid: int, before: "Group", *, has_threads: bool) -> None:
        """Move a process from the group `before`, also out of what limits that group and not this one."""
        left = [path for name, path in before.limiters.items() if name not in self.limiters and path != before.tracker]
        for path in (*(f"{os.path.dirname(path)}/tasks" for path in left), *self.entry_files):
            write_text(f"{os.path.dirname(path)}/cgroup.procs" if has_threads else path, str(pid))

    @property
    def birthplace(self) -> str:
        """Directory of the group in which a process can be born; "" = it must enter by the entry files."""
        return self.tracker if self.kind == "v2" else ""

    def pids(self) -> list[int]:
        """Processes alive in it, in those below it too."""
        if not self.tracker:
            return find_marked(self.mark)
        return [int(pid) for path in _each_group(self.tracker) for pid in read_text(f"{path}/cgroup.procs").split()]

    def own_pids(self) -> list[int]:
        """Processes alive in it, without those below it. Empty where there is no control group."""
        return [int(pid) for pid in read_text(f"{self.tracker}/cgroup.procs").split()] if self.tracker else []

    def is_empty(self) -> bool:
        """Whether no process of the run is left."""
        if self.kind == "v2":
            return read_key(f"{self.tracker}/cgroup.events", "populated") == 0
        return not self.pids()

    def send(self, number: int, pids: Iterable[int] | None = None) -> None:
        """Signal every process, or those of `pids`."""
        for pid in self.pids() if pids is None else pids:
            send_signal(pid, number)

    def kill(self) -> None:
        """SIGKILL to all, frozen or not."""
        if self.kind == "v2" and write_text(f"{self.tracker}/cgroup.kill", "1"):
            return
        self.send(signal.SIGKILL)
        self.thaw()

    def freeze(self) -> None:
        """Begin to stop all; `is_frozen` says when it is done."""
        if self.kind == "v2":
            write_text(f"{self.tracker}/cgroup.freeze", "1")
        elif self.kind == "v1":
            write_text(f"{self.tracker}/freezer.state", "FROZEN")
        else:
            self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all go on."""
        if self.kind == "v2":
            write_text(f"{self.tracker}/cgroup.freeze", "0")
        elif self.kind == "v1":
            write_text(f"{self.tracker}/freezer.state", "THAWED")
        else:
            self.send(signal.SIGCONT)

    def is_frozen(self) -> bool:
        """Whether every process has stopped."""
        if self.kind == "v2":
            return read_key(f"{self.tracker}/cgroup.events", "frozen") == 1
        if self.kind == "v1":
            return read_text(f"{self.tracker}/freezer.state").strip() == "FROZEN"
        return True

    def count_oom_kills(self) -> int:
        """Processes that the kernel ended because the run was out of its memory."""
        path = self.limiters.get("memory")
        if path is None:
            return 0
        name = "memory.events" if path == self.tracker else "memory.oom_control"
        return read_key(f"{path}/{name}", "oom_kill")

    def remove(self) -> bool:
        """Take the empty group away; False = something is still in it."""
        is_gone = True
        for path in dict.fromkeys((*self.limiters.values(), self.tracker) if self.tracker else ()):
            is_gone = _remove_tree(path) and is_gone
        for path in self._others:  # nothing of ours depends on them
            _remove_tree(path)
        return is_gone


def _each_group(path: str) -> Iterator[str]:
    """The group, and those below it that a container's tool made."""
    yield path
    try:
        below = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for one in below:
        yield from _each_group(one)


def _make_folder(path: str) -> None:
    """Open for all to look at, as groups are elsewhere: what runs containers in the name of a job's user does."""
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o755)  # noqa: S103 - root alone may write there all the same


def _remove_tree(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        below = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        if not below or not all(map(_remove_tree, below)):
            return False
        return _remove_tree(path)
    return True


class Groups:
    """Makes groups below one directory per keeper. notes: what cannot be done on this machine, for people.
    device_obstacle: why nothing can be kept from opening device files, "" = it can."""

    def __init__(self, name: str, *, mounts: str | None = None, is_forbidden: bool = False) -> None:
        self.notes: list[str] = []
        self.device_obstacle = "no cgroup can be made here"
        self.kind = "marks"
        self._name = name
        self._tracker = self._mount = ""
        self._limiters: dict[str, str] = {}
        self._others: list[str] = []
        if not is_forbidden:
            mounts = read_text("/proc/self/mounts") if mounts is None else mounts
            self._find(name, mounts)
            # Where a container's tool that runs as root makes groups below ours, though we use none there.
            v1 = [line.split()[1] for line in mounts.splitlines() if line.split()[2] == "cgroup"]
            self._others = [f"{path}/{name}" for path in v1]
        self._describe()

    def _find(self, name: str, mounts: str) -> None:
        v2, v1 = find_mounts(mounts)
        controllers: set[str] = set()
        base = _make_base(v2, name, "v2") if v2 else ""
        if base and os.path.exists(f"{base}/cgroup.events") and os.path.exists(f"{base}/cgroup.freeze"):
            self.kind, self._tracker, self._mount = "v2", base, v2
            wanted = [each for each in V1_LIMITS if each in read_text(f"{base}/cgroup.controllers").split()]
            for controller in wanted:
                if write_text(f"{base}/cgroup.subtree_control", f"+{controller}"):
                    controllers.add(controller)
        elif "freezer" in v1 and (base := _make_base(v1["freezer"], name, "freezer")):
            self.kind, self._tracker, self._mount = "v1", base, v1["freezer"]
        for controller in V1_LIMITS:
            if controller in controllers:
                self._limiters[controller] = ""
            elif self._tracker and controller in v1 and (base := _make_base(v1[controller], name, controller)):
                self._limiters[controller] = base
        if self._tracker:
            self._find_devices(name, v1.get(DEVICES, ""))

    def _find_devices(self, name: str, v1: str) -> None:
        """How device files are denied: by a program where that can be, else by version 1."""
        self.device_obstacle = f"cgroup {self.kind} without the controller `{DEVICES}`"
        if self.kind == "v2":
            try:
                deny_by_program(self._tracker, ())
            except OSError as error:
                self.device_obstacle = f"cgroup v2 takes no program for device files here ({error.strerror})"
            else:
                self._limiters[DEVICES] = self.device_obstacle = ""
                return
        if v1 and (base := _make_base(v1, name, DEVICES)):
            self._limiters[DEVICES], self.device_obstacle = base, ""

    def _describe(self) -> None:
        if self.kind == "marks":
            self.notes.append(
                "no cgroup can be made here (expected a writable cgroup v2 or v1 hierarchy): processes are found by "
                "their parents and environment, and CPU and memory are not limited; start as root or with delegation"
            )
            return
        missing = [each for each in V1_LIMITS if each not in self._limiters]
        if missing:
            self.notes.append(f"cgroup {self.kind}: {', '.join(missing)} cannot be limited here")

    def shelter(self, *pids: int) -> None:
        """Move these processes to a group of their own, so that whoever ends its service by cgroup leaves it alone."""
        if self.kind == "v2":
            path = f"{self._tracker}/keeper"
            os.makedirs(path, exist_ok=True)
            for pid in pids:
                write_text(f"{path}/cgroup.procs", str(pid))

    def leave(self, *pids: int) -> None:
        """Take away our directories, as far as nothing is in them, when the keeper ends."""
        for pid in pids if self._tracker else ():
            write_text(f"{os.path.dirname(self._tracker)}/cgroup.procs", str(pid))
        for base in dict.fromkeys((*self._limiters.values(), self._tracker, *self._others)):
            if base:
                _remove_tree(base)

    def open(self, mark: str) -> Group:
        """The group of a run as it was left by `make`."""
        if not self._tracker:
            # Other keepers of this machine number their runs likewise.
            return Group(f"{self._name}/{mark}", "", {}, self.kind)
        tracker = f"{self._tracker}/{mark}"
        limiters = {
            controller: f"{base}/{mark}" if base else tracker
            for controller, base in self._limiters.items()
            if not base or os.path.isdir(f"{base}/{mark}")
        }
        return Group(mark, tracker, limiters, self.kind, self._mount, self._find_others(mark))

    def find(self, prefix: str) -> list[Group]:
        """Groups that are there whose names begin so."""
        try:
            names = os.listdir(self._tracker) if self._tracker else []
        except OSError:
            return []
        return [self.open(name) for name in sorted(names) if name.startswith(prefix)]

    def make(self, mark: str, limits: Limits) -> Group:
        """A new group with its limits. Raises OSError where the kernel refuses a directory."""
        if not self._tracker:
            # Other keepers of this machine number their runs likewise.
            return Group(f"{self._name}/{mark}", "", {}, self.kind)
        tracker = f"{self._tracker}/{mark}"
        if limits.files_denied:  # what was left of another run of that name, by the death of all who knew it
            self.open(mark).remove()
        _make_folder(tracker)
        limiters: dict[str, str] = {}
        wanted = {"memory": limits.memory_bytes, "cpu": limits.cpu_milli, "pids": limits.processes_max}
        for controller, amount in wanted.items():
            base = self._limiters.get(controller)
            if base is None or not amount:
                continue
            path = limiters[controller] = f"{base}/{mark}" if base else tracker
            if base:
                _make_folder(path)
            _limit(path, controller, amount, is_v2=not base)
        if limits.files_denied and DEVICES in self._limiters:
            path = f"{self._limiters[DEVICES] or self._tracker}/{mark}"
            if self._deny(path, limits.files_denied):
                limiters[DEVICES] = path
            elif path not in (tracker, *limiters.values()):
                _remove_tree(path)  # nobody will know of it
        return Group(mark, tracker, limiters, self.kind, self._mount, self._find_others(mark))

    def _find_others(self, mark: str) -> list[str]:
        return [f"{base}/{mark}" for base in self._others]

    def _deny(self, path: str, files: Sequence[DeviceFile]) -> bool:
        """False = it cannot be, for which the run is not to suffer: that is said once, in the keeper's log."""
        try:
            if self._limiters[DEVICES]:
                _make_folder(path)
                deny_by_controller(path, files)
            else:
                deny_by_program(path, files)
        except OSError as error:
            if not self.device_obstacle:
                self.device_obstacle = f"{path}: {error.strerror}"
                complain(f"jobs may open GPUs that are not theirs: {self.device_obstacle}")
            return False
        return True


def _limit(path: str, controller: str, amount: int, *, is_v2: bool) -> None:
    quota_us = max(amount * CPU_PERIOD_US // 1000, 1000)
    if controller == "pids":
        write_text(f"{path}/pids.max", str(amount))
    elif controller == "cpu" and is_v2:
        write_text(f"{path}/cpu.max", f"{quota_us} {CPU_PERIOD_US}")
    elif controller == "cpu":
        write_text(f"{path}/cpu.cfs_quota_us", str(quota_us))
    elif is_v2:
        write_text(f"{path}/memory.max", str(amount))
        write_text(f"{path}/memory.swap.max", "0")
        write_text(f"{path}/memory.oom.group", "1")
    else:
        write_text(f"{path}/memory.limit_in_bytes", str(amount))
        write_text(f"{path}/memory.memsw.limit_in_bytes", str(amount))


def _make_base(mount: str, name: str, controller: str) -> str:
    """A directory for our groups: at the root of the hierarchy, else below our own cgroup; "" = neither."""
    for above in (mount, mount + _own_path(controller)):
        path = f"{above.rstrip('/')}/{name}"
        try:
            _make_folder(path)
        except OSError:
            continue
        if os.access(f"{path}/cgroup.procs", os.W_OK):
            if controller == "v2":
                for each in V1_LIMITS:
                    write_text(f"{above}/cgroup.subtree_control", f"+{each}")
            return path
    return ""


def _own_path(controller: str) -> str:
    for line in read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") or (controller == "v2" and not controllers):
            return path.rstrip("/")
    return ""
