"""The journal of a state directory, read beside whoever writes it: is it whole, and would it be decided so again?"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from clearway.adapters.storage import SqlReader, open_reader
from clearway.bootstrap.configuration import resolve_policy
from clearway.bootstrap.places import Places
from clearway.engine.policy import Policy
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.errors import InternalError
from clearway.model.events import Batch, ControlStarted, Event, PlanAccepted
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.wire.codec import encode_event
from clearway.wire.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A journal that is whole. last: the number of its last record. kinds: how many there are of each event."""

    records: int
    last: int
    kinds: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of deciding again. plans: those that were the same. difference: the first that was not, "" = none; at:
    the number of its record."""

    records: int
    plans: int
    at: int = 0
    difference: str = ""


def database_url(places: Places, config: Config) -> str:
    """Where the journal is."""
    return config.database_url or f"sqlite:///{places.database}"


def verify_journal(places: Places, config: Config) -> Verified:
    """Read every record. Raises JournalError that names the first which is damaged, StorageError."""
    reader = open_reader(database_url(places, config))
    try:
        kinds: Counter[str] = Counter()
        records = last = 0
        for number, event in reader.read_journal():
            records, last = records + 1, number
            for part in event.events if isinstance(event, Batch) else (event,):
                kinds[type(part).__name__] += 1
        return Verified(records=records, last=last, kinds=dict(sorted(kinds.items())))
    finally:
        reader.close()


def replay_journal(places: Places, config: Config) -> Replayed:
    """Decide again by the recorded events, and compare each plan with the recorded one, byte for byte.

    A policy that the journal names is one of the named ones, else the configured one. Raises as `verify_journal`.
    """
    reader = open_reader(database_url(places, config))
    try:
        return _Replay(reader, resolve_policy(config)).run()
    finally:
        reader.close()


@dataclass(slots=True)
class _Replay:
    """Where a replay stands. expected: plans that were decided again and must come next."""

    reader: SqlReader
    policy: Policy
    kernel: Kernel | None = None
    expected: list[PlanAccepted] = field(default_factory=list)
    records: int = 0
    plans: int = 0

    def run(self) -> Replayed:
        for number, event in self.reader.read_journal():
            difference = self._take(number, event)
            if difference:
                return Replayed(records=self.records, plans=self.plans, at=number, difference=difference)
            self.records += 1
        return Replayed(records=self.records, plans=self.plans)

    def _take(self, number: int, event: Event) -> str:
        """What differs at this record; "" = nothing."""
        if isinstance(event, PlanAccepted):
            if not self.expected:
                return "a plan was recorded, and none is decided now"
            if encode_event(self.expected.pop(0)) != encode_event(event):
                return "another plan is decided now"
            self.plans += 1
            return ""
        started = _find_start(event)
        # A control plane that was killed may have recorded what happened, and not yet what it decided.
        if self.expected and started is None:
            return "a plan is decided now, and none was recorded"
        if started is not None:
            self.kernel = self._recover(number, started.policy)
        if self.kernel is None:
            return "expected the journal to begin with the start of a control plane"
        try:
            self.kernel.handle(event)
        except InternalError as error:
            return str(error)
        self.expected = list(self.kernel.accepted)
        return ""

    def _recover(self, number: int, policy_name: str) -> Kernel:
        """A kernel as it was when a control plane took over before record `number`."""
        policy = self.policy
        if policy_name != policy.name and policy_name in POLICY_NAMES:
            policy = named_policy(policy_name)
        kernel = Kernel(policy, RuntimeHistory())
        for earlier, event in self._records_before(number):
            assert earlier < number
            kernel.recover(event)
        return kernel

    def _records_before(self, number: int) -> Iterator[tuple[int, Event]]:
        for earlier, event in self.reader.read_journal():
            if earlier >= number:
                return
            yield earlier, event


def _find_start(event: Event) -> ControlStarted | None:
    parts = event.events if isinstance(event, Batch) else (event,)
    return next((part for part in parts if isinstance(part, ControlStarted)), None)
