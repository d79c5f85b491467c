"""Bodies and queries of requests as a server takes them: bounded and strict, turned into the values of `api`."""

from typing import Annotated, Any, Literal

import pydantic

from clearway.model.ids import JobId
from clearway.ports.views import JobState
from clearway.wire.api import (
    ENVIRONMENT_BYTES_MAX,
    FILES_MAX,
    IDS_MAX,
    KEY_CHARACTERS_MAX,
    LOG_BYTES_MAX,
    PAGE_ROWS_DEFAULT,
    PAGE_ROWS_MAX,
    TAIL_LINES_MAX,
    Form,
    SubmitRequest,
    SubmittedFile,
)
from clearway.wire.texts import CONTROLS

JOB_ID_MAX = 1 << 53
"""Larger whole numbers do not survive in every reader of JSON."""

ONE_LINE = f"^[^{CONTROLS}]+$"
"""Text that shows as it is, and something of it."""

Path = Annotated[str, pydantic.Field(max_length=4096, pattern=r"^[^\x00]*$")]
Word = Annotated[str, pydantic.Field(max_length=128 << 10, pattern=r"^[^\x00]*$")]
VariableName = Annotated[str, pydantic.Field(min_length=1, max_length=4096, pattern=r"^[^\x00=]+$")]
Number = Annotated[int, pydantic.Field(strict=True, ge=1, le=JOB_ID_MAX)]


class Request(pydantic.BaseModel):
    """Base: unknown keys are errors."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


def _check_unicode(text: str) -> str:
    """JSON can name half of a surrogate pair, which no file, database or terminal takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"expected Unicode text, found half of a surrogate pair: {error.reason}") from error
    return text


class FileModel(Request):
    """A job file or batch script: see `api.SubmittedFile`."""

    text: Annotated[str, pydantic.AfterValidator(_check_unicode)] = ""
    source: Annotated[str, pydantic.Field(min_length=1, max_length=1024, pattern=ONE_LINE)] = "stdin"
    form: Form = Form.AUTO
    options: Annotated[tuple[Word, ...], pydantic.Field(max_length=1_000)] = ()
    args: Annotated[tuple[Word, ...], pydantic.Field(max_length=10_000)] = ()
    job: dict[str, Any] | None = None

    def to_file(self) -> SubmittedFile:
        """The value that the client wrote."""
        return SubmittedFile(
            text=self.text, source=self.source, form=self.form, options=self.options, args=self.args, job=self.job
        )


class SubmitModel(Request):
    """A submission: see `api.SubmitRequest`."""

    files: Annotated[tuple[FileModel, ...], pydantic.Field(min_length=1, max_length=FILES_MAX)]
    cwd: Path = ""
    environment: dict[VariableName, Word] = pydantic.Field(default_factory=dict)
    key: Annotated[str, pydantic.Field(max_length=KEY_CHARACTERS_MAX, pattern=r"^[!-~]*$")] = ""

    @pydantic.field_validator("environment")
    @classmethod
    def _check_environment(cls, value: dict[str, str]) -> dict[str, str]:
        size = sum(len(name) + len(text) + 2 for name, text in value.items())
        if size > ENVIRONMENT_BYTES_MAX:
            raise ValueError(f"expected an environment of at most {ENVIRONMENT_BYTES_MAX} bytes, found {size}")
        return value

    def to_request(self) -> SubmitRequest:
        """The value that the client wrote."""
        files = tuple(file.to_file() for file in self.files)
        return SubmitRequest(files=files, cwd=self.cwd, environment=self.environment, key=self.key)


class JobIdsModel(Request):
    """Jobs that a request names."""

    jobs: Annotated[tuple[Number, ...], pydantic.Field(min_length=1, max_length=IDS_MAX)]

    def to_ids(self) -> tuple[JobId, ...]:
        """Each once, in order."""
        return tuple(JobId(job) for job in dict.fromkeys(self.jobs))


class DrainModel(Request):
    """Why a node is drained."""

    reason: Annotated[str, pydantic.Field(min_length=1, max_length=1024, pattern=ONE_LINE)]


# --- queries ----------------------------------------------------------------------------------------------------------

Id = Annotated[int, pydantic.Field(ge=1, le=JOB_ID_MAX)]
Offset = Annotated[int, pydantic.Field(ge=0, le=JOB_ID_MAX)]
Filter = Annotated[str, pydantic.Field(max_length=256, pattern=r"^[^\x00]*$")]
Filters = Annotated[list[Filter], pydantic.Field(max_length=1_000)]


class JobParams(Request):
    """Which jobs, as `api.JobQuery`. fields: only these of each row; none = all."""

    id: Annotated[list[Id], pydantic.Field(max_length=IDS_MAX)] = []
    state: Annotated[list[JobState], pydantic.Field(max_length=100)] = []
    user: Filters = []
    tenant: Filters = []
    queue: Filters = []
    name: Filters = []
    array: Id | None = None
    submitted_from_ms: Offset | None = None
    submitted_to_ms: Offset | None = None
    after: Offset | None = None
    newest_first: bool = False
    limit: Annotated[int, pydantic.Field(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_DEFAULT
    fields: Annotated[list[Filter], pydantic.Field(max_length=100)] = []


class SubmitParams(Request):
    """How to take a submission. test_only: say what would be done, and do nothing."""

    test_only: bool = False


class LogParams(Request):
    """Which part of which log. tail: the last lines instead of what is at `offset`."""

    stream: Literal["output", "error"] = "output"
    replica: Annotated[int, pydantic.Field(ge=0, le=1 << 31)] = 0
    offset: Offset = 0
    tail: Annotated[int, pydantic.Field(ge=0, le=TAIL_LINES_MAX)] | None = None
    limit: Annotated[int, pydantic.Field(ge=1, le=LOG_BYTES_MAX)] = LOG_BYTES_MAX


class FollowParams(Request):
    """Which log to follow, and from where."""

    stream: Literal["output", "error"] = "output"
    replica: Annotated[int, pydantic.Field(ge=0, le=1 << 31)] = 0
    offset: Offset = 0
    tail: Annotated[int, pydantic.Field(ge=0, le=TAIL_LINES_MAX)] | None = None


class EventParams(Request):
    """Which events; none named = all kinds."""

    kind: Annotated[list[Filter], pydantic.Field(max_length=100)] = []


class AuditParams(Request):
    """Which part of the audit log: lines behind number `after`."""

    after: Offset = 0
    limit: Annotated[int, pydantic.Field(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_DEFAULT
