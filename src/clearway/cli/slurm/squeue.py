"""`squeue`: jobs that wait or run."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from clearway.bootstrap.places import now_ms
from clearway.cli.connection import environment
from clearway.cli.slurm.arguments import Given, Options, UsageError, read_options
from clearway.cli.slurm.common import (
    DATA_FLAGS,
    find_all,
    is_job_name,
    parse_states,
    unknown_users,
    users_of,
    wants_data,
    write_data,
    write_error,
)
from clearway.cli.slurm.squeue_text import START_FORMAT, render_squeue
from clearway.ports.views import JobState, JobView

if TYPE_CHECKING:
    from clearway.client import Client

OPTIONS: Final = Options(
    flags=(
        ("h", "noheader"),
        ("l", "long"),
        ("r", "array"),
        ("a", "all"),
        ("", "me"),
        ("", "start"),
        *DATA_FLAGS,
        ("v", "verbose"),
        ("", "local"),
    ),
    values=(
        ("u", "user"),
        ("p", "partition"),
        ("t", "states"),
        ("j", "jobs"),
        ("A", "account"),
        ("n", "name"),
        ("w", "nodelist"),
        ("o", "format"),
        ("O", "Format"),
        ("S", "sort"),
        ("i", "iterate"),
    ),
)

ACTIVE: Final = tuple(state for state in JobState if not state.is_final)


def run(arguments: Sequence[str]) -> int:
    """Print the table, once or for ever."""
    from clearway.cli.connection import connect

    given = read_options("squeue", arguments, OPTIONS)
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}\ngive jobs by -j")
    with connect() as client:
        for user in unknown_users(client, given.listed("user")):
            write_error("squeue", f"Invalid user: {user}")
        code = _print_once(client, given)
        while given.has("iterate"):
            time.sleep(_seconds(given.get("iterate")))
            _print_once(client, given)
    return code


def _seconds(text: str) -> float:
    if not text.isdigit() or int(text) == 0:
        raise UsageError(f"--iterate={text}\ngive seconds, at least 1")
    return int(text)


def _print_once(client: "Client", given: Given) -> int:
    asked = given.listed("jobs")
    for name in asked:
        if not is_job_name(name):
            raise UsageError(f"Invalid job id: {name}")
    jobs, missing = fetch(client, given)
    if missing and len(asked) == 1 and "_" not in asked[0]:
        sys.stderr.write("slurm_load_jobs error: Invalid job id specified\n")
        return 1
    if wants_data(given):
        write_data(given, jobs=jobs)
        return 0
    text = render_squeue(
        jobs,
        now_ms=now_ms(),
        format_short=given.get("format")
        or (START_FORMAT if given.has("start") else environment().get("SQUEUE_FORMAT", "")),
        format_long=given.get("Format") or environment().get("SQUEUE_FORMAT2", ""),
        sort=given.get("sort") or environment().get("SQUEUE_SORT", ""),
        has_header=not given.has("noheader"),
        is_long=given.has("long"),
        are_arrays_spread=given.has("array"),
    )
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def fetch(client: "Client", given: Given) -> tuple[list[JobView], list[str]]:
    """(the jobs that were asked for, names of which there are none)."""
    from clearway.ports.views import JobQuery

    usual = (JobState.PENDING,) if given.has("start") else ACTIVE
    states = parse_states(given.listed("states"), _refuse_state) or usual
    if given.has("nodelist"):
        _check_nodes(client, given.get("nodelist"))
    if given.has("jobs"):
        found, missing = find_all(client, given.listed("jobs"))
        return [job for job in found if job.state in states and _matches(job, given)], missing
    wanted = JobQuery(
        states=states,
        users=users_of(given),
        queues=given.listed("partition"),
        tenants=given.listed("account"),
        names=given.listed("name"),
    )
    return [job for job in client.all_jobs(wanted) if _matches(job, given)], []


def _refuse_state(word: str) -> UsageError:
    known = ",".join(state.value for state in JobState)
    return UsageError(f"Invalid job state specified: {word}\nValid job states include: {known}")


def _check_nodes(client: "Client", names: str) -> None:
    from clearway.wire.ranges import expand_names

    known = {node.name for node in client.nodes()}
    for name in expand_names(names):
        if name not in known:
            raise UsageError(f"Invalid node name {name}")


def _matches(job: JobView, given: Given) -> bool:
    """What the server was not asked, or could not be."""
    users, nodes = users_of(given), given.get("nodelist")
    if nodes:
        from clearway.wire.ranges import expand_names

        if not set(expand_names(nodes)) & set(job.nodes):
            return False
    return (
        (not users or job.user in users)
        and (not given.has("partition") or job.queue in given.listed("partition"))
        and (not given.has("account") or job.tenant in given.listed("account"))
        and (not given.has("name") or job.name in given.listed("name"))
    )
