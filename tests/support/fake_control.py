"""A control plane in memory that keeps its promises, without an engine: for tests of the server and its clients.

It gives numbers, remembers keys, refuses what a real one refuses, and tells its followers. Nothing runs unless a test
says so (`start`, `finish`).
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import Dependency, JobSpec
from clearway.model.plan import Explanation, Plan, ReasonCode, Rejection
from clearway.model.runs import RunSpec
from clearway.ports.control import NOTHING_REMOVED, PROVISIONAL_ID, Notice, Removed, Submission
from clearway.ports.snapshot import ClusterSnapshot
from clearway.ports.storage import AuditLine, JobQuery, StorageError
from clearway.ports.views import (
    ClusterView,
    DeviceState,
    DeviceView,
    JobState,
    JobView,
    NodeState,
    NodeView,
    QueueView,
    TenantView,
)

NOW_MS = 1_767_225_600_000


class FakeControl:
    """See the module. jobs, runs: what was accepted. audit: what was done, in whose name."""

    def __init__(self, *, tenants: Mapping[str, str | None], nodes: Iterable[str] = ("n1", "n2"), now_ms: int = NOW_MS):
        self.now_ms = now_ms
        self.jobs: dict[JobId, JobView] = {}
        self.specs: dict[JobId, JobSpec] = {}
        self.runs: dict[JobId, RunSpec] = {}
        self.keys: dict[tuple[str, str], tuple[JobId, ...]] = {}
        self.audit: list[AuditLine] = []
        self.problem = ""
        self.storage_error = ""
        self.kept_plans: list[tuple[int, Plan]] = []
        self.explanations: dict[JobId, Explanation] = {}
        self.reader = MemoryReader(self)
        self.queues = {name: QueueSpec(name=QueueName(name)) for name in ("production", "debug")}
        self.tenants = {
            name: TenantSpec(name=TenantName(name), parent=None if parent is None else TenantName(parent))
            for name, parent in tenants.items()
        }
        self.nodes = {
            NodeName(name): NodeView(
                name=NodeName(name),
                state=NodeState.IDLE,
                devices=tuple(DeviceView(index=at, model="h100", state=DeviceState.FREE) for at in range(4)),
            )
            for name in nodes
        }
        self._followers: list[Callable[[Notice], None]] = []
        self._seq = 0

    # --- the port -----------------------------------------------------------------------------------------------------

    @property
    def is_ready(self):
        return not self.problem

    def submit(self, submission: Submission) -> "Future[tuple[JobId, ...]]":
        return self._answer(lambda: self._submit(submission))

    def cancel(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        return self._change(jobs, actor, "job.cancel", lambda view: not view.state.is_final, JobState.CANCELLED)

    def hold(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        return self._change(jobs, actor, "job.hold", lambda view: view.state is JobState.PENDING, JobState.PENDING)

    def release(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        return self._change(jobs, actor, "job.release", lambda view: view.state is JobState.PENDING, JobState.PENDING)

    def requeue(self, jobs: tuple[JobId, ...], *, actor: str) -> "Future[tuple[JobId, ...]]":
        return self._change(jobs, actor, "job.requeue", lambda view: view.state is JobState.RUNNING, JobState.PENDING)

    def drain(self, node: NodeName, *, reason: str, actor: str) -> "Future[None]":
        return self._answer(lambda: self._set_node(node, NodeState.DRAINED, reason, actor, "node.drain"))

    def undrain(self, node: NodeName, *, actor: str) -> "Future[None]":
        return self._answer(lambda: self._set_node(node, NodeState.IDLE, "", actor, "node.undrain"))

    def set_site(
        self,
        queues: tuple[QueueSpec, ...],
        tenants: tuple[TenantSpec, ...],
        *,
        actor: str,
        removed: Removed = NOTHING_REMOVED,
    ) -> "Future[None]":
        def change() -> None:
            self.queues.update({queue.name: queue for queue in queues})
            self.tenants.update({tenant.name: tenant for tenant in tenants})
            for name in (*removed.queues, *removed.tenants):
                self.queues.pop(name, None)
                self.tenants.pop(name, None)

        return self._answer(change)

    def note(self, line: AuditLine) -> "Future[None]":
        return self._answer(lambda: self.audit.append(line))

    def explain(self, job: JobId) -> "Future[Explanation]":
        def explain() -> Explanation:
            view = self.jobs.get(job)
            if view is None or view.state.is_final:
                raise InputError(f"job {job}: expected a job that waits or runs, found none of that number")
            if job in self.explanations:
                return self.explanations[job]
            if view.state is not JobState.PENDING:
                return Explanation(job=job)
            return Explanation(job=job, reasons=(Rejection(ReasonCode.RESOURCES, "waits for 1 device"),))

        return self._answer(explain, writes=False)

    def snapshot(self) -> "Future[ClusterSnapshot]":
        return self._answer(lambda: ClusterSnapshot(at_ms=self.now_ms, nodes=()), writes=False)

    def priorities(self, jobs: Iterable[JobId]) -> Mapping[JobId, int]:
        """By number: first come, first served."""
        return {job: 1_000 - job for job in jobs if self.jobs[job].state is JobState.PENDING}

    def job(self, job: JobId) -> JobView | None:
        return self.jobs.get(job)

    def cluster(self) -> ClusterView:
        views = self.jobs.values()
        return ClusterView(
            at_ms=self.now_ms,
            seq=self._seq,
            nodes=tuple(self.nodes.values()),
            queues=tuple(
                QueueView(
                    name=queue.name,
                    priority=queue.priority,
                    pending=sum(view.queue == queue.name and view.state is JobState.PENDING for view in views),
                    running=sum(view.queue == queue.name and view.state is JobState.RUNNING for view in views),
                )
                for queue in self.queues.values()
            ),
            tenants=tuple(
                TenantView(
                    name=tenant.name,
                    parent=tenant.parent,
                    weight=tenant.weight,
                    pending=sum(view.tenant == tenant.name and view.state is JobState.PENDING for view in views),
                )
                for tenant in self.tenants.values()
            ),
            pending=sum(view.state is JobState.PENDING for view in views),
            running=sum(view.state is JobState.RUNNING for view in views),
            policy="hybrid",
            storage_error=self.storage_error,
        )

    def plans(self) -> tuple[tuple[int, Plan], ...]:
        return tuple(self.kept_plans)

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        self._followers.append(take)
        return lambda: self._followers.remove(take)

    # --- what a test makes happen -------------------------------------------------------------------------------------

    def start(self, job: JobId, *, node: str = "n1", device: int = 0) -> JobView:
        """The job runs on one device."""
        view = self._put(
            replace(
                self.jobs[job],
                state=JobState.RUNNING,
                start_ms=self.now_ms,
                generation=self.jobs[job].generation + 1,
                nodes=(NodeName(node),),
                devices=((NodeName(node), (device,)),),
            )
        )
        self._own(node, device, ((job, 1_000),))
        return view

    def finish(self, job: JobId, state: JobState = JobState.COMPLETED) -> JobView:
        """The job ends."""
        for node, devices in self.jobs[job].devices:
            for device in devices:
                self._own(node, device, ())
        return self._put(replace(self.jobs[job], state=state, end_ms=self.now_ms))

    def put(self, view: JobView) -> JobView:
        """A job that looks so, as if it had been accepted."""
        self.runs.setdefault(view.id, RunSpec(script=f"secret script of {view.tenant}"))
        return self._put(view)

    def tell(self, kind: str, tenant: str, data: Mapping[str, object]) -> Notice:
        """A notice to all followers."""
        self._seq += 1
        notice = Notice(seq=self._seq, at_ms=self.now_ms, kind=kind, tenant=tenant, data=data)
        for take in tuple(self._followers):
            take(notice)
        return notice

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _answer(self, work: Callable[[], object], *, writes: bool = True) -> "Future":
        future: Future = Future()
        try:
            if writes and self.storage_error:
                raise StorageError(self.storage_error)
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def _submit(self, submission: Submission) -> tuple[JobId, ...]:
        key = (submission.actor, submission.key)
        if submission.key and key in self.keys:
            return self.keys[key]
        for job in submission.jobs:
            if job.queue not in self.queues:
                raise InputError(f"job {job.name!r}: expected a queue of this site, found {job.queue!r}")
            if job.tenant not in self.tenants and job.tenant != "root":
                raise InputError(f"job {job.name!r}: expected a tenant of this site, found {job.tenant!r}")
        first = max(self.jobs, default=0) + 1
        numbers = tuple(JobId(first + place) for place in range(len(submission.jobs)))
        for number, spec, run in zip(numbers, submission.jobs, submission.runs, strict=True):
            real = _renumber(spec, number, first - PROVISIONAL_ID)
            self.specs[number], self.runs[number] = real, run
            self._put(_view_of(real, run, self.now_ms))
            self._note(submission.actor, "job.submit", f"job {number}")
        if submission.key:
            self.keys[key] = numbers
        return numbers

    def _change(
        self,
        jobs: tuple[JobId, ...],
        actor: str,
        action: str,
        applies: Callable[[JobView], bool],
        state: JobState,
    ) -> "Future[tuple[JobId, ...]]":
        def change() -> tuple[JobId, ...]:
            unknown = [job for job in jobs if job not in self.jobs]
            if unknown:
                raise InputError(f"expected a job, found none of number {unknown[0]}")
            changed = tuple(job for job in jobs if applies(self.jobs[job]))
            for job in changed:
                reason = {"job.hold": "JobHeldUser", "job.release": "None"}.get(action, self.jobs[job].reason)
                self._put(replace(self.jobs[job], state=state, reason=reason))
                self._note(actor, action, f"job {job}")
            return changed

        return self._answer(change)

    def _set_node(self, node: NodeName, state: NodeState, reason: str, actor: str, action: str) -> None:
        if node not in self.nodes:
            raise InputError(f"expected a node of this cluster, found {node!r}")
        self.nodes[node] = replace(self.nodes[node], state=state, reason=reason)
        self._note(actor, action, f"node {node}")
        self.tell("node", "root", {"node": node, "change": str(state), "reason": reason})

    def _own(self, node: str, device: int, owners: tuple[tuple[JobId, int], ...]) -> None:
        view = self.nodes[NodeName(node)]
        devices = tuple(
            replace(each, owners=owners, state=DeviceState.USED if owners else DeviceState.FREE)
            if each.index == device
            else each
            for each in view.devices
        )
        self.nodes[view.name] = replace(view, devices=devices)

    def _put(self, view: JobView) -> JobView:
        self.jobs[view.id] = view
        self.tell("job", view.tenant, {"id": view.id, "name": view.name, "state": view.state})
        return view

    def _note(self, actor: str, action: str, target: str) -> None:
        self.audit.append(AuditLine(at_ms=self.now_ms, actor=actor, action=action, target=target))


class MemoryReader:
    """Reads the rows of a FakeControl."""

    def __init__(self, control: FakeControl) -> None:
        self._control = control

    def find_jobs(self, query: JobQuery) -> tuple[JobView, ...]:
        after = query.after
        rows = sorted((row for row in tuple(self._control.jobs.values()) if _fits(row, query)), key=lambda row: row.id)
        if query.newest_first:
            rows = [row for row in reversed(rows) if after is None or row.id < after]
        else:
            rows = [row for row in rows if after is None or row.id > after]
        return tuple(rows[: query.limit])

    def count_jobs(self, query: JobQuery) -> Mapping[JobState, int]:
        counts: dict[JobState, int] = {}
        for row in tuple(self._control.jobs.values()):
            if _fits(row, query):
                counts[row.state] = counts.get(row.state, 0) + 1
        return counts

    def read_run(self, job: JobId) -> RunSpec | None:
        return self._control.runs.get(job)

    def read_audit(self, after: int = 0, limit: int = 1_000) -> tuple[tuple[int, AuditLine], ...]:
        return tuple(enumerate(self._control.audit, start=1))[after : after + limit]


def _fits(row: JobView, query: JobQuery) -> bool:
    return (
        (not query.ids or row.id in query.ids)
        and (not query.states or row.state in query.states)
        and (not query.users or row.user in query.users)
        and (not query.tenants or row.tenant in query.tenants)
        and (not query.queues or row.queue in query.queues)
        and (not query.names or row.name in query.names)
        and (query.array is None or row.array == query.array)
        and (query.submitted_from_ms is None or row.submit_ms >= query.submitted_from_ms)
        and (query.submitted_to_ms is None or row.submit_ms <= query.submitted_to_ms)
    )


def _renumber(spec: JobSpec, number: JobId, shift: int) -> JobSpec:
    def real(job: JobId | None) -> JobId | None:
        return JobId(job + shift) if job is not None and job >= PROVISIONAL_ID else job

    array = spec.array
    if array is not None:
        array = replace(array, array=real(array.array))
    dependencies = tuple(Dependency(kind=each.kind, job=real(each.job)) for each in spec.dependencies)
    return replace(spec, id=number, array=array, dependencies=dependencies)


def _view_of(spec: JobSpec, run: RunSpec, now_ms: int) -> JobView:
    return JobView(
        id=spec.id,
        name=spec.name,
        user=spec.user,
        tenant=spec.tenant,
        queue=spec.queue,
        kind=spec.kind,
        state=JobState.PENDING,
        priority=spec.priority,
        replicas=spec.replicas,
        device_milli=spec.request.device_milli * spec.replicas,
        cpu_milli=spec.request.cpu_milli * spec.replicas,
        memory_bytes=spec.request.memory_bytes * spec.replicas,
        submit_ms=now_ms,
        limit_ms=spec.limit_ms,
        reason="Priority",
        array=None if spec.array is None else spec.array.array,
        array_index=None if spec.array is None else spec.array.index,
        workdir=run.workdir,
        output=run.output,
        error=run.error,
    )
