"""The rights that are shipped are enough: pods are bound, evicted and told why by an account that has no others."""

from pathlib import Path

import httpx
import pytest
import yaml

from clearway.model.ids import JobId
from clearway.ports.views import JobState
from clearway.wire.api import SubmittedFile
from support.cluster import bound, until
from support.kube_claims import make_claim, make_class, make_slice
from support.kube_process import Process
from support.kube_scheduling import Scheduling

RBAC = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rbac.yaml"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/clearway/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def sign_in(cluster, tmp_path):
    """A kubeconfig of the shipped service account."""
    if cluster.http.get("/api/v1/namespaces/clearway").status_code == httpx.codes.NOT_FOUND:
        cluster.add_namespace("clearway")
        for body in yaml.safe_load_all(RBAC.read_text()):
            cluster.create(PATHS[body["kind"]], body)
    answer = cluster.create(f"{PATHS['ServiceAccount']}/clearway/token", {"spec": {"expirationSeconds": 3600}})
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


SUBMIT = RBAC.parent / "submit" / "rights.yaml"
DEVICES = "/apis/resource.k8s.io/v1"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


@pytest.mark.slow
def test_shipped_rights_to_submit_are_enough_to_run_a_job_suspend_and_delete_it(cluster, tmp_path):
    cluster.add_node("n1", gpus=1)
    role, binding = yaml.safe_load_all(SUBMIT.read_text())
    cluster.create(f"{ROLES}/roles", role)
    cluster.create(f"{ROLES}/rolebindings", binding)
    process = Process(sign_in(cluster, tmp_path), tmp_path)
    process.start()
    try:
        with process.client() as client:
            job = {"resources": {"gpus": 1}, "image": "clearway.invalid/none", "run": "true", "replicas": 1}
            (number,) = client.submit([SubmittedFile(source="job.yaml", job=job)], cwd="/", environment={}).jobs
            until("a job that runs", lambda: client.job(JobId(number)).state is JobState.RUNNING, 90)
            client.requeue([JobId(number)])
            until("another run of it", lambda: client.job(JobId(number)).generation == 2, 90)
            until("a job that runs again", lambda: client.job(JobId(number)).state is JobState.RUNNING, 90)
            client.cancel([JobId(number)])
            until("no Job", lambda: not cluster.items("/apis/batch/v1/namespaces/default/jobs"), 90)
        assert "403" not in process.read_log()
    finally:
        process.close()
        cluster.delete(f"{ROLES}/rolebindings/clearway-submit")
        cluster.delete(f"{ROLES}/roles/clearway-submit")


def test_shipped_rights_are_enough_to_bind_evict_and_say_why(cluster, tmp_path, caplog):
    cluster.add_node("n1", gpus=1)
    cluster.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "first", "labels": {"test": ""}}, "value": 10},
    )
    cluster.add_job("low", 1)
    cluster.create(f"{DEVICES}/deviceclasses", make_class())
    cluster.add_node("n2", gpus=0)
    cluster.create(f"{DEVICES}/resourceslices", make_slice("n2", 1))
    cluster.create(f"{DEVICES}/namespaces/default/resourceclaims", make_claim("one"))
    with Scheduling(sign_in(cluster, tmp_path), tmp_path / "clearway.db"):
        until("the job bound", lambda: len(bound(cluster.pods())) == 1)
        cluster.add_pod("claims", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
        until("the pod with a claim bound", lambda: bound(cluster.pods()).get("claims") == "n2")
        cluster.delete("/api/v1/namespaces/default/pods/claims")
        cluster.add_pod("high", priorityClassName="first")
        until("the pod of higher priority bound", lambda: list(bound(cluster.pods())) == ["high"])
        until(
            "an event that says why the job waits",
            lambda: any(
                event["reason"] == "FailedScheduling" and event["regarding"]["name"].startswith("low")
                for event in cluster.items("/apis/events.k8s.io/v1/namespaces/default/events")
            ),
        )
    assert "priorityclasses" not in caplog.text, "its rights do not allow to read them"
