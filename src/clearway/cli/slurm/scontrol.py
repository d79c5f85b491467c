"""`scontrol`: show jobs, nodes and partitions; hold, release and requeue jobs; drain and resume nodes; reconfigure."""

import pwd
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from clearway.bootstrap.places import now_ms
from clearway.cli.own_jobs import change_own, held_later, requeue_held
from clearway.cli.slurm.arguments import Given, Options, UsageError, read_options, split_list
from clearway.cli.slurm.common import DATA_FLAGS, find_all, is_job_name, wants_data, write_data
from clearway.cli.slurm.scontrol_text import UID_UNKNOWN, render_job, render_node, render_partition
from clearway.cli.slurm.values import job_name_of, render_host_list
from clearway.model.errors import InputError
from clearway.model.ids import JobId, NodeName
from clearway.ports.views import JobState, NodeView, QueueView

if TYPE_CHECKING:
    from clearway.client import Client

OPTIONS: Final = Options(
    flags=(("o", "oneliner"), ("d", "details"), ("a", "all"), ("Q", "quiet"), ("v", "verbose"), *DATA_FLAGS)
)

COUNTS: Final = ("show", "hold", "uhold", "release", "requeue", "requeuehold", "update")
"""What needs to be told of what."""
VERBS: Final = "show, hold, uhold, release, requeue, requeuehold, update, ping, reconfigure"


def run(arguments: Sequence[str]) -> int:
    """Do what the first word says."""
    given = read_options("scontrol", arguments, OPTIONS)
    if not given.operands:
        raise UsageError(f"expected a command out of {VERBS}; an interactive mode is not offered")
    verb, rest = given.operands[0].lower(), given.operands[1:]
    if verb == "show" and rest and rest[0].lower() in ("hostnames", "hostname", "hostlist", "hostlistsorted"):
        return _show_hosts(rest)
    if verb in COUNTS and len(rest) < 1:
        is_update = verb == "update"
        raise _bare("too few arguments for update keyword" if is_update else f"too few arguments for keyword:{verb}")
    from clearway.cli.connection import connect

    if verb == "ping":
        return _ping()
    with connect() as client:
        if verb == "show":
            return _show(client, rest, given)
        if verb in ("hold", "uhold", "release", "requeue", "requeuehold"):
            return _act(client, verb, rest)
        if verb == "update":
            return _update(client, rest)
        if verb == "reconfigure":
            for note in client.reload():
                sys.stdout.write(f"{note}\n")
            return 0
    raise _bare(f"invalid keyword: {given.operands[0]}\noffered are {VERBS}")


def _bare(text: str) -> UsageError:
    """Most of what scontrol says has no name before it."""
    return UsageError(text, is_bare=True)


def _ping() -> int:
    """Whether the control plane answers, in the words that scripts look for."""
    from clearway.cli.connection import connect
    from clearway.client import ApiError

    try:
        with connect() as client:
            client.health()
    except (ApiError, InputError) as error:
        sys.stdout.write("Slurmctld(primary) at clearway is DOWN\n")
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("Slurmctld(primary) at clearway is UP\n")
    return 0


def _show_hosts(words: Sequence[str]) -> int:
    from clearway.wire.ranges import expand_names

    if len(words) < 2:
        raise UsageError("expected a list of hosts such as gpu[1-3]")
    names = expand_names(words[1])
    text = render_host_list(names) if words[0].lower().startswith("hostlist") else "\n".join(names)
    sys.stdout.write(f"{text}\n")
    return 0


def _show(client: "Client", words: Sequence[str], given: Given) -> int:
    kind, _, inner = (words[0].lower() if words else "").partition("=")
    names = split_list(inner or ",".join(words[1:]))
    if kind in ("job", "jobs", "jobid"):
        return _show_jobs(client, names, given)
    cluster = client.cluster()
    rows: Sequence[NodeView | QueueView]
    if kind in ("node", "nodes"):
        from clearway.wire.ranges import expand_names

        asked = [name for part in names for name in expand_names(part)]
        rows = nodes = [node for node in cluster.nodes if not asked or node.name in asked]
        blocks = [render_node(node) for node in nodes]
        missing = [name for name in asked if name not in {node.name for node in cluster.nodes}]
    elif kind in ("partition", "partitions"):
        rows = queues = [queue for queue in cluster.queues if not names or queue.name in names]
        blocks = [render_partition(queue, cluster.nodes) for queue in queues]
        missing = [name for name in names if name not in {queue.name for queue in cluster.queues}]
    else:
        raise _bare(f"invalid entity:{kind} for keyword:show\noffered are job, node, partition, hostnames, hostlist")
    if wants_data(given):
        write_data(given, **{f"{kind.removesuffix('s')}s": rows})
    else:
        _write_blocks(blocks, is_one_line=given.has("oneliner"))
    for name in missing:
        sys.stderr.write(f"{kind.removesuffix('s').capitalize()} {name} not found\n")
    return 1 if missing else 0


