"""What client and server say to one another under `/api/v1`: requests, answers and their bounds.

Jobs, nodes, queues and tenants are the rows of `ports.views`; here are only what goes around them. Everything is
written by `api_rows`. Times are Unix milliseconds. Light on purpose: the client's quick commands import it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from clearway.model.ids import JobId, TenantName
from clearway.ports.views import JobState, JobView

API: Final = "/api/v1"

BODY_BYTES_MAX: Final = 32 << 20
"""A request's body. A batch script may have 4 MiB and a job file 8 MiB; an environment is bounded below."""

FILES_MAX: Final = 10_000
"""Files of one submission."""

ENVIRONMENT_BYTES_MAX: Final = 2 << 20
"""Names and values of an environment; Linux takes about 2 MiB for a new process (ARG_MAX)."""

IDS_MAX: Final = 10_000
"""Jobs that one request names."""

PAGE_ROWS_MAX: Final = 10_000
"""Rows of one answer: as `ports.storage.JOBS_PER_PAGE_MAX`."""

PAGE_ROWS_DEFAULT: Final = 1_000

LOG_BYTES_MAX: Final = 4 << 20
"""Of a log, so much is sent in one answer; who wants more asks again from where it ended."""

TAIL_LINES_MAX: Final = 100_000

KEY_CHARACTERS_MAX: Final = 128

BEGIN: Final = "begin"
"""Kind of the first message of a stream of events: by its id one goes on though nothing has happened yet."""

GAP: Final = "gap"
"""Kind of an event that says that some before it are lost to who follows."""

NOT_SHOWN: Final = JobId(0)
"""Stands where another tenant's job would be named."""


class Form(StrEnum):
    """What a submitted text is. AUTO: a batch script where its first line begins with `#!`, else a job file."""

    AUTO = "auto"
    JOB_FILE = "job_file"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedFile:
    """One job file or batch script. source: its name in messages (of a script without `-J`, also the job's name).

    options: for scripts, words as they follow `sbatch` on the command line; they go before what the script says.
    args: words for the script, its `$1` and on. job: keys of a job file as JSON, instead of `text`.
    """

    text: str = ""
    source: str = "stdin"
    form: Form = Form.AUTO
    options: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    job: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """All jobs of all files are accepted, or none.

    cwd: folder of the submitter, where jobs work that name none. environment: the submitter's variables, of which each
    job inherits what it asks for. key: a second submission with the key of an accepted one gets the same answer.
    """

    files: tuple[SubmittedFile, ...]
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """jobs: numbers in order of the files, arrays member by member (the first is the array's number). firsts: for each
    job or array its number, as `sbatch` prints it. notes: how units were understood, and what was not acted upon.

    A test has no numbers: `jobs` counts from 1.
    """

    jobs: tuple[JobId, ...]
    firsts: tuple[JobId, ...] = ()
    notes: tuple[str, ...] = ()
    is_test: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Rows of jobs, and the number after which the next page begins; None = there is no more."""

    jobs: tuple[JobView, ...]
    next_after: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs there are by state; states without any are left out."""

    counts: Mapping[JobState, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIds:
    """Jobs that a request names, or on which it had an effect."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView:
    """One move of a plan. kind: `start`, `stop`, `suspend`, `resize`, `migrate`, `reserve` or `cap`.

    nodes: names, each once, in order of the replicas. beneficiary: the job for which it is done, NOT_SHOWN where that
    is another tenant's. start_ms: when what is reserved is expected to start.
    """

    kind: str
    job: JobId | None = None
    generation: int = 0
    replicas: int = 0
    nodes: tuple[str, ...] = ()
    beneficiary: JobId | None = None
    cause: str = ""
    grace_ms: int = 0
    start_ms: int | None = None
    watts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan that moved something. moves: those that the caller may see; hidden: how many more there were."""

    at_ms: int
    moves: tuple[MoveView, ...]
    hidden: int = 0
    cut_short: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """A notice of the control plane. seq rises; kind is such as `job`, `node` or `plan`."""

    seq: int
    at_ms: int
    kind: str
    tenant: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A part of a log. offset: of its first byte; size: of the whole file, so far. is_final: nothing will be added."""

    data: bytes
    offset: int
    size: int
    is_final: bool

    @property
    def end(self) -> int:
        """Offset at which to ask for what follows."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whoami:
    """Whom the server takes the caller for, and what he may do."""

    user: str
    role: str
    tenants: tuple[TenantName, ...]
    unix_user: str
    expires_ms: int | None
    permissions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A line of the audit log with its number."""

    number: int
    at_ms: int
    actor: str
    action: str
    target: str
    is_allowed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """status: `ok`, or `starting`, also while the storage takes nothing. version: of the server."""

    status: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProblem:
    """An error as RFC 9457 describes it (`application/problem+json`). detail says it all in one text, and `expected`,
    `found` and `hint` say it again in parts, where there are such."""

    title: str
    status: int
    detail: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""
    type: str = "about:blank"
