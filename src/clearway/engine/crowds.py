"""Crowds and their tallies: the tables behind rules about neighbours, kept from the names that jobs and nodes use.

- `rules`: int64[RULE_COLUMNS, rules], rules and memberships of each class, one behind the other.
- `tallies`: int64[TALLY_COLUMNS, tallies]. The first tally of a crowd counts by node, the others by a node label.
- `domains`: int64[tallies, nodes], the domain in which a node lies for a tally; NONE = in none.
- `counts`: int64[tallies, domains], replicas of the crowd there; NOWHERE for a domain without nodes.
- `liked`: int64[label keys, nodes], how much a node is liked by those who go by that label, 0..100.

A tally is given up when no job is left whose rules or memberships use it; its row is given to the next.
"""

import numpy as np

from clearway.engine.neighbours import NOWHERE
from clearway.engine.nodes import Names
from clearway.engine.tables import (
    NONE,
    RULE_APART,
    RULE_BESIDE,
    RULE_COLUMNS,
    RULE_DOMAINS_MIN,
    RULE_EVEN,
    RULE_KIND,
    RULE_MEMBER,
    RULE_ROOM,
    RULE_SELF,
    RULE_SKEW,
    RULE_TALLY,
    RULE_WEIGHT,
    TALLY_AT_LEAST,
    TALLY_COLUMNS,
    TALLY_DOMAINS,
    TALLY_LEAST,
    TALLY_NEXT,
    TALLY_TOTAL,
    Table,
    make_table,
)
from clearway.model.cluster import NodeSpec
from clearway.model.jobs import Request
from clearway.model.neighbours import NeighbourKind, NeighbourRule

RULE_KINDS = {
    NeighbourKind.APART: RULE_APART,
    NeighbourKind.BESIDE: RULE_BESIDE,
    NeighbourKind.EVEN: RULE_EVEN,
}

BY_NODE = ""
"""Stands for the label of a crowd's first tally, in which each node is a domain."""

EXTRA = "= "
"""Begins the name of the crowd as which an extra is counted: what a node has of it counts below zero there."""

LIKED_MAX = 100

Rule = tuple[int, int, int, int, int, int]
"""Values of a rule in the order of the RULE_ columns."""


