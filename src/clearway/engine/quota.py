"""Quota of tenants and limits of queues, as leaf functions over the TENANT and QUEUE tables.

The rules are Kueue's for cohorts in a tree (`nominalQuota`, `borrowingLimit`, `lendingLimit`; its
pkg/cache/scheduler/resource_node.go), in one unit, thousandths of a device, for whole and fractional use alike:

- What reaches a level (TENANT_SUBTREE) is its own quota and all that its children may lend.
- A tenant keeps (TENANT_KEPT) what it does not lend; use counts at its parent only beyond that.
- So at each level TENANT_TAKEN = own use + what each child takes beyond what it keeps. This is an equation over the
  present holdings, not over history: giving back what was taken restores every column exactly.
- A tenant may borrow at most its borrowing limit, and never what others keep.

Two cases are ours. A root without a quota stands for the whole cluster: its own quota is the part of the cluster that
nobody else has. And a tenant without a quota has nothing of its own and no borrowing limit; a tree in which nobody has
a quota limits nobody.

`refresh_tenants` must be called after each change of a tenant or of the cluster's size; `tenant_take` keeps the rest.
"""

from typing import Final

from clearway.engine.compiled import compiled, compiled_inside
from clearway.engine.tables import (
    NONE,
    QUEUE_DEVICES_MAX,
    QUEUE_JOB_MAX,
    QUEUE_RUNNING,
    QUEUE_RUNNING_MAX,
    QUEUE_USED,
    TENANT_BORROW_MAX,
    TENANT_GUARANTEED,
    TENANT_HAS_QUOTA,
    TENANT_KEPT,
    TENANT_LEND_MAX,
    TENANT_LIMITED,
    TENANT_NOMINAL,
    TENANT_OWN,
    TENANT_PARENT,
    TENANT_SUBTREE,
    TENANT_TAKEN,
    TENANT_USED,
    Table,
)
from clearway.model.units import FOREVER_MS

UNLIMITED: Final = FOREVER_MS
"""More than any amount of devices."""

QUEUE_OPEN: Final = 0
QUEUE_REFUSES_JOB: Final = 1
QUEUE_REFUSES_DEVICES: Final = 2
QUEUE_REFUSES_RUNNING: Final = 3


@compiled
def refresh_tenants(tenants: Table, rows: int, cluster_milli: int) -> None:
    """Work out the derived columns of the first `rows` tenants from settings and TENANT_OWN, children before parents.

    cluster_milli: devices of the cluster, the size of a root without a quota (UNLIMITED = do not limit at the root).
    """
    limited = 0
    for row in range(rows):
        limited |= tenants[TENANT_HAS_QUOTA, row]
        tenants[TENANT_NOMINAL, row] = tenants[TENANT_GUARANTEED, row] if tenants[TENANT_HAS_QUOTA, row] else 0
        tenants[TENANT_SUBTREE, row] = tenants[TENANT_NOMINAL, row]
        tenants[TENANT_TAKEN, row] = tenants[TENANT_OWN, row]
        tenants[TENANT_USED, row] = tenants[TENANT_OWN, row]
    promised = 0
    for row in range(rows - 1, 0, -1):
        parent = tenants[TENANT_PARENT, row]
        subtree = tenants[TENANT_SUBTREE, row]
        lent = min(subtree, tenants[TENANT_LEND_MAX, row]) if tenants[TENANT_HAS_QUOTA, row] else subtree
        tenants[TENANT_KEPT, row] = subtree - lent
        tenants[TENANT_SUBTREE, parent] += lent
        tenants[TENANT_TAKEN, parent] += max(0, tenants[TENANT_TAKEN, row] - tenants[TENANT_KEPT, row])
        tenants[TENANT_USED, parent] += tenants[TENANT_USED, row]
        promised += tenants[TENANT_NOMINAL, row]
    if tenants[TENANT_HAS_QUOTA, 0] == 0:
        unpromised = max(0, cluster_milli - promised)
        tenants[TENANT_NOMINAL, 0] = unpromised
        tenants[TENANT_SUBTREE, 0] += unpromised
    tenants[TENANT_KEPT, 0] = 0
    for row in range(rows):
        tenants[TENANT_LIMITED, row] = limited


@compiled
def tenant_available(tenants: Table, row: int) -> int:
    """Thousandths that tenant `row` may still take: of its own, and of what others lend, within every borrowing limit.

    What a tenant keeps is available to it even while a level above is in debt (after a quota was lowered). Per level
    available = kept and unused + what the level above has, within 0 and the borrowing limit: a shift and a clamp. The
    loop composes those upwards as `minimum ≤ above + shift ≤ maximum`.
    """
    if tenants[TENANT_LIMITED, row] == 0:
        return UNLIMITED
    shift = 0
    minimum = 0
    maximum = UNLIMITED
    while tenants[TENANT_PARENT, row] != NONE:
        kept_unused = max(0, tenants[TENANT_KEPT, row] - tenants[TENANT_TAKEN, row])
        room = _room_above(tenants, row)
        minimum, maximum = (
            min(max(kept_unused + shift, minimum), maximum),
            min(max(kept_unused + room + shift, minimum), maximum),
        )
        shift += kept_unused
        row = tenants[TENANT_PARENT, row]
    above = tenants[TENANT_SUBTREE, row] - tenants[TENANT_TAKEN, row]
    return int(min(max(above + shift, minimum), maximum))


