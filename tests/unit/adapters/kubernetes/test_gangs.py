"""Which pods are one job, told by what people already write."""

import pytest

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.gangs import (
    BY_SELECTOR,
    EXCLUSIVE,
    REPLICAS_MAX,
    Source,
    gang_size,
    group_of,
    said_by,
)
from clearway.adapters.kubernetes.parse import parse_pod
from support.kubernetes import JOB, make_job_object, make_pod


def make_part(name, replicas=None, annotations=None, **spec):
    """A replicated Job of a JobSet."""
    template = {"metadata": {"annotations": annotations}, "spec": spec} if annotations else {"spec": spec}
    return {"name": name, "template": template} | ({} if replicas is None else {"replicas": replicas})


def make_jobset(*parts, annotations=None, **more):
    metadata = {"name": "s", "annotations": annotations}
    return {"kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": list(parts), **more}}


def make_training(kind, prefix, *, enough=None, version="v1", **roles):
    spec = {f"{prefix}ReplicaSpecs": {role: {"replicas": count} for role, count in roles.items()}}
    if enough is not None:
        spec["runPolicy"] = {"schedulingPolicy": {"minAvailable": enough}}
    return {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "spec": spec}


def make_ray(*groups):
    return {"kind": "RayCluster", "spec": {"headGroupSpec": {}, "workerGroupSpecs": list(groups)}}


def group(**more):
    return group_of(parse_pod(make_pod(**more), KubernetesConfig()))


def test_bare_pod_is_a_job_of_its_own_that_ends_when_evicted():
    found = group(uid="u1")
    assert (found.key, found.size, found.source, found.returns) == ("vision/pod/u1", 1, None, False)


def test_pods_of_one_job_are_one_group_whose_size_the_job_says():
    first, second = group(name="a", owner=JOB), group(name="b", owner=JOB)
    assert first == second
    assert first.source.path == "/apis/batch/v1/namespaces/vision/jobs/train"
    assert first.returns


def test_pod_of_a_deployment_is_a_job_of_its_own():
    assert group(uid="u1", owner=("apps/v1", "ReplicaSet", "web", "r1")).key == "vision/pod/u1"


@pytest.mark.parametrize(
    ("more", "key", "size"),
    [
        ({"annotations": {"clearway.io/gang": "g", "clearway.io/gang-size": "4"}}, "vision/gang/g", 4),
        (
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
            },
            "vision/kueue/g",
            3,
        ),
        (
            {
                "labels": {
                    "pod-group.scheduling.sigs.k8s.io/name": "g",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
                }
            },
            "vision/light/g",
            2,
        ),
    ],
)
def test_group_that_says_its_size_itself(more, key, size):
    found = group(**more)
    assert (found.key, found.size, found.source) == (key, size, None)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}, "owner": JOB},
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/vision/jobsets/s",
        ),
        (
            {"schedulingGroup": {"podGroupName": "k"}},
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/vision/podgroups/k",
        ),
        (
            {"annotations": {"scheduling.k8s.io/group-name": "v"}},
            "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/v",
        ),
        (
            {"annotations": {"scheduling.volcano.sh/group-name": "v"}},
            "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/v",
        ),
        (
            {"labels": {"scheduling.x-k8s.io/pod-group": "c"}},
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/vision/podgroups/c",
        ),
        (
            {"labels": {"pod-group.scheduling.sigs.k8s.io": "o"}},
            "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/vision/podgroups/o",
        ),
        (
            {"owner": ("kubeflow.org/v1", "PyTorchJob", "bert", "k1")},
            "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs/bert",
        ),
        ({"owner": ("ray.io/v1", "RayCluster", "ray", "k1")}, "/apis/ray.io/v1/namespaces/vision/rayclusters/ray"),
    ],
)
def test_group_whose_size_another_object_says(more, path):
    assert group(**more).source.path == path


@pytest.mark.parametrize("size", ["0", "many", "-1", str(REPLICAS_MAX + 1)])
def test_gang_of_no_sensible_size_is_unreadable(size):
    with pytest.raises(UnreadableError, match="gang-size"):
        group(annotations={"clearway.io/gang": "g", "clearway.io/gang-size": size})


def test_name_that_is_none_leads_to_no_other_path():
    source = Source("batch/v1", "Job", "a", "x/../../b/jobs/y?z")
    assert source.path == "/apis/batch/v1/namespaces/a/jobs/x%2F..%2F..%2Fb%2Fjobs%2Fy%3Fz"


