"""A gang whose pods ask for different things: launchers beside workers, a head without devices, volumes in other zones.
Pure.

Replicas of one job are equal for the engine, so each kind of pod is a job of its own, a *part*, and the parts are a
convoy: the book binds none of them before every part has been given its places. A part that waits too long for the
others gives its places back and rests, longer each time, so that two convoys do not keep each other waiting for ever.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from clearway.adapters.kubernetes.facts import PodFacts, Term
from clearway.adapters.kubernetes.gangs import Group

PART_MARK: Final = "/part-"
"""Stands between the key of a gang and the kind of its pods."""

PLACE_MARK: Final = "."
"""Stands before where the volumes of a part are, where they make pods of one kind differ."""

Places = tuple[tuple[Term, ...], ...]
PlacesOf = Callable[[PodFacts], Places]

PERMIT_MS: Final = 10_000
"""How long a part keeps its places without the others: several cycles, and short beside what it keeps from others."""

REST_FIRST_MS: Final = 1_000
REST_MAX_MS: Final = 60_000
"""How long it rests then: doubled each time, up to the second."""

PARTS_MAX: Final = 16
"""Kinds of pods in one gang: each is a job. More are a mistake, or not a gang."""


def kind_of(pod: PodFacts) -> str:
    """A short name of what the pod asks for, CPUs and memory apart; the same in every process."""
    return _digest((pod.devices, pod.demand, pod.company, pod.wishes, pod.claim_sources))


def is_mixed(pods: Sequence[PodFacts]) -> bool:
    """Whether the pods of a gang are of several kinds."""
    return any(kind_of(pod) != kind_of(pods[0]) for pod in pods[1:])


def is_scattered(pods: Sequence[PodFacts], places_of: PlacesOf) -> bool:
    """Whether pods of one kind must lie in different places, where their volumes are: then each place is a kind."""
    known: dict[str, Places] = {}
    if not any(pod.claims for pod in pods):
        return False
    return any(known.setdefault(kind_of(pod), places := places_of(pod)) != places for pod in pods)


def part_sizes(gang: Group, pods: Sequence[PodFacts], places_of: PlacesOf | None) -> dict[str, int]:
    """The key of each part, and how many pods it has; the largest first, that with the most devices among equals."""
    devices = Counter[str]()
    sizes = Counter[str]()
    for pod in pods:
        key = part_key(gang, pod, places_of)
        sizes[key] += 1
        devices[key] += pod.devices
    return {key: sizes[key] for key in sorted(sizes, key=lambda key: (-devices[key], -sizes[key], key))}


def part_key(gang: Group, pod: PodFacts, places_of: PlacesOf | None) -> str:
    """The key of the part that the pod is in. places_of: where its volumes are, where that makes kinds of pods."""
    key = f"{gang.key}{PART_MARK}{kind_of(pod)}"
    return key if places_of is None else f"{key}{PLACE_MARK}{_digest(places_of(pod))}"


def names_place(key: str) -> bool:
    """Whether the key of a part says where its volumes are."""
    return PLACE_MARK in key.rpartition(PART_MARK)[2]


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def gang_key(key: str) -> str:
    """The key of the gang of which this is a part; "" = it is no part."""
    gang, mark, _ = key.rpartition(PART_MARK)
    return gang if mark else ""
