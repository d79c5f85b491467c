"""The job file, YAML or JSON: one job, or several under `jobs:` that may name one another in `depends_on`.

Keys are those of `jobmodel`. Arrays are expanded: members take consecutive numbers, and the number of the first is the
number of the array. Notes tell the submitter how each unit was understood.
"""

import graphlib
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pydantic

from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT, JobId, QueueName, TenantName
from clearway.model.jobs import (
    ArrayMember,
    Checkpoint,
    Dependency,
    DependencyKind,
    DomainLevel,
    Elastic,
    JobSpec,
    Network,
    Request,
)
from clearway.model.runs import RunSpec
from clearway.model.units import MILLI
from clearway.wire.dependencies import DependencyRequest
from clearway.wire.documents import Document, Place, parse_document, validate_document
from clearway.wire.jobmodel import OWN_KEYS, JobModel, JobsModel, NetworkModel, ResourcesModel
from clearway.wire.moments import render_moment
from clearway.wire.problems import Problem, raise_problems, suggest_name
from clearway.wire.schema import render_place
from clearway.wire.submission import ParsedSubmission
from clearway.wire.units import describe_time, render_kubernetes_cpu, render_memory

JOBS_MAX: Final = 100_000
"""Jobs of one file, arrays expanded."""

OWN_WORDS_MAX: Final = 1_000
"""Longer commands are read as the rest of a file is, which bounds the number of values in it."""

SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("nodes", "num_nodes", "workers", "min_available"), "replicas"),
    **dict.fromkeys(("time", "walltime", "timeout", "max_duration", "limit"), "time_limit"),
    **dict.fromkeys(("gpu", "num_gpus", "accelerators", "devices", "gres"), "gpus"),
    **dict.fromkeys(("gpu_type", "model"), "gpu_model"),
    **dict.fromkeys(("share", "fraction", "gpu_share"), "gpu_fraction"),
    **dict.fromkeys(("cpu", "cores", "num_cpus"), "cpus"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("partition", "pool"), "queue"),
    **dict.fromkeys(("account", "project", "team", "namespace"), "tenant"),
    **dict.fromkeys(("envs", "environment", "variables"), "env"),
    **dict.fromkeys(("script", "entrypoint"), "run"),
    **dict.fromkeys(("commands", "cmd", "args"), "command"),
    **dict.fromkeys(("dependency", "dependencies", "after", "needs"), "depends_on"),
    **dict.fromkeys(("not_before", "start", "start_after"), "begin"),
    **dict.fromkeys(("constraint", "node_labels", "node_selector"), "labels"),
    **dict.fromkeys(("cwd", "chdir", "working_dir"), "workdir"),
    **dict.fromkeys(("container", "docker"), "image"),
    **dict.fromkeys(("toleration", "tolerates"), "tolerations"),
    "job_name": "name",
    "type": "kind",
    "stdout": "output",
    "stderr": "error",
    "held": "hold",
}


def parse_job_file(text: str, *, source: str, now_ms: int, first_id: int, user: str) -> ParsedSubmission:
    """Jobs of a YAML or JSON job file.

    source: name of the file in messages. now_ms: Unix time, for `begin` and `deadline`. first_id: number of the first
    job; the others follow without gaps. Raises InputError that lists all errors.
    """
    return parse_job_document(parse_document(text, source=source), now_ms=now_ms, first_id=first_id, user=user)


