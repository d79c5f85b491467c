"""From a job and its place to what the keeper needs: program, environment, files. Pure but for looking up accounts."""

import os
import re
import shlex
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from clearway.adapters.local import containers
from clearway.adapters.local.accounts import Account
from clearway.adapters.local.devices import DeviceSource
from clearway.adapters.local.docker import (
    ALL,
    NO_GPU,
    NVIDIA,
    Asked,
    Docker,
    check_client,
    find_mounts,
    make_start,
    make_words,
)
from clearway.adapters.local.keeper.cgroups import read_text
from clearway.adapters.local.keeper.messages import Launch, ReplicaLaunch
from clearway.adapters.local.keeper.processes import signal_number
from clearway.adapters.local.keeper.spawn import SCRIPT_WORD
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec
from clearway.model.runs import Launch as LaunchPlace
from clearway.model.runs import RunSpec
from clearway.wire.patterns import ARRAY_OUTPUT_DEFAULT, OUTPUT_DEFAULT, FileNames, fill_pattern

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELLS: Final = ("/bin/bash", "/bin/sh")
"""What runs a script that does not name its interpreter."""
MASTER_ADDRESS: Final = "127.0.0.1"
"""All nodes of this backend are this machine."""
PORT_BASE: Final = 20_000
PORT_RANGE: Final = 12_000
"""MASTER_PORT of jobs with one replica, which seldom use it: below the range from which the kernel gives ports out."""
WARM: Final = "CLEARWAY_WARM"
"""Variable by which a job asks for a warm runner: modules to have imported, such as `numpy,torch`, or `python`."""
_SHELL: Final = re.compile(r"[\n|&;<>()$`*?\[\]#~{}!]")
"""What a shell would do something with: then a shell must."""
_PYTHON: Final = re.compile(r"python(3(\.\d+)?)?")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
MACHINE_PROCESSES: Final = ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")
PROCESSES_SHARE: Final = 2
"""Of the processes that the machine can have, one job has half: what forks without end leaves the rest to others."""
GRACE_DEFAULT_MS: Final = 30_000
"""Time to save for a move of a job that does not say how long it needs; Slurm's KillWait, Kubernetes' grace."""

Place = tuple[tuple[NodeName, tuple[int, ...]], ...]
"""Of each replica: its node, and the indices of its devices there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One generation to run. port: for MASTER_PORT. group: of the control groups of all jobs. is_movable: a frozen run
    may go on with other devices."""

    spec: JobSpec
    run: RunSpec
    generation: int
    place: Place
    account: Account
    job_dir: Path
    now_ms: int
    port: int
    group: str
    is_move: bool = False
    is_movable: bool = True


