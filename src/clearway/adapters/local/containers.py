"""A job's `image`: how its processes are started inside of it, by whichever tool is installed.

A folder with a root filesystem is run by runc or crun, without privileges, in a user namespace in which the user looks
like root; a name of an image by podman or apptainer; an image in one file (SIF) by apptainer. All of them start the
processes below ours, so that they stay in the job's control group and end with it. For a name where neither is there,
Docker's daemon is asked (`docker`). The network and the devices that the job sees are the machine's, but for Docker's
devices. So are the processes, but for podman where control groups are those of version 2 alone.

crun refuses machines on which both versions of control groups have controllers; there runc is needed.
"""

import json
import os
import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clearway.adapters.local.keeper.spawn import CONTAINER_WORD
from clearway.model.errors import ClearwayError

BUNDLE_WORD: Final = "{bundle}"
"""Stands for the folder with config.json, which the keeper writes as the job's user."""
SCRIPT_PATH: Final = "/proc/self/fd/3"
FOLDER_TOOLS: Final = ("crun", "runc")
DOCKER: Final = "docker"
FILE_TOOLS: Final = ("apptainer", "singularity")
"""For an image that is one file (SIF): what the others take are names."""
IMAGE_TOOLS: Final = ("podman", *FILE_TOOLS, DOCKER)
SHARED: Final = ("/proc", "/dev", "/sys")
"""Parts of the machine that the job sees inside as it would outside."""
NAMESPACES: Final = ("mount", "user")
UNIFIED: Final = "/sys/fs/cgroup/cgroup.controllers"
"""There where control groups are those of version 2 alone."""
HYBRID: Final = "/sys/fs/cgroup/unified/cgroup.controllers"
"""There, and not empty, where both versions have controllers."""
PROCESSES_MAX: Final = 32_768
"""Of a replica, in a container or not; podman's own limit."""


class ContainerError(ClearwayError):
    """An image cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job runs. workdir, job_dir: seen inside under their own names. name: of its containers. group: control
    group of the run, for a tool that insists on making one of its own. uid, gid: of the job's user."""

    workdir: str
    job_dir: str
    name: str
    group: str
    uid: int
    gid: int


