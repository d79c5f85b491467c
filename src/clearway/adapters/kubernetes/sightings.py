"""Pods and groups as they were last seen: which pods are one job, and how many of them there must be. No I/O.

The half of the book that only notes; what follows from it is in `book`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clearway.adapters.kubernetes.claims import KINDS
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.convoys import (
    PARTS_MAX,
    gang_key,
    is_mixed,
    is_scattered,
    names_place,
    part_key,
    part_sizes,
)
from clearway.adapters.kubernetes.disruptions import KIND as DISRUPTIONS
from clearway.adapters.kubernetes.disruptions import Disruptions
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import NOTHING_SAID, Group, Said, Size, Source, group_of, part_of
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.nodes import Nodes
from clearway.adapters.kubernetes.priorities import KIND as PRIORITIES
from clearway.adapters.kubernetes.priorities import PriorityClasses
from clearway.adapters.kubernetes.quotas import KIND as QUOTAS
from clearway.adapters.kubernetes.quotas import Quotas
from clearway.adapters.kubernetes.runs import Action, Bundle, Refuse, RunPhase

SIZES_MAX = 20_000
"""Objects whose numbers are remembered; those that are forgotten are read again when another pod of theirs comes."""

GONE: Final = -1
"""In the place of a time: there is no need to wait for it."""


class Sightings:
    """All pods, and the groups that they are in. Whatever changed marks its group as dirty."""

    def __init__(self, config: KubernetesConfig) -> None:
        self.nodes = Nodes(config)
        self.guard = self.nodes.guard
        self.disruptions = Disruptions()
        self.quotas = Quotas()
        self.classes = PriorityClasses()
        self.pods: dict[str, PodFacts] = {}
        self.bundles: dict[str, Bundle] = {}
        self._config = config
        self._places: dict[str, str] = {}
        self._bundle_of: dict[str, str] = {}
        self._dirty: dict[str, None] = {}
        self._resting: dict[str, None] = {}
        self._claiming: dict[str, None] = {}
        self._claimants: dict[tuple[str, str], dict[str, None]] = {}
        self._convoys: dict[str, dict[str, int]] = {}
        self._sizes: dict[Source, Size | None] = {}
        self._said: dict[Source, Said] = {}
        self._wanted: dict[Source, None] = {}
        self._empty: dict[str, int] = {}
        self._actions: list[Action] = []

    def put_pod(self, pod: PodFacts) -> None:
        """The pod was seen."""
        known = self.pods.get(pod.uid)
        if known == pod:
            return
        self.pods[pod.uid] = pod
        try:
            self.nodes.society.note(pod)
        except Exception:  # about this pod alone, which lies where it lies all the same
            self.guard.note(("rules", pod.uid), pod, f"pod {pod.namespace}/{pod.name}")
        if pod.claims:
            self._claiming[pod.uid] = None
        if pod.device_claims:
            self._note_claims(pod, known)
        self._lay(pod)
        if pod.scheduler != self._config.scheduler_name:
            return
        if pod.uid not in self._bundle_of:
            self._join(pod)
        self._touch(pod.uid)

    def refuse_pod(self, pod: PodFacts, message: str) -> None:
        """Have a pod told why it is not even looked at."""
        self._actions.append(Refuse(pod, message))

    def drop_pod(self, uid: str) -> None:
        """The pod is gone."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._lift(uid, pod)
            self.nodes.society.forget(uid)
            self._claiming.pop(uid, None)
            self._forget_claims(pod)
            self._touch(uid)

    def keep_pods(self, uids: Iterable[str]) -> None:
        """A list was read: every pod that is not among these is gone."""
        there = set(uids)
        for uid in [uid for uid in self.pods if uid not in there]:
            self.drop_pod(uid)

    def put_size(self, source: Source, size: Size | None, *, is_gone: bool = False, said: Said = NOTHING_SAID) -> None:
        """The object says how many pods must start together; None = it could not be read. is_gone: it was deleted.
        said: what else it says."""
        self._wanted.pop(source, None)
        self._sizes[source], self._said[source] = size, said
        if len(self._sizes) > SIZES_MAX:
            self._said.pop(oldest := next(iter(self._sizes)), None)
            del self._sizes[oldest]
        for bundle in [one for one in self.bundles.values() if one.group.source == source and one.job is None]:
            self._resize(bundle, size)
        for key in self._empty if is_gone else ():
            if key in self.bundles and self.bundles[key].group.source == source:
                self._empty[key] = GONE

    def take_wanted(self) -> tuple[Source, ...]:
        """Objects to be read, whose numbers are not known yet; each is named once."""
        wanted, self._wanted = tuple(self._wanted), {}
        return wanted

    def take_actions(self) -> tuple[Action, ...]:
        """Calls to be made, in order."""
        actions, self._actions = tuple(self._actions), []
        return actions

    def unbind(self, uid: str) -> None:
        """A binding was refused for good: the pod does not lie there."""
        pod = self.pods.get(uid)
        if pod is None or not pod.node:
            self._lift(uid)
        self._touch(uid)

    def put_other(self, kind: str, data: Mapping[str, Any], *, is_gone: bool = False) -> None:
        """A namespace, or an object that says something of pods, volumes or devices, was seen, or is gone."""
        if kind == "namespaces":
            self.nodes.society.put_space(data["metadata"]["name"], data["metadata"].get("labels") or {})
            return
        if kind == QUOTAS:
            self.quotas.put(data, is_gone=is_gone)
            return
        if kind == PRIORITIES:
            self.classes.put(data, is_gone=is_gone)
            self._touch_refused()
            return
        if kind == DISRUPTIONS:
            self._touch_space(self.disruptions.put(data, is_gone=is_gone))
            return
        if kind in KINDS:
            self.nodes.put_claims(kind, data, is_gone=is_gone)
            metadata = data["metadata"]
            keys = [(metadata["namespace"], metadata["name"])] if "namespace" in metadata else list(self._claimants)
            for uid in (uid for key in keys for uid in self._claimants.get(key, ())):
                self._touch(uid)
            return
        if kind == "csinodes":
            self.nodes.touch(data["metadata"]["name"])
        (self.nodes.volumes.drop if is_gone else self.nodes.volumes.put)(kind, data)
        for uid in self._claiming:
            self._touch(uid)

    def _touch_refused(self) -> None:
        """Groups that could be no jobs are to be looked at again."""
        self._dirty.update((key, None) for key, one in self.bundles.items() if one.job is None and one.refused)

    def _touch_space(self, namespace: str) -> None:
        """All groups of the namespace whose pods lie somewhere are to be looked at."""
        for uid in self._places if namespace else ():
            if uid in self.pods and self.pods[uid].namespace == namespace:
                self._touch(uid)

    def _note_claims(self, pod: PodFacts, known: PodFacts | None) -> None:
        if known is not None and known.device_claims != pod.device_claims:
            self._forget_claims(known)
        for name in pod.device_claims:
            self._claimants.setdefault((pod.namespace, name), {})[pod.uid] = None

    def _forget_claims(self, pod: PodFacts) -> None:
        for name in pod.device_claims:
            claimants = self._claimants.get((pod.namespace, name), {})
            claimants.pop(pod.uid, None)
            if not claimants:
                self._claimants.pop((pod.namespace, name), None)

    def touch_all(self) -> None:
        """Every group is to be looked at again."""
        self._dirty.update(dict.fromkeys(self.bundles))

    def _lay(self, pod: PodFacts) -> None:
        is_ours = pod.scheduler == self._config.scheduler_name
        node = pod.node or (self._places.get(pod.uid, "") if is_ours else pod.nominated)
        if pod.is_over or self._places.get(pod.uid, node) != node:
            self._lift(pod.uid)
        if node and not pod.is_over:
            self._places[pod.uid] = node
            self.nodes.lay(pod, node)

    def _lift(self, uid: str, gone: PodFacts | None = None) -> None:
        node = self._places.pop(uid, None)
        if node is not None:
            self.nodes.lift(uid, node)
            pod = gone or self.pods.get(uid)
            if pod is not None and pod.claims and self.nodes.volumes.is_for_one(pod):
                for other in self._claiming:
                    self._touch(other)
        self.nodes.ours.pop(uid, None)

    def _touch(self, uid: str) -> None:
        key = self._bundle_of.get(uid)
        if key is not None:
            self._dirty[key] = None

    # --- groups ---------------------------------------------------------------------------------------------------

    def _join(self, pod: PodFacts) -> None:
        try:
            group = group_of(pod)
        except UnreadableError as error:
            self._actions.append(Refuse(pod, str(error)))
            return
        except Exception:  # about this pod alone
            self.guard.note(pod.uid, pod, f"pod {pod.namespace}/{pod.name}")
            self._actions.append(Refuse(pod, BROKEN))
            return
        self._enter(pod.uid, group)

    def _enter(self, uid: str, group: Group) -> None:
        if (sizes := self._convoys.get(group.key)) is not None:
            key = self._find_part(group, self.pods[uid], sizes)
            group = Group(key, sizes.get(key, 1), returns=group.returns)
        bundle = self.bundles.get(group.key)
        if bundle is None:
            bundle = self.bundles[group.key] = Bundle(group, group.size)
            source = group.source
            if source is not None:
                if source in self._sizes:
                    self._resize(bundle, self._sizes[source])
                else:
                    self._wanted[source] = None
        bundle.members[uid] = None
        self._bundle_of[uid] = group.key
        self._dirty[group.key] = None
        if bundle.group.source is not None:
            said = self._sizes.get(bundle.group.source)
            if said == 0 or isinstance(said, Mapping):
                self._scatter(bundle, said)

    def _find_part(self, gang: Group, pod: PodFacts, sizes: Mapping[str, int]) -> str:
        """The part of a convoy for a pod that comes: its own kind's, which lacks pods where its place is a new one."""
        plain = part_key(gang, pod, None)
        if not any(map(names_place, sizes)):
            return plain
        key = part_key(gang, pod, self.nodes.volumes.bound_places_of)
        likes = [one for one in sizes if one.startswith(plain)] if key not in sizes else []
        return next((one for one in likes if one not in self.bundles or self._is_short(one)), key)

    def _is_short(self, key: str) -> bool:
        bundle = self.bundles[key]
        return len(self._live(bundle)) < bundle.size

    def _resize(self, bundle: Bundle, size: Size | None) -> None:
        if size == 0 or isinstance(size, Mapping):
            self._scatter(bundle, size)
        elif size is None:
            what = bundle.group.source
            assert what is not None
            words = f"{what.kind} {what.name}, which says how many pods start together, cannot be read"
            self._refuse(bundle, self._live(bundle), words)
        else:
            bundle.size = size
            self._dirty[bundle.group.key] = None

    def _forget_size(self, bundle: Bundle) -> None:
        """None of its pods is left: what comes under its name may be another object, or have another size. Where the
        pods do not start together the object may have many more."""
        source = bundle.group.source
        said = None if source is None else self._sizes.get(source)
        if source is not None and said != 0 and not isinstance(said, Mapping):
            self._sizes.pop(source, None)
            self._said.pop(source, None)

    def _scatter(self, bundle: Bundle, sizes: Size) -> None:
        """Its pods do not all start together: each is a job of its own, or its parts are."""
        for uid in list(bundle.members):
            del bundle.members[uid]
            if uid in self.pods:
                self._enter(uid, part_of(self.pods[uid], bundle.group, sizes))

    def _is_scattered(self, pods: Sequence[PodFacts]) -> bool:
        return is_scattered(pods, self.nodes.volumes.bound_places_of)

    def _split(self, bundle: Bundle, pods: Sequence[PodFacts], *, by_place: bool) -> list[Bundle]:
        """Make a convoy of a gang with pods of several kinds; returns its parts, none where these are too many.
        by_place: pods whose volumes are in different places are of different kinds."""
        gang = bundle.group
        sizes = part_sizes(gang, pods, self.nodes.volumes.bound_places_of if by_place else None)
        if len(sizes) > PARTS_MAX:
            self._refuse(bundle, pods, f"expected a gang with pods of at most {PARTS_MAX} kinds, found {len(sizes)}")
            return []
        self._convoys[gang.key] = sizes
        for uid in list(bundle.members):
            del bundle.members[uid]
            if uid in self.pods:
                self._enter(uid, gang)
        self._dirty[gang.key] = None
        return [self.bundles[key] for key in sizes]

    def _bundle_for(self, origin: str) -> Bundle | None:
        """The group of a job by its origin. A part makes a convoy of its gang, as an earlier process did."""
        key, _, _ = origin.rpartition("#")
        gang = self.bundles.get(gang_key(key))
        if key not in self.bundles and gang is not None and gang.job is None:
            pods, by_place = self._live(gang), names_place(key)
            if by_place or is_mixed(pods):
                self._split(gang, pods, by_place=by_place)
        return self.bundles.get(key)

    def _lacks_parts(self, bundle: Bundle) -> bool:
        """Whether other parts of its convoy have no places yet."""
        return any(part.run is None or part.run.phase is RunPhase.STOPPING for part in self._other_parts(bundle))

    def _other_parts(self, bundle: Bundle) -> list[Bundle]:
        """The other parts of a convoy that are not over; [] of what is no part."""
        keys = self._convoys.get(gang_key(bundle.group.key), ())
        parts = [self.bundles[key] for key in keys if key != bundle.group.key and key in self.bundles]
        return [part for part in parts if part.run is not None or part.job is not None or self._live(part)]

    def _leave_convoy(self, bundle: Bundle) -> None:
        """The part is over, and none of its pods is left."""
        gang = gang_key(bundle.group.key)
        if gang in self._convoys and not any(key in self.bundles for key in self._convoys[gang]):
            del self._convoys[gang]

    def _live(self, bundle: Bundle) -> list[PodFacts]:
        """Pods of it that have not ended and were not deleted, by their place among themselves."""
        pods = [self.pods[uid] for uid in bundle.members if uid in self.pods]
        live = [pod for pod in pods if not pod.is_over and not pod.is_leaving]
        return sorted(live, key=lambda pod: (pod.index < 0, pod.index, pod.created, pod.name, pod.uid))

    def waiting(self, bundle: Bundle) -> list[PodFacts]:
        """Pods of it that lie nowhere and may."""
        return [pod for pod in self._live(bundle) if pod.uid not in self._places and not pod.gates]

    def _rest(self, bundle: Bundle, until_ms: int) -> None:
        bundle.is_held, bundle.rests_until_ms = True, until_ms
        self._resting[bundle.group.key] = None

    def _wake_rested(self, now_ms: int) -> None:
        for key in list(self._resting):
            bundle = self.bundles.get(key)
            if bundle is None or now_ms >= bundle.rests_until_ms:
                del self._resting[key]
                self._dirty[key] = None

    def _refuse(self, bundle: Bundle, pods: Sequence[PodFacts], message: str) -> None:
        if message != bundle.refused:
            bundle.refused = message
            self._actions += [Refuse(pod, message) for pod in pods]
