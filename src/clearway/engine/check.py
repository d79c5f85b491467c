"""The checker: judges a plan by the rules, with code of its own, and shares none with the planner.

It knows the tables' meaning (`tables`) and nothing of how a plan was found. It keeps a ledger of what the plan's
earlier moves have taken, so that moves are judged together.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import Box, Door, open_box
from clearway.engine.check_budgets import check_budgets
from clearway.engine.check_neighbours import check_neighbours
from clearway.engine.check_power import check_power
from clearway.engine.compiled import compiled, compiled_inline, compiled_inside
from clearway.engine.lifecycle import HOLDING
from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
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
    DEVICE_SHARERS,
    JOB_CLASS,
    JOB_PRIORITY,
    JOB_QUEUE_PRIORITY,
    JOB_WIDEST,
    LEVEL_BLOCK,
    LEVEL_LEAF,
    LEVEL_NODE,
    LEVEL_SITE,
    NODE_BLOCK,
    NODE_CLAIMS,
    NODE_CLAIMS_ALONE,
    NODE_CPU_FREE,
    NODE_EXCLUSIVE,
    NODE_HOLDERS,
    NODE_LEAF,
    NODE_MEM_FREE,
    NODE_NVLINK,
    NODE_USABLE,
    NONE,
    PHASE_PENDING,
    PHASE_STOPPING,
    PHASE_SUSPENDED,
    POOL_DEVICE_MEM,
    POOL_MODEL,
    POOL_NODE,
)
from clearway.model.allocation import Allocation
from clearway.model.plan import Cap, Migrate, Move, Plan, Reserve, Resize, Start, Stop, Suspend

# --- verdicts of `judge` ----------------------------------------------------------------------------------------------
FINE: Final = 0
VERDICTS: Final = (
    "fine",
    "a node or device index is outside the cluster",
    "a node is down or drained",
    "a node does not carry the labels that the job requires, or its name is not among those asked",
    "a node is held by another job alone, or is not empty for a job that wants it alone",
    "a node has too little CPU left",
    "a node has too little memory left",
    "a device does not lie on the node of its replica",
    "a device failed",
    "a device is kept for another job",
    "a device is of a model that the job does not allow",
    "a device has too little memory",
    "a device has another owner",
    "a device has too little of its share left",
    "the gang spans a wider domain than the job allows",
)
(
    _,
    OUTSIDE,
    NODE_NOT_USABLE,
    LABELS_MISSING,
    NOT_ALONE,
    CPU_SHORT,
    MEM_SHORT,
    WRONG_NODE,
    DEVICE_SICK,
    DEVICE_KEPT,
    WRONG_MODEL,
    DEVICE_MEM_SHORT,
    TWO_OWNERS,
    SHARE_SHORT,
    TOO_WIDE,
) = range(len(VERDICTS))

STARTABLE: Final = (PHASE_PENDING, PHASE_SUSPENDED)
"""Phases of jobs that wait."""

LEDGER_CPU: Final = 0
LEDGER_MEM: Final = 1
LEDGER_NODE_ROWS: Final = 2

LEDGER_SHARE: Final = 0
LEDGER_DEVICE_MEM: Final = 1
LEDGER_KEPT: Final = 2  # what earlier moves make of who it is kept for: as the tables say, for nobody, for another
LEDGER_DEVICE_ROWS: Final = 3

AS_BEFORE, UNKEPT, KEPT_ANEW = 0, 1, 2


@compiled_inline
def judge_node(box: Box, by_node: np.ndarray, cls: int, node: int, kept: int) -> int:
    """Verdict on one replica's CPUs, memory and place on a node; fills the ledger. kept: 1 = claimed before."""
    if box.nodes[NODE_USABLE, node] == 0:
        return NODE_NOT_USABLE
    if box.eligible[box.classes[CLASS_LABELS, cls], node] == 0:
        return LABELS_MISSING
    if box.nodes[NODE_HOLDERS, node] > 0 and box.nodes[NODE_EXCLUSIVE, node] == 1:
        return NOT_ALONE
    if box.classes[CLASS_EXCLUSIVE, cls] == 1 and box.nodes[NODE_HOLDERS, node] > 0:
        return NOT_ALONE
    if kept == 0 and box.nodes[NODE_CLAIMS_ALONE, node] > 0:
        return NOT_ALONE
    if kept == 0 and box.classes[CLASS_EXCLUSIVE, cls] == 1 and box.nodes[NODE_CLAIMS, node] > 0:
        return NOT_ALONE
    if kept == 0:
        by_node[LEDGER_CPU, node] += box.classes[CLASS_CPU, cls]
        by_node[LEDGER_MEM, node] += box.classes[CLASS_MEM, cls]
    if box.classes[CLASS_CPU, cls] > 0 and box.nodes[NODE_CPU_FREE, node] < by_node[LEDGER_CPU, node]:
        return CPU_SHORT
    if box.classes[CLASS_MEM, cls] > 0 and box.nodes[NODE_MEM_FREE, node] < by_node[LEDGER_MEM, node]:
        return MEM_SHORT
    return FINE


