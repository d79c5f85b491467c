"""The table of formats, and the two calls that use it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from clearway.model.errors import InputError
from clearway.sim.traces.philly import read_philly, recognise_philly
from clearway.sim.traces.source import ProgressCallback, read_head
from clearway.sim.traces.swf import read_swf, recognise_swf
from clearway.sim.workload import Workload

Reader = Callable[[Path, "ReadSettings"], Workload]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """limit: keep the first so many jobs in submit order. seed: for formats whose arrivals are drawn (servegen)."""

    limit: int | None = None
    seed: int = 0
    progress: ProgressCallback | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """One format. recognises: whether the first lines of a file are certainly of this format."""

    name: str
    summary: str
    recognises: Callable[[tuple[str, ...]], bool]
    read: Reader


_ALL = (
    TraceFormat(
        name="swf",
        summary="Standard Workload Format (Parallel Workloads Archive)",
        recognises=recognise_swf,
        read=lambda path, settings: read_swf(path, settings.limit, settings.progress),
    ),
    TraceFormat(
        name="philly",
        summary="Philly job list as CSV: timestamp,duration,num_gpus,gpu_time,cluster",
        recognises=recognise_philly,
        read=lambda path, settings: read_philly(path, settings.limit, settings.progress),
    ),
)

FORMATS: Mapping[str, TraceFormat] = MappingProxyType({entry.name: entry for entry in _ALL})
"""Every format by the name that `--format` takes."""


def detect_format(path: str | Path) -> str:
    """The name of the format of a trace file, told by its first lines. InputError where that is not certain."""
    head = read_head(Path(path))
    found = [entry.name for entry in FORMATS.values() if entry.recognises(head)]
    if len(found) == 1:
        return found[0]
    seen = f"a file that could be {' or '.join(found)}" if found else f"a first line of {_first_words(head)}"
    raise InputError(f"{path}: expected a trace of a known format, found {seen}; {_say_which()}")


def read_workload(
    path: str | Path,
    *,
    format: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Workload:
    """Read a trace into jobs sorted by (submit, id), in ms since the first submit of the jobs kept.

    format: a name in `FORMATS`; None = recognise it. limit: keep the first so many jobs in submit order. progress:
    called with (bytes done, bytes in all). InputError for an unknown format, an unreadable file, or nothing usable.
    """
    if limit is not None and limit < 1:
        raise InputError(f"--limit: expected 1 job or more, found {limit}; leave it out to read the whole trace")
    name = format if format is not None else detect_format(path)
    if name not in FORMATS:
        raise InputError(f"--format: expected a known format, found {name!r}; {_say_which()}")
    return FORMATS[name].read(Path(path), ReadSettings(limit=limit, seed=seed, progress=progress))


def _first_words(head: tuple[str, ...]) -> str:
    first = next((line for line in head if line.strip()), "")
    return repr(first[:60]) if first else "nothing (it is empty)"


def _say_which() -> str:
    return f"say which by --format, one of: {', '.join(FORMATS)}"
