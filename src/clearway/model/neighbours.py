"""Rules about what else lies where a replica goes: apart from some, beside some, evenly spread. Frozen values.

A *crowd* is a named set of replicas: those of every request that names it in `Request.crowds`, and those that a node
says others hold there (`NodeSpec.crowds`). Rules speak of crowds and of domains; a domain is all nodes with the same
value of one node label. They are judged when a replica is placed, one replica of a gang after the other, and never
again: what runs is not moved because neighbours came or went. (Inter-pod affinity and topology spread constraints of
Kubernetes are such rules.)
"""

from dataclasses import dataclass
from enum import StrEnum


class NeighbourKind(StrEnum):
    """APART: none of the crowd lies in the domain. BESIDE: at least one does; where none lies anywhere, the first
    replica of the crowd itself may begin. EVEN: with this replica the domain has at most `skew` more of the crowd
    than the domain with the fewest."""

    APART = "apart"
    BESIDE = "beside"
    EVEN = "even"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourRule:
    """One rule. crowd: of whom it speaks. domain: the node label whose values are the domains; on a node without it
    APART holds, BESIDE and EVEN do not.

    skew, domains_min: for EVEN; with fewer domains than `domains_min` the fewest counts as none.
    weight: 0 = required; else a wish, heavier ones first.
    """

    kind: NeighbourKind
    crowd: str
    domain: str
    skew: int = 1
    domains_min: int = 1
    weight: int = 0

    def __post_init__(self) -> None:
        assert self.skew >= 1
        assert self.weight >= 0
