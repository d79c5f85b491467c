"""A gang whose pods ask for different things: launchers beside workers, a head without devices. Pure.

Replicas of one job are equal for the engine, so each kind of pod is a job of its own, a *part*, and the parts are a
convoy: the book binds none of them before every part has been given its places. A part that waits too long for the
others gives its places back and rests, longer each time, so that two convoys do not keep each other waiting for ever.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import Group

PART_MARK: Final = "/part-"
"""Stands between the key of a gang and the kind of its pods."""

PERMIT_MS: Final = 10_000
"""How long a part keeps its places without the others: several cycles, and short beside what it keeps from others."""

REST_FIRST_MS: Final = 1_000
REST_MAX_MS: Final = 60_000
"""How long it rests then: doubled each time, up to the second."""

PARTS_MAX: Final = 16
"""Kinds of pods in one gang: each is a job. More are a mistake, or not a gang."""


def kind_of(pod: PodFacts) -> str:
    """A short name of what the pod asks for, CPUs and memory apart; the same in every process."""
    asked = pod.devices, pod.demand, pod.company, pod.wishes, pod.claim_sources
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:12]


def is_mixed(pods: Sequence[PodFacts]) -> bool:
    """Whether the pods of a gang are of several kinds."""
    return any(kind_of(pod) != kind_of(pods[0]) for pod in pods[1:])


def part_sizes(gang: Group, pods: Sequence[PodFacts]) -> dict[str, int]:
    """The key of each part, and how many pods it has; the largest first, that with the most devices among equals."""
    devices = Counter[str]()
    sizes = Counter[str]()
    for pod in pods:
        key = part_key(gang, pod)
        sizes[key] += 1
        devices[key] += pod.devices
    return {key: sizes[key] for key in sorted(sizes, key=lambda key: (-devices[key], -sizes[key], key))}


def part_key(gang: Group, pod: PodFacts) -> str:
    """The key of the part that the pod is in."""
    return f"{gang.key}{PART_MARK}{kind_of(pod)}"


def gang_key(key: str) -> str:
    """The key of the gang of which this is a part; "" = it is no part."""
    gang, mark, _ = key.rpartition(PART_MARK)
    return gang if mark else ""
