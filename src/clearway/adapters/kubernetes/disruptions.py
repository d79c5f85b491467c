"""Disruption budgets: which pods count in which, and how many of them the API server would let be evicted now. No I/O.

The engine is told both (`BudgetsChanged`), so that it chooses nobody whose eviction would be refused. A pod counts
while the eviction API asks its budget: not before it runs, nor once it is told to go, nor when the budget has it on
its list of those that it let go already. Pods of submitted jobs leave by their Job, which asks nobody.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts, PodPhase, Selector
from clearway.adapters.kubernetes.parse_company import parse_selector
from clearway.adapters.kubernetes.placement import meets_all
from clearway.model.events import BudgetsChanged
from clearway.model.ids import JobId

KIND: Final = "poddisruptionbudgets"

SEVERAL: Final = "several disruption budgets at once, which the eviction API does not take"
"""A budget of those pods that more than one chooses: none of them can be evicted."""

Counts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Disruption:
    """One PodDisruptionBudget. selector: None = no pod. allowed: evictions that it lets happen now. gone: names of pods
    that it let go and still sees."""

    namespace: str
    selector: Selector | None
    allowed: int
    gone: frozenset[str]


def parse_disruption(data: Mapping[str, Any]) -> tuple[str, Disruption]:
    """A policy/v1.PodDisruptionBudget, with its name for people. Raises UnreadableError."""
    try:
        metadata, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
        name = f"disruption budget {metadata['namespace']}/{metadata['name']}"
        is_known = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
        return name, Disruption(
            namespace=metadata["namespace"],
            selector=parse_selector(spec.get("selector")),
            allowed=max(int(status.get("disruptionsAllowed") or 0), 0) if is_known else 0,
            gone=frozenset(status.get("disruptedPods") or ()),
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableError(f"a disruption budget: expected one as the API describes it, found {error!r}") from error


class Disruptions:
    """All budgets, and what the engine was told of them."""

    def __init__(self) -> None:
        self._budgets: dict[str, Disruption] = {}
        self._told: dict[str, int] = {}
        self._told_jobs: dict[JobId, Counts] = {}
        self._news: dict[JobId, Counts] = {}

    @property
    def has_news(self) -> bool:
        """Whether `tell` has anything to say."""
        return bool(self._news) or self._told != self._allowed()

    def put(self, data: Mapping[str, Any], *, is_gone: bool) -> str:
        """A budget was seen, or is gone; the namespace of which pods may count otherwise now, "" = none."""
        name, found = parse_disruption(data)
        if not is_gone and self._budgets.get(name) == found:
            return ""
        if is_gone:
            self._budgets.pop(name, None)
        else:
            self._budgets[name] = found
        return found.namespace

    def note(self, job: JobId, pods: Iterable[PodFacts]) -> None:
        """These pods would have to be evicted for the job to leave what it holds; () = it holds nothing."""
        counts = self._count(pods) if self._budgets else ()
        if counts != self._told_jobs.get(job, ()):
            self._news[job] = counts
        else:
            self._news.pop(job, None)

    def forget(self, job: JobId) -> None:
        """The job is over, as the engine knows."""
        self._news.pop(job, None)
        self._told_jobs.pop(job, None)

    def tell(self, now_ms: int) -> list[BudgetsChanged]:
        """What is new for the engine; [] = nothing."""
        if not self.has_news:
            return []
        allowed = self._allowed()
        gone = [(name, None) for name in self._told if name not in allowed]
        changed = [(name, count) for name, count in allowed.items() if self._told.get(name) != count]
        jobs, self._news = self._news, {}
        self._told, self._told_jobs = allowed, {**self._told_jobs, **jobs}
        self._told_jobs = {job: counts for job, counts in self._told_jobs.items() if counts}
        return [BudgetsChanged(now_ms, (*gone, *changed), tuple(jobs.items()))]

    def _allowed(self) -> dict[str, int]:
        allowed = {name: one.allowed for name, one in sorted(self._budgets.items())}
        return {**allowed, SEVERAL: 0} if len(allowed) > 1 else allowed

    def _count(self, pods: Iterable[PodFacts]) -> Counts:
        counts = Counter[str]()
        for pod in pods:
            if pod.phase is not PodPhase.RUNNING or pod.is_leaving:
                continue
            names = [name for name, one in self._budgets.items() if _chooses(one, pod)]
            if len(names) > 1:
                counts[SEVERAL] += 1
            elif names and pod.name not in self._budgets[names[0]].gone:
                counts[names[0]] += 1
        return tuple(sorted(counts.items()))


def _chooses(one: Disruption, pod: PodFacts) -> bool:
    return one.namespace == pod.namespace and one.selector is not None and meets_all(one.selector, dict(pod.marks))