def make_launch(task: Task, devices: DeviceSource, docker: Docker) -> Launch:
    """What the keeper is told. docker: for images that nothing else here runs. Raises ValueError where a signal is
    unknown, ContainerError."""
    spec, run, account = task.spec, task.run, task.account
    workdir = run.workdir or (account.home if os.path.isdir(account.home) else str(task.job_dir))
    before_limit = run.limit_signal
    checkpoint = spec.checkpoint
    count = len(task.place)
    environment = _common_environment(task)
    argv = (*_find_interpreter(run), *run.args)
    confinement = devices.confine((node, index) for node, indices in task.place for index in indices)
    replicas = _make_replicas(task, devices, workdir, is_confined=confinement.is_real)
    host, mounts, remover = "", tuple[str, ...](), tuple[str, ...]()
    if run.image and containers.find_tool(run.image)[0] == containers.DOCKER:
        shown = _find_shown(task, devices) if confinement.is_real else ALL
        replicas, argv, mounts = _put_into_docker(task, workdir, replicas, argv, docker, shown)
        host = docker.host
    elif run.image:
        replicas, argv, remover = _put_into_image(task, workdir, replicas, argv, environment)
    return Launch(
        job=spec.id,
        generation=task.generation,
        replicas=replicas,
        world=count,
        environment=environment,
        argv=argv,
        script=run.script if run.script.endswith("\n") else run.script + "\n",
        workdir=workdir,
        job_dir=str(task.job_dir),
        setup=run.setup,
        append=run.append or task.generation > 1,
        uid=account.uid,
        gid=account.gid,
        groups=account.groups,
        cpu_milli=spec.request.cpu_milli * count,
        memory_bytes=spec.request.memory_bytes * count,
        processes_max=find_processes_max(count),
        limit_ms=spec.limit_ms,
        limit_signal=0 if before_limit is None else _preempt_signal(run),
        limit_signal_before_ms=0 if before_limit is None else before_limit.before_ms,
        limit_signal_shell_only=before_limit is not None and before_limit.shell_only,
        preempt_signal=_preempt_signal(run),
        saves=checkpoint is not None or spec.elastic is not None,
        saves_on_signal=checkpoint.on_signal if checkpoint is not None else spec.elastic is not None,
        grace_ms=checkpoint.grace_ms if checkpoint is not None else GRACE_DEFAULT_MS,
        work_milli=min(count * 1000 // spec.replicas, 1000),
        devices=tuple((str(node), index) for node, indices in task.place for index in indices),
        is_movable=task.is_movable,
        is_move=task.is_move,
        gpus=confinement.gpus,
        gpus_held=confinement.held,
        docker=host,
        docker_mounts=mounts,
        remover=remover,
        **_find_warm(task),
    )


def find_processes_max(replicas: int, limits: Sequence[str] = MACHINE_PROCESSES) -> int:
    """Processes and threads of all replicas together. limits: files that say how many the machine has."""
    machine = [int(text) // PROCESSES_SHARE for path in limits if (text := read_text(path).strip()).isdigit()]
    return min([containers.PROCESSES_MAX * replicas, *machine])


def _put_into_image(
    task: Task,
    workdir: str,
    replicas: tuple[ReplicaLaunch, ...],
    argv: tuple[str, ...],
    environment: Mapping[str, str],
) -> tuple[tuple[ReplicaLaunch, ...], tuple[str, ...], tuple[str, ...]]:
    """Replicas with a container each, what starts it, and what takes it away. They differ in environment and control
    group."""
    image, uid, gid = task.run.image, task.account.uid, task.account.gid
    mark = f"{task.spec.id}.{task.generation}"
    inside = containers.Place(
        workdir=workdir,
        job_dir=str(task.job_dir),
        name=f"clearway-{mark}",
        group=f"{task.group}/{mark}",
        uid=os.getuid() if uid is None else uid,
        gid=os.getgid() if gid is None else gid,
    )
    bundled = []
    for each in replicas:
        own = replace(inside, name=f"{inside.name}.{each.rank}")
        bundle = containers.make_bundle(image, argv, {**environment, **each.environment}, own)
        bundled.append(replace(each, bundle=bundle))
    return tuple(bundled), containers.wrap(image, argv, inside), containers.make_remover(image, inside)


def _put_into_docker(
    task: Task, workdir: str, replicas: tuple[ReplicaLaunch, ...], argv: tuple[str, ...], docker: Docker, shown: str
) -> tuple[tuple[ReplicaLaunch, ...], tuple[str, ...], tuple[str, ...]]:
    """Replicas with what each container reads first, the client that waits for them, and the folders shown inside."""
    run, account = task.run, task.account
    program = check_client(containers.find_tool(run.image)[1])
    runtimes = docker.look(program)
    assert account.uid is not None, "a control plane of root's knows as whom a job runs"
    assert account.gid is not None, "likewise"
    mounts = find_mounts((workdir, str(task.job_dir)))
    asked = Asked(
        uid=account.uid,
        gid=account.gid,
        groups=account.groups,
        owner=task.group,
        takes_input=bool(run.input),
        gpus=shown,
    )
    words = make_words(program, docker.host, run.image, asked, mounts, has_gpus=NVIDIA in runtimes)
    given = {"LANG": "C.UTF-8", **dict(run.environment)}
    own = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, **_own_environment(task)}
    bundled = [
        replace(each, bundle=make_start(argv, workdir, given, {**own, **each.environment}, SCRIPT_WORD))
        for each in replicas
    ]
    return tuple(bundled), words, mounts


def _find_shown(task: Task, devices: DeviceSource) -> str:
    """The GPUs that a container is to see of a job that may open no others."""
    held = dict.fromkeys(node for node, _ in task.place)
    names = [devices.visible(node, _indices_on(task.place, node), is_confined=True) for node in held]
    return ",".join(filter(None, names)) or NO_GPU


def _indices_on(place: Place, node: NodeName) -> tuple[int, ...]:
    """All that a job holds of a node."""
    return tuple(sorted({index for other, indices in place if other == node for index in indices}))


def _preempt_signal(run: RunSpec) -> int:
    return int(signal.SIGUSR1) if run.limit_signal is None else signal_number(run.limit_signal.signal)


def _find_warm(task: Task) -> dict[str, Any]:
    """The warm runner that the job asks for by CLEARWAY_WARM, if its script is one call of Python without any shell."""
    environment = dict(task.run.environment)
    wanted = environment.get(WARM)
    if not wanted or task.run.image or _SHELL.search(task.run.script.strip()):
        return {}
    words = [*shlex.split(task.run.script), *task.run.args]
    if len(words) < 2 or not _PYTHON.fullmatch(os.path.basename(words[0])):
        return {}
    is_module = words[1] == "-m" and len(words) > 2
    program = shutil.which(words[0], path=environment.get("PATH", PATH))
    if program is None or (words[1].startswith("-") and not is_module):
        return {}
    modules = tuple(name for name in wanted.split(",") if _MODULE.fullmatch(name) and name != "python")
    return {"warm": program, "warm_modules": modules, "warm_argv": tuple(words[1:])}


def _find_interpreter(run: RunSpec) -> tuple[str, ...]:
    """Program and arguments: as the kernel reads `#!`, one argument at most; else a shell."""
    first = run.script.partition("\n")[0]
    if first.startswith("#!"):
        words = first[2:].strip().split(maxsplit=1)
        if words:
            return (*(word.strip() for word in words), SCRIPT_WORD)
    shell = next((path for path in SHELLS if os.path.exists(path) and not run.image), SHELLS[-1])
    return (shell, SCRIPT_WORD)


def _make_replicas(task: Task, devices: DeviceSource, workdir: str, *, is_confined: bool) -> tuple[ReplicaLaunch, ...]:
    nodes = list(dict.fromkeys(node for node, _ in task.place))
    place = task.place
    if task.run.launch is LaunchPlace.FIRST_REPLICA:
        place = _find_first(place)
    local: dict[str, int] = {}
    replicas = []
    for rank, (node, indices) in enumerate(place):
        local_rank = local[node] = local.get(node, -1) + 1
        names = _file_names(task, node=node, node_index=nodes.index(node), rank=rank)
        output = fill_pattern(task.run.output or _output_default(task.spec), names)
        error = fill_pattern(task.run.error, names) if task.run.error else output
        visible = devices.visible(node, indices, is_confined=is_confined)
        replicas.append(
            ReplicaLaunch(
                rank=rank,
                node=str(node),
                environment={
                    **_replica_environment(visible, node, indices, rank, local_rank, nodes.index(node)),
                    **_node_environment(task, node),
                },
                stdin=_within(workdir, fill_pattern(task.run.input, names)),
                stdout=_within(workdir, output),
                stderr=_within(workdir, error),
            )
        )
    return tuple(replicas)


def _find_first(place: Place) -> Place:
    """Where a script runs that starts the rest: at the first replica, with all that the job holds of its node."""
    node = place[0][0]
    return ((node, _indices_on(place, node)),)


def _within(workdir: str, path: str) -> str:
    return "" if path in ("", "none", "/dev/null") else os.path.join(workdir, path)


def _output_default(spec: JobSpec) -> str:
    return OUTPUT_DEFAULT if spec.array is None else ARRAY_OUTPUT_DEFAULT


def _file_names(task: Task, *, node: str, node_index: int, rank: int) -> FileNames:
    spec = task.spec
    return FileNames(
        job=spec.id,
        array=None if spec.array is None else spec.array.array,
        task=None if spec.array is None else spec.array.index,
        name=spec.name or "run",
        user=task.account.name,
        node=node,
        node_index=node_index,
        rank=rank,
        restarts=task.generation - 1,
    )


def _replica_environment(
    visible: str, node: NodeName, indices: Sequence[int], rank: int, local_rank: int, node_index: int
) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": visible,
        "SLURM_JOB_GPUS": ",".join(str(index) for index in indices),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NODEID": str(node_index),
        "SLURMD_NODENAME": str(node),
        "CLEARWAY_NODE": str(node),
        "CLEARWAY_DEVICES": ",".join(str(index) for index in indices),
    }


