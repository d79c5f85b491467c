"""`sacct`: jobs of the past and the present."""

import datetime
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from clearway.bootstrap.places import current_user, now_ms
from clearway.cli.connection import environment
from clearway.cli.slurm.arguments import Given, Options, UsageError, read_options
from clearway.cli.slurm.common import DATA_FLAGS, find_all, is_job_name, parse_states, wants_data, write_data
from clearway.cli.slurm.sacct_text import BRIEF_FIELDS, DEFAULT_FIELDS, LONG_FIELDS, render_field_list, render_sacct
from clearway.model.units import SECOND_MS
from clearway.ports.views import JobView

if TYPE_CHECKING:
    from clearway.client import Client

OPTIONS: Final = Options(
    flags=(
        ("n", "noheader"),
        ("p", "parsable"),
        ("P", "parsable2"),
        ("a", "allusers"),
        ("X", "allocations"),
        ("b", "brief"),
        ("l", "long"),
        ("e", "helpformat"),
        ("D", "duplicates"),
        *DATA_FLAGS,
        ("v", "verbose"),
    ),
    values=(
        ("j", "jobs"),
        ("u", "user"),
        ("A", "accounts"),
        ("r", "partition"),
        ("s", "state"),
        ("S", "starttime"),
        ("E", "endtime"),
        ("o", "format"),
        ("", "fields"),
        ("", "name"),
        ("", "delimiter"),
    ),
)


def run(arguments: Sequence[str]) -> int:
    """Print the table."""
    from clearway.cli.connection import connect

    given = read_options("sacct", arguments, OPTIONS)
    if given.operands:
        words = "\n".join(f" {word}" for word in given.operands)
        raise UsageError(f"Unknown arguments:\n{words}\ngive jobs by -j")
    if given.has("helpformat"):
        sys.stdout.write(render_field_list())
        return 0
    with connect() as client:
        jobs = _fetch(client, given)
    if wants_data(given):
        write_data(given, jobs=jobs)
        return 0
    is_parsable = given.has("parsable") or given.has("parsable2")
    text = render_sacct(
        sorted(jobs, key=lambda job: job.id),
        now_ms=now_ms(),
        fields=_fields_of(given),
        delimiter=(given.get("delimiter") or "|") if is_parsable else "",
        ends_with_delimiter=given.has("parsable"),
        has_header=not given.has("noheader"),
    )
    sys.stdout.write(text)
    return 0


def _fields_of(given: Given) -> str:
    asked = given.get("format") or given.get("fields") or environment().get("SACCT_FORMAT", "")
    default = BRIEF_FIELDS if given.has("brief") else LONG_FIELDS if given.has("long") else DEFAULT_FIELDS
    return asked or default


def _fetch(client: "Client", given: Given) -> list[JobView]:
    """Jobs asked for by number, at any time; else those since midnight, of this user unless -a or -u says otherwise."""
    from clearway.ports.views import JobQuery

    states = parse_states(given.listed("state"), _refuse_state)
    for name in given.listed("jobs"):
        if not is_job_name(name):
            raise UsageError(f"sacct: fatal: Bad job/step specified: {name}", is_bare=True)
    if given.has("jobs"):
        found, _ = find_all(client, given.listed("jobs"))
        return [job for job in found if not states or job.state in states]
    users = given.listed("user") or (() if given.has("allusers") else _own(client))
    from_ms = parse_time(given.get("starttime")) if given.has("starttime") else _midnight()
    wanted = JobQuery(
        states=states,
        users=users,
        tenants=given.listed("accounts"),
        queues=given.listed("partition"),
        names=given.listed("name"),
    )
    until_ms = parse_time(given.get("endtime")) if given.has("endtime") else None
    return [
        job
        for job in client.all_jobs(wanted)
        if (job.end_ms is None or job.end_ms >= from_ms) and (until_ms is None or job.submit_ms <= until_ms)
    ]


def _refuse_state(word: str) -> UsageError:
    return UsageError(f"sacct: fatal: unrecognized job state value '{word}'", is_bare=True)


def _own(client: "Client") -> tuple[str, ...]:
    """Operators see all, as root does in Slurm."""
    whoami = client.whoami()
    return () if whoami.role == "operator" else tuple({whoami.user, current_user()})


def _midnight() -> int:
    present = datetime.datetime.fromtimestamp(now_ms() // SECOND_MS).astimezone()
    return int(present.replace(hour=0, minute=0, second=0).timestamp()) * SECOND_MS


def parse_time(text: str) -> int:
    """`2026-01-31`, `2026-01-31T12:00[:30]`, `now`, `today`, `now-2hours`, in the machine's time. Raises UsageError."""
    from clearway.wire.moments import parse_moment
    from clearway.wire.problems import ParseError
    from clearway.wire.units import parse_duration

    word = text.strip().lower()
    zone = datetime.datetime.fromtimestamp(now_ms() // SECOND_MS).astimezone().tzinfo
    assert zone is not None
    try:
        if word == "today":
            return _midnight()
        if word.startswith("now-"):
            amount = word[4:]
            return now_ms() - parse_duration(f"{amount}s" if amount.isdigit() else amount)
        return parse_moment(text, now_ms=now_ms(), zone=zone)
    except ParseError as error:
        raise UsageError(f"Invalid time specification (pos=0): {text}\n{error}", is_bare=True) from error
