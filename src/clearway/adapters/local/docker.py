"""Docker: its daemon starts a job's containers below the job's control group, so that they are found, frozen and ended
like processes of ours.

Who may speak to the daemon is root in all but name. So it is used only where the control plane runs as root, its
client gets words that were made here alone (of a user's own the name of the image, which must look like one), and what
the user says — script, arguments, environment, working directory — reaches the container in files of his own, read by
a shell that has his rights. Folders are shown from their longest part that nobody but root can exchange, and only if
the user can reach it.

The first thing in a container is to look whether it lies where it should: a runtime may put it elsewhere.

A daemon may hang, so it is asked what it is in a thread of its own, and nothing but Docker's jobs waits for the answer.
"""

import json
import os
import re
import shlex
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clearway.adapters.local.containers import ContainerError
from clearway.adapters.local.keeper.daemon import CLIENT_ENVIRONMENT
from clearway.adapters.local.keeper.removal import LABEL, SCHEME
from clearway.adapters.local.keeper.spawn import CONTAINER_WORD, GROUP_WORD, PLACE_WORD, START_WORD

DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
DRIVER: Final = "cgroupfs"
"""Of control groups: the one by which a container can be put into a group that is not systemd's."""
ANSWER_S: Final = 5.0
"""Longest wait for the daemon to describe itself."""
GOOD_NS: Final = 60_000_000_000
BAD_NS: Final = 5_000_000_000
"""How long it is believed to be as it was, fit or not."""
NAMESPACES: Final = ("mnt", "pid", "cgroup", "user")
"""In which paths, processes and groups have the same names for the daemon and for us."""
NVIDIA: Final = "nvidia"
"""The runtime that shows GPUs inside; it wraps runc."""
ALL: Final = "all"
NO_GPU: Final = "void"
"""What that runtime takes in the place of names."""
IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
UNFIT: Final = re.compile(r'[,"\n\r]')
"""What would end a path among the fields of `--mount`."""
OF_IMAGE: Final = frozenset({"PATH"})
"""Variables in which the image knows better than the machine."""


class DockerError(ContainerError):
    """Docker cannot run a job here; the message says why."""


class DockerSilentError(DockerError):
    """The daemon was asked and has not answered yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """uid, gid, groups: of the job. owner: whose containers these are, for who takes away what was left behind.
    takes_input: it reads a file. gpus: those that the runtime shows, if it does. On cgroup v1 it fails with any that
    the job's control group may not open."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    owner: str
    takes_input: bool
    gpus: str = ALL


@dataclass(slots=True)
class _Answer:
    """What the daemon was found to be. unfit: why it cannot be used, "" = it can."""

    at_ns: int
    unfit: str
    runtimes: tuple[str, ...] = ()


