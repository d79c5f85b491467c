"""The driver of real clusters by itself: no disk, no processes. What it adds to the kernel's own time, and how it holds
up when very many jobs wait."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from statistics import median
from typing import Final

from bench.figures import Figure, Stopwatch, collector_at_rest
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.clock import SystemClock
from clearway.live.controller import Controller
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.events import Event, JobFinished, JobStarted
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Outcome, Request
from clearway.model.plan import Start
from clearway.model.runs import RunSpec
from clearway.policies.named import named_policy
from clearway.ports.backend import BackendCommand, Holding, World
from clearway.ports.control import PROVISIONAL_ID, Submission
from clearway.ports.storage import AuditLine, Changes, JobQuery
from clearway.ports.views import JobState, JobView

JOBS: Final = 20_000
BATCH: Final = 200
"""Jobs of one submission, as an array or a file of tasks brings them."""

NODES: Final = 125
DEVICES: Final = 8
PENDING: Final = 100_000
TURNS: Final = 30


class NoStore:
    """Keeps nothing: what is measured is the driver."""

    def append(self, changes: Changes) -> int:
        """Take it for kept."""
        return len(changes.events)

    def read_journal(self, after: int = 0) -> Iterator[tuple[int, Event]]:  # noqa: ARG002
        """A new journal."""
        return iter(())

    def read_runs(self, jobs: Sequence[JobId]) -> Mapping[JobId, RunSpec]:  # noqa: ARG002
        """No jobs."""
        return {}

    def last_job_id(self) -> int:
        """None yet."""
        return 0

    @property
    def reader(self) -> "NoStore":
        """Itself."""
        return self

    def find_jobs(self, query: JobQuery) -> tuple[JobView, ...]:  # noqa: ARG002
        """Nothing was kept."""
        return ()

    def count_jobs(self, query: JobQuery) -> Mapping[JobState, int]:  # noqa: ARG002
        """Nothing was kept."""
        return {}

    def read_run(self, job: JobId) -> RunSpec | None:  # noqa: ARG002
        """Nothing was kept."""
        return None

    def read_audit(self, after: int = 0, limit: int = 1_000) -> tuple[tuple[int, AuditLine], ...]:  # noqa: ARG002
        """Nothing was kept."""
        return ()

    def close(self) -> None:
        """Nothing to let go of."""


class QuickBackend:
    """Every start succeeds at once; jobs end when they are told to. reported: what the next `observe` tells."""

    def __init__(self, nodes: int) -> None:
        group = DeviceGroup(model="H100", count=DEVICES)
        self._nodes = tuple(NodeSpec(name=NodeName(f"n{number}"), groups=(group,)) for number in range(nodes))
        self.running: list[Start] = []
        self.reported: list[Event] = []
        self.started = 0

    def nodes(self) -> tuple[NodeSpec, ...]:
        """The nodes."""
        return self._nodes

    def connect(self, now_ms: int, holdings: Sequence[Holding], world: World) -> Sequence[Event]:  # noqa: ARG002
        """Nothing runs yet."""
        return ()

    def perform(self, now_ms: int, command: BackendCommand) -> None:
        """Start at once."""
        if isinstance(command, Start):
            self.running.append(command)
            self.reported.append(JobStarted(now_ms, command.job, command.generation))
            self.started += 1

    def observe(self, now_ms: int) -> Sequence[Event]:  # noqa: ARG002
        """What was reported since."""
        events, self.reported = self.reported, []
        return events

    def progress(self) -> Mapping[JobId, float]:
        """Nobody says how far he is."""
        return {}

    def close(self) -> None:
        """Nothing to let go of."""

    def finish(self, now_ms: int, count: int) -> None:
        """The jobs that started first end."""
        for start in self.running[:count]:
            self.reported.append(JobFinished(now_ms, start.job, start.generation, Outcome.COMPLETED))
        del self.running[:count]


def submission(count: int, devices: int = 1) -> Submission:
    """So many equal jobs."""
    request = Request(devices=devices)
    jobs = tuple(
        JobSpec(id=JobId(PROVISIONAL_ID + place), request=request, user="ada", name="task", estimate_ms=60_000)
        for place in range(count)
    )
    return Submission(jobs=jobs, runs=(RunSpec(script="true"),) * count, actor="ada")


def make_plane(policy: str, nodes: int) -> tuple[Controller, QuickBackend]:
    """A control plane that has started, over a backend that does at once what it is told."""
    backend = QuickBackend(nodes)
    control = Controller(Kernel(named_policy(policy), RuntimeHistory()), backend, NoStore(), SystemClock())
    control.start()
    return control, backend


def measure_throughput() -> Iterator[Figure]:
    """Jobs from submission to their end, through the driver and the kernel."""
    control, backend = make_plane("easy", NODES)
    clock = SystemClock()
    answers: list[Future[tuple[JobId, ...]]] = []
    with collector_at_rest(), Stopwatch() as watch:
        for _ in range(JOBS // BATCH):
            answers.append(control.submit(submission(BATCH)))
            control.turn(clock.now_ms())
            control.turn(clock.now_ms())
            backend.finish(clock.now_ms(), BATCH)
        while backend.running or backend.reported:
            control.turn(clock.now_ms())
            backend.finish(clock.now_ms(), BATCH)
    assert sum(len(answer.result()) for answer in answers) == backend.started == JOBS
    yield Figure(name="live driver, no disk: jobs from submit to end", value=JOBS / watch.seconds, unit="jobs/s")


def measure_turns() -> Iterator[Figure]:
    """One turn while 100,000 jobs wait: a job ends and the next starts; one more is submitted; a view is asked for."""
    for policy in ("easy", "clearway"):
        control, backend = make_plane(policy, NODES)
        clock = SystemClock()
        for _ in range(PENDING // 10_000 + 1):
            control.submit(submission(10_000))
            control.turn(clock.now_ms())
        control.turn(clock.now_ms())
        with collector_at_rest():
            yield _turn_figure(
                f"{policy}: a job ended, the next starts", [_end_one(control, backend) for _ in range(TURNS)]
            )
            yield _turn_figure(f"{policy}: a job was submitted", [_submit_one(control) for _ in range(TURNS)])
            yield _turn_figure(f"{policy}: the view of the cluster", [_look(control, backend) for _ in range(TURNS)])


def measure_driver() -> Iterator[Figure]:
    """Throughput, then turns with a long queue."""
    yield from measure_throughput()
    yield from measure_turns()


def _turn_figure(what: str, seconds: Sequence[float]) -> Figure:
    name = f"live driver with 100,000 waiting, {what}"
    return Figure(name=name, value=median(seconds) * 1e3, unit="ms", bar=20.0, is_rate=False)


def _turn_s(control: Controller) -> float:
    begun = time.perf_counter()
    control.turn(SystemClock().now_ms())
    return time.perf_counter() - begun


def _end_one(control: Controller, backend: QuickBackend) -> float:
    backend.finish(SystemClock().now_ms(), 1)
    seconds = _turn_s(control)
    control.turn(SystemClock().now_ms())
    return seconds


def _submit_one(control: Controller) -> float:
    control.submit(submission(1))
    return _turn_s(control)


def _look(control: Controller, backend: QuickBackend) -> float:
    _end_one(control, backend)
    begun = time.perf_counter()
    control.cluster()
    return time.perf_counter() - begun
