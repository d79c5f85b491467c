"""Clearway schedules a real API server's pods: whole, once, and with reasons."""

import pytest

from clearway.model.cluster import Quota, TenantSpec
from clearway.model.ids import JobId
from support.cluster import bound, devices_used, until
from support.kube_scheduling import Scheduling

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PREEMPTED = ("Preempted", ["pod urgent", "priority 1000 (class urgent)"])
"""Reason, and last words of the note, of an event about a pod that left for the pod `urgent`."""


@pytest.fixture
def database(tmp_path):
    return tmp_path / "clearway.db"


def phases(cluster):
    return sorted(pod["status"]["phase"] for pod in cluster.pods())


def scheduled(cluster):
    """Pods and nodes of the events that say where pods were bound."""
    events = cluster.items(EVENTS)
    found = [one for one in events if one["reason"] == "Scheduled" and one["type"] == "Normal"]
    return {(one["regarding"]["name"], one["note"].rpartition(" ")[2]) for one in found}


def condition(pod):
    found = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return found[0] if found else {}


def test_pods_are_bound_and_run_until_the_devices_are_used_and_the_rest_are_told_why(cluster, database):
    cluster.add_node("n1", gpus=4)
    for number in range(6):
        cluster.add_pod(f"p{number}", gpus=1)
    with Scheduling(cluster.kubeconfig, database):
        until("four pods that run", lambda: phases(cluster).count("Running") == 4)
        waiting = until(
            "a reason on both pods that wait",
            lambda: [pod for pod in cluster.pods() if condition(pod).get("reason") == "Unschedulable"][1:],
        )
        assert devices_used(cluster.pods()) == {"n1": 4}
        assert "Resources" in condition(waiting[0])["message"]
        assert condition(waiting[0])["lastTransitionTime"] == waiting[0]["metadata"]["creationTimestamp"]
        events = until("an event", lambda: cluster.items(EVENTS))
        assert any(one["reason"] == "FailedScheduling" for one in events)
        until("an event for each pod that was bound", lambda: scheduled(cluster) >= set(bound(cluster.pods()).items()))
        (name, *_) = bound(cluster.pods())
        cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
        until("a fifth pod that is bound", lambda: len(bound(cluster.pods())) == 4 and len(cluster.pods()) == 5)


def test_gang_is_bound_whole_or_not_at_all(cluster, database):
    cluster.add_node("n1", gpus=8)
    cluster.add_job("small", 1, gpus=4)
    with Scheduling(cluster.kubeconfig, database):
        until("the small one bound", lambda: len(bound(cluster.pods())) == 1)
        cluster.add_job("gang", 2, gpus=8)
        cluster.add_job("late", 1, gpus=2)
        until("the late one bound", lambda: len(bound(cluster.pods())) == 2)
        assert not [name for name in bound(cluster.pods()) if name.startswith("gang")]
        cluster.add_node("n2", gpus=8)
        cluster.add_node("n3", gpus=8)
        until("the gang bound", lambda: len([one for one in bound(cluster.pods()) if one.startswith("gang")]) == 2)
        assert max(devices_used(cluster.pods()).values()) <= 8


def test_job_that_is_deleted_while_it_waits_leaves_the_queue(cluster, database):
    cluster.add_node("n1", gpus=1)
    with Scheduling(cluster.kubeconfig, database) as scheduling:
        cluster.add_job("large", 2, gpus=1)
        job = until("a job that waits", lambda: scheduling.control.job(JobId(1)))
        assert job.state == "PENDING"
        cluster.delete("/apis/batch/v1/namespaces/default/jobs/large")
        until("a job that is cancelled", lambda: scheduling.control.job(JobId(1)).state == "CANCELLED")
    assert not scheduling.pods.backend.book.jobs


