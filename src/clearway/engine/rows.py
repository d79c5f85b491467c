"""Rows of the JOB table: given to a job when it is accepted, given back when it ends."""

import numpy as np
from numpy.typing import NDArray

from clearway.engine.compiled import compiled, compiled_inside
from clearway.engine.order import (
    SORT_ID,
    SORT_KEY,
    SORT_PRIORITY,
    SORT_QUEUE,
    SORT_SUBMIT,
    FloatTable,
)
from clearway.engine.reasons import REASON_PRIORITY
from clearway.engine.tables import (
    JOB_CHECKPOINT_MS,
    JOB_CLASS,
    JOB_COLUMNS,
    JOB_DEADLINE_MS,
    JOB_END_MS,
    JOB_ID,
    JOB_KIND,
    JOB_LIMIT_MS,
    JOB_MILLI,
    JOB_ORACLE_MS,
    JOB_PHASE,
    JOB_PLANNED_MS,
    JOB_PREEMPTIBLE,
    JOB_PREFERRED,
    JOB_PRIORITY,
    JOB_QUEUE,
    JOB_QUEUE_PRIORITY,
    JOB_REASON,
    JOB_REPLICAS,
    JOB_REPLICAS_MAX,
    JOB_REPLICAS_MIN,
    JOB_RESTART_MS,
    JOB_START_MS,
    JOB_SUBMIT_MS,
    JOB_TENANT,
    JOB_WAIT_SINCE_MS,
    JOB_WHOLE,
    JOB_WIDEST,
    LEVEL_NODE,
    LEVEL_NVLINK,
    LEVELS,
    NONE,
    PHASE_FREE,
    PHASE_PENDING,
    Table,
    grow_table,
    make_table,
)
from clearway.model.jobs import DomainLevel, JobKind, JobSpec, Network
from clearway.model.units import FOREVER_MS

KINDS = tuple(JobKind)
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LEVEL_NUMBERS = {level: LEVELS.index(level.value) for level in DomainLevel}


def or_forever(value: int | None) -> int:
    """A time or limit, with FOREVER_MS for none."""
    return FOREVER_MS if value is None else value


@compiled_inside
def write_row_inside(
    table: Table,
    sort: FloatTable,
    form: NDArray[np.int64],
    row: int,
    job: int,
    cls: int,
    replicas: int,
    least: int,
    most: int,
    priority: int,
    queue: int,
    tenant: int,
    queue_priority: int,
    at_ms: int,
    planned_ms: int,
    limit_ms: int,
    by_priority: bool,
) -> None:
    """Write all of a job that is accepted at `at_ms` and waits, its sort columns too: its form, and what is its own.

    One call with so many numbers costs far less than stores from Python.
    """
    for column in range(JOB_COLUMNS):
        table[column, row] = form[column]
    table[JOB_ID, row] = job
    table[JOB_CLASS, row] = cls
    table[JOB_REPLICAS, row] = replicas
    table[JOB_REPLICAS_MIN, row] = least
    table[JOB_REPLICAS_MAX, row] = most
    table[JOB_MILLI, row] = replicas * form[JOB_MILLI]
    table[JOB_WHOLE, row] = least * form[JOB_WHOLE]
    table[JOB_PRIORITY, row] = priority
    table[JOB_QUEUE, row] = queue
    table[JOB_TENANT, row] = tenant
    table[JOB_QUEUE_PRIORITY, row] = queue_priority
    table[JOB_SUBMIT_MS, row] = at_ms
    table[JOB_WAIT_SINCE_MS, row] = at_ms
    table[JOB_PLANNED_MS, row] = planned_ms
    table[JOB_LIMIT_MS, row] = limit_ms
    sort[SORT_QUEUE, row] = -queue_priority if by_priority else 0
    sort[SORT_PRIORITY, row] = -priority if by_priority else 0
    sort[SORT_KEY, row] = 0
    sort[SORT_SUBMIT, row] = at_ms
    sort[SORT_ID, row] = job


@compiled
def write_row(
    table: Table,
    sort: FloatTable,
    form: NDArray[np.int64],
    row: int,
    job: int,
    cls: int,
    replicas: int,
    least: int,
    most: int,
    priority: int,
    queue: int,
    tenant: int,
    queue_priority: int,
    at_ms: int,
    planned_ms: int,
    limit_ms: int,
    by_priority: bool,
) -> None:
    """`write_row_inside`, called from Python."""
    write_row_inside(
        table,
        sort,
        form,
        row,
        job,
        cls,
        replicas,
        least,
        most,
        priority,
        queue,
        tenant,
        queue_priority,
        at_ms,
        planned_ms,
        limit_ms,
        by_priority,
    )


