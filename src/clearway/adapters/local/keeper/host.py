"""What a run and its keeper share: times, settings, why a run is ended, and what the one asks of the other.

Time here is `tick`: milliseconds since boot, which no clock adjustment moves; Unix time is only for reports.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from clearway.adapters.local.keeper.cgroups import Groups
from clearway.adapters.local.keeper.messages import Report
from clearway.adapters.local.keeper.records import Records

if TYPE_CHECKING:
    from clearway.adapters.local.keeper.runners import Runners
    from clearway.adapters.local.keeper.runs import Run

NEVER: Final = 1 << 62
POLL_FIRST_MS: Final = 1
POLL_MAX_MS: Final = 50
"""Whether a group is empty is asked after 1, 2, 4... up to so many milliseconds: most are at once."""
PROGRESS_MS: Final = 1_000
"""How often the progress of a job that saves is read; it costs one open."""
PROGRESS_SELDOM_MS: Final = 5_000
"""The same of a job that does not save: only for people to see."""
ANSWER_MS: Final = 20
"""The same while a job is asked to save: somebody waits for its devices."""
STUCK_MS: Final = 1_000
"""How often processes that SIGKILL did not end are looked at."""
FIRST_VISIT_MS: Final = 10_000
"""A keeper waits at least so long for the controller that started it, which a busy machine may keep waiting."""
UNKNOWN_STATUS: Final = -1


def look_ms(*, saves: bool) -> int:
    """How often the progress of a job is read that is left alone."""
    return PROGRESS_MS if saves else PROGRESS_SELDOM_MS


def now_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000


def tick_ms() -> int:
    """Milliseconds since boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """kill_wait_ms: from SIGTERM to SIGKILL of a job that was told to end (Slurm's KillWait). leftover_wait_ms: the
    same for what outlives a job's main processes. quarantine_ms: from SIGKILL until what still lives is called stuck.
    idle_exit_ms: the keeper ends when it has had neither jobs nor a controller for so long. files_max: soft limit of
    open files of jobs. is_without_cgroups: as if there were none. warm_wait_ms: a warm runner that takes no task for so
    long, as while it imports, is ended, and the task started without it.
    """

    kill_wait_ms: int = 30_000
    leftover_wait_ms: int = 2_000
    quarantine_ms: int = 10_000
    idle_exit_ms: int = 60_000
    files_max: int = 1024
    is_without_cgroups: bool = False
    warm_wait_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a run is being ended. end: `finished` (value is an outcome), `stopped` (a cause), `moved`, or `dropped`,
    which nobody is told."""

    end: str
    value: str = ""
    reason: str = ""


DROPPED: Final = Purpose("dropped")
MOVED: Final = Purpose("moved")


class Host(Protocol):
    """What a run needs of its keeper."""

    groups: Groups
    records: Records
    runners: "Runners"
    settings: Settings
    boot: str

    def announce(self, report: Report) -> None:
        """Tell the controller."""
        ...

    def own(self, pid: int, run: "Run") -> None:
        """Tell `run` when this child has ended."""
        ...

    def watch(self, descriptor: int, take: Callable[[], None]) -> None:
        """Call `take` whenever the descriptor can be read."""
        ...

    def unwatch(self, descriptor: int) -> None:
        """Stop, and close it."""
        ...

    def schedule(self, run: "Run", due_tick: int) -> None:
        """Have `run.advance` called then; NEVER = only when something happens."""
        ...

    def ended(self, run: "Run") -> None:
        """The run is over: nothing of it is left."""
        ...


@dataclass(slots=True)
class Leave:
    """A request to save and leave, under way. request: its name. by_tick: when the job must be gone."""

    purpose: Purpose
    request: str
    by_tick: int


def split_status(status: int) -> tuple[int, int]:
    """Exit code and signal of a wait status."""
    if status <= 0:
        return 0, 0
    return (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)


def render_status(status: int) -> str:
    """For people."""
    code, number = split_status(status)
    return f"signal {number}" if number else f"exit code {code}"
