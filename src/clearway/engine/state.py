"""The state box: all that is known of the cluster and its jobs, changed only by `apply(event)`.

Invariants: free plus used equals total per device; a job holds all replicas of its allocation or none; the tables and
the records beside them tell the same story. Must not: decide anything, or ask the time.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clearway.engine.accounts import Accounts
from clearway.engine.box import (
    LINK_COLUMNS,
    LINK_NEXT,
    META_BEGIN_IN,
    META_GAPS,
    META_LEVELS,
    META_LINK_FREE,
    META_LINKS_LEFT,
    META_MANY_POOLS,
    META_MODELS,
    META_NODE_ASKED,
    META_NODES,
    META_POOLS,
    META_RESERVATIONS,
    META_RUNNING,
    META_SIZE,
    RES_COLUMNS,
    RUNNING_COLUMNS,
    RUNNING_ROW,
    WORK_ROWS,
    Box,
    make_door,
)
from clearway.engine.claims import claim_entry, unclaim_entry
from clearway.engine.closed import close_nodes
from clearway.engine.collective import distinct_levels
from clearway.engine.dependencies import Dependencies
from clearway.engine.hold import settle_running_entry
from clearway.engine.inventory import Inventory
from clearway.engine.lifecycle import Lifecycle
from clearway.engine.nodes import Classes
from clearway.engine.order import PendingOrder
from clearway.engine.place import refresh_device_entry, set_usable_entry
from clearway.engine.policy import Policy, RunTimes, RuntimeSource
from clearway.engine.records import Claim, JobRecord
from clearway.engine.rows import JobRows
from clearway.engine.standing import drop_fallen_claims
from clearway.engine.tables import (
    CLASS_WHEN_EMPTY,
    DEVICE_CLAIM,
    DEVICE_HEALTHY,
    DEVICE_SHARE_FREE,
    JOB_CLAIMED,
    JOB_CLASS,
    JOB_QUEUE,
    JOB_TENANT,
    JOB_WATTS_MS,
    NONE,
    QUEUE_DEVICES_MAX,
    QUEUE_JOB_MAX,
    QUEUE_RUNNING_MAX,
    TENANT_BORROW_MAX,
    TENANT_HAS_QUOTA,
    TENANT_LIMITED,
    TENANT_SUBTREE,
    Table,
    grow_table,
    make_table,
)
from clearway.engine.typical import TypicalClasses
from clearway.model.allocation import Allocation
from clearway.model.cluster import LinkSpec
from clearway.model.events import (
    Batch,
    BudgetsChanged,
    ControlStarted,
    DemandForecast,
    DeviceDown,
    DeviceUp,
    Event,
    JobBounded,
    JobPreparing,
    LinksSet,
    NodeAdded,
    NodeChanged,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeOpened,
    NodeUp,
    PowerBudgetSet,
    QueueRemoved,
    QueueSet,
    SubmissionAccepted,
    TenantRemoved,
    TenantSet,
    TimerFired,
)
from clearway.model.ids import JobId
from clearway.model.jobs import JobSpec
from clearway.model.plan import Reserve

DERIVED: Final = frozenset(
    (
        "policy",
        "run_times",
        "keeps_run_times",
        "keeps_history",
        "box",
        "door",
        "_res",
        "_work",
        "_lifecycle",
        "_handlers",
    )
)
"""Attributes that belong to a policy or a process, or are made of the others."""


class ClusterState:
    """The box. Public attributes are for reading; only `apply` changes them.

    jobs: those that have not ended, by id. claims: devices kept for waiting jobs, by job row. caps: watts of each
    device of a node, by node index, where they are limited. closed: by user, nodes kept from him, and why. budgets,
    budgeted: how many replicas may still leave for others, by budget, and by running job the budgets in which it
    counts, see `BudgetsChanged`. bounded: as they were submitted, the jobs that may have fewer replicas now.
    link_speeds: by level, where they are known. version: number of applied events. fresh: rows of waiting jobs that
    have no place in `order` yet. capacity_grew: since the last decision something was given back, or came up, so that
    jobs that could not start then may start now. waiting_changed: a waiting job came to be blocked by what another did,
    so that those behind it may be looked at.
    """

    def __init__(self, policy: Policy, run_times: RunTimes | None = None) -> None:
        self.policy = policy
        self.run_times = run_times
        self.inventory = Inventory()
        self.accounts = Accounts(policy.fair_share.half_life_ms)
        self.classes = Classes()
        self.rows = JobRows()
        self.order = PendingOrder()
        self.dependencies = Dependencies()
        self.jobs: dict[JobId, JobRecord] = {}
        self.by_row: dict[int, JobRecord] = {}
        self.claims: dict[int, Claim] = {}
        self.caps: dict[int, int] = {}
        self.budgets: dict[str, int] = {}
        self.bounded: dict[JobId, JobSpec] = {}
        self.budgeted: dict[JobId, tuple[tuple[str, int], ...]] = {}
        self.power_budget_watts: int | None = None
        self.closed: dict[str, dict[str, str]] = {}
        self.link_speeds: dict[str, LinkSpec] = {}
        self.fresh: list[int] = []
        self.to_stop: list[JobId] = []
        # Only a policy that plans by predictions pays for learning from every job that ends.
        self.keeps_run_times = run_times is not None and policy.runtime is RuntimeSource.PREDICTED
        self.keeps_history = policy.order.learns
        self.timers: list[tuple[int, JobId]] = []
        self.history: list[float] = []
        self.forecast_devices = 0
        self.forecast_until_ms = 0
        self.version = 0
        self.now_ms = 0
        self.capacity_grew = True
        self.order_shrank = False
        self.waiting_changed = False
        self.refreshed_ms = NONE
        self.meta: NDArray[np.int64] = np.zeros(META_SIZE, dtype=np.int64)
        self.running: Table = make_table(RUNNING_COLUMNS, 64)
        self.links: Table = make_table(LINK_COLUMNS, 1)
        self.meta[META_LINK_FREE] = self.meta[META_BEGIN_IN] = NONE
        self._res = [make_table(RES_COLUMNS, max(policy.backfill.reservation_depth, 1)), *(make_table(1, 1),) * 3]
        self._work: Table = make_table(WORK_ROWS, 1)
        self.typical = TypicalClasses()
        self.box = self._make_box()
        self.door = make_door(self.box)
        self._lifecycle = Lifecycle(self)
        self._handlers: dict[type, Callable[..., None]] = {
            Batch: self._on_batch,
            NodeAdded: self._on_node_added,
            NodeChanged: self._on_node_changed,
            NodeDown: self._on_node_down,
            NodeUp: self._on_node_up,
            NodeDrained: self._on_node_drained,
            NodeClosed: self._on_node_closed,
            NodeOpened: self._on_node_opened,
            DeviceDown: self._on_device,
            DeviceUp: self._on_device,
            QueueSet: self._on_queue_set,
            TenantSet: self._on_tenant_set,
            QueueRemoved: self._on_queue_removed,
            TenantRemoved: self._on_tenant_removed,
            DemandForecast: self._on_forecast,
            PowerBudgetSet: self._on_power_budget,
            BudgetsChanged: self._on_budgets,
            LinksSet: self._on_links,
            TimerFired: self._on_nothing,
            SubmissionAccepted: self._on_nothing,
            JobPreparing: self._on_nothing,
            ControlStarted: self._on_control_started,
            **self._lifecycle.handlers,
        }

    # --- the one mutator --------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Change the state by one event. Time does not run backwards: an earlier time is taken as the latest known."""
        self.version += 1
        if event.at_ms > self.now_ms:
            self.now_ms = event.at_ms
        self._handlers[type(event)](event)
        if self.timers and self.timers[0][0] <= self.now_ms:
            self._lifecycle.release_due()

    def _on_batch(self, event: Batch) -> None:
        for one in event.events:
            self._handlers[type(one)](one)

    # --- between two processes ---------------------------------------------------------------------------------------

    def attributes(self) -> dict[str, Any]:
        """All that the events made, for `resume` in another process."""
        return {name: value for name, value in vars(self).items() if name not in DERIVED}

    def resume(self, attributes: Mapping[str, Any], run_times: RunTimes | None) -> None:
        """Become the box of which `attributes` were taken, while a journal is read."""
        assert set(attributes) == set(self.attributes()), "expected what `attributes` gave, found other names"
        for name, value in attributes.items():
            setattr(self, name, value)
        self.run_times = run_times if self.keeps_run_times else None
        self._make_work_room()
        self._renew_box()

    # --- the cluster -------------------------------------------------------------------------------------------------

    def _on_node_added(self, event: NodeAdded) -> None:
        node = self.inventory.add(event.node)
        self._note_hardware(len(event.node.groups))
        set_usable_entry(node, 1, self.door)

    def _note_hardware(self, groups: int) -> None:
        """The inventory has changed. groups: of devices of the node that did it."""
        if groups > 1:
            self.meta[META_MANY_POOLS] = 1
        self.meta[META_NODES] = self.inventory.node_count
        self.meta[META_POOLS] = self.inventory.pool_count
        self.meta[META_MODELS] = len(self.inventory.models)
        self.meta[META_LEVELS] = self.inventory.used_levels & distinct_levels(self.link_speeds)
        self.classes.table[CLASS_WHEN_EMPTY] = NONE
        self.capacity_grew = True
        self.accounts.refresh(self.inventory.milli)
        self.refresh_box()

    def _on_node_changed(self, event: NodeChanged) -> None:
        before = self.inventory.specs[self.inventory.index(event.node.name)]
        known_spec = before.crowds, before.labels
        known = self.inventory.device_count
        node = self.inventory.change(event.node)
        self.refresh_box_if_grown()
        if self.claims and (event.node.crowds, event.node.labels) != known_spec:
            drop_fallen_claims(self)
        if self.inventory.device_count > known:
            self._note_hardware(len(event.node.groups))
            for device in range(known, self.inventory.device_count):
                self.inventory.devices[DEVICE_HEALTHY, device] = 1
                refresh_device_entry(device, self.door)
        self.classes.table[CLASS_WHEN_EMPTY] = NONE
        self.capacity_grew = True
        self._unclaim_on(node)

    def _on_node_down(self, event: NodeDown) -> None:
        self._set_node(event.node, is_up=False)

    def _on_node_up(self, event: NodeUp) -> None:
        node = self.inventory.index(event.node)
        self.inventory.is_drained[node] = False
        self._set_node(event.node, is_up=True)

    def _on_node_drained(self, event: NodeDrained) -> None:
        node = self.inventory.index(event.node)
        self.inventory.is_drained[node] = True
        self._set_node(event.node, is_up=self.inventory.is_up[node])

    def _on_node_closed(self, event: NodeClosed) -> None:
        close_nodes(self, event.user, {**self.closed.get(event.user, {}), event.node: event.reason})

    def _on_node_opened(self, event: NodeOpened) -> None:
        nodes = self.closed.get(event.user, {})
        close_nodes(self, event.user, {name: why for name, why in nodes.items() if name != event.node})

    def _set_node(self, name: str, *, is_up: bool) -> None:
        node = self.inventory.index(name)
        self.inventory.is_up[node] = is_up
        usable = is_up and not self.inventory.is_drained[node]
        set_usable_entry(node, int(usable), self.door)
        self.capacity_grew = True
        if not usable:
            self._unclaim_on(node)

    def _unclaim_on(self, node: int) -> None:
        for row in [row for row, claim in self.claims.items() if node in claim.allocation.nodes]:
            self.unclaim(row)

    def _on_device(self, event: DeviceDown | DeviceUp) -> None:
        device = self.inventory.device_index(event.node, event.device)
        self.inventory.devices[DEVICE_HEALTHY, device] = isinstance(event, DeviceUp)
        refresh_device_entry(device, self.door)
        self.capacity_grew = True
        claimant = int(self.inventory.devices[DEVICE_CLAIM, device])
        if claimant != NONE and isinstance(event, DeviceDown):
            self.unclaim(claimant)

    def _on_queue_set(self, event: QueueSet) -> None:
        self.accounts.set_queue(event.queue)
        self.capacity_grew = True
        self.refreshed_ms = NONE
        self.refresh_box()
        self._drop_barred_claims()

    def _on_tenant_set(self, event: TenantSet) -> None:
        self.accounts.set_tenant(event.tenant, self.inventory.milli)
        self.capacity_grew = True
        self.refresh_box()
        self._drop_barred_claims()

    def _on_queue_removed(self, event: QueueRemoved) -> None:
        self.accounts.remove_queue(event.queue)

    def _on_tenant_removed(self, event: TenantRemoved) -> None:
        self.accounts.remove_tenant(event.tenant, self.inventory.milli)
        self.capacity_grew = True
        self.refresh_box()

    def _on_forecast(self, event: DemandForecast) -> None:
        self.regard_forecast(event.devices)
        self.forecast_until_ms = event.until_ms
        self.capacity_grew = True

    def regard_forecast(self, devices: int) -> None:
        """So many devices are expected to be wanted; in a small cluster it is not regarded."""
        is_large = sum(node.device_count for node in self.inventory.specs) >= self.policy.headroom.cluster_min
        self.forecast_devices = devices if is_large else 0

    def _on_power_budget(self, event: PowerBudgetSet) -> None:
        self.power_budget_watts = event.watts
        self.rows.table[JOB_WATTS_MS] = 0
        self.capacity_grew = True
        self._drop_barred_claims()

    def _on_links(self, event: LinksSet) -> None:
        self.link_speeds = dict(event.links)
        self.meta[META_LEVELS] = self.inventory.used_levels & distinct_levels(self.link_speeds)
        self.capacity_grew = True

    def _on_budgets(self, event: BudgetsChanged) -> None:
        for name, allowed in event.budgets:
            if allowed is None:
                self.budgets.pop(name, None)
            else:
                self.budgets[name] = allowed
        for job, counts in event.jobs:
            if counts and job in self.jobs:
                self.budgeted[job] = counts
            else:
                self.budgeted.pop(job, None)
        self.capacity_grew = True

    def _on_control_started(self, _event: ControlStarted) -> None:
        """Who carries out what it decides says anew what budgets and bounds there are."""
        self.budgets.clear()
        self.budgeted.clear()
        for job, spec in list(self.bounded.items()):
            self._lifecycle.on_bounded(JobBounded(self.now_ms, job, spec.replicas_max))

    def _on_nothing(self, event: TimerFired | SubmissionAccepted | JobPreparing) -> None:
        """Time itself is taken from the event by `apply`; the rest of it is for drivers."""

    # --- claims ------------------------------------------------------------------------------------------------------

    def claim(self, row: int, move: Reserve) -> None:
        """Keep the devices of the move for the job of `row`: instead of any it had a claim on, and instead of jobs for
        which one of them was kept."""
        kept_for = self.inventory.devices[DEVICE_CLAIM, move.allocation.devices]
        for other in sorted({row, *kept_for[kept_for != NONE].tolist()}):
            self.waiting_changed |= other != row
            self.unclaim(other)
        cls = int(self.rows.table[JOB_CLASS, row])
        claim_entry(cls, row, move.allocation.nodes, move.allocation.devices, self.door)
        self.claims[row] = Claim(move.job, move.allocation, move.start_ms)
        self.rows.table[JOB_CLAIMED, row] = 1

    def unclaim(self, row: int) -> None:
        """Give up the claim of the job of `row`, if it has one."""
        claim = self.claims.pop(row, None)
        if claim is not None:
            cls = int(self.rows.table[JOB_CLASS, row])
            unclaim_entry(cls, claim.allocation.nodes, claim.allocation.devices, self.door)
            self.rows.table[JOB_CLAIMED, row] = 0
            self.capacity_grew = True

    def _drop_barred_claims(self) -> None:
        """Give up claims of jobs that new limits or a new power budget let start on no account, whoever leaves."""
        queues, tenants = self.accounts.queues, self.accounts.tenants
        for row, claim in list(self.claims.items()):
            milli = claim.allocation.replicas * self.by_row[row].spec.request.device_milli
            queue, tenant = self.rows.table[[JOB_QUEUE, JOB_TENANT], row].tolist()
            most = min(int(queues[QUEUE_JOB_MAX, queue]), int(queues[QUEUE_DEVICES_MAX, queue]))
            if tenants[TENANT_LIMITED, tenant] and tenants[TENANT_HAS_QUOTA, tenant]:
                most = min(most, int(tenants[TENANT_SUBTREE, tenant]) + int(tenants[TENANT_BORROW_MAX, tenant]))
            if milli > most or not queues[QUEUE_RUNNING_MAX, queue] or self._is_powerless(claim.allocation):
                self.unclaim(row)

    def _is_powerless(self, allocation: Allocation) -> bool:
        """Whether an idle cluster could not power those devices, at their floor, within the budget."""
        if self.power_budget_watts is None:
            return False
        from clearway.engine.power import PowerAccount  # it knows the state

        account = PowerAccount(self)
        return account.added_watts(np.unique(allocation.devices)) > self.power_budget_watts - account.idle_watts()

    def unclaim_beyond(self, row: int, replicas: int) -> None:
        """Give up the claim of the job of `row` if it is for more replicas than that."""
        if row in self.claims and self.claims[row].allocation.replicas > replicas:
            self.unclaim(row)

    def unclaim_beside(self, record: JobRecord, allocation: Allocation) -> None:
        """A job came to lie there, or will: give up the claims of others that must lie apart from it, or that hold
        elsewhere only without it."""
        crowds = record.spec.request.crowds
        for row in list(self.claims) if crowds else ():
            rules = self.by_row[row].spec.request.neighbours
            nodes = self.claims[row].allocation.nodes.tolist()
            if row != record.row and self.inventory.crowds.collide(rules, nodes, crowds, allocation.nodes.tolist()):
                self.unclaim(row)
        if self.claims and crowds:
            drop_fallen_claims(self)

    # --- views -------------------------------------------------------------------------------------------------------

    def device_shares_free(self) -> NDArray[np.int64]:
        """int64[devices]: free thousandths of each device (a sick or claimed device may have some)."""
        return self.inventory.devices[DEVICE_SHARE_FREE, : self.inventory.device_count].copy()

    def job_phase(self, job: JobId) -> int | None:
        """The phase of a job, None when it has ended or was never seen."""
        record = self.jobs.get(job)
        return None if record is None else record.phase

    @property
    def has_running(self) -> bool:
        """Whether any job holds devices."""
        return bool(self.meta[META_RUNNING] > self.meta[META_GAPS])

    def holding_rows(self) -> NDArray[np.int64]:
        """int64[n]: rows of jobs that hold devices, by expected end."""
        settle_running_entry(self.door)
        return self.running[RUNNING_ROW, : self.meta[META_RUNNING]].copy()

    def node_name(self, node: int) -> str:
        """The name of a node."""
        return self.inventory.names.names[node]

    # --- tables ------------------------------------------------------------------------------------------------------

    def _make_box(self) -> Box:
        inventory, accounts = self.inventory, self.accounts
        res, res_pool, res_cpu, res_mem = self._res
        return Box(
            nodes=inventory.nodes,
            pools=inventory.pools,
            devices=inventory.devices,
            classes=self.classes.table,
            jobs=self.rows.table,
            tenants=accounts.tenants,
            queues=accounts.queues,
            eligible=inventory.eligibility.table,
            totals=inventory.totals,
            meta=self.meta,
            running=self.running,
            links=self.links,
            job_link=self.rows.link,
            res=res,
            res_pool=res_pool,
            res_cpu=res_cpu,
            res_mem=res_mem,
            work=self._work,
            typical=self.typical.table,
            rules=inventory.crowds.rules,
            tallies=inventory.crowds.tallies,
            domains=inventory.crowds.domains,
            counts=inventory.crowds.counts,
            liked=inventory.crowds.liked,
        )

    def _renew_box(self) -> None:
        before, self.box = self.box, self._make_box()
        if any(new is not old for new, old in zip(self.box, before, strict=True)):
            self.door = make_door(self.box)

    def refresh_box_if_grown(self) -> None:
        """`refresh_box`, where a table that jobs make grow was replaced."""
        box = self.box
        if self.classes.asks_node and self.meta[META_NODE_ASKED] == 0:
            # Reservations that were made before say nothing about CPUs and memory: they must be made anew.
            self.meta[META_NODE_ASKED] = 1
            self.capacity_grew = True
        if (
            box.jobs is not self.rows.table
            or box.classes is not self.classes.table
            or box.eligible is not self.inventory.eligibility.table
            or box.queues is not self.accounts.queues
            or box.tenants is not self.accounts.tenants
            or box.rules is not self.inventory.crowds.rules
            or box.domains is not self.inventory.crowds.domains
            or box.tallies is not self.inventory.crowds.tallies
            or box.liked is not self.inventory.crowds.liked
        ):
            self.refresh_box()

    def make_room_for(self, allocation: Allocation) -> None:
        """Make room for one more footprint and one more running job."""
        self.make_room(allocation.replicas, 1)

    def make_room(self, replicas: int, jobs: int) -> None:
        """Make room for footprints of so many replicas in all, and for so many more running jobs."""
        while self.meta[META_LINKS_LEFT] < replicas + 1 or self.meta[META_RUNNING] + jobs >= self.running.shape[1]:
            self.make_link_room(max(replicas + 1, self.links.shape[1]))

    def refresh_box(self) -> None:
        """Make `box` name the present arrays, after one of them was replaced by a larger one."""
        self._make_work_room()
        if self.meta[META_LINKS_LEFT] == 0:
            self.make_link_room(64)
        self.order.grow_sort(self.rows.table.shape[1])
        self._renew_box()

    def _make_work_room(self) -> None:
        wide = max(self.inventory.pools.shape[1], self.inventory.nodes.shape[1])
        if self._work.shape[1] < wide:
            self._work = make_table(WORK_ROWS, wide)
            self.make_reservation_room(self._res[0].shape[1])

    def make_reservation_room(self, depth: int) -> None:
        """Make room for `depth` reservations; those that were there are forgotten."""
        pools, nodes = self.inventory.pools.shape[1], self.inventory.nodes.shape[1]
        self.meta[META_RESERVATIONS] = 0
        tables = ((RES_COLUMNS, depth), (pools, depth), (depth, nodes), (depth, nodes))
        self._res = [make_table(columns, rows) for columns, rows in tables]
        self._renew_box()

    def make_link_room(self, more: int) -> None:
        """Make room for at least `more` further links of footprints, and as many running jobs as there are links."""
        have = self.links.shape[1]
        self.links = grow_table(self.links, have + more)
        room = self.links.shape[1]
        self.links[LINK_NEXT, have:room] = np.arange(have + 1, room + 1)
        self.links[LINK_NEXT, room - 1] = self.meta[META_LINK_FREE]
        self.meta[META_LINK_FREE] = have
        self.meta[META_LINKS_LEFT] += room - have
        self.running = grow_table(self.running, room)
        self._renew_box()
