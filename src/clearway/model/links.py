"""What a collective operation costs by where its members lie, from the bandwidth and latency of the links of a cluster.

The model is that of α and β (Thakur, Rabenseifner and Gropp, IJHPCA 2005): a ring of n members passes 2 (n − 1)
messages, and 2 (n − 1) / n of the data. It is a ring within each node, and one over the nodes for each device of a
node, through the narrowest domain that holds them. One model for planner and twin. Nothing is known of a program's own
traffic, so it is that of a typical one; what matters is how much slower one placement is than another.
"""

from collections.abc import Mapping
from typing import Final

from clearway.model.cluster import LinkSpec
from clearway.model.jobs import DomainLevel
from clearway.model.units import GIB, SECOND_MS

EXCHANGED_BYTES: Final = 4 * GIB
"""Gradients of a model of two billion parameters in two bytes each: what is trained on a few nodes."""
STEP_MS: Final = SECOND_MS
"""Time in which they are worked out; large models take about so long for a batch."""

Links = Mapping[str, LinkSpec]
"""By `DomainLevel`."""

LEVELS: Final = tuple(DomainLevel)
"""From narrow to wide."""


def link_at(links: Links, level: DomainLevel) -> LinkSpec | None:
    """The link of a level. One that is not given is like the next narrower one that is, else the next wider."""
    place = LEVELS.index(level)
    nearest = (*reversed(LEVELS[: place + 1]), *LEVELS[place + 1 :])
    return next((links[one] for one in nearest if one in links), None)


def all_reduce_ms(links: Links, level: DomainLevel, nodes: int, per_node: int) -> float:
    """Time of one all-reduce of EXCHANGED_BYTES by `per_node` members on each of `nodes` nodes. level: the narrowest
    domain that holds all nodes. 0 without links."""
    inside = _ring_ms(link_at(links, DomainLevel.NODE), per_node, EXCHANGED_BYTES)
    return inside + _ring_ms(link_at(links, level), nodes, EXCHANGED_BYTES / max(per_node, 1))


def pace_of(links: Links, level: DomainLevel, nodes: int, per_node: int) -> float:
    """Speed as a part of that with links that cost nothing."""
    return STEP_MS / (STEP_MS + all_reduce_ms(links, level, nodes, per_node))


def _ring_ms(link: LinkSpec | None, members: int, size_bytes: float) -> float:
    if link is None or members < 2:
        return 0.0
    hops = 2 * (members - 1)
    return hops * link.latency_us / 1e3 + hops / members * size_bytes / (link.bandwidth_gbps * 1e6)
