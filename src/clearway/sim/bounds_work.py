"""What every job must at least cost, on every type of device that may run it: the input of all bounds.

Each number is the best case of its job, so that bounds built on them hold for every schedule: preemptive or not,
elastic or not, with any mixture of device types. Dependencies, not-before times and topology are left out, which can
only lower a bound.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.jobs import Elastic, JobSpec, Request
from clearway.model.units import FOREVER_MS, MILLI
from clearway.sim.bounds_ceiling import SpeedCeiling, ceiling_of_spec
from clearway.sim.workload import TraceJob

FloatColumn = NDArray[np.float64]
FloatTable = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]

FABRIC_LABEL: Final = "fabric"
"""The node label that `Network.fabric` asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTable:
    """n jobs that can run on the cluster, sorted by release, on T device types.

    release_ms, run_min_ms: float64[n]; the shortest possible time from start to end. area_ms: float64[n, T], least
    device-time on each type, infinite where the job may not run. area_max_ms: float64[n], most device-time without
    work done twice. devices: float64[T], how many there are. speed: float64[T]. left_out: jobs that cannot run at all.
    """

    release_ms: FloatColumn
    run_min_ms: FloatColumn
    area_ms: FloatTable
    area_max_ms: FloatColumn
    devices: FloatColumn
    speed: FloatColumn
    left_out: int

    def __len__(self) -> int:
        return len(self.release_ms)


def tabulate_work(
    jobs: Sequence[TraceJob],
    cluster: ClusterSpec,
    *,
    include: BoolColumn | None = None,
    ceiling: SpeedCeiling = ceiling_of_spec,
) -> WorkTable:
    """The work of `jobs` on `cluster`. include: bool[jobs], which to look at (None = all)."""
    chosen = jobs if include is None else [job for job, is_in in zip(jobs, include, strict=True) if is_in]
    types = _DeviceTypes(cluster, chosen)
    rows = _classify(chosen, types, ceiling)
    run = np.fromiter((job.run_ms for job in chosen), dtype=np.float64, count=len(chosen))
    limit = np.fromiter((_limit_ms(job.spec) for job in chosen), dtype=np.float64, count=len(chosen))
    release = np.fromiter((job.submit_ms for job in chosen), dtype=np.float64, count=len(chosen))
    area = _areas(rows, run, limit)
    fits = np.isfinite(area).any(axis=1) if types.count else np.zeros(len(chosen), dtype=np.bool_)
    order = np.flatnonzero(fits)[np.argsort(release[fits], kind="stable")]
    return WorkTable(
        release_ms=release[order],
        run_min_ms=np.minimum(run / rows.rate, limit)[order],
        area_ms=area[order],
        area_max_ms=np.minimum(rows.devices * run / rows.efficiency_min, rows.devices_max * limit)[order],
        devices=types.devices,
        speed=types.speed,
        left_out=len(chosen) - len(order),
    )


