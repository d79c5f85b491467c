"""What is kept of each node, and what pods want of nodes: plain values."""

from collections import Counter
from dataclasses import dataclass, field

from clearway.adapters.kubernetes.facts import Amounts, NodeFacts, PodFacts
from clearway.model.cluster import NodeSpec
from clearway.model.ids import NodeName
from clearway.model.neighbours import NeighbourRule
from clearway.model.units import MILLI

Counted = tuple[int, int]
"""CPUs in thousandths, and bytes of memory."""

ALIAS_MARK = "~"
"""Stands between a node's name and its number where it came again with other devices; no node's name has it."""


def real_name(name: NodeName) -> str:
    """The name of a node in Kubernetes."""
    return name.partition(ALIAS_MARK)[0]


@dataclass(frozen=True, slots=True)
class Wants:
    """Where pods may lie and would rather, as the engine knows it: the label of nodes that admit them, crowds that they
    are in, rules about neighbours, and the label by which nodes are liked ("" = all alike). devices, models: what each
    of them holds, and of which models it may be (() = any); of one device, what part and how much memory. extras: what
    else each asks of its node that is counted there."""

    label: tuple[str, str]
    crowds: tuple[str, ...] = ()
    rules: tuple[NeighbourRule, ...] = ()
    liked: str = ""
    devices: int = 0
    models: tuple[str, ...] = ()
    share_milli: int = MILLI
    device_memory_bytes: int = 0
    extras: Amounts = ()


@dataclass(slots=True)
class NodeEntry:
    """A node: what is known, what lies on it, and what the engine was told.

    pods: by uid. used: what all of them ask. lasting: mismatches of demands that last as long as the node is as it is,
    by label. held: device indices of Clearway's runs, by job. counted: replicas that the engine counts here in each
    crowd, by job. alias: its name for the engine. told: the spec that
    the engine knows, None = nothing. told_down: devices told to be down. told_silent: it was told to be down.
    """

    facts: NodeFacts
    alias: NodeName
    pods: dict[str, PodFacts] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    lasting: dict[tuple[str, str], str] = field(default_factory=dict)
    held: dict[int, list[int]] = field(default_factory=dict)
    counted: dict[int, Counter[str]] = field(default_factory=dict)
    aliases: int = 0
    told: NodeSpec | None = None
    told_down: set[int] = field(default_factory=set)
    told_silent: bool = False
    is_gone: bool = False


def weighs_the_same(one: PodFacts, other: PodFacts) -> bool:
    """Whether it is the same for its node and for its neighbours."""
    return (
        one.amounts == other.amounts
        and one.demand == other.demand
        and one.marks == other.marks
        and one.company == other.company
        and one.held == other.held
        and one.is_leaving == other.is_leaving
    )


def alias_number(name: NodeName) -> int:
    """How often the node of this name had come."""
    _, _, number = name.partition(ALIAS_MARK)
    return int(number) if number else 1


def next_alias(entry: NodeEntry) -> NodeName:
    """Under which name the node comes now; it counts."""
    entry.aliases += 1
    name = entry.facts.name
    return NodeName(name if entry.aliases == 1 else f"{name}{ALIAS_MARK}{entry.aliases}")
