"""What the keeper remembers on disk, so that another keeper finds it: one file per generation started.

`runs/<job>.<generation>` is made, and must not exist, before anything of the generation does: making it is the mark
that it was started, and whoever fails to make it does not start it again. Its lines are JSON: first what was to run
(`launch`), then what there is of it (`started`, the last one counts), how processes ended before the run did (`exit`),
that it is being ended (`asked`, the last one counts), and how it ended (`result`). `saved/<job>` holds the work that is
safe, over all generations.

All is done by descriptors of the directories: what a keeper writes whose state was removed goes nowhere, and never into
the state that another one made in its place.

A line is one write, of which no part stays where not all of it has room; it is whole when its newline is there. Nothing
is forced to the disk: what was written survives the death of the keeper, and when the machine dies so does every job,
which the boot id tells.
"""

import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clearway.adapters.local.keeper.messages import Launch, Message, Report, render_message

_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What there is of a generation.

    mark: name of its group, which a frozen run keeps from an earlier generation. processes: (pid, start ticks, rank) of
    the main processes. began_ms: when this stretch of work began, with done_ms behind it. limit_tick_ms: on the clock
    since boot; 0 = none. is_setup: the processes are those of the setup step.
    """

    boot: str
    mark: str
    processes: tuple[tuple[int, int, int], ...]
    started_ms: int = 0
    resized_ms: int = 0
    suspended_ms: int = 0
    began_ms: int = 0
    done_ms: int = 0
    limit_tick_ms: int = 0
    is_setup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """That a run is being ended, written down before any of its processes hears it: what exits with 0 then may have
    left, and not completed its work. end, value, reason: its Purpose. request: name of the request to save, "" = none.
    is_leave: it may save and leave by itself until by_tick_ms, on the clock since boot; else what is left of it is
    killed then. was_signalled: some process was told.
    """

    end: str
    value: str
    reason: str
    request: str
    is_leave: bool
    was_signalled: bool
    by_tick_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One generation as its file tells it. launch: None = the keeper died before it was written, and so before anything
    ran. started: None = it died before processes were noted. result: None = the end was not seen. exits: by (pid, start
    ticks), how processes ended before the run did, as of waitpid. mains: the same of all that `started` ever named.
    asked: None = nobody has begun to end it."""

    launch: Launch | None = None
    started: Started | None = None
    result: Report | None = None
    asked: Asked | None = None
    exits: dict[tuple[int, int], int] = field(default_factory=dict)
    mains: frozenset[tuple[int, int]] = frozenset()

    def list_earlier_exits(self) -> list[int]:
        """How main processes ended that `started` does not name any more."""
        named = {(pid, ticks) for pid, ticks, _ in (self.started.processes if self.started else ())}
        return [status for key, status in self.exits.items() if key in self.mains - named]


class Records:
    """The directory `state`, mode 0700, and what is below it."""

    def __init__(self, state: Path) -> None:
        self._runs = _open_folder(state / "runs")
        self._saved = _open_folder(state / "saved")

    def begin(self, launch: Launch, line: bytes = b"") -> bool:
        """Mark this generation as started; False = it was before. line: the request that said so, as it came; it has
        all of the launch, and is written as it is."""
        name = _name(launch.job, launch.generation)
        try:
            descriptor = os.open(name, _APPEND | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._runs)
        except FileExistsError:
            return False
        _write(descriptor, line or render_message({"launch": launch.to_message()}))
        return True

    def note_started(self, job: int, generation: int, started: Started) -> None:
        """The main processes exist."""
        values = {name: getattr(started, name) for name in Started.__slots__}
        self._append(job, generation, {"started": values})

    def note_asked(self, job: int, generation: int, asked: Asked) -> None:
        """It is being ended."""
        self._append(job, generation, {"asked": {name: getattr(asked, name) for name in Asked.__slots__}})

    def note_result(self, report: Report) -> None:
        """The generation is over."""
        self._append(report.job, report.generation, {"result": report.to_message()})

    def note_exit(self, job: int, generation: int, pid: int, start_ticks: int, status: int) -> None:
        """A main process ended, and the run has not. status: as of waitpid."""
        self._append(job, generation, {"exit": [pid, start_ticks, status]})

    def list_processes(self) -> dict[int, int]:
        """The main processes of all runs: pid → job."""
        found: dict[int, int] = {}
        for job, generation in self.list():
            started = self.read(job, generation).started
            found |= {pid: job for pid, _, _ in (started.processes if started else ())}
        return found

    def note_saved(self, job: int, saved_ms: int) -> None:
        """Work of the job that is safe. Renamed into place: an older value is better than none."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(f"{job}.new", flags, 0o600, dir_fd=self._saved)
        _write(descriptor, render_message({"saved_ms": saved_ms}))
        os.rename(f"{job}.new", str(job), src_dir_fd=self._saved, dst_dir_fd=self._saved)

    def read_saved(self, job: int) -> int:
        """Work of the job that is safe, in milliseconds."""
        lines = _read(str(job), self._saved)
        return int(lines[0].get("saved_ms", 0)) if lines else 0

    def forget(self, job: int, generation: int) -> None:
        """Nobody will ask about this generation again."""
        _unlink(_name(job, generation), self._runs)

    def forget_saved(self, job: int) -> None:
        """The job is over for good."""
        _unlink(str(job), self._saved)

    def list(self) -> list[tuple[int, int]]:
        """All (job, generation) known, in order."""
        found = []
        for name in os.listdir(self._runs):
            job, _, generation = name.partition(".")
            if job.isdigit() and generation.isdigit():
                found.append((int(job), int(generation)))
        return sorted(found)

    def read(self, job: int, generation: int) -> Record:
        """What is known of a generation."""
        launch, started, result, asked = None, None, None, None
        exits: dict[tuple[int, int], int] = {}
        mains: set[tuple[int, int]] = set()
        for line in _read(_name(job, generation), self._runs):
            if "launch" in line:
                launch = Launch.of_message(line["launch"])
            elif "started" in line:
                values = dict(line["started"])
                values["processes"] = tuple((pid, ticks, rank) for pid, ticks, rank in values["processes"])
                started = Started(**values)
                mains |= {(pid, ticks) for pid, ticks, _ in started.processes}
            elif "asked" in line:
                asked = Asked(**line["asked"])
            elif "exit" in line:
                pid, ticks, status = line["exit"]
                exits[pid, ticks] = status
            elif "result" in line:
                result = Report.of_message(line["result"])
        mains_ever = frozenset(mains)
        return Record(launch=launch, started=started, result=result, asked=asked, exits=exits, mains=mains_ever)

    def _append(self, job: int, generation: int, line: Message) -> None:
        """A generation that was forgotten meanwhile stays so."""
        try:
            descriptor = os.open(_name(job, generation), _APPEND, dir_fd=self._runs)
        except FileNotFoundError:
            return
        _write(descriptor, render_message(line))


def _name(job: int, generation: int) -> str:
    return f"{job}.{generation}"


def _open_folder(path: Path) -> int:
    """A descriptor of the directory, which is made if need be, for as long as the process lives."""
    path.mkdir(mode=0o700, exist_ok=True)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _write(descriptor: int, line: bytes) -> None:
    """All of it, or nothing. Raises OSError."""
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, line) < len(line):  # as the kernel does where a part of it has room
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _read(name: str, folder: int) -> list[Message]:
    """Whole lines; a torn last one was never written."""
    try:
        with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
            text = file.read()
    except OSError:
        return []
    lines = []
    for line in text.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            lines.append(value)
    return lines


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
