"""Who lies beside whom: crowds of pods, how many of each lie on which node, and what pods' rules about them forbid.

A crowd is what a rule of some pod speaks of: pods that its selectors match, or pods that themselves want to be apart
from such. Here every crowd is counted exactly, whoever bound its pods; the engine knows crowds by name, counts the
replicas that it placed, and is told the difference (`NodeSpec.crowds`). So what is judged here and what the engine
finds agree, and a plan that came too late is seen here, before a binding. As Kubernetes' own scheduler judges:
`interpodaffinity` and `podtopologyspread` of its framework. No I/O.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from clearway.adapters.kubernetes.facts import (
    Company,
    Expression,
    NodeFacts,
    Pairs,
    PodFacts,
    PodTerm,
    Selector,
    SpreadTerm,
    Term,
    Toleration,
)
from clearway.adapters.kubernetes.placement import bears_taints, matches_affinity, meets_all
from clearway.model.neighbours import NeighbourKind, NeighbourRule

DOMAIN_PREFIX: Final = "clearway.io/domain-"

NAME_CHARACTERS_MAX: Final = 160
"""Of a crowd's name; a longer one ends in a digest."""

NOT_NEAR: Final = "node(s) didn't match pod affinity rules"
NOT_APART: Final = "node(s) didn't match pod anti-affinity rules"
NOT_WANTED: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
NOT_EVEN: Final = "node(s) didn't match pod topology spread constraints"
NO_DOMAIN: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

NEEDED: Final = 1
"""Weight of a required affinity, for others that would be near (`hardPodAffinityWeight`)."""

MATCHES_MAX: Final = 50_000
"""Kinds of pods for which it is remembered in which crowds they are."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Pods by namespace and labels, as a term of pod affinity chooses them."""

    selector: Selector | None
    namespaces: tuple[str, ...]
    spaces: Selector | None