class Crowds:
    """The tables, and the names in them."""

    __slots__ = (
        "_domains",
        "_free",
        "_keys",
        "_labels",
        "_liked",
        "_names",
        "_others",
        "_users",
        "counts",
        "domains",
        "liked",
        "numbers",
        "rule_count",
        "rules",
        "tallies",
    )

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}  # tally by crowd and label
        self.rule_count = 0
        self.rules: Table = make_table(RULE_COLUMNS, 1)
        self.tallies: Table = make_table(TALLY_COLUMNS, 1)
        self.domains: Table = make_table(1, 1, NONE)
        self.counts: Table = make_table(1, 1, NOWHERE)
        self.liked: Table = make_table(1, 1)
        self._keys: dict[str, Names] = {}  # values of each label that a tally goes by
        self._liked: dict[str, int] = {}
        self._names: list[tuple[str, str] | None] = []  # crowd and label of each tally, None = it is free
        self._users: list[int] = []  # rules and memberships of jobs that are there, for each tally
        self._free: list[int] = []
        self._labels: list[dict[str, str]] = []  # of each node
        self._others: list[dict[str, int]] = []  # replicas of others on each node, by crowd
        self._domains: dict[str, list[int]] = {}  # by label: the domain of each node

    # --- nodes ------------------------------------------------------------------------------------------------------

    def add_node(self, spec: NodeSpec) -> None:
        """One more node."""
        node = len(self._labels)
        self._labels.append({})
        self._others.append({})
        for key, line in self._domains.items():
            line.append(node if key == BY_NODE else NONE)
        self._widen(node + 1)
        for (_, key), tally in self.numbers.items():
            if key == BY_NODE:
                self._set_domain(tally, node, node)
        self.set_node(node, spec)

    def set_node(self, node: int, spec: NodeSpec) -> None:
        """The node carries other labels, or others have other replicas on it."""
        self._labels[node] = labels = dict(spec.labels)
        if not (self._keys or self._liked or spec.crowds or spec.extras or self._others[node]):
            return
        self._count_others(node, dict(spec.crowds) | {EXTRA + name: -amount for name, amount in spec.extras})
        for key, names in self._keys.items():
            domain = names.number(labels[key]) if key in labels else NONE
            if domain != self._domains[key][node]:
                self._domains[key][node] = domain
                self._widen(domain + 1)
                for (_, by), tally in self.numbers.items():
                    if by == key:
                        self._set_domain(tally, node, domain)
        for key, row in self._liked.items():
            self.liked[row, node] = _number(labels.get(key, ""))

    def _count_others(self, node: int, now: dict[str, int]) -> None:
        before, self._others[node] = self._others[node], now
        for crowd in dict.fromkeys([*before, *now]):
            change = now.get(crowd, 0) - before.get(crowd, 0)
            if change == 0 or (crowd, BY_NODE) not in self.numbers:
                continue
            for (name, _), tally in self.numbers.items():
                domain = self.domains[tally, node]
                if name == crowd and domain != NONE:
                    self.counts[tally, domain] += change
                    self._sum_up(tally)

    def _set_domain(self, tally: int, node: int, domain: int) -> None:
        self.domains[tally, node] = domain
        self._recount(tally)

    # --- classes ----------------------------------------------------------------------------------------------------

    def add_class(self, request: Request) -> tuple[int, int]:
        """The first of the rules and memberships of a request, and the one behind the last."""
        begin = self.rule_count
        for crowd in request.crowds:
            self._add_rule((RULE_MEMBER, self._tally(crowd, BY_NODE), 0, 1, 0, 0))
        for name, amount in request.extras:
            tally = self._tally(EXTRA + name, BY_NODE)
            self._add_rule((RULE_MEMBER, tally, 0, amount, 0, 0))
            self._add_rule((RULE_ROOM, tally, 0, amount, 0, 0))
        for rule in request.neighbours:
            tally = self._tally(rule.crowd, rule.domain)
            is_self = int(rule.crowd in request.crowds)
            self._add_rule((RULE_KINDS[rule.kind], tally, rule.weight, rule.skew, rule.domains_min, is_self))
        return begin, self.rule_count

    def _add_rule(self, rule: Rule) -> None:
        if self.rule_count == self.rules.shape[1]:
            self.rules = _grown(self.rules, RULE_COLUMNS, 2 * self.rule_count, 0)
        for column, value in zip(
            (RULE_KIND, RULE_TALLY, RULE_WEIGHT, RULE_SKEW, RULE_DOMAINS_MIN, RULE_SELF), rule, strict=True
        ):
            self.rules[column, self.rule_count] = value
        self.rule_count += 1

    def liked_row(self, key: str) -> int:
        """The row of the nodes' numbers under this label."""
        row = self._liked.get(key)
        if row is None:
            row = self._liked[key] = len(self._liked)
            self.liked = _grown(self.liked, row + 1, self.domains.shape[1], 0)
            for node, labels in enumerate(self._labels):
                self.liked[row, node] = _number(labels.get(key, ""))
        return row

    def collide(
        self, rules: tuple[NeighbourRule, ...], nodes: list[int], crowds: tuple[str, ...], theirs: list[int]
    ) -> bool:
        """Whether rules of replicas on `nodes` forbid some of the crowds on nodes of `theirs`."""
        for rule in rules:
            if rule.kind is NeighbourKind.APART and rule.weight == 0 and rule.crowd in crowds:
                line = self._domains[rule.domain]
                if {line[node] for node in nodes} & {line[node] for node in theirs} - {NONE}:
                    return True
        return False

    def use(self, request: Request, jobs: int) -> None:
        """So many more jobs (−1: one fewer) ask for this. Tallies that nobody uses any more are given up: the class of
        the last that did must not be used again."""
        tallies = [self.numbers[crowd, BY_NODE] for crowd in request.crowds]
        tallies += [self.numbers[EXTRA + name, BY_NODE] for name, _ in request.extras]
        for rule in request.neighbours:
            tallies += [self.numbers[rule.crowd, BY_NODE], self.numbers[rule.crowd, rule.domain]]
        for tally in tallies:
            self._users[tally] += jobs
        unused = [tally for tally in dict.fromkeys(tallies) if self._users[tally] == 0]
        for tally in sorted(unused, key=self._is_first):  # those by a label are found through the first one
            self._give_up(tally)

    def _is_first(self, tally: int) -> bool:
        names = self._names[tally]
        assert names is not None
        return names[1] == BY_NODE

    def _give_up(self, tally: int) -> None:
        names = self._names[tally]
        assert names is not None
        if names[1] != BY_NODE:
            before = self.numbers[names[0], BY_NODE]
            while self.tallies[TALLY_NEXT, before] != tally:
                before = int(self.tallies[TALLY_NEXT, before])
            self.tallies[TALLY_NEXT, before] = self.tallies[TALLY_NEXT, tally]
        del self.numbers[names]
        self._names[tally] = None
        self.domains[tally] = NONE
        self.counts[tally] = NOWHERE
        self._free.append(tally)

    # --- tallies ----------------------------------------------------------------------------------------------------

    def _tally(self, crowd: str, key: str) -> int:
        """The tally of a crowd by a label, made at first sight, with all of the crowd that lies anywhere."""
        number = self.numbers.get((crowd, key))
        if number is not None:
            return number
        first = NONE if key == BY_NODE else self._tally(crowd, BY_NODE)
        number = self.numbers[crowd, key] = self._new_row()
        self._names[number] = crowd, key
        line = self._domains_by(key)
        self._widen(max(len(line), len(self._keys.get(key, ()))))
        if number == self.tallies.shape[1]:
            self.tallies = _grown(self.tallies, TALLY_COLUMNS, 2 * number, 0)
            self.domains = _grown(self.domains, 2 * number, 0, NONE)
            self.counts = _grown(self.counts, 2 * number, 0, NOWHERE)
        self.domains[number, : len(line)] = line
        self.tallies[TALLY_NEXT, number] = NONE
        if first == NONE:
            self.counts[number, : len(line)] = [others.get(crowd, 0) for others in self._others]
            self._sum_up(number)
        else:
            self.tallies[TALLY_NEXT, number] = self.tallies[TALLY_NEXT, first]
            self.tallies[TALLY_NEXT, first] = number
            self._recount(number)
        return number

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._names.append(None)
        self._users.append(0)
        return len(self._names) - 1

    def _domains_by(self, key: str) -> list[int]:
        """The domain of each node by a label."""
        line = self._domains.get(key)
        if line is None:
            if key == BY_NODE:
                line = list(range(len(self._labels)))
            else:
                names = self._keys[key] = Names()
                line = [names.number(labels[key]) if key in labels else NONE for labels in self._labels]
            self._domains[key] = line
        return line

    def _recount(self, tally: int) -> None:
        """Count a tally anew from what lies on each node."""
        names = self._names[tally]
        assert names is not None
        crowd, key = names
        count = len(self._labels)
        domain = self.domains[tally, :count]
        there = domain != NONE
        if key == BY_NODE:
            if count:
                fresh = self.counts[tally, :count] == NOWHERE
                others = [self._others[node].get(crowd, 0) for node in np.flatnonzero(fresh).tolist()]
                self.counts[tally, :count][fresh] = others
        else:
            by_node = self.counts[self.numbers[crowd, BY_NODE], :count]
            wide = self.counts.shape[1]
            sums = np.zeros(wide, dtype=np.int64)
            np.add.at(sums, domain[there], by_node[there])
            self.counts[tally] = np.where(np.bincount(domain[there], minlength=wide)[:wide] > 0, sums, NOWHERE)
        self._sum_up(tally)

    def _sum_up(self, tally: int) -> None:
        """The figures of a tally that are derived from its counts."""
        counts = self.counts[tally]
        has_nodes = counts < NOWHERE
        least = int(counts.min())
        self.tallies[TALLY_TOTAL, tally] = counts[has_nodes].sum()
        self.tallies[TALLY_DOMAINS, tally] = has_nodes.sum()
        self.tallies[TALLY_LEAST, tally] = least
        self.tallies[TALLY_AT_LEAST, tally] = (counts == least).sum()

    def _widen(self, wide: int) -> None:
        """Make room for so many nodes or domains."""
        have = self.domains.shape[1]
        if wide > have:
            wide = max(wide, 2 * have)
            self.domains = _grown(self.domains, self.domains.shape[0], wide, NONE)
            self.counts = _grown(self.counts, self.counts.shape[0], wide, NOWHERE)
            self.liked = _grown(self.liked, self.liked.shape[0], wide, 0)


def _grown(table: Table, rows: int, wide: int, fill: int) -> Table:
    """The table with at least so many rows and columns; the same one where it has them."""
    have_rows, have = table.shape
    if rows <= have_rows and wide <= have:
        return table
    grown = np.full((max(rows, have_rows), max(wide, have)), fill, dtype=np.int64)
    grown[:have_rows, :have] = table
    return grown


def _number(text: str) -> int:
    """How much a node is liked by this label's value; what is no number is 0."""
    return min(int(text), LIKED_MAX) if text.isdecimal() else 0
