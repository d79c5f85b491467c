"""What must happen before a job may be considered at all: other jobs, its array's limit, a time, a release.

Bounds: the outcomes of the last OUTCOMES_MAX ended jobs are remembered; a dependency on an older one counts as never
to be satisfied, as Slurm does with jobs that it has purged. Of the last SINCE_MAX of them it is also known when they
started; a delay after an older one counts as over.
"""

from collections import Counter, OrderedDict
from typing import Final

from clearway.engine.arrays import ArraySlots
from clearway.model.ids import JobId
from clearway.model.jobs import ArrayMember, Dependency, DependencyKind, JobSpec, Outcome
from clearway.model.plan import ReasonCode

OUTCOMES_MAX: Final = 1 << 20
"""A million ended jobs: months of a large site, about 100 MB at the very most."""

NEEDS_START: Final = (DependencyKind.AFTER_OK, DependencyKind.AFTER_CORRESPONDING)
"""Kinds that can never be satisfied where the other job can never start. The others are, once it is cancelled."""

SINCE_MAX: Final = 1 << 16
"""Ended jobs whose start is remembered: delays are minutes or hours, in which no site ends so many."""


def is_satisfied(kind: DependencyKind, outcome: Outcome) -> bool:
    """Whether a dependency of this kind is satisfied by a job that ended so."""
    if kind in (DependencyKind.AFTER, DependencyKind.AFTER_ANY):
        return True
    return (outcome is Outcome.COMPLETED) != (kind is DependencyKind.AFTER_NOT_OK)


