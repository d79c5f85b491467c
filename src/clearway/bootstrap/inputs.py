"""What a person names on the command line, read into what the twin takes. InputError for what cannot be understood."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from clearway.bootstrap.documents import read_document
from clearway.model.cluster import ClusterSpec, QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.sim.faults import DEFAULT_FAULTS, Fault, fit_faults, sample_faults
from clearway.sim.fit_quality import FitQuality, judge_fit
from clearway.sim.fitting import fit_model
from clearway.sim.generate import SyntheticModel, is_synthetic
from clearway.sim.model_file import render_model
from clearway.sim.profiles import SpeedModel, find_speed_model
from clearway.sim.synthetic import generate_from_spec
from clearway.sim.traces import (
    FORMATS,
    describe_workload,
    detect_format,
    is_inventory,
    read_cluster,
    read_workload,
    write_swf,
)
from clearway.sim.workload import Workload
from clearway.wire.cluster import parse_cluster_file, parse_cluster_short
from clearway.wire.site import parse_site_file

__all__ = [
    "NamedCluster",
    "ProgressCallback",
    "Site",
    "choose_cluster",
    "describe_workload",
    "find_speeds",
    "fit_trace",
    "is_drawn",
    "read_faults",
    "read_site",
    "read_trace",
    "render_model",
    "trace_formats",
    "write_swf",
]

ProgressCallback = Callable[[int, int], None]
"""Called with (done, in all)."""

NO_FAULTS: Final = "none"
DEFAULT_FAULT_MODEL: Final = "default"
DRAWN_FORMATS: Final = ("servegen", "synthetic")
"""Formats whose arrivals are drawn with the seed, as the table of formats says of them."""

CLUSTER_SUFFIXES: Final = (".yaml", ".yml", ".json", ".csv", ".gz", ".txt")
"""What ends so was meant as a file."""

FAULT_STREAM: Final = 0xFA17
"""Keeps the failures of a seed apart from everything else that is drawn with it."""
FAULT_HORIZON_FACTOR: Final = 2
"""Failures are drawn up to this many times the span of the arrivals, and for the longest run behind it: a queue that is
not done by then is overloaded beyond what failures could change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCluster:
    """A cluster and what to call it in results."""

    name: str
    spec: ClusterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Queues and tenants of a site; none = the defaults of the model."""

    queues: tuple[QueueSpec, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()


def trace_formats() -> tuple[tuple[str, str], ...]:
    """(name, one line about it) of every format that can be read."""
    return tuple((entry.name, entry.summary) for entry in FORMATS.values())


def is_drawn(trace: str, format_name: str | None) -> bool:
    """Whether another seed gives another workload. InputError for a file whose format has to be said and is not."""
    if format_name is None and not is_synthetic(trace) and Path(trace).is_file():
        format_name = detect_format(trace)
    return is_synthetic(trace) or format_name in DRAWN_FORMATS


def read_trace(
    trace: str,
    *,
    format_name: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Workload:
    """The workload of a trace file, or of a `synthetic:` argument, of which `limit` keeps the first jobs."""
    if not is_synthetic(trace):
        return read_workload(trace, format=format_name, limit=limit, seed=seed, progress=progress)
    if format_name is not None:
        raise InputError(f"--format: expected none with {trace}, found {format_name!r}; leave it out")
    return keep_first(generate_from_spec(trace, seed), limit)


def fit_trace(workload: Workload, name: str, seed: int = 0) -> tuple[SyntheticModel, FitQuality]:
    """A synthetic model of a workload, and how well it fits. InputError when no job has a device."""
    model = fit_model(workload, name)
    return model, judge_fit(workload, model, seed)


def keep_first(workload: Workload, limit: int | None) -> Workload:
    """`workload` with the first `limit` jobs; None = all."""
    return workload if limit is None else replace(workload, jobs=workload.jobs[:limit])


def choose_cluster(spec: str | None, workload: Workload) -> NamedCluster:
    """The cluster that `spec` names: `1250x8`, `64x8:V100,32x4:A100`, a YAML file or a node inventory; without one, the
    cluster that the trace itself describes."""
    if spec is not None:
        return NamedCluster(name=spec, spec=_read_cluster_named(spec))
    if workload.cluster is None:
        raise InputError(
            f"--cluster: expected a cluster, found none, and {workload.name} does not describe its own; "
            "give one, for example --cluster 1250x8"
        )
    return NamedCluster(name=f"{workload.name} (its own)", spec=workload.cluster)


def _read_cluster_named(spec: str) -> ClusterSpec:
    path = Path(spec)
    if not spec.strip() or path.is_dir():
        found = "a folder" if spec.strip() else "nothing"
        raise InputError(f"--cluster {spec!r}: expected a cluster such as 64x8, or a file, found {found}; name one")
    if not path.exists():
        if path.suffix.lower() in CLUSTER_SUFFIXES or len(path.parts) > 1:
            raise InputError(f"--cluster {spec}: expected a cluster file, found no such file; check the path")
        return parse_cluster_short(spec)
    return read_cluster(path) if is_inventory(path) else parse_cluster_file(read_document(path), source=spec)


def read_site(path: Path | None) -> Site:
    """Queues and tenants of a YAML file."""
    if path is None:
        return Site()
    site = parse_site_file(read_document(path), source=str(path))
    return Site(queues=site.queues, tenants=site.tenants)


def read_faults(asked: str, cluster: ClusterSpec, workload: Workload, seed: int) -> tuple[Fault, ...]:
    """Failures for the time of the workload: none, drawn from the default model, or from one fitted to a log."""
    if asked == NO_FAULTS or not workload.jobs:
        return ()
    model = DEFAULT_FAULTS if asked == DEFAULT_FAULT_MODEL else fit_faults(_existing(asked)).model
    span_ms = workload.jobs[-1].submit_ms
    longest_ms = max(job.run_ms for job in workload.jobs)
    generator = np.random.default_rng([seed, FAULT_STREAM])
    return tuple(sample_faults(model, cluster, FAULT_HORIZON_FACTOR * (span_ms + longest_ms), generator))


def find_speeds(trace: str, workload: Workload) -> SpeedModel | None:
    """The measured speeds that belong to a trace; None where no job refers to any."""
    return find_speed_model(trace) if any(job.profile for job in workload.jobs) else None


def _existing(asked: str) -> Path:
    path = Path(asked)
    if not path.is_file():
        raise InputError(
            f"--faults: expected {NO_FAULTS}, {DEFAULT_FAULT_MODEL} or a failure log, found {asked!r}, "
            "which is no file; check the path"
        )
    return path