class _DeviceTypes:
    """The distinct types of devices of a cluster, as far as `jobs` can tell them apart, and the pools of each."""

    def __init__(self, cluster: ClusterSpec, jobs: Sequence[TraceJob]) -> None:
        asked = {key for job in jobs for key, _ in job.spec.request.node_labels} | {FABRIC_LABEL}
        self.pools: Counter[tuple[int, int, int, int]] = Counter()
        self.groups: list[DeviceGroup] = []
        self.labels: list[tuple[tuple[str, str], ...]] = []
        self._index: dict[tuple[str, float, int, tuple[tuple[str, str], ...]], int] = {}
        for node in cluster.nodes:
            labels = tuple(pair for pair in sorted(node.labels) if pair[0] in asked)
            for group in node.groups:
                self.pools[self._type_of(group, labels), group.count, *_room(node)] += 1
        self.count = len(self.groups)
        self.speed = np.array([group.speed for group in self.groups])
        self.devices = np.zeros(self.count)
        for (kind, size, _, _), times in self.pools.items():
            self.devices[kind] += size * times

    def _type_of(self, group: DeviceGroup, labels: tuple[tuple[str, str], ...]) -> int:
        key = (group.model, group.speed, group.memory_bytes, labels)
        if key not in self._index:
            self._index[key] = len(self.groups)
            self.groups.append(group)
            self.labels.append(labels)
        return self._index[key]

    def eligible(self, spec: JobSpec) -> BoolColumn:
        """bool[T]: types that may run replicas of `spec`; none at all where the cluster is too small for the job."""
        wanted = set(spec.request.node_labels)
        if spec.network.fabric:
            wanted.add((FABRIC_LABEL, spec.network.fabric))
        allowed = np.array(
            [
                _model_fits(spec.request, group) and wanted <= set(labels)
                for group, labels in zip(self.groups, self.labels, strict=True)
            ],
            dtype=np.bool_,
        )
        places = sum(
            times * _replicas_in_pool(spec.request, size, cpu, memory)
            for (kind, size, cpu, memory), times in self.pools.items()
            if allowed[kind]
        )
        return allowed if places >= spec.replicas_min else np.zeros_like(allowed)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Per job: devices asked and most devices (whole), shortest and longest range factors; per type: efficiency."""

    devices: FloatColumn
    devices_min: FloatColumn
    devices_max: FloatColumn
    rate: FloatColumn
    efficiency_min: FloatColumn
    efficiency: FloatTable


def _classify(jobs: Sequence[TraceJob], types: _DeviceTypes, ceiling: SpeedCeiling) -> _Rows:
    """Jobs that differ in times only share one class, so that eligibility is found once for each class."""
    index: dict[tuple[Request, str, int, Elastic | None, str], int] = {}
    members: list[TraceJob] = []
    codes = np.empty(len(jobs), dtype=np.int64)
    for row, job in enumerate(jobs):
        spec = job.spec
        key = (spec.request, spec.network.fabric, spec.replicas, spec.elastic, job.profile)
        code = index.setdefault(key, len(members))
        if code == len(members):
            members.append(job)
        codes[row] = code
    per_class = [_class_row(job, types, ceiling) for job in members]
    table = np.array(per_class, dtype=np.float64).reshape(len(members), 5 + types.count)[codes]
    return _Rows(table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4], table[:, 5:])


def _class_row(job: TraceJob, types: _DeviceTypes, ceiling: SpeedCeiling) -> list[float]:
    """devices, devices_min, devices_max, rate, efficiency_min, then the efficiency on each type (0 = may not run)."""
    spec = job.spec
    allowed = types.eligible(spec)
    ceilings = [ceiling(job, group) if fits else None for group, fits in zip(types.groups, allowed, strict=True)]
    usable = [found for found in ceilings if found is not None]
    each = spec.request.device_milli / MILLI
    return [
        each * spec.replicas,
        each * spec.replicas_min,
        each * spec.replicas_max,
        max((found.rate for found in usable), default=1.0),
        min((found.efficiency_min for found in usable), default=1.0),
        *(found.efficiency_max if found else 0.0 for found in ceilings),
    ]


def _areas(rows: _Rows, run: FloatColumn, limit: FloatColumn) -> FloatTable:
    """float64[n, T]: least device-time by type. A run ends by itself or, at its fewest devices, by its limit."""
    is_allowed = rows.efficiency > 0
    area = np.minimum(
        (rows.devices * run)[:, None] / np.where(is_allowed, rows.efficiency, 1.0),
        (rows.devices_min * limit)[:, None],
    )
    return np.where(is_allowed, area, np.inf)


def _limit_ms(spec: JobSpec) -> int:
    return FOREVER_MS if spec.limit_ms is None else spec.limit_ms


def _room(node: NodeSpec) -> tuple[int, int]:
    """CPUs (milli) and memory (bytes) of a node; FOREVER_MS, larger than any, where it does not count them."""
    return (
        FOREVER_MS if node.cpu_milli is None else node.cpu_milli,
        FOREVER_MS if node.memory_bytes is None else node.memory_bytes,
    )


def _model_fits(request: Request, group: DeviceGroup) -> bool:
    if request.device_models and group.model not in request.device_models:
        return False
    return not group.memory_bytes or request.device_memory_bytes <= group.memory_bytes


def _replicas_in_pool(request: Request, devices: int, cpu_milli: int, memory_bytes: int) -> int:
    """At most this many replicas lie in one pool of an otherwise empty node."""
    fit = devices * (MILLI // request.share_milli) // request.devices if request.devices else FOREVER_MS
    if request.cpu_milli:
        fit = min(fit, cpu_milli // request.cpu_milli)
    if request.memory_bytes:
        fit = min(fit, memory_bytes // request.memory_bytes)
    return fit
