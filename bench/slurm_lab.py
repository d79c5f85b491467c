"""A real Slurm of Debian's packages, on loopback and in a folder of its own: the baseline of `bench.living`.

Eight nodes of eight GPUs each (character devices without a driver), no accounting, no control groups. Needs root, and
the packages `slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins`.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

NODES: Final = 8
GPUS_PER_NODE: Final = 8
NVIDIA_MAJOR: Final = 195
READY_S: Final = 60.0
PROGRAMS: Final = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "munged")
STOCK: Final = ""
"""As shipped: `batch_sched_delay` of 3 s, which each `sbatch` waits for."""
TUNED: Final = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=2000,default_queue_depth=10000\n"

CONF: Final = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MaxJobCount=200000
MaxArraySize=100001
KillWait=5
PriorityType=priority/basic
GresTypes=gpu
{parameters}NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=32 RealMemory=2000 \
Gres=gpu:{gpus} State=UNKNOWN
PartitionName=gpu Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True, slots=True)
class SlurmLab:
    """A running Slurm. environment: for `sbatch` and the like."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        """Output of one of Slurm's commands. Raises CalledProcessError."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=True, cwd=self.folder)
        return done.stdout

    def count_jobs(self) -> int:
        """Jobs that have not ended, each member of an array for itself."""
        return len(self.run("squeue", "-h", "-r", "-o", "%i").split())


def why_not() -> str:
    """Why Slurm cannot be started here, in a sentence; empty when it can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=_search_path()) is None]
    if missing:
        return f"{', '.join(missing)} not installed (slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins)"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root"


@contextmanager
def slurm_lab(parameters: str = TUNED) -> Iterator[SlurmLab]:
    """Start it, wait until all nodes are idle, and stop it in the end."""
    with TemporaryDirectory(prefix="clearway-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        _write_configuration(folder, parameters)
        environment = {**os.environ, "PATH": _search_path(), "SLURM_CONF": str(folder / "slurm.conf")}
        lab = SlurmLab(folder, environment)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            processes.append(_start_munge(folder, environment))
            processes.append(_start(folder, environment, "slurmctld", "-D"))
            nodes = [f"n{node}" for node in range(1, NODES + 1)]
            processes.extend(_start(folder, environment, "slurmd", "-D", "-N", node) for node in nodes)
            _await_nodes(lab)
            yield lab
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait(timeout=30)


def _search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"


def _write_configuration(folder: Path, parameters: str) -> None:
    port, first = _free_port(1), _free_port(NODES)
    host = socket.gethostname().partition(".")[0]
    text = CONF.format(
        folder=folder,
        host=host,
        port=port,
        first=first,
        last=first + NODES - 1,
        nodes=NODES,
        gpus=GPUS_PER_NODE,
        parameters=parameters,
    )
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    gres = f"NodeName=n[1-{NODES}] Name=gpu File={folder}/gpu[0-{GPUS_PER_NODE - 1}]\n"
    (folder / "gres.conf").write_text(gres, encoding="utf-8")
    (folder / "state").mkdir()
    for index in range(GPUS_PER_NODE):
        os.mknod(folder / f"gpu{index}", 0o020666, os.makedev(NVIDIA_MAJOR, index))


def _free_port(count: int) -> int:
    """The first of `count` ports in a row, free a moment ago."""
    while True:
        first = 20_000 + secrets.randbelow(20_000)
        if all(_is_free(first + offset) for offset in range(count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _start_munge(folder: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    words = ("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket")
    places = (f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed")
    process = _start(folder, environment, *words, *places)
    deadline = time.monotonic() + READY_S
    while not (folder / "munge.socket").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def _start(folder: Path, environment: dict[str, str], *words: str) -> "subprocess.Popen[bytes]":
    with open(folder / f"{words[0]}.out", "ab") as out:
        return subprocess.Popen(words, env=environment, stdout=out, stderr=out, cwd=folder)


def _await_nodes(lab: SlurmLab) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            idle = lab.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()
        except subprocess.CalledProcessError:
            idle = []
        if len(set(idle)) == NODES:
            return
        time.sleep(0.2)
    raise RuntimeError(f"expected {NODES} idle nodes of Slurm within {READY_S:.0f} s; see its logs in {lab.folder}")
