"""PriorityClasses: the priority of pods and gangs that only name one, and which class says a submitted job's. No I/O.

The API server writes the value of a class into each pod that it admits, and from then on that counts, whatever becomes
of the class. A class is looked up where that was not done, for gangs whose object names one, and for pods that a Job is
to make. A job has its priority before it is submitted, and keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import Said

KIND: Final = "priorityclasses"

SYSTEM: Final = "system-"
"""How classes begin that are Kubernetes' own; some clusters let only pods of their own namespaces have them."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """One class. is_default: for pods that name none. preempts: whether others may be evicted for its pods."""

    name: str
    value: int
    is_default: bool = False
    preempts: bool = True


@dataclass(frozen=True, slots=True)
class Rank:
    """The priority of a pod or a gang, and the class that says it, "" = none does."""

    value: int = 0
    preempts: bool = True
    name: str = ""

    def in_words(self) -> str:
        """As in "priority 1000 (class urgent)"; "" where nobody speaks of priorities."""
        if self.name:
            return f"priority {self.value} (class {self.name})"
        return f"priority {self.value}" if self.value else ""


def parse_priority_class(data: Mapping[str, Any]) -> PriorityClass:
    """A scheduling.k8s.io/v1.PriorityClass. Raises UnreadableError."""
    try:
        return PriorityClass(
            name=str(data["metadata"]["name"]),
            value=int(data["value"]),
            is_default=data.get("globalDefault") is True,
            preempts=data.get("preemptionPolicy") != "Never",
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableError(f"a PriorityClass: expected one as the API describes it, found {error!r}") from error


class PriorityClasses:
    """All classes, by name. There are none only where they may not be read: each cluster has Kubernetes' own."""

    def __init__(self) -> None:
        self._classes: dict[str, PriorityClass] = {}

    def put(self, data: Mapping[str, Any], *, is_gone: bool) -> None:
        """A class was seen, or is gone. Raises UnreadableError."""
        found = parse_priority_class(data)
        if is_gone:
            self._classes.pop(found.name, None)
        else:
            self._classes[found.name] = found

    def find_rank(self, pods: Sequence[PodFacts], said: Said) -> Rank:
        """The rank of pods that are one job: that of the class which their object names, else the highest of theirs.
        It evicts others if each of them may. Raises UnreadableError where a class is named that there is not."""
        if said.priority_class:
            return self._resolve(said.priority, said.priority_class, preempts=all(pod.preempts for pod in pods))
        ranks = [self._resolve(pod.priority, pod.priority_class, preempts=pod.preempts) for pod in pods]
        return replace(max(ranks, key=lambda rank: rank.value), preempts=all(rank.preempts for rank in ranks))

    def _resolve(self, priority: int | None, name: str, *, preempts: bool) -> Rank:
        """priority: as the API server wrote it, None = it did not."""
        if priority is not None:
            return Rank(priority, preempts, name)
        found = self._classes.get(name) if name else self._find_default()
        if name and found is None and self._classes:
            raise UnreadableError(f"no PriorityClass with name {name} was found")
        return Rank(0, preempts, name) if found is None else Rank(found.value, preempts and found.preempts, found.name)

    def _find_default(self) -> PriorityClass | None:
        """Of several, should there be such, the lowest, as Kubernetes has it."""
        defaults = [one for one in self._classes.values() if one.is_default]
        return min(defaults, key=lambda one: (one.value, one.name), default=None)

    def find_name(self, priority: int) -> str:
        """The class for a submitted job of this priority: of exactly that value, and none of Kubernetes' own; of
        several one that evicts others, the first by name. "" = there is none."""
        fitting = [one for one in self._classes.values() if one.value == priority and not one.name.startswith(SYSTEM)]
        best = min(fitting, key=lambda one: (not one.preempts, one.name), default=None)
        return "" if best is None else best.name