@dataclass(frozen=True, slots=True)
class Crowd:
    """Pods that every one of `choices` chooses. domain: "" = these pods; else those that want none of them in one such
    domain, or, with a wish, would rather have them there (above 0) or not (below 0), by so much. is_staying: those that
    were told to go are left out."""

    choices: tuple[Choice, ...]
    domain: str = ""
    is_staying: bool = False
    wish: int = 0

    @property
    def name(self) -> str:
        """For people and for the engine; different for different crowds."""
        text = " and ".join(_choice_in_words(one) for one in self.choices)
        if self.domain:
            word = f"wish (by {self.wish}) for" if self.wish else "avoid"
            text = f"pods that {word} {text} by {self.domain}"
        else:
            text = f"pods {text}"
        if self.is_staying:
            text += " that stay"
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return text if len(text) <= NAME_CHARACTERS_MAX else f"{text[:NAME_CHARACTERS_MAX]}… {digest}"


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that count for a spread, and what domain each is in. domain: a node label; "" = each node is one. needs:
    labels that they must have. The rest is the pod's own: where it may lie by its affinity, and by taints (None = they
    do not matter)."""

    domain: str
    needs: tuple[str, ...] = ()
    selector: Pairs = ()
    terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None

    @property
    def label(self) -> str:
        """The node label whose values are the domains: the label itself where every node that has it counts."""
        if self.domain and self == Region(self.domain):
            return self.domain
        return DOMAIN_PREFIX + hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def find_domain(self, facts: NodeFacts, labels: Mapping[str, str]) -> str | None:
        """The domain of a node; None = it does not count."""
        if any(key not in labels for key in self.needs):
            return None
        if not matches_affinity(self.selector, self.terms, labels, facts.name):
            return None
        if self.tolerations is not None and not bears_taints(self.tolerations, facts):
            return None
        return labels.get(self.domain) if self.domain else facts.name


@dataclass(frozen=True, slots=True)
class Demands:
    """A pod's rules, ready to be judged. near: one crowd for all terms of required affinity, and their domains.
    apart: crowds and domains. spreads: crowds, regions, and the terms they come from. wishes: for the engine alone.
    speaking: crowds that the pod itself is in by what it says of others."""

    near: tuple[Crowd, tuple[str, ...]] | None
    apart: tuple[tuple[Crowd, str], ...]
    spreads: tuple[tuple[Crowd, Region, SpreadTerm], ...]
    wishes: tuple[tuple[Crowd, NeighbourRule], ...]
    speaking: tuple[Crowd, ...]

    def crowds(self) -> Iterable[Crowd]:
        """All crowds of which they speak, and those that the pod itself is in by speaking of them."""
        if self.near is not None:
            yield self.near[0]
        for crowd, _ in self.apart:
            yield crowd
        for crowd, _, _ in self.spreads:
            yield crowd
        for crowd, _ in self.wishes:
            yield crowd
        yield from self.speaking


@dataclass(slots=True)
class Tally:
    """name: of the crowd. by_node: pods of it on each node that has some. users: pods whose rules speak of it."""

    name: str
    by_node: dict[str, int] = field(default_factory=dict)
    users: int = 0


@dataclass(slots=True)
class Map:
    """A region as it is: the domain of each node that counts, and how many nodes each domain has."""

    domains: dict[str, str] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)

    def put(self, node: str, domain: str | None) -> None:
        """The node is in this domain now; None = it does not count."""
        before = self.domains.pop(node, None)
        if before is not None:
            self.sizes[before] -= 1
            if not self.sizes[before]:
                del self.sizes[before]
        if domain is not None:
            self.domains[node] = domain
            self.sizes[domain] += 1


class Society:
    """All crowds of which some pod that is there speaks.

    walk: all pods that lie on nodes, with the names of these. touch: called with a node of which more is to be told.
    """

    def __init__(self, walk: Callable[[], Iterable[tuple[PodFacts, str]]], touch: Callable[[str], None]) -> None:
        self.tallies: dict[Crowd, Tally] = {}
        self.on_node: dict[str, dict[Crowd, int]] = {}
        self._walk = walk
        self._touch = touch
        self._nodes: dict[str, tuple[NodeFacts, dict[str, str]]] = {}
        self._maps: dict[Region, Map] = {}
        self._spaces: dict[str, dict[str, str]] = {}
        self._matches: dict[tuple[str, Pairs, Company | None, bool], tuple[Crowd, ...]] = {}
        self._demands: dict[tuple[Company, str, Pairs, tuple[Term, ...], tuple[Toleration, ...]], Demands] = {}
        self._speaking: dict[str, tuple[Crowd, ...]] = {}

    # --- what was seen ----------------------------------------------------------------------------------------------

    def put_node(self, facts: NodeFacts) -> None:
        """The node is there."""
        labels = dict(facts.labels)
        self._nodes[facts.name] = facts, labels
        for region, found in self._maps.items():
            found.put(facts.name, region.find_domain(facts, labels))

    def drop_node(self, name: str) -> None:
        """The node is gone."""
        self._nodes.pop(name, None)
        for found in self._maps.values():
            found.put(name, None)

    def put_space(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace has these labels."""
        if self._spaces.get(name) == labels:
            return
        self._spaces[name] = dict(labels)
        self._matches.clear()
        for crowd in [one for one in self.tallies if any(choice.spaces for choice in one.choices)]:
            self._drop_counts(crowd)
            self._count(crowd)

    def note(self, pod: PodFacts) -> None:
        """The pod is there, wherever."""
        if pod.company is None or pod.uid in self._speaking:
            return
        crowds = tuple(dict.fromkeys(self.demands_of(pod).crowds()))
        self._speaking[pod.uid] = crowds
        fresh = [crowd for crowd in crowds if crowd not in self.tallies]
        for crowd in fresh:
            self.tallies[crowd] = Tally(crowd.name)
            self._matches.clear()
            self._count(crowd)
        for crowd in crowds:
            self.tallies[crowd].users += 1

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        for crowd in self._speaking.pop(uid, ()):
            tally = self.tallies[crowd]
            tally.users -= 1
            if tally.users == 0:
                self._drop_counts(crowd)
                del self.tallies[crowd]
                self._matches.clear()

    def count(self, pod: PodFacts, node: str, more: int) -> None:
        """The pod came to lie on the node (1), or lies there no more (−1)."""
        for crowd in self.crowds_of(pod) if self.tallies else ():
            self._add(crowd, node, more)

    def _add(self, crowd: Crowd, node: str, more: int) -> None:
        by_node, there = self.tallies[crowd].by_node, self.on_node.setdefault(node, {})
        count = by_node.get(node, 0) + more
        by_node[node] = there[crowd] = count
        if count == 0:
            del by_node[node], there[crowd]

    def _count(self, crowd: Crowd) -> None:
        for pod, node in self._walk():
            if self._is_in(pod, crowd):
                self._add(crowd, node, 1)
        for node in self.tallies[crowd].by_node:
            self._touch(node)

    def _drop_counts(self, crowd: Crowd) -> None:
        for node in self.tallies[crowd].by_node:
            del self.on_node[node][crowd]
            self._touch(node)
        self.tallies[crowd].by_node = {}

    # --- who is in what ---------------------------------------------------------------------------------------------

    def crowds_of(self, pod: PodFacts) -> tuple[Crowd, ...]:
        """The crowds that the pod is in, of those of which anybody speaks."""
        key = pod.namespace, pod.marks, pod.company, pod.is_leaving
        found = self._matches.get(key)
        if found is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            found = self._matches[key] = tuple(crowd for crowd in self.tallies if self._is_in(pod, crowd))
        return found

    def _is_in(self, pod: PodFacts, crowd: Crowd) -> bool:
        if crowd.domain:
            return pod.company is not None and crowd in _speaking(pod.company)
        return self.chooses(crowd, pod)

    def chooses(self, crowd: Crowd, pod: PodFacts) -> bool:
        """Whether the crowd's choices fall on the pod."""
        if crowd.is_staying and pod.is_leaving:
            return False
        labels = dict(pod.marks)
        return all(self._is_chosen(choice, pod.namespace, labels) for choice in crowd.choices)

    def _is_chosen(self, choice: Choice, namespace: str, labels: Mapping[str, str]) -> bool:
        if choice.selector is None or not meets_all(choice.selector, labels):
            return False
        if namespace in choice.namespaces:
            return True
        return choice.spaces is not None and meets_all(choice.spaces, self._spaces.get(namespace, {}))

    # --- rules ------------------------------------------------------------------------------------------------------

    def demands_of(self, pod: PodFacts) -> Demands:
        """The rules of a pod with `company`."""
        assert pod.company is not None
        demand = pod.demand
        key = pod.company, pod.namespace, demand.selector, demand.terms, demand.tolerations
        found = self._demands.get(key)
        if found is None:
            if len(self._demands) >= MATCHES_MAX:
                self._demands.clear()
            found = self._demands[key] = _make_demands(pod)
        return found

    def regions_of(self, pod: PodFacts) -> Iterable[Region]:
        """The regions of a pod's spreads."""
        return () if pod.company is None else (region for _, region, _ in self.demands_of(pod).spreads)

    def rules_for(self, pods: Iterable[PodFacts]) -> tuple[tuple[str, ...], tuple[NeighbourRule, ...]]:
        """What the engine is to know of equal pods: names of crowds that they are in, and their rules."""
        pods = tuple(pods)
        crowds = dict.fromkeys(crowd for pod in pods for crowd in self.crowds_of(pod))
        rules = [
            NeighbourRule(
                kind=NeighbourKind.BESIDE if crowd.wish > 0 else NeighbourKind.APART,
                crowd=crowd.name,
                domain=crowd.domain,
                weight=abs(crowd.wish),
            )
            for crowd in self.tallies
            if crowd.domain and self.chooses(crowd, pods[0])
        ]
        if pods[0].company is not None:
            rules += _own_rules(self.demands_of(pods[0]))
        ordered = sorted(set(rules), key=lambda rule: (rule.kind, rule.crowd, rule.domain, rule.weight))
        return tuple(sorted(crowd.name for crowd in crowds)), tuple(ordered)

    # --- the last look ----------------------------------------------------------------------------------------------

    def find_mismatch(self, pod: PodFacts, node: str) -> str:
        """Why the rules of this pod, or of those that lie there, forbid it to lie on the node; "" = they do not."""
        labels = self._nodes[node][1]
        if pod.company is not None:
            demands = self.demands_of(pod)
            words = (
                self._judge_spreads(pod, demands, labels)
                or self._judge_near(pod, demands, labels)
                or self._judge_apart(demands, labels)
            )
            if words:
                return words
        for crowd in self.tallies:
            if crowd.domain in labels and not crowd.wish:
                is_near = self._is_near(crowd, crowd.domain, labels[crowd.domain])
                if is_near and self.chooses(crowd, pod):
                    return NOT_WANTED
        return ""

    def _is_near(self, crowd: Crowd, domain: str, value: str) -> bool:
        """Whether any of the crowd lies where this label has this value."""
        tally = self.tallies.get(crowd)
        if tally is None:
            return False
        return any(name in self._nodes and self._nodes[name][1].get(domain) == value for name in tally.by_node)

    def _judge_apart(self, demands: Demands, labels: Mapping[str, str]) -> str:
        for crowd, domain in demands.apart:
            if domain in labels and self._is_near(crowd, domain, labels[domain]):
                return NOT_APART
        return ""

    def _judge_near(self, pod: PodFacts, demands: Demands, labels: Mapping[str, str]) -> str:
        if demands.near is None:
            return ""
        crowd, domains = demands.near
        if any(domain not in labels for domain in domains):
            return NOT_NEAR
        if all(self._is_near(crowd, domain, labels[domain]) for domain in domains):
            return ""
        lying = self.tallies[crowd].by_node if crowd in self.tallies else ()
        is_anywhere = any(domain in self._nodes[name][1] for name in lying if name in self._nodes for domain in domains)
        return "" if not is_anywhere and self.chooses(crowd, pod) else NOT_NEAR

    def _judge_spreads(self, pod: PodFacts, demands: Demands, labels: Mapping[str, str]) -> str:
        for crowd, region, term in demands.spreads:
            if term.weight:
                continue
            if term.domain not in labels:
                return NO_DOMAIN
            found = self.map_of(region)
            counts = dict.fromkeys(found.sizes, 0)
            for name, count in self.tallies[crowd].by_node.items() if crowd in self.tallies else ():
                if name in found.domains:
                    counts[found.domains[name]] += count
            least = min(counts.values(), default=0) if len(counts) >= term.domains_min else 0
            there = counts.get(labels[term.domain], 0) + int(self.chooses(crowd, pod))
            if there - least > term.skew:
                return NOT_EVEN
        return ""

    def keep_maps(self, regions: Container[Region]) -> None:
        """Forget how all other regions are; who asks for one has it made anew."""
        self._maps = {region: found for region, found in self._maps.items() if region in regions}

    def map_of(self, region: Region) -> Map:
        """The region as it is now."""
        found = self._maps.get(region)
        if found is None:
            found = self._maps[region] = Map()
            for name, (facts, labels) in self._nodes.items():
                found.put(name, region.find_domain(facts, labels))
        return found


