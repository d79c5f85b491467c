"""What is watched, and how objects are taken in that only say something about pods and nodes."""

from collections.abc import Callable
from threading import Lock
from typing import Final

from clearway.adapters.kubernetes.client import Change, Json

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
OTHERS: Final = (
    "/api/v1/namespaces",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/resourcequotas",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
"""Objects that say something about pods and nodes; who may not read them does without, and says so in its log."""

READY_S: Final = 60.0
"""How long the first lists may take before a start is given up."""

Takers = tuple[Callable[[list[Json]], None], Callable[[Change], None]]
"""What takes in a list, and, under the lock, a change."""


def make_takers(path: str, lock: Lock, put: Callable[[str, Change], None]) -> Takers:
    """Takers of one of `OTHERS`, which hand each object on, those too that are in a list no more. put: is given the
    last part of `path`, under the lock."""
    kind = path.rpartition("/")[2]
    known: dict[str, Json] = {}

    def take_list(items: list[Json]) -> None:
        there = {data["metadata"]["uid"] for data in items}
        with lock:
            for uid in [uid for uid in known if uid not in there]:
                put(kind, Change("DELETED", known.pop(uid), ""))
            for data in items:
                take(Change("ADDED", data, ""))

    def take(change: Change) -> None:
        if change.kind == "DELETED":
            known.pop(change.data["metadata"]["uid"], None)
        else:
            known[change.data["metadata"]["uid"]] = change.data
        put(kind, change)

    return take_list, take
