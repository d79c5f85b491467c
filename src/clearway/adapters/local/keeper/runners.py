"""Warm runners of the keeper: which there are, and how a task is handed to one.

There is one for each user, interpreter, set of modules, and environment as far as modules can depend on it, made when
the first task asks for it, and kept while it is used. It runs as the user, so that nothing of a user's modules is ever
imported with other rights. So all that it says may be a lie: the keeper acts on what the kernel says.
"""

import contextlib
import json
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clearway.adapters.local.keeper import processes
from clearway.adapters.local.keeper.cgroups import Group, Groups
from clearway.adapters.local.keeper.early import select_early
from clearway.adapters.local.keeper.host import Settings, tick_ms
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.keeper.spawn import Child, make_script, spawn

RUNNERS_MAX: Final = 8
"""Runners at a time; each holds the memory of its modules. The one that was not used for longest makes room."""
IDLE_MS: Final = 600_000
"""A runner that was not used for so long ends."""
PREFIX: Final = "runner-"
LOOK_MS: Final = 200
END_MS: Final = 1_000
"""A keeper that ends waits at most so long for its runners to be gone, so that no group of theirs is left behind."""

LEAVE_MS: Final = 5_000
"""From hanging up on a runner until all that is left in its group is killed: threads and children of its modules."""

GONE: Final = 0
_TOLD: Final = re.compile(rb"pid ([1-9][0-9]{0,8})\n")

Key = tuple[Hashable, ...]


class LieError(Exception):
    """What a runner told is not so."""


@dataclass(slots=True, eq=False)
class Runner:
    """One interpreter. control: socket to it, which takes few requests at a time; the others wait in `pending`, each
    with our end of the task's socket, as a number, and the task's. asked: our ends of all that it has not answered.
    heard_tick: when it last answered, or was asked while it had nothing to do."""

    control: socket.socket
    group: Group
    pid: int
    uid: int
    used_tick: int
    heard_tick: int
    pending: deque[tuple[int, bytes, socket.socket]] = field(default_factory=deque)
    asked: set[int] = field(default_factory=set)


