"""What a journal makes, kept and found again: snapshots of the memory of a control plane."""

import logging
from collections.abc import Callable, Iterable

from clearway.live.memory import Memory
from clearway.model.errors import InputError
from clearway.model.events import Event
from clearway.ports.snapshots import Snapshot, Snapshots

_LOG = logging.getLogger(__name__)


def load_newest(memory: Memory, snapshots: Snapshots) -> int:
    """Have a new memory go on from the newest snapshot that is good; returns after which record, 0 = there is none."""
    for snapshot in snapshots.find(memory.basis):
        try:
            memory.load(snapshot.payload)
        except InputError as error:
            _LOG.warning("the snapshot of record %d is left out: %s", snapshot.record, error)
        else:
            return snapshot.record
    return 0


def take_snapshot(
    memory: Memory, snapshots: Snapshots, read_journal: Callable[[int], Iterable[tuple[int, Event]]], least: int
) -> Snapshot | None:
    """Keep a snapshot of all that the journal holds, made from the newest on; None where fewer than `least` records
    have come since. Raises what reading and keeping raise."""
    begun = last = load_newest(memory, snapshots)
    for number, event in read_journal(begun):
        memory.recover(event)
        last = number
    if last - begun < max(least, 1):
        return None
    snapshot = Snapshot(record=last, basis=memory.basis, payload=memory.dump())
    snapshots.keep(snapshot)
    return snapshot