def find_tool(image: str, find: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """Name and program of what runs this image. Raises ContainerError."""
    if image.startswith("-"):
        raise ContainerError(f"expected the name of an image, found {image!r}, which a tool would take for an option")
    tools = _tools_for(image)
    for tool in tools:
        program = find(tool)
        if program is not None and not (tool == "crun" and is_hybrid()):
            return tool, program
    also = ""
    if "crun" in tools and find("crun"):
        also = "; crun refuses this machine, on which both versions of control groups have controllers"
    raise ContainerError(
        f"expected one of {', '.join(tools)} to run the image {image!r}; found none{also}: install one"
    )


def _tools_for(image: str) -> tuple[str, ...]:
    """Those that can run such an image, the best first."""
    if _is_folder(image):
        return FOLDER_TOOLS
    return FILE_TOOLS if image.endswith(".sif") or (image.startswith("/") and os.path.isfile(image)) else IMAGE_TOOLS


def _is_folder(image: str) -> bool:
    return image.startswith("/") and os.path.isdir(image)


def wrap(
    image: str, argv: Sequence[str], place: Place, find: Callable[[str], str | None] = shutil.which
) -> tuple[str, ...]:
    """Program and arguments that run `argv` inside of `image`, by any tool but Docker. Raises ContainerError."""
    tool, program = find_tool(image, find)
    assert tool != DOCKER, "Docker is told by `docker.make_words`"
    if tool == "podman":
        return (*_podman(program, place, find), *_wrap_podman(image, argv, place))
    wrappers = {"runc": _wrap_runc, "crun": _wrap_crun}
    return wrappers.get(tool, _wrap_apptainer)(program, image, argv, place)


def make_remover(image: str, place: Place, find: Callable[[str], str | None] = shutil.which) -> tuple[str, ...]:
    """Program and arguments that take away what is left of a container whose tool was killed with it; () = nothing is.
    Raises ContainerError."""
    tool, program = find_tool(image, find)
    if tool != "podman":
        return ()
    return (*_podman(program, place, find), "rm", "--force", "--ignore", "--volumes", CONTAINER_WORD)


def _podman(program: str, place: Place, find: Callable[[str], str | None]) -> tuple[str, ...]:
    """The program, with what it must be told whatever it does."""
    runc = find("runc") if is_hybrid() else None
    runtime = () if runc is None else (f"--runtime={runc}",)
    makes_groups = place.uid == 0 and not os.path.exists(UNIFIED)
    return (program, *runtime, *(("--cgroup-manager=cgroupfs",) if makes_groups else ()))


def _wrap_runc(program: str, _image: str, _argv: Sequence[str], place: Place) -> tuple[str, ...]:
    options = ("--root", BUNDLE_WORD, "--log", f"{place.job_dir}/container.log", "--rootless", "true")
    return (program, *options, "run", "--preserve-fds", "1", "--bundle", BUNDLE_WORD, place.name)


def _wrap_crun(program: str, _image: str, _argv: Sequence[str], place: Place) -> tuple[str, ...]:
    options = ("--root", BUNDLE_WORD, "--cgroup-manager=disabled")
    return (program, *options, "run", "--preserve-fds=1", "--bundle", BUNDLE_WORD, place.name)


def _wrap_podman(image: str, argv: Sequence[str], place: Place) -> tuple[str, ...]:
    volumes = [word for path in _folders(place) for word in ("--volume", f"{path}:{path}")]
    groups: tuple[str, ...] = ("--pid=host",)
    if os.path.exists(UNIFIED):
        groups = ("--cgroups=disabled",)  # which podman allows with processes of its own alone
    elif place.uid == 0:  # it makes groups in any case: then below the run's
        groups = (f"--cgroup-parent=/{place.group}", "--pid=host")
    limits = _limits() if place.uid == 0 else ()
    first, *others = _inside(argv)  # instead of an entry point of the image's, whose arguments they would be
    options = ("--rm", *groups, *limits, "--network=host", "--preserve-fds=1", "--env-host", f"--entrypoint={first}")
    name = ("--name", CONTAINER_WORD, "--replace")  # of one that a machine that died has left behind
    return ("run", *name, *options, *volumes, "--workdir", place.workdir, image, *others)


def _limits() -> tuple[str, str]:
    """Those of this process: podman would ask for more, which root may not have everywhere."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    count = PROCESSES_MAX if most == resource.RLIM_INFINITY else min(most, PROCESSES_MAX)
    return f"--ulimit=nofile={files[0]}:{files[1]}", f"--ulimit=nproc={count}:{count}"


def is_hybrid() -> bool:
    """Whether both versions of control groups have controllers here."""
    try:
        with open(HYBRID, encoding="utf-8") as file:
            return bool(file.read().strip())
    except OSError:
        return False


def _wrap_apptainer(program: str, image: str, argv: Sequence[str], place: Place) -> tuple[str, ...]:
    binds = ",".join(_folders(place))
    return (program, "exec", "--nv", "--bind", binds, "--pwd", place.workdir, image, *_inside(argv))


def _folders(place: Place) -> list[str]:
    return list(dict.fromkeys((place.workdir, place.job_dir)))


def _inside(argv: Sequence[str]) -> list[str]:
    return [SCRIPT_PATH if word == "{script}" else word for word in argv]


def make_bundle(image: str, argv: Sequence[str], environment: Mapping[str, str], place: Place) -> str:
    """config.json (OCI runtime specification 1.0) for a folder with a root filesystem; "" for other images. Raises
    ContainerError where a folder of the job cannot be shown inside."""
    if not _is_folder(image):
        return ""
    config: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": _inside(argv),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": place.workdir,
            "noNewPrivileges": True,
        },
        "root": {"path": image, "readonly": True},
        "mounts": _make_mounts(image, place),
        "linux": {
            "namespaces": [{"type": kind} for kind in NAMESPACES],
            "uidMappings": [{"containerID": 0, "hostID": place.uid, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": place.gid, "size": 1}],
        },
    }
    if place.uid == 0:  # root gets a control group from the tool in any case: then one below the run's
        config["linux"]["cgroupsPath"] = f"/{place.group}/{place.name}"
        config["linux"]["resources"] = {"devices": [{"allow": True, "access": "rwm"}]}  # what the run's lets it
    return json.dumps(config)


def _make_mounts(image: str, place: Place) -> list[dict[str, Any]]:
    mounts = [_bind(path) for path in SHARED if os.path.isdir(image + path)]
    covered: set[str] = set()
    for path in _folders(place):
        top = "/" + path.strip("/").split("/")[0]
        if not os.path.isdir(image + path) and top not in covered:
            if not os.path.isdir(image + top):
                hint = f"make the folder {top} there"
                raise ContainerError(
                    f"expected {top} in the image {image}, to show {path} in it; it is missing: {hint}"
                )
            covered.add(top)
            mounts.append({"destination": top, "type": "tmpfs", "source": "tmpfs", "options": ["mode=0755"]})
        mounts.append(_bind(path))
    return mounts


def _bind(path: str) -> dict[str, Any]:
    return {"destination": path, "type": "bind", "source": path, "options": ["rbind"]}
