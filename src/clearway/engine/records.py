"""What the state box knows about a job that has not ended, beside its row in the tables."""

from dataclasses import dataclass
from typing import Final

from clearway.model.allocation import Allocation
from clearway.model.ids import JobId
from clearway.model.jobs import JobSpec
from clearway.model.plan import ReasonCode

PROTECTION_FIRST_MS: Final = 1_000
DOUBLINGS_MAX: Final = 16  # 18 hours


def protection_more_ms(futile: int) -> int:
    """How long a start is protected beyond what the policy says, by how many starts before it were for nothing: from
    the second on one second, and twice as long with each. So however orders, quotas and sizes contradict one another,
    no set of jobs has its members turned out for each other for ever."""
    return PROTECTION_FIRST_MS << min(futile - 2, DOUBLINGS_MAX) if futile >= 2 else 0


@dataclass(slots=True)
class JobRecord:
    """One job that has not ended. Mutable, owned by `ClusterState`, changed only by `apply`.

    allocation: what it holds, None when nothing. target: what it will hold when a resize or migration is done.
    blocked: why it may not even be considered (dependency, time, hold), None when it may. tenant: its row.
    held: it is held, as `held_as` and by `held_because` ("" = by its user). cancelled: it is to stop for good.
    suspended: it is frozen, its work in memory. futile: how many of its last starts, in a row, others had ended
    before anything was gained by them.
    """

    spec: JobSpec
    row: int
    phase: int
    generation: int = 0
    allocation: Allocation | None = None
    target: Allocation | None = None
    blocked: ReasonCode | None = None
    tenant: int = 0
    held: bool = False
    held_as: ReasonCode = ReasonCode.HELD
    held_because: str = ""
    cancelled: bool = False
    suspended: bool = False
    resized_ms: int = 0
    checkpoint_ms: int = 0
    futile: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Devices kept for a waiting job: they go to nobody else, and it starts when the last of them is free."""

    job: JobId
    allocation: Allocation
    start_ms: int
