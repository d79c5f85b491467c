"""What a job asks beyond devices, one thing at a time; and how much less of it would do."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from clearway.engine.scene import Need
from clearway.engine.state import ClusterState
from clearway.engine.tables import LEVEL_SITE, LEVELS, NONE
from clearway.engine.words import list_in_words, memory_in_words, number_in_words
from clearway.model.plan import ReasonCode
from clearway.model.units import GIB, KIB, MIB, MILLI

NAMES_MAX: Final = 4
"""Nodes or models named in one sentence."""

CPU_UNITS: Final = (MILLI, 1)
MEMORY_UNITS: Final = (GIB, MIB, KIB)
"""Less is proposed as a whole number of these, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much of something a job asks for, where less of it may do.

    less: the same need with another amount. in_words: an amount for people, exact if it is whole in one of `units`.
    """

    asked: int
    units: tuple[int, ...]
    less: Callable[[int], Need]
    in_words: Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Something that a job asks beyond devices, and the same need without it.

    without: how a proposal to do without it begins; of an amount, what the amount is for: `per replica`.
    """

    code: ReasonCode
    text: str
    without: str
    need: Need
    amount: Amount | None = None


def constraints_of(state: ClusterState, need: Need) -> list[Constraint]:
    """All that the need could drop, one thing at a time."""
    found = []

    def add(code: ReasonCode, text: str, without: str, changed: Need, amount: Amount | None = None) -> None:
        found.append(Constraint(code=code, text=text, without=without, need=changed, amount=amount))

    if need.models != NONE and need.devices > 0:
        text = f"needs {models_in_words(state, need)}"
        add(ReasonCode.DEVICE_MODEL, text, "on any device model", replace(need, models=NONE))
    if need.device_memory > 0 and need.devices > 0:
        text = f"needs {memory_in_words(need.device_memory)} on each device"
        amount = _memory(need.device_memory, lambda size: replace(need, device_memory=size))
        add(ReasonCode.RESOURCES, text, "per device", replace(need, device_memory=0), amount)
    if need.labels > 0:
        text, without = requirement_in_words(state, need)
        add(ReasonCode.RESOURCES, text, without, replace(need, labels=0))
    if need.cpu > 0:
        text = f"needs {cpus_in_words(need.cpu)} "
        text += "beside the devices of each replica" if need.devices > 0 else "for each replica"
        add(ReasonCode.RESOURCES, text, "per replica", replace(need, cpu=0), _cpus(need))
    if need.memory > 0:
        text = f"needs {memory_in_words(need.memory)} of memory for each replica"
        amount = _memory(need.memory, lambda size: replace(need, memory=size))
        add(ReasonCode.RESOURCES, text, "of memory per replica", replace(need, memory=0), amount)
    if need.is_exclusive:
        text = "needs nodes of its own"
        add(ReasonCode.RESOURCES, text, "beside other jobs", replace(need, is_exclusive=False))
    if need.widest < LEVEL_SITE and need.replicas > 1:
        text = f"needs all {need.replicas} replicas in one {LEVELS[need.widest]}"
        add(ReasonCode.TOPOLOGY, text, "over a wider domain", replace(need, widest=LEVEL_SITE))
    return found


def _cpus(need: Need) -> Amount:
    def less(milli: int) -> Need:
        return replace(need, cpu=milli)

    return Amount(asked=need.cpu, units=CPU_UNITS, less=less, in_words=cpus_in_words)


def _memory(asked: int, less: Callable[[int], Need]) -> Amount:
    return Amount(asked=asked, units=MEMORY_UNITS, less=less, in_words=_exact_memory_in_words)


def _exact_memory_in_words(size: int) -> str:
    """Bytes in the largest unit of which they are a whole number: never more than they are, unlike a rounded one."""
    names = zip(MEMORY_UNITS, ("GiB", "MiB", "KiB"), strict=True)
    return next((f"{size // unit} {name}" for unit, name in names if size % unit == 0), f"{size} bytes")


def cpus_in_words(milli: int) -> str:
    """Thousandths of CPUs: `1 CPU`, `2.5 CPUs`."""
    return f"{number_in_words(milli)} {'CPU' if milli == MILLI else 'CPUs'}"


def proposal(constraint: Constraint, would_do: Callable[[Need], bool]) -> str:
    """How a proposal begins: to do without the constraint, or with as much less of its amount as `would_do`.

    "" = neither would do. What does with some amount has to do with less of it.
    """
    amount = constraint.amount
    if amount is None:
        return constraint.without if would_do(constraint.need) else ""
    for unit in amount.units:
        fewer = range(unit, amount.asked, unit)
        count = bisect_left(fewer, True, key=lambda some: not would_do(amount.less(some)))
        if count > 0:
            return f"with at most {amount.in_words(count * unit)} {constraint.without}"
    return ""


def models_in_words(state: ClusterState, need: Need) -> str:
    """The allowed device models: `H100 or A100`."""
    names = [name for number, name in enumerate(state.inventory.models.names) if need.models >> number & 1]
    return list_in_words(names, joined_by="or")


def requirement_in_words(state: ClusterState, need: Need) -> tuple[str, str]:
    """What nodes are asked for, and what would be without it: `needs nodes with fabric=infiniband`."""
    wanted = next(wanted for wanted, row in state.inventory.eligibility.requirements.items() if row == need.labels)
    parts = []
    if wanted.labels:
        parts.append(f"with {list_in_words([f'{key}={value}' for key, value in wanted.labels])}")
    if wanted.nodes:
        parts.append(f"named {nodes_in_words(list(wanted.nodes))}")
    if wanted.excluded:
        parts.append(f"other than {nodes_in_words(list(wanted.excluded))}")
    is_named = wanted.nodes or wanted.excluded
    return f"needs nodes {', '.join(parts)}", "on any node" if is_named else "on nodes without these labels"


def nodes_in_words(nodes: list[str]) -> str:
    """Their names, of which the first few are told: `n1, n2, n3, n4 and 12 more`."""
    rest = len(nodes) - NAMES_MAX
    return list_in_words([*nodes[:NAMES_MAX], f"{rest} more"] if rest > 0 else nodes)
