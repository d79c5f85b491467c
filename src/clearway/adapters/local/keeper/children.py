"""Which processes a launch asks for, and what each needs."""

import os

from clearway.adapters.local.keeper import processes
from clearway.adapters.local.keeper.cgroups import Group
from clearway.adapters.local.keeper.daemon import CLIENT_ENVIRONMENT, name_container, put_names
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.keeper.spawn import PLACE_WORD, SHELLS, Child


def setup_ranks(launch: Launch) -> list[int]:
    """The first replica of each node."""
    first: dict[str, int] = {}
    for index, replica in enumerate(launch.replicas):
        first.setdefault(replica.node, index)
    return list(first.values())


def truncates(launch: Launch, index: int, *, is_setup: bool) -> bool:
    """Whether this replica is the first to open its output files, and they begin anew."""
    if launch.append or (launch.setup and not is_setup):
        return False
    return not any(launch.replicas[index].stdout in (other.stdout, other.stderr) for other in launch.replicas[:index])


def make_child(
    launch: Launch, index: int, group: Group, script: int, gate: int, *, is_setup: bool, files_max: int
) -> Child:
    """One replica, or its setup step. script, gate: see Child."""
    replica = launch.replicas[index]
    shell = next((path for path in SHELLS if os.path.exists(path)), SHELLS[-1])
    environment = {**launch.environment, **replica.environment, processes.MARK: group.mark}
    bundle = "" if is_setup else replica.bundle
    is_client = bool(launch.docker) and not is_setup
    argv = launch.argv if is_client else put_names(launch.argv, (name_container(group, replica.rank),))
    return Child(
        argv=(shell, "{script}") if is_setup else argv,
        environment=CLIENT_ENVIRONMENT if is_client else environment,
        script=script,
        workdir=launch.workdir,
        job_dir=launch.job_dir,
        bundle=bundle.replace(PLACE_WORD, group.line_below, 1) if is_client else bundle,
        stdin=replica.stdin,
        stdout=replica.stdout,
        stderr=replica.stderr,
        truncates=truncates(launch, index, is_setup=is_setup),
        gate=-1 if index == 0 else gate,
        uid=launch.uid,
        gid=launch.gid,
        groups=launch.groups,
        group=group.birthplace,
        entry_files=group.entry_files,
        files_max=files_max,
        container=name_container(group, replica.rank) if is_client else "",
        parent=group.path,
        mounts=launch.docker_mounts if is_client else (),
    )
