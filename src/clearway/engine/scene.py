"""What-ifs about room: how many replicas would fit if things were otherwise. For explanations, paid only when asked.

A `Scene` says what each device and node would have to give; a `Need` what a job asks. Both are changed by making
another one, so that a question is a pair of values. NumPy over the tables, and nothing of the planner's own code: an
explanation that disagrees with the planner is found by `explain.check_reasons`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import RES_START
from clearway.engine.records import JobRecord
from clearway.engine.tables import (
    CLASS_CPU,
    CLASS_DEVICE_MEM,
    CLASS_DEVICES,
    CLASS_EXCLUSIVE,
    CLASS_LABELS,
    CLASS_MEM,
    CLASS_MODELS,
    CLASS_SHARE,
    DEVICE_CLAIM,
    DEVICE_HEALTHY,
    DEVICE_MEM_FREE,
    DEVICE_OWNER,
    DEVICE_POOL,
    DEVICE_SHARE_FREE,
    JOB_CLASS,
    JOB_WIDEST,
    LEVEL_BLOCK,
    LEVEL_LEAF,
    LEVEL_NODE,
    LEVEL_NVLINK,
    LEVEL_SITE,
    NODE_BLOCK,
    NODE_CPU_FREE,
    NODE_CPU_TOTAL,
    NODE_EXCLUSIVE,
    NODE_HOLDERS,
    NODE_LEAF,
    NODE_MEM_FREE,
    NODE_MEM_TOTAL,
    NODE_NVLINK,
    NODE_USABLE,
    NONE,
    POOL_DEVICE_MEM,
    POOL_MODEL,
    POOL_NODE,
)
from clearway.model.units import MILLI

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DOMAIN_COLUMNS = {LEVEL_NVLINK: NODE_NVLINK, LEVEL_LEAF: NODE_LEAF, LEVEL_BLOCK: NODE_BLOCK}
"""Column of the node table that numbers the domains of a level; a node is its own domain, the site is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a gang asks for: `replicas` times the rest, within one domain of level `widest`.

    models: bit mask of allowed models, NONE = any. labels: row of the eligibility table, 0 = every node.
    """

    replicas: int
    widest: int
    devices: int
    share: int
    device_memory: int
    models: int
    cpu: int
    memory: int
    labels: int
    is_exclusive: bool

    @property
    def milli(self) -> int:
        """Devices in all, thousandths."""
        return self.replicas * self.devices * self.share


def make_need(state: "ClusterState", record: JobRecord, replicas: int) -> Need:
    """The need of a job with so many replicas."""
    column = state.classes.table[:, state.rows.table[JOB_CLASS, record.row]].tolist()
    return Need(
        replicas=replicas,
        widest=int(state.rows.table[JOB_WIDEST, record.row]),
        devices=column[CLASS_DEVICES],
        share=column[CLASS_SHARE],
        device_memory=column[CLASS_DEVICE_MEM],
        models=column[CLASS_MODELS],
        cpu=column[CLASS_CPU],
        memory=column[CLASS_MEM],
        labels=column[CLASS_LABELS],
        is_exclusive=bool(column[CLASS_EXCLUSIVE]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """What there is to give. D devices, P pools, N nodes.

    share, device_memory: int64[D], free per device; 0 share = it gives nothing. cpu, memory: int64[N], free.
    is_usable, is_held, is_alone: bool[N], the node may be used, some job lies there, a job wants it alone.
    pool_milli: int64[P], bound on what each pool gives.
    """

    state: "ClusterState"
    share: IntArray
    device_memory: IntArray
    cpu: IntArray
    memory: IntArray
    is_usable: BoolArray
    is_held: BoolArray
    is_alone: BoolArray
    pool_milli: IntArray

    @property
    def pools(self) -> IntArray:
        """int64[POOL_COLUMNS, P]."""
        inventory = self.state.inventory
        return inventory.pools[:, : inventory.pool_count]

    @property
    def nodes(self) -> IntArray:
        """int64[NODE_COLUMNS, N]."""
        inventory = self.state.inventory
        return inventory.nodes[:, : inventory.node_count]

    @property
    def device_pool(self) -> IntArray:
        """int64[D]: the pool of each device."""
        inventory = self.state.inventory
        return inventory.devices[DEVICE_POOL, : inventory.device_count]


def present_scene(state: "ClusterState") -> Scene:
    """The cluster as it is. A device that is sick, or kept for a job by name, gives nothing."""
    inventory = state.inventory
    devices = inventory.devices[:, : inventory.device_count]
    nodes = inventory.nodes[:, : inventory.node_count]
    gives = (devices[DEVICE_HEALTHY] == 1) & (devices[DEVICE_CLAIM] == NONE) & (devices[DEVICE_OWNER] == NONE)
    return Scene(
        state=state,
        share=np.where(gives, devices[DEVICE_SHARE_FREE], 0),
        device_memory=devices[DEVICE_MEM_FREE],
        cpu=nodes[NODE_CPU_FREE],
        memory=nodes[NODE_MEM_FREE],
        is_usable=nodes[NODE_USABLE] == 1,
        is_held=nodes[NODE_HOLDERS] > 0,
        is_alone=nodes[NODE_EXCLUSIVE] == 1,
        pool_milli=np.full(inventory.pool_count, MILLI * max(inventory.device_count, 1)),
    )


def empty_scene(state: "ClusterState", *, with_failed: bool) -> Scene:
    """The cluster without any job; with_failed: as if all that is down, drained or sick were back."""
    inventory = state.inventory
    devices = inventory.devices[:, : inventory.device_count]
    nodes = inventory.nodes[:, : inventory.node_count]
    nobody = np.zeros(inventory.node_count, dtype=np.bool_)
    return replace(
        present_scene(state),
        share=MILLI * (devices[DEVICE_HEALTHY] | int(with_failed)),
        device_memory=inventory.pools[POOL_DEVICE_MEM, devices[DEVICE_POOL]],
        cpu=nodes[NODE_CPU_TOTAL],
        memory=nodes[NODE_MEM_TOTAL],
        is_usable=(nodes[NODE_USABLE] == 1) | with_failed,
        is_held=nobody,
        is_alone=nobody,
    )


def scene_without_claims(scene: Scene, but_row: int = NONE) -> Scene:
    """As if no device were kept by name for waiting jobs, those of job row `but_row` aside."""
    state = scene.state
    devices = state.inventory.devices[:, : state.inventory.device_count]
    share, cpu, memory = scene.share.copy(), scene.cpu.copy(), scene.memory.copy()
    for row, claim in state.claims.items():
        if row == but_row:
            continue
        named = claim.allocation.devices
        is_free = (devices[DEVICE_OWNER, named] == NONE) & (devices[DEVICE_HEALTHY, named] == 1)
        share[named] = np.where(is_free, devices[DEVICE_SHARE_FREE, named], share[named])
        column = state.classes.table[:, state.rows.table[JOB_CLASS, row]]
        np.add.at(cpu, claim.allocation.nodes, column[CLASS_CPU])
        np.add.at(memory, claim.allocation.nodes, column[CLASS_MEM])
    return replace(scene, share=share, cpu=cpu, memory=memory)


def scene_without_jobs(scene: Scene, records: Iterable[JobRecord]) -> Scene:
    """As if these jobs had left what they hold."""
    state = scene.state
    devices = state.inventory.devices[:, : state.inventory.device_count]
    gives = (devices[DEVICE_HEALTHY] == 1) & (devices[DEVICE_CLAIM] == NONE)
    share, device_memory = scene.share.copy(), scene.device_memory.copy()
    cpu, memory = scene.cpu.copy(), scene.memory.copy()
    holders = scene.nodes[NODE_HOLDERS].copy()
    for record in records:
        if record.allocation is None:
            continue
        column = state.classes.table[:, state.rows.table[JOB_CLASS, record.row]].tolist()
        named = record.allocation.devices
        np.add.at(share, named, np.where(gives[named], column[CLASS_SHARE], 0))
        if column[CLASS_SHARE] < MILLI:
            np.add.at(device_memory, named, _share_memory(scene, column[CLASS_DEVICE_MEM], column[CLASS_SHARE])[named])
        np.add.at(cpu, record.allocation.nodes, column[CLASS_CPU])
        np.add.at(memory, record.allocation.nodes, column[CLASS_MEM])
        np.add.at(holders, record.allocation.nodes, -1)
    is_held = holders > 0
    return replace(
        scene,
        share=share,
        device_memory=device_memory,
        cpu=cpu,
        memory=memory,
        is_held=is_held,
        is_alone=scene.is_alone & is_held,
    )


def scene_beside(scene: Scene, reservations: Iterable[int]) -> Scene:
    """As if whatever is given must leave these reservations whole."""
    state = scene.state
    pool_milli, cpu, memory = scene.pool_milli.copy(), scene.cpu.copy(), scene.memory.copy()
    for index in reservations:
        np.minimum(pool_milli, state.box.res_pool[: len(pool_milli), index], out=pool_milli)
        np.minimum(cpu, state.box.res_cpu[index, : len(cpu)], out=cpu)
        np.minimum(memory, state.box.res_mem[index, : len(memory)], out=memory)
    return replace(scene, pool_milli=pool_milli, cpu=cpu, memory=memory)


def reservations_before(state: "ClusterState", end_ms: int, count: int) -> list[int]:
    """Those of the first `count` reservations that begin before `end_ms`."""
    return [index for index in range(count) if state.box.res[RES_START, index] < end_ms]


def _share_memory(scene: Scene, asked: int, share: int) -> IntArray:
    """int64[D]: bytes that a share takes of each device: what was asked, else in proportion, rounded up."""
    total = scene.pools[POOL_DEVICE_MEM, scene.device_pool]
    if asked > 0:
        return np.full(len(total), asked)
    taken: IntArray = -((-total * share) // MILLI)
    return taken


def suits_pools(scene: Scene, need: Need) -> BoolArray:
    """bool[P]: the pool's node may be used, carries the labels, and its devices are of the model and memory asked."""
    pools = scene.pools
    node = pools[POOL_NODE]
    eligible = scene.state.inventory.eligibility.table[need.labels, : len(scene.is_usable)] == 1
    suits: BoolArray = (scene.is_usable & eligible)[node]
    if need.devices == 0:
        return suits
    model, memory = pools[POOL_MODEL], pools[POOL_DEVICE_MEM]
    allowed = (need.models >> np.maximum(model, 0)) & 1 == 1
    suits &= (model != NONE) & allowed & ((memory == 0) | (memory >= need.device_memory))
    return suits


