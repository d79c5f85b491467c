"""What must happen before a job may be considered at all: other jobs, its array's limit, a time, a release.

Bounds: the outcomes of the last OUTCOMES_MAX ended jobs are remembered; a dependency on an older one counts as never
to be satisfied, as Slurm does with jobs that it has purged.
"""

from collections import Counter, OrderedDict
from typing import Final

from clearway.engine.arrays import ArraySlots
from clearway.model.ids import JobId
from clearway.model.jobs import Dependency, DependencyKind, JobSpec, Outcome
from clearway.model.plan import ReasonCode

OUTCOMES_MAX: Final = 1 << 20
"""A million ended jobs: months of a large site, about 100 MB at the very most."""


def is_satisfied(kind: DependencyKind, outcome: Outcome) -> bool:
    """Whether a dependency of this kind is satisfied by a job that ended so."""
    if kind in (DependencyKind.AFTER, DependencyKind.AFTER_ANY):
        return True
    return (outcome is Outcome.COMPLETED) != (kind is DependencyKind.AFTER_NOT_OK)


class Dependencies:
    """Who waits for whom. Pure bookkeeping: it is told what happened and answers who is blocked."""

    def __init__(self) -> None:
        self.outcomes: OrderedDict[JobId, Outcome] = OrderedDict()
        self._started: set[JobId] = set()
        self._waiting_for: dict[JobId, list[JobId]] = {}
        self._rivals: dict[JobId, list[JobId]] = {}
        self._singletons: dict[tuple[str, str], list[JobId]] = {}
        self._active: dict[JobId, tuple[str, str]] = {}
        self._active_by_name: Counter[tuple[str, str]] = Counter()
        self.arrays = ArraySlots()

    def add(self, spec: JobSpec, rivals: list[JobId]) -> None:
        """A job was accepted. rivals: for a singleton, the earlier jobs of its user and name that have not ended."""
        for dependency in spec.dependencies:
            if dependency.job is not None:
                self._waiting_for.setdefault(dependency.job, []).append(spec.id)
            else:
                self._singletons.setdefault((spec.user, spec.name), []).append(spec.id)
        if rivals:
            self._rivals[spec.id] = list(rivals)
            for rival in rivals:
                self._waiting_for.setdefault(rival, []).append(spec.id)

    def reason(self, spec: JobSpec, now_ms: int) -> ReasonCode | None:
        """Why the job may not be considered now (holds are the caller's matter), None if it may."""
        for dependency in spec.dependencies:
            code = self._dependency_reason(spec, dependency)
            if code is not None:
                return code
        if spec.not_before_ms is not None and now_ms < spec.not_before_ms:
            return ReasonCode.BEGIN_TIME
        return ReasonCode.ARRAY_LIMIT if self.arrays.is_full_for(spec) else None

    def _dependency_reason(self, spec: JobSpec, dependency: Dependency) -> ReasonCode | None:
        if dependency.job is None:
            name = spec.user, spec.name
            others = self._active_by_name[name] - (spec.id in self._active)
            return ReasonCode.DEPENDENCY if others or self._rivals.get(spec.id) else None
        outcome = self.outcomes.get(dependency.job)
        if outcome is not None:
            return None if is_satisfied(dependency.kind, outcome) else ReasonCode.DEPENDENCY_NEVER
        if dependency.kind is DependencyKind.AFTER and dependency.job in self._started:
            return None
        return ReasonCode.DEPENDENCY

    def note_start(self, spec: JobSpec) -> tuple[JobId, ...]:
        """A job got devices; returns the jobs worth looking at again: those that waited for its start, and singletons
        of its name, which now must wait."""
        self._started.add(spec.id)
        name = spec.user, spec.name
        if spec.id not in self._active:
            self._active[spec.id] = name
            self._active_by_name[name] += 1
        if not self._waiting_for and not self._singletons:
            return ()
        return (*self._waiting_for.get(spec.id, ()), *self._singletons.get(name, ()))

    def note_stop(self, spec: JobSpec, *, suspended: bool) -> tuple[JobId, ...]:
        """A job lost its devices and waits again; returns the jobs worth looking at again. A suspended job still counts
        as one of its name."""
        return () if suspended else self._deactivate(spec)

    def _deactivate(self, spec: JobSpec) -> tuple[JobId, ...]:
        name = self._active.pop(spec.id, None)
        if name is None:
            return ()
        self._active_by_name[name] -= 1
        if not self._active_by_name[name]:
            del self._active_by_name[name]
        return tuple(self._singletons.get(name, ()))

    def note_end(self, spec: JobSpec, outcome: Outcome) -> tuple[JobId, ...]:
        """A job ended; returns the jobs worth looking at again, in order."""
        self.outcomes[spec.id] = outcome
        if len(self.outcomes) > OUTCOMES_MAX:
            self.outcomes.popitem(last=False)
        self._started.discard(spec.id)
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

    def copy(self) -> "Dependencies":
        """An independent copy."""
        other = Dependencies()
        other.outcomes = self.outcomes.copy()
        other._started = set(self._started)
        other._singletons = {name: list(jobs) for name, jobs in self._singletons.items()}
        other._active, other._active_by_name = dict(self._active), self._active_by_name.copy()
        other._waiting_for = {job: list(jobs) for job, jobs in self._waiting_for.items()}
        other._rivals = {job: list(jobs) for job, jobs in self._rivals.items()}
        other.arrays = self.arrays.copy()
        return other
