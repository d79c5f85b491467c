"""The job's side of the checkpoint contract: `progress.json` written, `request.json` read."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

LOOK_S: Final = 0.5
"""How often the request file is looked at where no signal arrives; one stat of a file."""
REPORT_S: Final = 0.2
"""Reports of progress in quicker succession are kept back: nobody reads them faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What Clearway asks for. action: `leave` (devices are needed by others), `resize` or `migrate` (it goes on with
    `replicas` replicas). deadline: Unix time in seconds, after which the job is ended."""

    id: str
    action: str
    deadline: float
    replicas: int


class Job:
    """This process's place in its job. Make one by `current`.

    rank, world: number of this replica, and how many there are. generation: 1 at the first start, more after each
    restart. directory: for checkpoints; the same for all generations and replicas. None = not under Clearway.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        folder = environment.get("CLEARWAY_JOB_DIR")
        self.directory = Path(folder) if folder else None
        self.id = int(environment.get("CLEARWAY_JOB_ID", "0"))
        self.generation = int(environment.get("CLEARWAY_GENERATION", "1"))
        self.rank = int(environment.get("RANK", "0"))
        self.world = int(environment.get("WORLD_SIZE", "1"))
        # In a pod there is no request file: the signal is the request, and the kubelet keeps the time.
        self._grace_s = float(environment.get("CLEARWAY_SIGNAL_GRACE", "0"))
        self._said: dict[str, Any] = {}
        self._request: Request | None = None
        self._was_signalled = False
        self._look_at = 0.0
        self._report_at = 0.0

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def should_stop(self) -> bool:
        """Whether to save and leave soon. Cheap enough for every step. Replicas of a gang learn it at different steps:
        let them agree, such as by the sum over all of `int(job.should_stop)`."""
        return self.request is not None

    @property
    def request(self) -> Request | None:
        """What is asked; None = go on."""
        if self._request is None and self._was_signalled and self._grace_s:
            self._request = Request(
                id="signal", action="leave", deadline=time.time_ns() / 1e9 + self._grace_s, replicas=self.world
            )
        if self._request is None and self.directory is not None:
            now = _seconds()
            if self._was_signalled or now >= self._look_at:
                self._look_at = now + LOOK_S
                self._was_signalled = False
                self._request = _read_request(self.directory / "request.json")
        return self._request

    def leave(self) -> NoReturn:
        """End this process, after the work was saved. Raises SystemExit."""
        sys.exit(0)

    # --- what is said ------------------------------------------------------------------------------------------------

    def report(self, *, step: int | None = None, progress: float | None = None, **more: Any) -> None:
        """Say how far the work is. progress: 0 to 1. more: further values, such as a loss, that JSON can hold. Only
        replica 0 is heard."""
        said = {"step": step, "progress": progress, **more}
        self._said.update({name: value for name, value in said.items() if value is not None})
        if _seconds() >= self._report_at:
            self._write()

    @contextmanager
    def saving(self, *, step: int | None = None) -> Iterator[None]:
        """Around the writing of a checkpoint of the work up to now; when it ends without an exception, the checkpoint
        counts, and answers a request that had come before. In a gang, replica 0 must end it when all have saved."""
        request, began, at = self.request, _seconds(), time.time_ns() / 1e9
        yield
        self._said["checkpoint_at"] = at
        self._said["checkpoint_cost_s"] = round(_seconds() - began, 6)
        if step is not None:
            self._said["checkpoint_step"] = step
        if request is not None:
            self._said["answers"] = request.id
        self._write()

    def finish(self) -> None:
        """Say that the work is complete, so that an end under a request to leave is not taken for a leave."""
        self._said.update(progress=1.0, done=True)
        self._write()

    def _write(self) -> None:
        self._report_at = _seconds() + REPORT_S
        if self.directory is not None and self.rank == 0:
            write_atomically(self.directory / "progress.json", json.dumps(self._said).encode())

    # --- signals -----------------------------------------------------------------------------------------------------

    def listen(self, number: int) -> None:
        """Learn of a request by a signal too. A handler that the program had installed is still called."""
        before = signal.getsignal(number)

        def handle(signum: int, frame: FrameType | None) -> None:
            self._was_signalled = True
            if callable(before):
                before(signum, frame)

        signal.signal(number, handle)


def current() -> Job:
    """The job that this process belongs to. Called in the main thread, it also listens to the signal that comes before
    a preemption; elsewhere the request file is looked at twice a second."""
    environment = os.environ  # noqa: TID251 - the environment is how a job is told what it is
    job = Job(environment)
    is_asked = job.directory is not None or "CLEARWAY_SIGNAL_GRACE" in environment
    if is_asked and threading.current_thread() is threading.main_thread():
        job.listen(int(environment.get("CLEARWAY_SIGNAL", int(signal.SIGUSR1))))
    return job


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole, or as it was before, whenever the process or the machine dies."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _read_request(path: Path) -> Request | None:
    try:
        asked = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return Request(
        id=str(asked.get("id", "")),
        action=str(asked.get("action", "leave")),
        deadline=float(asked.get("deadline", 0)),
        replicas=int(asked.get("replicas", 1)),
    )


def _seconds() -> float:
    return time.monotonic_ns() / 1e9
