"""What the keeper remembers on disk, so that another keeper finds it: one directory per generation started.

`runs/<job>.<generation>/` is made before anything of the generation exists, and making it is the mark that it was
started: whoever fails to make it does not start it again. `launch.json` says what was to run, `started.json` which
processes, `result.json` how it ended. `saved/<job>` holds the work that is safe, over all generations.

Files are written beside and renamed, so that each is whole or missing. They are not forced to the disk one by one:
when a process dies they are complete, and when the machine dies, so did every job (the boot id tells).
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from clearway.adapters.local.keeper.messages import Launch, Message, Report


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


class Records:
    """The directory `state`, mode 0700, and what is below it."""

    def __init__(self, state: Path) -> None:
        self._runs = state / "runs"
        self._saved = state / "saved"
        self._runs.mkdir(mode=0o700, exist_ok=True)
        self._saved.mkdir(mode=0o700, exist_ok=True)

    def begin(self, launch: Launch) -> bool:
        """Mark this generation as started; False = it was before."""
        folder = self._folder(launch.job, launch.generation)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            return False
        _write(f"{folder}/launch.json", launch.to_message())
        return True

    def note_started(self, job: int, generation: int, started: Started) -> None:
        """The main processes exist."""
        message = {name: getattr(started, name) for name in Started.__slots__}
        _write(f"{self._folder(job, generation)}/started.json", message)

    def note_result(self, report: Report) -> None:
        """The generation is over."""
        _write(f"{self._folder(report.job, report.generation)}/result.json", report.to_message())

    def note_saved(self, job: int, saved_ms: int) -> None:
        """Work of the job that is safe."""
        _write(f"{self._saved}/{job}", {"saved_ms": saved_ms})

    def read_saved(self, job: int) -> int:
        """Work of the job that is safe, in milliseconds."""
        return int((_read(f"{self._saved}/{job}") or {}).get("saved_ms", 0))

    def forget(self, job: int, generation: int) -> None:
        """Nobody will ask about this generation again."""
        shutil.rmtree(self._folder(job, generation), ignore_errors=True)

    def forget_saved(self, job: int) -> None:
        """The job is over for good."""
        Path(f"{self._saved}/{job}").unlink(missing_ok=True)

    def list(self) -> list[tuple[int, int]]:
        """All (job, generation) known, in order."""
        found = []
        for name in os.listdir(self._runs):
            job, _, generation = name.partition(".")
            if job.isdigit() and generation.isdigit():
                found.append((int(job), int(generation)))
        return sorted(found)

    def read_launch(self, job: int, generation: int) -> Launch | None:
        """None = the keeper died before it was written, and so before anything ran."""
        message = _read(f"{self._folder(job, generation)}/launch.json")
        return None if message is None else Launch.of_message(message)

    def read_started(self, job: int, generation: int) -> Started | None:
        """None = it died before its processes were noted."""
        message = _read(f"{self._folder(job, generation)}/started.json")
        if message is None:
            return None
        message["processes"] = tuple((pid, ticks, rank) for pid, ticks, rank in message["processes"])
        return Started(**message)

    def read_result(self, job: int, generation: int) -> Report | None:
        """None = its end was not seen."""
        message = _read(f"{self._folder(job, generation)}/result.json")
        return None if message is None else Report.of_message(message)

    def _folder(self, job: int, generation: int) -> str:
        return f"{self._runs}/{job}.{generation}"


def _write(path: str, message: Message) -> None:
    with open(f"{path}.new", "wb", buffering=0) as file:
        file.write(json.dumps(message, separators=(",", ":")).encode())
    os.rename(f"{path}.new", path)


def _read(path: str) -> Message | None:
    try:
        with open(path, "rb") as file:
            message = json.load(file)
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) else None
