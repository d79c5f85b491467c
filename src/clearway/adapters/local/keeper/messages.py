"""What the controller's side and the keeper say to one another: one JSON object a line.

Requests have `op`: `connect`, `start`, `stop`, `suspend`, `fail`, `told`, `ping`, `shutdown`. The keeper answers
`connect` with `connected`, `ping` with `pong`, and otherwise sends a Report of a run whenever something about it
changed. A report says the whole truth about its run, so a lost one costs nothing: the next says it again.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from clearway.adapters.local.keeper.device_limits import DeviceFile

Message = dict[str, Any]

LINE_MAX = 64 << 20
"""Bytes of one message; a gang of thousands of replicas with long environments has less."""


def render_message(message: Message) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _fields(value: Any) -> Message:
    """The fields of a dataclass with slots. `dataclasses.asdict` copies deeply, which takes ten times as long."""
    return {name: getattr(value, name) for name in value.__slots__}


@dataclass(frozen=True, slots=True)
class ReplicaLaunch:
    """One process to start. rank: its number. node: its (virtual) node. Paths: "" = /dev/null.
    bundle: config.json of its container, or the text of its start where Docker makes it; "" = none."""

    rank: int
    node: str
    environment: dict[str, str]
    stdin: str
    stdout: str
    stderr: str
    bundle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that the keeper must know to run one generation of a job. Times in milliseconds.

    world: replicas of the job, not all of which must be processes of ours (`Launch.FIRST_REPLICA`).
    argv: program and arguments; "{script}" stands for the path of the script. setup: shell text, "" = none.
    uid, gid, groups: None = do not change. cpu_milli, memory_bytes, processes_max: of the whole generation; 0 = no
    limit. limit_signal: number, 0 = none. preempt_signal: sent to processes that handle it. saves_on_signal: whether
    it is worth waiting for a checkpoint. work_milli: speed of this many replicas, in thousandths of the job as
    submitted. devices: (node, index) held. is_movable: a frozen run may go on with other devices. is_move: it takes
    over from the generation before it, which saves and leaves first. job_dir: CLEARWAY_JOB_DIR, made for the user.
    warm: interpreter of a warm runner that has imported warm_modules and runs warm_argv, "" = none; argv is for where
    it cannot. gpus: device files of all GPUs of this machine; it may open gpus_held alone. docker: where the daemon
    listens that makes the containers of this job, "" = none does; docker_mounts: folders that it shows in them.
    remover: program and arguments that take away what the tool of its containers leaves behind, () = nothing;
    "{container}" stands for their names.
    """

    job: int
    generation: int
    replicas: tuple[ReplicaLaunch, ...]
    world: int
    environment: dict[str, str]
    argv: tuple[str, ...]
    script: str
    workdir: str
    job_dir: str
    setup: str = ""
    append: bool = False
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    processes_max: int = 0
    limit_ms: int | None = None
    limit_signal: int = 0
    limit_signal_before_ms: int = 0
    limit_signal_shell_only: bool = False
    preempt_signal: int = 0
    saves: bool = False
    saves_on_signal: bool = False
    grace_ms: int = 0
    work_milli: int = 1000
    devices: tuple[tuple[str, int], ...] = ()
    is_movable: bool = True
    is_move: bool = False
    warm: str = ""
    warm_modules: tuple[str, ...] = ()
    warm_argv: tuple[str, ...] = ()
    gpus: tuple[DeviceFile, ...] = ()
    gpus_held: tuple[DeviceFile, ...] = ()
    docker: str = ""
    docker_mounts: tuple[str, ...] = ()
    remover: tuple[str, ...] = ()

    @property
    def files_denied(self) -> tuple[DeviceFile, ...]:
        """Of the GPUs of which it holds nothing."""
        return tuple(file for file in self.gpus if file not in self.gpus_held)

    def without_limits(self) -> "Launch":
        """For what is started in the user's name beside the job, and holds no device."""
        return replace(self, cpu_milli=0, memory_bytes=0, processes_max=0, gpus_held=())

    def for_runner(self) -> "Launch":
        """For a warm runner. It shares its processors with all jobs that it forks tasks for, and so is not limited to
        those of one."""
        return replace(self, cpu_milli=0, gpus_held=())

    def to_message(self) -> Message:
        """As JSON has it."""
        replicas = [_fields(replica) for replica in self.replicas]
        message = {**_fields(self), "replicas": replicas}
        if not self.remover:  # of which an older keeper does not know
            del message["remover"]
        return message

    @classmethod
    def of_message(cls, message: Message) -> "Launch":
        """The inverse of `to_message`."""
        values = dict(message)
        values["replicas"] = tuple(ReplicaLaunch(**replica) for replica in values["replicas"])
        values["argv"] = tuple(values["argv"])
        for name in ("groups", "warm_modules", "warm_argv", "docker_mounts"):
            values[name] = tuple(values[name])
        values["remover"] = tuple(values.get("remover", ()))
        values["devices"] = tuple((node, index) for node, index in values["devices"])
        for name in ("gpus", "gpus_held"):
            values[name] = tuple((major, minor) for major, minor in values.get(name, ()))
        return cls(**values)


@dataclass(slots=True, kw_only=True)
class Report:
    """What is true of a run. phase: `starting`, `running`, `suspended`, `ended`.

    prepared_ms: Unix time at which the setup step ran; 0 = not yet, or there is none. started_ms: that of all replicas.
    resized_ms: when it took over from the generation before it; 0 = it did not. goes_on: it was frozen under an earlier
    generation. progress: what it says of itself, in thousandths; -1 = nothing. saved_ms: work that is safe.
    saved_at_ms: when that was saved. end: `finished` or `stopped`; outcome or cause says more. stuck: (node, device,
    reason) of devices that its processes cannot be driven from.
    """

    job: int
    generation: int
    phase: str = "starting"
    prepared_ms: int = 0
    started_ms: int = 0
    resized_ms: int = 0
    goes_on: bool = False
    progress: int = -1
    suspended_ms: int = 0
    saved_ms: int = 0
    saved_at_ms: int = 0
    ended_ms: int = 0
    end: str = ""
    outcome: str = ""
    cause: str = ""
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    job_dir: str = ""
    stuck: list[tuple[str, int, str]] = field(default_factory=list)

    def to_message(self) -> Message:
        """As JSON has it."""
        return _fields(self)

    def to_go_on(self, generation: int) -> "Report":
        """Of a run that was frozen and goes on under that number."""
        return Report(
            job=self.job,
            generation=generation,
            goes_on=True,
            progress=self.progress,
            saved_ms=self.saved_ms,
            job_dir=self.job_dir,
        )

    @classmethod
    def of_message(cls, message: Message) -> "Report":
        """The inverse of `to_message`."""
        values = dict(message)
        values["stuck"] = [(node, index, reason) for node, index, reason in values["stuck"]]
        return cls(**values)
