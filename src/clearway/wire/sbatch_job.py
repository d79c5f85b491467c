"""From parsed options of sbatch to jobs. One replica is one node's part of the job.

Without `-N` and `--ntasks-per-node` Slurm puts tasks where it likes. Then each task is a replica of its own, unless
something is asked per node (--gres, --gpus-per-node, --mem, --exclusive) or for the whole job (--gpus): then one
replica holds all tasks. Time limits are rounded up to minutes, as Slurm's are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT, JobId, QueueName, TenantName
from clearway.model.jobs import ArrayMember, Checkpoint, Dependency, DomainLevel, JobSpec, Network, Request
from clearway.model.runs import Launch, LimitSignal, RunSpec
from clearway.model.units import DAY_MS, MILLI, SECOND_MS
from clearway.wire.moments import render_moment
from clearway.wire.problems import ParseError
from clearway.wire.ranges import ArrayTasks
from clearway.wire.slurm_values import Export
from clearway.wire.submission import ParsedSubmission
from clearway.wire.units import DeviceRequest, describe_time, render_memory, round_up_to_minutes


@dataclass(slots=True)
class _Options:
    """Values by long name, and the notes that grow while they are understood."""

    values: Mapping[str, Any]
    texts: Mapping[str, str]
    notes: list[str] = field(default_factory=list)

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def echo(self, name: str, meaning: str) -> None:
        """Note how an option was understood, if it was given."""
        if name in self.values:
            self.notes.append(f"--{name} {self.texts[name]} is {meaning}".replace("  ", " "))


@dataclass(frozen=True, slots=True)
class _Shape:
    """How the job is cut into equal replicas."""

    replicas: int
    tasks_per_replica: int
    gpus_per_replica: int
    gpu_model: str


def make_submission(
    values: Mapping[str, Any],
    texts: Mapping[str, str],
    *,
    script_text: str,
    script_name: str,
    notes: tuple[str, ...],
    now_ms: int,
    first_id: int,
    user: str,
) -> ParsedSubmission:
    """Jobs of a script. values: parsed, by long name of the option; texts: the same as written.

    Raises ParseError, with the option's name as `field`, where options contradict one another.
    """
    options = _Options(values, texts, list(notes))
    shape = _plan_shape(options)
    array: ArrayTasks | None = options.get("array")
    members = [
        _make_job(options, shape, JobId(first_id + place), user, script_name, member)
        for place, member in enumerate(_make_members(array, first_id))
    ]
    run = _make_run(options, shape, script_text)
    _check_times(members[0], now_ms)
    _describe(options, members[0])
    return ParsedSubmission(
        jobs=tuple(members),
        runs=(run,) * len(members),
        notes=tuple(options.notes),
        in_root=frozenset(job.id for job in members if options.get("account") == ROOT_TENANT),
    )


def _make_members(array: ArrayTasks | None, first_id: int) -> list[ArrayMember | None]:
    if array is None:
        return [None]
    first = JobId(first_id)
    return [ArrayMember(array=first, index=index, parallel_max=array.parallel_max) for index in array.indices]


# --- shape -----------------------------------------------------------------------------------------------------------


def _plan_shape(options: _Options) -> _Shape:
    tasks = _count_tasks(options)
    replicas = _count_replicas(options, tasks)
    per_node = options.get("ntasks-per-node")
    if tasks is None:
        tasks = replicas * (per_node or 1)
    if tasks < replicas:
        options.notes.append(f"{tasks} tasks use {tasks} nodes, not {replicas}, as in Slurm")
        replicas = tasks
    if per_node and tasks > replicas * per_node:
        hint = "raise --nodes or --ntasks-per-node"
        raise ParseError(expected=f"at most {replicas * per_node} tasks", found=tasks, hint=hint, field="ntasks")
    tasks_per_replica = -(-tasks // replicas)
    if tasks % replicas:
        options.notes.append(f"{tasks} tasks are not even on {replicas} nodes: {tasks_per_replica} on each are counted")
    gpus = _count_gpus(options, replicas, tasks_per_replica)
    return _Shape(replicas, tasks_per_replica, gpus.count, gpus.model)


def _count_tasks(options: _Options) -> int | None:
    """Tasks in all; None where nothing says."""
    tasks: int | None = options.get("ntasks")
    per_task, total = options.get("gpus-per-task"), options.get("gpus")
    if tasks is None and per_task and total and per_task.count:
        return _divide(total.count, per_task.count, "gpus", "--gpus-per-task")
    return tasks


def _count_replicas(options: _Options, tasks: int | None) -> int:
    nodes, per_node = options.get("nodes"), options.get("ntasks-per-node")
    gpus_per_node, total = _gpus_per_node(options), options.get("gpus")
    if nodes is not None:
        if nodes.low < nodes.high:
            options.notes.append(f"--nodes {options.texts['nodes']}: takes {nodes.low}; a job file can be elastic")
        return int(nodes.low)
    if per_node and tasks:
        return int(-(-tasks // per_node))
    if total and gpus_per_node and gpus_per_node.count:
        return _divide(total.count, gpus_per_node.count, "gpus", "the GPUs per node")
    if tasks is None or tasks == 1:
        return 1
    if any(options.get(name) is not None for name in ("gpus-per-node", "mem", "exclusive", "gpus")) or gpus_per_node:
        options.notes.append(f"all {tasks} tasks lie on one node, since something is asked for a node as a whole")
        return 1
    options.notes.append(f"each of the {tasks} tasks is a replica that may lie on any node; -N says otherwise")
    return tasks


def _gpus_per_node(options: _Options) -> DeviceRequest | None:
    gres = options.get("gres")
    gpus: DeviceRequest | None = gres.gpu if gres is not None and gres.gpu else options.get("gpus-per-node")
    return gpus


def _count_gpus(options: _Options, replicas: int, tasks_per_replica: int) -> DeviceRequest:
    """GPUs of one replica. Options that say different numbers or types contradict one another."""
    node, task, total = _gpus_per_node(options), options.get("gpus-per-task"), options.get("gpus")
    asked: list[tuple[str, DeviceRequest]] = []
    if node is not None:
        asked.append(("gpus-per-node" if "gpus-per-node" in options.values else "gres", node))
    if task is not None:
        asked.append(("gpus-per-task", DeviceRequest(task.count * tasks_per_replica, task.model)))
    if total is not None:
        asked.append(("gpus", DeviceRequest(_divide(total.count, replicas, "gpus", "the nodes"), total.model)))
    if not asked:
        return DeviceRequest(0)
    name, first = asked[0]
    for other_name, other in asked[1:]:
        if other.count != first.count:
            expected = f"{first.count} GPUs per node, as --{name} says"
            raise ParseError(expected=expected, found=other.count, hint="give one of them", field=other_name)
    models = sorted({gpus.model for _, gpus in asked if gpus.model})
    if len(models) > 1:
        raise ParseError(expected="one type of GPU", found=" and ".join(models), field=asked[-1][0])
    return DeviceRequest(first.count, models[0] if models else "")


def _divide(total: int, parts: int, field: str, by: str) -> int:
    """total / parts, which must come out even: replicas are equal."""
    if total == 0 or total % parts:
        hint = "replicas are equal: choose numbers that divide"
        raise ParseError(expected=f"a multiple of {parts} ({by})", found=total, hint=hint, field=field)
    return total // parts


# --- the job ---------------------------------------------------------------------------------------------------------


def _make_job(
    options: _Options, shape: _Shape, job: JobId, user: str, script_name: str, member: ArrayMember | None
) -> JobSpec:
    limit: int | None = options.get("time")
    partition = (options.get("partition") or DEFAULT_QUEUE).split(",")[0]
    return JobSpec(
        id=job,
        request=_make_request(options, shape),
        replicas=shape.replicas,
        name=options.get("job-name") or script_name,
        user=user,
        tenant=TenantName(options.get("account") or ROOT_TENANT),
        queue=QueueName(partition),
        priority=-(options.get("nice") or 0),
        qos=options.get("qos") or "",
        limit_ms=None if limit is None else round_up_to_minutes(limit),
        network=_make_network(options, shape.replicas),
        checkpoint=_make_checkpoint(options, limit),
        preemptible=not options.get("no-requeue"),
        requeue=not options.get("no-requeue"),
        held=bool(options.get("hold")),
        dependencies=_make_dependencies(options),
        depends_on_any=any(request.is_any for request in options.get("dependency") or ()),
        array=member,
        not_before_ms=options.get("begin"),
        deadline_ms=options.get("deadline"),
    )


def _make_checkpoint(options: _Options, limit_ms: int | None) -> Checkpoint | None:
    """--signal beside --requeue: the job saves when the signal comes, and at no other time that we know of."""
    limit_signal: LimitSignal | None = options.get("signal")
    if limit_signal is None or not options.get("requeue"):
        return None
    takes_ms = limit_signal.before_ms
    return Checkpoint(interval_ms=round_up_to_minutes(limit_ms or DAY_MS), cost_ms=takes_ms, grace_ms=takes_ms)


def _make_dependencies(options: _Options) -> tuple[Dependency, ...]:
    return tuple(
        request.on(None if request.target is None else JobId(request.target))
        for request in options.get("dependency") or ()
    )


def _make_request(options: _Options, shape: _Shape) -> Request:
    gpus = shape.gpus_per_replica
    per_gpu = options.get("cpus-per-gpu")
    cpus = per_gpu * gpus if per_gpu else (options.get("cpus-per-task") or 1) * shape.tasks_per_replica
    takes_all_memory = options.get("mem") == 0
    return Request(
        devices=gpus,
        device_models=(shape.gpu_model,) if shape.gpu_model else (),
        cpu_milli=cpus * MILLI,
        memory_bytes=_count_memory(options, cpus, gpus),
        node_labels=options.get("constraint") or (),
        exclusive=options.get("exclusive") is not None or takes_all_memory,
        nodes=options.get("nodelist") or (),
        nodes_excluded=options.get("exclude") or (),
    )


def _count_memory(options: _Options, cpus: int, gpus: int) -> int:
    """Bytes of one replica."""
    per_cpu, per_gpu = options.get("mem-per-cpu") or 0, options.get("mem-per-gpu") or 0
    if per_gpu and not gpus:
        raise ParseError(expected="GPUs with --mem-per-gpu", found="none", hint="add --gres=gpu:n", field="mem-per-gpu")
    return int((options.get("mem") or 0) + per_cpu * cpus + per_gpu * gpus)


def _make_network(options: _Options, replicas: int) -> Network:
    """--switches=1 keeps the job within a leaf (with a wait: if possible), --segment within a block."""
    switches, segment = options.get("switches"), options.get("segment")
    if switches is not None and switches.count == 1 and switches.wait_ms is None:
        return Network(widest=DomainLevel.LEAF)
    if switches is not None:
        return Network(preferred=DomainLevel.LEAF)
    if segment is not None and segment >= replicas:
        return Network(widest=DomainLevel.BLOCK)
    return Network(preferred=DomainLevel.BLOCK) if segment is not None else Network()


def _check_times(job: JobSpec, now_ms: int) -> None:
    earliest = max(now_ms, job.not_before_ms or 0)
    if job.deadline_ms is not None and job.deadline_ms <= earliest:
        found = render_moment(job.deadline_ms)
        raise ParseError(expected=f"a time after {render_moment(earliest)}", found=found, field="deadline")


def _make_run(options: _Options, shape: _Shape, script_text: str) -> RunSpec:
    export = options.get("export") or Export((), (), is_all=True)
    array: ArrayTasks | None = options.get("array")
    return RunSpec(
        script=script_text,
        launch=Launch.FIRST_REPLICA,
        workdir=options.get("chdir") or "",
        environment=(*export.variables, *(array.variables if array else ())),
        inherits_environment=export.is_all,
        inherited_names=export.names,
        input=options.get("input") or "",
        output=options.get("output") or "",
        error=options.get("error") or "",
        append=bool(options.get("open-mode")),
        limit_signal=options.get("signal"),
        tasks_per_replica=shape.tasks_per_replica,
        nodes=options.get("nodelist") or (),
        nodes_excluded=options.get("exclude") or (),
    )


# --- notes -----------------------------------------------------------------------------------------------------------


def _describe(options: _Options, job: JobSpec) -> None:
    """Notes that tell how units and shapes were understood, and what is not acted upon."""
    _describe_times(options, job)
    for name in ("mem", "mem-per-cpu", "mem-per-gpu"):
        all_memory = "all memory of the node, which is then not shared"
        options.echo(name, render_memory(options.get(name) or 0) if options.get(name) else all_memory)
    request = job.request
    memory = f", {render_memory(request.memory_bytes)} memory" if request.memory_bytes else ""  # none asked: any amount
    options.notes.append(
        f"{job.replicas} {_plural('replica', job.replicas)}, each on one node, each of {request.devices} "
        f"{_plural('GPU', request.devices)}, {request.cpu_milli // MILLI} "
        f"{_plural('CPU', request.cpu_milli // MILLI)}{memory}"
    )
    _describe_limits(options, job)


def _describe_times(options: _Options, job: JobSpec) -> None:
    options.echo("time", describe_time(job.limit_ms))
    options.echo("time-min", f"{describe_time(options.get('time-min'))}, but not acted upon: -t counts")
    if job.not_before_ms is not None:
        options.echo("begin", render_moment(job.not_before_ms))
    if job.deadline_ms is not None:
        options.echo("deadline", render_moment(job.deadline_ms))
    shortest, limit = options.get("time-min"), job.limit_ms
    if shortest is not None and limit is not None and shortest > limit:
        raise ParseError(expected="at most the time of -t", found=options.texts["time-min"], field="time-min")


def _describe_limits(options: _Options, job: JobSpec) -> None:
    """What is asked for but kept only in part, or means more than its words."""
    if job.checkpoint is not None:
        options.notes.append(
            f"--signal with --requeue: before it is preempted or moved, the signal comes, and the job has "
            f"{job.checkpoint.grace_ms // SECOND_MS} s to save; then it starts again"
        )
    if options.get("nodes") is not None and job.replicas > 1 and not job.request.exclusive:
        options.notes.append(f"--nodes {options.texts['nodes']}: parts may share a node that has room for them")
    gres, partition = options.get("gres"), options.get("partition") or ""
    for name in gres.others if gres is not None else ():
        options.notes.append(f"--gres {name} is known, but not acted upon")
    if options.get("nodelist"):
        options.notes.append(
            f"--nodelist {options.texts['nodelist']}: the job lies on these nodes only, on any of them"
        )
    if "," in partition:
        options.notes.append(f"--partition {partition}: takes the first, {job.queue}")
    if options.get("exclusive"):
        options.notes.append(f"--exclusive={options.get('exclusive')} is taken as --exclusive: no other job at all")
    segment, switches = options.get("segment"), options.get("switches")
    if segment is not None and segment < job.replicas:
        options.notes.append(f"--segment {segment} is less than {job.replicas} nodes: one block is preferred")
    if switches is not None and (switches.count > 1 or switches.wait_ms is not None):
        options.notes.append(f"--switches {options.texts['switches']}: one leaf is preferred, not required")


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
