"""Whether a waiting job may still lie where devices are kept for it, by its rules about neighbours.

Others come and go while those leave who make room. A rule that nobody be near, and one about what a node has, can only
be broken by who comes there; one that wants somebody near, or all spread evenly, by anybody anywhere.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearway.engine.budgets import is_leaving
from clearway.engine.neighbours import NOWHERE
from clearway.engine.records import JobRecord
from clearway.engine.tables import (
    CLASS_RULES_BEGIN,
    CLASS_RULES_END,
    CLASS_SOCIAL,
    JOB_CLASS,
    JOB_PHASE,
    NONE,
    PHASE_RUNNING,
    RULE_APART,
    RULE_BESIDE,
    RULE_DOMAINS_MIN,
    RULE_KIND,
    RULE_MEMBER,
    RULE_ROOM,
    RULE_SELF,
    RULE_SKEW,
    RULE_TALLY,
    RULE_WEIGHT,
    TALLY_NEXT,
)
from clearway.model.allocation import Allocation
from clearway.model.jobs import Request
from clearway.model.neighbours import NeighbourKind

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

IntArray = NDArray[np.int64]


def is_fickle(request: Request) -> bool:
    """Whether others that come or go anywhere could forbid, before those who make room have left, what was found."""
    return any(rule.kind is not NeighbourKind.APART and rule.weight == 0 for rule in request.neighbours)


def leaving_jobs(state: "ClusterState") -> list[JobRecord]:
    """Those that were told to leave and still hold devices."""
    rows = state.holding_rows()
    rows = rows[state.rows.table[JOB_PHASE, rows] != PHASE_RUNNING]
    records = [state.by_row[row] for row in rows.tolist()]
    return [record for record in records if record.allocation is not None and is_leaving(record)]


def drop_fallen_claims(state: "ClusterState") -> None:
    """Give up the claims of jobs that could not start where they are to, once all have left that were told to."""
    leaving: list[JobRecord] | None = None
    for row, claim in list(state.claims.items()):
        if state.by_row[row].spec.request.neighbours:
            leaving = leaving_jobs(state) if leaving is None else leaving
            if not may_stand(state, row, claim.allocation, leaving):
                state.unclaim(row)


def may_stand(state: "ClusterState", row: int, allocation: Allocation, leaving: Iterable[JobRecord] = ()) -> bool:
    """Whether the job, for which `allocation` is kept, may lie there by its rules; as if those `leaving` had left."""
    if not state.classes.table[CLASS_SOCIAL, state.rows.table[JOB_CLASS, row]]:
        return True
    counts = _Counts(state)
    rules = counts.rules_of(row)
    nodes: list[int] = allocation.nodes.tolist()
    for node in nodes:
        counts.join(rules, node, -1)
    for record in leaving:
        assert record.allocation is not None
        theirs = counts.rules_of(record.row)
        for node in record.allocation.nodes.tolist():
            counts.join(theirs, node, -1)
        for node in [] if record.target is None else record.target.nodes.tolist():
            counts.join(theirs, node, 1)
    for node in nodes:
        if not all(counts.allow(rule, node) for rule in rules):
            return False
        counts.join(rules, node, 1)
    return True


class _Counts:
    """The tallies, with changes that are not written there."""

    def __init__(self, state: "ClusterState") -> None:
        self._state = state
        self._crowds = state.inventory.crowds
        self._changed: dict[int, IntArray] = {}

    def rules_of(self, row: int) -> list[list[int]]:
        column = self._state.classes.table[:, self._state.rows.table[JOB_CLASS, row]]
        begin, end = int(column[CLASS_RULES_BEGIN]), int(column[CLASS_RULES_END])
        rules: list[list[int]] = self._crowds.rules[:, begin:end].T.tolist()
        return rules

    def join(self, rules: list[list[int]], node: int, sign: int) -> None:
        """A replica with these rules comes to the node (1) or leaves it (-1)."""
        for rule in rules:
            tally = rule[RULE_TALLY] if rule[RULE_KIND] == RULE_MEMBER else NONE
            while tally != NONE:
                domain = int(self._crowds.domains[tally, node])
                if domain != NONE:
                    line = self._changed.setdefault(tally, self._crowds.counts[tally].copy())
                    line[domain] += sign * rule[RULE_SKEW]
                tally = int(self._crowds.tallies[TALLY_NEXT, tally])

    def allow(self, rule: list[int], node: int) -> bool:
        """Whether a rule lets one more replica lie on the node."""
        kind, tally = rule[RULE_KIND], rule[RULE_TALLY]
        if kind == RULE_MEMBER or rule[RULE_WEIGHT]:
            return True
        line = self._changed.get(tally, self._crowds.counts[tally])
        domain = int(self._crowds.domains[tally, node])
        if domain == NONE:
            return bool(kind == RULE_APART)
        there = int(line[domain])
        if kind == RULE_ROOM:
            return there + rule[RULE_SKEW] <= 0
        if kind == RULE_APART:
            return there <= 0
        counted = line[line < NOWHERE // 2]
        if kind == RULE_BESIDE:
            return there > 0 or (rule[RULE_SELF] == 1 and not (counted > 0).any())
        least = int(counted.min()) if len(counted) >= rule[RULE_DOMAINS_MIN] else 0
        return there + rule[RULE_SELF] - least <= rule[RULE_SKEW]
