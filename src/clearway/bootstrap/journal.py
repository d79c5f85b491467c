"""The journal of a state directory, read beside whoever writes it: is it whole, and would it be decided so again?"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clearway.adapters.storage import SnapshotFolder, SqlReader, open_reader
from clearway.bootstrap.configuration import resolve_policy
from clearway.bootstrap.places import Places, is_running
from clearway.bootstrap.policies import recorded_policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.guard import GuardSettings
from clearway.live.memory import Memory
from clearway.live.recall import take_snapshot
from clearway.live.replay import Replayed
from clearway.live.replay import replay_journal as decide_again
from clearway.live.takeover import told_policy
from clearway.live.verify import Verifier
from clearway.model.events import ControlStarted
from clearway.ports.snapshots import Snapshot
from clearway.wire.config import Config

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A journal that is whole, and so are the audit log, and the rows and snapshots that were made of it.

    last: the number of the journal's last record. kinds: how many there are of each event. audit: lines of the audit
    log. rows: of jobs; rows_left: of jobs that wait or run, which are compared only where no control plane runs.
    snapshots: the records that they are of.
    """

    records: int
    last: int
    kinds: Mapping[str, int]
    audit: int
    rows: int
    rows_left: int
    snapshots: Sequence[int]


def database_url(places: Places, config: Config) -> str:
    """Where the journal is."""
    return config.database_url or f"sqlite:///{places.database}"


def snapshots_of(places: Places, reader: SqlReader, tell: Callable[[str], None] = _LOG.warning) -> SnapshotFolder:
    """The snapshots of a state directory."""
    return SnapshotFolder(places.snapshots, reader.checksum_of, tell)


def make_memory(config: Config) -> Memory:
    """A memory of a control plane with this configuration, which has taken nothing in."""
    return Memory(Kernel(resolve_policy(config), RuntimeHistory()), guard_of(config))


def guard_of(config: Config) -> GuardSettings:
    """What is done about starts that fail."""
    return GuardSettings(retries_max=config.retries)


def verify_journal(places: Places, config: Config) -> Verified:
    """Read every record, and every line of the audit log; compare rows and snapshots with what the journal makes.

    Raises JournalError that names the first which is damaged, StorageError.
    """
    reader = open_reader(database_url(places, config))
    try:
        memory = make_memory(config)
        verifier = Verifier(memory, reader, list(snapshots_of(places, reader).find(memory.basis)))
        for number, event in reader.read_journal():
            verifier.take(number, event)
        checked = verifier.finish(is_still=not is_running(places))
        audit = 0
        while lines := reader.read_audit(audit):
            audit = lines[-1][0]
        return Verified(
            records=checked.records,
            last=checked.last,
            kinds=dict(sorted(checked.kinds.items())),
            audit=audit,
            rows=checked.rows,
            rows_left=checked.rows_left,
            snapshots=tuple(checked.snapshots),
        )
    finally:
        reader.close()


def snapshot_journal(places: Places, config: Config, least: int = 1) -> Snapshot | None:
    """Keep a snapshot of the journal as it is, beside whoever writes it; None where fewer than `least` records have
    come since the last. Raises as `verify_journal`."""
    reader = open_reader(database_url(places, config))
    try:
        return take_snapshot(make_memory(config), snapshots_of(places, reader), reader.read_journal, least)
    finally:
        reader.close()


def replay_journal(places: Places, config: Config, progress: Callable[[int], None] | None = None) -> Replayed:
    """Decide again by the recorded events, and compare each plan with the recorded one, byte for byte.

    Decided is by the policy that the journal holds. Where it holds only its name, as older releases wrote it, that is
    the configured one or one of the named ones. Raises InputError for another, and as `verify_journal`.
    """
    configured = resolve_policy(config)

    def make_kernel(started: ControlStarted) -> Kernel:
        policy = told_policy(started) or recorded_policy(started.policy, configured)
        return Kernel(policy, RuntimeHistory())

    reader = open_reader(database_url(places, config))
    try:
        return decide_again(reader.read_journal(), make_kernel, progress)
    finally:
        reader.close()
