"""Claims on devices (dynamic resource allocation): who has which device, and which devices a pod's claims can have.

The API server keeps what was allocated; nobody there looks whether a device was given out twice, that is the
scheduler's part. So what is chosen here counts from the moment it is chosen, and what was sent to be written counts
until the claim says what it has. The engine counts devices of the drivers that `KubernetesConfig.device_drivers` names,
by node and model; any other device (a network card) is only judged here. No I/O.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from clearway.adapters.kubernetes.cel import EvaluationError, compile_selector
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import Ask, Expression, PodFacts, Term, Wish
from clearway.adapters.kubernetes.parse_claims import (
    ClaimFacts,
    DeviceFacts,
    DeviceId,
    Key,
    SliceFacts,
    find_selector_fault,
    parse_claim,
    parse_selectors,
    parse_slice,
)
from clearway.model.units import DEVICES_PER_MODEL_MAX

Json = Mapping[str, Any]

KINDS: Final = ("resourceslices", "deviceclasses", "resourceclaims")

CANNOT: Final = "cannot allocate all claims"
"""In the words of kube-scheduler's plugin DynamicResources."""

NEEDS_MAX: Final = 10_000
"""Kinds of wishes of which it is remembered what the engine is to count for them."""


@dataclass(frozen=True, slots=True)
class Need:
    """What the engine counts of a pod's claims: so many devices, of one of these models."""

    devices: int = 0
    models: tuple[str, ...] = ()


@dataclass(slots=True)
class Choice:
    """Devices that were chosen for a claim which has none yet. pod: for whose sake. results: device by request, in the
    order of the claim. is_sent: it may stand in the API server by now."""

    key: Key
    pod: str
    node: str
    results: tuple[tuple[str, DeviceId], ...]
    is_sent: bool = False


