"""Nodes as they were last seen, what lies on them, and the events that tell the engine what changed. No I/O.

What pods hold that are not Clearway's runs (daemons, pods of other schedulers, pods of before) is taken from what the
node offers: CPUs and memory by `NodeChanged`, devices by `DeviceDown` on as many as they hold, the last ones first; so
are devices that the node has and does not give out. A node that is not ready is down, but what ran there is not said
to have stopped: it may go on, and only its pods tell. A cordoned one admits only what bears that (`placement`). Devices
of a node never change for the engine: a node whose devices are others now goes, and comes again under another name.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from clearway.adapters.kubernetes.company import Region
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.entries import NodeEntry, Wants, alias_number, next_alias, real_name
from clearway.adapters.kubernetes.extras import extras_of, keep_ports_apart, port_crowds
from clearway.adapters.kubernetes.facts import Demand, NodeFacts, PodFacts, Share, Term, Toleration, Wish
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.lying import Lying
from clearway.adapters.kubernetes.models import LEFT_OUT
from clearway.adapters.kubernetes.offers import find_first, find_grown, find_left, make_claimed, make_groups
from clearway.adapters.kubernetes.parse import CPU, MEMORY
from clearway.adapters.kubernetes.placement import (
    PREFER_NOT,
    demand_label,
    find_lasting_mismatch,
    find_mismatch,
    find_shortage,
    names_devices,
    score_node,
)
from clearway.adapters.kubernetes.shares import BIND_REQUESTS, KAI, render_hami, resolve_milli
from clearway.adapters.kubernetes.taken import find_taken
from clearway.model.cluster import NodeSpec
from clearway.model.events import DeviceDown, DeviceUp, Event, NodeAdded, NodeChanged, NodeDown, NodeUp
from clearway.model.ids import NodeName
from clearway.model.units import DEVICES_PER_MODEL_MAX, MILLI

Found = TypeVar("Found")

LIKING_PREFIX = "clearway.io/likes-"

Liking = tuple[tuple[tuple[int, Term], ...], tuple[Toleration, ...]]
"""Preferred node affinity and tolerations: what decides how much a node is liked."""

ITSELF = Region("")
"""Each node is a domain of its own."""


LASTING_MAX = 500
"""Demands that are never forgotten: each node is told with all of them."""

WANTED_MAX = 500
"""Demands, likings and regions that are kept in any case, before it is looked which of them anybody wants."""

HELD_BY_OTHERS = "held by pods that Clearway did not place, or not given out by its node"
NOT_READY = "its kubelet does not report that it is ready"


class Nodes(Lying):
    """All nodes, and what the engine is told of them.

    has_binder: whether KAI's binder may be asked to bind pods. lasting_demands: those that are never forgotten."""

    def __init__(self, config: KubernetesConfig) -> None:
        super().__init__(config)
        self._config = config
        self._demands: dict[Demand, tuple[str, str]] = {}
        self._swept = 0
        self._regions: dict[Region, str] = {}
        self._likings: dict[Liking, str] = {}
        self.has_binder = False
        self.lasting_demands: set[Demand] = set()

    def add_demand(self, demand: Demand) -> tuple[str, str]:
        """The label that nodes carry which admit this demand; from now on they are told with it."""
        label = self._demands.get(demand)
        if label is None:
            label = self._demands[demand] = demand_label(demand)
            self.touch_nodes()
        return label

    def add_lasting_demand(self, demand: Demand) -> tuple[str, str]:
        """`add_demand`, and it is never forgotten."""
        self.lasting_demands.add(demand)
        return self.add_demand(demand)

    @property
    def is_full(self) -> bool:
        """Whether so many demands are never forgotten that no more should be."""
        return len(self.lasting_demands) >= LASTING_MAX

    def resource_at(self, name: NodeName, device: int) -> str:
        """The resource that a device of a node is one of; "" = it is not known."""
        entry = self.entries.get(real_name(name))
        for resource, count in () if entry is None else entry.facts.devices:
            count = min(count, DEVICES_PER_MODEL_MAX)
            if device < count:
                return resource
            device -= count
        return ""

    def find_resource(self, models: Sequence[str]) -> str:
        """The resource of devices of these models (empty = of any) that most nodes have; "" = there is none."""
        offered = Counter(
            resource
            for entry in self.entries.values()
            for (resource, _), group in zip(entry.facts.devices, make_groups(entry.facts), strict=True)
            if not entry.is_gone and (not models or group.model in models)
        )
        return min(offered, key=lambda resource: (-offered[resource], resource), default="")

    def resources(self) -> tuple[str, ...]:
        """Resources of the devices that there are, by name."""
        return tuple(sorted({name for entry in self.entries.values() for name, _ in entry.facts.devices}))

    def note_wants(self, pods: Sequence[PodFacts]) -> Wants:
        """Where equal pods may lie, as the engine is to know it; from now on nodes are told with all that it needs."""
        first = pods[0]
        crowds, rules = self.society.rules_for(pods)
        self._add_regions(first)
        if first.demand.ports:
            self._add_region(ITSELF)
            crowds, rules = (
                (*crowds, *port_crowds(first.demand)),
                (*rules, *keep_ports_apart(first.demand, ITSELF.label)),
            )
        devices, models = self.devices_of(pods)
        wants = Wants(
            self.add_demand(self.demand_of(*pods)),
            crowds,
            rules,
            self._add_liking(first),
            devices,
            models,
            extras=extras_of(first.demand),
        )
        if first.share is None:
            return wants
        milli = resolve_milli(first.share, self._find_memories(first.share))
        memory = first.share.memory_bytes if milli < MILLI else 0
        return replace(wants, share_milli=milli or MILLI, device_memory_bytes=memory)

    def find_share_fault(self, share: Share) -> str:
        """Why nobody makes such a part of a device here; "" = somebody does."""
        if share.by == KAI and not self.has_binder:
            return f"a share of a device needs KAI's binder, expected {BIND_REQUESTS} bindrequests, found none"
        if not resolve_milli(share, self._find_memories(share)):
            return "expected a node whose devices have so much memory by its label nvidia.com/gpu.memory, found none"
        return ""

    def _find_memories(self, share: Share) -> set[int]:
        entries = (entry for entry in self.entries.values() if not entry.is_gone)
        return {one.facts.device_memory_bytes for one in entries if bool(one.facts.shared) == (share.by != KAI)} - {0}

    def render_devices(self, pod: PodFacts, name: NodeName, devices: Sequence[int]) -> dict[str, str]:
        """Annotations that say on the node which devices the pod is given; {} = they are chosen there."""
        return render_hami(pod, self.entries[real_name(name)].facts, devices)

    def devices_of(self, pods: Sequence[PodFacts]) -> tuple[int, tuple[str, ...]]:
        """How many devices each of equal pods holds for the engine, and of which models; () = any."""
        first = pods[0]
        if not first.device_claims or first.devices:
            device = first.demand.device
            names = (device,) if names_devices(device) else self.models.named(device)
            return first.devices, self.models.keep_known(names)
        need = self.claims.need_of(self._find_wishes(pods))
        return need.devices, self.models.keep_known(need.models)

    def demand_of(self, *pods: PodFacts) -> Demand:
        """Where equal pods may lie, their volumes and claims on devices regarded as they are now."""
        demand = pods[0].demand
        places = {place for pod in pods if pod.claims for place in self.volumes.places_of(pod)}
        if attached := self.volumes.count_attached(pods[0]) if pods[0].claims else ():
            demand = replace(demand, attached=attached)
        if pods[0].device_claims:
            places.update(place for pod in pods for place in self.claims.places_of(pod))
            demand = replace(demand, wishes=self._find_wishes(pods))
        return replace(demand, volumes=tuple(sorted(places, key=repr))) if places else demand

    def _find_wishes(self, pods: Sequence[PodFacts]) -> tuple[Wish, ...]:
        return next((wishes for pod in pods if (wishes := self.claims.wishes_of(pod))), ())

    def put_claims(self, kind: str, data: Mapping[str, Any], *, is_gone: bool) -> None:
        """An object that says something of claims on devices was seen, or is gone."""
        for name in self.claims.put(kind, data, is_gone=is_gone):
            self._note_models(name)
            self.touch(name)

    def _add_regions(self, pod: PodFacts) -> None:
        for region in self.society.regions_of(pod):
            self._add_region(region)

    def _add_region(self, region: Region) -> None:
        if region not in self._regions:
            self._regions[region] = region.label
            if region.label != region.domain:
                self.touch_nodes()

    def _add_liking(self, pod: PodFacts) -> str:
        """The label by which nodes say how much this pod likes them; "" = it likes all alike."""
        repels = any(taint.effect == PREFER_NOT for entry in self.entries.values() for taint in entry.facts.taints)
        if not pod.wishes and not repels:
            return ""
        liking = pod.wishes, pod.demand.tolerations
        if liking not in self._likings:
            self._likings[liking] = liking_label(liking)
            self.touch_nodes()
        return self._likings[liking]

    def sweep(self, used: Callable[[], Iterable[Wants]]) -> None:
        """Forget what nobody wants any more, once there is much of it: each node is told with all of it. used: what
        those want who wait or run."""
        if len(self._demands) + len(self._likings) + len(self._regions) <= max(self._swept, WANTED_MAX):
            return
        wants = list(used())
        labels = {one.label for one in wants} | {demand_label(one) for one in self.lasting_demands}
        domains = {rule.domain for one in wants for rule in one.rules} | {ITSELF.label}
        liked = {one.liked for one in wants}
        self._demands = {demand: label for demand, label in self._demands.items() if label in labels}
        self._likings = {liking: label for liking, label in self._likings.items() if label in liked}
        self._regions = {region: label for region, label in self._regions.items() if label in domains}
        self.society.keep_maps(self._regions)
        self._swept = 2 * (len(self._demands) + len(self._likings) + len(self._regions))
        for name, entry in self.entries.items():
            entry.lasting = {label: words for label, words in entry.lasting.items() if label in labels}
            self.touch(name)

    def find_mismatch(self, demand: Demand, entry: NodeEntry) -> str:
        """Why a pod may not lie on the node now, CPUs, memory and devices apart; "" = it may."""
        return self._find_mismatch(demand, self._demands.get(demand), entry, self.free(entry), entry.pods.values())

    def _find_mismatch(
        self,
        demand: Demand,
        label: tuple[str, str] | None,
        entry: NodeEntry,
        free: Mapping[str, int],
        lying: Collection[PodFacts],
    ) -> str:
        try:
            return self._compare(demand, label, entry, free, lying)
        except Exception:  # about these pods alone
            self.guard.note(demand, None, f"what pods demand of nodes ({demand_label(demand)[0]})")
            return BROKEN

    def _compare(
        self,
        demand: Demand,
        label: tuple[str, str] | None,
        entry: NodeEntry,
        free: Mapping[str, int],
        lying: Collection[PodFacts],
    ) -> str:
        words = entry.lasting.get(label) if label is not None else None
        if words is None:
            words = find_lasting_mismatch(demand, entry.facts)
            if label is not None:
                entry.lasting[label] = words
        if words:
            return words
        ports = [port for pod in lying for port in pod.demand.ports] if demand.ports else ()
        if (words := find_shortage(demand, free, ports)) or not (demand.wishes or demand.attached):
            return words
        if demand.attached and self.volumes.exceeds(demand.attached, entry.facts.name, entry.pods.values()):
            return "node(s) exceed max volume count"
        return self.claims.judge(demand.wishes, entry.facts.name, is_lenient=True)

    def find_obstacle(self, pod: PodFacts, name: NodeName) -> str:
        """Why this pod must not be bound to the node now, everything regarded; "" = it may. The last look."""
        entry = self.entries.get(real_name(name))
        if entry is None or entry.is_gone or entry.alias != name:
            return f"node {name} is gone"
        if not entry.facts.is_ready:
            return f"node {name} is not ready"
        if words := self.find_lack(pod) or self.find_mismatch(self.demand_of(pod), entry):
            return f"{name}: {words}"
        free = self.free(entry)
        for resource, amount in pod.amounts:
            if amount > free.get(resource, 0):
                return f"{name}: {resource}: the pod asks {amount}, {max(free.get(resource, 0), 0)} are left"
        return ""

    def is_well(self, name: NodeName) -> bool:
        """Whether the node is there, as the engine knows it, and ready."""
        entry = self.entries.get(real_name(name))
        return entry is not None and not entry.is_gone and entry.alias == name and entry.facts.is_ready

    def find_lack(self, pod: PodFacts) -> str:
        """What the pod's claims, on volumes or devices, wait for, whatever the node; "" = nothing."""
        return self.volumes.find_lack(pod) or self.claims.find_lack(pod)

    def take_devices(self, pod: PodFacts, name: NodeName, devices: Sequence[int]) -> str:
        """Choose devices for the pod's claims, those that the engine chose if they can be; why not, "" = it is done."""
        if not pod.device_claims:
            return ""
        node = real_name(name)
        begin = sum(min(count, DEVICES_PER_MODEL_MAX) for _, count in self.entries[node].facts.devices)
        known = [device.id for group in self.claims.groups_on(node) for device in group]
        preferred = [known[index - begin] for index in devices if 0 <= index - begin < len(known)]
        words = self.claims.choose(pod, node, preferred)
        self.touch(node)
        return f"{name}: {words}" if words else ""

    def find_mistake(self, pod: PodFacts, name: NodeName, devices: Sequence[int]) -> str:
        """Whether devices were chosen that are not of the resource that the pod asks; "" = they are."""
        asked = pod.demand.device
        if not asked or all(self.resource_at(name, device) == asked for device in devices):
            return ""
        return f"{name}: expected devices of {asked}, found others, which lie there beside them"

    def find_conflict(self, pod: PodFacts, name: NodeName) -> str:
        """Which rule about neighbours forbids to bind this pod to the node now; "" = none."""
        words = self.society.find_mismatch(pod, real_name(name))
        return f"{name}: {words}" if words else ""

    def promise_volumes(self, pod: PodFacts, name: NodeName) -> str:
        """Keep volumes for the pod's claims there, before others of its gang are judged; why not, "" = it is done."""
        words = self.volumes.promise(pod, self.entries[real_name(name)].facts) if pod.claims else ""
        return f"{name}: {words}" if words else ""

    def find_change(self, pod: PodFacts, name: str) -> str:
        """What forbids to bind a pod now where it was given its place before; "" = nothing. What it asks it has."""
        entry = self.entries.get(name)
        if entry is None or entry.is_gone or not entry.facts.is_ready:
            return f"node {name} is gone, or not ready"
        words = find_mismatch(replace(self.demand_of(pod), others=(), ports=()), entry.facts, {})
        words = words or self.find_lack(pod) or self.society.find_mismatch(pod, name)
        return f"{name}: {words}" if words else ""

    def judge(self, pod: PodFacts, entry: NodeEntry) -> str:
        """Why this pod cannot lie on the node now, in the words of Kubernetes' own scheduler; "" = it can."""
        if not entry.facts.is_ready:
            return "node(s) were not ready"
        if (pod.devices or pod.device_claims) and entry.facts.name in self.models.left_out:
            return LEFT_OUT
        demand = self.demand_of(pod)
        if words := self.find_mismatch(demand, entry) or self.claims.judge(demand.wishes, entry.facts.name):
            return words
        free = self.free(entry)
        short = [name for name, amount in pod.amounts if amount > free.get(name, 0)]
        if short:
            return ", ".join(f"Insufficient {name}" for name in short)
        return self.society.find_mismatch(pod, entry.facts.name)

    # --- what the engine is told ----------------------------------------------------------------------------------

    def specs(self, known: Iterable[NodeSpec] = ()) -> tuple[NodeSpec, ...]:
        """The nodes as they are now, by name; the engine is taken to know them from here on. known: those that it knew
        before: a node that has other devices now comes under another name than it had."""
        last: dict[str, NodeSpec] = {}
        for spec in known:  # in the order in which they were added: the last of a node counts
            last[real_name(spec.name)] = spec
        for name in sorted(self.entries):
            entry = self.entries[name]
            before = last.get(name)
            entry.alias, entry.aliases = NodeName(name), 1
            if before is not None:
                entry.alias, entry.aliases = before.name, alias_number(before.name)
            entry.told = self._make_spec(entry)
            if before is not None and (before.groups, _place(before)) != (entry.told.groups, _place(entry.told)):
                entry.alias = next_alias(entry)
                entry.told = self._make_spec(entry)
        return tuple(entry.told for _, entry in sorted(self.entries.items()) if entry.told is not None)

    def tell(self, now_ms: int, *, is_first: bool = False) -> list[Event]:
        """Events about every node that changed since the last call. is_first: what nodes offer was told just now by
        `specs`; what has changed of it since then is told by the next call."""
        events: list[Event] = []
        names, self._dirty, self.has_news = sorted(self._dirty), {}, False
        for name in names:
            entry = self.entries.get(name)
            if entry is not None:
                self._tell_node(entry, now_ms, events, is_first=is_first)
        return events

    def _tell_node(self, entry: NodeEntry, now_ms: int, events: list[Event], *, is_first: bool) -> None:
        if entry.is_gone:
            self._tell_gone(entry, now_ms, "it was deleted", events)
            if not entry.pods and not entry.held:  # all that must be remembered is how often it came
                self._past[entry.facts.name] = entry.aliases
                del self.entries[entry.facts.name]
            return
        spec = self._make_spec(entry)
        if entry.told is not None and (entry.told.groups, _place(entry.told)) != (spec.groups, _place(spec)):
            self._tell_gone(entry, now_ms, "its devices or its place changed", events)
        if entry.told is None:
            if entry.facts.is_ready:
                entry.alias = next_alias(entry)
                entry.told = self._make_spec(entry)
                events.append(NodeAdded(now_ms, entry.told))
                self.touch(entry.facts.name)  # what else is to be said is said once the node is known
            return
        if spec != entry.told and is_first:
            self.touch(entry.facts.name)
        elif spec != entry.told:
            events.append(NodeChanged(now_ms, spec))
            entry.told = spec
        self._tell_health(entry, now_ms, events)
        self._tell_devices(entry, now_ms, events)

    def _tell_gone(self, entry: NodeEntry, now_ms: int, reason: str, events: list[Event]) -> None:
        if entry.told is not None:
            if self.society.tallies:  # its domains are no domains any more
                events.append(NodeChanged(now_ms, replace(entry.told, labels=(), crowds=())))
            events.append(NodeDown(now_ms, entry.alias, reason))
            entry.told, entry.told_silent = None, False
            entry.told_down.clear()

    def _tell_health(self, entry: NodeEntry, now_ms: int, events: list[Event]) -> None:
        is_silent = not entry.facts.is_ready
        if is_silent != entry.told_silent:
            events.append(NodeDown(now_ms, entry.alias, NOT_READY) if is_silent else NodeUp(now_ms, entry.alias))
            entry.told_silent = is_silent

    def _tell_devices(self, entry: NodeEntry, now_ms: int, events: list[Event]) -> None:
        down = find_taken(entry, self.ours, self.claims) if entry.told is not None and entry.told.groups else set()
        taken, back = sorted(down - entry.told_down), sorted(entry.told_down - down)
        events += [DeviceDown(now_ms, entry.alias, device, HELD_BY_OTHERS) for device in taken]
        events += [DeviceUp(now_ms, entry.alias, device) for device in back]
        entry.told_down = down

    def _make_spec(self, entry: NodeEntry) -> NodeSpec:
        facts, config = entry.facts, self._config
        labels = dict(facts.labels)
        others = [pod for uid, pod in entry.pods.items() if uid not in self.ours]
        grown = find_grown((pod, self.ours[uid]) for uid, pod in entry.pods.items() if uid in self.ours)
        names = dict.fromkeys(name for demand in self._demands for name, _ in extras_of(demand))
        extras = {name: find_left(facts, others, name) for name in names}
        free = self.free(entry) | extras  # what the engine counts itself may be asked in the place of what lies there
        admitted = [
            label
            for demand, label in self._demands.items()
            if not self._find_mismatch(demand, label, entry, free, others)
        ]
        return NodeSpec(
            name=entry.alias,
            groups=self.models.admit(
                facts.name, (*make_groups(facts), *make_claimed(self.claims.groups_on(facts.name)))
            ),
            cpu_milli=max(find_left(facts, others, CPU) - grown[0], 0),
            memory_bytes=max(find_left(facts, others, MEMORY) - grown[1], 0),
            nvlink=find_first(labels, config.nvlink_labels),
            leaf=find_first(labels, config.leaf_labels),
            block=find_first(labels, config.block_labels),
            labels=(*facts.labels, *admitted, *self._make_labels(facts, labels)),
            crowds=tuple(self._count_others(entry)),
            extras=tuple(extras.items()),
        )

    def _make_labels(self, facts: NodeFacts, labels: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        for region, label in self._regions.items():
            if label != region.domain:
                domain = self._guarded(label, partial(region.find_domain, facts, labels))
                if domain is not None:
                    yield label, domain
        for (wishes, tolerations), label in self._likings.items():
            liked = self._guarded(label, partial(score_node, wishes, tolerations, facts))
            yield label, str(liked or 0)

    def _guarded(self, label: str, find: Callable[[], Found]) -> Found | None:
        """What a label says of a node; None where it cannot be found, by a mistake about the pods that go by it."""
        try:
            return find()
        except Exception:  # about these pods alone
            self.guard.note(label, None, f"what pods want of nodes ({label})")
            return None

    def _count_others(self, entry: NodeEntry) -> Iterable[tuple[str, int]]:
        """How many more, or fewer, lie here of each crowd than the engine counts."""
        tallies = self.society.tallies
        there = {tallies[crowd].name: count for crowd, count in self.society.on_node.get(entry.facts.name, {}).items()}
        for uid in self._unbound & entry.pods.keys():  # the engine counts them, and is right: they are to be bound
            for crowd in self.society.crowds_of(entry.pods[uid]):
                there[tallies[crowd].name] = there.get(tallies[crowd].name, 0) + 1
        known = {tally.name for tally in tallies.values()} if entry.counted else set()
        counted: Counter[str] = Counter()
        for one in entry.counted.values():
            counted.update(one)
        for name in sorted({*there, *(known & set(counted))}):
            if there.get(name, 0) != counted[name]:
                yield name, there.get(name, 0) - counted[name]


def liking_label(liking: Liking) -> str:
    """The label, the same in every process, by which nodes say how much they are liked."""
    return LIKING_PREFIX + hashlib.sha256(repr(liking).encode()).hexdigest()[:16]


def _place(spec: NodeSpec) -> tuple[str, str, str]:
    return spec.nvlink, spec.leaf, spec.block
