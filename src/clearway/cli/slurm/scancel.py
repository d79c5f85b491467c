"""`scancel`: take jobs back. As in Slurm, one that has ended or was never there is no error: what was wanted is so."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from clearway.cli.own_jobs import change_own, own_user
from clearway.cli.slurm.arguments import Given, Options, UsageError, read_options
from clearway.cli.slurm.common import find_all, is_job_name, parse_states, users_of, write_error
from clearway.cli.slurm.values import job_name_of
from clearway.ports.views import JobState, JobView

if TYPE_CHECKING:
    from clearway.client import Client

OPTIONS: Final = Options(
    flags=(("i", "interactive"), ("Q", "quiet"), ("v", "verbose"), ("", "me"), ("f", "full"), ("b", "batch")),
    values=(
        ("u", "user"),
        ("p", "partition"),
        ("t", "state"),
        ("n", "name"),
        ("", "jobname"),
        ("A", "account"),
        ("s", "signal"),
        ("w", "nodelist"),
    ),
)

FILTERS: Final = ("user", "me", "partition", "state", "name", "jobname", "account")


def run(arguments: Sequence[str]) -> int:
    """Cancel; nothing at all where a name is none of a job."""
    from clearway.cli.connection import connect

    given = read_options("scancel", arguments, OPTIONS)
    for refused in ("signal", "interactive", "nodelist", "batch", "full"):
        if given.has(refused):
            raise UsageError(f"--{refused} is not offered here; without it the job gets SIGTERM, a grace, and SIGKILL")
    if not given.operands and not any(given.has(name) for name in FILTERS):
        raise UsageError("No job identification provided")
    names = tuple(part for word in given.operands for part in (word.split() or [""]))
    for name in names:
        if not is_job_name(name):
            raise UsageError(f"Invalid job id {name}")
    with connect() as client:
        found, missing = find_all(client, names)
        wanted = [job for job in found if _matches(job, given)] if names else _filtered(client, given)
        _, denied = change_own(client, client.cancel, wanted)
    for name in missing if given.has("verbose") else ():
        write_error("scancel", f"Kill job error on job id {name}: Invalid job id specified")
    for job in denied:
        write_error("scancel", f"Kill job error on job id {job_name_of(job)}: Access/permission denied")
    return 1 if denied else 0


def _filtered(client: "Client", given: Given) -> list[JobView]:
    """Jobs that filters choose: of nobody else where no user is named and the caller may change his own only."""
    from clearway.ports.views import JobQuery

    users = users_of(given)
    if not users and (own := own_user(client)) is not None:
        users = (own,)
    states = tuple(state for state in JobState if not state.is_final)
    return [job for job in client.all_jobs(JobQuery(states=states, users=users)) if _matches(job, given)]


def _refuse_state(word: str) -> UsageError:
    text = f"Invalid job state specified: {word}\nValid job states are PENDING, RUNNING, and SUSPENDED"
    return UsageError(text, is_bare=True)


def _matches(job: JobView, given: Given) -> bool:
    states, users = parse_states(given.listed("state"), _refuse_state), users_of(given)
    names = given.listed("name") or given.listed("jobname")
    return (
        (not states or job.state in states)
        and (not users or job.user in users)
        and (not names or job.name in names)
        and (not given.has("partition") or job.queue in given.listed("partition"))
        and (not given.has("account") or job.tenant in given.listed("account"))
    )
