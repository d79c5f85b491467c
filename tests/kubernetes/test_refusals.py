"""What a real API server refuses, by policies and in namespaces that go; and pods that say what means nothing."""

import httpx
import pytest

from support.cluster import bound, until
from support.kube_scheduling import Scheduling

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def forbid(cluster):
    """Has the API server refuse calls on this subresource of pods for which the expression is false; all pods are gone
    before it ends."""
    paths = [f"{ADMISSION}/{kind}" for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies")]

    def put(resource, operation, allowed):
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
        spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": allowed}]}
        cluster.create(paths[1], {"metadata": {"name": "barred"}, "spec": spec})
        cluster.create(
            paths[0],
            {"metadata": {"name": "barred"}, "spec": {"policyName": "barred", "validationActions": ["Deny"]}},
        )

    yield put
    for path in paths:
        cluster.call("DELETE", path)


def condition_of(cluster, name):
    pod = cluster.call("GET", f"/api/v1/namespaces/default/pods/{name}")
    found = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return found[0].get("message", "") if found and found[0]["status"] == "False" else ""


def events_of(cluster, name):
    events = cluster.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return [event["note"] for event in events if event["regarding"]["name"] == name]


def test_gang_of_which_a_policy_lets_one_pod_not_be_bound_leaves_whole_and_others_take_its_place(
    cluster, tmp_path, forbid
):
    for name in ("n1", "n2"):
        cluster.add_node(name, gpus=8)
    forbid("pods/binding", "CREATE", "!object.metadata.name.contains('-1-')")
    probe = cluster.add_pod("probe-1-x", scheduler="nobody")["metadata"]
    binding = {"metadata": {"name": probe["name"]}, "target": {"kind": "Node", "name": "n1"}}
    path = f"/api/v1/namespaces/default/pods/{probe['name']}"
    until(
        "the policy in force",
        lambda: cluster.http.post(f"{path}/binding", json=binding, params={"dryRun": "All"}).status_code == 422,
    )
    cluster.delete(path)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_job("gang", 2, gpus=8)
        until("one of it bound", lambda: len(bound(cluster.pods())) == 1)
        cluster.add_pod("other", gpus=8)
        until("another bound, and nothing of the gang", lambda: set(bound(cluster.pods())) == {"other"})
        waiting = [pod["metadata"]["name"] for pod in cluster.pods() if pod["metadata"]["name"] != "other"]
        wanted = "the API server does not let its pods be bound"
        until("the gang told why", lambda: any(wanted in condition_of(cluster, name) for name in waiting))


def test_pod_whose_condition_may_not_be_written_keeps_no_other_from_being_told(cluster, tmp_path, forbid):
    cluster.add_node("n1", gpus=1)
    forbid("pods/status", "UPDATE", "object.metadata.name != 'mute'")
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for name in ("mute", "told"):
            cluster.add_pod(name, gpus=2)
        until("the second told why", lambda: condition_of(cluster, "told"))
        assert condition_of(cluster, "mute") == ""


def test_namespace_that_is_deleted_gives_everything_back_and_disturbs_nobody(cluster, tmp_path):
    cluster.add_node("n1", gpus=8)
    cluster.add_namespace("leaving")
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db") as scheduling:
        cluster.add_job("runs", 2, namespace="leaving", gpus=4)
        until("it is bound", lambda: len(bound(cluster.pods("leaving"))) == 2)
        cluster.add_pod("waits", namespace="leaving")
        cluster.add_pod("stays")
        until("another waits", lambda: condition_of(cluster, "stays"))
        cluster.delete("/api/v1/namespaces/leaving")
        until("the other bound", lambda: bound(cluster.pods()) == {"stays": "n1"})
        until(
            "no namespace", lambda: cluster.http.get("/api/v1/namespaces/leaving").status_code == httpx.codes.NOT_FOUND
        )
        until("no job of it", lambda: len(scheduling.pods.backend.book.jobs) == 1)


def test_pod_that_says_nonsense_is_told_so_once_and_not_bound(cluster, tmp_path):
    cluster.add_node("n1", gpus=1)
    cluster.add_pod("nonsense", annotations={"clearway.io/gang": "g", "clearway.io/gang-size": "many"})
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        until("it is told", lambda: events_of(cluster, "nonsense"))
        version = cluster.call("GET", "/api/v1/namespaces/default/pods/nonsense")["metadata"]["resourceVersion"]
        for name in ("b", "c"):  # each is told in a round of reasons of its own
            cluster.add_pod(name, gpus=2)
            until("another told", lambda name=name: condition_of(cluster, name))
        assert len(events_of(cluster, "nonsense")) == 1
        assert cluster.call("GET", "/api/v1/namespaces/default/pods/nonsense")["metadata"]["resourceVersion"] == version
        assert bound(cluster.pods()) == {}