def preferred_level(network: Network) -> int:
    """The level that a job prefers, NONE where it names none or one that is wider than it may span."""
    level, widest = LEVEL_NUMBERS[network.preferred], LEVEL_NUMBERS[network.widest]
    if not network.is_named and level <= LEVEL_NODE:
        return NONE
    if level > max(widest, LEVEL_NODE) or (level == LEVEL_NVLINK and widest == LEVEL_NODE):
        return NONE
    return level


def make_form(spec: JobSpec) -> NDArray[np.int64]:
    """int64[JOB_COLUMNS]: what rows of jobs like this one have in common; by replica where it grows with these."""
    form = np.zeros(JOB_COLUMNS, dtype=np.int64)
    checkpoint, request = spec.checkpoint, spec.request
    form[JOB_MILLI] = request.device_milli
    form[JOB_WHOLE] = 0 if request.is_fractional else request.devices
    form[JOB_WIDEST] = LEVEL_NUMBERS[spec.network.widest]
    form[JOB_PREFERRED] = preferred_level(spec.network)
    form[JOB_KIND] = KIND_NUMBERS[spec.kind]
    form[JOB_PREEMPTIBLE] = spec.preemptible and spec.requeue
    form[JOB_DEADLINE_MS] = or_forever(spec.deadline_ms)
    form[JOB_ORACLE_MS] = NONE if spec.oracle_ms is None else spec.oracle_ms
    form[JOB_CHECKPOINT_MS] = 0 if checkpoint is None else checkpoint.interval_ms
    form[JOB_RESTART_MS] = 0 if checkpoint is None else checkpoint.restart_ms
    form[JOB_REASON] = REASON_PRIORITY
    form[JOB_PHASE] = PHASE_PENDING
    form[JOB_START_MS] = form[JOB_END_MS] = NONE
    return form


def is_like(spec: JobSpec, other: JobSpec) -> bool:
    """Whether the two surely have the same form: in all that it says they have the same object."""
    return (
        spec.request is other.request
        and spec.kind is other.kind
        and spec.network is other.network
        and spec.checkpoint is other.checkpoint
        and spec.oracle_ms is other.oracle_ms
        and spec.deadline_ms is other.deadline_ms
        and spec.preemptible is other.preemptible
        and spec.requeue is other.requeue
    )


class JobRows:
    """The JOB table and the head of each job's footprint. `count` rows were ever used."""

    __slots__ = ("count", "free", "has_elastic", "link", "table")

    def __init__(self) -> None:
        self.table: Table = make_table(JOB_COLUMNS, 64)
        self.link: NDArray[np.int64] = np.full(64, NONE, dtype=np.int64)
        self.count = 0
        self.has_elastic = False  # whether any job ever was
        self.free: list[int] = []

    def new(self) -> int:
        """A row: the one given back last, else a new one."""
        if self.free:
            return self.free.pop()
        row = self.count
        self.count += 1
        if self.count > self.table.shape[1]:
            self.table = grow_table(self.table, self.count)
            self.link = grow_table(self.link[None, :], self.count, NONE)[0]
        return row

    def make_room(self, more: int) -> None:
        """Make room for so many more rows that were never used."""
        self.table = grow_table(self.table, self.count + more)
        self.link = grow_table(self.link[None, :], self.count + more, NONE)[0]

    def write(
        self,
        row: int,
        spec: JobSpec,
        form: NDArray[np.int64],
        numbers: tuple[int, int, int, int],
        sort: FloatTable,
        *,
        planned_ms: int,
        at_ms: int,
        by_priority: bool,
    ) -> None:
        """Fill the row of a job of this form accepted at `at_ms`, and its sort columns but for the policy's key.

        numbers: its class, queue, tenant and queue priority. by_priority: whether these come before the key.
        """
        elastic, limit_ms = spec.elastic, spec.limit_ms
        least = most = spec.replicas
        if elastic is not None:
            self.has_elastic = True
            least, most = elastic.replicas_min, elastic.replicas_max
        cls, queue, tenant, queue_priority = numbers
        write_row(
            self.table,
            sort,
            form,
            row,
            spec.id,
            cls,
            spec.replicas,
            least,
            most,
            spec.priority,
            queue,
            tenant,
            queue_priority,
            at_ms,
            planned_ms,
            FOREVER_MS if limit_ms is None else limit_ms,
            by_priority,
        )

    def give_back(self, row: int) -> None:
        """The row may be used again."""
        self.table[JOB_PHASE, row] = PHASE_FREE
        self.free.append(row)
