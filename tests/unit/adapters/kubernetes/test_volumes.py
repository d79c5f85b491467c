"""Claims on volumes tie pods to nodes, or wait, or get a volume where the pod goes."""

import pytest

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.nodes import Nodes
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.volumes import BIND_COMPLETED, SELECTED_NODE, Choice
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
UNREACHABLE = "node(s) didn't match PersistentVolume's node affinity"


@pytest.fixture
def nodes():
    found = Nodes(CONFIG)
    for name in ("a", "b"):
        found.put(parse_node(make_node(name, labels={"zone": name}), CONFIG))
    return found


def make_claim(name="data", *, volume="", size="1Gi", cls="fast", annotations=None, **spec):
    done = {BIND_COMPLETED: "yes"} if volume else {}
    return {
        "metadata": {"name": name, "namespace": "vision", "uid": f"uid-{name}", "annotations": annotations or done},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": cls,
            **({"volumeName": volume} if volume else {}),
            **spec,
        },
    }


def make_volume(name="v", *, zone="", size="1Gi", cls="fast", labels=None, phase="Available", **spec):
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    place = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zone else {}
    capacity = {"storage": size}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": capacity,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": cls,
            **place,
            **spec,
        },
        "status": {"phase": phase},
    }


def put_class(nodes, *, mode="WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner", **more):
    data = {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": mode, **more}
    nodes.volumes.put("storageclasses", data)


def put_claims(nodes, *claims):
    for claim in claims:
        nodes.volumes.put("persistentvolumeclaims", claim)


def put_volumes(nodes, *volumes):
    for volume in volumes:
        nodes.volumes.put("persistentvolumes", volume)


def pod_with(*claims):
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return parse_pod(make_pod(volumes=volumes), CONFIG)


def verdicts(nodes, pod):
    return {name: nodes.judge(pod, entry) for name, entry in nodes.entries.items()}


def test_pod_goes_where_its_bound_volume_can_be_reached(nodes):
    put_claims(nodes, make_claim(volume="v"))
    put_volumes(nodes, make_volume(zone="b"))
    pod = pod_with("data")
    assert nodes.volumes.find_lack(pod) == ""
    assert verdicts(nodes, pod) == {"a": UNREACHABLE, "b": ""}


@pytest.mark.parametrize(("asked", "verdict"), [("8E", ""), ("9E", UNREACHABLE)])
def test_volume_is_as_large_as_a_claim_asks_whatever_the_number(nodes, asked, verdict):
    put_class(nodes)
    put_claims(nodes, make_claim(size=asked))
    put_volumes(nodes, make_volume(size="8E"))
    pod = pod_with("data")
    assert nodes.volumes.find_lack(pod) == ""
    assert set(verdicts(nodes, pod).values()) == {verdict}


def test_volume_that_names_its_zone_by_a_label_is_reached_from_there(nodes):
    nodes.put(parse_node(make_node("c", labels={"topology.kubernetes.io/zone": "z2"}), CONFIG))
    put_claims(nodes, make_claim(volume="v"))
    put_volumes(nodes, make_volume(labels={"topology.kubernetes.io/zone": "z1__z2"}))
    assert [name for name, why in verdicts(nodes, pod_with("data")).items() if not why] == ["c"]


@pytest.mark.parametrize(
    ("claim", "lack"),
    [
        (None, 'persistentvolumeclaim "data" not found'),
        (make_claim(cls="slow"), "unbound immediate"),
        (make_claim(volume="absent"), 'persistentvolume "absent" not found'),
    ],
)
def test_pod_waits_for_claims_that_are_not_there_or_bind_by_themselves(nodes, claim, lack):
    put_class(nodes)
    if claim is not None:
        put_claims(nodes, claim)
    assert lack in nodes.volumes.find_lack(pod_with("data"))


def test_smallest_free_volume_near_the_node_is_chosen_and_kept_for_the_claim(nodes):
    put_class(nodes)
    put_claims(nodes, make_claim(size="2Gi"), make_claim("more"))
    put_volumes(
        nodes,
        make_volume("large", zone="b", size="9Gi"),
        make_volume("right", zone="b", size="2Gi"),
        make_volume("small", zone="b"),
        make_volume("far", zone="c", size="2Gi"),
        make_volume("taken", zone="a", size="2Gi", claimRef={"namespace": "vision", "name": "else"}),
    )
    pod = pod_with("data", "more")
    assert verdicts(nodes, pod) == {"a": UNREACHABLE, "b": ""}
    node = nodes.entries["b"].facts
    assert nodes.volumes.choose(pod, node) == (
        Choice(("vision", "data"), "uid-data", "right"),
        Choice(("vision", "more"), "uid-more", "small"),
    )


def test_volume_that_was_kept_for_a_claim_is_free_again_once_the_claim_is_gone(nodes):
    put_class(nodes)
    claim = make_claim()
    put_claims(nodes, claim, make_claim("more"))
    put_volumes(nodes, make_volume(zone="b"))
    node = nodes.entries["b"].facts
    assert nodes.volumes.choose(pod_with("data"), node)[0].volume == "v"
    assert nodes.volumes.choose(pod_with("more"), node)[0].volume == ""
    nodes.volumes.drop("persistentvolumeclaims", claim)
    assert nodes.volumes.choose(pod_with("more"), node)[0].volume == "v"


def test_claim_with_a_provisioner_may_go_where_its_class_allows_and_is_told_the_node(nodes):
    topology = {"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}
    put_class(nodes, provisioner="csi.example.com", allowedTopologies=[topology])
    put_claims(nodes, make_claim())
    pod = pod_with("data")
    assert verdicts(nodes, pod) == {"a": "", "b": UNREACHABLE}
    assert nodes.volumes.choose(pod, nodes.entries["a"].facts) == (Choice(("vision", "data"), "uid-data", ""),)


def test_provisioner_that_takes_the_node_away_again_has_given_it_up(nodes):
    put_class(nodes, provisioner="csi.example.com")
    key = "vision", "data"
    put_claims(nodes, make_claim())
    assert not nodes.volumes.was_given_up(key, "a")
    put_claims(nodes, make_claim(annotations={SELECTED_NODE: "a"}))
    assert not nodes.volumes.was_given_up(key, "a")
    put_claims(nodes, make_claim())
    assert nodes.volumes.was_given_up(key, "a")
    nodes.volumes.drop("persistentvolumeclaims", make_claim())
    assert nodes.volumes.was_given_up(key, "a")


def test_claim_of_an_ephemeral_volume_is_named_after_its_pod():
    pod = parse_pod(make_pod("p", volumes=[{"name": "scratch", "ephemeral": {}}]), CONFIG)
    assert pod.claims == ("p-scratch",)


def make_csi_volume(name, driver="disks.example.com"):
    return make_volume(name, csi={"driver": driver, "volumeHandle": name})


def limit(nodes, count, node="a", driver="disks.example.com"):
    spec = {"drivers": [{"name": driver, "allocatable": {"count": count}}, {"name": "other"}]}
    nodes.volumes.put("csinodes", {"metadata": {"name": node}, "spec": spec})


def test_node_takes_no_more_volumes_than_its_driver_can_attach(nodes):
    for name in ("v", "w"):
        put_volumes(nodes, make_csi_volume(name))
        put_claims(nodes, make_claim(f"of-{name}", volume=name))
    limit(nodes, 1)
    assert verdicts(nodes, pod_with("of-v")) == {"a": "", "b": ""}
    assert verdicts(nodes, pod_with("of-v", "of-w")) == {"a": "node(s) exceed max volume count", "b": ""}
    nodes.lay(parse_pod(make_pod("there", volumes=[claimed("of-v")]), CONFIG), "a")
    assert verdicts(nodes, pod_with("of-w")) == {"a": "node(s) exceed max volume count", "b": ""}
    nodes.lift("uid-there", "a")
    assert verdicts(nodes, pod_with("of-w")) == {"a": "", "b": ""}


def claimed(name):
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def test_claim_for_one_pod_alone_is_waited_for_while_another_pod_uses_it(nodes):
    put_claims(nodes, make_claim(volume="v", accessModes=["ReadWriteOncePod"]))
    put_volumes(nodes, make_volume())
    pod = pod_with("data")
    assert nodes.find_lack(pod) == ""
    nodes.lay(parse_pod(make_pod("there", volumes=[claimed("data")]), CONFIG), "a")
    assert "ReadWriteOncePod" in nodes.find_lack(pod)
    nodes.lift("uid-there", "a")
    assert nodes.find_lack(pod) == ""
