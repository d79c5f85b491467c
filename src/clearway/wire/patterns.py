"""File names of a job's input and output, with Slurm's patterns (sbatch(1), "filename pattern")."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clearway.model.units import MILLI
from clearway.ports.views import JobView

OUTPUT_DEFAULT: Final = "slurm-%j.out"
ARRAY_OUTPUT_DEFAULT: Final = "slurm-%A_%a.out"
_PATTERN: Final = re.compile(r"%(\d*)([%A-Za-z])")
_WIDTH_MAX: Final = 10
"""Slurm's own bound on zero padding."""
_NO_TASK: Final = 4294967294
"""What Slurm prints for %a of a job that is in no array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNames:
    """Values for the patterns of one replica. array, task: None = not in an array."""

    job: int
    array: int | None = None
    task: int | None = None
    name: str = ""
    user: str = ""
    node: str = ""
    node_index: int = 0
    rank: int = 0
    restarts: int = 0


def fill_pattern(pattern: str, names: FileNames) -> str:
    """`pattern` with its values. A backslash in it turns patterns off. Unknown letters stay as they are."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    values = _values(names)

    def fill(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter == "%":
            return "%"
        value = values.get(letter)
        if value is None:
            return match.group()
        padded = min(int(width or 0), _WIDTH_MAX)
        return value.zfill(padded) if value.isdigit() else value

    return _PATTERN.sub(fill, pattern)


def name_file(job: JobView, pattern: str, replica: int) -> str:
    """The file that a job's pattern means for one replica, as its backend names it. `%N` stays until it has a node."""
    index = _node_index(job, replica)
    names = FileNames(
        job=job.id,
        array=job.array,
        task=job.array_index,
        name=job.name or "run",
        user=job.user,
        node=job.nodes[index] if job.nodes else "%N",
        node_index=index,
        rank=replica,
        restarts=max(job.generation - 1, 0),
    )
    return fill_pattern(pattern, names)


def _node_index(job: JobView, replica: int) -> int:
    """Which of the job's nodes a replica lies on: by how many devices it holds on each, replica after replica."""
    each = job.device_milli // max(job.replicas, 1) // MILLI
    for index, (_, devices) in enumerate(job.devices):
        count = max(len(devices) // each, 1) if each else 1
        if replica < count:
            return index
        replica -= count
    return max(len(job.nodes) - 1, 0)


def _values(names: FileNames) -> Mapping[str, str]:
    job = str(names.job)
    task = _NO_TASK if names.task is None else names.task
    return {
        "j": job,
        "J": job,
        "s": "0",
        "A": str(names.array if names.array is not None else names.job),
        "a": str(task),
        "b": str(task % 10),
        "x": _one_component(names.name),
        "u": _one_component(names.user),
        "N": _one_component(names.node.partition(".")[0]),
        "n": str(names.node_index),
        "t": str(names.rank),
        "r": str(names.restarts),
    }


def _one_component(text: str) -> str:
    """A value from outside stays within its directory: no slash, and neither `.` nor `..`."""
    text = text.replace("/", "_").replace("\0", "_")
    return "_" * len(text) if text in (".", "..") else text
