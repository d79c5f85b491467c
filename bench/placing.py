"""How many jobs a second the whole decision path places: quota, priority, placement, reasons, checker, state."""

from collections.abc import Callable, Iterator
from typing import Final

from bench.figures import REPEATS, Figure, Stopwatch, collector_at_rest
from bench.worlds import equal_jobs, make_kernel, start_all, submits
from clearway.model.events import Batch, Event, JobFinished
from clearway.model.jobs import DomainLevel, JobSpec, Network, Outcome, Request
from clearway.policies.named import named_policy

FILL: Final = 0.9
"""The part of the cluster that is filled: the last tenth is slower for anyone who must search."""


def _one_by_one(events: list[Event], nodes: int) -> tuple[float, int]:
    """Seconds to decide on the events one after another, and how many jobs started."""
    kernel = make_kernel(named_policy("easy"), nodes, 8)
    with collector_at_rest(), Stopwatch() as watch:
        commands = [kernel.handle(event) for event in events]
    return watch.seconds, sum(len(some) for some in commands)


def _burst(events: list[Event], nodes: int) -> tuple[float, int]:
    """The same for all of them at once."""
    kernel = make_kernel(named_policy("easy"), nodes, 8)
    with collector_at_rest(), Stopwatch() as watch:
        commands = kernel.handle(Batch(1, tuple(events)))
    return watch.seconds, len(commands)


def _best_rate(way: Callable[[list[Event], int], tuple[float, int]], events: list[Event], nodes: int) -> float:
    rates = []
    for _ in range(REPEATS):
        seconds, started = way(events, nodes)
        assert started == len(events), f"{started} of {len(events)} jobs started"
        rates.append(started / seconds)
    return max(rates)


def measure_placements() -> Iterator[Figure]:
    """One-device jobs until the cluster is nine tenths full."""
    for nodes, bar in ((1_250, 20_000), (12_500, 10_000)):
        events = submits(1, equal_jobs(1, int(FILL * nodes * 8)))
        for label, way in (("one by one", _one_by_one), ("in one burst", _burst)):
            yield Figure(
                name=f"one-device jobs on {nodes:,} × 8, {label}",
                value=_best_rate(way, events, nodes),
                unit="placements/s",
                bar=bar,
            )


def measure_gangs() -> Iterator[Figure]:
    """Gangs of 8 whole nodes within a rack of 16, and one gang of 5,000 replicas."""
    gangs = equal_jobs(
        1,
        int(FILL * 1_250 / 8),
        replicas=8,
        request=Request(devices=8),
        network=Network(widest=DomainLevel.LEAF),
    )
    gangs = gangs[: 1_250 // 16 * 2]
    yield Figure(
        name="gangs of 8 nodes × 8 devices in racks on 1,250 × 8",
        value=_best_rate(_one_by_one, submits(1, gangs), 1_250),
        unit="placements/s",
        bar=2_000,
    )
    yield Figure(
        name="one gang of 5,000 replicas on 1,250 × 8",
        value=1.0 / _best_rate(_one_by_one, submits(1, equal_jobs(1, 1, replicas=5_000)), 1_250),
        unit="s",
        bar=1.0,
        is_rate=False,
    )


def measure_life() -> Iterator[Figure]:
    """Microseconds of the kernel for the whole life of a one-device job: submit, start, end."""
    jobs = equal_jobs(1, 9_000)
    seconds = min(_live(jobs) for _ in range(REPEATS))
    yield Figure(
        name="submit, start and end of a one-device job on 1,250 × 8",
        value=seconds / len(jobs) * 1e6,
        unit="µs",
        is_rate=False,
    )


def _live(jobs: list[JobSpec]) -> float:
    kernel = make_kernel(named_policy("fifo"), 1_250, 8)
    events = submits(1, jobs)
    ends = [JobFinished(2, job.id, 1, Outcome.COMPLETED) for job in jobs]
    with collector_at_rest(), Stopwatch() as watch:
        for event in events:
            start_all(kernel, 1, kernel.handle(event))
        for end in ends:
            kernel.handle(end)
    return watch.seconds