def _choice_of(term: PodTerm) -> Choice:
    return Choice(term.selector, term.namespaces, term.spaces)


def _make_demands(pod: PodFacts) -> Demands:
    company = pod.company
    assert company is not None
    near = [term for term in company.near if term.weight == 0]
    crowd = Crowd(tuple(sorted({_choice_of(term) for term in near}, key=repr)))
    kinds = ((NeighbourKind.BESIDE, company.near), (NeighbourKind.APART, company.apart))
    return Demands(
        near=(crowd, tuple(dict.fromkeys(term.domain for term in near))) if near else None,
        apart=tuple((Crowd((_choice_of(term),)), term.domain) for term in company.apart if term.weight == 0),
        spreads=tuple(_make_spreads(pod, company.spreads)),
        wishes=tuple(
            (one, NeighbourRule(kind=kind, crowd=one.name, domain=term.domain, weight=min(max(term.weight, 0), 100)))
            for kind, terms in kinds
            for term in terms
            if term.weight
            for one in (Crowd((_choice_of(term),)),)
        ),
        speaking=_speaking(company),
    )


@lru_cache(MATCHES_MAX)
def _speaking(company: Company) -> tuple[Crowd, ...]:
    """Crowds of pods that say what these say of others. Who needs others near is taken to wish for them by 1, beside
    those whom he finds there: as `interpodaffinity` does."""
    near = (Crowd((_choice_of(term),), term.domain, wish=max(term.weight, NEEDED)) for term in company.near)
    apart = (Crowd((_choice_of(term),), term.domain, wish=-term.weight) for term in company.apart)
    return tuple(dict.fromkeys((*near, *apart)))


