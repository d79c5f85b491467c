"""ResourceQuotas of namespaces: how many more pods of a kind the API server would let be made. No I/O.

It counts pods when they are made, whether they are bound or not, and refuses those beyond the quota. So nothing is to
be judged of pods that are there; only of those that a Job is to make: of a submitted job, or of one that is elastic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import Amounts, PodFacts
from clearway.adapters.kubernetes.parse import CPU, MEMORY, PODS, parse_amounts
from clearway.wire.problems import ParseError

KIND: Final = "resourcequotas"

EACH: Final = ("pods", "count/pods")
"""What every pod takes one of."""

REQUESTS: Final = "requests."
LIMITS: Final = "limits."

MANY: Final = 1 << 40
"""More pods than any quota bounds."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod takes of a quota. limits: None = not known. priority_class: "" = none."""

    requests: Amounts
    limits: Amounts | None = None
    priority_class: str = ""

    def amount(self, key: str) -> int | None:
        """How much it takes of what a quota names so; None = nothing that could be told."""
        if key in EACH:
            return 1
        if key.startswith(LIMITS):
            return None if self.limits is None else dict(self.limits).get(key.removeprefix(LIMITS), 0)
        requests = dict(self.requests)
        name = key.removeprefix(REQUESTS)
        return requests.get(name, 0) if key.startswith(REQUESTS) or name in requests else None

    @property
    def is_best_effort(self) -> bool:
        """Whether it asks neither CPUs nor memory."""
        asked = {name for name, amount in (*self.requests, *(self.limits or ())) if amount}
        return not asked & {CPU, MEMORY}


@dataclass(frozen=True, slots=True)
class Quota:
    """One ResourceQuota. hard, used: by resource as the quota names it. scopes: (name, operator, values)."""

    name: str
    namespace: str
    hard: Amounts
    used: Amounts
    scopes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def regards(self, ask: Ask) -> bool:
        """Whether such a pod counts. Of scopes that are not known it is taken not to."""
        return all(_is_in_scope(ask, *scope) for scope in self.scopes)

    def find_room(self, ask: Ask) -> tuple[int, str]:
        """How many more such pods it lets be made, and by which resource it bounds them."""
        used, room = dict(self.used), (MANY, "")
        for key, most in self.hard if self.regards(ask) else ():
            each = ask.amount(key)
            if each:
                left = max(most - used.get(key, 0), 0) // each
                room = min(room, (left, key))
        return room


def parse_quota(data: Mapping[str, Any]) -> Quota:
    """A v1.ResourceQuota. Raises UnreadableError."""
    try:
        metadata, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
        selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
        scopes = [(str(name), "Exists", ()) for name in spec.get("scopes") or ()]
        scopes += [(one["scopeName"], one["operator"], tuple(one.get("values") or ())) for one in selector]
        return Quota(
            name=metadata["name"],
            namespace=metadata["namespace"],
            hard=_parse(spec.get("hard") or {}),
            used=_parse(status.get("used") or {}),
            scopes=tuple(scopes),
        )
    except (LookupError, TypeError, AttributeError, ValueError, ParseError) as error:
        raise UnreadableError(f"a ResourceQuota: expected one as the API describes it, found {error!r}") from error


def ask_of(pod: PodFacts) -> Ask:
    """What a pod that is there took. Its limits are not kept."""
    return Ask(tuple(one for one in pod.amounts if one[0] != PODS), None, pod.priority_class)


def ask_of_template(template: Mapping[str, Any]) -> Ask:
    """What each pod of a template of Clearway's own making will take."""
    spec = template["spec"]
    resources = spec["containers"][0]["resources"]
    limits = resources.get("limits") or {}
    asked = parse_amounts({**limits, **(resources.get("requests") or {})})
    return Ask(asked, parse_amounts(limits), spec.get("priorityClassName", ""))


class Quotas:
    """All quotas, by namespace. version counts changes."""

    def __init__(self) -> None:
        self._quotas: dict[str, dict[str, Quota]] = {}
        self.version = 0

    def put(self, data: Mapping[str, Any], *, is_gone: bool) -> None:
        """A quota was seen, or is gone."""
        found = parse_quota(data)
        there = self._quotas.setdefault(found.namespace, {})
        if is_gone:
            there.pop(found.name, None)
        else:
            there[found.name] = found
        self.version += 1

    def find_room(self, namespace: str, ask: Ask) -> tuple[int, str]:
        """How many more such pods may be made there, and which quota bounds them, in words; "" = none does."""
        room: tuple[int, str] = MANY, ""
        for quota in self._quotas.get(namespace, {}).values():
            left, key = quota.find_room(ask)
            if left < room[0]:
                room = left, f"ResourceQuota {namespace}/{quota.name} ({_in_words(quota, key)})"
        return room

    def describe_all(self) -> dict[str, tuple[str, ...]]:
        """By namespace, each of its quotas in words: of each resource what is used, and how much there is."""
        return {
            namespace: tuple(
                f"ResourceQuota {one.name}: {', '.join(_in_words(one, key) for key, _ in one.hard)}"
                for _, one in sorted(quotas.items())
            )
            for namespace, quotas in sorted(self._quotas.items())
            if quotas
        }


def _parse(quantities: Mapping[str, Any]) -> Amounts:
    """CPUs in thousandths, whatever the quota calls them."""
    amounts = {}
    for key, text in quantities.items():
        name = key.removeprefix(REQUESTS).removeprefix(LIMITS)
        ((_, amounts[key]),) = parse_amounts({CPU if name == CPU else key: text})
    return tuple(sorted(amounts.items()))


def _is_in_scope(ask: Ask, name: str, operator: str, values: Iterable[str]) -> bool:
    match name:
        case "BestEffort":
            return ask.is_best_effort
        case "NotBestEffort":
            return not ask.is_best_effort
        case "NotTerminating":
            return True
        case "PriorityClass" if operator == "In":
            return ask.priority_class in values
        case "PriorityClass" if operator == "NotIn":
            return ask.priority_class not in values
        case "PriorityClass":
            return bool(ask.priority_class) is (operator == "Exists")
    return False


def _in_words(quota: Quota, key: str) -> str:
    used, most = dict(quota.used).get(key, 0), dict(quota.hard)[key]
    is_cpu = key.removeprefix(REQUESTS).removeprefix(LIMITS) == CPU
    return f"{key} {used / 1000:g} of {most / 1000:g}" if is_cpu else f"{key} {used} of {most}"
