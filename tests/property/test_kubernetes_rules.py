"""Whatever pods ask about nodes and neighbours: every binding is one that Kubernetes' own rules allow, gangs are bound
whole, and no pod waits that has a place."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.runs import Bind, Refuse
from clearway.bootstrap.policies import fit_to_pods
from clearway.kernel import Kernel
from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.events import Batch, JobSubmitted, QueueSet, TenantSet
from clearway.model.plan import Start, Stop
from clearway.policies.named import named_policy
from support.kube_games import SPACES, draw_node, draw_other, draw_pods, redraw_node
from support.kube_rules import find_violation

CONFIG = KubernetesConfig()


class Cluster:
    """A book and a kernel, with the API server's side played: what is bound runs at once. Each binding is judged."""

    def __init__(self, nodes):
        self.book, self.kernel = Book(CONFIG), Kernel(fit_to_pods(named_policy("clearway")))
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.pods, self.now_ms, self.next_job = {}, 0, 1
        self.refused, self.violations = {}, []
        for name, labels in SPACES.items():
            self.book.nodes.society.put_space(name, labels)
        for node in nodes:
            self.book.nodes.put(parse_node(node, CONFIG))
        tenants = (TenantSet(0, TenantSpec(name=name)) for name in SPACES)
        self.handle([QueueSet(0, QueueSpec(name="production")), *tenants])
        self.run()

    def put(self, pod):
        self.pods[pod["metadata"]["uid"]] = pod
        self.book.put_pod(parse_pod(pod, CONFIG))

    def drop(self, uid):
        del self.pods[uid]
        self.book.drop_pod(uid)

    def put_node(self, node):
        self.nodes[node["metadata"]["name"]] = node
        self.book.nodes.put(parse_node(node, CONFIG))

    def lying(self):
        return [pod for pod in self.pods.values() if pod["spec"].get("nodeName")]

    def handle(self, events):
        names = self.kernel.state.inventory.names.names
        begin = self.kernel.state.inventory
        for command in self.kernel.handle(Batch(self.now_ms, tuple(events))):
            if isinstance(command, Start):
                spec = self.kernel.state.jobs[command.job].spec
                each = spec.request.devices
                places = [
                    (
                        names[node],
                        tuple(
                            int(device) - begin.device_index(names[node], 0)
                            for device in command.allocation.devices[index * each : (index + 1) * each]
                        ),
                    )
                    for index, node in enumerate(command.allocation.nodes.tolist())
                ]
                origin = self.origins[command.job]
                self.book.start(
                    self.now_ms, command.job, command.generation, places, origin, None, None, spec.request.crowds
                )
            elif isinstance(command, Stop):
                self.book.stop(self.now_ms, command.job, command.generation, command.cause)

    origins = None

    def run(self, rounds=60):
        """Until nothing more happens."""
        self.origins = self.origins or {}
        for _ in range(rounds):
            self.now_ms += 1_000
            events = self.book.settle(self.now_ms)
            for arrival in self.book.take_arrivals():
                self.origins[self.next_job] = arrival.key
                self.book.accept(self.now_ms, arrival, self.next_job)
                events.append(JobSubmitted(self.now_ms, replace(arrival.job, id=self.next_job)))
                self.next_job += 1
            if events:
                self.handle(events)
            bound = [self.carry_out(action) for action in self.book.take_actions()]
            if not events and not bound and not self.book._resting:
                return
        rests = any(bundle.rested for bundle in self.book.bundles.values())  # a convoy without places tries on and on
        assert rests, "expected an end, found more and more events"

    def carry_out(self, action):
        match action:
            case Bind(pod, node):
                found = self.pods[pod.uid]
                wrong = find_violation(found, self.nodes[node], self.lying(), self.nodes, SPACES)
                if wrong:
                    self.violations.append(f"{pod.name} on {node}: {wrong}")
                found["spec"]["nodeName"], found["status"]["phase"] = node, "Running"
                self.put(found)
            case Refuse(pod, message):
                self.refused[pod.uid] = message

    def feasible(self, pod):
        return [
            name for name, node in self.nodes.items() if not find_violation(pod, node, self.lying(), self.nodes, SPACES)
        ]


def play(seed, *, breaks_gangs):
    """A cluster after some rounds of pods that come and go. breaks_gangs: single pods of gangs go too."""
    rng = random.Random(seed)
    cluster = Cluster([draw_node(rng, f"n{number}") for number in range(rng.randint(1, 5))])
    number = 0
    for _ in range(rng.randint(1, 6)):
        for _ in range(rng.randint(1, 5)):
            number += 1
            if rng.random() < 0.2:
                cluster.put(draw_other(rng, number, list(cluster.nodes)))
            else:
                for pod in draw_pods(rng, number):
                    cluster.put(pod)
        may_go = [uid for uid, pod in cluster.pods.items() if breaks_gangs or not gang_of(pod)]
        if rng.random() < 0.4 and may_go:
            cluster.drop(rng.choice(may_go))
        if rng.random() < 0.2:
            cluster.put_node(redraw_node(rng, cluster.nodes[rng.choice(list(cluster.nodes))]))
        cluster.run()
    return cluster


def gang_of(pod):
    return pod["metadata"]["annotations"].get("clearway.io/gang", "")


def check(cluster):
    assert cluster.violations == []
    bound = Counter(gang_of(pod) for pod in cluster.lying())
    there = Counter(gang_of(pod) for pod in cluster.pods.values())
    assert all(bound[gang] in (0, count) for gang, count in there.items() if gang)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_every_binding_is_allowed_by_the_rules_of_kubernetes(seed):
    cluster = play(seed, breaks_gangs=True)
    assert cluster.violations == []


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_gangs_are_bound_whole_and_no_single_pod_waits_that_has_a_node(seed):
    cluster = play(seed, breaks_gangs=False)
    check(cluster)
    for uid, pod in cluster.pods.items():
        if not gang_of(pod) and not pod["spec"].get("nodeName") and uid not in cluster.refused:
            assert cluster.feasible(pod) == [], pod["metadata"]["name"]
