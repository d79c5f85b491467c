"""How long one decision takes when very many jobs wait: whole backfill plans, and replanning after one event."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from bench.figures import REPEATS, Figure, Stopwatch, collector_at_rest
from bench.worlds import fill, make_kernel, mixed_jobs, start_all, submits
from clearway.engine.policy import Backfill, Policy
from clearway.kernel import Kernel
from clearway.model.events import Batch, Event, JobFinished
from clearway.model.jobs import Outcome
from clearway.model.plan import Start
from clearway.model.units import MINUTE_MS
from clearway.policies.named import named_policy
from clearway.policies.orders import Fifo

NODES: Final = 1_250
PENDING: Final = 10_000
PENDING_MANY: Final = 100_000

HYBRID: Final = Policy(name="hybrid, 100 reservations", order=Fifo(), backfill=Backfill(reservation_depth=100))


def crowd(policy: Policy, pending: int) -> tuple[Kernel, list[Start]]:
    """A full cluster whose jobs end at many different times, and a queue; what runs is sorted by size.

    Without quotas: a job that its quota refuses needs no reservation, and the plan would be easy.
    """
    kernel = make_kernel(policy, NODES, 8, has_quotas=False)
    running, next_id = fill(kernel, seed=1)
    waiting = submits(MINUTE_MS, mixed_jobs(next_id, pending, seed=2))
    commands = kernel.handle(Batch(MINUTE_MS, tuple(waiting)))
    running += start_all(kernel, MINUTE_MS, commands)
    return kernel, sorted(running, key=lambda start: len(start.allocation.devices))


def _seconds(kernel: Kernel, event: Event) -> float:
    with Stopwatch() as watch:
        commands = kernel.handle(event)
    start_all(kernel, event.at_ms, commands)
    return watch.seconds


def _ends(running: Sequence[Start], at_ms: int) -> list[Event]:
    return [
        JobFinished(at_ms + index, start.job, start.generation, Outcome.COMPLETED)
        for index, start in enumerate(running)
    ]


def measure_plans() -> Iterator[Figure]:
    """A whole plan, made when a job of 64 devices ended."""
    for policy in (named_policy("easy"), HYBRID, named_policy("conservative")):
        kernel, running = crowd(policy, PENDING)
        with collector_at_rest():
            seconds = median(_seconds(kernel, end) for end in _ends(running[-REPEATS:], 2 * MINUTE_MS))
        yield Figure(
            name=f"backfill plan of 10,000 jobs on 10,000 devices, {policy.name}",
            value=seconds,
            unit="s",
            bar=1.0,
            is_rate=False,
        )


def measure_replans() -> Iterator[Figure]:
    """A decision after one event with 100,000 waiting. The median of some: first fits differ from event to event."""
    for name in ("easy", "clearway"):
        kernel, running = crowd(named_policy(name), PENDING_MANY)
        at_ms = 2 * MINUTE_MS
        next_id = 10_000_000
        kinds = {
            "a one-device job ended": _ends(running[:9], at_ms),
            "a 64-device job ended": _ends(running[-9:], at_ms + 100),
            "a job was submitted": submits(at_ms + 200, mixed_jobs(next_id, 9, seed=3)),
        }
        for kind, events in kinds.items():
            with collector_at_rest():
                seconds = median(_seconds(kernel, event) for event in events)
            yield Figure(
                name=f"replan with 100,000 waiting, {name}: {kind}",
                value=seconds * 1e3,
                unit="ms",
                bar=20.0,
                is_rate=False,
            )
