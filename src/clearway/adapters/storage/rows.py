"""Rows from values and values from rows: pure, total, and with a checksum in every row.

Journal and audit are chains: each record's checksum covers the record and the checksum before it, so that a record
that was altered, removed or put in is found. Rows of jobs and runs carry a CRC of their own: they change in place.
"""

import dataclasses
import functools
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from clearway.adapters.storage.tables import KEY_CHARS
from clearway.model.errors import InputError
from clearway.model.events import Batch, Event, JobSubmitted
from clearway.model.ids import JobId
from clearway.model.jobs import JobKind
from clearway.model.runs import RunSpec
from clearway.ports.storage import AuditLine, Changes, JournalError
from clearway.ports.views import JobState, JobView
from clearway.wire.codec import Texts, decode_event, decode_value, dump_json, encode_value

CHAIN_START: Final = "0" * 64
"""The checksum before the first record."""

INTEGER_MAX: Final = (1 << 63) - 1
"""Largest number of a column."""

BYTES_PER_CHARACTER: Final = 4
"""At most, as a text is sent: in UTF-8, or with a backslash before what is special."""

BYTES_BESIDE: Final = 65_536
"""Room for all else of a row, and of the statement that writes it."""

_ESCAPED: Final = ("\\", '"', "'", "\n", "\r", "\0", "\x1a")
"""Before these the driver of MariaDB puts a backslash."""

Row = dict[str, Any]


class Draft(NamedTuple):
    """A record that has no number yet."""

    at_ms: int
    kind: str
    payload: str


