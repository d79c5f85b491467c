"""The built-in scenario: one centre of 128 GPUs, once split by hand and once allocated by Clearway.

The situation is a published one: training jobs of 8–16 GPUs for 2–7 days, 5–10 of them a day, 100 one-GPU inference
tasks an hour with a start promised within 100 ms, a burst of 1,000 tasks at once, and a node that fails. Published
result (`PUBLISHED`): use 55 → 82 %, inference wait 2 h → 80 ms, training time −15 %.

What the description leaves open is fixed here, the same for both sides:

- Load. The middle of the three ranges asks 7.5 × 12 × 4.5 = 405 GPUs of 128, on any schedule, and no site lives like
  that. So jobs come on working days only, in office hours, and each range is skewed to its lower end: about 100 GPUs of
  training on average, which with inference is 86 % of the centre (`offered_devices` computes it).
- Inference tasks take minutes (log-normal, mean `TASK_MEAN_MS`, at most `TASK_MAX_MS`), arrive as a Poisson stream,
  and need one whole GPU each: none shares a device.
- Training saves a checkpoint each 30 minutes and resumes from the last one after a failure, on both sides.
- Both sides see the same jobs, the same cluster and the same failure of the same node at the same time.

Static: some nodes are for training and the rest for inference, two parts that do not know of each other, so each is a
run of its own (`clearway.sim.parts` adds them up); strict first come, first served in each; jobs keep the size they
asked for; nothing is preempted. The published 55 % of use can only come from a split under which training queues while
inference GPUs stand idle; `STATIC_TRAINING_NODES` is such a split, and gives the wait of two hours after a burst too.
Others can be asked for: with more nodes for training, training waits less and a burst waits longer.

Dynamic: one machine, any job on any node; training may run on half to twice the GPUs it asked for, along one speed-up
curve; tasks come first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec, QueueSpec
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import Checkpoint, Elastic, JobKind, JobSpec, Request
from clearway.model.units import DAY_MS, GIB, HOUR_MS, MINUTE_MS, SECOND_MS
from clearway.sim.faults import Fault
from clearway.sim.workload import TraceJob, Workload

NODES: Final = 16
DEVICES_PER_NODE: Final = 8
DAYS: Final = 28
"""Four weeks: enough for about 120 training jobs, and the week's rhythm four times."""

STATIC_TRAINING_NODES: Final = 9
"""Of the static side, unless asked otherwise: 72 GPUs; the other 56 keep the wait after a burst at two hours."""

TRAINING_PER_DAY_MIN: Final = 5
TRAINING_PER_DAY_MAX: Final = 10
TRAINING_PER_DAY_SKEW: Final = 0.24
"""Chance of each job of a day beyond the fifth: 6.2 jobs on a working day."""
TRAINING_SIZES: Final = (8, 12, 16)
TRAINING_SIZE_CHANCES: Final = (0.80, 0.10, 0.10)
TRAINING_RUN_MIN_MS: Final = 2 * DAY_MS
TRAINING_RUN_MAX_MS: Final = 7 * DAY_MS
TRAINING_RUN_EXCESS_MS: Final = DAY_MS // 2
"""Mean of the exponential that is added to two days."""
OFFICE_BEGIN_MS: Final = 8 * HOUR_MS
OFFICE_END_MS: Final = 20 * HOUR_MS

TASKS_PER_HOUR: Final = 100
TASK_MEAN_MS: Final = 6 * MINUTE_MS
TASK_SIGMA: Final = 0.75
TASK_MIN_MS: Final = 10 * SECOND_MS
TASK_MAX_MS: Final = 30 * MINUTE_MS
TASK_LATENCY_TARGET_MS: Final = 100
BURST_TASKS: Final = 1_000
BURST_AT_MS: Final = 9 * DAY_MS + 10 * HOUR_MS
"""The second Wednesday at ten: training is at its busiest in the middle of a week."""

FAULT: Final = Fault(at_ms=16 * DAY_MS + 3 * HOUR_MS, until_ms=16 * DAY_MS + 15 * HOUR_MS, node_index=0, device=None)
"""The first node, on the static side one for training, goes down on a Wednesday at three, for twelve hours."""

CHECKPOINT: Final = Checkpoint(
    interval_ms=30 * MINUTE_MS, cost_ms=15 * SECOND_MS, restart_ms=2 * MINUTE_MS, grace_ms=30 * SECOND_MS
)
SPEEDUP: Final = ((1, 1.0), (2, 1.96), (4, 3.8), (8, 7.3), (12, 10.6), (16, 13.7), (24, 19.2), (32, 24.0))
"""Data-parallel training on 8-GPU nodes: 91 % of linear within a node, 86 % on two, 75 % on four. The curves of the
profiled models in Pollux (Qiao et al., OSDI 2021) lie on both sides of it."""