def free_milli_by_node(scene: Scene, need: Need) -> IntArray:
    """int64[N]: free thousandths on devices that suit, counting only whole devices for a job that asks for whole."""
    share = np.where(scene.share == MILLI, MILLI, 0) if need.share == MILLI else scene.share
    by_device = np.where(suits_pools(scene, need)[scene.device_pool], share, 0)
    return _sum_by(scene.pools[POOL_NODE][scene.device_pool], by_device, len(scene.is_usable))


def _sum_by(groups: IntArray, amounts: IntArray, count: int) -> IntArray:
    """int64[count]: sum of amounts by group; groups below 0 are left out."""
    total = np.zeros(count, dtype=np.int64)
    is_counted = groups >= 0
    np.add.at(total, groups[is_counted], amounts[is_counted])
    return total


def _replicas_by_pool(scene: Scene, need: Need) -> IntArray:
    """int64[P]: replicas that the devices of each pool take, whatever its node has."""
    count = len(scene.pool_milli)
    if need.share == MILLI:
        whole = (scene.share == MILLI).astype(np.int64)
        by_pool = _sum_by(scene.device_pool, whole, count) // need.devices
    else:
        by_device = scene.share // need.share
        wanted = _share_memory(scene, need.device_memory, need.share)
        is_counted = (scene.pools[POOL_DEVICE_MEM, scene.device_pool] > 0) & (wanted > 0)
        by_memory = scene.device_memory // np.maximum(wanted, 1)
        by_device = np.where(is_counted, np.minimum(by_device, by_memory), by_device)
        by_pool = _sum_by(scene.device_pool, by_device, count)
    bound = np.maximum(scene.pool_milli, 0) // (need.devices * need.share)
    bounded: IntArray = np.where(suits_pools(scene, need), np.minimum(by_pool, bound), 0)
    return bounded


