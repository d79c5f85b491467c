"""Rows of the JOB table: given to a job when it is accepted, given back when it ends."""

import numpy as np
from numpy.typing import NDArray

from clearway.engine.tables import (
    JOB_COLUMNS,
    JOB_PHASE,
    LEVELS,
    NONE,
    PHASE_FREE,
    PHASE_PENDING,
    Table,
    grow_table,
    make_table,
)
from clearway.model.jobs import DomainLevel, JobKind, JobSpec
from clearway.model.units import FOREVER_MS

KINDS = tuple(JobKind)
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LEVEL_NUMBERS = {level: LEVELS.index(level.value) for level in DomainLevel}


def or_forever(value: int | None) -> int:
    """A time or limit, with FOREVER_MS for none."""
    return FOREVER_MS if value is None else value


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
        self, row: int, spec: JobSpec, numbers: tuple[int, int, int, int], *, planned_ms: int, at_ms: int, reason: int
    ) -> None:
        """Fill the row of a job accepted at `at_ms`. numbers: its class, queue, tenant and queue priority."""
        request = spec.request
        checkpoint = spec.checkpoint
        network = spec.network
        self.table[:, row] = (
            spec.id,
            numbers[0],
            spec.replicas,
            spec.replicas_min,
            spec.replicas_max,
            spec.replicas * request.devices * request.share_milli,
            spec.priority,
            numbers[1],
            numbers[2],
            at_ms,
            planned_ms,
            or_forever(spec.limit_ms),
            PHASE_PENDING,
            reason,
            NONE,
            NONE,
            0,
            LEVEL_NUMBERS[network.widest],
            LEVEL_NUMBERS[network.preferred],
            0,
            0,
            0,
            spec.preemptible,
            0,
            or_forever(spec.deadline_ms),
            KIND_NUMBERS[spec.kind],
            0 if checkpoint is None else checkpoint.interval_ms,
            0 if checkpoint is None else checkpoint.restart_ms,
            0,
            numbers[3],
            NONE if spec.oracle_ms is None else spec.oracle_ms,
            at_ms,
            0,
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
