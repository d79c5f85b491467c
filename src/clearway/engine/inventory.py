"""The cluster's hardware as tables: nodes, pools of equal devices, devices, and their places in the topology."""

import numpy as np
from numpy.typing import NDArray

from clearway.engine.crowds import Crowds
from clearway.engine.nodes import UNCOUNTED, Eligibility, Names, model_number
from clearway.engine.place import TOTALS
from clearway.engine.tables import (
    DEVICE_CLAIM,
    DEVICE_COLUMNS,
    DEVICE_HEALTHY,
    DEVICE_MEM_FREE,
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARE_FREE,
    LEVEL_BLOCK,
    LEVEL_LEAF,
    LEVEL_NVLINK,
    NODE_BLOCK,
    NODE_COLUMNS,
    NODE_CPU_FREE,
    NODE_CPU_TOTAL,
    NODE_LEAF,
    NODE_MEM_FREE,
    NODE_MEM_TOTAL,
    NODE_NVLINK,
    NODE_POOL_BEGIN,
    NODE_POOL_END,
    NODE_USABLE,
    NONE,
    POOL_COLUMNS,
    POOL_DEVICE_BEGIN,
    POOL_DEVICE_MEM,
    POOL_FREE,
    POOL_MASK,
    POOL_MODEL,
    POOL_NODE,
    POOL_NVLINK_SIZE,
    POOL_SIZE,
    POOL_SPEED_PPM,
    POOL_WATTS,
    Table,
    grow_table,
    make_table,
)
from clearway.model.cluster import DeviceGroup, NodeSpec, added_groups
from clearway.model.errors import InputError

WHOLE_PPM = 1_000_000