def _show_jobs(client: "Client", names: Sequence[str], given: Given) -> int:
    from clearway.ports.views import JobQuery

    if any(not is_job_name(name) for name in names):
        raise _bare("scontrol_print_job error: Invalid job id specified")
    if names:
        jobs, missing = find_all(client, names)
    else:
        active = tuple(state for state in JobState if not state.is_final)
        jobs, missing = list(client.all_jobs(JobQuery(states=active))), []
    if wants_data(given):
        write_data(given, jobs=jobs)
    else:
        present = now_ms()
        blocks = [render_job(job, now_ms=present, uid=_uid_of(job.user)) for job in jobs]
        _write_blocks(blocks, is_one_line=given.has("oneliner"))
    if missing:
        sys.stderr.write("slurm_load_jobs error: Invalid job id specified\n")
    if not jobs and not missing and not wants_data(given):
        sys.stdout.write("No jobs in the system\n")
    return 1 if missing else 0


def _uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return UID_UNKNOWN


def _write_blocks(blocks: Sequence[str], *, is_one_line: bool) -> None:
    for block in blocks:
        sys.stdout.write(" ".join(block.split()) + "\n" if is_one_line else block)


def _act(client: "Client", verb: str, words: Sequence[str]) -> int:
    """Hold, release or requeue; as in Slurm, the jobs of which it is possible, and 1 where one was not among them."""
    names = [part.removeprefix("jobid=").removeprefix("JobId=") for word in words for part in split_list(word)]
    jobs, missing = find_all(client, [name for name in names if is_job_name(name)])
    missing += [name for name in names if not is_job_name(name)]
    active = [job for job in jobs if not job.state.is_final]
    actions: dict[str, Callable[[Sequence[JobId]], tuple[JobId, ...]]] = {
        "hold": client.hold,
        "uhold": client.hold,
        "release": client.release,
        "requeue": client.requeue,
        "requeuehold": requeue_held(client, active),
    }
    done, denied = change_own(client, actions[verb], active)
    for job in held_later(active, done) if verb in ("hold", "uhold") else ():
        sys.stderr.write(f"Job {job_name_of(job)} runs; it is held when it next waits\n")
    refused = [("Job has already finished", job_name_of(job)) for job in jobs if job.state.is_final]
    refused += [("Access/permission denied", job_name_of(job)) for job in denied]
    refused += [("Invalid job id specified", name) for name in missing]
    for reason, name in refused:
        sys.stderr.write(f"{reason} for job {name}\n")
    if refused and not verb.startswith("requeue"):
        sys.stderr.write(f"slurm_suspend error: {refused[-1][0]}\n")
    return 1 if refused else 0


def _update(client: "Client", words: Sequence[str]) -> int:
    """`update nodename=gpu1 state=drain reason=...` and `state=resume`. Jobs cannot be changed: said so."""
    from clearway.client.errors import NotFoundError
    from clearway.wire.ranges import expand_names

    values = {word.partition("=")[0].lower(): word.partition("=")[2] for word in words}
    if "jobid" in values or "job" in values:
        raise UsageError(
            "jobs cannot be changed after they are submitted; offered are hold, release, requeue and requeuehold. To "
            "change one, cancel it and submit it again"
        )
    names, state = values.get("nodename", ""), values.get("state", "").lower()
    if not names:
        raise _bare("No valid entity in update command\nInput line must include nodename=NAMES")
    if state not in ("drain", "resume", "undrain", "idle"):
        raise _bare(
            f"Invalid input: state={values.get('state', '')}\nRequest aborted\nValid states are: DRAIN RESUME UNDRAIN"
        )
    if state == "drain" and not values.get("reason"):
        raise _bare("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    for name in expand_names(names):
        try:
            if state == "drain":
                client.drain(NodeName(name), reason=values["reason"].strip("\"'"))
            else:
                client.undrain(NodeName(name))
        except NotFoundError as error:
            raise _bare("slurm_update error: Invalid node name specified") from error
    return 0
