"""Allocations out of arrays in which a scan, or a stretch, wrote nodes and devices one behind the other."""

import numpy as np
from numpy.typing import NDArray

from clearway.model.allocation import Allocation

IntArray = NDArray[np.int64]


class Allocations:
    """Makes them. Of those of one device there are only so many as devices, and each is made once."""

    __slots__ = ("_lone",)

    def __init__(self) -> None:
        self._lone: dict[int, Allocation] = {}

    def make(self, nodes: IntArray, node: int, replicas: int, devices: IntArray, device: int, count: int) -> Allocation:
        """nodes[node : node + replicas] with devices[device : device + count]."""
        if replicas != 1 or count != 1:
            return Allocation(nodes[node : node + replicas].copy(), devices[device : device + count].copy())
        number = int(devices[device])
        known = self._lone.get(number)
        if known is None:
            known = Allocation(nodes[node : node + 1].copy(), devices[device : device + 1].copy())
            self._lone[number] = known
        return known