class Inventory:
    """Tables of hardware. `node_count`, `pool_count` and `device_count` rows are in use; the rest is spare.

    A node that is down or drained keeps its rows; `is_up` and `is_drained` say why it is not usable.
    """

    def __init__(self) -> None:
        self.specs: list[NodeSpec] = []
        self.names = Names()
        self.models = Names()
        self.eligibility = Eligibility()
        self.crowds = Crowds()
        self.nodes: Table = make_table(NODE_COLUMNS, 16)
        self.pools: Table = make_table(POOL_COLUMNS, 16)
        self.devices: Table = make_table(DEVICE_COLUMNS, 64)
        self.totals: NDArray[np.int64] = np.zeros(TOTALS, dtype=np.int64)
        self.pool_count = 0
        self.device_count = 0
        self.is_up: list[bool] = []
        self.is_drained: list[bool] = []
        self._leaves = Names()
        self._blocks = Names()
        self._nvlinks = Names()

    @property
    def node_count(self) -> int:
        """Nodes ever added."""
        return len(self.specs)

    @property
    def milli(self) -> int:
        """All devices, healthy or not, in thousandths."""
        return 1000 * self.device_count

    def index(self, name: str) -> int:
        """The index of a node; an unknown name is an error of the driver that sent it."""
        node = self.names.find(name)
        if node == NONE:
            raise InputError(f"node {name!r}: expected a node that was added, found none of that name")
        return node

    def add(self, spec: NodeSpec) -> int:
        """One more node, all its devices free and healthy; returns its index."""
        if self.names.find(spec.name) != NONE:
            raise InputError(f"node {spec.name!r}: expected a new name, found a node of that name already added")
        node = self.names.number(spec.name)
        self.specs.append(spec)
        self.is_up.append(True)
        self.is_drained.append(False)
        self.eligibility.add_node(spec.name, spec.labels)
        self.crowds.add_node(spec)
        self.nodes = grow_table(self.nodes, node + 1)
        begin = self.pool_count
        for group in spec.groups or (None,):
            self._add_pool(node, group)
        self._write_node(node, spec, begin)
        return node

    def change(self, spec: NodeSpec) -> int:
        """The node of that name has other CPUs, memory, labels or neighbours, or the last one more devices, which are
        sick at first; returns its index.

        What is free changes by as much as the total, and falls below zero while more is held than there is.
        """
        node = self.index(spec.name)
        known = self.specs[node]
        added = () if spec.groups == known.groups else added_groups(known, spec)
        is_same = (spec.nvlink, spec.leaf, spec.block) == (known.nvlink, known.leaf, known.block)
        if added is None or not is_same or (added and not self.can_grow(node)):
            raise InputError(f"node {spec.name!r}: expected its devices and place as before, found others")
        self._grow(node, added)
        self.specs[node] = spec
        self.eligibility.set_node(node, spec.labels)
        self.crowds.set_node(node, spec)
        column = self.nodes[:, node]
        for total, free, amount in (
            (NODE_CPU_TOTAL, NODE_CPU_FREE, spec.cpu_milli),
            (NODE_MEM_TOTAL, NODE_MEM_FREE, spec.memory_bytes),
        ):
            now = UNCOUNTED if amount is None else amount
            column[free] += now - column[total]
            column[total] = now
        return node

    def can_grow(self, node: int) -> bool:
        """Whether devices of the node can be numbered behind those that it has: nothing else comes after them."""
        return int(self.nodes[NODE_POOL_END, node]) == self.pool_count

    def _grow(self, node: int, added: tuple[DeviceGroup, ...]) -> None:
        for group in added:
            begin, model = self.device_count, model_number(self.models, group.model)
            pool = int(self.nodes[NODE_POOL_END, node]) - 1
            if self.pools[POOL_MODEL, pool] == model:
                self.pools[POOL_SIZE, pool] += group.count
                self._add_devices(pool, group)
            else:
                self._add_pool(node, group)
                pool = self.pool_count - 1
                self.totals[[model, TOTALS - 1]] -= group.count
                self.pools[[POOL_FREE, POOL_MASK], pool] = 0
                self.nodes[NODE_POOL_END, node] = self.pool_count
            self.pools[POOL_NVLINK_SIZE, pool] = group.nvlink_size or self.pools[POOL_SIZE, pool]
            self.devices[DEVICE_HEALTHY, begin : self.device_count] = 0

    def _write_node(self, node: int, spec: NodeSpec, pool_begin: int) -> None:
        column = self.nodes[:, node]
        column[NODE_USABLE] = 1
        column[NODE_CPU_TOTAL] = column[NODE_CPU_FREE] = UNCOUNTED if spec.cpu_milli is None else spec.cpu_milli
        column[NODE_MEM_TOTAL] = column[NODE_MEM_FREE] = UNCOUNTED if spec.memory_bytes is None else spec.memory_bytes
        column[NODE_POOL_BEGIN] = pool_begin
        column[NODE_POOL_END] = self.pool_count
        column[NODE_NVLINK] = self._nvlinks.number(spec.nvlink) if spec.nvlink else NONE
        # A node that names no leaf or block is alone in one; the prefix keeps such names from meeting real ones.
        column[NODE_LEAF] = self._leaves.number(f"={spec.leaf}" if spec.leaf else f"alone {spec.name}")
        column[NODE_BLOCK] = self._blocks.number(f"={spec.block}" if spec.block else f"alone {spec.name}")

    def _add_pool(self, node: int, group: DeviceGroup | None) -> None:
        pool = self.pool_count
        self.pool_count += 1
        self.pools = grow_table(self.pools, self.pool_count)
        column = self.pools[:, pool]
        column[POOL_NODE] = node
        column[POOL_DEVICE_BEGIN] = self.device_count
        column[POOL_MODEL] = NONE
        column[POOL_SPEED_PPM] = WHOLE_PPM
        if group is None:
            return
        model = model_number(self.models, group.model)
        column[POOL_MODEL] = model
        column[POOL_SIZE] = column[POOL_FREE] = group.count
        column[POOL_MASK] = (1 << group.count) - 1
        column[POOL_DEVICE_MEM] = group.memory_bytes
        column[POOL_SPEED_PPM] = round(group.speed * WHOLE_PPM)
        column[POOL_NVLINK_SIZE] = group.nvlink_size or group.count
        column[POOL_WATTS] = group.watts_max
        self.totals[model] += group.count
        self.totals[TOTALS - 1] += group.count
        self._add_devices(pool, group)

    def _add_devices(self, pool: int, group: DeviceGroup) -> None:
        begin = self.device_count
        self.device_count += group.count
        self.devices = grow_table(self.devices, self.device_count)
        columns = self.devices[:, begin : self.device_count]
        columns[DEVICE_POOL] = pool
        columns[DEVICE_SHARE_FREE] = 1000
        columns[DEVICE_MEM_FREE] = group.memory_bytes
        columns[DEVICE_OWNER] = NONE
        columns[DEVICE_HEALTHY] = 1
        columns[DEVICE_CLAIM] = NONE

    @property
    def used_levels(self) -> int:
        """Bit mask of topology levels at which some domain holds two nodes."""
        nodes = self.node_count
        used = {
            LEVEL_NVLINK: len(self._nvlinks) > 0,
            LEVEL_LEAF: len(self._leaves) < nodes,
            LEVEL_BLOCK: len(self._blocks) < nodes,
        }
        return sum(1 << level for level, is_used in used.items() if is_used)

    def device_index(self, node: str, device: int) -> int:
        """The global index of device number `device` of a node."""
        index = self.index(node)
        if not 0 <= device < self.specs[index].device_count:
            raise InputError(
                f"node {node!r}: expected a device 0..{self.specs[index].device_count - 1}, found {device}"
            )
        return int(self.pools[POOL_DEVICE_BEGIN, self.nodes[NODE_POOL_BEGIN, index]]) + device
