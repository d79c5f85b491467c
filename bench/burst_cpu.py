"""What a burst of starts costs, in processor time of each process that has a part in it, and the least that any way of
starting processes costs on this machine."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FLOOR: Final = 200
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

CONTROLLER, KEEPER, RUNNER, TASKS = "controller", "keeper", "warm runner", "tasks"


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time so far, by part."""

    seconds: dict[str, float]

    def since(self, before: "Spent") -> dict[str, float]:
        """What came in between."""
        return {name: value - before.seconds.get(name, 0.0) for name, value in self.seconds.items()}


def read_spent(controller: int, state: Path) -> Spent:
    """Of the control plane whose controller this is, and whose state directory that."""
    keepers = [pid for pid in _pids() if pid != controller and _holds(pid, state)]
    keeper = max(keepers, default=0)  # the warden is its parent, and older
    seconds = {CONTROLLER: _seconds(controller)[0], KEEPER: 0.0, TASKS: 0.0, RUNNER: 0.0}
    for pid in keepers:
        own, ended = _seconds(pid)
        seconds[KEEPER] += own
        seconds[TASKS] += ended
    for pid in _pids():
        if keeper and _parent(pid) == keeper:
            seconds[RUNNER] += sum(_seconds(pid))
    return Spent(seconds)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _holds(pid: int, state: Path) -> bool:
    """Whether a process has the keeper's lock open."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in names]
    except OSError:
        return False
    return any(link.startswith(f"{state}/") and link.endswith("keeper.lock") for link in links)


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _seconds(pid: int) -> tuple[float, float]:
    """(its own, that of its children that have ended)."""
    fields = _fields(pid)
    if not fields:
        return 0.0, 0.0
    user, system, child_user, child_system = (int(field) for field in fields[11:15])
    return (user + system) / TICKS_PER_S, (child_user + child_system) / TICKS_PER_S


BARE: Final = """
import json, os, sys
def spent():
    times = os.times()
    return 1e3 * (times.user + times.system + times.children_user + times.children_system)
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def execute(*argv):
    os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)
def measure(start, count):
    begun = spent()
    for _ in range(count):
        start()
    return (spent() - begun) / count
count = int(sys.argv[1])
print(json.dumps({
    "fork and execute true": measure(lambda: execute("/bin/true"), count),
    "fork a small interpreter": measure(fork, count),
    "start an interpreter": measure(lambda: execute(sys.executable, "-c", "pass"), count // 10),
}))
"""


def time_bare_starts() -> dict[str, float]:
    """Milliseconds of processor time of a start by a loop of a small interpreter that does nothing else."""
    words = [sys.executable, "-I", "-S", "-c", BARE, str(FLOOR)]
    found: dict[str, float] = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    return found


def wait_quiet() -> None:
    """Until what was told last is done: the clock of the kernel counts in hundredths of a second."""
    time.sleep(0.2)
