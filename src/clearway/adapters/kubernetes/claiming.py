"""Claims on devices are written before their pods are bound, as kube-scheduler does it: the finalizer that keeps a
claim while it has devices, then its devices and whom they are for, in one status."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from clearway.adapters.kubernetes.claims import Choice, Claims
from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.errors import ApiError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.parse_claims import Key

Json = dict[str, Any]

FINALIZER: Final = "resource.kubernetes.io/delete-protection"

TRIES: Final = 10
"""Against others that change a claim meanwhile; its controllers do so once or twice."""

CONFLICT: Final = 409
NOT_FOUND: Final = 404


async def write_claims(client: Client, claims: Claims, lock: threading.Lock, pod: PodFacts) -> None:
    """Return once each of the pod's claims has its devices and is for the pod. Raises ApiError where that cannot be."""
    with lock:
        found = claims.send(pod)
        configs = {name: claims.configs_of(name) for name in claims.classes}
    for key, choice in found:
        try:
            await _change(client, key, partial(_give, choice=choice, pod=pod, configs=configs))
        except ApiError:
            with lock:
                claims.take_back(key)
            raise


async def take_back_claims(client: Client, pod: PodFacts, keys: Sequence[Key]) -> None:
    """Claims that have devices for this pod alone have none any more."""
    for key in keys:
        try:
            await _change(client, key, lambda claim: _take(claim, pod))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise


async def _change(client: Client, key: Key, change: Callable[[Json], Json | None]) -> None:
    """Have a claim changed by `change`, which says what it is to be, None = it is right; looked at anew each time."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{key[0]}/resourceclaims/{key[1]}"
    for _ in range(TRIES):
        claim = await client.get(path)
        changed = change(claim)
        if changed is None:
            return
        try:
            if changed["metadata"].get("finalizers") != claim["metadata"].get("finalizers"):
                kept = await client.put(path, {**claim, "metadata": changed["metadata"]})
                changed = {**kept, "status": changed["status"]}
            await client.put(f"{path}/status", changed)
            return
        except ApiError as error:
            if error.status != CONFLICT:
                raise
    raise ApiError(CONFLICT, "Conflict", f"claim {key[1]} is changed by others again and again")


def _give(claim: Json, choice: Choice | None, pod: PodFacts, configs: Mapping[str, Sequence[Any]]) -> Json | None:
    metadata, status = claim["metadata"], dict(claim.get("status") or {})
    if "deletionTimestamp" in metadata:
        raise ApiError(CONFLICT, "Conflict", f"claim {metadata['name']} is being deleted")
    there = status.get("allocation")
    if there is None and choice is None:
        raise ApiError(CONFLICT, "Conflict", f"claim {metadata['name']} has no devices any more")
    if there is not None and choice is not None and _results(there) != sorted(choice.results):
        raise ApiError(CONFLICT, "Conflict", f"claim {metadata['name']} was given other devices meanwhile")
    users = list(status.get("reservedFor") or ())
    if there is not None and any(one["uid"] == pod.uid for one in users):
        return None
    if there is None and choice is not None:
        status["allocation"] = make_allocation(claim, choice, configs)
        metadata = {**metadata, "finalizers": sorted({*(metadata.get("finalizers") or ()), FINALIZER})}
    status["reservedFor"] = [*users, {"resource": "pods", "name": pod.name, "uid": pod.uid}]
    return {**claim, "metadata": metadata, "status": status}


def _take(claim: Json, pod: PodFacts) -> Json | None:
    status = dict(claim.get("status") or {})
    if [one["uid"] for one in status.get("reservedFor") or ()] != [pod.uid]:
        return None
    return {
        **claim,
        "status": {key: value for key, value in status.items() if key not in ("allocation", "reservedFor")},
    }


def _results(allocation: Json) -> list[tuple[str, tuple[str, str, str]]]:
    found = allocation.get("devices", {}).get("results") or ()
    return sorted((one["request"], (one["driver"], one["pool"], one["device"])) for one in found)


def make_allocation(claim: Json, choice: Choice, configs: Mapping[str, Sequence[Any]]) -> Json:
    """`status.allocation`: the devices, what class and claim say to their drivers, and the node."""
    spec = claim["spec"]["devices"]
    asked: dict[str, list[str]] = {}
    for request in spec["requests"]:
        asked.setdefault(request["exactly"]["deviceClassName"], []).append(request["name"])
    of_class = [
        {**config, "source": "FromClass", "requests": names}
        for name, names in asked.items()
        for config in configs.get(name, ())
    ]
    of_claim = [{**config, "source": "FromClaim"} for config in spec.get("config") or ()]
    results = [
        {"request": request, "driver": driver, "pool": pool, "device": device}
        for request, (driver, pool, device) in choice.results
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [choice.node]}
    return {
        "devices": {"results": results, **({"config": [*of_class, *of_claim]} if of_class or of_claim else {})},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
