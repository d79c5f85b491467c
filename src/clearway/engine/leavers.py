"""What others leave already, and what is kept for those who rank behind: devices for which nobody new must leave."""

from collections.abc import Collection

import numpy as np

from clearway.engine.choose import place_whole
from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
from clearway.engine.tables import DEVICE_CLAIM, JOB_PRIORITY, JOB_QUEUE_PRIORITY, NONE
from clearway.engine.trial import Trial
from clearway.engine.victims import RANK_STEP, IntArray, belongs_to_others, ranks_behind
from clearway.model.allocation import Allocation


def let_leave(trial: Trial, leavers: Collection[JobRecord]) -> None:
    """On trial: those who were told to leave, or to give up a part, have done so. Limits then see the claims of those
    for whom they leave, not these as well."""
    for record in leavers:
        assert record.allocation is not None
        trial.let_go(record.row, record.allocation)
        if record.target is not None:
            trial.hold(record.row, record.target)


def stay(trial: Trial, leavers: Collection[JobRecord]) -> None:
    """On trial, after `let_leave`: they hold what they do hold. A job that moves, moves at once, not when they left."""
    for record in leavers:
        assert record.allocation is not None
        if record.target is not None:
            trial.let_go(record.row, record.target)
        trial.hold(record.row, record.allocation)


def take_over(
    trial: Trial, row: int, leavers: Collection[JobRecord], gone: Collection[int]
) -> tuple[list[int], Allocation] | None:
    """Devices that are kept for jobs of lower rank, for one that came later: as few claims fall, on trial, as must; if
    it can be, devices that are free already. None = they are not enough, and the trial is as it was. gone: rows
    whose claims are used up by now, or fell. Returns those whose claims fall, too.

    What is left of a claim that falls goes to nobody by the same plan: whoever then ranks first has it by the next.
    """
    claimants = _lower_claimants(trial.state, row, gone)
    if not claimants:
        return None
    found = _take(trial, row, claimants, leavers) or _take(trial, row, claimants, ())
    if found is None:
        return None
    claimants, allocation = found
    for claimant in claimants:
        _drop(trial, claimant)
    for claimant in claimants:  # without nodes: only so that nobody else is put there
        left = np.setdiff1d(trial.state.claims[claimant].allocation.devices, allocation.devices)
        trial.claim(claimant, Allocation(np.zeros(0, dtype=np.int64), left))
    return found


def _take(
    trial: Trial, row: int, claimants: list[int], blocked: Collection[JobRecord]
) -> tuple[list[int], Allocation] | None:
    """The claimants whose claims must fall, and where the job then goes, but for what those `blocked` still hold."""
    taken: list[int] = []
    allocation = None
    for claimant in claimants:
        taken.append(claimant)
        allocation = _place_without(trial, row, taken, blocked)
        if allocation is not None:
            break
    if allocation is None:
        return None
    for claimant in taken[:-1]:  # without the last it did not fit
        fewer = [other for other in taken if other != claimant]
        found = _place_without(trial, row, fewer, blocked)
        if found is not None:
            taken, allocation = fewer, found
    # Else what it wants of them is not devices.
    return (taken, allocation) if all(_lies_on(trial.state, one, allocation) for one in taken) else None


def _lower_claimants(state: ClusterState, row: int, gone: Collection[int]) -> list[int]:
    """Rows of jobs for which devices are kept and which the waiting job could evict if they ran, the last first."""
    rows = np.array([other for other in state.claims if other not in gone and other != row], dtype=np.int64)
    if len(rows) == 0:
        return []
    table = state.rows.table
    ranks = table[JOB_QUEUE_PRIORITY] * RANK_STEP + table[JOB_PRIORITY]
    lower = rows[(ranks[rows] < ranks[row]) & ranks_behind(state, rows, row) & ~belongs_to_others(state, rows, row)]
    return sorted(lower.tolist(), key=state.order.place, reverse=True)


def _drop(trial: Trial, claimant: int) -> None:
    """On trial: nothing is kept for the job, and nothing counts for it."""
    allocation = trial.state.claims[claimant].allocation
    trial.unclaim(claimant, allocation)
    milli = allocation.replicas * trial.state.by_row[claimant].spec.request.device_milli
    trial.count(claimant, -milli, jobs=-1)


def _place_without(
    trial: Trial, row: int, claimants: Collection[int], blocked: Collection[JobRecord]
) -> Allocation | None:
    """Where the job would go if these claims fell, but for what those `blocked` still hold."""
    mark = trial.mark()
    for claimant in claimants:
        _drop(trial, claimant)
    for record in blocked:
        trial.claim(record.row, Allocation(np.zeros(0, dtype=np.int64), _left_devices(trial.state, record)))
    allocation = place_whole(trial, row)
    trial.undo_to(mark)
    return allocation


def _left_devices(state: ClusterState, record: JobRecord) -> IntArray:
    """int64[n]: devices that the job was told to leave, and that are kept for nobody."""
    assert record.allocation is not None
    devices = np.unique(record.allocation.devices)
    if record.target is not None:
        devices = np.setdiff1d(devices, record.target.devices)
    unkept: IntArray = devices[state.inventory.devices[DEVICE_CLAIM, devices] == NONE]
    return unkept


def _lies_on(state: ClusterState, claimant: int, allocation: Allocation) -> bool:
    return bool(np.isin(state.claims[claimant].allocation.devices, allocation.devices).any())
