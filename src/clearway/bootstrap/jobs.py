"""Job files and `#SBATCH` scripts, read as a submission would read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearway.bootstrap.documents import read_document
from clearway.model.errors import InputError
from clearway.wire.codec import encode_value
from clearway.wire.jobfile import parse_job_file
from clearway.wire.sbatch import parse_sbatch
from clearway.wire.submission import ParsedSubmission

SCRIPT_MARK = "#!"
"""A script names its interpreter in its first bytes, as sbatch demands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file and what was understood of it."""

    path: Path
    submission: ParsedSubmission


def read_job_files(paths: Sequence[Path], *, now_ms: int, user: str) -> tuple[CheckedFile, ...]:
    """Read every file, then raise one InputError with all that is wrong in any of them.

    now_ms: Unix time, for times that are relative. user: the submitter.
    """
    checked: list[CheckedFile] = []
    errors: list[str] = []
    first_id = 1
    for path in paths:
        try:
            submission = _parse(path, now_ms=now_ms, first_id=first_id, user=user)
        except InputError as error:
            errors.append(str(error))
        else:
            checked.append(CheckedFile(path=path, submission=submission))
            first_id += len(submission.jobs)
    if errors:
        raise InputError("\n".join(errors))
    return tuple(checked)


def _parse(path: Path, *, now_ms: int, first_id: int, user: str) -> ParsedSubmission:
    text = read_document(path)
    parse = parse_sbatch if text.startswith(SCRIPT_MARK) else parse_job_file
    return parse(text, source=str(path), now_ms=now_ms, first_id=first_id, user=user)


def checked_file_as_json(checked: CheckedFile) -> dict[str, Any]:
    """The jobs of a file as the kernel would get them, in the codec's words, and the notes."""
    return {
        "file": str(checked.path),
        "jobs": [encode_value(job) for job in checked.submission.jobs],
        "notes": list(checked.submission.notes),
    }
