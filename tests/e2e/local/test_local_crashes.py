"""Keepers and controllers die at random moments while jobs start and end: none is lost, and none runs twice at once."""

import os
import random
import signal

from clearway.model.events import JobFinished, JobStarted, JobStopped
from clearway.model.jobs import Outcome
from clearway.ports.backend import Holding
from support.benches import seconds
from support.local import LocalBench, local_bench

SCRIPT = """
exec 9> lock-$CLEARWAY_JOB_ID
flock -n 9 || echo $CLEARWAY_JOB_ID >> overlaps
echo $CLEARWAY_JOB_ID.$CLEARWAY_GENERATION >> starts
sleep 0.0$((RANDOM % 10))
echo $CLEARWAY_JOB_ID >> ends
"""
AT_ONCE = 12
"""Jobs at a time; as many as keep two cores busy."""
PATIENCE_S = 600.0


class Driver:
    """Starts jobs again until each has finished, and remembers what a journal would."""

    def __init__(self, bench: LocalBench, jobs: int) -> None:
        self.bench = bench
        self.waiting = list(range(1, jobs + 1))
        self.held: dict[int, tuple[int, bool]] = {}
        self.generations = dict.fromkeys(self.waiting, 0)
        self.finished: dict[int, JobFinished] = {}
        self.reasons: list[str] = []
        for job in self.waiting:
            bench.add(job, SCRIPT)

    def add_one(self) -> None:
        """One more job."""
        job = len(self.generations) + 1
        self.generations[job] = 0
        self.waiting.append(job)
        self.bench.add(job, SCRIPT)

    def step(self) -> None:
        """Take in what is told, and start what can be."""
        self.take(self.bench.observe())
        while self.waiting and len(self.held) < AT_ONCE:
            job = self.waiting.pop(0)
            self.generations[job] += 1
            self.held[job] = (self.generations[job], False)
            self.bench.start(job, self.generations[job], (0, (0,)))

    def take(self, events) -> None:
        for event in events:
            generation, _ = self.held.get(event.job, (0, False))
            if event.generation != generation:
                continue
            if isinstance(event, JobStarted):
                self.held[event.job] = (generation, True)
            elif isinstance(event, JobFinished):
                del self.held[event.job]
                self.finished[event.job] = event
            elif isinstance(event, JobStopped):
                del self.held[event.job]
                self.reasons.append(event.reason)
                self.waiting.append(event.job)

    def die_and_come_back(self) -> None:
        """What was told last was written down; another controller takes over, and performs again what is unanswered."""
        place = self.bench.allocate((0, (0,)))
        holdings = [
            Holding(job=job, generation=generation, allocation=place, is_started=is_started)
            for job, (generation, is_started) in self.held.items()
        ]
        self.take(self.bench.reconnect(holdings))
        for job, (generation, is_started) in list(self.held.items()):
            if not is_started:
                self.bench.start(job, generation, (0, (0,)))


def test_no_job_is_lost_or_runs_twice_whoever_dies(tmp_path, keeper_kills):
    rng = random.Random(4711)
    with local_bench(tmp_path) as bench:
        driver = Driver(bench, jobs=8 * keeper_kills)
        kills, next_kill, until = 0, seconds() + 0.1, seconds() + PATIENCE_S
        while driver.waiting or driver.held:
            assert seconds() < until, f"not finished: {driver.held} {driver.waiting}"
            driver.step()
            if kills < keeper_kills and len(driver.waiting) < AT_ONCE:
                driver.add_one()  # on a machine that is quick, they must not be over before the last death
            if seconds() > next_kill and kills < keeper_kills:
                kills += 1
                next_kill = seconds() + rng.uniform(0.05, 0.3)
                keeper = bench.find_keeper()
                if keeper is not None and rng.random() < 0.6:
                    os.kill(keeper, signal.SIGKILL)
                if rng.random() < 0.6:
                    driver.die_and_come_back()
            bench.pass_time(0.02)
        starts = (bench.workdir / "starts").read_text().split()
        ends = (bench.workdir / "ends").read_text().split()
        assert kills == keeper_kills
        assert not (bench.workdir / "overlaps").exists()
        assert len(starts) == len(set(starts)), "a generation ran twice"
        assert sorted(driver.finished) == sorted({int(job) for job in ends})
        assert {event.outcome for event in driver.finished.values()} == {Outcome.COMPLETED}
        assert all("not seen" in reason or "ended while it started" in reason for reason in driver.reasons)
