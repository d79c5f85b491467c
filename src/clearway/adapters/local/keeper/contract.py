"""The files through which a job and the keeper speak: `progress.json` from the job, `request.json` to it.

Both lie in the job's own directory, which belongs to its user: nothing there is trusted. What the job writes is read
without following links, without blocking and up to a bound; what is not understood counts as not said. What is taken
away there when a generation begins, or the job is over, is taken away with his rights (`trees`). The directory itself
lies in one of root's: nobody exchanges it.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clearway.adapters.local.keeper.trees import ENTRIES_MAX, FOLDER, list_some, remove_tree, rights_of_owner

PROGRESS: Final = "progress.json"
REQUEST: Final = "request.json"
OWN_FILES: Final = (PROGRESS, REQUEST, "container.log")
"""What is taken away when the job is over; the last is written by a container's tool."""
PROGRESS_BYTES_MAX: Final = 64 << 10
"""A hundred times what the protocol needs."""
NAMES_MAX: Final = 10_000
"""Of a job's directory, so many entries are looked through for what is ours: some 10 ms."""
_BUNDLE: Final = re.compile(r"\.bundle\.\d+")
"""Folders that `spawn` makes for containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a job said. progress: 0 to 1; None = nothing. checkpoint_at_ms: Unix time of the last checkpoint, 0 = none.

    answers: the request that this checkpoint answers, "" = none. is_done: the work is complete.
    """

    progress: float | None = None
    checkpoint_at_ms: int = 0
    answers: str = ""
    is_done: bool = False


NOTHING_SAID = Progress()


def read_progress(job_dir: str) -> Progress:
    """What the job says now."""
    try:
        descriptor = os.open(f"{job_dir}/{PROGRESS}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return NOTHING_SAID
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.read(descriptor, PROGRESS_BYTES_MAX + 1) if is_file else b""
    except OSError:
        return NOTHING_SAID
    finally:
        os.close(descriptor)
    return parse_progress(text) if len(text) <= PROGRESS_BYTES_MAX else NOTHING_SAID


def parse_progress(text: bytes) -> Progress:
    """Of a JSON object with `progress`, `checkpoint_at` (Unix seconds), `answers` and `done`; all optional."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return NOTHING_SAID
    if not isinstance(said, dict):
        return NOTHING_SAID
    answers = said.get("answers")
    return Progress(
        progress=min(max(_number(said["progress"]), 0.0), 1.0) if _is_number(said.get("progress")) else None,
        checkpoint_at_ms=int(min(max(_number(said.get("checkpoint_at")), 0.0), 1e11) * 1000),
        answers=answers if isinstance(answers, str) else "",
        is_done=said.get("done") is True,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    """A finite number, else 0."""
    return float(value) if _is_number(value) and abs(value) < 1e300 else 0.0


def make_request(name: str, action: str, deadline_ms: int, replicas: int) -> dict[str, Any]:
    """What the job is asked. deadline_ms: Unix time at which it is ended."""
    return {"id": name, "action": action, "deadline": deadline_ms / 1000, "replicas": replicas}


def write_request(job_dir: str, request: dict[str, Any], uid: int | None, gid: int | None) -> None:
    """Put `request` where the job looks for it. The user may have spoilt his directory: then he gets no request."""
    path, beside = f"{job_dir}/{REQUEST}", f"{job_dir}/.{REQUEST}.new"
    try:
        remove_request(job_dir)
        if os.path.lexists(beside):
            os.unlink(beside)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(beside, flags, 0o644)
        with open(descriptor, "wb") as file:
            if uid is not None and gid is not None:
                os.fchown(descriptor, uid, gid)
            file.write(json.dumps(request).encode())
        os.rename(beside, path)
    except OSError:
        return


def remove_request(job_dir: str) -> None:
    """What was asked of an earlier generation is not asked any more."""
    try:
        os.unlink(f"{job_dir}/{REQUEST}")
    except OSError:
        return


def make_job_dir(job_dir: str, uid: int | None, gid: int | None, *, is_new: bool) -> None:
    """The job's own directory, for its user alone. What lies there when a job is new is of another job that had its
    number, before the control plane lost its memory: it is moved aside. Raises OSError."""
    if is_new and os.path.lexists(job_dir):
        aside = next(path for n in range(1, 1 << 20) if not os.path.lexists(path := f"{job_dir}.before-{n}"))
        os.rename(job_dir, aside)
    try:
        os.mkdir(job_dir, 0o700)
    except FileExistsError:
        _clear(job_dir, ())  # what an earlier generation was started with, under a number that may be given again
        return
    if uid is not None and gid is not None:
        os.chown(job_dir, uid, gid, follow_symlinks=False)


def remove_job_dir(job_dir: str) -> None:
    """Take away what is ours in it, and the directory if the job left nothing else there."""
    _clear(job_dir, OWN_FILES)
    with contextlib.suppress(OSError):
        os.rmdir(job_dir)


def _clear(job_dir: str, files: Sequence[str]) -> None:
    """Take away these files, and the folders with what containers were started with: variables, secrets among them."""
    with contextlib.suppress(OSError):
        folder = os.open(job_dir, FOLDER)
        try:
            bundles = [name for name in list_some(folder, NAMES_MAX) if _BUNDLE.fullmatch(name)]
            with rights_of_owner(folder):
                left = ENTRIES_MAX
                for name in (*files, *bundles):
                    left = remove_tree(folder, name, left)
        finally:
            os.close(folder)
