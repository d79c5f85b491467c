"""Objects of a real API server that bound what is done: disruption budgets, quotas, wishes of pods that run."""

from support.cluster import bound, until
from support.kube_scheduling import Scheduling

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def add_urgent(cluster):
    cluster.create(PRIORITIES, {"metadata": {"name": "urgent", "labels": {"test": ""}}, "value": 1000})


def add_budget(cluster, name, **spec):
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, **spec}}
    cluster.create(BUDGETS, body)
    until("a budget that counts", lambda: cluster.call("GET", f"{BUDGETS}/{name}").get("status", {}).get("expectedPods"))


def reason_of(pod):
    found = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return found[0].get("message", "") if found and found[0]["status"] == "False" else ""


def test_victims_are_those_whom_their_disruption_budget_lets_go(cluster, tmp_path):
    for name in ("n1", "n2"):
        cluster.add_node(name, gpus=8)
    add_urgent(cluster)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for name, app in (("kept", "web"), ("free", "batch")):
            cluster.add_pod(name, gpus=8, labels={"app": app})
        until("both run", lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"] * 2)
        add_budget(cluster, "web", minAvailable=1)
        cluster.add_pod("first", gpus=8, priorityClassName="urgent")
        until("the first bound", lambda: "first" in bound(cluster.pods()))
        assert sorted(bound(cluster.pods())) == ["first", "kept"]
        cluster.add_pod("second", gpus=8, priorityClassName="urgent")
        wanted = "may not be told to leave now by disruption budget default/web (which lets 0 more leave)"
        until("the second told why", lambda: any(wanted in reason_of(pod) for pod in cluster.pods()))
        assert sorted(bound(cluster.pods())) == ["first", "kept"]
        cluster.call("DELETE", f"{BUDGETS}/web")
        until("the second bound", lambda: sorted(bound(cluster.pods())) == ["first", "second"])


def test_budget_lets_as_many_go_as_it_has_left_and_no_more(cluster, tmp_path):
    for name in ("n1", "n2", "n3"):
        cluster.add_node(name, gpus=8)
    add_urgent(cluster)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for name in ("a", "b", "c"):
            cluster.add_pod(name, gpus=8, labels={"app": "web"})
        until("all run", lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"] * 3)
        add_budget(cluster, "web", minAvailable=2)
        gang = {"clearway.io/gang": "g", "clearway.io/gang-size": "2"}
        for name in ("g1", "g2"):
            cluster.add_pod(name, gpus=8, annotations=gang, priorityClassName="urgent")
        until("the gang told why", lambda: any("disruption budget" in reason_of(pod) for pod in cluster.pods()))
        assert sorted(bound(cluster.pods())) == ["a", "b", "c"]
        cluster.add_pod("one", gpus=8, priorityClassName="urgent")
        until("the one bound", lambda: "one" in bound(cluster.pods()))
        assert len(set(bound(cluster.pods())) & {"a", "b", "c"}) == 2
    cluster.call("DELETE", f"{BUDGETS}/web")


def test_pod_goes_where_pods_that_run_would_rather_have_it(cluster, tmp_path):
    for name, zone in (("a1", "a"), ("b1", "b")):
        cluster.add_node(name, gpus=8, labels={"zone": zone})
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    # Packing alone would put all on the node that has something already.
    cluster.add_pod("hermit", gpus=2, scheduler="somebody", nodeName="a1", affinity={"podAntiAffinity": wish})
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_pod("web", labels={"app": "web"})
        cluster.add_pod("plain")
        until("both bound", lambda: len(bound(cluster.pods())) == 3)
    assert bound(cluster.pods()) == {"hermit": "a1", "plain": "a1", "web": "b1"}
