"""What a pod asks about the pods beside it, and where it would rather lie, from its spec. Pure; raises KeyError and the
like where the spec is not what the API promises, which `parse` turns into an UnreadableError."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clearway.adapters.kubernetes.facts import Company, Expression, PodTerm, Selector, SpreadTerm, Term

Json = Mapping[str, Any]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

SPREAD_WEIGHT: Final = 50
"""Of a spread that is only wished (ScheduleAnyway): between the wishes of people, which weigh 1 to 100."""


def parse_company(spec: Json, labels: Mapping[str, str], namespace: str) -> Company | None:
    """Pod affinity, pod anti-affinity and topology spread; None where the pod asks for nothing of that kind."""
    affinity = spec.get("affinity") or {}
    company = Company(
        near=tuple(_parse_terms(affinity.get("podAffinity") or {}, labels, namespace)),
        apart=tuple(_parse_terms(affinity.get("podAntiAffinity") or {}, labels, namespace)),
        spreads=tuple(_parse_spread(one, labels) for one in spec.get("topologySpreadConstraints") or ()),
    )
    return company if company != Company() else None


def parse_wishes(spec: Json) -> tuple[tuple[int, Term], ...]:
    """Preferred node affinity, as weights and terms."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return tuple((int(one["weight"]), parse_term(one["preference"])) for one in affinity.get(PREFERRED) or ())


def parse_term(term: Json) -> Term:
    """A term of node affinity."""
    return Term(
        labels=tuple(_parse_expression(one) for one in term.get("matchExpressions") or ()),
        fields=tuple(_parse_expression(one) for one in term.get("matchFields") or ()),
    )


def parse_selector(data: Json | None) -> Selector | None:
    """A LabelSelector; None, as in the API, selects nothing, an empty one everything."""
    if data is None:
        return None
    pairs = (Expression(key, "In", (value,)) for key, value in (data.get("matchLabels") or {}).items())
    return _sorted([*pairs, *(_parse_expression(one) for one in data.get("matchExpressions") or ())])


def _parse_terms(data: Json, labels: Mapping[str, str], namespace: str) -> Iterable[PodTerm]:
    for term in data.get(REQUIRED) or ():
        yield _parse_pod_term(term, labels, namespace, 0)
    for one in data.get(PREFERRED) or ():
        yield _parse_pod_term(one["podAffinityTerm"], labels, namespace, int(one["weight"]))


def _parse_pod_term(term: Json, labels: Mapping[str, str], namespace: str, weight: int) -> PodTerm:
    spaces = parse_selector(term.get("namespaceSelector"))
    names = tuple(sorted(term.get("namespaces") or ()))
    return PodTerm(
        selector=_with_keys(term, labels),
        namespaces=names if names or spaces is not None else (namespace,),
        spaces=spaces,
        domain=term["topologyKey"],
        weight=weight,
    )


def _parse_spread(data: Json, labels: Mapping[str, str]) -> SpreadTerm:
    is_required = data.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    return SpreadTerm(
        selector=_with_keys(data, labels) or None,  # an empty one counts nothing here (podtopologyspread/common.go)
        domain=data["topologyKey"],
        skew=max(int(data.get("maxSkew", 1)), 1),
        domains_min=int(data.get("minDomains") or 1),
        weight=0 if is_required else SPREAD_WEIGHT,
        by_affinity=data.get("nodeAffinityPolicy", "Honor") == "Honor",
        by_taints=data.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _with_keys(data: Json, labels: Mapping[str, str]) -> Selector | None:
    """The selector, with the pod's own values of `matchLabelKeys` (servers of 1.33 and later write them in already)."""
    selector = parse_selector(data.get("labelSelector"))
    if selector is None:
        return None
    more = [Expression(key, "In", (labels[key],)) for key in data.get("matchLabelKeys") or () if key in labels]
    more += [Expression(key, "NotIn", (labels[key],)) for key in data.get("mismatchLabelKeys") or () if key in labels]
    return _sorted([*selector, *more])


def _parse_expression(data: Json) -> Expression:
    return Expression(data["key"], data["operator"], tuple(data.get("values") or ()))


def _sorted(expressions: Iterable[Expression]) -> Selector:
    return tuple(sorted(set(expressions), key=lambda one: (one.key, one.operator, one.values)))
