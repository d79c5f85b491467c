"""Objects of `resource.k8s.io/v1` (dynamic resource allocation) to facts. Pure; raises KeyError and the like where an
object is not what the API promises.

Read here: whole devices that lie on one node, and claims for an exact number of them. What a claim asks beyond that
stands in `ClaimFacts.fault`; devices that need more than to be named (counters, conditions to wait for) are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clearway.adapters.kubernetes.cel import (
    Device,
    EvaluationError,
    Quantity,
    compile_selector,
    parse_quantity,
    parse_version,
)
from clearway.adapters.kubernetes.errors import UnsupportedError
from clearway.adapters.kubernetes.facts import Ask, Term, Wish
from clearway.adapters.kubernetes.parse_company import parse_term

Json = Mapping[str, Any]

Key = tuple[str, str]
"""Namespace and name of a claim."""

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""

NAMING: Final = ("productName", "model", "type", "profile")
"""Attributes by which vendors tell their products apart; devices that differ in one of them are of different models."""

COUNT_MAX: Final = 32
"""Devices of one claim, as the API limits its results."""

_KEEPING_OFF: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device of a node. model: driver and product. view: what selectors see. memory_bytes: 0 = it does not say.
    is_off: it is there, and a taint keeps claims off."""

    id: DeviceId
    model: str
    view: Device
    memory_bytes: int = 0
    is_off: bool = False


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """Some devices of a pool. node: "" = they are not of one node. count: slices of this generation of the pool."""

    name: str
    node: str
    pool: tuple[str, str]
    generation: int
    count: int
    devices: tuple[DeviceFacts, ...]


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """One claim. fault: what it asks that is not given out here, "" = nothing. devices: what it has, None = it is not
    allocated. places: terms on nodes, one of which holds where they can be reached. users: uids of pods that have them.
    """

    key: Key
    uid: str
    wish: Wish
    fault: str = ""
    devices: tuple[DeviceId, ...] | None = None
    places: tuple[Term, ...] = ()
    users: tuple[str, ...] = ()
    is_leaving: bool = False


def parse_slice(data: Json) -> SliceFacts:
    """A ResourceSlice."""
    spec = data["spec"]
    driver, pool = spec["driver"], spec["pool"]
    return SliceFacts(
        name=data["metadata"]["name"],
        node=spec.get("nodeName") or "",
        pool=(driver, pool["name"]),
        generation=int(pool.get("generation") or 0),
        count=int(pool.get("resourceSliceCount") or 1),
        devices=tuple(_parse_device(one, driver, pool["name"]) for one in spec.get("devices") or () if _is_plain(one)),
    )


def _is_plain(data: Json) -> bool:
    """Whether a device is whole, and there for whoever is given its name."""
    return not any(
        data.get(key) for key in ("consumesCounters", "bindingConditions", "nodeAllocatableResourceMappings")
    )


def _parse_device(data: Json, driver: str, pool: str) -> DeviceFacts:
    attributes: dict[str, dict[str, Any]] = {driver: {}}
    for name, value in (data.get("attributes") or {}).items():
        domain, short = _split(name, driver)
        found = _parse_attribute(value)
        if found is not None:
            attributes.setdefault(domain, {})[short] = found
    capacity: dict[str, dict[str, Quantity]] = {driver: {}}
    for name, value in (data.get("capacity") or {}).items():
        domain, short = _split(name, driver)
        capacity.setdefault(domain, {})[short] = parse_quantity(value["value"])
    said = [str(attributes[driver][key]) for key in NAMING if key in attributes[driver]]
    return DeviceFacts(
        id=(driver, pool, data["name"]),
        model="/".join([driver, *said]),
        view=Device(driver, attributes, capacity),
        memory_bytes=capacity[driver].get("memory", Quantity(0)).amount,
        is_off=any(taint.get("effect") in _KEEPING_OFF for taint in data.get("taints") or ()),
    )


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, _, short = name.rpartition("/")
    return domain or driver, short


def _parse_attribute(data: Json) -> Any:
    """A value, or None for one of a kind that selectors cannot be asked about here."""
    if "version" in data:
        try:
            return parse_version(data["version"])
        except EvaluationError:
            return None
    return next((data[key] for key in ("string", "int", "bool") if key in data), None)


def parse_selectors(spec: Json) -> tuple[str, ...]:
    """The texts of selectors, of a DeviceClass or a request."""
    return tuple(one["cel"]["expression"] for one in spec.get("selectors") or ())


def find_selector_fault(texts: Iterable[str]) -> str:
    """What of these selectors is not evaluated here; "" = nothing."""
    try:
        for text in texts:
            compile_selector(text)
    except UnsupportedError as error:
        return str(error)
    return ""


def parse_claim(data: Json) -> ClaimFacts:
    """A ResourceClaim."""
    metadata, status = data["metadata"], data.get("status") or {}
    devices = data["spec"].get("devices") or {}
    allocation = status.get("allocation")
    wish, fault = _parse_wish(devices)
    selector = (allocation or {}).get("nodeSelector") or {}
    return ClaimFacts(
        key=(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        wish=wish,
        fault=fault,
        devices=None if allocation is None else tuple(_find_results(allocation)),
        places=tuple(parse_term(term) for term in selector.get("nodeSelectorTerms") or ()),
        users=tuple(one["uid"] for one in status.get("reservedFor") or ()),
        is_leaving="deletionTimestamp" in metadata,
    )


def _find_results(allocation: Json) -> Iterable[DeviceId]:
    for one in (allocation.get("devices") or {}).get("results") or ():
        if not one.get("adminAccess"):
            yield one["driver"], one["pool"], one["device"]


def _parse_wish(devices: Json) -> tuple[Wish, str]:
    asks, fault = [], ""
    requests = devices.get("requests") or ()
    for request in requests:
        exactly = request.get("exactly")
        if exactly is None:
            fault = fault or f"request {request['name']!r} with alternatives (firstAvailable)"
            continue
        fault = fault or _find_fault(request["name"], exactly)
        count = int(exactly.get("count") or 1)
        asks.append(Ask(request["name"], exactly["deviceClassName"], parse_selectors(exactly), count))
    names = {request["name"] for request in requests}
    alike = []
    for one in devices.get("constraints") or ():
        if not one.get("matchAttribute") or set(one.get("requests") or names) != names:
            fault = fault or "constraints other than matchAttribute over all requests"
        else:
            alike.append(one["matchAttribute"])
    return Wish(tuple(asks), tuple(alike)), fault


def _find_fault(name: str, request: Json) -> str:
    if (request.get("allocationMode") or "ExactCount") != "ExactCount":
        return f"request {name!r} for all devices (allocationMode: {request['allocationMode']})"
    for key in ("adminAccess", "capacity"):
        if request.get(key):
            return f"request {name!r} with {key}"
    if int(request.get("count") or 1) > COUNT_MAX:
        return f"request {name!r} for more than {COUNT_MAX} devices"
    return find_selector_fault(parse_selectors(request))