ONE_DEVICE: Final = Request()
"""A task, and one worker of a training job."""

TRAINING_QUEUE: Final = QueueName("training")
INFERENCE_QUEUE: Final = QueueName("inference")
TRAINING_TENANT: Final = TenantName("research")
INFERENCE_TENANT: Final = TenantName("product")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result to beat. use: ratio of devices in use. wait in ms. training_time: change of mean completion time."""

    use_static: float = 0.55
    use_dynamic: float = 0.82
    wait_static_ms: int = 2 * HOUR_MS
    wait_dynamic_ms: int = 80
    training_time_ratio: float = -0.15


PUBLISHED: Final = Published()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that one run of the twin needs, with the policy by name (see `policies.named`)."""

    name: str
    workload: Workload
    cluster: ClusterSpec
    policy: str
    queues: tuple[QueueSpec, ...]
    faults: tuple[Fault, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """The same load on the same machine, twice. static: the training part, then the inference part; both together have
    the jobs of `dynamic`, under the same ids. burst_jobs: ids of the tasks of the burst.
    """

    static: tuple[Setup, Setup]
    dynamic: Setup
    burst_jobs: range

    @property
    def static_workload(self) -> Workload:
        """The jobs of both static parts as one workload."""
        parts = [job for setup in self.static for job in setup.workload.jobs]
        return replace(self.static[0].workload, jobs=tuple(sorted(parts, key=lambda job: (job.submit_ms, job.spec.id))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrival:
    """A job before it has an id. devices: one replica each."""

    submit_ms: int
    run_ms: int
    kind: JobKind
    devices: int = 1


_Numbered = tuple[JobId, _Arrival]


def make_case_study(seed: int, *, training_nodes: int = STATIC_TRAINING_NODES) -> CaseStudy:
    """The scenario with the arrivals and run times of `seed`. training_nodes: of the static side, 2 to `NODES` − 1."""
    assert 2 <= training_nodes < NODES, "the largest training job needs two nodes"
    arrivals = sorted(_training(seed) + _steady_tasks(seed), key=lambda arrival: arrival.submit_ms)
    before_burst = sum(1 for arrival in arrivals if arrival.submit_ms <= BURST_AT_MS)
    arrivals[before_burst:before_burst] = _burst_tasks(seed)
    numbered = tuple((JobId(number), arrival) for number, arrival in enumerate(arrivals, start=1))
    nodes = make_case_cluster().nodes
    return CaseStudy(
        static=(
            _static_part(numbered, JobKind.TRAIN, nodes[:training_nodes], seed),
            _static_part(numbered, JobKind.TASK, nodes[training_nodes:], seed),
        ),
        dynamic=_dynamic_setup(numbered, seed),
        burst_jobs=range(before_burst + 1, before_burst + 1 + BURST_TASKS),
    )


def offered_devices(workload: Workload, kind: JobKind) -> float:
    """Devices that the jobs of `kind` would keep busy on average over the `DAYS` of arrivals, at the size asked."""
    asked = sum(job.run_ms * job.spec.replicas for job in workload.jobs if job.spec.kind is kind)
    return asked / (DAYS * DAY_MS)


def make_case_cluster() -> ClusterSpec:
    """16 nodes of 8 GPUs, four to a leaf switch."""
    return ClusterSpec(nodes=tuple(_node(index) for index in range(NODES)))


def _node(index: int) -> NodeSpec:
    return NodeSpec(
        name=NodeName(f"node-{index:02d}"),
        groups=(DeviceGroup(model="A100", count=DEVICES_PER_NODE, memory_bytes=80 * GIB),),
        leaf=f"leaf-{index // 4}",
    )


def _training(seed: int) -> list[_Arrival]:
    generator = np.random.default_rng([seed, 1])
    return [arrival for day in range(DAYS) if day % 7 < 5 for arrival in _training_day(day, generator)]


def _training_day(day: int, generator: np.random.Generator) -> Iterator[_Arrival]:
    extra = TRAINING_PER_DAY_MAX - TRAINING_PER_DAY_MIN
    count = TRAINING_PER_DAY_MIN + int(generator.binomial(extra, TRAINING_PER_DAY_SKEW))
    for _ in range(count):
        excess_ms = int(generator.exponential(TRAINING_RUN_EXCESS_MS))
        yield _Arrival(
            submit_ms=day * DAY_MS + int(generator.integers(OFFICE_BEGIN_MS, OFFICE_END_MS)),
            run_ms=min(TRAINING_RUN_MIN_MS + excess_ms, TRAINING_RUN_MAX_MS),
            kind=JobKind.TRAIN,
            devices=int(generator.choice(TRAINING_SIZES, p=TRAINING_SIZE_CHANCES)),
        )


def _steady_tasks(seed: int) -> list[_Arrival]:
    """A Poisson stream: given their number, the arrivals are uniform over the time."""
    generator = np.random.default_rng([seed, 2])
    count = int(generator.poisson(TASKS_PER_HOUR * 24 * DAYS))
    submits = np.sort(generator.integers(0, DAYS * DAY_MS, count))
    return [
        _task(int(submit_ms), run_ms) for submit_ms, run_ms in zip(submits, _task_runs(count, generator), strict=True)
    ]


def _burst_tasks(seed: int) -> list[_Arrival]:
    return [_task(BURST_AT_MS, run_ms) for run_ms in _task_runs(BURST_TASKS, np.random.default_rng([seed, 3]))]


def _task(submit_ms: int, run_ms: int) -> _Arrival:
    return _Arrival(submit_ms=submit_ms, run_ms=run_ms, kind=JobKind.TASK)


def _task_runs(count: int, generator: np.random.Generator) -> list[int]:
    """Run times in ms: log-normal with mean TASK_MEAN_MS before it is cut to the range."""
    location = np.log(TASK_MEAN_MS) - TASK_SIGMA**2 / 2
    drawn = generator.lognormal(location, TASK_SIGMA, count)
    return [int(run_ms) for run_ms in np.clip(drawn, TASK_MIN_MS, TASK_MAX_MS)]


def _static_part(numbered: Sequence[_Numbered], kind: JobKind, nodes: tuple[NodeSpec, ...], seed: int) -> Setup:
    """The nodes and jobs of one part. Its times are those of the whole study."""
    is_training = kind is JobKind.TRAIN
    jobs = tuple(_trace_job(number, arrival) for number, arrival in numbered if arrival.kind is kind)
    return Setup(
        name="static, training" if is_training else "static, inference",
        workload=Workload(name="case study", jobs=jobs),
        cluster=ClusterSpec(nodes=nodes),
        policy="fifo",
        queues=(QueueSpec(name=TRAINING_QUEUE if is_training else INFERENCE_QUEUE),),
        faults=(FAULT,) if is_training else (),
        seed=seed,
    )


def _dynamic_setup(numbered: Sequence[_Numbered], seed: int) -> Setup:
    """The whole machine. Inference goes first, and may take devices from training."""
    jobs = tuple(_trace_job(number, arrival, is_elastic=True) for number, arrival in numbered)
    return Setup(
        name="clearway",
        workload=Workload(name="case study", jobs=jobs),
        cluster=make_case_cluster(),
        policy="clearway",
        queues=(
            QueueSpec(name=TRAINING_QUEUE),
            QueueSpec(name=INFERENCE_QUEUE, priority=100, preempts=(TRAINING_QUEUE,)),
        ),
        faults=(FAULT,),
        seed=seed,
    )


def _trace_job(number: JobId, arrival: _Arrival, *, is_elastic: bool = False) -> TraceJob:
    if arrival.kind is JobKind.TASK:
        spec = _task_spec(number)
    else:
        spec = _training_spec(number, arrival, is_elastic=is_elastic)
    return TraceJob(spec=spec, submit_ms=arrival.submit_ms, run_ms=arrival.run_ms)


def _task_spec(number: JobId) -> JobSpec:
    return JobSpec(
        id=number,
        request=ONE_DEVICE,
        kind=JobKind.TASK,
        tenant=INFERENCE_TENANT,
        queue=INFERENCE_QUEUE,
        estimate_ms=TASK_MEAN_MS,
        preemptible=False,
        latency_target_ms=TASK_LATENCY_TARGET_MS,
    )


def _training_spec(number: JobId, arrival: _Arrival, *, is_elastic: bool) -> JobSpec:
    """Users guess whole days, rounded up, as people do."""
    elastic = Elastic(replicas_min=arrival.devices // 2, replicas_max=2 * arrival.devices, speedup=SPEEDUP)
    return JobSpec(
        id=number,
        request=ONE_DEVICE,
        replicas=arrival.devices,
        kind=JobKind.TRAIN,
        tenant=TRAINING_TENANT,
        queue=TRAINING_QUEUE,
        estimate_ms=-(-arrival.run_ms // DAY_MS) * DAY_MS,
        elastic=elastic if is_elastic else None,
        checkpoint=CHECKPOINT,
    )
