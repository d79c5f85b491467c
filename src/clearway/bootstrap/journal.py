"""The journal of a state directory, read beside whoever writes it: is it whole, and would it be decided so again?"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clearway.adapters.storage import open_reader
from clearway.bootstrap.configuration import resolve_policy
from clearway.bootstrap.places import Places
from clearway.bootstrap.policies import recorded_policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.replay import Replayed
from clearway.live.replay import replay_journal as decide_again
from clearway.model.events import Batch
from clearway.wire.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A journal that is whole, and so is the audit log. last: the number of the journal's last record. kinds: how many
    there are of each event. audit: lines of the audit log."""

    records: int
    last: int
    kinds: Mapping[str, int]
    audit: int


def database_url(places: Places, config: Config) -> str:
    """Where the journal is."""
    return config.database_url or f"sqlite:///{places.database}"


def verify_journal(places: Places, config: Config) -> Verified:
    """Read every record, and every line of the audit log. Raises JournalError that names the first which is damaged,
    StorageError."""
    reader = open_reader(database_url(places, config))
    try:
        kinds: Counter[str] = Counter()
        records = last = 0
        for number, event in reader.read_journal():
            records, last = records + 1, number
            for part in event.events if isinstance(event, Batch) else (event,):
                kinds[type(part).__name__] += 1
        audit = 0
        while lines := reader.read_audit(audit):
            audit = lines[-1][0]
        return Verified(records=records, last=last, kinds=dict(sorted(kinds.items())), audit=audit)
    finally:
        reader.close()


def replay_journal(places: Places, config: Config, progress: Callable[[int], None] | None = None) -> Replayed:
    """Decide again by the recorded events, and compare each plan with the recorded one, byte for byte.

    A policy that the journal names is the configured one or one of the named ones. Raises InputError for another, and
    as `verify_journal`.
    """
    configured = resolve_policy(config)

    def make_kernel(policy_name: str) -> Kernel:
        return Kernel(recorded_policy(policy_name, configured), RuntimeHistory())

    reader = open_reader(database_url(places, config))
    try:
        return decide_again(reader.read_journal(), make_kernel, progress)
    finally:
        reader.close()
