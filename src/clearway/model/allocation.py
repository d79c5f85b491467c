"""Which devices a job holds, by index into the state box's tables."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearway.model.values import made_often

IntArray = NDArray[np.int64]


@made_often
@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """nodes: int64[replicas], the node of each replica. devices: int64[replicas × devices per replica], global device
    indices, replica after replica. Both arrays are read-only. Indices are those of `ClusterState` (order in which
    nodes were added), and stay the same for the life of the state.
    """

    nodes: IntArray
    devices: IntArray

    def __post_init__(self) -> None:
        self.nodes.setflags(write=False)
        self.devices.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Allocation):
            return NotImplemented
        return np.array_equal(self.nodes, other.nodes) and np.array_equal(self.devices, other.devices)

    def __hash__(self) -> int:
        return hash((self.nodes.tobytes(), self.devices.tobytes()))

    def __repr__(self) -> str:
        return f"Allocation(nodes={self.nodes.tolist()}, devices={self.devices.tolist()})"

    @property
    def replicas(self) -> int:
        """Number of replicas that the allocation holds."""
        return len(self.nodes)
