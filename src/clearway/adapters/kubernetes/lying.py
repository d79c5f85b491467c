"""Nodes and what lies on them, as they were last seen. No I/O."""

from collections import Counter
from collections.abc import Iterable

from clearway.adapters.kubernetes.claims import Claims
from clearway.adapters.kubernetes.company import Society
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.entries import Counted, NodeEntry, real_name, weighs_the_same
from clearway.adapters.kubernetes.facts import NodeFacts, PodFacts
from clearway.adapters.kubernetes.guard import Guard
from clearway.adapters.kubernetes.models import Models
from clearway.adapters.kubernetes.offers import make_groups
from clearway.adapters.kubernetes.volumes import Volumes
from clearway.model.ids import NodeName


class Lying:
    """The half of `Nodes` that only notes. ours: pods that are in a run of Clearway, by uid, with what the engine
    counts for each. has_news: whether something changed since the engine was told."""

    def __init__(self, config: KubernetesConfig) -> None:
        self.entries: dict[str, NodeEntry] = {}
        self.ours: dict[str, Counted] = {}
        self.has_news = False
        self._dirty: dict[str, None] = {}
        self._unbound: set[str] = set()
        self._homeless: dict[str, dict[str, PodFacts]] = {}
        self._past: dict[str, int] = {}
        self.society = Society(self._walk, self.touch)
        self.volumes = Volumes()
        self.claims = Claims(config.device_drivers)
        self.models = Models()
        self.guard = Guard()

    def _walk(self) -> Iterable[tuple[PodFacts, str]]:
        for name, entry in self.entries.items():
            for uid, pod in entry.pods.items():
                if uid not in self._unbound:
                    yield pod, name
        for name, pods in self._homeless.items():
            for pod in pods.values():
                yield pod, name

    def put(self, facts: NodeFacts) -> None:
        """The node was seen."""
        entry = self.entries.get(facts.name)
        if entry is None:
            entry = self.entries[facts.name] = NodeEntry(
                facts, NodeName(facts.name), self._homeless.pop(facts.name, {}), aliases=self._past.pop(facts.name, 0)
            )
            for pod in entry.pods.values():
                _count(entry.used, pod, 1)
        elif entry.facts == facts and not entry.is_gone:
            return
        entry.facts, entry.is_gone, entry.lasting = facts, False, {}
        self._note_models(facts.name)
        self.society.put_node(facts)
        self.touch(facts.name)

    def drop(self, name: str) -> None:
        """The node is gone."""
        if name in self.entries:
            self.entries[name].is_gone = True
            self._note_models(name)
            self.society.drop_node(name)
            self.touch(name)

    def _note_models(self, name: str) -> None:
        entry = self.entries.get(name)
        if entry is None or entry.is_gone:
            self.models.put(name, ())
            return
        resources = (resource for resource, _ in entry.facts.devices)
        offers = zip(resources, (group.model for group in make_groups(entry.facts)), strict=True)
        self.models.put(name, (*offers, *(("", group[0].model) for group in self.claims.groups_on(name))))

    def touch(self, name: str) -> None:
        """Something about the node, or on it, changed."""
        self._dirty[name], self.has_news = None, True

    def touch_nodes(self) -> None:
        """Something changed that is about all nodes."""
        self._dirty.update(dict.fromkeys(self.entries))
        self.has_news = True

    def lay(self, pod: PodFacts, node: str) -> None:
        """The pod lies on the node and holds what it asks."""
        entry = self.entries.get(node)
        pods = self._homeless.setdefault(node, {}) if entry is None else entry.pods
        before = pods.get(pod.uid)
        pods[pod.uid] = pod
        if pod.claims:
            self.volumes.use(pod)
        if before is not None and weighs_the_same(before, pod):
            return
        if entry is not None:
            _count(entry.used, pod, 1)
            if before is not None:
                _count(entry.used, before, -1)
        if pod.uid not in self._unbound:
            if before is not None:
                self._count_company(before, node, -1)
            self._count_company(pod, node, 1)
        self.touch(node)

    def _count_company(self, pod: PodFacts, node: str, more: int) -> None:
        try:
            self.society.count(pod, node, more)
        except Exception:  # about this pod alone, which holds what it asks all the same
            self.guard.note(("company", pod.uid), pod, f"pod {pod.namespace}/{pod.name}")

    def keep_unbound(self, pod: PodFacts, node: str) -> None:
        """The pod has its place and is not bound to it: it holds what it asks, and is nobody's neighbour yet."""
        if pod.uid not in self._unbound:
            self._unbound.add(pod.uid)
            self._count_company(pod, node, -1)
            self.touch(node)

    def may_bind(self, pod: PodFacts, node: str) -> None:
        """The pod is bound to its place now, or will be."""
        if pod.uid in self._unbound:
            self._unbound.discard(pod.uid)
            self._count_company(pod, node, 1)
            self.touch(node)

    def lift(self, uid: str, node: str) -> None:
        """The pod holds nothing there any more."""
        entry = self.entries.get(node)
        pods = self._homeless.get(node, {}) if entry is None else entry.pods
        pod = pods.pop(uid, None)
        if pod is not None:
            if entry is not None:
                _count(entry.used, pod, -1)
            if uid not in self._unbound:
                self._count_company(pod, node, -1)
            if pod.device_claims:
                self.claims.release(uid)
            if pod.claims:
                self.volumes.use(pod, is_over=True)
            self.touch(node)
        self._unbound.discard(uid)

    def hold(self, job: int, name: NodeName, devices: Iterable[int], crowds: Iterable[str] = ()) -> None:
        """A replica of a run of Clearway holds these devices of the node, and counts in these crowds."""
        entry = self.entries.get(real_name(name))
        if entry is not None:
            entry.held.setdefault(job, []).extend(devices)
            entry.counted.setdefault(job, Counter()).update(crowds)
            self.touch(entry.facts.name)

    def let_go(self, job: int, name: NodeName) -> None:
        """The run holds nothing there any more."""
        entry = self.entries.get(real_name(name))
        if entry is not None and entry.held.pop(job, None) is not None:
            entry.counted.pop(job, None)
            self.touch(entry.facts.name)

    def free(self, entry: NodeEntry) -> dict[str, int]:
        """What is left of each resource of a node, beside every pod that lies there."""
        left = dict(entry.facts.amounts)
        for name, amount in entry.used.items():
            left[name] = left.get(name, 0) - amount
        return left


def _count(used: dict[str, int], pod: PodFacts, more: int) -> None:
    for name, amount in pod.amounts:
        used[name] = used.get(name, 0) + more * amount
