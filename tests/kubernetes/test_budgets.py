"""Objects of a real API server that bound what is done: disruption budgets, quotas, wishes of pods that run."""

from support.cluster import bound, make_pod_spec, until
from support.kube_scheduling import Scheduling

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def add_urgent(cluster):
    cluster.create(PRIORITIES, {"metadata": {"name": "urgent", "labels": {"test": ""}}, "value": 1000})


def add_budget(cluster, name, **spec):
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, **spec}}
    cluster.create(BUDGETS, body)
    until(
        "a budget that counts", lambda: cluster.call("GET", f"{BUDGETS}/{name}").get("status", {}).get("expectedPods")
    )


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


def make_replicas(cluster, count):
    """A ReplicaSet of pods that fill a node each, all of them running."""
    cluster.create(
        "/apis/apps/v1/namespaces/default/replicasets",
        {
            "metadata": {"name": "web"},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": make_pod_spec(gpus=8)},
            },
        },
    )
    until("all run", lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"] * count)


def is_victim_gone(cluster, pods):
    return len(set(bound(cluster.pods())) & pods) < len(pods)


def test_percentage_lets_one_of_four_go_however_many_want_its_place(cluster, tmp_path):
    for number in range(4):
        cluster.add_node(f"n{number}", gpus=8)
    add_urgent(cluster)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        make_replicas(cluster, 4)
        web = set(bound(cluster.pods()))
        add_budget(cluster, "web", maxUnavailable="25%")
        for name in ("u1", "u2", "u3"):
            cluster.add_pod(name, gpus=8, priorityClassName="urgent")
        until("one urgent pod bound", lambda: is_victim_gone(cluster, web) and len(bound(cluster.pods())) == 4)
        until("two told why", lambda: sum("disruption budget" in reason_of(pod) for pod in cluster.pods()) >= 2)
        assert len(set(bound(cluster.pods())) & web) == 3
        cluster.call("DELETE", f"{BUDGETS}/web")
        until("all bound", lambda: set(bound(cluster.pods())) >= {"u1", "u2", "u3"})
        cluster.call("DELETE", "/apis/apps/v1/namespaces/default/replicasets/web")


def test_budget_of_all_pods_counts_and_one_of_none_does_not_and_two_of_one_pod_let_it_not_go(cluster, tmp_path):
    cluster.add_node("n1", gpus=8)
    add_urgent(cluster)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_pod("kept", gpus=8, labels={"app": "web"})
        until("it runs", lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"])
        for name, selector in (("none", None), ("all", {}), ("web", {"matchLabels": {"app": "web"}})):
            spec = {"minAvailable": 0 if name == "web" else 1, "selector": selector}
            cluster.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
        until(
            "budgets that count",
            lambda: all(
                cluster.call("GET", f"{BUDGETS}/{name}")["status"].get("expectedPods") for name in ("all", "web")
            ),
        )
        cluster.add_pod("urgent", gpus=8, priorityClassName="urgent")
        wanted = "several disruption budgets at once"
        until("told that there are two", lambda: any(wanted in reason_of(pod) for pod in cluster.pods()))
        cluster.call("DELETE", f"{BUDGETS}/web")
        wanted = "disruption budget default/all (which lets 0 more leave)"
        until("told that there is one", lambda: any(wanted in reason_of(pod) for pod in cluster.pods()))
        cluster.call("PATCH", f"{BUDGETS}/all", {"spec": {"minAvailable": 0}}, headers=MERGE)
        until("the urgent pod bound", lambda: bound(cluster.pods()) == {"urgent": "n1"})
        for name in ("none", "all"):
            cluster.call("DELETE", f"{BUDGETS}/{name}")


def test_pod_goes_where_pods_that_lie_somewhere_would_rather_have_it(cluster, tmp_path):
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


NIC = "example.com/nic"


def test_gang_that_asks_for_more_than_devices_is_planned_by_all_of_it_and_has_room_made(cluster, tmp_path):
    for name, nics in (("n1", 1), ("n2", 3)):
        cluster.add_node(name, gpus=8, more={NIC: str(nics)})
    add_urgent(cluster)
    gang = {"clearway.io/gang": "g", "clearway.io/gang-size": "4"}
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for number in range(4):
            cluster.add_pod(f"g{number}", extras={NIC: "1"}, annotations=gang)
        until("the gang runs", lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"] * 4)
        assert sorted(bound(cluster.pods()).values()) == ["n1", "n2", "n2", "n2"]
        cluster.add_pod("urgent", extras={NIC: "2"}, priorityClassName="urgent")
        until("the urgent pod bound", lambda: bound(cluster.pods()) == {"urgent": "n2"})


def test_room_is_made_for_a_host_port_and_where_pods_are_to_be_spread(cluster, tmp_path):
    for name, zone in (("a1", "a"), ("b1", "b")):
        cluster.add_node(name, gpus=8, labels={"zone": zone})
    add_urgent(cluster)
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_pod("port", gpus=1, ports=[8080], nodeSelector={"zone": "a"})
        for zone in ("a", "b"):
            cluster.add_pod(f"train-{zone}", gpus=7 if zone == "a" else 8, nodeSelector={"zone": zone})
        until("all run", lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"] * 3)
        urgent = {"priorityClassName": "urgent", "labels": {"app": "web"}, "topologySpreadConstraints": [spread]}
        cluster.add_pod("web-1", gpus=1, ports=[8080], nodeSelector={"zone": "a"}, **urgent)
        until("the port given", lambda: bound(cluster.pods()).get("web-1") == "a1")
        assert set(bound(cluster.pods())) == {"train-a", "train-b", "web-1"}
        cluster.add_pod("web-2", gpus=1, **urgent)
        until("the other zone taken", lambda: bound(cluster.pods()).get("web-2") == "b1")
        assert set(bound(cluster.pods())) == {"train-a", "web-1", "web-2"}