def _node_environment(task: Task, node: NodeName) -> dict[str, str]:
    """What the job holds of a node, all of its replicas there together, as Slurm tells it."""
    here = [indices for other, indices in task.place if other == node]
    cpus = max(task.spec.request.cpu_milli * len(here) // 1000, 1)
    return {"SLURM_GPUS_ON_NODE": str(sum(map(len, here))), "SLURM_CPUS_ON_NODE": str(cpus)}


def _common_environment(task: Task) -> dict[str, str]:
    """What is ours is not the user's to change: a variable inherited from another job would send ranks astray."""
    account = task.account
    return {
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.login_shell,
        "PATH": PATH,
        "LANG": "C.UTF-8",
        **dict(task.run.environment),
        **_own_environment(task),
    }


def _own_environment(task: Task) -> dict[str, str]:
    spec, count = task.spec, len(task.place)
    nodes = list(dict.fromkeys(str(node) for node, _ in task.place))
    tasks = count * task.run.tasks_per_replica
    own = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MASTER_ADDR": MASTER_ADDRESS,
        "MASTER_PORT": str(task.port),
        "WORLD_SIZE": str(count),
        "SLURM_JOB_ID": str(spec.id),
        "SLURM_JOBID": str(spec.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_USER": task.account.name,
        "SLURM_JOB_PARTITION": str(spec.queue),
        "SLURM_JOB_ACCOUNT": str(spec.tenant),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "SLURM_NODELIST": ",".join(nodes),
        "SLURM_SUBMIT_DIR": task.run.workdir,
        "SLURM_RESTART_COUNT": str(task.generation - 1),
        "SLURM_JOB_START_TIME": str(task.now_ms // 1000),
        "CLEARWAY_JOB_ID": str(spec.id),
        "CLEARWAY_GENERATION": str(task.generation),
        "CLEARWAY_JOB_DIR": str(task.job_dir),
        "CLEARWAY_SIGNAL": str(_preempt_signal(task.run)),
        "CLEARWAY_SHARE": f"{spec.request.share_milli / 1000:g}",
        "CLEARWAY_REPLICAS_MIN": str(spec.replicas_min),
        "CLEARWAY_REPLICAS_MAX": str(spec.replicas_max),
    }
    if spec.request.cpu_milli:
        own["SLURM_CPUS_PER_TASK"] = own["OMP_NUM_THREADS"] = str(max(spec.request.cpu_milli // 1000, 1))
    if spec.limit_ms is not None:
        own["SLURM_JOB_END_TIME"] = str((task.now_ms + spec.limit_ms) // 1000)
    if spec.array is not None:
        own["SLURM_ARRAY_JOB_ID"] = str(spec.array.array)
        own["SLURM_ARRAY_TASK_ID"] = str(spec.array.index)
    return own


def choose_port(job: JobId, replicas: int) -> int:
    """A free port for a gang to meet at; for one replica a number that its neighbours do not have."""
    if replicas <= 1:
        return PORT_BASE + job % PORT_RANGE
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
