"""The client: one method for each route, rows of `ports.views` and `wire.api` as answers, errors of `errors`."""

import base64
import json
import os
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from clearway.client.errors import MisunderstoodError, NotFoundError, UnavailableError
from clearway.client.sse import Message, parse_messages
from clearway.client.transport import Transport
from clearway.model.errors import InputError
from clearway.model.ids import JobId, NodeName
from clearway.model.runs import RunSpec
from clearway.ports.views import ClusterView, JobQuery, JobState, JobView, NodeView, QueueView, TenantView
from clearway.wire.api import (
    API,
    BEGIN,
    GAP,
    IDS_MAX,
    LOG_BYTES_MAX,
    AuditRow,
    EventView,
    Health,
    JobCounts,
    JobIds,
    JobPage,
    LogPart,
    PlanView,
    SubmitRequest,
    Submitted,
    SubmittedFile,
    Whoami,
)
from clearway.wire.api_rows import decode_row, encode_row

if TYPE_CHECKING:
    from clearway.model.plan import Explanation
    from clearway.ports.snapshot import ClusterSnapshot

Stream = Literal["output", "error"]
RowT = TypeVar("RowT")

SILENCE_S: Final = 45.0
"""Three heartbeats of the server missed: the connection is dead."""

RETRY_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Waits before a stream that broke off is asked for again; the last is repeated."""

RESTART_TRIES: Final = 15
"""A stream that has begun is asked for again so often, for a minute: as long as a server may need to start anew. So are
jobs that somebody waits for."""

NEVER_STARTS: Final = "DependencyNeverSatisfied"
"""Reason of a job that waits for what cannot come any more."""

NO_FILTER: Final = JobQuery()


class Client:
    """Speaks with one server. Methods raise ApiError: see `errors` for what to do about each kind.

    url: such as `http://127.0.0.1:8642`. token: sent as a bearer token. timeout_s: longest wait for an answer.
    ca_file: PEM file of who vouches for the server, where the system does not know him.
    """

    def __init__(self, url: str, token: str = "", *, timeout_s: float = 30.0, ca_file: str | None = None) -> None:
        self._transport = Transport(url, token, timeout_s=timeout_s, ca_file=ca_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def submit(
        self,
        files: Sequence[SubmittedFile],
        *,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        key: str = "",
        test_only: bool = False,
    ) -> Submitted:
        """Submit all jobs of all files, or none; the answer means that they are on the server's disk.

        key: lets the same submission be sent again without doing it twice; made here when it is empty, so that a
        connection that breaks is no reason to ask what became of it. test_only: say what would be done.
        """
        key = key or os.urandom(16).hex()
        request = SubmitRequest(files=tuple(files), cwd=cwd, environment=environment or {}, key=key)
        query = {"test_only": True} if test_only else None
        data = self._post("/jobs", encode_row(request), query=query, is_repeatable=True)
        return _decode(Submitted, data)

    def jobs(self, wanted: JobQuery = NO_FILTER) -> JobPage:
        """One page of jobs."""
        return _decode(JobPage, self._get("/jobs", _job_query(wanted)))

    def all_jobs(self, wanted: JobQuery = NO_FILTER) -> Iterator[JobView]:
        """All jobs that `wanted` finds, page after page of `wanted.limit`."""
        query = _job_query(wanted)
        while True:
            page = _decode(JobPage, self._get("/jobs", query))
            yield from page.jobs
            if page.next_after is None:
                return
            query["after"] = page.next_after

    def count_jobs(self, wanted: JobQuery = NO_FILTER) -> Mapping[JobState, int]:
        """How many jobs there are by state."""
        return _decode(JobCounts, self._get("/jobs/counts", _job_query(wanted))).counts

    def job(self, job: JobId) -> JobView:
        """One job."""
        return _decode(JobView, self._get(f"/jobs/{job}"))

    def run(self, job: JobId) -> RunSpec:
        """How a job is run: its script, environment and files."""
        return _decode(RunSpec, self._get(f"/jobs/{job}/run"))

    def cancel(self, jobs: Sequence[JobId]) -> tuple[JobId, ...]:
        """Take jobs back, running or not; the answer is those that had not ended yet."""
        return self._act("cancel", jobs)

    def hold(self, jobs: Sequence[JobId]) -> tuple[JobId, ...]:
        """Waiting jobs must not start until released."""
        return self._act("hold", jobs)

    def release(self, jobs: Sequence[JobId]) -> tuple[JobId, ...]:
        """Held jobs may start again."""
        return self._act("release", jobs)

    def requeue(self, jobs: Sequence[JobId]) -> tuple[JobId, ...]:
        """Running jobs leave their devices and wait again."""
        return self._act("requeue", jobs)

    def why(self, job: JobId) -> "Explanation":
        """All the reasons why a job waits."""
        # Here and not above: the plan's module loads numpy, which no other command needs.
        from clearway.model.plan import Explanation

        return _decode(Explanation, self._get(f"/jobs/{job}/why"))

    def wait(self, jobs: Sequence[JobId], *, poll_s: float = 0.5) -> tuple[JobView, ...]:
        """Wait until all of `jobs` have ended, or can never start since what they depend on ended otherwise; their last
        rows, in order. Goes on by itself where the server is away for no longer than it needs to start anew."""
        ended: dict[JobId, JobView] = {}
        failures = 0
        while missing := tuple(job for job in dict.fromkeys(jobs) if job not in ended):
            try:
                rows = list(self.all_jobs(JobQuery(ids=missing[:IDS_MAX])))
            except UnavailableError:
                if failures >= RESTART_TRIES:
                    raise
                time.sleep(_retry_s(failures))
                failures += 1
                continue
            failures = 0
            ended.update((row.id, row) for row in rows if row.state.is_final or row.reason == NEVER_STARTS)
            if any(job not in ended for job in jobs):
                time.sleep(poll_s)
        return tuple(ended[job] for job in jobs)

    # --- logs ---------------------------------------------------------------------------------------------------------

    def log(
        self,
        job: JobId,
        stream: Stream = "output",
        *,
        replica: int = 0,
        offset: int = 0,
        tail: int | None = None,
        limit: int = LOG_BYTES_MAX,
    ) -> LogPart:
        """Part of what a job wrote: up to `limit` bytes from `offset`, or its last `tail` lines."""
        query = {"stream": stream, "replica": replica, "offset": offset, "tail": tail, "limit": limit}
        answer = self._transport.request("GET", f"{API}/jobs/{job}/logs", query=query, is_repeatable=True)
        try:
            return LogPart(
                data=answer.body,
                offset=int(answer.headers["x-log-offset"]),
                size=int(answer.headers["x-log-size"]),
                is_final=answer.headers["x-log-final"] == "true",
            )
        except (KeyError, ValueError) as error:
            raise MisunderstoodError(f"expected the place of the log in the answer's headers, found {error}") from error

    def follow_log(
        self, job: JobId, stream: Stream = "output", *, replica: int = 0, offset: int = 0, tail: int | None = None
    ) -> Iterator[bytes]:
        """What a job writes, as it writes it, until it has ended. Goes on by itself where the connection breaks."""
        query: dict[str, object] = {"stream": stream, "replica": replica, "offset": offset, "tail": tail}
        for message in self._messages(f"{API}/jobs/{job}/logs/follow", query):
            if message.kind == "end":
                return
            yield base64.b64decode(json.loads(message.data)["data"])

    # --- the cluster --------------------------------------------------------------------------------------------------

    def cluster(self) -> ClusterView:
        """Nodes, queues and tenants as they are now."""
        return _decode(ClusterView, self._get("/cluster"))

    def snapshot(self) -> "ClusterSnapshot":
        """The cluster and all jobs that have not ended, for a twin to go on from; operators alone may have it."""
        from clearway.ports.snapshot import ClusterSnapshot

        return _decode(ClusterSnapshot, self._get("/snapshot"))

    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes."""
        return _decode_list(NodeView, self._get("/nodes"))

    def node(self, node: NodeName) -> NodeView:
        """One node."""
        return _decode(NodeView, self._get(f"/nodes/{_quote(node)}"))

    def drain(self, node: NodeName, *, reason: str) -> None:
        """Nothing new starts on the node; what runs there goes on."""
        self._post(f"/nodes/{_quote(node)}/drain", {"reason": reason}, is_repeatable=True)

    def undrain(self, node: NodeName) -> None:
        """The node may be used again."""
        self._post(f"/nodes/{_quote(node)}/undrain", None, is_repeatable=True)

    def queues(self) -> tuple[QueueView, ...]:
        """All queues."""
        return _decode_list(QueueView, self._get("/queues"))

    def tenants(self) -> tuple[TenantView, ...]:
        """The tenants that the caller may see."""
        return _decode_list(TenantView, self._get("/tenants"))

    def plans(self) -> tuple[PlanView, ...]:
        """The last plans that moved anything, oldest first."""
        return _decode_list(PlanView, self._get("/plans"))

    def events(self, *, kinds: Sequence[str] = ()) -> Iterator[EventView]:
        """What changes from now on, as it changes, for ever. Goes on by itself where the connection breaks.

        An event of kind GAP says that some are lost, such as by a restart of the server: look again at what you show.
        """
        for message in self._messages(f"{API}/events", {"kind": tuple(kinds)}):
            if message.kind == GAP:
                yield EventView(seq=0, at_ms=0, kind=GAP, tenant="", data={})
            elif message.kind != BEGIN:
                yield _decode(EventView, json.loads(message.data))

    # --- the server ---------------------------------------------------------------------------------------------------

    def whoami(self) -> Whoami:
        """Whom the server takes the caller for."""
        return _decode(Whoami, self._get("/whoami"))

    def audit(self, *, after: int = 0, limit: int = 1_000) -> tuple[AuditRow, ...]:
        """Who did what, from the line behind number `after`."""
        return _decode_list(AuditRow, self._get("/audit", {"after": after, "limit": limit}))

    def reload(self) -> tuple[str, ...]:
        """Have the server read its configuration again; what it says of that."""
        return tuple(str(note) for note in self._post("/reload", None, is_repeatable=True).get("notes", ()))

    def metrics(self) -> str:
        """All metrics in Prometheus' text form."""
        return self._transport.request("GET", "/metrics", is_repeatable=True).body.decode()

    def health(self) -> Health:
        """Whether the server answers, and how it is. Needs no token."""
        return _decode(Health, self._transport.request("GET", "/health", is_repeatable=True).data)

    def is_ready(self) -> bool:
        """Whether recovery is over and submits are taken. Needs no token. Raises UnreachableError."""
        try:
            self._transport.request("GET", "/ready", is_repeatable=True)
        except UnavailableError as error:
            if error.problem is None:
                raise
            return False
        return True

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        return self._transport.request("GET", API + path, query=query, is_repeatable=True).data

    def _post(
        self, path: str, body: object, *, query: Mapping[str, object] | None = None, is_repeatable: bool = False
    ) -> Any:
        return self._transport.request("POST", API + path, query=query, body=body, is_repeatable=is_repeatable).data

    def _act(self, action: str, jobs: Sequence[JobId]) -> tuple[JobId, ...]:
        """The jobs on which an action had an effect. Sent in parts where there are many: each is all or nothing."""
        done: list[JobId] = []
        for first in range(0, len(jobs), IDS_MAX):
            data = self._post(f"/jobs/{action}", {"jobs": list(jobs[first : first + IDS_MAX])})
            done.extend(_decode(JobIds, data).jobs)
        return tuple(done)

    def _messages(self, path: str, query: Mapping[str, object], last_id: str = "") -> Iterator[Message]:
        """Messages of a stream, asked for again behind the last one that came when it breaks off."""
        failures, patience = 0, len(RETRY_S)
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
            try:
                parts = self._transport.stream(path, query=query, headers=headers, timeout_s=SILENCE_S)
                for message in parse_messages(parts):
                    failures, patience, last_id = 0, RESTART_TRIES, message.id
                    yield message
            except UnavailableError:
                if failures >= patience:
                    raise
            time.sleep(_retry_s(failures))
            failures += 1