class Dependencies:
    """Who waits for whom. Pure bookkeeping: it is told what happened and answers who is blocked."""

    def __init__(self) -> None:
        self.outcomes: OrderedDict[JobId, Outcome] = OrderedDict()
        self._started: dict[JobId, int] = {}
        self._since: OrderedDict[JobId, int] = OrderedDict()
        self._waiting_for: dict[JobId, list[JobId]] = {}
        self._rivals: dict[JobId, list[JobId]] = {}
        self._singletons: dict[tuple[str, str], list[JobId]] = {}
        self._active: dict[JobId, JobSpec] = {}
        # How many of the active jobs have each user and name; None = nobody asked yet: counting costs each job's start.
        self._active_by_name: Counter[tuple[str, str]] | None = None
        self._early: dict[tuple[JobId, int], list[JobId]] = {}
        self._members: dict[JobId, dict[int, JobId]] = {}
        # Jobs that have not ended and can never start, and what those are that have dependencies.
        self._never: set[JobId] = set()
        self._dependents: dict[JobId, JobSpec] = {}
        self.arrays = ArraySlots()

    def targets(self, spec: JobSpec, dependency: Dependency) -> tuple[JobId, ...]:
        """The jobs that a dependency means: all tasks of an array that is named by its number, one where its index is
        given, the task of the same index for `aftercorr`. For a task of that array its number is one job alone. Empty
        where the array is not known, or has no such task."""
        assert dependency.job is not None
        members = self._members.get(dependency.job)
        if dependency.task is not None:
            task = (members or {}).get(dependency.task)
            return () if task is None else (task,)
        if members is None or (spec.array is not None and spec.array.array == dependency.job):
            return (dependency.job,)
        if dependency.kind is DependencyKind.AFTER_CORRESPONDING and spec.array is not None:
            corresponding = members.get(spec.array.index)
            if corresponding is not None:
                return (corresponding,)
        return tuple(members.values())

    def has_task(self, array: JobId, index: int) -> bool:
        """Whether the array is known, and has a task of this index."""
        return index in self._members.get(array, ())

    def add(self, spec: JobSpec, rivals: list[JobId]) -> None:
        """A job was accepted. rivals: for a singleton, the earlier jobs of its user and name that have not ended."""
        if spec.array is not None:
            self._members.setdefault(spec.array.array, {})[spec.array.index] = spec.id
            self._note_early(spec.id, spec.array)
        if spec.dependencies:
            self._dependents[spec.id] = spec
        for dependency in spec.dependencies:
            if dependency.job is not None:
                targets = self.targets(spec, dependency)
                for target in targets:
                    self._waiting_for.setdefault(target, []).append(spec.id)
                if not targets and dependency.task is not None:
                    self._early.setdefault((dependency.job, dependency.task), []).append(spec.id)
            else:
                self._singletons.setdefault((spec.user, spec.name), []).append(spec.id)
        if rivals:
            self._rivals[spec.id] = list(rivals)
            for rival in rivals:
                self._waiting_for.setdefault(rival, []).append(spec.id)

    def _note_early(self, job: JobId, member: ArrayMember) -> None:
        """A task is accepted: jobs that came before it may wait for it, or for its array, by number."""
        early = self._early.pop((member.array, member.index), [])
        if job != member.array:
            early = [*early, *self._waiting_for.get(member.array, ())]
        if early:
            self._waiting_for.setdefault(job, []).extend(early)

    def reason(self, spec: JobSpec, now_ms: int) -> ReasonCode | None:
        """Why the job may not be considered now (holds are the caller's matter), None if it may."""
        codes = [self.dependency_reason(spec, dependency, now_ms) for dependency in spec.dependencies]
        if spec.depends_on_any and None in codes:
            codes = []
        elif spec.depends_on_any and ReasonCode.DEPENDENCY in codes:
            return ReasonCode.DEPENDENCY
        for code in codes:
            if code is not None:
                return code
        if spec.not_before_ms is not None and now_ms < spec.not_before_ms:
            return ReasonCode.BEGIN_TIME
        return ReasonCode.ARRAY_LIMIT if self.arrays.is_full_for(spec) else None

    def due_ms(self, spec: JobSpec, now_ms: int) -> int | None:
        """When the first delay after a job that has started is over; None where none is running."""
        times = [
            since + dependency.delay_ms
            for dependency in spec.dependencies
            if dependency.delay_ms
            for job in self.targets(spec, dependency)
            if (since := self.since_ms(job)) is not None
        ]
        return min((time for time in times if time > now_ms), default=None)

    def since_ms(self, job: JobId) -> int | None:
        """When the job started, or ended without a start; None where it did neither, or ended long ago."""
        return self._started.get(job, self._since.get(job))

    def dependency_reason(self, spec: JobSpec, dependency: Dependency, now_ms: int) -> ReasonCode | None:
        """Why one dependency of a job is not satisfied, None if it is."""
        if dependency.job is None:
            name = spec.user, spec.name
            others = self._count_active()[name] - (spec.id in self._active)
            return ReasonCode.DEPENDENCY if others or self._rivals.get(spec.id) else None
        targets = self.targets(spec, dependency)
        if not targets:
            return ReasonCode.DEPENDENCY
        codes = [self._target_reason(dependency, job, now_ms) for job in targets]
        if dependency.kind is DependencyKind.AFTER_NOT_OK and None in codes:  # all must have ended, one of them badly
            return ReasonCode.DEPENDENCY if ReasonCode.DEPENDENCY in codes else None
        if ReasonCode.DEPENDENCY_NEVER in codes and dependency.kind is not DependencyKind.AFTER_NOT_OK:
            return ReasonCode.DEPENDENCY_NEVER
        return next((code for code in (ReasonCode.DEPENDENCY, ReasonCode.DEPENDENCY_NEVER) if code in codes), None)

    def can_never_start(self, job: JobId) -> bool:
        """Whether a job that has not ended waits for what can never come."""
        return job in self._never

    def note_reason(self, spec: JobSpec, reason: ReasonCode | None, now_ms: int) -> tuple[JobId, ...]:
        """The job waits (`reason` None) or is blocked; returns those that this concerns: who may have its slot in its
        array, and who can never start since it never does, however far behind it."""
        again = self.arrays.note(spec, reason)
        if reason is ReasonCode.DEPENDENCY_NEVER and spec.id not in self._never:
            return (*again, *self._pass_on(spec.id, now_ms))
        if reason is None or reason is ReasonCode.DEPENDENCY:
            self._never.discard(spec.id)
        return again

    def _pass_on(self, job: JobId, now_ms: int) -> list[JobId]:
        """A job can never start; returns those behind it for which the same holds now, the nearest first. Each is asked
        once for all those of one distance."""
        self._never.add(job)
        found: list[JobId] = []
        latest = [job]
        while latest:
            waiting = dict.fromkeys(waiter for known in latest for waiter in self._waiting_for.get(known, ()))
            latest = [waiter for waiter in waiting if waiter not in self._never and self._is_lost(waiter, now_ms)]
            self._never.update(latest)
            found += latest
        return found

    def _is_lost(self, job: JobId, now_ms: int) -> bool:
        spec = self._dependents.get(job)
        if spec is None or all(dependency.kind not in NEEDS_START for dependency in spec.dependencies):
            return False
        return self.reason(spec, now_ms) is ReasonCode.DEPENDENCY_NEVER

    def _target_reason(self, dependency: Dependency, job: JobId, now_ms: int) -> ReasonCode | None:
        outcome = self.outcomes.get(job)
        if outcome is not None and not is_satisfied(dependency.kind, outcome):
            return ReasonCode.DEPENDENCY_NEVER
        if job in self._never and dependency.kind in NEEDS_START:
            return ReasonCode.DEPENDENCY_NEVER
        is_over = outcome is not None or (dependency.kind is DependencyKind.AFTER and job in self._started)
        since_ms = self.since_ms(job) if dependency.delay_ms else None
        if since_ms is not None and now_ms < since_ms + dependency.delay_ms:
            return ReasonCode.DEPENDENCY
        return None if is_over else ReasonCode.DEPENDENCY

    def note_start(self, spec: JobSpec, now_ms: int) -> tuple[JobId, ...]:
        """A job got devices; returns the jobs worth looking at again: those that waited for its start, and singletons
        of its name, which now must wait."""
        job = spec.id
        self._started.setdefault(job, now_ms)
        if self._active_by_name is not None and job not in self._active:
            self._active_by_name[spec.user, spec.name] += 1
        self._active[job] = spec
        if not self._waiting_for and not self._singletons:
            return ()
        return (*self._waiting_for.get(job, ()), *self._singletons.get((spec.user, spec.name), ()))

    def note_stop(self, spec: JobSpec, *, suspended: bool) -> tuple[JobId, ...]:
        """A job lost its devices and waits again; returns the jobs worth looking at again. A suspended job still counts
        as one of its name."""
        return () if suspended else self._deactivate(spec)

    def _count_active(self) -> Counter[tuple[str, str]]:
        """How many of the jobs that hold devices, or lie suspended, have each user and name."""
        if self._active_by_name is None:
            self._active_by_name = Counter((spec.user, spec.name) for spec in self._active.values())
        return self._active_by_name

    def _deactivate(self, spec: JobSpec) -> tuple[JobId, ...]:
        if self._active.pop(spec.id, None) is None:
            return ()
        name = spec.user, spec.name
        if self._active_by_name is not None:
            self._active_by_name[name] -= 1
            if not self._active_by_name[name]:
                del self._active_by_name[name]
        return tuple(self._singletons[name]) if name in self._singletons else ()

    def note_end(self, spec: JobSpec, outcome: Outcome, now_ms: int) -> tuple[JobId, ...]:
        """A job ended; returns the jobs worth looking at again, in order."""
        if spec.dependencies:
            self._never.discard(spec.id)
            self._dependents.pop(spec.id, None)
        self.outcomes[spec.id] = outcome
        if len(self.outcomes) > OUTCOMES_MAX:
            oldest, _ = self.outcomes.popitem(last=False)
            self._members.pop(oldest, None)
            self._waiting_for.pop(oldest, None)  # of jobs that came after its end
        self._since[spec.id] = self._started.pop(spec.id, now_ms)
        if len(self._since) > SINCE_MAX:
            self._since.popitem(last=False)
        if not (self._waiting_for or self._singletons or self._rivals) and spec.array is None:
            if self._active_by_name is None:
                self._active.pop(spec.id, None)
            else:
                self._deactivate(spec)
            return ()
        singles = self._singletons.get((spec.user, spec.name))
        if singles and spec.id in singles:
            singles.remove(spec.id)
        waiting = self._waiting_for.pop(spec.id, [])
        self._rivals.pop(spec.id, None)
        for waiter in waiting:
            if spec.id in self._rivals.get(waiter, ()):
                self._rivals[waiter].remove(spec.id)
        return (*waiting, *self.arrays.end(spec), *self._deactivate(spec))

    @property
    def is_heeded(self) -> bool:
        """Whether somebody waits for another job, or names of jobs that run are counted."""
        return bool(self._waiting_for or self._singletons or self._rivals or self._early or self._active_by_name)

    def note_plain_start(self, spec: JobSpec, now_ms: int) -> None:
        """`note_start` where nobody heeds it."""
        self._started[spec.id] = now_ms
        self._active[spec.id] = spec

    def note_plain_end(self, job: JobId, outcome: Outcome, start_ms: int) -> None:
        """`note_end` of a job that started once, where nobody heeds it."""
        self.outcomes[job] = outcome
        if len(self.outcomes) > OUTCOMES_MAX:
            self.outcomes.popitem(last=False)
        self._since[job] = start_ms
        if len(self._since) > SINCE_MAX:
            self._since.popitem(last=False)
        self._started.pop(job, None)
        self._active.pop(job, None)

    @property
    def heeds_starts(self) -> bool:
        """Whether somebody may wait for a start, or have to wait because of one."""
        return bool(self._waiting_for or self._singletons)

    @property
    def has_singletons(self) -> bool:
        """Whether a job was ever accepted of whose name only one may run."""
        return bool(self._singletons)

    def conflicts(self, specs: list[JobSpec]) -> set[JobId]:
        """Singletons among jobs that are to start together that come after another of their name."""
        seen: set[tuple[str, str]] = set()
        found: set[JobId] = set()
        for spec in specs:
            name = spec.user, spec.name
            if name in seen and spec.id in self._singletons.get(name, ()):
                found.add(spec.id)
            seen.add(name)
        return found