def test_higher_priority_evicts_a_whole_gang_which_comes_back(cluster, database):
    for name in ("n1", "n2"):
        cluster.add_node(name, gpus=8)
    cluster.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "urgent", "labels": {"test": ""}}, "value": 1000},
    )
    cluster.add_job("low", 2, gpus=8)
    with Scheduling(cluster.kubeconfig, database):
        until("the gang runs", lambda: phases(cluster) == ["Running", "Running"])
        cluster.add_pod("urgent", gpus=8, priorityClassName="urgent")
        until("the urgent pod runs", lambda: "urgent" in bound(cluster.pods()))
        low = until("two pods made anew", lambda: [p for p in cluster.pods() if p["metadata"]["name"] != "urgent"][1:])
        until("none of the gang lies anywhere", lambda: list(bound(cluster.pods())) == ["urgent"])
        assert low
        until(
            "the pods that left are told for whom",
            lambda: [e for e in cluster.items(EVENTS) if (e["reason"], e["note"].split(", ")[1:]) == PREEMPTED][1:],
        )
        cluster.delete("/api/v1/namespaces/default/pods/urgent")
        until("the gang runs again", lambda: phases(cluster) == ["Running", "Running"])


def test_new_scheduler_finds_everything_again_and_binds_nothing_twice(cluster, database):
    for name in ("n1", "n2"):
        cluster.add_node(name, gpus=8)
    cluster.add_job("gang", 2, gpus=8)
    with Scheduling(cluster.kubeconfig, database):
        until("the gang runs", lambda: phases(cluster) == ["Running", "Running"])
        cluster.add_pod("waits", gpus=1)
        until("it is told why", lambda: any(condition(p).get("reason") == "Unschedulable" for p in cluster.pods()))
    before = bound(cluster.pods())
    cluster.add_pod("new", gpus=1)
    with Scheduling(cluster.kubeconfig, database) as second:
        until("the new pod is known", lambda: second.control.cluster().pending == 2)
        assert bound(cluster.pods()) == before
        cluster.delete("/apis/batch/v1/namespaces/default/jobs/gang")
        until("both pods run", lambda: sorted(bound(cluster.pods())) == ["new", "waits"])


def test_pod_goes_where_taints_and_affinity_let_it(cluster, database):
    cluster.add_node("tainted", labels={"zone": "c"}, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    cluster.add_node("a", labels={"zone": "a"})
    cluster.add_node("b", labels={"zone": "b"})
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.add_pod("not-a", affinity={"nodeAffinity": required})
    cluster.add_pod("only-a", nodeSelector={"zone": "a"})
    cluster.add_pod("bears", tolerations=[{"key": "team", "operator": "Exists"}], nodeSelector={"zone": "c"})
    cluster.add_pod("bears-not", nodeSelector={"zone": "c"})
    with Scheduling(cluster.kubeconfig, database):
        until("three bound", lambda: len(bound(cluster.pods())) == 3)
        until(
            "the fourth told why", lambda: any("untolerated" in condition(p).get("message", "") for p in cluster.pods())
        )
    assert bound(cluster.pods()) == {"not-a": "b", "only-a": "a", "bears": "tainted"}


def test_what_others_hold_is_left_to_them(cluster, database):
    cluster.add_node("n1", gpus=4)
    cluster.add_pod("other", gpus=3, scheduler="somebody", nodeName="n1")
    until("the other runs", lambda: phases(cluster) == ["Running"])
    cluster.add_pod("p1")
    cluster.add_pod("p2")
    with Scheduling(cluster.kubeconfig, database):
        until("one pod bound", lambda: len(bound(cluster.pods())) == 2)
        until(
            "the other is told why", lambda: any(condition(p).get("reason") == "Unschedulable" for p in cluster.pods())
        )
        assert devices_used(cluster.pods()) == {"n1": 4}


def test_namespace_runs_no_more_than_its_quota_and_says_so(cluster, database):
    cluster.add_node("n1", gpus=8)
    for number in range(3):
        cluster.add_pod(f"p{number}")
    quota = Quota(guaranteed_milli=2_000, borrow_max_milli=0)
    with Scheduling(cluster.kubeconfig, database, tenants=(TenantSpec(name="default", quota=quota),)):
        until(
            "the third told why", lambda: any("AssocGrpGRES" in condition(p).get("message", "") for p in cluster.pods())
        )
        assert len(bound(cluster.pods())) == 2
