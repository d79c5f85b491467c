"""How fast a job can be at the very best on one type of device: what keeps the bounds below every schedule."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from clearway.model.cluster import DeviceGroup
from clearway.model.jobs import JobSpec
from clearway.model.units import MILLI
from clearway.sim.pace import speedup
from clearway.sim.profiles import SpeedModel
from clearway.sim.workload import TraceJob

NODES_MEASURED_MAX: Final = 16
"""No profile was measured on more nodes; a larger number runs as the largest measured."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How fast one job can be on one type of device, relative to its reference run.

    rate: highest speed, with any number of replicas that it may have. efficiency_max, efficiency_min: highest and
    lowest work per device-time, relative to the reference run. For a rigid job all three are the device's speed.
    """

    rate: float
    efficiency_max: float
    efficiency_min: float


class SpeedCeiling(Protocol):
    """Gives the ceiling of a job on a device group; the same for jobs of equal request, replicas, range and profile."""

    def __call__(self, job: TraceJob, group: DeviceGroup) -> Ceiling: ...


def ceiling_of_spec(job: TraceJob, group: DeviceGroup) -> Ceiling:
    """The ceiling by the device's `speed` and the job's own elastic range: for jobs without a speed profile."""
    return _ceiling(job.spec, [(replicas, rate * group.speed) for replicas, rate in _elastic_rates(job.spec)])


def ceiling_of_speeds(speeds: SpeedModel) -> SpeedCeiling:
    """Ceilings by measured profiles, over every number of replicas and of nodes that a job may have."""

    def find(job: TraceJob, group: DeviceGroup) -> Ceiling:
        if not job.profile:
            return ceiling_of_spec(job, group)
        return _ceiling(job.spec, _measured_rates(speeds, job, group))

    return find


def _ceiling(spec: JobSpec, rates: Iterable[tuple[int, float]]) -> Ceiling:
    pairs = list(rates)
    efficiencies = [rate * spec.replicas / replicas for replicas, rate in pairs]
    return Ceiling(
        rate=max(rate for _, rate in pairs), efficiency_max=max(efficiencies), efficiency_min=min(efficiencies)
    )


def _elastic_rates(spec: JobSpec) -> list[tuple[int, float]]:
    """(replicas, speed relative to `spec.replicas`) at the ends of the range and at all points of the curve inside.

    Between points the curve is straight, so speed and work per replica are extreme at these.
    """
    elastic = spec.elastic
    if elastic is None:
        return [(spec.replicas, 1.0)]
    inside = {count for count, _ in elastic.speedup if elastic.replicas_min <= count <= elastic.replicas_max}
    counts = sorted(inside | {elastic.replicas_min, elastic.replicas_max})
    reference = speedup(elastic, spec.replicas)
    return [(count, speedup(elastic, count) / reference) for count in counts]


def _measured_rates(speeds: SpeedModel, job: TraceJob, group: DeviceGroup) -> list[tuple[int, float]]:
    """(replicas, speed) for all shapes that a job with a profile may have; tables are not monotone, so all count."""
    spec = job.spec
    each = max(spec.request.device_milli // MILLI, 1)
    found = []
    for replicas in range(spec.replicas_min, spec.replicas_max + 1):
        growth = 1.0 if spec.elastic is None else speedup(spec.elastic, replicas) / speedup(spec.elastic, spec.replicas)
        for nodes in range(1, min(replicas, NODES_MEASURED_MAX) + 1):
            rate = speeds.speed(job.profile, group.model, replicas * each, nodes, device_speed=group.speed * growth)
            found.append((replicas, rate))
    return found