@compiled_inline
def judge_device(box: Box, by_device: np.ndarray, cls: int, row: int, node: int, device: int) -> int:
    """Verdict on one device of a replica; writes what it takes to the ledger."""
    pool = box.devices[DEVICE_POOL, device]
    if box.pools[POOL_NODE, pool] != node:
        return WRONG_NODE
    if box.devices[DEVICE_HEALTHY, device] == 0:
        return DEVICE_SICK
    keeper, kept = box.devices[DEVICE_CLAIM, device], by_device[LEDGER_KEPT, device]
    if keeper == row:
        by_device[LEDGER_KEPT, device] = UNKEPT
    elif kept == KEPT_ANEW or (kept == AS_BEFORE and keeper != NONE):
        return DEVICE_KEPT
    models = box.classes[CLASS_MODELS, cls]
    if models != NONE and (models >> box.pools[POOL_MODEL, pool]) & 1 == 0:
        return WRONG_MODEL
    memory = box.pools[POOL_DEVICE_MEM, pool]
    wanted = box.classes[CLASS_DEVICE_MEM, cls]
    if memory > 0 and wanted > memory:
        return DEVICE_MEM_SHORT
    share = box.classes[CLASS_SHARE, cls]
    by_device[LEDGER_SHARE, device] += share
    if box.devices[DEVICE_OWNER, device] != NONE or (share == 1000 and box.devices[DEVICE_SHARERS, device] > 0):
        return TWO_OWNERS
    if by_device[LEDGER_SHARE, device] > box.devices[DEVICE_SHARE_FREE, device]:
        return TWO_OWNERS if share == 1000 else SHARE_SHORT
    if share < 1000 and memory > 0:
        by_device[LEDGER_DEVICE_MEM, device] += wanted if wanted > 0 else -((-memory * share) // 1000)
        if by_device[LEDGER_DEVICE_MEM, device] > box.devices[DEVICE_MEM_FREE, device]:
            return DEVICE_MEM_SHORT
    return FINE


@compiled_inside
def judge_spread(box: Box, widest: int, at_nodes: np.ndarray) -> int:
    """Verdict on how far apart the replicas are. Within a node everything is near."""
    first = at_nodes[0]
    for replica in range(1, len(at_nodes)):
        node = at_nodes[replica]
        if node == first:
            continue
        # An NVLink domain counts as narrower than a leaf, and a leaf than a block, wherever their nodes stand.
        near = box.nodes[NODE_NVLINK, node] == box.nodes[NODE_NVLINK, first] != NONE
        if widest == LEVEL_NODE:
            near = False
        elif widest == LEVEL_LEAF:
            near = near or box.nodes[NODE_LEAF, node] == box.nodes[NODE_LEAF, first]
        elif widest == LEVEL_BLOCK:
            near = near or box.nodes[NODE_LEAF, node] == box.nodes[NODE_LEAF, first]
            near = near or box.nodes[NODE_BLOCK, node] == box.nodes[NODE_BLOCK, first]
        elif widest == LEVEL_SITE:
            near = True
        if not near:
            return TOO_WIDE
    return FINE


@compiled_inside
def clear_ledger_inside(
    by_node: np.ndarray, by_device: np.ndarray, at_nodes: np.ndarray, at_devices: np.ndarray
) -> None:
    """Forget what an allocation took. An index outside of the ledger was never written."""
    for node in at_nodes:
        if 0 <= node < by_node.shape[1]:
            for line in range(LEDGER_NODE_ROWS):
                by_node[line, node] = 0
    for device in at_devices:
        if 0 <= device < by_device.shape[1]:
            for line in range(LEDGER_DEVICE_ROWS):
                by_device[line, device] = 0


@compiled
def clear_ledger(by_node: np.ndarray, by_device: np.ndarray, at_nodes: np.ndarray, at_devices: np.ndarray) -> None:
    """`clear_ledger_inside`, called from Python."""
    clear_ledger_inside(by_node, by_device, at_nodes, at_devices)


@compiled
def judge(
    row: int,
    kept: bool,
    alone: bool,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    by_node: np.ndarray,
    by_device: np.ndarray,
    node_count: int,
    device_count: int,
    door: Door,
) -> int:
    """Verdict on an allocation for a job, after what the ledger says was taken; adds it to the ledger.

    alone: no other move will be judged together with this one; the ledger is cleared again.
    """
    verdict = judge_all(
        open_box(door), row, 1 if kept else 0, at_nodes, at_devices, by_node, by_device, node_count, device_count
    )
    if alone:
        clear_ledger(by_node, by_device, at_nodes, at_devices)
    return verdict


@compiled_inside
def judge_all(
    box: Box,
    row: int,
    kept: int,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    by_node: np.ndarray,
    by_device: np.ndarray,
    node_count: int,
    device_count: int,
) -> int:
    """`judge`, the ledger not cleared."""
    cls = box.jobs[JOB_CLASS, row]
    needed = box.classes[CLASS_DEVICES, cls]
    for replica in range(len(at_nodes)):
        node = at_nodes[replica]
        if node < 0 or node >= node_count:
            return OUTSIDE
        verdict = judge_node(box, by_node, cls, node, kept)
        if verdict != FINE:
            return verdict
        for index in range(replica * needed, (replica + 1) * needed):
            device = at_devices[index]
            if device < 0 or device >= device_count:
                return OUTSIDE
            verdict = judge_device(box, by_device, cls, row, node, device)
            if verdict != FINE:
                return verdict
    return judge_spread(box, box.jobs[JOB_WIDEST, row], at_nodes)


@compiled
def judge_spread_entry(row: int, at_nodes: np.ndarray, door: Door) -> int:
    """`judge_spread` by the widest domain that the job of this row allows."""
    box = open_box(door)
    return judge_spread(box, box.jobs[JOB_WIDEST, row], at_nodes)


@compiled
def judge_together(
    starts: np.ndarray,
    at_nodes: np.ndarray,
    at_devices: np.ndarray,
    by_node: np.ndarray,
    by_device: np.ndarray,
    node_count: int,
    device_count: int,
    door: Door,
) -> bool:
    """Whether many starts are fine, each after what those before it take. starts: int64[3, n], for each its job's row,
    whether it was claimed before, and its replicas; the allocations lie one behind the other."""
    box = open_box(door)
    is_fine = True
    node = device = 0
    for index in range(starts.shape[1]):
        row, replicas = starts[0, index], starts[2, index]
        needed = replicas * box.classes[CLASS_DEVICES, box.jobs[JOB_CLASS, row]]
        nodes, devices = at_nodes[node : node + replicas], at_devices[device : device + needed]
        verdict = judge_all(box, row, starts[1, index], nodes, devices, by_node, by_device, node_count, device_count)
        if verdict != FINE:
            is_fine = False
            break
        node += replicas
        device += needed
    clear_ledger(by_node, by_device, at_nodes, at_devices)
    return is_fine


class Checker:
    """Judges plans for one state box. `check_plan` returns notes; a plan with any is refused."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._is_alone = False
        self._known_box: Box | None = None
        self._nodes = self._devices = 0
        self.by_node: NDArray[np.int64] = np.zeros((LEDGER_NODE_ROWS, 1), dtype=np.int64)
        self.by_device: NDArray[np.int64] = np.zeros((LEDGER_DEVICE_ROWS, 1), dtype=np.int64)

    def check_plan(self, plan: Plan) -> tuple[str, ...]:
        """Why the plan must be refused, one sentence each; empty when it is good."""
        state, moves = self.state, plan.moves
        if moves and plan.parent != state.version:
            return (f"made for version {plan.parent} of the state, which is now at {state.version}",)
        self.measure()
        notes: list[str] = []
        self._is_alone = len(moves) == 1
        if self._is_alone:
            note = self._check_move(moves[0])
            if note:
                notes.append(note)
        elif moves and not self._are_good_starts(moves):
            notes = self._check_one_by_one(moves)
        if moves and state.inventory.crowds.rule_count:
            notes.extend(check_neighbours(state, plan))
        if moves and state.budgeted:
            notes.extend(check_budgets(state, plan))
        if state.power_budget_watts is not None or state.caps:
            notes.extend(check_power(state, plan))
        return tuple(notes)

    def _are_good_starts(self, moves: tuple[Move, ...]) -> bool:
        """Whether all moves are starts that are good together: what most plans with several moves are, in one pass."""
        starts = [move for move in moves if isinstance(move, Start)]
        if len(starts) < len(moves):
            return False
        facts: list[tuple[int, bool, int]] = []
        for move in starts:
            record = self.state.jobs.get(move.job)
            if record is None or self._fault_of_start(move, record):
                return False
            facts.append((record.row, self._is_claimed(move, record), len(move.allocation.nodes)))
        if len({row for row, _, _ in facts}) < len(facts):
            return False
        return judge_together(
            np.array(facts, dtype=np.int64).T.copy(),
            np.concatenate([move.allocation.nodes for move in starts]),
            np.concatenate([move.allocation.devices for move in starts]),
            self.by_node,
            self.by_device,
            self._nodes,
            self._devices,
            self.state.door,
        )

    def _check_one_by_one(self, moves: tuple[Move, ...]) -> list[str]:
        """Notes on several moves, each judged after what those before it take."""
        notes: list[str] = []
        moved: set[int] = set()
        for move in moves:
            note = self._check_move(move)
            if not isinstance(move, Cap):
                note = note if move.job not in moved else f"job {move.job} is moved twice in one plan"
                moved.add(move.job)
            if note:
                notes.append(note)
        self._clear(moves)
        return notes

    def measure(self) -> None:
        """Note how large the cluster is, if it may have changed, and make room for it in the ledger."""
        if self._known_box is self.state.box:
            return
        self._known_box = self.state.box
        self._nodes, self._devices = self.state.inventory.node_count, self.state.inventory.device_count
        if self.by_node.shape[1] < self._nodes or self.by_device.shape[1] < max(self._devices, 1):
            self.by_node = np.zeros((LEDGER_NODE_ROWS, 2 * self._nodes), dtype=np.int64)
            self.by_device = np.zeros((LEDGER_DEVICE_ROWS, 2 * self._devices + 1), dtype=np.int64)

    def _clear(self, moves: tuple[Move, ...]) -> None:
        for move in moves:
            if isinstance(move, Start | Resize | Migrate | Reserve):
                clear_ledger(self.by_node, self.by_device, move.allocation.nodes, move.allocation.devices)

    def _check_move(self, move: Move) -> str:
        if isinstance(move, Cap):
            return "" if 0 <= move.node < self.state.inventory.node_count else f"no node {move.node} to cap"
        record = self.state.jobs.get(move.job)
        if record is None:
            return f"job {move.job} is not known"
        if isinstance(move, Start):
            return self._check_start(move, record)
        if isinstance(move, Reserve):
            return self._check_reserve(move, record)
        return self._check_change(move, record)

    def _check_start(self, move: Start, record: JobRecord) -> str:
        is_claimed = self._is_claimed(move, record) if self.state.claims else False
        return self._fault_of_start(move, record) or self._judge(record, move.allocation, kept=is_claimed)

    def _is_claimed(self, move: Start, record: JobRecord) -> bool:
        """Whether these very devices are kept for the job."""
        claim = self.state.claims.get(record.row)
        return claim is not None and claim.allocation == move.allocation

    def _fault_of_start(self, move: Start, record: JobRecord) -> str:
        """What is wrong with a start, wherever its devices are; "" = nothing."""
        spec, allocation = record.spec, move.allocation
        if record.phase not in STARTABLE or record.allocation is not None:
            return f"job {move.job} does not wait and cannot be started"
        if record.held or record.cancelled or record.blocked is not None:
            return f"job {move.job} is held, cancelled or blocked and cannot be started"
        if move.generation != record.generation + 1:
            return f"job {move.job}: expected generation {record.generation + 1}, found {move.generation}"
        replicas = len(allocation.nodes)
        is_whole = spec.elastic is None and replicas == spec.replicas
        if not (is_whole or spec.replicas_min <= replicas <= spec.replicas_max):
            return f"job {move.job}: a gang of {spec.replicas_min}..{spec.replicas_max}, found {replicas}"
        if len(allocation.devices) != replicas * spec.request.devices:
            return f"job {spec.id}: {len(allocation.devices)} devices for {replicas} replicas"
        return ""

    def _judge(self, record: JobRecord, allocation: Allocation, *, kept: bool) -> str:
        verdict = judge(
            record.row,
            kept,
            self._is_alone,
            allocation.nodes,
            allocation.devices,
            self.by_node,
            self.by_device,
            self._nodes,
            self._devices,
            self.state.door,
        )
        return "" if verdict == FINE else f"job {record.spec.id}: {VERDICTS[verdict]}"

    def _check_reserve(self, move: Reserve, record: JobRecord) -> str:
        if record.phase not in STARTABLE:
            return f"job {move.job} does not wait; nothing is to be kept for it"
        devices = move.allocation.devices
        if not record.spec.request.is_fractional and len(np.unique(devices)) != len(devices):
            return f"job {move.job}: a device is kept twice"
        keepers = self.state.inventory.devices[DEVICE_CLAIM, devices]
        kept = self.by_device[LEDGER_KEPT]
        if (kept[devices] == KEPT_ANEW).any():
            return f"job {move.job}: a device is kept for another job by an earlier move"
        others = np.unique(keepers[(keepers != NONE) & (keepers != record.row) & (kept[devices] == AS_BEFORE)])
        if any(self._rank(other) >= self._rank(record.row) for other in others.tolist()):
            return f"job {move.job}: a device is kept for another job already, whose rank is not lower"
        if not self._is_alone:
            kept[devices] = KEPT_ANEW
        return ""

    def _rank(self, row: int) -> tuple[int, int]:
        queue_priority, priority = self.state.rows.table[[JOB_QUEUE_PRIORITY, JOB_PRIORITY], row].tolist()
        return queue_priority, priority

    def _check_change(self, move: Stop | Suspend | Resize | Migrate, record: JobRecord) -> str:
        if isinstance(move, Stop) and move.cause is None and record.suspended:
            return ""
        if record.phase not in HOLDING or record.phase == PHASE_STOPPING or record.allocation is None:
            return f"job {move.job} does not run and cannot be changed"
        if isinstance(move, Stop | Suspend):
            return "" if move.generation == record.generation else f"job {move.job}: stale generation {move.generation}"
        return self._check_resize(move, record)

    def _check_resize(self, move: Resize | Migrate, record: JobRecord) -> str:
        spec, held = record.spec, record.allocation
        assert held is not None
        if move.generation != record.generation + 1 or record.target is not None:
            return f"job {move.job}: a resize is under way, or its generation is stale"
        most = max(spec.replicas_max, held.replicas)  # what it holds it keeps, whatever it was bounded to since
        if not spec.replicas_min <= move.allocation.replicas <= most:
            return f"job {move.job}: a gang of {spec.replicas_min}..{most}, found {move.allocation.replicas}"
        needed = spec.request.devices
        if needed == 0:
            return f"job {move.job}: only jobs that hold devices are resized"
        have = set(held.devices.tolist())
        first = move.allocation.devices.reshape(-1, needed)
        new = [replica for replica in range(move.allocation.replicas) if int(first[replica, 0]) not in have]
        if isinstance(move, Migrate) and len(new) != move.allocation.replicas:
            return f"job {move.job}: a migration must leave every device"
        if not new:
            return ""
        if judge_spread_entry(record.row, move.allocation.nodes, self.state.door) != FINE:
            return f"job {move.job}: {VERDICTS[TOO_WIDE]}"
        return self._judge(record, Allocation(move.allocation.nodes[new], first[new].reshape(-1)), kept=False)
