"""How one job fared, in the layout of jobstats: what it was, how it used its time, and what to change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.text import Text

from clearway.cli.session import Session
from clearway.cli.show_live import render_devices, render_place
from clearway.cli.slurm.values import is_waiting, job_name_of, ran_ms, render_elapsed, render_moment, render_time_limit
from clearway.cli.tables import show_pairs
from clearway.model.units import HOUR_MS, MILLI, MINUTE_MS
from clearway.ports.views import JobState, JobView

BAR_CELLS: Final = 40
LIMIT_FACTOR: Final = 4
"""A limit this many times the run time keeps the job from holes that it would fit."""
LONG_MS: Final = 10 * MINUTE_MS
"""Shorter jobs are not worth a word about checkpoints."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence with `{fields}`, translated where it is shown."""

    text: str
    values: dict[str, object] = field(default_factory=dict)


def show_report(session: Session, job: JobView, now_ms: int) -> None:
    """Head, bars, notes."""
    last, ran, waited = ran_ms(job, now_ms), ran_in_all_ms(job, now_ms), waited_ms(job, now_ms)
    head = [
        ("Job", f"{job_name_of(job)} {job.name}"),
        ("User, tenant, queue", f"{job.user}, {job.tenant}, {job.queue}"),
        ("State", f"{job.state.value} {job.message}".strip()),
        ("Devices", f"{render_devices(job)}  {'' if is_waiting(job) else render_place(job)}".strip()),
        ("Submitted", render_moment(job.submit_ms, None)),
        ("Waited", render_elapsed(waited)),
        ("Ran for", render_elapsed(ran)),
        ("Runs", _describe_runs(session, job)),
        ("Last run", f"{render_elapsed(last)} / {render_time_limit(job.limit_ms, session.translate('no limit'))}"),
        ("Done again", render_elapsed(job.lost_ms) if job.lost_ms else ""),
        ("Device hours", f"{job.device_milli / MILLI * ran / HOUR_MS:.2f}"),
    ]
    show_pairs(session, ("", ""), [(session.translate(label), value) for label, value in head if value])
    for label, share in _bars(job, last, ran, waited):
        filled = round(BAR_CELLS * share)
        line = Text.assemble(
            f"  {session.translate(label):<22} [",
            ("|" * filled, "green"),
            " " * (BAR_CELLS - filled),
            f"{share:>5.0%}]",
        )
        session.screen.print(line, soft_wrap=True)
    notes = advise(job, now_ms)
    if notes:
        session.screen.print(Text(session.translate("Notes"), style="bold"))
    for note in notes:
        session.screen.print(f"  * {session.say(note.text, **note.values)}", markup=False, soft_wrap=True)


def _describe_runs(session: Session, job: JobView) -> str:
    """`3; preempted 1, requeued 1`; how many times it began, and why again."""
    runs = job.restarts + (job.start_ms is not None and not is_waiting(job))
    if not job.restarts:
        return ""
    counts = {"runs": runs, "preempted": job.preemptions, "requeued": job.restarts - job.preemptions}
    return session.say("{runs}; preempted {preempted}, requeued {requeued}", **counts)


def ran_in_all_ms(job: JobView, now_ms: int) -> int:
    """All its runs together."""
    is_between = is_waiting(job) or job.state is JobState.SUSPENDED
    return job.ran_before_ms + (0 if is_between else ran_ms(job, now_ms))


def waited_ms(job: JobView, now_ms: int) -> int:
    """From submission until it ended, or now, all the time in which it did not run."""
    return max(
        0,
        (now_ms if job.end_ms is None or not job.state.is_final else job.end_ms)
        - job.submit_ms
        - ran_in_all_ms(job, now_ms),
    )


def _bars(job: JobView, last: int, ran: int, waited: int) -> list[tuple[str, float]]:
    """last: run time of the last run; ran: of all."""
    bars: list[tuple[str, float]] = []
    if job.progress is not None and job.state is not JobState.COMPLETED:
        bars.append(("Progress", min(1.0, max(0.0, job.progress))))
    if job.limit_ms:
        bars.append(("Of its time limit", min(1.0, last / job.limit_ms)))
    if ran + waited:
        bars.append(("Running, not waiting", ran / (ran + waited)))
    if job.saved_ms and ran > job.lost_ms:
        bars.append(("Safe in a checkpoint", min(1.0, job.saved_ms / (ran - job.lost_ms))))
    return bars


def advise(job: JobView, now_ms: int) -> Sequence[Note]:
    """What to change next time, with the directive to write."""
    ran = ran_ms(job, now_ms)
    notes: list[Note] = []
    if job.state is JobState.TIMEOUT:
        asked = render_time_limit(2 * (job.limit_ms or MINUTE_MS))
        notes.append(
            Note("It reached its time limit: give more (--time={time}), or save checkpoints.", {"time": asked})
        )
    if job.state is JobState.OUT_OF_MEMORY:
        notes.append(
            Note(
                "It ran out of memory: ask for more than --mem={memory}M.",
                {"memory": (job.memory_bytes // job.replicas) >> 20},
            )
        )
    if job.state is JobState.FAILED:
        values: dict[str, object] = {"job": job_name_of(job)}
        notes.append(Note("It failed by itself; its last words: clearway logs --tail 20 {job}", values))
    if job.state is JobState.COMPLETED and job.limit_ms and ran and job.limit_ms > LIMIT_FACTOR * ran + MINUTE_MS:
        asked = render_time_limit(2 * ran)
        notes.append(
            Note("It used little of its time limit: with --time={time} it fits into more holes.", {"time": asked})
        )
    if job.preemptions and not job.saved_ms:
        notes.append(
            Note("It was preempted and began anew each time: save checkpoints (docs/guides/researcher.md).", {})
        )
    elif job.lost_ms > LONG_MS:
        again = render_elapsed(job.lost_ms)
        notes.append(Note("{time} of its work was done again: save checkpoints more often.", {"time": again}))
    elif ran > LONG_MS and not job.saved_ms and job.kind.value in ("train", "finetune"):
        notes.append(Note("It saved no checkpoint: whatever ends it costs all its work.", {}))
    return notes
