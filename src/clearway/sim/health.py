"""Which simulated nodes and devices are down, and which jobs lie on each node. Kept only where something can fail."""

import numpy as np
from numpy.typing import NDArray

from clearway.model.allocation import Allocation
from clearway.model.cluster import ClusterSpec
from clearway.sim.outages import Outage


class Health:
    """Jobs are named by their row, nodes and devices by their index."""

    __slots__ = ("_begins", "_device_up", "_node_up", "_rows_on")

    def __init__(self, cluster: ClusterSpec) -> None:
        counts = np.array([node.device_count for node in cluster.nodes], dtype=np.int64)
        self._begins: NDArray[np.int64] = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
        self._node_up = np.ones(len(counts), dtype=np.bool_)
        self._device_up = np.ones(int(self._begins[-1]), dtype=np.bool_)
        self._rows_on: list[dict[int, None]] = [{} for _ in cluster.nodes]

    def enter(self, row: int, allocation: Allocation) -> None:
        """The job lies on the nodes of `allocation` too."""
        for node in allocation.nodes.tolist():
            self._rows_on[node][row] = None

    def leave(self, row: int, allocation: Allocation) -> None:
        """The job lies on the nodes of `allocation` no more."""
        for node in allocation.nodes.tolist():
            self._rows_on[node].pop(row, None)

    def can_run(self, allocation: Allocation) -> bool:
        """Whether all of it is up."""
        return bool(self._node_up[allocation.nodes].all() and self._device_up[allocation.devices].all())

    def note(self, outage: Outage) -> int:
        """Remember a change. Returns how many devices are healthy, on nodes that are up."""
        if outage.device is None:
            self._node_up[outage.node] = not outage.is_down
        else:
            self._device_up[self.device_index(outage.node, outage.device)] = not outage.is_down
        healthy_before: NDArray[np.int64] = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self._device_up)))
        healthy = healthy_before[self._begins[1:]] - healthy_before[self._begins[:-1]]
        return int(healthy[self._node_up].sum())

    def rows_on(self, node: int) -> list[int]:
        """Rows of the jobs that lie on a node."""
        return list(self._rows_on[node])

    def device_index(self, node: int, device: int) -> int:
        """Global index of a node's device."""
        return int(self._begins[node]) + device
