"""Which processes of a run get a signal."""

import signal
from collections.abc import Collection, Sequence

from clearway.adapters.local.keeper import processes
from clearway.adapters.local.keeper.cgroups import Group
from clearway.adapters.local.keeper.daemon import find_shells
from clearway.adapters.local.keeper.messages import Launch


def list_own(launch: Launch, group: Group | None, mains: Collection[int], *, is_in_setup: bool) -> list[int]:
    """Those of the job, without those that only wait for what a daemon has started."""
    clients = mains if launch.docker and not is_in_setup else ()
    pids = dict.fromkeys((*mains, *(group.pids() if group else ())))
    return [pid for pid in pids if pid not in clients]


def find_hearing(pids: Sequence[int], number: int) -> tuple[int, list[int]]:
    """Those that handle `number`, else those that handle SIGTERM, with the signal that they handle."""
    for each in (number, signal.SIGTERM):
        hearing = [pid for pid in pids if each and processes.handles_signal(pid, each)]
        if hearing:
            return each, hearing
    return 0, []


def find_limited(launch: Launch, group: Group, mains: Collection[int], own: Sequence[int]) -> list[int]:
    """As `--signal`: the shell with `B:`; else what it started, or itself where that is nothing. own: `list_own`."""
    shells = find_shells(group, mains) if launch.docker else list(mains)
    steps = [pid for pid in own if pid not in shells]
    return shells if launch.limit_signal_shell_only or not steps else steps
