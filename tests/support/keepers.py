"""A keeper without processes: what it would start, signal and tell is only noted."""

import errno
import os
import resource
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from clearway.adapters.local.keeper.cgroups import Group
from clearway.adapters.local.keeper.home import take_home
from clearway.adapters.local.keeper.host import Settings
from clearway.adapters.local.keeper.main import Keeper
from clearway.adapters.local.keeper.messages import Launch, ReplicaLaunch, Report, render_message
from clearway.adapters.local.keeper.runs import Run


def make_launch(job: int = 5, generation: int = 1, **more: object) -> Launch:
    """One replica of `/bin/sh` on one device."""
    replica = ReplicaLaunch(rank=0, node="n0", environment={"RANK": "0"}, stdin="", stdout="/o", stderr="/o")
    values = {
        "replicas": (replica,),
        "world": 1,
        "devices": (("n0", 1),),
        "environment": {},
        "argv": ("/bin/sh", "{script}"),
        "script": "true\n",
        "workdir": "/",
        "job_dir": "/no/such/folder",
    }
    return Launch(job=job, generation=generation, **{**values, **more})


class NotedGroup(Group):
    """living: pids of its processes, which end when the test says so. is_still: they are frozen."""

    def __init__(self, mark: str, living: Collection[int]) -> None:
        super().__init__(mark, "", {}, "marks")
        self.living = set(living)
        self.is_still = False

    def pids(self) -> list[int]:
        return sorted(self.living)

    def send(self, number: int, pids: Iterable[int] | None = None) -> None:
        pass

    def freeze(self) -> None:
        pass

    def is_frozen(self) -> bool:
        return self.is_still


class NotedKeeper(Keeper):
    """begun: generations whose processes it would have started. told: its reports, as they were then."""

    def __init__(self, state: Path) -> None:
        home = take_home(state)
        assert home is not None
        super().__init__(home, "clearway-test", Settings(is_without_cgroups=True), 0)
        self.begun: list[int] = []
        self.told: list[Report] = []

    def announce(self, report: Report) -> None:
        self.told.append(replace(report))
        super().announce(report)

    def _begin(self, run: Run) -> None:
        self._runs[run.report.job] = run
        self.begun.append(run.report.generation)

    def hear(self, op: str, **message: object) -> None:
        """As if the controller had said so."""
        self._guard(lambda: self._obey(render_message({"op": op, **message})))

    def hear_start(self, launch: Launch) -> None:
        self.hear("start", launch=launch.to_message())

    def have(self, launch: Launch, stage: str, pid: int = 1 << 30) -> Run:
        """A run that has come so far, with one process."""
        assert self.records.begin(launch)
        run = self._make_run(launch)
        run.stage, run.mains, run.ticks = stage, {pid: 0}, {pid: 1}
        run.group = NotedGroup(run.mark, [pid])
        run.began_ms = run.report.started_ms = 1
        run.report.phase = "suspended" if stage == "frozen" else "running"
        self._runs[launch.job] = run
        self._generations[launch.job] = launch.generation
        return run

    def has(self, job: int) -> bool:
        """Whether something of the job is left."""
        return job in self._runs or job in self._behind

    def ends(self) -> list[tuple[int, str, str]]:
        """What was told of ends: generation, end, and outcome or cause."""
        return [(each.generation, each.end, each.outcome + each.cause) for each in self.told if each.phase == "ended"]


def end_processes(run: Run, status: int) -> None:
    """All processes of the run end so. status: as of waitpid."""
    assert isinstance(run.group, NotedGroup)
    run.group.living.clear()
    for pid in list(run.mains):
        run.child_ended(pid, status)


@contextmanager
def noted_keeper(state: Path) -> Iterator[NotedKeeper]:
    keeper = NotedKeeper(state)
    try:
        yield keeper
    finally:
        keeper._selector.close()


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file grows beyond `size`: the kernel then writes what has room, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refuse(*_arguments: object, **_more: object) -> None:
    """Stands for a call of the system that fails."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))
