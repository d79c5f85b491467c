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

What cannot be written, or taken away, is owed: a full disk is no reason to keep the end of a run from who waits for its
devices. The controller writes down in its turn what it hears; what it had not when it died, and the keeper owed when
that died, is lost, and the run told as one of which the end was not seen.
"""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clearway.adapters.local.keeper.log import complain
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
    killed then. was_signalled: some process is told, or was.
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
    """The directory `state`, mode 0700, and what is below it. obstacle: why something is owed, "" = nothing is."""

    def __init__(self, state: Path) -> None:
        self._runs = _open_folder(state / "runs")
        self._saved = _open_folder(state / "saved")
        self._owed: dict[tuple[int, int], list[Message]] = {}
        self._owed_saved: dict[int, int] = {}
        self._owed_removals: dict[tuple[int, str], None] = {}
        self.obstacle = self._complaint = ""

    @property
    def owes_lines(self) -> bool:
        """Whether something is not on the disk that another keeper must know."""
        return bool(self._owed or self._owed_saved)

    def pay(self) -> None:
        """Try again what is owed."""
        self.obstacle = ""
        for key, lines in list(self._owed.items()):
            if self._try(lambda key=key, lines=lines: self._write_lines(key, lines)):  # type: ignore[misc]
                self._owed.pop(key, None)
        for job, saved_ms in list(self._owed_saved.items()):
            self.note_saved(job, saved_ms)
        for folder, name in list(self._owed_removals):
            self._remove(name, folder)
        if not self.obstacle:
            self._complaint = ""

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self._complaint:
                complain(f"what is known of jobs cannot be written down, and will be tried again: {reason}")
            self.obstacle = self._complaint = reason
            return False
        return True

    def begin(self, launch: Launch, line: bytes = b"") -> bool:
        """Mark this generation as started; False = it was before. line: the request that said so, as it came; it has
        all of the launch, and is written as it is. Raises OSError; then it is not marked."""
        name = _name(launch.job, launch.generation)
        if (self._runs, name) in self._owed_removals:
            _unlink(name, self._runs)
            del self._owed_removals[self._runs, name]
        try:
            descriptor = os.open(name, _APPEND | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._runs)
        except FileExistsError:
            return False
        try:
            _write(descriptor, line or render_message({"launch": launch.to_message()}))
        except OSError:
            with contextlib.suppress(OSError):
                _unlink(name, self._runs)
            raise
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

    def find_exit(self, job: int, pid: int, start_ticks: int) -> int | None:
        """How a main process ended; None = not known. In any record of the job: older wardens write into the last."""
        known = [self.read(number, generation).exits for number, generation in self.list() if number == job]
        return next((exits[pid, start_ticks] for exits in known if (pid, start_ticks) in exits), None)

    def list_processes(self) -> dict[int, int]:
        """The main processes of all runs: pid → job."""
        found: dict[int, int] = {}
        for job, generation in self.list():
            started = self.read(job, generation).started
            found |= {pid: job for pid, _, _ in (started.processes if started else ())}
        return found

    def note_saved(self, job: int, saved_ms: int) -> None:
        """Work of the job that is safe. Renamed into place: an older value is better than none."""
        if self._try(lambda: self._write_saved(job, saved_ms)):
            self._owed_saved.pop(job, None)
        else:
            self._owed_saved[job] = saved_ms

    def _write_saved(self, job: int, saved_ms: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(f"{job}.new", flags, 0o600, dir_fd=self._saved)
        _write(descriptor, render_message({"saved_ms": saved_ms}))
        os.rename(f"{job}.new", str(job), src_dir_fd=self._saved, dst_dir_fd=self._saved)

    def read_saved(self, job: int) -> int:
        """Work of the job that is safe, in milliseconds."""
        if job in self._owed_saved:
            return self._owed_saved[job]
        lines = _read(str(job), self._saved)
        return int(lines[0].get("saved_ms", 0)) if lines else 0

    def forget(self, job: int, generation: int) -> None:
        """Nobody will ask about this generation again."""
        self._owed.pop((job, generation), None)
        self._remove(_name(job, generation), self._runs)

    def forget_saved(self, job: int) -> None:
        """The job is over for good."""
        self._owed_saved.pop(job, None)
        self._remove(str(job), self._saved)

    def _remove(self, name: str, folder: int) -> None:
        if self._try(lambda: _unlink(name, folder)):
            self._owed_removals.pop((folder, name), None)
        else:
            self._owed_removals[folder, name] = None

    def list(self) -> list[tuple[int, int]]:
        """All (job, generation) known, in order."""
        found = []
        try:
            names = os.listdir(self._runs)
        except FileNotFoundError:  # the state was removed
            return []
        for name in names:
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
        key = job, generation
        if key not in self._owed and self._try(lambda: self._write_lines(key, [line])):
            return
        owed = self._owed.setdefault(key, [])
        if "exit" not in line:  # of each other kind the last one counts
            owed[:] = [each for each in owed if each.keys() != line.keys()]
        owed.append(line)

    def _write_lines(self, key: tuple[int, int], lines: Sequence[Message]) -> None:
        """Behind a newline where something is owed: what was written of it, if that could not be taken back, ends."""
        try:
            descriptor = os.open(_name(*key), _APPEND, dir_fd=self._runs)
        except FileNotFoundError:
            return
        _write(descriptor, b"\n" * (key in self._owed) + b"".join(map(render_message, lines)))


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