def parse_job_document(document: Document, *, now_ms: int, first_id: int, user: str) -> ParsedSubmission:
    """Jobs of a job file that is read already: see `parse_job_file`."""
    entries = _validate(document, now_ms)
    _check_job_count(entries, document)
    numbers = _number_jobs(entries, first_id)
    dependencies = _resolve_dependencies(entries, numbers, document)
    jobs: list[JobSpec] = []
    runs: list[RunSpec] = []
    notes: list[str] = []
    in_root: set[JobId] = set()
    for (place, model), first, wanted in zip(entries, numbers, dependencies, strict=True):
        members = _make_jobs(model, first, wanted, user)
        jobs.extend(members)
        if model.tenant == ROOT_TENANT:
            in_root.update(job.id for job in members)
        runs.extend([_make_run(model, place, document)] * len(members))
        notes.extend(_describe_units(model, place, document))
    return ParsedSubmission(jobs=tuple(jobs), runs=tuple(runs), notes=tuple(notes), in_root=frozenset(in_root))


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers of the members of one entry: `first`, and so many more as the array has tasks."""

    first: int
    indices: tuple[int, ...] | None

    @property
    def count(self) -> int:
        return 1 if self.indices is None else len(self.indices)


Entries = list[tuple[Place, JobModel]]


def _validate(document: Document, now_ms: int) -> Entries:
    context = {"now_ms": now_ms}
    if isinstance(document.data, dict) and "jobs" in document.data:
        several = validate_document(document, JobsModel, synonyms=SYNONYMS, context=context)
        return [(("jobs", index), job) for index, job in enumerate(several.jobs)]
    return [((), validate_document(document, JobModel, synonyms=SYNONYMS, context=context))]


def _check_job_count(entries: Entries, document: Document) -> None:
    total = sum(1 if job.array is None else len(job.array.indices) for _, job in entries)
    if total > JOBS_MAX:
        raise_problems([_make_problem(document, (), f"at most {JOBS_MAX} jobs", total, "split the file")])


def _number_jobs(entries: Entries, first_id: int) -> list[_Numbers]:
    numbers: list[_Numbers] = []
    following = first_id
    for _, model in entries:
        numbers.append(_Numbers(following, model.array.indices if model.array else None))
        following += numbers[-1].count
    return numbers


# --- dependencies ---------------------------------------------------------------------------------------------------


Wanted = Callable[[int], tuple[Dependency, ...]]
"""From the place of a member in its array to what it waits for."""


def _resolve_dependencies(entries: Entries, numbers: list[_Numbers], document: Document) -> list[Wanted]:
    """For each entry what its members wait for. Unknown or doubled names and circles are errors."""
    problems: list[Problem] = []
    named: dict[str, list[int]] = {}
    for index, (_, model) in enumerate(entries):
        named.setdefault(model.name, []).append(index)
    graph: dict[int, list[int]] = {}
    for index, (_, model) in enumerate(entries):
        for request in model.depends_on:
            if isinstance(request.target, str):
                matches = named.get(request.target, [])
                graph.setdefault(index, []).extend(matches[:1])
                problems.extend(_check_reference(request, index, matches, entries, document))
    raise_problems(problems)
    if graph:
        _check_circles(graph, entries, document)
    return [_plan_dependencies(index, entries, numbers, named) for index in range(len(entries))]


def _check_reference(
    request: DependencyRequest, index: int, matches: list[int], entries: Entries, document: Document
) -> list[Problem]:
    """What is wrong with a reference by name from entry `index` to the entries `matches`."""
    place, model = entries[index]
    if len(matches) == 1:
        if request.kind != DependencyKind.AFTER_CORRESPONDING or _tasks_match(model, entries[matches[0]][1]):
            return []
        expected, hint = "an array with the same tasks", "aftercorr pairs task with task; afterok waits for all"
    elif matches:
        expected, hint = "a name that one job has", "give the jobs different names"
    else:
        expected = "the name of a job in this file, or a job number"
        hint = suggest_name(str(request.target), (other.name for _, other in entries if other.name))
    place = (*place, "depends_on")
    return [_make_problem(document, place, expected, request.target, hint)]


def _tasks_match(model: JobModel, other: JobModel) -> bool:
    return model.array is not None and other.array is not None and model.array.indices == other.array.indices


def _check_circles(graph: dict[int, list[int]], entries: Entries, document: Document) -> None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = " → ".join(entries[index][1].name for index in reversed(error.args[1]))
        place = (*entries[error.args[1][0]][0], "depends_on")
        expected = "jobs that do not wait for one another in a circle"
        raise_problems([_make_problem(document, place, expected, circle, "remove one of them")])


def _plan_dependencies(index: int, entries: Entries, numbers: list[_Numbers], named: dict[str, list[int]]) -> Wanted:
    fixed: list[Dependency] = []
    paired: list[int] = []
    for request in entries[index][1].depends_on:
        if not isinstance(request.target, str):
            job = None if request.target is None else JobId(request.target)
            fixed.append(request.on(job))
            continue
        target = numbers[named[request.target][0]]
        if request.is_any:  # all tasks of an array together are one of what is enough
            fixed.append(request.on(JobId(target.first)))
        elif request.kind == DependencyKind.AFTER_CORRESPONDING:
            paired.append(target.first)
        else:
            members = range(target.first, target.first + target.count)
            fixed.extend(request.on(JobId(member)) for member in members)
    shared = tuple(fixed)
    if not paired:
        return lambda _member: shared
    return lambda member: (
        *shared,
        *(Dependency(kind=DependencyKind.AFTER_CORRESPONDING, job=JobId(first + member)) for first in paired),
    )


# --- building -------------------------------------------------------------------------------------------------------


def _make_jobs(model: JobModel, numbers: _Numbers, wanted: Wanted, user: str) -> list[JobSpec]:
    """The job, or the members of its array."""
    replicas = model.replicas or (model.elastic.max if model.elastic else 1)
    request, network = _make_request(model.resources), _make_network(model.network)
    elastic, checkpoint = _make_elastic(model), _make_checkpoint(model)
    return [
        JobSpec(
            id=JobId(numbers.first + member),
            request=request,
            replicas=replicas,
            name=model.name,
            user=user,
            tenant=TenantName(model.tenant) if model.tenant else ROOT_TENANT,
            queue=QueueName(model.queue) if model.queue else DEFAULT_QUEUE,
            kind=model.kind,
            priority=model.priority,
            qos=model.qos,
            limit_ms=model.time_limit,
            estimate_ms=model.estimate,
            network=network,
            elastic=elastic,
            checkpoint=checkpoint,
            preemptible=model.preemptible and model.requeue,
            requeue=model.requeue,
            suspendable=model.suspendable,
            held=model.hold,
            dependencies=wanted(member),
            depends_on_any=any(request.is_any for request in model.depends_on),
            array=make_array_member(numbers.first, numbers.indices, member, model.array.parallel_max)
            if model.array
            else None,
            not_before_ms=model.begin,
            deadline_ms=model.deadline,
            latency_target_ms=model.latency_target,
        )
        for member in range(numbers.count)
    ]


def make_array_member(first: int, indices: tuple[int, ...] | None, member: int, parallel_max: int) -> ArrayMember:
    """Place of the `member`-th job of the array whose first job has number `first`."""
    assert indices is not None
    return ArrayMember(array=JobId(first), index=indices[member], parallel_max=parallel_max)


def _make_request(model: ResourcesModel) -> Request:
    gpus = model.gpus
    return Request(
        devices=model.device_count,
        share_milli=model.gpu_fraction,
        device_memory_bytes=model.gpu_memory or (gpus.memory_bytes if gpus else 0),
        device_models=(gpus.model,) if gpus and gpus.model else model.gpu_model,
        cpu_milli=model.cpus,
        memory_bytes=model.memory,
        node_labels=tuple(sorted(model.labels.items())),
        exclusive=model.exclusive,
    )


def _make_network(model: NetworkModel) -> Network:
    levels = list(DomainLevel)
    preferred = model.preferred or min(DomainLevel.NODE, model.widest, key=levels.index)
    is_named = model.preferred is not None
    return Network(widest=model.widest, preferred=preferred, fabric=model.fabric, is_named=is_named)


def _make_elastic(model: JobModel) -> Elastic | None:
    elastic = model.elastic
    if elastic is None:
        return None
    return Elastic(replicas_min=elastic.min, replicas_max=elastic.max, speedup=elastic.speedup)


def _make_checkpoint(model: JobModel) -> Checkpoint | None:
    saved = model.checkpoint
    if saved is None:
        return None
    return Checkpoint(
        interval_ms=saved.interval,
        cost_ms=saved.cost,
        restart_ms=saved.restart,
        grace_ms=saved.grace,
        on_signal=saved.on_signal,
    )


def _make_run(model: JobModel, place: Place, document: Document) -> RunSpec:
    return RunSpec(
        script=_make_script(model.run, model.command),
        setup=model.setup,
        workdir=model.workdir,
        image=model.image,
        environment=(
            *(model.array.variables if model.array else ()),
            *((name, document.text_of((*place, "env", name))) for name in model.env),
        ),
        inherits_environment=model.inherit_env,
        input=model.input,
        output=model.output,
        error=model.error,
        append=model.append,
        tolerations=model.tolerations,
    )


def _make_script(run: str | None, command: Sequence[str] | None) -> str:
    return run if run is not None else shlex.join(command or ())


# --- like jobs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Own:
    """What a job says that others like it may say otherwise."""

    name: str
    script: str


def find_likeness(job: Mapping[str, Any]) -> tuple[Hashable, Own] | None:
    """What a job file of one job, as a JSON reader gave it, has in common with those that differ in name and command
    alone, and what is its own; None where the whole must be read to know.

    Of two with the same in common, either both are in order or neither is.
    """
    if "jobs" in job or "depends_on" in job or "array" in job:
        return None
    words = job.get("command")
    if isinstance(words, list) and len(words) > OWN_WORDS_MAX:
        return None
    try:
        own = {key: adapter.validate_python(job[key]) for key, adapter in OWN_KEYS.items() if key in job}
    except pydantic.ValidationError:
        return None
    common = {key: None if key in own else value for key, value in job.items()}
    return repr(common), Own(own.get("name", ""), _make_script(own.get("run"), own.get("command")))


class Template:
    """Makes jobs like one that was read: see `find_likeness`."""

    def __init__(self, job: JobSpec, run: RunSpec) -> None:
        self._job = {field.name: getattr(job, field.name) for field in fields(job)}
        self._run = run

    def make(self, number: int, own: Own) -> tuple[JobSpec, RunSpec]:
        """The job of this number, and how to run it."""
        job = JobSpec(**{**self._job, "id": JobId(number), "name": own.name})
        run = self._run if own.script == self._run.script else replace(self._run, script=own.script)
        return job, run


# --- notes ------------------------------------------------------------------------------------------------------------


def _describe_share(share_milli: int) -> str:
    return f"{share_milli} thousandths of one device"


def _describe_cpus(cpu_milli: int) -> str:
    return "1 CPU" if cpu_milli == MILLI else f"{render_kubernetes_cpu(cpu_milli)} CPUs"


_ECHOED: Final[tuple[tuple[Place, Callable[..., str]], ...]] = (
    (("time_limit",), describe_time),
    (("estimate",), describe_time),
    (("latency_target",), describe_time),
    (("begin",), render_moment),
    (("deadline",), render_moment),
    (("checkpoint", "interval"), describe_time),
    (("checkpoint", "cost"), describe_time),
    (("checkpoint", "restart"), describe_time),
    (("checkpoint", "grace"), describe_time),
    (("resources", "memory"), render_memory),
    (("resources", "gpu_memory"), render_memory),
    (("resources", "gpu_fraction"), _describe_share),
    (("resources", "cpus"), _describe_cpus),
)
"""Keys whose units are echoed, and how."""


def _describe_units(model: JobModel, place: Place, document: Document) -> list[str]:
    """`time_limit: 30:00 is 30 minutes`, for every key with a unit that was written."""
    notes: list[str] = []
    for path, describe in _ECHOED:
        written = document.text_of((*place, *path))
        if written:
            value: object = model
            for name in path:
                value = getattr(value, str(name))
            notes.append(f"{render_place((*place, *path))}: {written} is {describe(value)}")
    return notes


def _make_problem(document: Document, place: Place, expected: str, found: object, hint: str) -> Problem:
    return Problem(
        source=document.source,
        line=document.line_of(place),
        field=render_place(place),
        expected=expected,
        found=found,
        hint=hint,
    )
