"""Before a pod is bound: its claims that wait for their first consumer get a volume, or are told the node."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Final

from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.nodes import Nodes
from clearway.adapters.kubernetes.volumes import SELECTED_NODE, Choice

BOUND_S: Final = 600
"""How long a volume may be in the making: what kube-scheduler grants by default (bindTimeoutSeconds)."""

LOOK_S: Final = 0.2
"""Pause between two looks at what the watch has brought."""


async def bind_volumes(client: Client, nodes: Nodes, lock: threading.Lock, pod: PodFacts, node: str) -> None:
    """Return once all claims of the pod are bound. Raises ApiError where that cannot be, or takes too long."""
    with lock:
        entry = nodes.entries.get(node)
        choices = () if entry is None else nodes.volumes.choose(pod, entry.facts)
    for choice in choices:
        await _ask(client, choice, node)
    deadline = time.monotonic_ns() + BOUND_S * 1_000_000_000
    while missing := _find_missing(nodes, lock, choices, node):
        if time.monotonic_ns() > deadline:
            raise ApiError(408, "Timeout", f"claim {missing} was not bound within {BOUND_S} s")
        await asyncio.sleep(LOOK_S)


async def _ask(client: Client, choice: Choice, node: str) -> None:
    space, name = choice.claim
    if choice.volume:
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": space, "name": name}
        owner = {"spec": {"claimRef": {**reference, "uid": choice.uid}}}
        await client.patch(f"/api/v1/persistentvolumes/{choice.volume}", owner)
        return
    body = {"metadata": {"uid": choice.uid, "annotations": {SELECTED_NODE: node}}}
    await client.patch(f"/api/v1/namespaces/{space}/persistentvolumeclaims/{name}", body)


def _find_missing(nodes: Nodes, lock: threading.Lock, choices: Sequence[Choice], node: str) -> str:
    """The name of a claim that is not bound yet; "" = all are. Raises ApiError where its provisioner gave it up."""
    with lock:
        for choice in choices:
            if nodes.volumes.is_bound(choice.claim):
                continue
            if not choice.volume and nodes.volumes.was_given_up(choice.claim, node):
                raise ApiError(409, "Conflict", f"no volume can be made for claim {choice.claim[1]} near {node}")
            return choice.claim[1]
    return ""
