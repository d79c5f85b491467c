"""The checker's part about neighbours: whether what a plan starts may lie beside what lies there, and it beside itself.

It reads the tables of `crowds` and judges replica by replica, in the order of the plan, with code of its own.
"""

import numpy as np
from numpy.typing import NDArray

from clearway.engine.records import JobRecord
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    CLASS_RULES_BEGIN,
    CLASS_RULES_END,
    CLASS_SOCIAL,
    JOB_CLASS,
    NONE,
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
from clearway.model.plan import Migrate, Plan, Reserve, Resize, Start

EMPTY_DOMAIN = 1 << 40
"""Counts from here on are those of domains without nodes."""

IntArray = NDArray[np.int64]


def check_neighbours(state: ClusterState, plan: Plan) -> list[str]:
    """A note for each job that the plan starts where its rules forbid it; [] at once where nobody has any."""
    if state.inventory.crowds.rule_count == 0:
        return []
    ledger = _Ledger(state)
    notes = []
    for move in plan.moves:
        record = state.jobs.get(move.job) if isinstance(move, Start | Resize | Migrate | Reserve) else None
        if record is None or not state.classes.table[CLASS_SOCIAL, state.rows.table[JOB_CLASS, record.row]]:
            continue
        assert isinstance(move, Start | Resize | Migrate | Reserve)
        claim = state.claims.get(record.row)
        if isinstance(move, Start) and claim is not None and claim.allocation == move.allocation:
            continue  # it counts there since the claim was made
        nodes = _new_nodes(record, move)
        if isinstance(move, Reserve):  # what is there leaves first
            ledger.join_all(record, nodes)
        elif not ledger.may_join_all(record, nodes):
            notes.append(f"job {move.job}: its rules about neighbours forbid where it is put")
    return notes


def _new_nodes(record: JobRecord, move: Start | Resize | Migrate | Reserve) -> list[int]:
    """The node of each replica that the move adds."""
    nodes: list[int] = move.allocation.nodes.tolist()
    if isinstance(move, Resize) and record.allocation is not None:
        held = set(record.allocation.devices.tolist())
        first = move.allocation.devices.reshape(len(nodes), -1)[:, 0].tolist()
        nodes = [node for node, device in zip(nodes, first, strict=True) if device not in held]
    return nodes


class _Ledger:
    """Counts of crowds as the plan's earlier moves left them. Lines are copied when one is first changed."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._crowds = state.inventory.crowds
        self._lines: dict[int, IntArray] = {}

    def _line(self, tally: int) -> IntArray:
        line = self._lines.get(tally)
        return self._crowds.counts[tally] if line is None else line

    def _rules(self, record: JobRecord) -> list[list[int]]:
        column = self._state.classes.table[:, self._state.rows.table[JOB_CLASS, record.row]]
        rules: list[list[int]] = self._crowds.rules[:, column[CLASS_RULES_BEGIN] : column[CLASS_RULES_END]].T.tolist()
        return rules

    def may_join_all(self, record: JobRecord, nodes: list[int]) -> bool:
        """Whether one replica after the other may lie on its node; all are counted in the end."""
        rules = self._rules(record)
        is_allowed = True
        for node in nodes:
            is_allowed = is_allowed and all(self._holds(rule, node) for rule in rules)
            self._join(rules, node)
        return is_allowed

    def join_all(self, record: JobRecord, nodes: list[int]) -> None:
        """Count replicas on these nodes."""
        rules = self._rules(record)
        for node in nodes:
            self._join(rules, node)

    def _holds(self, rule: list[int], node: int) -> bool:
        kind, tally = rule[RULE_KIND], rule[RULE_TALLY]
        if kind == RULE_MEMBER or rule[RULE_WEIGHT] != 0:
            return True
        domain, line = int(self._crowds.domains[tally, node]), self._line(tally)
        if domain == NONE:
            return kind == RULE_APART
        there = int(line[domain])
        if kind == RULE_APART:
            return there == 0
        if kind == RULE_ROOM:
            return there + rule[RULE_SKEW] <= 0
        lying = line[line < EMPTY_DOMAIN]
        if kind == RULE_BESIDE:
            return there > 0 or (bool(rule[RULE_SELF]) and not lying.any())
        least = int(lying.min()) if len(lying) >= rule[RULE_DOMAINS_MIN] else 0
        return there + rule[RULE_SELF] - least <= rule[RULE_SKEW]

    def _join(self, rules: list[list[int]], node: int) -> None:
        for rule in rules:
            if rule[RULE_KIND] != RULE_MEMBER:
                continue
            tally = rule[RULE_TALLY]
            while tally != NONE:
                domain = int(self._crowds.domains[tally, node])
                if domain != NONE:
                    self._lines.setdefault(tally, self._crowds.counts[tally].copy())[domain] += rule[RULE_SKEW]
                tally = int(self._crowds.tallies[TALLY_NEXT, tally])
