"""What pods ask about nodes and neighbours, on a real API server: bindings of Clearway, and kube-scheduler's beside."""

import random
from collections import Counter

import pytest

from support.cluster import Cluster, bound, find_missing, is_fresh, make_ready, until
from support.kube_games import SPACES, draw_node, draw_pods
from support.kube_rules import find_violation
from support.kube_scheduling import Scheduling

ROUNDS = 3
PODS = 40


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A control plane with kube-scheduler."""
    if missing := find_missing(("kube-scheduler",)):
        pytest.skip(missing)
    cluster = Cluster(tmp_path_factory.mktemp("beside"), "--scheduler")
    for name, labels in SPACES.items():
        cluster.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield cluster
    cluster.close()


def verdict(cluster, pod):
    """The node on which kube-scheduler puts the pod, and what it says; "" = it says that there is none."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    cluster.create(path, pod)

    def decided():
        seen = cluster.call("GET", f"{path}/{pod['metadata']['name']}")
        conditions = [one for one in seen["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
        return (seen["spec"].get("nodeName", ""), conditions) if conditions else None

    node, conditions = until("a decision", decided)
    if not node:
        cluster.call("DELETE", f"{path}/{pod['metadata']['name']}", params={"gracePeriodSeconds": "0"})
    return node, conditions[0].get("message", "")


def as_new(thing, name):
    """The object as a user writes it, for kube-scheduler."""
    thing["metadata"]["name"] = name
    thing["metadata"].pop("annotations", None)
    for key in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences", "finalizers", "generateName"):
        thing["metadata"].pop(key, None)
    if "containers" in thing["spec"]:
        thing["spec"]["schedulerName"] = "default-scheduler"
        for key in ("priorityClassName", "priority", "preemptionPolicy"):
            thing["spec"].pop(key, None)
    return thing


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_kube_scheduler_finds_a_node_just_where_the_rules_that_judge_clearway_allow_one(beside, seed):
    rng = random.Random(seed)
    for number in range(5):
        node = draw_node(rng, f"s{seed}-n{number}")
        node["status"]["conditions"] = [make_ready()]
        beside.create("/api/v1/nodes", as_new(node, node["metadata"]["name"]))
    until("nodes that may be used", lambda: not any(is_fresh(node) for node in beside.items("/api/v1/nodes")))
    answers = Counter()
    for number in range(PODS):
        (pod, *_) = draw_pods(rng, number)
        pod = as_new(pod, f"s{seed}-p{number}")
        nodes = {node["metadata"]["name"]: node for node in beside.items("/api/v1/nodes")}
        lying = [one for one in beside.items("/api/v1/pods") if one["spec"].get("nodeName")]
        judged = {name: find_violation(pod, node, lying, nodes, SPACES) for name, node in nodes.items()}
        may = {name for name, why in judged.items() if not why}
        node, message = verdict(beside, pod)
        assert node in may if may else node == "", f"expected one of {judged}, found {node!r}: {message}; {pod['spec']}"
        answers[bool(may)] += 1
    beside.call("DELETE", "/api/v1/nodes")
    for name in SPACES:
        beside.call("DELETE", f"/api/v1/namespaces/{name}/pods", params={"gracePeriodSeconds": "0"})
    assert min(answers.values()) >= 3, answers


def spread_pods(cluster, names, gpus=1, **more):
    """Equal pods that keep apart from one another by node, and are spread over zones."""
    selector = {"matchLabels": {"app": "web"}}
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    for name in names:
        cluster.add_pod(
            name,
            gpus=gpus,
            labels={"app": "web"},
            affinity={"podAntiAffinity": apart},
            topologySpreadConstraints=[spread],
            **more,
        )


def add_zones(cluster, **zones):
    for name, zone in zones.items():
        cluster.add_node(name, gpus=8, labels={"kubernetes.io/hostname": name, "zone": zone})


def test_pods_and_a_gang_that_keep_apart_are_spread_over_nodes_and_zones(cluster, tmp_path):
    add_zones(cluster, a1="a", a2="a", a3="a", b1="b", b2="b")
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        spread_pods(cluster, ("p1", "p2"))
        until("both bound", lambda: len(bound(cluster.pods())) == 2)
        assert sorted(node[0] for node in bound(cluster.pods()).values()) == ["a", "b"]
        gang = {"clearway.io/gang": "g", "clearway.io/gang-size": "2"}
        spread_pods(cluster, ("g1", "g2"), annotations=gang)
        until("the gang bound", lambda: len(bound(cluster.pods())) == 4)
        spread_pods(cluster, ("p5", "p6"))
        until("one more bound", lambda: len(bound(cluster.pods())) == 5)
        waiting = until("a reason", lambda: [pod for pod in cluster.pods() if reason_of(pod)])
        assert len(set(bound(cluster.pods()).values())) == 5
    message = reason_of(waiting[0])
    assert message.startswith(
        "0/5 nodes are available: 3 node(s) didn't match pod topology spread constraints, "
        "2 node(s) didn't match pod anti-affinity rules."
    )


def reason_of(pod):
    """What the pod is told of why it waits."""
    found = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return found[0].get("message", "") if found and found[0]["status"] == "False" else ""


def test_anti_affinity_of_a_pod_of_another_scheduler_is_seen(cluster, tmp_path):
    add_zones(cluster, a1="a", b1="b")
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.add_pod("other", scheduler="somebody", nodeName="a1", affinity=apart)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for number in range(3):
            cluster.add_pod(f"p{number}", labels={"app": "web"})
        until("all bound", lambda: len(bound(cluster.pods())) == 4)
    assert Counter(bound(cluster.pods()).values()) == {"a1": 1, "b1": 3}


def test_claim_that_waits_for_its_first_consumer_gets_a_volume_where_the_pod_may_lie(cluster, tmp_path):
    add_zones(cluster, a1="a", b1="b")
    waits = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
    cluster.create(CLASSES, {**waits, "volumeBindingMode": "WaitForFirstConsumer"})
    cluster.create("/api/v1/persistentvolumes", make_volume("v-b", zone="b"))
    cluster.create(CLAIMS, make_claim("data"))
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_pod("p1", volumes=[volume])
        cluster.add_pod("lacks", volumes=[{"name": "x", "persistentVolumeClaim": {"claimName": "absent"}}])
        until("the pod bound", lambda: bound(cluster.pods()))
        until("the other told why", lambda: any("not found" in reason_of(pod) for pod in cluster.pods()))
        cluster.add_pod("p2", volumes=[volume])
        until("the second pod bound", lambda: len(bound(cluster.pods())) == 2)
    assert bound(cluster.pods()) == {"p1": "b1", "p2": "b1"}
    (claim,) = cluster.items(CLAIMS)
    assert claim["spec"]["volumeName"] == "v-b"
    for path in (CLAIMS, "/api/v1/persistentvolumes", CLASSES):
        cluster.call("DELETE", path)


def test_gang_of_which_each_pod_has_a_volume_in_another_zone_is_bound_to_both(cluster, tmp_path):
    add_zones(cluster, a1="a", b1="b")
    waits = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
    cluster.create(CLASSES, {**waits, "volumeBindingMode": "WaitForFirstConsumer"})
    for zone in ("a", "b"):
        reference = {"claimRef": {"namespace": "default", "name": f"data-{zone}"}}
        volume = make_volume(f"v-{zone}", zone=zone)
        cluster.create("/api/v1/persistentvolumes", {**volume, "spec": volume["spec"] | reference})
        claim = make_claim(f"data-{zone}")
        cluster.create(CLAIMS, {**claim, "spec": claim["spec"] | {"volumeName": f"v-{zone}"}})
    until("the claims bound", lambda: all(one["status"]["phase"] == "Bound" for one in cluster.items(CLAIMS)))
    gang = {"clearway.io/gang": "g", "clearway.io/gang-size": "2"}
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for zone in ("a", "b"):
            volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{zone}"}}
            cluster.add_pod(f"p-{zone}", annotations=gang, volumes=[volume])
        until("the gang bound", lambda: len(bound(cluster.pods())) == 2)
    assert bound(cluster.pods()) == {"p-a": "a1", "p-b": "b1"}
    for path in (CLAIMS, "/api/v1/persistentvolumes", CLASSES):
        cluster.call("DELETE", path)


CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def make_volume(name, zone):
    """A volume of 1 GiB that can be reached from one zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"metadata": {"name": name}, "spec": spec}


def make_claim(name):
    """A claim on 1 GiB of class `local`."""
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": resources}
    return {"metadata": {"name": name}, "spec": spec}


def test_launcher_and_workers_are_bound_together_or_not_at_all(cluster, tmp_path):
    cluster.add_node("n1", gpus=8)
    cluster.add_node("n2", gpus=8)
    gang = {"clearway.io/gang": "g", "clearway.io/gang-size": "3"}
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_pod("launcher", gpus=0, annotations=gang, nodeSelector={"cpus": "only"})
        for name in ("w1", "w2"):
            cluster.add_pod(name, gpus=8, annotations=gang)
        until("a reason on the launcher", lambda: any(reason_of(pod) for pod in cluster.pods()))
        assert bound(cluster.pods()) == {}
        cluster.add_node("cpu", gpus=0, labels={"cpus": "only"})
        until("all bound", lambda: len(bound(cluster.pods())) == 3)
    assert bound(cluster.pods())["launcher"] == "cpu"
    assert {bound(cluster.pods())[name] for name in ("w1", "w2")} == {"n1", "n2"}