class Claims:
    """Slices, classes and claims as they were last seen, and what was chosen."""

    def __init__(self, drivers: Sequence[str]) -> None:
        self._drivers = tuple(drivers)
        self._slices: dict[str, SliceFacts] = {}
        self._of_node: dict[str, set[str]] = {}
        self._classes: dict[str, tuple[str, ...]] = {}
        self._class_configs: dict[str, tuple[Json, ...]] = {}
        self._claims: dict[Key, ClaimFacts] = {}
        self._owners: dict[DeviceId, Key] = {}
        self._places: dict[DeviceId, str] = {}
        self._choices: dict[Key, Choice] = {}
        self._devices: dict[str, tuple[DeviceFacts, ...]] = {}
        self._matches: dict[str, dict[tuple[str, tuple[str, ...]], tuple[DeviceFacts, ...]]] = {}
        self._needs: dict[tuple[Wish, ...], Need] = {}

    # --- what was seen ----------------------------------------------------------------------------------------------

    def put(self, kind: str, data: Json, *, is_gone: bool) -> set[str]:
        """An object of this kind was seen, or is gone; returns the nodes on which something may be otherwise now.
        Raises UnreadableError."""
        try:
            match kind:
                case "resourceslices":
                    return self._put_slice(parse_slice(data), is_gone=is_gone)
                case "deviceclasses":
                    return self._put_class(data, is_gone=is_gone)
            return self._put_claim(parse_claim(data), is_gone=is_gone)
        except (KeyError, TypeError, AttributeError, ValueError, EvaluationError) as error:
            raise UnreadableError(f"{kind}: expected an object as the API describes it, found {error!r}") from error

    def _put_slice(self, facts: SliceFacts, *, is_gone: bool) -> set[str]:
        before = self._slices.pop(facts.name, None)
        if before == facts and not is_gone:
            self._slices[facts.name] = facts
            return set()
        nodes = {one.node for one in (before, facts) if one is not None and one.node}
        if before is not None:
            self._of_node.get(before.node, set()).discard(facts.name)
            for device in before.devices:
                self._places.pop(device.id, None)
        if not is_gone:
            self._slices[facts.name] = facts
            if facts.node:
                self._of_node.setdefault(facts.node, set()).add(facts.name)
        for node in nodes:
            self._devices.pop(node, None)
            self._matches.pop(node, None)
            if not self._of_node.get(node):
                self._of_node.pop(node, None)
        self._needs.clear()
        return nodes

    def _put_class(self, data: Json, *, is_gone: bool) -> set[str]:
        name = data["metadata"]["name"]
        if is_gone:
            self._classes.pop(name, None)
            self._class_configs.pop(name, None)
        else:
            self._classes[name] = parse_selectors(data["spec"])
            self._class_configs[name] = tuple(data["spec"].get("config") or ())
        self._matches.clear()
        self._needs.clear()
        return set(self._of_node)

    def _put_claim(self, facts: ClaimFacts, *, is_gone: bool) -> set[str]:
        before = self._claims.pop(facts.key, None)
        choice = self._choices.get(facts.key)
        nodes = self._nodes_of(before) | self._nodes_of(None if is_gone else facts)
        for device in (before.devices if before is not None else None) or ():
            if self._owners.get(device) == facts.key:
                del self._owners[device]
        if choice is not None and (is_gone or facts.devices is not None):
            nodes.add(choice.node)
            self._drop_choice(facts.key)
        if not is_gone:
            self._claims[facts.key] = facts
            self._owners.update(dict.fromkeys(facts.devices or (), facts.key))
        return nodes

    def _nodes_of(self, claim: ClaimFacts | None) -> set[str]:
        found = (claim.devices if claim is not None else None) or ()
        return {self._places[device] for device in found if device in self._places}

    # --- devices ----------------------------------------------------------------------------------------------------

    def devices_on(self, node: str) -> tuple[DeviceFacts, ...]:
        """All devices of a node, by model, pool and name: of each pool's newest generation, once all of it is there."""
        found = self._devices.get(node)
        if found is None:
            slices = [self._slices[name] for name in self._of_node.get(node, ())]
            newest: dict[tuple[str, str], int] = {}
            for one in slices:
                newest[one.pool] = max(newest.get(one.pool, 0), one.generation)
            current = [one for one in slices if one.generation == newest[one.pool]]
            there = Counter(one.pool for one in current)
            devices = [device for one in current if there[one.pool] == one.count for device in one.devices]
            found = self._devices[node] = tuple(sorted(devices, key=lambda one: (one.model, one.id)))
            self._places.update((device.id, node) for device in found)
        return found

    def groups_on(self, node: str) -> tuple[tuple[DeviceFacts, ...], ...]:
        """The devices that the engine counts there, those of one model together, in its order."""
        models: dict[str, list[DeviceFacts]] = {}
        for device in self.devices_on(node) if node in self._of_node else ():
            if self._is_counted(device):
                models.setdefault(device.model, []).append(device)
        return tuple(tuple(devices[:DEVICES_PER_MODEL_MAX]) for devices in models.values())

    def _is_counted(self, device: DeviceFacts) -> bool:
        return any(fnmatchcase(device.id[0], pattern) for pattern in self._drivers)

    def is_free(self, device: DeviceFacts) -> bool:
        """Whether no claim has it, or will, and none is kept off."""
        return device.id not in self._owners and not device.is_off

    def _match(self, ask: Ask, node: str) -> tuple[DeviceFacts, ...]:
        key = ask.device_class, ask.selectors
        known = self._matches.setdefault(node, {})
        if key not in known:
            tests = [compile_selector(text) for text in (*self._classes[ask.device_class], *ask.selectors)]
            known[key] = tuple(one for one in self.devices_on(node) if all(test(one.view) for test in tests))
        return known[key]

    # --- what pods ask ----------------------------------------------------------------------------------------------

    def find_lack(self, pod: PodFacts) -> str:
        """What is in the way of the pod's claims, whatever the node; "" = nothing."""
        for name in pod.device_claims:
            claim = self._claims.get((pod.namespace, name))
            if not name:
                return "its resource claims have not been made yet"
            if claim is None or claim.is_leaving:
                return f'resourceclaim "{name}" not found'
            if claim.devices is None and (words := self._find_fault(claim)):
                return words
        return ""

    def _find_fault(self, claim: ClaimFacts) -> str:
        name = claim.key[1]
        if claim.fault:
            return f'resourceclaim "{name}" asks for what Clearway does not give out: {claim.fault}'
        for ask in claim.wish.asks:
            if ask.device_class not in self._classes:
                return f"device class {ask.device_class} does not exist"
            if fault := find_selector_fault(self._classes[ask.device_class]):
                return f"device class {ask.device_class}: {fault}"
        return ""

    def wishes_of(self, pod: PodFacts) -> tuple[Wish, ...]:
        """What the pod's claims ask that have nothing yet. Only of a pod without a lack."""
        return tuple(claim.wish for claim in self._open(pod))

    def _open(self, pod: PodFacts) -> Iterable[ClaimFacts]:
        for name in pod.device_claims:
            claim = self._claims.get((pod.namespace, name))
            if claim is not None and claim.devices is None and claim.key not in self._choices:
                yield claim

    def places_of(self, pod: PodFacts) -> Iterable[tuple[Term, ...]]:
        """Terms on nodes, one of each group of which must hold: where the claims that have something can be used."""
        for name in pod.device_claims:
            key = pod.namespace, name
            claim = self._claims.get(key)
            if claim is not None and claim.places:
                yield claim.places
            elif key in self._choices:
                yield (_term_of(self._choices[key].node),)

    def need_of(self, wishes: tuple[Wish, ...]) -> Need:
        """What the engine is to count: the devices of the models that most of the asked devices can be of."""
        found = self._needs.get(wishes)
        if found is None:
            if len(self._needs) >= NEEDS_MAX:
                self._needs.clear()
            asked: Counter[tuple[str, ...]] = Counter()
            for ask in (ask for wish in wishes for ask in wish.asks if ask.device_class in self._classes):
                asked[self._models_of(ask)] += ask.count
            del asked[()]
            models, count = max(asked.items(), key=lambda item: (item[1], item[0]), default=((), 0))
            found = self._needs[wishes] = Need(count, models)
        return found

    def _models_of(self, ask: Ask) -> tuple[str, ...]:
        counted = (one.model for node in self._of_node for one in self._match(ask, node) if self._is_counted(one))
        return tuple(sorted(set(counted)))

    def judge(self, wishes: tuple[Wish, ...], node: str, *, is_lenient: bool = False) -> str:
        """Why these wishes cannot be met on the node, "" = they can. is_lenient: what the engine counts itself, whole
        models, is regarded as free, for it may make room there."""
        return "" if self._fit(wishes, node, (), is_lenient=is_lenient) is not None else CANNOT

    # --- choosing ---------------------------------------------------------------------------------------------------

    def choose(self, pod: PodFacts, node: str, preferred: Sequence[DeviceId]) -> str:
        """Choose devices for all of the pod's claims that have none; why that cannot be, "" = it is done. preferred:
        devices that the engine chose."""
        claims = tuple(self._open(pod))
        fits = self._fit(tuple(claim.wish for claim in claims), node, preferred)
        if fits is None:
            return CANNOT
        for claim, results in zip(claims, fits, strict=True):
            self._choices[claim.key] = Choice(claim.key, pod.uid, node, results)
            self._owners.update((device, claim.key) for _, device in results)
        return ""

    def release(self, pod: str) -> None:
        """What was chosen for this pod, and was not sent, is nobody's."""
        for key in [key for key, one in self._choices.items() if one.pod == pod and not one.is_sent]:
            self._drop_choice(key)

    def send(self, pod: PodFacts) -> tuple[tuple[Key, Choice | None], ...]:
        """The pod's claims, with what is to be written into those that have nothing yet."""
        found = []
        for name in pod.device_claims:
            choice = self._choices.get((pod.namespace, name))
            if choice is not None:
                choice.is_sent = True
            found.append(((pod.namespace, name), choice))
        return tuple(found)

    def take_back(self, key: Key) -> None:
        """What was chosen for the claim was not written, and will not be."""
        self._drop_choice(key)

    def idle_of(self, pod: PodFacts) -> tuple[Key, ...]:
        """Claims that have devices for this pod alone, which lies nowhere: of a binding that did not come to be."""
        claims = (self._claims.get((pod.namespace, name)) for name in pod.device_claims)
        return tuple(one.key for one in claims if one is not None and one.devices and one.users == (pod.uid,))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that there are."""
        return tuple(self._classes)

    def configs_of(self, device_class: str) -> tuple[Json, ...]:
        """What a class says to the drivers of its devices."""
        return self._class_configs.get(device_class, ())

    def _drop_choice(self, key: Key) -> None:
        choice = self._choices.pop(key, None)
        for _, device in choice.results if choice is not None else ():
            if self._owners.get(device) == key:
                del self._owners[device]

    def _fit(
        self, wishes: tuple[Wish, ...], node: str, preferred: Sequence[DeviceId], *, is_lenient: bool = False
    ) -> list[tuple[tuple[str, DeviceId], ...]] | None:
        """Devices for each wish, one after the other; None = there are not enough."""
        used: set[DeviceId] = set()
        fits = []
        for wish in wishes:
            pools = {ask: self._usable(ask, node, is_lenient=is_lenient and not wish.alike) for ask in wish.asks}
            found = next((one for one in _split_alike(wish, pools) if _can_all(one, used)), None)
            if found is None:
                return None
            results = _take(found, used, preferred)
            if results is None:
                return None
            fits.append(results)
        return fits

    def _usable(self, ask: Ask, node: str, *, is_lenient: bool) -> list[DeviceFacts]:
        if ask.device_class not in self._classes:
            return []
        found = self._match(ask, node)
        if is_lenient and all(self._is_counted(one) for one in found):
            models, ids = {one.model for one in found}, {one.id for one in found}
            if all(one.id in ids for one in self.devices_on(node) if one.model in models):
                return list(found)
        return [one for one in found if self.is_free(one)]


def _term_of(node: str) -> Term:
    return Term((), (Expression("metadata.name", "In", (node,)),))


def _split_alike(wish: Wish, pools: dict[Ask, list[DeviceFacts]]) -> Iterable[dict[Ask, list[DeviceFacts]]]:
    """The usable devices as they are, or, where all must be alike in something, those of each kind, fewest first."""
    if not wish.alike:
        return [pools]
    kinds = Counter(_kind_of(one, wish.alike) for found in pools.values() for one in found)
    del kinds[()]
    return [
        {ask: [one for one in found if _kind_of(one, wish.alike) == kind] for ask, found in pools.items()}
        for kind, _ in sorted(kinds.items(), key=lambda item: (item[1], repr(item[0])))
    ]


def _kind_of(device: DeviceFacts, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The values of these attributes; () where one is not there."""
    values = []
    for name in names:
        domain, _, short = name.rpartition("/")
        found = device.view.attributes.get(domain or device.id[0], {})
        if short not in found:
            return ()
        values.append(found[short])
    return tuple(values)


def _can_all(pools: dict[Ask, list[DeviceFacts]], used: set[DeviceId]) -> bool:
    return all(sum(one.id not in used for one in found) >= ask.count for ask, found in pools.items())


def _take(
    pools: dict[Ask, list[DeviceFacts]], used: set[DeviceId], preferred: Sequence[DeviceId]
) -> tuple[tuple[str, DeviceId], ...] | None:
    """Devices for each ask, those with the least choice first; None = one of them finds too few left."""
    taken: dict[Ask, list[DeviceId]] = {}
    for ask, found in sorted(pools.items(), key=lambda item: len(item[1]) - item[0].count):
        left = sorted((one.id for one in found if one.id not in used), key=lambda one: one not in preferred)
        if len(left) < ask.count:
            return None
        taken[ask] = left[: ask.count]
        used.update(taken[ask])
    return tuple((ask.name, device) for ask in pools for device in taken[ask])
