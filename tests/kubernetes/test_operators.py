"""Gangs as operators of others make them: their objects on a real API server, and pods with the labels, annotations and
owners that those operators give them. The operators themselves do not run."""

import httpx
import pytest

from clearway.model.cluster import QueueSpec
from clearway.model.ids import JobId
from support.cluster import bound, make_pod_spec, until
from support.kube_scheduling import Scheduling

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"

JOBSET = {
    "replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}}]
}
PYTORCH = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}
RAY = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "small", "replicas": 1, "numOfHosts": 3}]}

PAIR = {"replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2}}}
IN_ORDER = {
    "startupPolicy": {"startupPolicyOrder": "InOrder"},
    "replicatedJobs": [PAIR | {"name": "first"}, PAIR | {"name": "second"}],
}

SHAPES = {
    "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", JOBSET),
    "pytorch": ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", PYTORCH),
    "ray": ("ray.io/v1", "RayCluster", "rayclusters", RAY),
    "volcano": ("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups", {"minMember": 4, "queue": "default"}),
}
"""API version, kind, plural and spec of what says that four pods belong together."""

ORDERED = {"jobset in order": ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", IN_ORDER)}


def make_jobs(cluster, owner):
    """The two Jobs of a JobSet. Another controller than Kubernetes' own looks after them, so that it makes no pods."""
    for number in range(2):
        cluster.create(JOBS, make_job(f"own-workers-{number}", owner))
    return {job["metadata"]["name"]: job["metadata"]["uid"] for job in cluster.items(JOBS)}


def make_job(name, owner):
    reference = {"apiVersion": owner["apiVersion"], "kind": "JobSet", "name": "own", "uid": owner["metadata"]["uid"]}
    template = {"spec": make_pod_spec(restartPolicy="Never")}
    spec = {"parallelism": 2, "completions": 2, "managedBy": "clearway.invalid/test", "template": template}
    return {"metadata": {"name": name, "ownerReferences": [reference | {"controller": True}]}, "spec": spec}


def metadata_of(shape, number, owner, jobs):
    """What the operator writes into its pod of this number. jobs: uids of a JobSet's Jobs, which own its pods."""
    me = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    me |= {"name": "own", "uid": owner["metadata"]["uid"]}
    match shape:
        case "jobset":  # its pods are a batch Job's, which is the JobSet's
            job = me | {"apiVersion": "batch/v1", "kind": "Job", "name": f"own-workers-{number // 2}"}
            job["uid"] = jobs[job["name"]]
            labels = {"jobset.sigs.k8s.io/jobset-name": "own", "jobset.sigs.k8s.io/replicatedjob-name": "workers"}
            labels |= {"jobset.sigs.k8s.io/jobset-uid": owner["metadata"]["uid"]}
            labels |= {"jobset.sigs.k8s.io/job-index": str(number // 2)}
            return {"ownerReferences": [job], "labels": labels, "annotations": dict(labels)}
        case "pytorch":
            role, place = ("master", 0) if number == 0 else ("worker", number - 1)
            labels = {"training.kubeflow.org/job-name": "own", "training.kubeflow.org/replica-type": role}
            labels |= {"training.kubeflow.org/replica-index": str(place)}
            return {"ownerReferences": [me], "labels": labels}
        case "ray":
            role = "worker" if number else "head"
            return {"ownerReferences": [me], "labels": {"ray.io/cluster": "own", "ray.io/node-type": role}}
        case "volcano":  # its pods are a Volcano Job's, which has a PodGroup
            job = me | {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
            said = {"scheduling.k8s.io/group-name": "own", "volcano.sh/job-name": "own"}
            return {"ownerReferences": [job], "annotations": said | {"volcano.sh/queue-name": "default"}}


@pytest.fixture
def make_owner(cluster):
    """A function that makes the object of a shape, in an API that takes it as it is."""
    made = []

    def make(shape, **more):
        api_version, kind, plural, spec = (SHAPES | ORDERED)[shape]
        group, _, version = api_version.partition("/")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        definition = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
        crd = {"metadata": {"name": f"{plural}.{group}"}, "spec": definition}
        if group.endswith(".k8s.io") or group.endswith("x-k8s.io"):
            url = "https://github.com/kubernetes/enhancements/pull/1111"
            crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": url}
        cluster.create(CRDS, crd)
        made.append(crd["metadata"]["name"])
        path = f"/apis/{api_version}/namespaces/default/{plural}"
        until("its API", lambda: cluster.http.get(path).status_code == httpx.codes.OK)
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "own"}, "spec": spec | more}
        return cluster.create(path, body)

    yield make
    for name in made:
        cluster.delete(f"{CRDS}/{name}")


@pytest.mark.parametrize("shape", SHAPES)
def test_gang_of_an_operator_is_bound_whole_or_not_at_all(cluster, make_owner, tmp_path, shape):
    owner = make_owner(shape)
    jobs = make_jobs(cluster, owner) if shape == "jobset" else {}
    cluster.add_node("n1", gpus=6)
    for number in range(4):
        metadata = {"name": f"own-{number}", **metadata_of(shape, number, owner, jobs)}
        cluster.create(PODS, {"metadata": metadata, "spec": make_pod_spec(gpus=2)})
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        cluster.add_pod("other", gpus=1)
        until("the other one bound", lambda: bound(cluster.pods()))
        assert bound(cluster.pods()) == {"other": "n1"}, "three of the four would have had room"
        cluster.add_node("n2", gpus=6)
        until("the gang bound", lambda: len(bound(cluster.pods())) == 5)


def test_gang_whose_pod_group_names_a_class_waits_for_the_class_and_then_preempts(cluster, make_owner, tmp_path):
    owner = make_owner("volcano", priorityClassName="urgent")
    cluster.add_node("n1", gpus=8)
    cluster.add_job("low", 1, gpus=8)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        until("the job bound", lambda: len(bound(cluster.pods())) == 1)
        for number in range(4):
            metadata = {"name": f"own-{number}", **metadata_of("volcano", number, owner, {})}
            cluster.create(PODS, {"metadata": metadata, "spec": make_pod_spec(gpus=2)})
        until("pods that are told", lambda: "no PriorityClass with name urgent was found" in said_of(cluster, "own-0"))
        urgent = {"metadata": {"name": "urgent", "labels": {"test": ""}}, "value": 1_000}
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
        until("the gang bound", lambda: {f"own-{number}" for number in range(4)} == set(bound(cluster.pods())))
        notes = [one["note"] for one in cluster.items(EVENTS) if one["reason"] == "Preempted"]
        assert any("priority 1000 (class urgent)" in note for note in notes), notes


def said_of(cluster, name):
    """The messages of the pod's conditions."""
    pod = cluster.call("GET", f"{PODS}/{name}")
    return " ".join(one.get("message", "") for one in pod["status"].get("conditions", ()))


def test_jobset_that_starts_in_order_is_bound_part_by_part(cluster, make_owner, tmp_path):
    owner = make_owner("jobset in order")
    jobs = make_jobs(cluster, owner)
    cluster.add_node("n1", gpus=8)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        for number in range(4):
            metadata = {"name": f"own-{number}", **metadata_of("jobset", number, owner, jobs)}
            metadata["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "first" if number < 2 else "second"
            cluster.create(PODS, {"metadata": metadata, "spec": make_pod_spec(gpus=2)})
            if number == 1:
                until("the first Job bound", lambda: len(bound(cluster.pods())) == 2)
        until("the second Job bound", lambda: len(bound(cluster.pods())) == 4)


def test_pods_that_name_queues_of_kueue_and_kai_lie_in_them(cluster, tmp_path):
    cluster.add_node("n1", gpus=1)
    cluster.add_pod("kueue", labels={"kueue.x-k8s.io/queue-name": "low"})
    cluster.add_pod("kai", labels={"kai.scheduler/queue": "high"})
    cluster.add_job("job", 2, annotations={"kueue.x-k8s.io/queue-name": "team"})
    queues = (QueueSpec(name="low"), QueueSpec(name="high", priority=100), QueueSpec(name="team"))
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db", queues=queues) as scheduling:
        until("one of them bound", lambda: bound(cluster.pods()))

        def queues_seen():
            jobs = [scheduling.control.job(JobId(number)) for number in (1, 2, 3)]
            return {job.queue for job in jobs if job is not None}

        until("all in their queues", lambda: queues_seen() == {"low", "high", "team"})