@functools.lru_cache(maxsize=10_000)
def key_text(text: str) -> str:
    """`text` for a column that is only compared: itself, or a likeness and a hash if it cannot be stored."""
    if len(text) <= KEY_CHARS and "\0" not in text and _is_encodable(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    likeness = text.encode("utf-8", "replace").decode().replace("\0", "?")
    return f"{likeness[: KEY_CHARS - len(digest) - 1]}#{digest}"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def count_bytes(text: str) -> int:
    """Of a text as it is sent."""
    return len(text.encode("utf-8", "surrogatepass")) + sum(text.count(each) for each in _ESCAPED)


# --- journal and audit ------------------------------------------------------------------------------------------------


def draft_events(events: Iterable[Event]) -> list[Draft]:
    """The events as records."""
    texts = Texts()
    return [Draft(event.at_ms, type(event).__name__, texts.event(event)) for event in events]


def draft_audit(lines: Iterable[AuditLine]) -> list[Draft]:
    """The audit lines as records."""
    return [Draft(line.at_ms, key_text(line.action)[:64], dump_json(encode_value(line))) for line in lines]


def chain_records(drafts: Iterable[Draft], seq: int, checksum: str) -> list[Row]:
    """Rows that follow the record `seq` with its `checksum`."""
    rows = []
    for draft in drafts:
        seq += 1
        checksum = make_checksum(checksum, seq, draft)
        rows.append(
            {"seq": seq, "at_ms": draft.at_ms, "kind": draft.kind, "payload": draft.payload, "checksum": checksum}
        )
    return rows


def make_checksum(before: str, seq: int, draft: Draft) -> str:
    """SHA-256 over the checksum before, the number and all of the record, in hexadecimal digits."""
    text = f"{before}\n{seq}\n{draft.at_ms}\n{draft.kind}\n{draft.payload}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_record(row: Sequence[Any], seq: int, before: str, what: str) -> str:
    """The checksum of the row (seq, at_ms, kind, payload, checksum), which must be record `seq` of the chain.

    Raises JournalError, which names the record.
    """
    found, at_ms, kind, payload, checksum = row
    if found != seq:
        raise JournalError(
            f"{what} record {seq}: expected it after record {seq - 1}, found record {found}: "
            "records are missing; restore a backup"
        )
    if not isinstance(payload, str) or make_checksum(before, seq, Draft(at_ms, kind, payload)) != checksum:
        raise JournalError(
            f"{what} record {seq}: its checksum does not fit to what it holds and to the record before: "
            "it was altered or damaged; restore a backup"
        )
    return str(checksum)


def decode_record(seq: int, payload: str) -> Event:
    """The event of a record whose checksum is right. Raises JournalError."""
    try:
        return decode_event(json.loads(payload))
    except (InputError, ValueError) as error:
        raise JournalError(f"journal record {seq}: {error}; read it with the release that wrote it") from error


def decode_audit(seq: int, payload: str) -> AuditLine:
    """The line of a record whose checksum is right. Raises JournalError."""
    try:
        return decode_value(AuditLine, json.loads(payload))
    except (InputError, ValueError) as error:
        raise JournalError(f"audit record {seq}: {error}; read it with the release that wrote it") from error


def highest_job(changes: Changes) -> int:
    """The highest number of a job that these changes submit or describe; 0 = none."""
    numbers = [0, *(view.id for view in changes.jobs), *(job for job, _ in changes.runs)]
    numbers.extend(_submitted(changes.events))
    return max(numbers)


def _submitted(events: Iterable[Event]) -> Iterable[int]:
    for event in events:
        if isinstance(event, JobSubmitted):
            yield event.job.id
        elif isinstance(event, Batch):
            yield from _submitted(event.events)


# --- jobs -------------------------------------------------------------------------------------------------------------

_STATES: Final = {state.value: state for state in JobState}
_KINDS: Final = {kind.value: kind for kind in JobKind}


def job_rows(views: Iterable[JobView]) -> list[Row]:
    """One row for each job, from its last view."""
    texts = Texts()
    return [_job_row(view, texts) for view in {view.id: view for view in views}.values()]


def _job_row(view: JobView, texts: Texts) -> Row:
    text = texts.value(view)
    return {
        "id": view.id,
        "state": view.state.value,
        "user": key_text(view.user),
        "tenant": key_text(view.tenant),
        "queue": key_text(view.queue),
        "name": key_text(view.name),
        "array_id": view.array,
        "submit_ms": view.submit_ms,
        "view": text,
        "crc": row_crc(view.id, text),
    }


def row_crc(number: int, text: str) -> int:
    """CRC-32 over the number of a row and its text."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), number & 0xFFFFFFFF)


def parse_job(number: int, text: Any, crc: Any) -> JobView:
    """The job of a row, read by hand rather than by the codec: lists of thousands of jobs must be quick.

    Raises JournalError, which names the job.
    """
    if not isinstance(text, str) or row_crc(number, text) != crc:
        raise JournalError(f"job {number}: its row was altered or damaged; restore a backup")
    try:
        data = json.loads(text)
        data["state"], data["kind"] = _STATES[data["state"]], _KINDS[data["kind"]]
        if "nodes" in data:
            data["nodes"] = tuple(data["nodes"])
        if "devices" in data:
            data["devices"] = tuple((node, tuple(indices)) for node, indices in data["devices"])
        return JobView(**data)
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"job {number}: its row was written by another release ({error!r})") from error


def row_defaults() -> Mapping[str, Any]:
    """Defaults that rows leave out, by class and field: another release with others would read other values."""
    defaults: dict[str, Any] = {}
    for cls in (JobView, RunSpec, AuditLine):
        for field in dataclasses.fields(cls):
            if field.default is not dataclasses.MISSING:
                defaults[f"{cls.__name__}.{field.name}"] = json.loads(dump_json(field.default))
    return defaults


# --- runs -------------------------------------------------------------------------------------------------------------


def run_rows(runs: Iterable[tuple[JobId, RunSpec]]) -> list[Row]:
    """One row for each row of neighbours that are run in the same way."""
    rows: list[Row] = []
    last: RunSpec | None = None
    texts = Texts()
    for job, spec in runs:
        if rows and job == rows[-1]["last_job"] + 1 and (spec is last or spec == last):
            rows[-1]["last_job"] = job
            continue
        rows.append({"first_job": job, "last_job": job, "spec": texts.value(spec)})
        last = spec
    for row in rows:
        row["crc"] = run_crc(row["first_job"], row["last_job"], row["spec"])
    return rows


def run_crc(first: int, last: int, text: str) -> int:
    """CRC-32 over all of a row."""
    return row_crc(first, f"{last} {text}")


def parse_run(first: int, last: int, text: Any, crc: Any) -> RunSpec:
    """The spec of a row. Raises JournalError, which names the job."""
    if not isinstance(text, str) or run_crc(first, last, text) != crc:
        raise JournalError(f"how job {first} is run: its row was altered or damaged; restore a backup")
    try:
        return decode_value(RunSpec, json.loads(text))
    except (InputError, ValueError) as error:
        raise JournalError(f"how job {first} is run: {error}; read it with the release that wrote it") from error
