"""What-if on the tables: a stack of changes that can all be undone, exactly and in reverse order."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from clearway.engine.box import META_NODE_ASKED, META_RESERVATIONS
from clearway.engine.claims import claim_entry, unclaim_entry
from clearway.engine.gang import place_beside_entry, place_entry
from clearway.engine.hold import hold_entry, hold_until_entry, let_go_entry
from clearway.engine.policy import FloatArray
from clearway.engine.quota import queue_take, tenant_take
from clearway.engine.reasons import PLACED
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    JOB_CLASS,
    JOB_END_MS,
    JOB_PREFERRED,
    JOB_QUEUE,
    JOB_START_MS,
    JOB_TENANT,
    JOB_WIDEST,
    LEVEL_SITE,
)
from clearway.model.allocation import Allocation
from clearway.model.units import FOREVER_MS


class Trial:
    """Changes to the tables of one state box, undone by `undo_to(mark)`. Records and events are not touched."""

    def __init__(self, state: ClusterState, weights: FloatArray) -> None:
        self.state = state
        self.weights = weights
        self._undo: list[Callable[[], None]] = []

    def mark(self) -> int:
        """The present height of the stack."""
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Take back all changes made since `mark`."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def let_go(self, row: int, allocation: Allocation) -> None:
        """As if the job left its devices."""
        state = self.state
        start_ms, end_ms = int(state.rows.table[JOB_START_MS, row]), int(state.rows.table[JOB_END_MS, row])
        let_go_entry(row, allocation.nodes, allocation.devices, state.door)
        self._undo.append(
            lambda: hold_until_entry(row, start_ms, end_ms, allocation.nodes, allocation.devices, state.door)
        )

    def hold(self, row: int, allocation: Allocation) -> None:
        """As if the job held the allocation from now on, for the run time that planning assumes."""
        state = self.state
        before = state.rows.table[[JOB_START_MS, JOB_END_MS], row].copy()
        state.make_room_for(allocation)
        hold_entry(row, state.now_ms, allocation.nodes, allocation.devices, state.door)

        def undo() -> None:
            let_go_entry(row, allocation.nodes, allocation.devices, state.door)
            state.rows.table[[JOB_START_MS, JOB_END_MS], row] = before

        self._undo.append(undo)

    def claim(self, row: int, allocation: Allocation) -> None:
        """As if the allocation were kept for the job."""
        state, cls = self.state, int(self.state.rows.table[JOB_CLASS, row])
        claim_entry(cls, row, allocation.nodes, allocation.devices, state.door)
        self._undo.append(lambda: unclaim_entry(cls, allocation.nodes, allocation.devices, state.door))

    def unclaim(self, row: int, allocation: Allocation) -> None:
        """As if what is kept for the job were not."""
        state, cls = self.state, int(self.state.rows.table[JOB_CLASS, row])
        unclaim_entry(cls, allocation.nodes, allocation.devices, state.door)
        self._undo.append(lambda: claim_entry(cls, row, allocation.nodes, allocation.devices, state.door))

    def start_claimant(self, row: int, allocation: Allocation) -> None:
        """As if the job started on the devices that are kept for it."""
        self.unclaim(row, allocation)
        self.hold(row, allocation)

    def count(self, row: int, milli: int, jobs: int = 0) -> None:
        """As if the job held `milli` more, and were `jobs` more that run, for quota and limits only."""
        accounts, table = self.state.accounts, self.state.rows.table
        queue, tenant = int(table[JOB_QUEUE, row]), int(table[JOB_TENANT, row])
        queue_take(accounts.queues, queue, milli, jobs)
        tenant_take(accounts.tenants, tenant, milli)

        def undo() -> None:
            tenant_take(accounts.tenants, tenant, -milli)
            queue_take(accounts.queues, queue, -milli, -jobs)

        self._undo.append(undo)

    def reserved(self, index: int) -> list[NDArray[np.int64]]:
        """What a reservation leaves to others: thousandths of devices by pool, CPU milli and bytes by node. Views."""
        state, inventory = self.state, self.state.inventory
        left = [state.box.res_pool[: inventory.pool_count, index]]
        if state.meta[META_NODE_ASKED]:
            left += [table[index, : inventory.node_count] for table in (state.box.res_cpu, state.box.res_mem)]
        return left

    def change_reserved(self, index: int, more: list[NDArray[np.int64]]) -> None:
        """As if a reservation left so much more to others; as `reserved` has it."""
        left = self.reserved(index)
        for table, change in zip(left, more, strict=False):
            table += change

        def undo() -> None:
            for table, change in zip(left, more, strict=False):
                table -= change

        self._undo.append(undo)

    def ignore_reservations(self) -> None:
        """As if nothing were reserved for a later time."""
        meta = self.state.meta
        count = int(meta[META_RESERVATIONS])
        meta[META_RESERVATIONS] = 0

        def undo() -> None:
            meta[META_RESERVATIONS] = count

        self._undo.append(undo)

    def place(self, row: int, replicas: int) -> Allocation | None:
        """Where `replicas` replicas of the job would go now, reservations respected; None when nowhere."""
        table = self.state.rows.table
        needed = self.state.by_row[row].spec.request.devices
        nodes = np.zeros(replicas, dtype=np.int64)
        devices = np.zeros(replicas * needed, dtype=np.int64)
        cls, widest, preferred = table[(JOB_CLASS, JOB_WIDEST, JOB_PREFERRED), row].tolist()
        if place_entry(cls, widest, preferred, FOREVER_MS, self.weights, nodes, devices, self.state.door) != PLACED:
            return None
        return Allocation(nodes, devices)

    def place_more(self, row: int, held: Allocation, replicas: int) -> Allocation | None:
        """Where `replicas` replicas of the job more than it holds would go now, reservations respected, within the
        widest domain that it allows; None when nowhere."""
        table = self.state.rows.table
        widest = int(table[JOB_WIDEST, row])
        if widest == LEVEL_SITE:
            return self.place(row, replicas)
        nodes = np.zeros(replicas, dtype=np.int64)
        devices = np.zeros(replicas * self.state.by_row[row].spec.request.devices, dtype=np.int64)
        cls, beside = int(table[JOB_CLASS, row]), int(held.devices[0])
        if not place_beside_entry(cls, widest, beside, FOREVER_MS, self.weights, nodes, devices, self.state.door):
            return None
        return Allocation(nodes, devices)