@pytest.mark.parametrize("version", ["", "..", "v1?watch=1", "v1%2F..", "v1#", "V1", "v1beta", "v1\n", "1"])
def test_version_that_is_none_leads_to_no_path_and_its_pod_is_alone(version):
    assert Source(f"batch/{version}", "Job", "a", "train").path == ""
    assert group(owner=(f"batch/{version}", "Job", "train", "a1e3")).size == 1


@pytest.mark.parametrize("name", [".", ".."])
def test_name_that_would_be_a_step_in_a_path_leads_nowhere(name):
    assert Source("batch/v1", "Job", "a", name).path == ""


def test_gang_without_a_size_is_unreadable():
    with pytest.raises(UnreadableError, match="gang-size"):
        group(annotations={"clearway.io/gang": "g"})


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (make_job_object(4), 4),
        (make_job_object(1, mode="NonIndexed"), 1),
        (make_job_object(4, mode="NonIndexed"), 0),
        (make_job_object(4, completions=100), 0),
        ({"kind": "Job", "spec": {"parallelism": 2}}, 0),
        (make_jobset(make_part("a", 2, parallelism=4), make_part("b")), 9),
        (make_jobset(make_part("a", 2, parallelism=4, completions=3)), 6),
        (make_jobset(make_part("a", parallelism=2, completions=8)), 2),
        (make_jobset(make_part("a", 2), make_part("b", 3), startupPolicy={"startupPolicyOrder": "AnyOrder"}), 5),
        (make_jobset(make_part("a"), annotations={EXCLUSIVE: "rack", BY_SELECTOR: ""}), 1),
        (make_training("PyTorchJob", "pytorch", Master=1, Worker=3), 4),
        (make_training("PyTorchJob", "pytorch", enough=3, Master=1, Worker=3), 3),
        (make_training("PyTorchJob", "pytorch", enough=9, Master=1, Worker=3), 4),
        (make_training("MPIJob", "mpi", Launcher=1, Worker=3), 4),
        (make_training("MPIJob", "mpi", version="v2beta1", Launcher=1, Worker=3), 3),
        (make_ray({"replicas": 2}, {}), 3),
        (make_ray({"replicas": 2, "numOfHosts": 4}), 9),
        (make_ray({"minReplicas": 3, "maxReplicas": 5}, {"replicas": 7, "minReplicas": 0, "maxReplicas": 5}), 9),
        (make_ray({"replicas": 2, "suspend": True}), 1),
        ({"kind": "PodGroup", "spec": {"minMember": 6}}, 6),
        ({"kind": "PodGroup", "spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}, 5),
        ({"kind": "PodGroup", "spec": {"schedulingPolicy": {"basic": {}}}}, 0),
    ],
)
def test_size_of_a_gang(data, size):
    assert gang_size(data) == size


def test_jobset_whose_jobs_wait_for_one_another_is_a_gang_for_each():
    first, second = make_part("a", 2, parallelism=2), make_part("b", 3)
    in_order = {"startupPolicyOrder": "InOrder"}
    assert gang_size(make_jobset(first, second, startupPolicy=in_order)) == {"a": 4, "b": 3}
    waits = second | {"dependsOn": [{"name": "a", "status": "Complete"}]}
    assert gang_size(make_jobset(first, waits)) == {"a": 4, "b": 3}


def test_jobs_of_which_a_leader_must_lie_before_the_others_are_made_are_no_gangs():
    led = make_part("a", 2, parallelism=2, annotations={EXCLUSIVE: "rack"})
    assert gang_size(make_jobset(led, make_part("b", 3))) == {"a": 0, "b": 3}
    assert gang_size(make_jobset(make_part("a"), annotations={EXCLUSIVE: "rack"})) == {"a": 0}


@pytest.mark.parametrize("data", [{"kind": "Job"}, {"kind": "JobSet", "spec": {}}, {"kind": "X", "spec": {}}])
def test_object_without_numbers_is_unreadable(data):
    with pytest.raises((UnreadableError), match="expected the numbers of its pods"):
        gang_size(data)


@pytest.mark.parametrize(
    ("data", "queue"),
    [
        ({"kind": "Job", "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}, "team"),
        ({"kind": "RayCluster", "metadata": {"labels": {"kai.scheduler/queue": "team"}}}, "team"),
        ({"kind": "PodGroup", "metadata": {}, "spec": {"queue": "team"}}, "team"),
        ({"kind": "PodGroup", "metadata": {"annotations": {"clearway.io/queue": "b"}}, "spec": {"queue": "a"}}, "b"),
        ({"kind": "Job", "metadata": {"labels": None}, "spec": {"queue": "no"}}, ""),
    ],
)
def test_queue_that_an_object_names(data, queue):
    assert said_by(data).queue == queue
