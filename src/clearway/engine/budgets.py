"""How many replicas others let be told to leave: budgets (`BudgetsChanged`), and what is left of each at the moment."""

from typing import TYPE_CHECKING

from clearway.engine.records import JobRecord
from clearway.engine.tables import PHASE_STOPPING
from clearway.model.ids import JobId

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

Counts = tuple[tuple[str, int], ...]


def is_leaving(record: JobRecord) -> bool:
    """Whether it was told to leave what it holds, or a part of it."""
    return record.phase == PHASE_STOPPING or record.target is not None


class Purse:
    """What is left of each budget while jobs are chosen; jobs that are on their way out are paid for already."""

    def __init__(self, state: "ClusterState") -> None:
        self._counts = state.budgeted
        self.left = dict(state.budgets)
        for job in self._counts:
            record = state.jobs.get(job)
            if record is not None and is_leaving(record):
                self.pay(job)

    def allows(self, job: JobId) -> bool:
        """Whether the job may leave, with all of its replicas, beside those that were paid for."""
        return all(count <= self.left.get(name, count) for name, count in self._counts.get(job, ()))

    def pay(self, job: JobId) -> None:
        """The job leaves."""
        self._change(job, -1)

    def pay_back(self, job: JobId) -> None:
        """The job stays after all."""
        self._change(job, 1)

    def _change(self, job: JobId, sign: int) -> None:
        for name, count in self._counts.get(job, ()):
            if name in self.left:
                self.left[name] += sign * count

    def names_of(self, job: JobId) -> tuple[str, ...]:
        """The budgets that do not let the job leave."""
        return tuple(name for name, count in self._counts.get(job, ()) if count > self.left.get(name, count))
