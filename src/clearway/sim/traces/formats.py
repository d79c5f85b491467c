"""The table of formats, and the two calls that use it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from clearway.model.errors import InputError
from clearway.sim.generate import SPEC_PREFIX, is_synthetic
from clearway.sim.synthetic import generate_from_spec, recognise_model
from clearway.sim.text_files import ProgressCallback, read_head
from clearway.sim.traces.assemble import cut_workload
from clearway.sim.traces.gavel import read_gavel, recognise_gavel
from clearway.sim.traces.genai import read_genai, recognise_genai
from clearway.sim.traces.inventories import is_inventory
from clearway.sim.traces.openb import read_dlrm, read_openb, recognise_dlrm, recognise_openb
from clearway.sim.traces.others import say_what_it_is
from clearway.sim.traces.philly import read_philly, recognise_philly
from clearway.sim.traces.pollux import read_pollux, recognise_pollux
from clearway.sim.traces.requests import (
    read_azure,
    read_mooncake,
    read_servegen,
    recognise_azure,
    recognise_mooncake,
    recognise_servegen,
)
from clearway.sim.traces.sacct import read_eagle, read_sacct, recognise_eagle, recognise_sacct
from clearway.sim.traces.snapshot import read_snapshot, recognise_snapshot
from clearway.sim.traces.swf import read_swf, recognise_swf
from clearway.sim.workload import Workload

Reader = Callable[[Path, "ReadSettings"], Workload]
PlainReader = Callable[[Path, int | None, ProgressCallback | None], Workload]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """limit: keep the first so many jobs in submit order. seed: for formats that draw (servegen, synthetic)."""

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


def _plain(read: PlainReader) -> Reader:
    """A reader that needs no seed."""
    return lambda path, settings: read(path, settings.limit, settings.progress)


def _never(_: tuple[str, ...]) -> bool:
    """For a format whose files are recognised under another name."""
    return False


def _read_servegen(path: Path, settings: ReadSettings) -> Workload:
    return read_servegen(path, settings.limit, settings.seed, settings.progress)


def _read_synthetic(path: Path, settings: ReadSettings) -> Workload:
    return cut_workload(generate_from_spec(f"{SPEC_PREFIX}{path}", settings.seed), settings.limit)


_ALL = (
    TraceFormat(
        name="snapshot",
        summary="A cluster that runs, as `clearway snapshot` writes it",
        recognises=recognise_snapshot,
        read=_plain(read_snapshot),
    ),
    TraceFormat(
        name="swf",
        summary="Standard Workload Format (Parallel Workloads Archive)",
        recognises=recognise_swf,
        read=_plain(read_swf),
    ),
    TraceFormat(
        name="philly",
        summary="Philly job list as CSV: timestamp,duration,num_gpus,gpu_time,cluster",
        recognises=recognise_philly,
        read=_plain(read_philly),
    ),
    TraceFormat(
        name="sacct",
        summary="Slurm's sacct --parsable2, with a header or in XDMoD's columns",
        recognises=recognise_sacct,
        read=_plain(read_sacct),
    ),
    TraceFormat(
        name="eagle",
        summary="NREL Eagle jobs as CSV",
        recognises=recognise_eagle,
        read=_plain(read_eagle),
    ),
    TraceFormat(
        name="openb",
        summary="Alibaba GPU-sharing pods (cluster-trace-gpu-v2023)",
        recognises=recognise_openb,
        read=_plain(read_openb),
    ),
    TraceFormat(
        name="gavel",
        summary="Gavel job traces, with the throughput table in a folder above",
        recognises=recognise_gavel,
        read=_plain(read_gavel),
    ),
    TraceFormat(
        name="pollux",
        summary="Pollux workloads, with the profiles in a folder above",
        recognises=recognise_pollux,
        read=_plain(read_pollux),
    ),
    TraceFormat(
        name="sia",
        summary="Sia workloads: recognised and read as pollux",
        recognises=_never,
        read=_plain(read_pollux),
    ),
    TraceFormat(
        name="azure-llm",
        summary="Azure LLM inference requests",
        recognises=recognise_azure,
        read=_plain(read_azure),
    ),
    TraceFormat(
        name="mooncake",
        summary="Mooncake LLM requests, one JSON object a line",
        recognises=recognise_mooncake,
        read=_plain(read_mooncake),
    ),
    TraceFormat(
        name="servegen",
        summary="ServeGen client rates; requests are drawn with the seed",
        recognises=recognise_servegen,
        read=_read_servegen,
    ),
    TraceFormat(
        name="synthetic",
        summary="A model that `clearway trace fit` wrote; 10,000 jobs are drawn with the seed",
        recognises=recognise_model,
        read=_read_synthetic,
    ),
    TraceFormat(
        name="alibaba-genai",
        summary="Alibaba image requests (cluster-trace-v2026-GenAI)",
        recognises=recognise_genai,
        read=_plain(read_genai),
    ),
    TraceFormat(
        name="alibaba-dlrm",
        summary="Alibaba recommendation-model instances (cluster-trace-gpu-v2025)",
        recognises=recognise_dlrm,
        read=_plain(read_dlrm),
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
    raise InputError(f"{path}: expected a trace of a known format, found {seen}; {_say_what_else(Path(path), head)}")


def _say_what_else(path: Path, head: tuple[str, ...]) -> str:
    """What a file that is no list of jobs is for, told by its first line; else how to say which format it has."""
    if is_inventory(path):
        return "it is a list of nodes: give it to --cluster"
    return say_what_it_is(head) or _say_which()


def read_workload(
    path: str | Path,
    *,
    format: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Workload:
    """Read a trace into jobs sorted by (submit, id), in ms since the first submit of the jobs kept.

    path: a file, or `synthetic:…`, which draws a workload with the seed (`sim.generate`). format: a name in
    `FORMATS`; None = recognise it. limit: keep the first so many jobs in submit order. progress: called with (bytes
    done, bytes in all). InputError for an unknown format, an unreadable file, or nothing usable.
    """
    if limit is not None and limit < 1:
        raise InputError(f"--limit: expected 1 job or more, found {limit}; leave it out to read the whole trace")
    if is_synthetic(str(path)):
        return cut_workload(generate_from_spec(str(path), seed), limit)
    name = format if format is not None else detect_format(path)
    if name not in FORMATS:
        raise InputError(f"--format: expected a known format, found {name!r}; {_say_which()}")
    return FORMATS[name].read(Path(path), ReadSettings(limit=limit, seed=seed, progress=progress))


def _first_words(head: tuple[str, ...]) -> str:
    first = next((line for line in head if line.strip()), "")
    return repr(first[:60]) if first else "nothing (it is empty)"


def _say_which() -> str:
    return f"say which by --format, one of: {', '.join(FORMATS)}"
