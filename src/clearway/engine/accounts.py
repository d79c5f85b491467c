"""Queues and tenants as tables, and what each tenant used in the past."""

from dataclasses import replace
from typing import Final

import numpy as np

from clearway.engine.fairshare import (
    TenantTree,
    added_use,
    fair_share_factors,
    make_tenant_tree,
    remaining,
    tenant_ranks,
)
from clearway.engine.nodes import Names
from clearway.engine.quota import UNLIMITED, refresh_tenants
from clearway.engine.tables import (
    NONE,
    QUEUE_COLUMNS,
    QUEUE_DEVICES_MAX,
    QUEUE_JOB_MAX,
    QUEUE_PRIORITY,
    QUEUE_RUNNING_MAX,
    TENANT_BORROW_MAX,
    TENANT_COLUMNS,
    TENANT_GUARANTEED,
    TENANT_HAS_QUOTA,
    TENANT_LEND_MAX,
    TENANT_PARENT,
    Table,
    grow_table,
    make_table,
)
from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.model.ids import ROOT_TENANT, QueueName, TenantName

SHARES_MS: Final = 60_000
"""Shares change with hours of use; working them out for each submit would cost more than the rest of the decision."""


GONE_WEIGHT: Final = 1e-9
"""Of a tenant that was removed: it takes nothing of what its neighbours share."""


def _limit(value: int | None) -> int:
    return UNLIMITED if value is None else value