def _retry_s(failures: int) -> float:
    """How long to wait after so many tries in vain."""
    return RETRY_S[min(failures, len(RETRY_S) - 1)]


def _job_query(wanted: JobQuery) -> dict[str, object]:
    return {
        "id": wanted.ids,
        "state": wanted.states,
        "user": wanted.users,
        "tenant": wanted.tenants,
        "queue": wanted.queues,
        "name": wanted.names,
        "array": wanted.array,
        "submitted_from_ms": wanted.submitted_from_ms,
        "submitted_to_ms": wanted.submitted_to_ms,
        "after": wanted.after,
        "newest_first": wanted.newest_first or None,
        "limit": wanted.limit,
    }


def _quote(name: str) -> str:
    if name in (".", ".."):
        raise NotFoundError(f"expected the name of a node, found {name!r}")
    return urllib.parse.quote(name, safe="")


def _decode(cls: type[RowT], data: object) -> RowT:
    try:
        return decode_row(cls, data)
    except InputError as error:
        raise MisunderstoodError(
            f"the server's answer does not fit this client: {error}; are both of one release?"
        ) from error


def _decode_list(cls: type[RowT], data: object) -> tuple[RowT, ...]:
    if not isinstance(data, list):
        raise MisunderstoodError(f"expected a list from the server, found {data!r:.80}")
    return tuple(_decode(cls, row) for row in data)
