"""Rows of the JOB table: given to a job when it is accepted, given back when it ends."""

import numpy as np
from numpy.typing import NDArray

from clearway.engine.compiled import compiled
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
    LEVELS,
    NONE,
    PHASE_FREE,
    PHASE_PENDING,
    Table,
    grow_table,
    make_table,
)
from clearway.model.jobs import NETWORK_ANY, DomainLevel, JobKind, JobSpec
from clearway.model.units import FOREVER_MS, MILLI

KINDS = tuple(JobKind)
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LEVEL_NUMBERS = {level: LEVELS.index(level.value) for level in DomainLevel}
ANY_WIDEST = LEVEL_NUMBERS[NETWORK_ANY.widest]
ANY_PREFERRED = LEVEL_NUMBERS[NETWORK_ANY.preferred]


def or_forever(value: int | None) -> int:
    """A time or limit, with FOREVER_MS for none."""
    return FOREVER_MS if value is None else value


@compiled
def write_row(
    table: Table,
    sort: FloatTable,
    row: int,
    job: int,
    cls: int,
    replicas: int,
    least: int,
    most: int,
    milli: int,
    whole: int,
    priority: int,
    queue: int,
    tenant: int,
    queue_priority: int,
    widest: int,
    preferred: int,
    kind: int,
    preemptible: bool,
    at_ms: int,
    planned_ms: int,
    limit_ms: int,
    deadline_ms: int,
    oracle_ms: int,
    checkpoint_ms: int,
    restart_ms: int,
    by_priority: bool,
) -> None:
    """Clear the row, then write all of a job that is accepted at `at_ms` and waits, its sort columns too.

    One call with so many numbers costs a third of what three calls do, and far less than stores from Python.
    """
    table[:, row] = 0
    table[JOB_ID, row] = job
    table[JOB_CLASS, row] = cls
    table[JOB_REPLICAS, row] = replicas
    table[JOB_REPLICAS_MIN, row] = least
    table[JOB_REPLICAS_MAX, row] = most
    table[JOB_MILLI, row] = milli
    table[JOB_WHOLE, row] = whole
    table[JOB_PRIORITY, row] = priority
    table[JOB_QUEUE, row] = queue
    table[JOB_TENANT, row] = tenant
    table[JOB_QUEUE_PRIORITY, row] = queue_priority
    table[JOB_WIDEST, row] = widest
    table[JOB_PREFERRED, row] = preferred
    table[JOB_KIND, row] = kind
    table[JOB_PREEMPTIBLE, row] = preemptible
    table[JOB_SUBMIT_MS, row] = at_ms
    table[JOB_WAIT_SINCE_MS, row] = at_ms
    table[JOB_PLANNED_MS, row] = planned_ms
    table[JOB_LIMIT_MS, row] = limit_ms
    table[JOB_DEADLINE_MS, row] = deadline_ms
    table[JOB_ORACLE_MS, row] = oracle_ms
    table[JOB_CHECKPOINT_MS, row] = checkpoint_ms
    table[JOB_RESTART_MS, row] = restart_ms
    table[JOB_REASON, row] = REASON_PRIORITY
    table[JOB_PHASE, row] = PHASE_PENDING
    table[JOB_START_MS, row] = NONE
    table[JOB_END_MS, row] = NONE
    sort[SORT_QUEUE, row] = -queue_priority if by_priority else 0
    sort[SORT_PRIORITY, row] = -priority if by_priority else 0
    sort[SORT_KEY, row] = 0
    sort[SORT_SUBMIT, row] = at_ms
    sort[SORT_ID, row] = job


class JobRows:
    """The JOB table and the head of each job's footprint. `count` rows were ever used."""

    __slots__ = ("count", "free", "link", "table")

    def __init__(self) -> None:
        self.table: Table = make_table(JOB_COLUMNS, 64)
        self.link: NDArray[np.int64] = np.full(64, NONE, dtype=np.int64)
        self.count = 0
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

    def write(
        self,
        row: int,
        spec: JobSpec,
        numbers: tuple[int, int, int, int],
        sort: FloatTable,
        *,
        planned_ms: int,
        at_ms: int,
        by_priority: bool,
    ) -> None:
        """Fill the row of a job accepted at `at_ms`, and its sort columns but for the policy's key.

        numbers: its class, queue, tenant and queue priority. by_priority: whether these come before the key.
        """
        request = spec.request
        checkpoint, elastic, network = spec.checkpoint, spec.elastic, spec.network
        least = most = replicas = spec.replicas
        if elastic is not None:
            least, most = elastic.replicas_min, elastic.replicas_max
        devices, share = request.devices, request.share_milli
        limit_ms, deadline_ms, oracle_ms = spec.limit_ms, spec.deadline_ms, spec.oracle_ms
        write_row(
            self.table,
            sort,
            row,
            spec.id,
            numbers[0],
            replicas,
            least,
            most,
            replicas * devices * share,
            least * devices if share == MILLI else 0,
            spec.priority,
            numbers[1],
            numbers[2],
            numbers[3],
            ANY_WIDEST if network is NETWORK_ANY else LEVEL_NUMBERS[network.widest],
            ANY_PREFERRED if network is NETWORK_ANY else LEVEL_NUMBERS[network.preferred],
            KINDS.index(spec.kind),
            spec.preemptible and spec.requeue,
            at_ms,
            planned_ms,
            FOREVER_MS if limit_ms is None else limit_ms,
            FOREVER_MS if deadline_ms is None else deadline_ms,
            NONE if oracle_ms is None else oracle_ms,
            0 if checkpoint is None else checkpoint.interval_ms,
            0 if checkpoint is None else checkpoint.restart_ms,
            by_priority,
        )

    def give_back(self, row: int) -> None:
        """The row may be used again."""
        self.table[JOB_PHASE, row] = PHASE_FREE
        self.free.append(row)

    def copy(self) -> "JobRows":
        """An independent copy."""
        other = JobRows()
        other.table, other.link = self.table.copy(), self.link.copy()
        other.count, other.free = self.count, list(self.free)
        return other
