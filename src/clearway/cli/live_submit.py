"""`clearway submit`: job files, batch scripts, or one command typed after `--`."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from clearway.cli.connection import connect, submitted_environment
from clearway.cli.options import JsonOption
from clearway.cli.outputs import is_json_only, write_json
from clearway.cli.session import Session, session_of
from clearway.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clearway.client import Client
    from clearway.ports.views import JobView
    from clearway.wire.api import Submitted, SubmittedFile

EXIT_JOB_FAILED: Final = 1
"""With `--wait`, where a job ended badly without an exit code of its own."""
SIGNAL_BASE: Final = 128
STANDARD_INPUT: Final = "-"
POLL_S: Final = 0.2


def submit(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE... | -- COMMAND...", help="YAML, JSON or #SBATCH; - reads standard input."),
    ] = None,
    name: Annotated[str, typer.Option("--name", "-J", metavar="NAME", help="Name of the job.")] = "",
    gpus: Annotated[str, typer.Option("--gpus", "-G", metavar="N|MODEL:N|0.5", help="Devices of each replica.")] = "",
    replicas: Annotated[int | None, typer.Option("--replicas", "-N", min=1, help="Members of the gang.")] = None,
    cpus: Annotated[str, typer.Option("--cpus", "-c", metavar="N", help="CPUs of each replica.")] = "",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of each replica, such as 4GB.")] = "",
    time_limit: Annotated[str, typer.Option("--time", "-t", metavar="TIME", help="Limit, such as 2h or 1:30:00.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-p", metavar="NAME", help="Where to wait.")] = "",
    tenant: Annotated[str, typer.Option("--tenant", "-A", metavar="NAME", help="On whose account.")] = "",
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="train, task, service, ...")] = "",
    priority: Annotated[int | None, typer.Option("--priority", help="Higher first, within the queue.")] = None,
    array: Annotated[str, typer.Option("--array", "-a", metavar="RANGE", help="Many alike, such as 0-9%2.")] = "",
    workdir: Annotated[str, typer.Option("--workdir", "-D", metavar="DIR", help="Where it runs; else here.")] = "",
    output: Annotated[str, typer.Option("--output", "-o", metavar="PATTERN", help="File of its output.")] = "",
    is_held: Annotated[bool, typer.Option("--hold", "-H", help="Do not start it before it is released.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-W", help="Until all have ended; exit code of the worst.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the output while it runs; waits too.")] = False,
    test_only: Annotated[bool, typer.Option("--test-only", help="Say what would be submitted.")] = False,
    key: Annotated[str, typer.Option("--key", metavar="TEXT", help="The same key twice submits once.")] = "",
    json_target: JsonOption = None,
) -> None:
    """Submit all or nothing."""
    from clearway.client.errors import TimedOutError

    session = session_of(context)
    options = {
        "name": name,
        "replicas": replicas,
        "time_limit": time_limit,
        "queue": queue,
        "tenant": tenant,
        "kind": kind,
        "priority": priority,
        "array": array,
        "workdir": workdir,
        "output": output,
        "hold": is_held or None,
        "resources": _drop_empty({**_read_gpus(gpus), "cpus": cpus, "memory": memory}),
    }
    submitted_files = read_submission(files or [], _drop_empty(options), has_command=_has_command(sys.argv))
    with connect() as client:
        try:
            answer = client.submit(
                submitted_files, cwd=str(Path.cwd()), environment=submitted_environment(), key=key, test_only=test_only
            )
        except TimedOutError as error:
            raise TimedOutError(
                f"{error}\nit may have been accepted all the same: `clearway jobs` shows it as soon as there are "
                "answers. With --key, the same can be sent again and is submitted once"
            ) from error
        for note in answer.notes:
            session.note("{note}", note=note)
        _tell_submitted(session, answer, json_target)
        if (wait or follow) and not answer.is_test:
            raise typer.Exit(wait_for(session, client, list(answer.jobs), follow=follow))


def _read_gpus(text: str) -> dict[str, str]:
    """`2` and `V100:2` are devices, `0.5` and `50%` a share of one."""
    is_share = re.fullmatch(r"0?\.[0-9]+|[0-9.]+%", text) is not None
    return {"gpu_fraction" if is_share else "gpus": text}


def _has_command(arguments: list[str]) -> bool:
    """Whether `--` stands on the command line: what follows is a command, not the name of a file."""
    return "--" in arguments


def read_submission(words: list[str], options: dict[str, Any], *, has_command: bool) -> "list[SubmittedFile]":
    """What to send. Options describe a command; a file describes itself. Raises InputError."""
    from clearway.wire.api import SubmittedFile

    if not words:
        raise InputError("expected a job file, a script or `-- COMMAND`, found nothing; see `clearway submit --help`")
    if has_command:
        options.setdefault("name", Path(words[0]).name)
        return [SubmittedFile(source="command line", job={**options, "command": words})]
    if options:
        given = ", ".join(options)
        raise InputError(
            f"expected a command after `--` with these options, found files: {given}; write them into the file, or "
            "use `clearway sbatch` for scripts"
        )
    return [SubmittedFile(text=_read_file(word), source=_source_of(word)) for word in words]


def _read_file(word: str) -> str:
    from clearway.bootstrap.documents import read_document

    return sys.stdin.read() if word == STANDARD_INPUT else read_document(Path(word))


def _source_of(word: str) -> str:
    return "standard input" if word == STANDARD_INPUT else word


def _drop_empty(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in ("", None, {})}


def _tell_submitted(session: Session, answer: "Submitted", json_target: str | None) -> None:
    """On standard output; where that takes nothing, on standard error: the jobs are there all the same."""
    firsts = answer.firsts or answer.jobs
    text = "Would submit {count} job(s)" if answer.is_test else "Submitted job {numbers}"
    said = session.say(text, count=len(firsts), numbers=", ".join(map(str, firsts)))
    try:
        if not is_json_only(json_target):
            session.screen.print(said, markup=False, soft_wrap=True)
        if json_target is not None:
            write_json(session, {"jobs": list(answer.jobs), "firsts": list(answer.firsts)}, json_target)
    except OSError:
        session.notes.print(said, markup=False, soft_wrap=True)
        raise


def wait_for(session: Session, client: "Client", jobs: list[Any], *, follow: bool) -> int:
    """Until all have ended; the exit code of the first that ended badly. follow: show the first job's output."""
    if follow:
        try:
            for part in client.follow_log(jobs[0]):
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
        except (OSError, KeyboardInterrupt):
            text = "Job {job} goes on; `clearway logs -f {job}` shows what it writes, `clearway cancel {job}` ends it"
            session.note(text, job=jobs[0])
            raise
    return tell_ends(session, client.wait(jobs, poll_s=POLL_S))


def tell_ends(session: Session, jobs: "Sequence[JobView]") -> int:
    """Say how the first of them ended that ended badly; the exit code for that."""
    for job in jobs:
        if not job.state.is_final:
            text = "Job {job} will never start: {reason}; clearway cancel {job} removes it"
            session.note(text, job=job.id, reason=job.reason)
            return EXIT_JOB_FAILED
        if job.state.value != "COMPLETED":
            said = job.message or job.reason
            text = "Job {job} ended as {state}" if said == "None" else "Job {job} ended as {state}: {message}"
            session.note(text, job=job.id, state=job.state.value, message=said)
            return exit_code_of(job)
    return 0


def exit_code_of(job: "JobView") -> int:
    """As a shell would have it: the job's own code, 128 and the signal, or 1 where it has neither."""
    return job.exit_code or (SIGNAL_BASE + job.signal if job.signal else EXIT_JOB_FAILED)