class Accounts:
    """Queues and tenants by row. An unknown queue or tenant named by a job is made without limits at first sight."""

    def __init__(self, half_life_ms: int) -> None:
        self.half_life_ms = half_life_ms
        self.queue_names = Names()
        self.queue_specs: list[QueueSpec] = []
        self.queues: Table = make_table(QUEUE_COLUMNS, 8)
        self.tenant_names = Names()
        self.tenant_specs: list[TenantSpec] = []
        self.tenants: Table = make_table(TENANT_COLUMNS, 8)
        self.gone_queues: set[QueueName] = set()
        self.gone_tenants: set[TenantName] = set()
        self._usage: list[float] = []
        self._noted_ms: list[int] = []
        self._tree: TenantTree | None = None
        self._shares: tuple[np.ndarray, np.ndarray] | None = None
        self._shares_ms = 0
        self.set_tenant(TenantSpec(name=ROOT_TENANT), 0)

    @property
    def tenant_count(self) -> int:
        """Tenants, the root included."""
        return len(self.tenant_specs)

    def queue(self, name: QueueName) -> int:
        """The row of a queue."""
        row = self.queue_names.numbers.get(name)
        return self.set_queue(QueueSpec(name=name)) if row is None else row

    def set_queue(self, spec: QueueSpec) -> int:
        """Make or change a queue; returns its row."""
        row = self.queue_names.number(spec.name)
        if row == len(self.queue_specs):
            self.queue_specs.append(spec)
            self.queues = grow_table(self.queues, row + 1)
        self.queue_specs[row] = spec
        self.gone_queues.discard(spec.name)
        column = self.queues[:, row]
        column[QUEUE_PRIORITY] = spec.priority
        column[QUEUE_DEVICES_MAX] = _limit(spec.devices_max_milli)
        column[QUEUE_JOB_MAX] = _limit(spec.job_devices_max_milli)
        column[QUEUE_RUNNING_MAX] = _limit(spec.running_max)
        return row

    def tenant(self, name: TenantName, cluster_milli: int) -> int:
        """The row of a tenant; a new one becomes a child of the root."""
        row = self.tenant_names.numbers.get(name)
        return self.set_tenant(TenantSpec(name=name), cluster_milli) if row is None else row

    def set_tenant(self, spec: TenantSpec, cluster_milli: int) -> int:
        """Make or change a tenant; returns its row. Its parent must exist; it cannot be moved to another one."""
        parent = self._parent_row(spec)
        row = self.tenant_names.number(spec.name)
        if row == len(self.tenant_specs):
            self.tenant_specs.append(spec)
            self.tenants = grow_table(self.tenants, row + 1)
            self._usage.append(0.0)
            self._noted_ms.append(0)
            self.tenants[TENANT_PARENT, row] = parent
        elif self.tenants[TENANT_PARENT, row] != parent:
            raise InputError(
                f"tenant {spec.name!r}: expected parent {self.tenant_specs[row].parent!r} as before, found "
                f"{spec.parent!r}; make a new tenant and move its users there"
            )
        self.tenant_specs[row] = spec
        self.gone_tenants.discard(spec.name)
        self._write_quota(row, spec)
        self._tree = None
        self._shares = None
        self.refresh(cluster_milli)
        return row

    def current_queues(self) -> list[tuple[int, QueueSpec]]:
        """(row, queue) of those that were not removed."""
        return [(row, spec) for row, spec in enumerate(self.queue_specs) if spec.name not in self.gone_queues]

    def current_tenants(self) -> list[tuple[int, TenantSpec]]:
        """(row, tenant) of those that were not removed."""
        return [(row, spec) for row, spec in enumerate(self.tenant_specs) if spec.name not in self.gone_tenants]

    def remove_queue(self, name: QueueName) -> None:
        """No job is in it. Its row is kept, for a queue of that name that comes again."""
        self.gone_queues.add(name)

    def remove_tenant(self, name: TenantName, cluster_milli: int) -> None:
        """It has no jobs and nobody below it. Its row is kept, with a share that counts for nothing."""
        row = self.tenant_names.find(name)
        if row == NONE:
            return
        self.set_tenant(replace(self.tenant_specs[row], weight=GONE_WEIGHT, quota=None), cluster_milli)
        self.gone_tenants.add(name)

    def _parent_row(self, spec: TenantSpec) -> int:
        if spec.name == ROOT_TENANT:
            return NONE
        parent = self.tenant_names.find(spec.parent or ROOT_TENANT)
        if parent == NONE:
            raise InputError(f"tenant {spec.name!r}: expected a parent that exists, found {spec.parent!r}")
        return parent

    def _write_quota(self, row: int, spec: TenantSpec) -> None:
        column = self.tenants[:, row]
        column[TENANT_HAS_QUOTA] = spec.quota is not None
        column[TENANT_GUARANTEED] = 0 if spec.quota is None else spec.quota.guaranteed_milli
        column[TENANT_BORROW_MAX] = UNLIMITED if spec.quota is None else _limit(spec.quota.borrow_max_milli)
        column[TENANT_LEND_MAX] = UNLIMITED if spec.quota is None else _limit(spec.quota.lend_max_milli)

    def refresh(self, cluster_milli: int) -> None:
        """Work out the derived columns of tenants anew, after a change of a tenant or of the cluster's size."""
        refresh_tenants(self.tenants, self.tenant_count, cluster_milli if cluster_milli > 0 else UNLIMITED)

    def tree(self) -> TenantTree:
        """The shape of the tenants."""
        if self._tree is None:
            weights = np.array([spec.weight for spec in self.tenant_specs])
            self._tree = make_tenant_tree(self.tenants[TENANT_PARENT, : self.tenant_count].copy(), weights)
        return self._tree

    def note_use(self, tenant: int, milli: int, start_ms: int, now_ms: int) -> None:
        """A job of the tenant held `milli` from `start_ms` until now and gave it back."""
        if len(self.tenant_specs) == 1 or milli == 0:
            return
        since_ms = self._noted_ms[tenant]
        self._usage[tenant] = added_use(
            self._usage[tenant], max(now_ms - since_ms, 0), milli, now_ms - start_ms, self.half_life_ms
        )
        if now_ms > since_ms:
            self._noted_ms[tenant] = now_ms

    def _past_use(self, tenant: int, now_ms: int) -> float:
        elapsed_ms = max(now_ms - self._noted_ms[tenant], 0)
        return self._usage[tenant] * remaining(elapsed_ms, self.half_life_ms)

    def usage(self, now_ms: int, running_use: np.ndarray) -> np.ndarray:
        """float64[1, tenants]: decayed milli × ms of past jobs, plus `running_use` of those that run."""
        past = np.array([self._past_use(tenant, now_ms) for tenant in range(self.tenant_count)])
        used: np.ndarray = (past + running_use)[None, :]
        return used

    def ranks_and_factors(
        self, now_ms: int, running_use: np.ndarray, cluster_milli: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(int64, float64) by tenant: Fair-Tree rank and Slurm's classic fair-share factor."""
        usage = self.usage(now_ms, running_use)
        capacity = np.array([max(cluster_milli, 1)], dtype=np.float64)
        self._shares_ms = now_ms
        self._shares = tenant_ranks(self.tree(), usage, capacity), fair_share_factors(self.tree(), usage, capacity)
        return self._shares

    def known_shares(self, now_ms: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Ranks and factors worked out within the last SHARES_MS, None when they must be worked out anew."""
        if self.tenant_count == 1:
            return np.zeros(1, dtype=np.int64), np.ones(1)
        return self._shares if now_ms - self._shares_ms < SHARES_MS else None
