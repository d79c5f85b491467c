"""A journal decided anew: the same inputs must give the same plans, byte for byte.

The inputs of a journal are fed to a fresh kernel in order, and each plan that it accepts is compared with the one that
stands in the journal. Where a control plane took over (`ControlStarted`), the new one did not decide anew what the old
one had decided, but read it; so does the replay. What the old one may have decided without living to write it down was
never performed, and is left out.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from clearway.kernel import Kernel
from clearway.live.books import each_part
from clearway.live.snapshot import parse, render
from clearway.model.events import ControlStarted, Event, PlanAccepted
from clearway.model.plan import Plan
from clearway.wire.codec import encode_plan

MakeKernel = Callable[[ControlStarted], Kernel]
"""A fresh kernel that decides by the policy of a control plane that started so."""

NOT_TOLD: Final = ControlStarted(0)
"""Before the first control plane that said by which policy it decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replay first decides otherwise. record: number of the journal's record. expected: the plan that the
    journal holds there, found: the one that was decided now, both as JSON; "" = none."""

    record: int
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay found. records: looked at. plans: that agreed. starts: of control planes. difference: the first.

    by_name: the policy by which was decided where it differs, if the journal holds its name alone, so that it may be
    another than it was; "" = the journal tells it whole, or nothing differs.
    """

    records: int
    plans: int
    starts: int
    difference: Difference | None = None
    by_name: str = ""


def render_plan(plan: Plan) -> str:
    """A plan as one line of JSON, the same for the same plan."""
    return json.dumps(encode_plan(plan), sort_keys=True, separators=(",", ":"))


def replay_journal(
    records: Iterable[tuple[int, Event]], make_kernel: MakeKernel, progress: Callable[[int], None] | None = None
) -> Replayed:
    """Decide a journal anew, up to the first difference. progress: called with the number of each record.

    Raises what `records` raises, such as JournalError.
    """
    replay = _Replay(make_kernel)
    for number, event in records:
        difference = replay.take(number, event)
        if progress is not None:
            progress(number)
        if difference is not None:
            return replay.result(difference)
    return replay.result(None)


class _Replay:
    """A kernel, and the plans that it accepted and that the journal must show next."""

    def __init__(self, make_kernel: MakeKernel) -> None:
        self._make_kernel = make_kernel
        self._kernel: Kernel | None = None
        self._started = NOT_TOLD
        self._seen: list[Event] = []
        self._read: Kernel | None = None  # took in, without deciding, the first `_read_count` of them
        self._read_count = 0
        self._awaited: Iterator[PlanAccepted] = iter(())
        self._records = self._plans = self._starts = 0

    def take(self, number: int, event: Event) -> Difference | None:
        """One record; returns how it differs from what is decided now."""
        self._records += 1
        difference = self._compare(number, event) if isinstance(event, PlanAccepted) else self._decide(number, event)
        self._seen.append(event)
        return difference

    def _compare(self, number: int, event: PlanAccepted) -> Difference | None:
        decided = next(self._awaited, None)
        expected, found = render_plan(event.plan), "" if decided is None else render_plan(decided.plan)
        if expected != found or (decided is not None and decided.at_ms != event.at_ms):
            return Difference(record=number, expected=expected, found=found)
        self._plans += 1
        return None

    def _decide(self, number: int, event: Event) -> Difference | None:
        started = next((part for part in each_part(event) if isinstance(part, ControlStarted)), None)
        missing = next(self._awaited, None)
        if missing is not None and started is None:
            return Difference(record=number, expected="", found=render_plan(missing.plan))
        if started is not None:
            self._starts += 1
            self._kernel, self._started = self._take_over(started), started
        if self._kernel is None:
            self._kernel = self._make_kernel(NOT_TOLD)
        self._kernel.handle(event)
        self._awaited = iter(self._kernel.accepted)
        return None

    def _take_over(self, started: ControlStarted) -> Kernel:
        """The kernel of a control plane that starts now. What was read for the one before is not read again."""
        kernel, read = self._make_kernel(started), self._read
        if read is None or read.policy.fair_share.half_life_ms != kernel.policy.fair_share.half_life_ms:
            read, self._read_count = self._make_kernel(started), 0
        for record in self._seen[self._read_count :]:
            read.recover(record)
        self._read, self._read_count = read, len(self._seen)
        read.begin_reading()
        parts = {"state": read.state.attributes(), "run_times": read.state.run_times}
        kernel.resume(**parse(render(parts), ("state", "run_times")))
        return kernel

    def result(self, difference: Difference | None) -> Replayed:
        """What was found so far."""
        policy = "" if self._kernel is None else self._kernel.policy.name
        return Replayed(
            records=self._records,
            plans=self._plans,
            starts=self._starts,
            difference=difference,
            by_name="" if difference is None or self._started.settings else policy,
        )
