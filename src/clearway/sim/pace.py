"""How fast a job runs on given devices: the device models, the number of replicas, the nodes that they span.

A gang runs at the speed of its slowest member. A job with a measured profile runs as `SpeedModel` says; any other runs
at its device model's speed times its own speed-up relative to the replicas that it asked for. A job on a share of a
device runs at the speed that its trace gives it: sharing is in its run time already. A power cap slows a job as
`model.power` says, by the device that it slows most on any of its nodes. Where the cluster says how fast its links are,
a gang without a profile pays for what its members exchange as `model.links` says, relative to the best placement.
"""

import numpy as np
from numpy.typing import NDArray

from clearway.model.allocation import Allocation
from clearway.model.cluster import ClusterSpec
from clearway.model.jobs import DomainLevel, Elastic
from clearway.model.links import pace_of
from clearway.model.power import WHOLE_PPM, capped_speed_ppm
from clearway.sim.profiles import SpeedModel
from clearway.sim.progress import REFERENCE_PPM
from clearway.sim.workload import TraceJob


class Pace:
    """Speeds in millionths of the reference speed, on one cluster. is_plain: all its devices run at that speed now."""

    __slots__ = (
        "_cache",
        "_caps_ppm",
        "_device_kind",
        "_is_uniform",
        "_kinds",
        "_links",
        "_nodes",
        "_speeds",
        "is_plain",
    )

    def __init__(self, cluster: ClusterSpec, speeds: SpeedModel | None) -> None:
        groups = [group for node in cluster.nodes for group in node.groups]
        codes: dict[tuple[str, float], int] = {}
        kinds = [codes.setdefault((group.model, group.speed), len(codes)) for group in groups]
        self._kinds = tuple(codes)
        self._device_kind: NDArray[np.int64] = np.repeat(
            np.array(kinds, dtype=np.int64), np.array([group.count for group in groups], dtype=np.int64)
        )
        self._links = dict(cluster.links)
        self.is_plain = self._is_uniform = all(speed == 1.0 for _, speed in codes) and not self._links
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
        self.is_plain = self._is_uniform and not self._caps_ppm

    def _slowed(self, ppm: int, allocation: Allocation) -> int:
        """A speed under the lowest cap among the nodes of an allocation."""
        lowest = min((self._caps_ppm.get(node, WHOLE_PPM) for node in allocation.nodes.tolist()), default=WHOLE_PPM)
        return ppm * lowest // WHOLE_PPM

    def ppm(self, job: TraceJob, allocation: Allocation) -> int:
        """Speed of `job` on `allocation`; at least 1."""
        elastic = job.spec.elastic
        if self.is_plain and not job.profile and (elastic is None or allocation.replicas == job.spec.replicas):
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
        return round(slowest * growth * self._linked(allocation) * REFERENCE_PPM)

    def _linked(self, allocation: Allocation) -> float:
        """Speed where the allocation lies, as a part of that of so many devices on as few nodes as hold them."""
        members = len(allocation.devices)
        if not self._links or members < 2:
            return 1.0
        places = np.unique(allocation.nodes).tolist()
        size = max(self._nodes[place].device_count for place in places)
        fewest = -(-members // size)
        across = DomainLevel.NVLINK if self._nodes[places[0]].nvlink else DomainLevel.LEAF
        best = pace_of(self._links, DomainLevel.NODE if fewest == 1 else across, fewest, -(-members // fewest))
        return pace_of(self._links, self._level(places), len(places), -(-members // len(places))) / best

    def _level(self, places: list[int]) -> DomainLevel:
        """The narrowest domain that holds all these nodes."""
        if len(places) < 2:
            return DomainLevel.NODE
        nodes = [self._nodes[place] for place in places]
        for level in (DomainLevel.NVLINK, DomainLevel.LEAF, DomainLevel.BLOCK):
            names = {getattr(node, level.value) for node in nodes}
            if len(names) == 1 and "" not in names:
                return level
        return DomainLevel.SITE

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
