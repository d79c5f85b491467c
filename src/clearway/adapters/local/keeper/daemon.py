"""Runs whose processes Docker's daemon starts: our own are clients, which wait for them.

A client says how its container ended, and nothing else is its matter: it gets no signal but SIGKILL, or SIGTERM where
there is no container yet. A run is over when the daemon says that its containers are gone (`removal`): one of which the
client was killed may have been about to start.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clearway.adapters.local.keeper import processes
from clearway.adapters.local.keeper.cgroups import Group
from clearway.adapters.local.keeper.host import STUCK_MS
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.keeper.spawn import Child, spawn

CLIENT_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "DOCKER_CONFIG": "/nonexistent"}
"""Of a client, which is root: nothing of a user's, and no configuration."""
FILES_MAX: Final = 256
REMOVAL: Final = os.path.join(os.path.dirname(__file__), "removal.py")


def name_container(group: Group, rank: int) -> str:
    """Of a replica of the run in that group; unique on this machine."""
    return f"{group.path.strip('/').replace('/', '-')}.{rank}"


def find_shells(group: Group, clients: Iterable[int]) -> list[int]:
    """The first process of each container: of those in the group, the ones whose parent is not."""
    inside = [pid for pid in group.pids() if pid not in set(clients)]
    stats = {pid: processes.read_stat(pid) for pid in inside}
    return [pid for pid, stat in stats.items() if stat is not None and stat[1] not in stats]


@dataclass(slots=True)
class Removal:
    """Of the containers of one run. pid: of the program that asks the daemon; 0 = it does not run."""

    pid: int = 0
    is_done: bool = False
    again_tick: int = 0

    def is_due(self, tick: int) -> bool:
        """Whether the daemon must be asked, and is not."""
        return not self.is_done and not self.pid and tick >= self.again_tick

    def begin(self, launch: Launch, group: Group) -> bool:
        """Ask; whether that could be done."""
        names = [name_container(group, replica.rank) for replica in launch.replicas]
        owner = os.path.basename(os.path.dirname(group.path))
        child = Child(
            argv=(sys.executable, "-I", "-S", REMOVAL, launch.docker, owner, *names),
            environment=CLIENT_ENVIRONMENT,
            script=-1,
            workdir="/",
            job_dir="/",
            stdin="",
            stdout="",
            stderr="",
            truncates=False,
            gate=-1,
            uid=None,
            gid=None,
            groups=(),
            entry_files=(),
            files_max=FILES_MAX,
        )
        try:
            self.pid, pipe = spawn(child)
        except OSError:
            return False
        os.close(pipe)
        return True

    def end(self, status: int, tick: int) -> None:
        """The program has ended: with 0, all is gone."""
        self.pid, self.is_done, self.again_tick = 0, status == 0, tick + STUCK_MS