def _make_spreads(pod: PodFacts, spreads: tuple[SpreadTerm, ...]) -> Iterable[tuple[Crowd, Region, SpreadTerm]]:
    required = tuple(sorted({term.domain for term in spreads if term.weight == 0}))
    demand = pod.demand
    for term in spreads:
        needs = () if required in ((), (term.domain,)) or term.weight else required
        region = Region(
            domain=term.domain,
            needs=needs,
            selector=demand.selector if term.by_affinity else (),
            terms=demand.terms if term.by_affinity else (),
            tolerations=demand.tolerations if term.by_taints else None,
        )
        yield Crowd((Choice(term.selector, (pod.namespace,), None),), is_staying=True), region, term


def _own_rules(demands: Demands) -> list[NeighbourRule]:
    rules = [rule for _, rule in demands.wishes]
    if demands.near is not None:
        crowd, domains = demands.near
        rules += [NeighbourRule(kind=NeighbourKind.BESIDE, crowd=crowd.name, domain=domain) for domain in domains]
    rules += [NeighbourRule(kind=NeighbourKind.APART, crowd=one.name, domain=domain) for one, domain in demands.apart]
    for crowd, region, term in demands.spreads:
        rules.append(
            NeighbourRule(
                kind=NeighbourKind.EVEN,
                crowd=crowd.name,
                domain=region.label,
                skew=term.skew,
                domains_min=term.domains_min,
                weight=term.weight,
            )
        )
    return rules


def _choice_in_words(choice: Choice) -> str:
    if choice.selector is None:
        return "none"
    where = list(choice.namespaces)
    if choice.spaces is not None:
        where.append("{" + _selector_in_words(choice.spaces) + "}")
    return f"{','.join(where)}/{_selector_in_words(choice.selector)}"


def _selector_in_words(selector: Selector) -> str:
    return ",".join(_expression_in_words(one) for one in selector) or "*"


def _expression_in_words(one: Expression) -> str:
    match one.operator:
        case "In" if len(one.values) == 1:
            return f"{one.key}={one.values[0]}"
        case "Exists":
            return one.key
        case "DoesNotExist":
            return f"!{one.key}"
    return f"{one.key} {one.operator.lower()} ({','.join(one.values)})"
