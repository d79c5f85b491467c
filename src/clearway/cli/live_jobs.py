"""Commands about jobs that were submitted: see them, see why they wait, read them, and act on them."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from clearway.bootstrap.places import now_ms
from clearway.cli.connection import connect, fetch_jobs
from clearway.cli.errors import EXIT_NOT_ALLOWED
from clearway.cli.job_numbers import find_jobs, one_job, resolve_jobs
from clearway.cli.options import JsonOption
from clearway.cli.outputs import is_json_only, write_json
from clearway.cli.own_jobs import change_own, held_later, own_user, requeue_held
from clearway.cli.session import Session, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clearway.cli.own_jobs import Change
    from clearway.client import Client, Stream
    from clearway.model.ids import JobId
    from clearway.ports.views import JobQuery, JobState, JobView

ROWS_DEFAULT: Final = 1_000

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Number of a job: 12, or 123_4 of an array.")]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Numbers: 12, 123_4, 123_[1-3], or 123 for a whole array.")
]
UserOption = Annotated[list[str] | None, typer.Option("--user", "-u", metavar="NAME", help="Only of these users.")]
TenantOption = Annotated[
    list[str] | None, typer.Option("--tenant", "-A", metavar="NAME", help="Only of these tenants.")
]
QueueOption = Annotated[list[str] | None, typer.Option("--queue", "-p", metavar="NAME", help="Only of these queues.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows at most.")]


def queue(
    context: typer.Context,
    users: UserOption = None,
    tenants: TenantOption = None,
    queues: QueueOption = None,
    limit: LimitOption = ROWS_DEFAULT,
    json_target: JsonOption = None,
) -> None:
    """Jobs that have not ended."""
    from clearway.ports.views import JobQuery, JobState

    wanted = JobQuery(
        states=tuple(state for state in JobState if not state.is_final),
        users=tuple(users or ()),
        tenants=tuple(tenants or ()),
        queues=tuple(queues or ()),
        limit=min(limit, ROWS_DEFAULT),
    )
    _show_jobs(context, wanted, limit, json_target)


def jobs(
    context: typer.Context,
    users: UserOption = None,
    tenants: TenantOption = None,
    queues: QueueOption = None,
    states: Annotated[
        list[str] | None, typer.Option("--state", "-t", metavar="STATE", help="Only in these states, such as FAILED.")
    ] = None,
    names: Annotated[list[str] | None, typer.Option("--name", metavar="NAME", help="Only of this name.")] = None,
    limit: LimitOption = 50,
    json_target: JsonOption = None,
) -> None:
    """All jobs, the newest first."""
    from clearway.ports.views import JobQuery

    wanted = JobQuery(
        states=tuple(parse_state(state) for state in states or ()),
        users=tuple(users or ()),
        tenants=tuple(tenants or ()),
        queues=tuple(queues or ()),
        names=tuple(names or ()),
        newest_first=True,
        limit=min(limit, ROWS_DEFAULT),
    )
    _show_jobs(context, wanted, limit, json_target)


def parse_state(text: str) -> "JobState":
    """A state by its long or short name. Raises InputError."""
    from clearway.cli.slurm.values import STATE_CODES
    from clearway.model.errors import InputError

    asked = text.upper()
    for state, code in STATE_CODES.items():
        if asked in (state.value, code):
            return state
    known = ", ".join(f"{state.value} ({code})" for state, code in STATE_CODES.items())
    raise InputError(f"expected a state out of {known}, found {text!r}")


def _show_jobs(context: typer.Context, wanted: "JobQuery", limit: int, json_target: str | None) -> None:
    from clearway.cli.show_live import show_job_table
    from clearway.wire.api_rows import encode_rows

    session = session_of(context)
    with connect() as client:
        rows = fetch_jobs(client, wanted, limit)
    if not is_json_only(json_target):
        show_job_table(session, rows, now_ms())
    if json_target is not None:
        write_json(session, encode_rows(rows), json_target)


def show(context: typer.Context, job: JobArgument, json_target: JsonOption = None) -> None:
    """Everything about one job."""
    from clearway.cli.show_live import show_job
    from clearway.wire.api_rows import encode_row

    session = session_of(context)
    with connect() as client:
        row = one_job(client, job)
    if not is_json_only(json_target):
        show_job(session, row, now_ms())
    if json_target is not None:
        write_json(session, encode_row(row), json_target)


def report(context: typer.Context, job: JobArgument, json_target: JsonOption = None) -> None:
    """How a job fared."""
    from clearway.cli.show_report import advise, show_report
    from clearway.wire.api_rows import encode_row

    session = session_of(context)
    now = now_ms()
    with connect() as client:
        row = one_job(client, job)
    if not is_json_only(json_target):
        show_report(session, row, now)
    if json_target is not None:
        notes = [note.text.format(**note.values) for note in advise(row, now)]
        write_json(session, {**encode_row(row), "notes": notes}, json_target)


def why(context: typer.Context, job: JobArgument, json_target: JsonOption = None) -> None:
    """All the reasons why a job waits."""
    from clearway.cli.show_live import show_explanation
    from clearway.wire.api_rows import encode_row

    session = session_of(context)
    with connect() as client:
        row = one_job(client, job)
        explanation = client.why(row.id) if not row.state.is_final else None
    if not is_json_only(json_target):
        show_explanation(session, row, explanation, now_ms())
    if json_target is not None:
        write_json(session, None if explanation is None else encode_row(explanation), json_target)


def logs(
    context: typer.Context,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, until the job ends.")] = False,
    is_error: Annotated[bool, typer.Option("--error", help="What it wrote to standard error.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=0, help="The last N lines.")] = None,
    replica: Annotated[int, typer.Option("--replica", metavar="N", min=0, help="Of this replica.")] = 0,
    json_target: JsonOption = None,
) -> None:
    """What a job wrote, byte for byte; in JSON as text, in which bytes that are none are replaced."""
    kept: list[bytes] = []
    stream: Stream = "error" if is_error else "output"
    with connect() as client:
        row = one_job(client, job)
        if follow:
            parts = client.follow_log(row.id, stream, replica=replica, tail=tail)
        else:
            parts = _read_log(client, row.id, stream, replica, tail)
        for data in parts:
            if json_target is not None:
                kept.append(data)
            if not is_json_only(json_target):
                _write_bytes(data)
    if json_target is not None:
        text = b"".join(kept).decode(errors="replace")
        shown = {"job": row.id, "stream": stream, "replica": replica, "text": text}
        write_json(session_of(context), shown, json_target)


def _read_log(client: "Client", job: "JobId", stream: "Stream", replica: int, tail: int | None) -> "Iterator[bytes]":
    """All that there is now, part after part."""
    offset, is_first = 0, True
    while True:
        part = client.log(job, stream, replica=replica, offset=offset, tail=tail if is_first else None)
        yield part.data
        if part.end >= part.size or not part.data:
            return
        offset, is_first = part.end, False


def _write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def cancel(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Numbers of jobs.")] = None,
    users: UserOption = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="All of this name.")] = "",
    json_target: JsonOption = None,
) -> None:
    """Take jobs back, running or not."""
    from clearway.model.errors import InputError
    from clearway.ports.views import JobQuery, JobState

    session = session_of(context)
    if not (names or users or name):
        raise InputError("expected jobs to cancel, found none; give numbers, --user or --name")
    with connect() as client:
        found = resolve_jobs(client, names or [])
        if users or name:
            own = None if users else own_user(client)
            chosen = tuple(users or ()) if own is None else (own,)
            states = tuple(state for state in JobState if not state.is_final)
            wanted = JobQuery(states=states, users=chosen, names=(name,) if name else ())
            found.extend(job for job in client.all_jobs(wanted) if job.id not in {row.id for row in found})
        _change(session, client, client.cancel, found, "Cancelled {count} of {all} job(s)", json_target)


def hold(context: typer.Context, names: JobsArgument, json_target: JsonOption = None) -> None:
    """Keep waiting jobs from starting."""
    session = session_of(context)
    with connect() as client:
        found = resolve_jobs(client, names)
        done = _change(session, client, client.hold, found, "Held {count} of {all} job(s)", json_target)
    for job in held_later(found, done):
        session.note("Job {job} runs; it is held when it next waits", job=job.id)


def release(context: typer.Context, names: JobsArgument, json_target: JsonOption = None) -> None:
    """Let held jobs start."""
    with connect() as client:
        found = resolve_jobs(client, names)
        _change(session_of(context), client, client.release, found, "Released {count} of {all} job(s)", json_target)


def requeue(
    context: typer.Context,
    names: JobsArgument,
    is_held: Annotated[bool, typer.Option("--hold", "-H", help="Do not start it before it is released.")] = False,
    json_target: JsonOption = None,
) -> None:
    """Have running jobs leave their devices and wait again."""
    with connect() as client:
        found = resolve_jobs(client, names)
        change = requeue_held(client, found) if is_held else client.requeue
        _change(session_of(context), client, change, found, "Requeued {count} of {all} job(s)", json_target)


def _change(
    session: Session,
    client: "Client",
    change: "Change",
    jobs: "Sequence[JobView]",
    text: str,
    json_target: str | None,
) -> "tuple[JobId, ...]":
    """Do it, and say of how many; the answer is of which. Ends with EXIT_NOT_ALLOWED where some are other users'."""
    done, denied = change_own(client, change, jobs)
    if not is_json_only(json_target):
        session.screen.print(session.say(text, count=len(done), all=len(jobs)), markup=False)
    if json_target is not None:
        write_json(session, {"jobs": list(done)}, json_target)
    for job in denied:
        session.note("Job {job} is another user's; its user or an administrator may do this", job=job.id)
    if denied:
        raise typer.Exit(EXIT_NOT_ALLOWED)
    return done


def wait(context: typer.Context, names: JobsArgument, json_target: JsonOption = None) -> None:
    """Until all have ended; the exit code of the first that ended badly."""
    from clearway.cli.live_submit import POLL_S, tell_ends
    from clearway.wire.api_rows import encode_rows

    session = session_of(context)
    with connect() as client:
        numbers = [job.id for name in names for job in find_jobs(client, name)]
        rows = client.wait(numbers, poll_s=POLL_S)
    code = tell_ends(session, rows)
    if json_target is not None:
        write_json(session, encode_rows(rows), json_target)
    raise typer.Exit(code)
