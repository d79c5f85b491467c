"""What the engine counts on a node beside CPUs, memory and devices: other resources, and host ports. Pure.

A host port is a crowd of its own: of all who ask for it, and of those who ask for it at one address.
"""

from collections.abc import Iterable
from typing import Final

from clearway.adapters.kubernetes.facts import Amounts, Demand
from clearway.adapters.kubernetes.parse import PODS
from clearway.model.neighbours import NeighbourKind, NeighbourRule

EVERY: Final = "0.0.0.0"  # noqa: S104 - an address as pods name it
"""All addresses of a node."""


def extras_of(demand: Demand) -> Amounts:
    """Resources that are counted by the engine. Room for pods is not, for every pod asks for it."""
    return tuple((name, amount) for name, amount in demand.others if name != PODS)


def port_crowds(demand: Demand) -> tuple[str, ...]:
    """Crowds that a pod with host ports is in, for rules of others."""
    names = ((_crowd(port, protocol), _crowd(port, protocol, address)) for port, protocol, address in demand.ports)
    return tuple(sorted({name for pair in names for name in pair}))


def keep_ports_apart(demand: Demand, domain: str) -> Iterable[NeighbourRule]:
    """A rule for each host port: no two pods with it on one node, unless at different addresses."""
    crowds = dict.fromkeys(
        crowd
        for port, protocol, address in demand.ports
        for crowd in (
            (_crowd(port, protocol),)
            if address == EVERY
            else (_crowd(port, protocol, EVERY), _crowd(port, protocol, address))
        )
    )
    return (NeighbourRule(kind=NeighbourKind.APART, crowd=crowd, domain=domain) for crowd in sorted(crowds))


def _crowd(port: int, protocol: str, address: str = "") -> str:
    return f"host port {port}/{protocol}" + (f" at {address}" if address else "")
