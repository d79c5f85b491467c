"""Job files on the screen: what was understood, in words that a submitter can check."""

from clearway.bootstrap.jobs import CheckedFile
from clearway.cli.figures import MISSING, render_count, render_duration, render_number
from clearway.cli.session import Session
from clearway.cli.tables import add_row, make_table, show_table
from clearway.model.jobs import JobSpec
from clearway.model.units import GIB, MILLI, SECOND_MS

JOBS_SHOWN_MAX = 20
"""Jobs of one file that are echoed: an array of thousands says the same again and again."""


def show_checked_file(session: Session, checked: CheckedFile) -> None:
    """One row per job, then the notes on how units were understood."""
    headers = ("Job", "Kind", "Replicas", "Devices each", "CPUs each", "Memory each", "Time limit", "Queue", "Tenant")
    table = make_table(session, headers)
    jobs = checked.submission.jobs
    for job in jobs[:JOBS_SHOWN_MAX]:
        add_row(table, _cells(job))
    show_table(session, str(checked.path), table)
    if len(jobs) > JOBS_SHOWN_MAX:
        session.screen.print(session.say("and {count} more jobs", count=render_count(len(jobs) - JOBS_SHOWN_MAX)))
    for note in checked.submission.notes:
        session.screen.print(f"  {note}", markup=False, soft_wrap=True)


def _cells(job: JobSpec) -> tuple[str, ...]:
    request = job.request
    name = job.name or str(job.id)
    elastic = job.elastic
    return (
        name if job.array is None else f"{name}[{job.array.index}]",
        job.kind.value,
        render_count(job.replicas) if elastic is None else f"{elastic.replicas_min}–{elastic.replicas_max}",
        f"{render_number(request.device_milli / MILLI)} {'/'.join(request.device_models)}".rstrip(),
        render_number(request.cpu_milli / MILLI) if request.cpu_milli else MISSING,
        f"{render_number(request.memory_bytes / GIB)} GiB" if request.memory_bytes else MISSING,
        MISSING if job.limit_ms is None else render_duration(job.limit_ms / SECOND_MS),
        job.queue,
        job.tenant,
    )
