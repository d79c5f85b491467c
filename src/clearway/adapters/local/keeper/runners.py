"""Warm runners of the keeper: which there are, and how a task is handed to one.

There is one for each user, interpreter and set of modules, made when the first task asks for it, and kept while it is
used. It runs as the user, so that nothing of a user's modules is ever imported with other rights.
"""

import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clearway.adapters.local.keeper.cgroups import Group, Groups
from clearway.adapters.local.keeper.host import tick_ms
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.keeper.spawn import Child, make_script, spawn

RUNNERS_MAX: Final = 8
"""Runners at a time; each holds the memory of its modules. The one that was not used for longest makes room."""
IDLE_MS: Final = 600_000
"""A runner that was not used for so long ends."""
END_MS: Final = 1_000
"""A keeper that ends waits at most so long for its runners to be gone, so that no group of theirs is left behind."""

KEPT: Final[frozenset[str]] = frozenset(("HOME", "USER", "PATH", "LANG"))
"""Variables of the first task that its runner starts with; each task gets all of its own."""

Key = tuple[int | None, str, tuple[str, ...]]


@dataclass(slots=True)
class Runner:
    """One interpreter. control: socket to it, which takes few requests at a time; the others wait in `pending`, each
    with the task's end of its socket."""

    control: socket.socket
    group: Group
    used_tick: int
    pending: deque[tuple[bytes, socket.socket]] = field(default_factory=deque)


class Runners:
    """All runners. await_start: called with the pipe of a new one, which ends when it was executed."""

    def __init__(self, groups: Groups, files_max: int, await_start: Callable[[int], None]) -> None:
        self._groups = groups
        self._files_max = files_max
        self._await_start = await_start
        self._runners: dict[Key, Runner] = {}
        self._leaving: list[Group] = []
        self._made = 0
        self._source = (Path(__file__).parent / "warm.py").read_text(encoding="utf-8")

    def start(self, launch: Launch, index: int, *, truncates: bool) -> int | None:
        """Hand replica `index` to a runner, made if need be. Returns a socket that tells `pid N`, waits for a byte, and
        ends as the pipe of `spawn` does; None = it must be started cold. A task in no control group is out of sight."""
        if self._groups.kind == "marks":
            return None
        key = (launch.uid, launch.warm, launch.warm_modules)
        if key not in self._runners and not self._make(key, launch):
            return None
        ours, theirs = socket.socketpair()
        runner = self._runners[key]
        runner.used_tick = tick_ms()
        runner.pending.append((_render_request(launch, index, truncates), theirs))
        self.go_on()
        return ours.detach()

    def go_on(self) -> None:
        """Hand over what runners take now: called whenever one has forked a task, or has been lost. The sockets of what
        a lost one does not take any more are closed, which tells."""
        for key, runner in list(self._runners.items()):
            try:
                while runner.pending:
                    request, link = runner.pending[0]
                    socket.send_fds(runner.control, [request], [link.fileno()])
                    runner.pending.popleft()
                    link.close()
            except BlockingIOError:
                continue
            except OSError:
                self._end(key)

    def end_idle(self) -> None:
        """End the runners that nobody uses, and take their empty groups away."""
        for key in [key for key, runner in self._runners.items() if tick_ms() - runner.used_tick > IDLE_MS]:
            self._end(key)
        self._leaving = [group for group in self._leaving if not group.remove()]

    def end_all(self) -> None:
        """At the keeper's own end."""
        for key in list(self._runners):
            self._end(key)
        for group in self._leaving:
            group.kill()
        until = tick_ms() + END_MS
        while self._leaving and tick_ms() < until:
            self._leaving = [group for group in self._leaving if not group.remove()]
            time.sleep(0.005 if self._leaving else 0)

    def _make(self, key: Key, launch: Launch) -> bool:
        if len(self._runners) >= RUNNERS_MAX:
            self._end(min(self._runners, key=lambda each: self._runners[each].used_tick))
        self._made += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = make_script(self._source)
        try:
            group = self._groups.make(f"runner-{os.getpid()}-{self._made}", launch.without_limits())
            _, pipe = spawn(self._child(launch, script, theirs.fileno(), group))
        except OSError:
            ours.close()
            return False
        finally:
            theirs.close()
            os.close(script)
        ours.setblocking(False)
        self._await_start(pipe)
        self._runners[key] = Runner(ours, group, tick_ms())
        return True

    def _child(self, launch: Launch, script: int, control: int, group: Group) -> Child:
        kept: dict[str, str] = {name: value for name, value in launch.environment.items() if name in KEPT}
        return Child(
            argv=(launch.warm, "{script}", *launch.warm_modules),
            environment=kept,
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
            files_max=self._files_max,
        )

    def _end(self, key: Key) -> None:
        """It ends when it is hung up on; tasks that it has forked are not its own any more."""
        runner = self._runners.pop(key)
        for _, link in runner.pending:
            link.close()
        runner.control.close()
        self._leaving.append(runner.group)


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
