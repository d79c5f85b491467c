"""Runs in containers of which something may be left when their processes are gone.

Those of Docker have their processes started by its daemon: our own are clients, which wait for them.

A client says how its container ended, and nothing else is its matter: it gets no signal but SIGKILL, or SIGTERM where
there is no container yet. A run is over when the daemon says that its containers are gone (`removal`): one of which the
client was killed may have been about to start. podman and what it starts are processes like others; killed with the
container, they cannot take it away, so that they are started once more for that (`Launch.remover`).
"""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from clearway.adapters.local.keeper import processes
from clearway.adapters.local.keeper.cgroups import Group
from clearway.adapters.local.keeper.host import NEVER, STUCK_MS, Host, render_status
from clearway.adapters.local.keeper.log import complain
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.keeper.spawn import CONTAINER_WORD, Child, spawn

if TYPE_CHECKING:
    from clearway.adapters.local.keeper.runs import Run

CLIENT_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "DOCKER_CONFIG": "/nonexistent"}
"""Of a client, which is root: nothing of a user's, and no configuration."""
FILES_MAX: Final = 256
REMOVAL_MS: Final = 10_000
"""So long a tool may take to take containers away, some tenths of a second on an idle machine; then it is killed."""
REMOVAL: Final = os.path.join(os.path.dirname(__file__), "removal.py")


def name_container(group: Group, rank: int) -> str:
    """Of a replica of the run in that group; unique on this machine. Of a group below others, such as a user's, the
    names of those may have what no name of a container may."""
    return f"{'-'.join((group.path or group.mark).strip('/').split('/')[-2:])}.{rank}"


def find_shells(group: Group, clients: Iterable[int]) -> list[int]:
    """The first process of each container: of those in the group, the ones whose parent is not."""
    inside = [pid for pid in group.pids() if pid not in set(clients)]
    stats = {pid: processes.read_stat(pid) for pid in inside}
    return [pid for pid, stat in stats.items() if stat is not None and stat[1] not in stats]


def put_names(words: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Words with these names of containers where they are spoken of."""
    return tuple(each for word in words for each in (names if word == CONTAINER_WORD else (word,)))


@dataclass(slots=True)
class Removal:
    """Of the containers of one run. A daemon is asked until it says that they are gone. What a tool of the user's left
    behind holds no device any more: it is told once to take it away, as the user, in a group of its own, `place`, and
    by `by_tick`.

    pid: of the program that does it; 0 = it does not run."""

    pid: int = 0
    is_done: bool = False
    again_tick: int = 0
    place: Group | None = None
    by_tick: int = NEVER

    def advance(self, run: "Run", group: Group, tick: int) -> bool:
        """Do what is due of `run`, whose group is empty; whether nothing is left to do."""
        if not run.launch.remover and not (run.launch.docker and group.path):
            return True
        is_under_way = self.is_done or self.pid or self.place is not None
        if not is_under_way and tick >= self.again_tick and self._begin(run.launch, group, run.host, tick):
            run.host.own(self.pid, run)
        self._settle(tick)
        return self.is_done

    def _begin(self, launch: Launch, group: Group, host: Host, tick: int) -> bool:
        names = [name_container(group, replica.rank) for replica in launch.replicas]
        try:
            if launch.remover:
                self.by_tick = tick + REMOVAL_MS
                self.place = host.groups.make(f"removal-{os.path.basename(group.mark)}", launch.without_limits())
                child = _make_remover(launch, names, self.place)
            else:
                child = _make_client(launch, names, group)
            self.pid, pipe = spawn(child)
        except OSError as error:
            if launch.remover:
                self._complain(launch.job, error.strerror or str(error))
                self.is_done = self.place is None
            return False
        os.close(pipe)
        return True

    def end(self, status: int, tick: int, job: int) -> None:
        """The program has ended: with 0, all is gone."""
        self.pid, self.again_tick = 0, tick + STUCK_MS
        if self.place is None:
            self.is_done = status == 0
        elif status:
            self._complain(job, render_status(status))

    def _settle(self, tick: int) -> None:
        """See to it that nothing is left of what takes away what was left."""
        if self.place is None:
            return
        if not self.pid and self.place.is_empty():
            self._give_up()
        elif not self.pid or tick >= self.by_tick:
            self.place.kill()
            if tick >= self.by_tick + REMOVAL_MS:
                self._give_up()

    def _complain(self, job: int, what: str) -> None:
        complain(f"what the containers of job {job} left behind may be there still: taking it away: {what}")

    def _give_up(self) -> None:
        if self.place is not None:
            self.place.remove()
        self.place, self.is_done = None, True


def _make_client(launch: Launch, names: Sequence[str], group: Group) -> Child:
    owner = os.path.basename(os.path.dirname(group.path))
    return Child(
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


def _make_remover(launch: Launch, names: Sequence[str], place: Group) -> Child:
    """As a client, but the job's user, and in a group."""
    return replace(
        _make_client(launch, (), place),
        argv=put_names(launch.remover, names),
        environment={**launch.environment, **launch.replicas[0].environment, processes.MARK: place.mark},
        uid=launch.uid,
        gid=launch.gid,
        groups=launch.groups,
        group=place.birthplace,
        entry_files=place.entry_files,
    )
