"""The schema of job files: what keys there are, of which type, and which exclude one another."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic

from clearway.model.jobs import DomainLevel, JobKind
from clearway.model.runs import Toleration
from clearway.model.units import MILLI
from clearway.wire.dependencies import DependencyRequest, parse_dependencies
from clearway.wire.moments import parse_moment
from clearway.wire.problems import NOTHING, ParseError
from clearway.wire.ranges import ArrayTasks, parse_array
from clearway.wire.schema import Flag, Name, Schema, Text, Word, convert, list_one, require_items
from clearway.wire.texts import check_interpreter, refuse_controls, refuse_nul, refuse_option
from clearway.wire.tolerations import parse_tolerations
from clearway.wire.units import (
    DeviceRequest,
    Scalar,
    parse_cpus_minimum,
    parse_devices,
    parse_duration,
    parse_memory_minimum,
    parse_share,
    parse_time_span,
)

REPLICAS_MAX = 100_000
"""Ten times the largest gang that anyone runs."""


def _read_command(value: object) -> object:
    """Words, or one text that is the only word."""
    return require_items(list_one(value))


def _read_devices(value: Scalar) -> DeviceRequest:
    """Whole devices; who asks for part of one is told the key that does."""
    try:
        return parse_devices(value)
    except ParseError as error:
        part = re.search(r"(?:^|:)(0?\.[0-9]+|[0-9.]+%)$", str(value).strip())
        if part is None or isinstance(value, bool):
            raise
        hint = f"part of one device is a key of its own: gpu_fraction: {part[1]}"
        raise ParseError(expected=error.expected, found=value, hint=hint) from error


def _read_moment(value: object, info: pydantic.ValidationInfo) -> int:
    assert info.context is not None
    return parse_moment(value, now_ms=info.context["now_ms"])


def _read_duration(value: Scalar) -> int:
    """A time that must be there: more than none, and bounded."""
    span = parse_time_span(value)
    if span is None:
        raise ParseError(expected="a time above 0, such as 90s or 2h30m", found=value)
    return span


def _read_delay(value: Scalar) -> int:
    """A time that may be 0."""
    return 0 if value == 0 and not isinstance(value, bool) else parse_duration(value)


def _read_speedup(value: object) -> tuple[tuple[int, float], ...]:
    """`{1: 1.0, 2: 1.9}` or `[[1, 1.0], [2, 1.9]]`: replicas and speed, rising in replicas."""
    expected = "replicas and their speed, such as {1: 1.0, 2: 1.9, 4: 3.4}"
    pairs: list[Any] = (
        list(value.items()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    )
    points: list[tuple[int, float]] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ParseError(expected=expected, found=value)
        replicas, speed = pair
        is_sound = str(replicas).isascii() and str(replicas).isdigit() and type(speed) in (int, float) and speed > 0
        if not is_sound or int(replicas) <= (points[-1][0] if points else 0):
            hint = "replicas are whole, at least 1 and rising; speeds are above 0"
            raise ParseError(expected=expected, found=value, hint=hint)
        points.append((int(replicas), float(speed)))
    if not points:
        raise ParseError(expected=expected, found=value, hint="leave it out for linear growth")
    return tuple(points)


def _read_variable(value: object) -> str:
    """Any scalar; the caller takes the text as written from the document, so that 1.10 stays 1.10."""
    if not isinstance(value, str | int | float):
        raise ParseError(expected="a text or number", found=NOTHING if value is None else value, hint='empty is ""')
    return str(value)


def _check_script(text: str) -> str:
    return check_interpreter(refuse_nul(text))


Duration = Annotated[int, convert(_read_duration)]
Delay = Annotated[int, convert(_read_delay)]
Moment = Annotated[int, pydantic.BeforeValidator(_read_moment)]
VariableName = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableValue = Annotated[str, pydantic.BeforeValidator(_read_variable), pydantic.AfterValidator(refuse_nul)]
Replicas = Annotated[int, pydantic.Field(strict=True, ge=1, le=REPLICAS_MAX)]
Priority = Annotated[int, pydantic.Field(strict=True, gt=-(1 << 31), lt=1 << 31)]


JobName = Annotated[str, pydantic.Field(max_length=256), pydantic.AfterValidator(refuse_controls)]
Image = Annotated[Text, pydantic.AfterValidator(refuse_option)]
Setup = Annotated[str, pydantic.AfterValidator(refuse_nul)]
Script = Annotated[str, pydantic.Field(min_length=1), pydantic.AfterValidator(_check_script)]
Command = Annotated[tuple[Word, ...], pydantic.BeforeValidator(_read_command)]


OWN_KEYS: Mapping[str, pydantic.TypeAdapter[Any]] = {
    "name": pydantic.TypeAdapter(JobName),
    "run": pydantic.TypeAdapter(Script),
    "command": pydantic.TypeAdapter(Command),
}
"""Keys of a job that say nothing about any other of its keys: in them, like jobs may differ."""


class ResourcesModel(Schema):
    """What one replica needs."""

    gpus: Annotated[DeviceRequest | None, convert(_read_devices)] = None
    gpu_model: Annotated[tuple[Name, ...], pydantic.BeforeValidator(list_one)] = ()
    gpu_memory: Annotated[int, convert(parse_memory_minimum)] = 0
    gpu_fraction: Annotated[int, convert(parse_share)] = MILLI
    cpus: Annotated[int, convert(parse_cpus_minimum)] = 0
    memory: Annotated[int, convert(parse_memory_minimum)] = 0
    labels: dict[Name, Text] = pydantic.Field(default_factory=dict)
    exclusive: Flag = False

    @pydantic.model_validator(mode="after")
    def _check_devices(self) -> Self:
        gpus = self.gpus
        if gpus is not None and gpus.model and self.gpu_model:
            raise ParseError(
                expected="the model once", found=self.gpu_model, hint="drop `gpu_model`", field="gpu_model"
            )
        if gpus is not None and gpus.memory_bytes and self.gpu_memory:
            hint = "drop `gpu_memory`, or the memory in `gpus`"
            raise ParseError(expected="the memory once", found=gpus.memory_bytes, hint=hint, field="gpu_memory")
        if self.gpu_fraction < MILLI and self.device_count != 1:
            hint = "a replica holds part of one device, or whole ones; use more replicas"
            raise ParseError(expected="1 with a `gpu_fraction`", found=self.device_count, hint=hint, field="gpus")
        if self.device_count == 0 and (self.gpu_model or self.gpu_memory):
            raise ParseError(expected="at least 1 with `gpu_model` or `gpu_memory`", found=0, field="gpus")
        return self

    @property
    def device_count(self) -> int:
        """Devices per replica: as given, else 1 where any key speaks of a GPU, else none."""
        if self.gpus is not None:
            return self.gpus.count
        return 1 if self.gpu_model or self.gpu_memory or self.gpu_fraction < MILLI else 0


class NetworkModel(Schema):
    """How close replicas must be."""

    widest: DomainLevel = DomainLevel.SITE
    preferred: DomainLevel | None = None
    fabric: Text = ""

    @pydantic.model_validator(mode="after")
    def _check_order(self) -> Self:
        levels = list(DomainLevel)
        if self.preferred is not None and levels.index(self.preferred) > levels.index(self.widest):
            hint = f"levels from narrow to wide: {', '.join(levels)}"
            raise ParseError(
                expected=f"no wider than {self.widest}", found=self.preferred, hint=hint, field="preferred"
            )
        return self


class ElasticModel(Schema):
    """The range in which the job can run, in replicas."""

    min: Replicas
    max: Replicas
    speedup: Annotated[tuple[tuple[int, float], ...], pydantic.BeforeValidator(_read_speedup)] = ()

    @pydantic.model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.min > self.max:
            raise ParseError(expected=f"at least `min` ({self.min})", found=self.max, field="max")
        return self


class CheckpointModel(Schema):
    """How the job saves its work."""

    interval: Duration
    cost: Delay = 0
    restart: Delay = 0
    grace: Delay = 30_000
    on_signal: Flag = True


class JobModel(Schema):
    """One job of a job file."""

    name: JobName = ""
    kind: JobKind = JobKind.TRAIN
    replicas: Replicas | None = None
    resources: ResourcesModel = ResourcesModel()
    network: NetworkModel = NetworkModel()
    elastic: ElasticModel | None = None
    checkpoint: CheckpointModel | None = None
    time_limit: Annotated[int | None, convert(parse_time_span)] = None
    estimate: Duration | None = None
    priority: Priority = 0
    qos: Text = ""
    queue: Name | None = None
    tenant: Name | None = None
    preemptible: Flag = True
    requeue: Flag = True
    suspendable: Flag = False
    hold: Flag = False
    depends_on: Annotated[tuple[DependencyRequest, ...], pydantic.BeforeValidator(parse_dependencies)] = ()
    array: Annotated[ArrayTasks | None, convert(parse_array)] = None
    begin: Moment | None = None
    deadline: Moment | None = None
    latency_target: Duration | None = None
    run: Script | None = None
    command: Command | None = None
    setup: Setup = ""
    workdir: Text = ""
    image: Image = ""
    tolerations: Annotated[tuple[Toleration, ...], pydantic.BeforeValidator(parse_tolerations)] = ()
    env: dict[VariableName, VariableValue] = pydantic.Field(default_factory=dict)
    inherit_env: Flag = True
    input: Text = ""
    output: Text = ""
    error: Text = ""
    append: Flag = False

    @pydantic.model_validator(mode="after")
    def _check_run(self) -> Self:
        if (self.run is None) == (self.command is None):
            found = NOTHING if self.run is None else "both"
            hint = "`run` is shell text, `command` a list of words"
            raise ParseError(expected="either `run` or `command`", found=found, hint=hint, field="run")
        return self

    @pydantic.model_validator(mode="after")
    def _check_replicas(self) -> Self:
        if self.elastic and self.replicas is not None and not self.elastic.min <= self.replicas <= self.elastic.max:
            expected = f"between `elastic.min` ({self.elastic.min}) and `elastic.max` ({self.elastic.max})"
            raise ParseError(expected=expected, found=self.replicas, field="replicas")
        return self

    @pydantic.model_validator(mode="after")
    def _check_times(self, info: pydantic.ValidationInfo) -> Self:
        assert info.context is not None
        earliest = max(self.begin or 0, info.context["now_ms"])
        if self.deadline is not None and self.deadline <= earliest:
            expected = "a time after now and after `begin`"
            raise ParseError(expected=expected, found=self.deadline, hint="give a later time", field="deadline")
        return self


class JobsModel(Schema):
    """A file of several jobs."""

    jobs: Annotated[tuple[JobModel, ...], pydantic.BeforeValidator(require_items)]