@compiled_inside
def _room_above(tenants: Table, row: int) -> int:
    """Thousandths that tenant `row` may still take from its parent: what it lent itself, and its borrowing limit."""
    if tenants[TENANT_HAS_QUOTA, row] == 0 or tenants[TENANT_BORROW_MAX, row] >= UNLIMITED:
        return UNLIMITED
    kept = tenants[TENANT_KEPT, row]
    lent = tenants[TENANT_SUBTREE, row] - kept
    taken_above = max(0, tenants[TENANT_TAKEN, row] - kept)
    return int(max(0, lent - taken_above + tenants[TENANT_BORROW_MAX, row]))


@compiled
def tenant_take(tenants: Table, row: int, milli: int) -> None:
    """Count `milli` as held by a job of tenant `row`; a negative amount gives back. Does not judge."""
    tenants[TENANT_OWN, row] += milli
    counted = milli
    while row != NONE:
        kept = tenants[TENANT_KEPT, row]
        before = max(0, tenants[TENANT_TAKEN, row] - kept)
        tenants[TENANT_USED, row] += milli
        tenants[TENANT_TAKEN, row] += counted
        counted = max(0, tenants[TENANT_TAKEN, row] - kept) - before
        row = tenants[TENANT_PARENT, row]


@compiled
def borrowed_milli(tenants: Table, row: int) -> int:
    """Thousandths that tenant `row` and those below it hold beyond what is theirs."""
    if tenants[TENANT_LIMITED, row] == 0:
        return 0
    return int(max(0, tenants[TENANT_TAKEN, row] - tenants[TENANT_SUBTREE, row]))


@compiled
def is_borrowing(tenants: Table, row: int) -> bool:
    """Whether tenant `row` holds more than is its own."""
    return borrowed_milli(tenants, row) > 0


@compiled
def may_reclaim(tenants: Table, claimant: int, victim: int, milli: int) -> bool:
    """Whether a job of `claimant` that asks for `milli` may take devices from jobs of tenant `victim` by right.

    Both are looked at below their lowest common ancestor: `milli` more must stay within what is guaranteed to the
    claimant or to a level above it, and the victim and each level above it must be borrowing. Where one of the two is
    that ancestor itself, its own jobs are compared with its own quota. After each stop the answer must be asked anew.
    """
    if tenants[TENANT_LIMITED, claimant] == 0 or claimant == victim:
        return False
    meeting = _lowest_common_ancestor(tenants, claimant, victim)
    return _is_entitled(tenants, claimant, meeting, milli) and _is_in_debt(tenants, victim, meeting)


@compiled_inside
def _lowest_common_ancestor(tenants: Table, one: int, other: int) -> int:
    """Parents have smaller rows, so the larger of two rows is never above the other."""
    while one != other:
        if one > other:
            one = tenants[TENANT_PARENT, one]
        else:
            other = tenants[TENANT_PARENT, other]
    return one


@compiled_inside
def _is_entitled(tenants: Table, row: int, meeting: int, milli: int) -> bool:
    if row == meeting:
        return bool(tenants[TENANT_OWN, row] + milli <= tenants[TENANT_NOMINAL, row])
    while row != meeting:
        taken = tenants[TENANT_TAKEN, row]
        if taken + milli <= tenants[TENANT_SUBTREE, row]:
            return True
        kept = tenants[TENANT_KEPT, row]
        milli = max(0, taken + milli - kept) - max(0, taken - kept)
        row = tenants[TENANT_PARENT, row]
    return False


@compiled_inside
def _is_in_debt(tenants: Table, row: int, meeting: int) -> bool:
    if row == meeting:
        return bool(tenants[TENANT_OWN, row] > tenants[TENANT_NOMINAL, row])
    while row != meeting:
        if tenants[TENANT_TAKEN, row] <= tenants[TENANT_SUBTREE, row]:
            return False
        row = tenants[TENANT_PARENT, row]
    return True


@compiled
def queue_refusal(queues: Table, row: int, milli: int) -> int:
    """Why queue `row` would not let one more job of `milli` start: a QUEUE_REFUSES_* number, or QUEUE_OPEN."""
    if milli > queues[QUEUE_JOB_MAX, row]:
        return QUEUE_REFUSES_JOB
    if queues[QUEUE_USED, row] + milli > queues[QUEUE_DEVICES_MAX, row]:
        return QUEUE_REFUSES_DEVICES
    if queues[QUEUE_RUNNING, row] >= queues[QUEUE_RUNNING_MAX, row]:
        return QUEUE_REFUSES_RUNNING
    return QUEUE_OPEN


@compiled
def queue_allows(queues: Table, row: int, milli: int) -> bool:
    """Whether the limits of queue `row` let one more job of `milli` start."""
    return queue_refusal(queues, row, milli) == QUEUE_OPEN


@compiled
def queue_take(queues: Table, row: int, milli: int, jobs: int) -> None:
    """Count `milli` and `jobs` running jobs in queue `row`; negative amounts give back (a resize has `jobs` 0)."""
    queues[QUEUE_USED, row] += milli
    queues[QUEUE_RUNNING, row] += jobs
