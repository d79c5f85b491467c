"""How fast a job runs on given devices: the device models, the number of replicas, the nodes that they span.

A gang runs at the speed of its slowest member. A job with a measured profile runs as `SpeedModel` says; any other runs
at its device model's speed times its own speed-up relative to the replicas that it asked for. A job on a share of a
device runs at the speed that its trace gives it: sharing is in its run time already. A power cap slows a job as
`model.power` says, by the device that it slows most on any of its nodes.
"""

import numpy as np
from numpy.typing import NDArray

from clearway.model.allocation import Allocation
from clearway.model.cluster import ClusterSpec
from clearway.model.jobs import Elastic
from clearway.model.power import WHOLE_PPM, capped_speed_ppm
from clearway.sim.profiles import SpeedModel
from clearway.sim.progress import REFERENCE_PPM
from clearway.sim.workload import TraceJob


class Pace:
    """Speeds in millionths of the reference speed, on one cluster."""

    __slots__ = ("_cache", "_caps_ppm", "_device_kind", "_is_plain", "_is_uniform", "_kinds", "_nodes", "_speeds")

    def __init__(self, cluster: ClusterSpec, speeds: SpeedModel | None) -> None:
        groups = [group for node in cluster.nodes for group in node.groups]
        codes: dict[tuple[str, float], int] = {}
        kinds = [codes.setdefault((group.model, group.speed), len(codes)) for group in groups]
        self._kinds = tuple(codes)
        self._device_kind: NDArray[np.int64] = np.repeat(
            np.array(kinds, dtype=np.int64), np.array([group.count for group in groups], dtype=np.int64)
        )
        self._is_plain = self._is_uniform = all(speed == 1.0 for _, speed in codes)
        self._nodes = cluster.nodes
        self._caps_ppm: dict[int, int] = {}
        self._speeds = SpeedModel() if speeds is None else speeds
        self._cache: dict[tuple[str, int, int, int, float], int] = {}

    def cap(self, node: int, watts: int) -> None:
        """Limit the devices of a node to `watts` each; 0 lifts the limit."""
        self._caps_ppm.pop(node, None)
        if watts:
            groups = self._nodes[node].groups
            speeds = [capped_speed_ppm(group.watts_max, watts) for group in groups]
            self._caps_ppm[node] = min(speeds, default=WHOLE_PPM)
        self._is_plain = self._is_uniform and not self._caps_ppm

    def _slowed(self, ppm: int, allocation: Allocation) -> int:
        """A speed under the lowest cap among the nodes of an allocation."""
        lowest = min((self._caps_ppm.get(node, WHOLE_PPM) for node in allocation.nodes.tolist()), default=WHOLE_PPM)
        return ppm * lowest // WHOLE_PPM

    def ppm(self, job: TraceJob, allocation: Allocation) -> int:
        """Speed of `job` on `allocation`; at least 1."""
        elastic = job.spec.elastic
        if self._is_plain and not job.profile and (elastic is None or allocation.replicas == job.spec.replicas):
            return REFERENCE_PPM
        growth = 1.0
        if elastic is not None:
            growth = speedup(elastic, allocation.replicas) / speedup(elastic, job.spec.replicas)
        ppm = (
            self._measured_ppm(job.profile, allocation, growth) if job.profile else self._plain_ppm(allocation, growth)
        )
        if self._caps_ppm and len(allocation.devices):
            ppm = self._slowed(ppm, allocation)
        return max(1, ppm)

    def _plain_ppm(self, allocation: Allocation, growth: float) -> int:
        slowest = min((self._kinds[kind][1] for kind in self._device_kinds(allocation)), default=1.0)
        return round(slowest * growth * REFERENCE_PPM)

    def _device_kinds(self, allocation: Allocation) -> tuple[int, ...]:
        """Codes of the device models in an allocation, each once, rising."""
        if len(allocation.devices) == 1:
            return (int(self._device_kind[allocation.devices[0]]),)
        return tuple(np.unique(self._device_kind[allocation.devices]).tolist())

    def _measured_ppm(self, profile: str, allocation: Allocation, growth: float) -> int:
        kinds = self._device_kinds(allocation)
        workers = max(len(allocation.devices), allocation.replicas)
        nodes = len(np.unique(allocation.nodes))
        speeds = [self._lookup(profile, kind, workers, nodes, growth) for kind in kinds]
        return min(speeds, default=round(growth * REFERENCE_PPM))

    def _lookup(self, profile: str, kind: int, workers: int, nodes: int, growth: float) -> int:
        key = (profile, kind, workers, nodes, growth)
        known = self._cache.get(key)
        if known is None:
            model, device_speed = self._kinds[kind]
            speed = self._speeds.speed(profile, model, workers, nodes, device_speed=device_speed * growth)
            known = self._cache[key] = round(speed * REFERENCE_PPM)
        return known


def speedup(elastic: Elastic, replicas: int) -> float:
    """Speed with `replicas` relative to one, by `Elastic.speedup`: linear between its points, which (1, 1.0) begins
    where they do not, and constant beyond the last."""
    if not elastic.speedup:
        return float(replicas)
    points = dict([(1, 1.0), *elastic.speedup])
    return float(np.interp(replicas, list(points), list(points.values())))