def room_by_node(scene: Scene, need: Need) -> IntArray:
    """int64[N]: how many replicas of the job each node takes, at most all of them."""
    count = len(scene.is_usable)
    if need.devices == 0:
        suits = suits_pools(scene, need).astype(np.int64)
        room = need.replicas * np.minimum(_sum_by(scene.pools[POOL_NODE], suits, count), 1)
    else:
        room = _sum_by(scene.pools[POOL_NODE], _replicas_by_pool(scene, need), count)
    if need.cpu > 0:
        room = np.minimum(room, np.maximum(scene.cpu, 0) // need.cpu)
    if need.memory > 0:
        room = np.minimum(room, np.maximum(scene.memory, 0) // need.memory)
    is_taken = scene.is_held & (scene.is_alone | need.is_exclusive)
    return np.minimum(np.where(is_taken, 0, room), need.replicas)


def allowed_levels(widest: int) -> tuple[int, ...]:
    """Levels within one domain of which the gang may lie. Within one node everything is near."""
    if widest == LEVEL_NVLINK:
        return (LEVEL_NODE, LEVEL_NVLINK)
    return tuple(level for level in range(LEVEL_SITE + 1) if level <= widest and (level or widest > LEVEL_NODE))


def room_in_domain(scene: Scene, need: Need) -> int:
    """The most replicas, at most all, that one allowed domain takes."""
    room = room_by_node(scene, need)
    most = 0
    for level in allowed_levels(need.widest):
        if level == LEVEL_SITE:
            by_domain = room.sum(keepdims=True)
        elif level == LEVEL_NODE:
            by_domain = room
        else:
            by_domain = _sum_by(scene.nodes[DOMAIN_COLUMNS[level]], room, len(room))
        most = max(most, int(by_domain.max(initial=0)))
    return min(most, need.replicas)


def fits(scene: Scene, need: Need) -> bool:
    """Whether the whole gang has room in one allowed domain."""
    return room_in_domain(scene, need) >= need.replicas