class Runners:
    """All runners. await_start: called with the pipe of a new one, which ends when it was executed. owned: children of
    the keeper that are some run's already."""

    def __init__(
        self, groups: Groups, settings: Settings, await_start: Callable[[int], None], owned: Container[int]
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._await_start = await_start
        self._owned = owned
        self._runners: dict[Key, Runner] = {}
        self._links: dict[int, Runner] = {}
        self._begun_ticks: dict[int, int] = {}
        self._avoided: dict[Key, int] = {}
        self._look_tick = 0
        self._leaving: list[tuple[int, Group]] = []
        self._made = 0
        self._source = (Path(__file__).parent / "warm.py").read_text(encoding="utf-8")

    def start(self, launch: Launch, index: int, *, truncates: bool) -> int | None:
        """Hand replica `index` to a runner, made if need be. Returns a socket that tells `pid N`, for `take`, waits for
        a byte, and ends as the pipe of `spawn` does; it does not block, and is to be given to `release` when it is no
        longer heard. None = it must be started cold. A task in no control group is out of sight."""
        if self._groups.kind == "marks":
            return None
        key = _find_key(launch, index)
        if key in self._avoided or (key not in self._runners and not self._make(key, launch, index)):
            return None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        runner = self._runners[key]
        runner.used_tick = tick = tick_ms()
        if not runner.asked:
            runner.heard_tick = tick
        link = ours.detach()
        self._links[link] = runner
        runner.asked.add(link)
        runner.pending.append((link, _render_request(launch, index, truncates), theirs))
        self.go_on()
        return link

    def take(self, link: int, told: bytes, group: Group) -> int:
        """The process that the runner says it has forked for this socket, which is put into `group`; GONE where it has
        ended already. Whoever answers runs as the user, and imports his modules: nothing of it is believed that the
        kernel does not say too. A child of ours that we have not waited for keeps its number, so that no other process
        can have it meanwhile. Raises LieError, and ends the runner, where the process is anything but a fresh child of
        this very runner."""
        runner = self._links[link]
        match = _TOLD.fullmatch(told)
        pid = int(match[1]) if match else 0
        found = processes.read_identity(pid) if match else None
        if match and found is None:
            return GONE
        expected = processes.Identity(pid, os.getpid(), (runner.uid,) * 4, found is not None and found.has_threads)
        is_taken = pid == runner.pid or pid in self._owned
        if found != expected or is_taken or pid not in runner.group.own_pids():
            self._end_lost(runner)
            raise LieError("the warm runner named a process that it has not forked for this job")
        runner.asked.discard(link)
        runner.heard_tick = tick_ms()
        group.take(pid, runner.group, has_threads=expected.has_threads)
        return pid

    def let_go(self, link: int) -> None:
        """Let the task begin, in its group."""
        self._begun_ticks[link] = tick_ms()
        with contextlib.suppress(OSError):  # it may have died
            os.write(link, b"g")

    def release(self, link: int) -> None:
        """Nobody listens to this socket any more."""
        runner = self._links.pop(link, None)
        self._begun_ticks.pop(link, None)
        if runner is None:
            return
        runner.asked.discard(link)
        for entry in [entry for entry in runner.pending if entry[0] == link]:
            runner.pending.remove(entry)
            entry[2].close()
        self.go_on()

    def go_on(self) -> None:
        """Hand over what runners take now: called whenever one has forked a task, or has been lost. The sockets of what
        a lost one does not take any more are closed, which tells."""
        for key, runner in list(self._runners.items()):
            try:
                while runner.pending:
                    _, request, theirs = runner.pending[0]
                    socket.send_fds(runner.control, [request], [theirs.fileno()])
                    runner.pending.popleft()
                    theirs.close()
            except BlockingIOError:
                continue
            except OSError:
                self._end(key)

    def look(self) -> None:
        """Once in a while: end the runners that nobody uses, and those that do not answer, and take away the groups of
        those that have ended. A task that still says nothing of having begun counts as begun."""
        tick = tick_ms()
        if tick < self._look_tick:
            return
        self._look_tick = tick + LOOK_MS
        self._avoided = {key: until for key, until in self._avoided.items() if until > tick}
        too_old = tick - self._settings.warm_wait_ms
        for key, runner in list(self._runners.items()):
            if runner.asked and runner.heard_tick < too_old:
                self._avoided[key] = tick + IDLE_MS
                self._end_lost(runner)
            elif not runner.asked and runner.used_tick < tick - IDLE_MS:
                self._end(key)
        for link in [link for link, begun_tick in self._begun_ticks.items() if begun_tick < too_old]:
            del self._begun_ticks[link]
            _shut(link)
        self._take_away(tick)

    def end_earlier(self) -> None:
        """What is left of the runners of keepers before this one: nobody can ask them for anything any more."""
        for group in self._groups.find(PREFIX):
            group.kill()
            self._leaving.append((0, group))

    def _take_away(self, tick: int) -> None:
        for kill_tick, group in self._leaving:
            if kill_tick <= tick:
                group.kill()
        self._leaving = [(kill_tick, group) for kill_tick, group in self._leaving if not group.remove()]

    def end_all(self) -> None:
        """At the keeper's own end."""
        for key in list(self._runners):
            self._end(key)
        for _, group in self._leaving:
            group.kill()
        until = tick_ms() + END_MS
        while self._leaving and tick_ms() < until:
            self._leaving = [(kill_tick, group) for kill_tick, group in self._leaving if not group.remove()]
            time.sleep(0.005 if self._leaving else 0)

    def _make(self, key: Key, launch: Launch, index: int) -> bool:
        if len(self._runners) >= RUNNERS_MAX:
            self._end(min(self._runners, key=lambda each: self._runners[each].used_tick))
        self._made += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = make_script(self._source)
        try:
            group = self._groups.make(f"{PREFIX}{os.getpid()}-{self._made}", launch.for_runner())
            pid, pipe = spawn(self._child(launch, index, script, theirs.fileno(), group))
        except OSError:
            ours.close()
            return False
        finally:
            theirs.close()
            os.close(script)
        ours.setblocking(False)
        self._await_start(pipe)
        uid = os.getuid() if launch.uid is None else launch.uid
        self._runners[key] = Runner(ours, group, pid, uid, tick_ms(), tick_ms())
        return True

    def _child(self, launch: Launch, index: int, script: int, control: int, group: Group) -> Child:
        return Child(
            argv=(launch.warm, "{script}", *launch.warm_modules),
            environment=select_early(launch, index),
            script=script,
            workdir="/",
            job_dir="/",
            stdin="",
            stdout="",
            stderr="",
            control=control,
            truncates=False,
            gate=-1,
            uid=launch.uid,
            gid=launch.gid,
            groups=launch.groups,
            group=group.birthplace,
            entry_files=group.entry_files,
            files_max=self._settings.files_max,
        )

    def _end(self, key: Key) -> None:
        """It ends when it is hung up on; tasks that it has forked are not its own any more."""
        runner = self._runners.pop(key)
        for _, _, theirs in runner.pending:
            theirs.close()
        runner.pending.clear()
        runner.control.close()
        self._leaving.append((tick_ms() + LEAVE_MS, runner.group))

    def _end_lost(self, runner: Runner) -> None:
        """At once, with all that is in its group. What it was asked besides starts cold."""
        for key in [key for key, each in self._runners.items() if each is runner]:
            self._end(key)
        runner.group.kill()
        for link in sorted(runner.asked):
            _shut(link)


def _shut(link: int) -> None:
    """Our end then tells that it is over, whoever may have the other."""
    with socket.socket(fileno=os.dup(link)) as copy, contextlib.suppress(OSError):
        copy.shutdown(socket.SHUT_RDWR)


def _find_key(launch: Launch, index: int) -> Key:
    """What all tasks of one runner have in common: all that its modules can depend on, and that limits it."""
    limits = (launch.memory_bytes, launch.processes_max, launch.gpus)
    who = (launch.uid, launch.gid, launch.groups)
    return (who, launch.warm, launch.warm_modules, limits, tuple(sorted(select_early(launch, index).items())))


def _render_request(launch: Launch, index: int, truncates: bool) -> bytes:
    replica = launch.replicas[index]
    writing = os.O_WRONLY | os.O_CREAT | os.O_NOCTTY | os.O_APPEND | (os.O_TRUNC if truncates else 0)
    request = {
        "argv": launch.warm_argv,
        "workdir": launch.workdir,
        "environment": {**launch.environment, **replica.environment},
        "files": [
            (replica.stdin, os.O_RDONLY),
            (replica.stdout, writing),
            (replica.stderr, writing if replica.stderr != replica.stdout else writing & ~os.O_TRUNC),
        ],
    }
    return json.dumps(request).encode()