class Docker:
    """host: where the daemon listens, as DOCKER_HOST says it; "" = the usual place. uid: of the control plane. wake:
    called in another thread when the daemon has answered, or did not in time."""

    def __init__(self, host: str = "", uid: int | None = None, *, wake: Callable[[], None] = lambda: None) -> None:
        self.host = host or DEFAULT_HOST
        self._uid = os.geteuid() if uid is None else uid
        self._wake = wake
        self._answer: _Answer | None = None
        self.is_asked = False
        """Whether an answer is waited for."""

    def look(self, program: str) -> tuple[str, ...]:
        """The runtimes that the daemon has. program: its client. Raises DockerError where it cannot be used, and
        DockerSilentError where it is being asked just now: look again after `wake`."""
        answer = self._answer
        if answer is None or time.monotonic_ns() - answer.at_ns > (BAD_NS if answer.unfit else GOOD_NS):
            if not self.is_asked:
                self.is_asked = True
                threading.Thread(target=self._learn, args=(program,), name="docker", daemon=True).start()
            raise DockerSilentError(f"Docker's daemon at {self.host} is being asked what it is")
        if answer.unfit:
            raise DockerError(answer.unfit)
        return answer.runtimes

    def _learn(self, program: str) -> None:
        unfit, runtimes = "", tuple[str, ...]()
        try:
            runtimes = self._ask(program)
        except Exception as error:  # whatever it is, who waits must be told
            unfit = str(error) or repr(error)
        self._answer = _Answer(time.monotonic_ns(), unfit, runtimes)
        self.is_asked = False
        self._wake()

    def _ask(self, program: str) -> tuple[str, ...]:
        if self._uid != 0:
            raise DockerError("expected root to run containers by Docker, whose socket gives root's rights: use podman")
        if not self.host.startswith(SCHEME):
            raise DockerError(
                f"expected Docker's daemon on this machine, by {SCHEME}; found DOCKER_HOST={self.host}: leave it unset"
            )
        check_peer(self.host.removeprefix(SCHEME))
        words = [program, "--host", self.host, "info", "--format", "{{json .}}"]
        try:
            said = subprocess.run(  # noqa: S603 - words of ours
                words, capture_output=True, timeout=ANSWER_S, check=False, env=CLIENT_ENVIRONMENT
            )
            info = json.loads(said.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise DockerError(f"Docker's daemon at {self.host} does not say what it is: {error}") from error
        check_info(info)
        return tuple(info.get("Runtimes") or ())


def check_peer(path: str) -> None:
    """Raise DockerError where the daemon at this socket is not root's, or sees another machine than we do."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(ANSWER_S)
            peer.connect(path)
            packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError as error:
        raise DockerError(f"Docker's daemon does not listen at {path}: {error.strerror or error}; start it") from error
    pid, uid, _ = struct.unpack("3i", packed)
    if uid != 0:
        raise DockerError(f"expected Docker's daemon at {path} to run as root, found user {uid}: rootless is not used")
    for kind in NAMESPACES:
        try:
            is_same = os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
        except OSError:
            is_same = False
        if not is_same:
            raise DockerError(
                f"expected Docker's daemon at {path} in the {kind} namespace of the control plane, found another: run "
                "both on the machine itself, without a namespace of their own (as PrivateTmp of systemd makes one)"
            )


def check_info(info: Mapping[str, Any]) -> None:
    """Raise DockerError where a daemon that describes itself so cannot put containers below our groups."""
    if info.get("ServerErrors"):
        raise DockerError(f"Docker's daemon does not answer: {'; '.join(map(str, info['ServerErrors']))}")
    driver = info.get("CgroupDriver")
    if driver != DRIVER:
        raise DockerError(
            f"expected Docker's daemon to make control groups by {DRIVER}, found {driver}, which puts containers out "
            'of the job\'s: set "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json'
        )
    kinds = " ".join(map(str, info.get("SecurityOptions") or ()))
    for kind in ("rootless", "userns"):
        if f"name={kind}" in kinds:
            raise DockerError(f"expected Docker's daemon to give users their own numbers, found it with {kind}")


def find_fixed(path: str) -> str:
    """The longest beginning of a path (without links) that nobody but root can make another folder."""
    fixed = "/"
    for name in path.strip("/").split("/"):
        below = os.path.join(fixed, name)
        try:
            above, found = os.lstat(fixed), os.lstat(below)
        except OSError:
            break
        is_ours = not above.st_mode & 0o022 or (above.st_mode & stat.S_ISVTX and found.st_uid == 0)
        if above.st_uid != 0 or not is_ours or not stat.S_ISDIR(found.st_mode):
            break
        fixed = below
    return fixed


def find_mounts(paths: Sequence[str]) -> tuple[str, ...]:
    """The folders to show inside so that these can be reached. Raises DockerError."""
    mounts = dict.fromkeys(find_fixed(os.path.realpath(path)) for path in paths)
    for mount in mounts:
        if mount == "/" or UNFIT.search(mount):
            raise DockerError(
                f"expected a folder that Docker can show, found {mount!r}: below a folder of root's that only root may "
                "change, with neither comma, quote nor line break in its name"
            )
    return tuple(mount for mount in mounts if not any(mount.startswith(f"{other}/") for other in mounts))


def make_words(
    program: str, host: str, image: str, asked: "Asked", mounts: Sequence[str], *, has_gpus: bool = False
) -> tuple[str, ...]:
    """Docker's client with its arguments. has_gpus: whether the daemon can show GPUs. Raises DockerError."""
    if not IMAGE.fullmatch(image):
        raise DockerError(f"expected the name of an image, such as registry.example/train:1; found {image!r}")
    groups = [group for group in asked.groups if group != asked.gid]
    options = [
        *("--name", CONTAINER_WORD, "--cgroup-parent", GROUP_WORD, f"--label={LABEL}={asked.owner}"),
        *("--rm", "--restart=no", "--pull=never", "--sig-proxy=false", "--no-healthcheck", "--log-driver=none"),
        *(f"--user={asked.uid}:{asked.gid}", *(f"--group-add={group}" for group in groups)),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only"),
        *("--network=host", "--pid=host", "--ipc=host", "--cgroupns=host"),
    ]
    if "/tmp" not in mounts:  # noqa: S108 - the container's own, in memory that counts as the job's
        options.append("--tmpfs=/tmp:mode=1777,exec")
    if asked.takes_input:
        options.append("--interactive")
    runtime = "runc"
    if has_gpus:  # of those that are shown, CUDA_VISIBLE_DEVICES names the replica's
        runtime = NVIDIA
        options += [f"--env=NVIDIA_VISIBLE_DEVICES={asked.gpus}", "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    options += [f"--runtime={runtime}", *(f"--mount=type=bind,source={path},target={path}" for path in mounts)]
    return (program, "--host", host, "run", *options, "--workdir=/", "--entrypoint=/bin/sh", image, START_WORD)


def make_start(argv: Sequence[str], workdir: str, given: Mapping[str, str], own: Mapping[str, str], script: str) -> str:
    """The text of what the container's shell reads: it looks where it is, sets variables, goes to the working directory
    and becomes `argv`. given: variables that give way to those of the image; own: ours. script: its word in argv."""
    lines = [
        "found=",
        "while IFS= read -r line; do",
        f"    case $line in {PLACE_WORD}) found=yes ;; esac",
        "done </proc/self/cgroup",
        'if [ -z "$found" ]; then',
        '    echo "expected this container below the control group of its job, where its daemon was asked to put it; it'
        ' lies elsewhere, where nobody could end it: not run" >&2',
        "    exit 125",
        "fi",
    ]
    for name, value in given.items():
        if NAME.fullmatch(name) and name not in own and name not in OF_IMAGE:
            lines.append(f'[ -n "${{{name}+x}}" ] || export {name}={shlex.quote(value)}')
    lines += [f"export {name}={shlex.quote(value)}" for name, value in own.items() if NAME.fullmatch(name)]
    words = ['"${0%/*}/script"' if word == script else shlex.quote(word) for word in argv]
    lines += [f"cd -- {shlex.quote(os.path.realpath(workdir))} || exit 126", f"exec {' '.join(words)}"]
    return "\n".join(lines) + "\n"


def check_client(program: str) -> str:
    """Docker's client, without links. Raises DockerError where others than root can change it: it runs as root."""
    path = Path(program).resolve()
    found = path.stat()
    if found.st_uid != 0 or found.st_mode & 0o022:
        raise DockerError(f"expected Docker's client {path} to be root's, and nobody else's to change")
    return str(path)
