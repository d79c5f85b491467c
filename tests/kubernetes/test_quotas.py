"""ResourceQuotas of a real API server: jobs wait with the reason, start when they may, and grow no further."""

import pytest

from clearway.model.ids import JobId
from clearway.ports.views import JobState
from clearway.wire.api import SubmittedFile
from support.cluster import until
from support.kube_process import Process

CONFIG = "policy: {like: clearway, preemption: {protection_ms: 0}, elasticity: {interval_ms: 1}}"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
GPU = "requests.nvidia.com/gpu"


@pytest.fixture(scope="module")
def process(running_cluster, tmp_path_factory):
    process = Process(running_cluster.kubeconfig, tmp_path_factory.mktemp("quotas"), CONFIG)
    process.start()
    yield process
    process.close()


@pytest.fixture
def quota(cluster):
    """Sets the quota of the namespace; gone after the test."""

    def put(**hard):
        hard = {name.replace("gpus", GPU).replace("cpu_limits", "limits.cpu"): n for name, n in hard.items()}
        body = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        is_there = cluster.http.get(f"{QUOTAS}/q").status_code == 200
        cluster.call("PUT" if is_there else "POST", f"{QUOTAS}/q" if is_there else QUOTAS, body)
        until("a quota that counts", lambda: cluster.call("GET", f"{QUOTAS}/q")["status"].get("hard") == hard)

    yield put
    cluster.call("DELETE", QUOTAS)


def submit(client, **job):
    job = {"resources": {"gpus": 1}, "image": "clearway.invalid/none", "run": "true", **job}
    (number,) = client.submit([SubmittedFile(source="job.yaml", job=job)], cwd="/", environment={}).jobs
    return JobId(number)


def reasons(client, number):
    return " ".join(reason.message for reason in client.why(number).reasons)


def count_pods(cluster):
    return len([pod for pod in cluster.pods() if not pod["metadata"].get("deletionTimestamp")])


@pytest.mark.slow
def test_submitted_job_waits_with_the_quota_as_its_reason_and_starts_when_it_is_raised(cluster, process, quota):
    cluster.add_node("n1", gpus=8)
    quota(gpus="2")
    with process.client() as client:
        number = submit(client, replicas=4)
        wanted = f"ResourceQuota default/q ({GPU} 0 of 2) lets 2 more be made, found 4 that it needs"
        until("the quota as the reason", lambda: wanted in reasons(client, number), 90)
        assert count_pods(cluster) == 0
        bounds = {tenant.name: tenant.bounds for tenant in client.tenants()}
        assert bounds["root"] == (f"ResourceQuota q: {GPU} 0 of 2",)
        quota(gpus="4")
        until("a job that runs", lambda: client.job(number).state is JobState.RUNNING, 90)
        client.cancel([number])


@pytest.mark.slow
def test_what_the_api_server_says_of_pods_that_it_refuses_is_why_their_job_waits(cluster, process, quota):
    cluster.add_node("n1", gpus=8)
    quota(cpu_limits="8")  # whoever counts them refuses pods that have none
    with process.client() as client:
        number = submit(client, replicas=2)
        until("its words as the reason", lambda: "must specify limits.cpu" in reasons(client, number), 90)
        assert "the API server does not let its pods be made" in reasons(client, number)
        client.cancel([number])


@pytest.mark.slow
def test_elastic_job_has_no_more_replicas_than_the_quota_admits_and_grows_when_it_admits_more(cluster, process, quota):
    cluster.add_node("n1", gpus=8)
    quota(gpus="3")
    elastic = {"min": 1, "max": 6}
    with process.client() as client:
        number = submit(client, replicas=4, elastic=elastic, estimate="10d", checkpoint={"interval": "1h"})
        until(
            "three pods that run", lambda: client.job(number).state is JobState.RUNNING and count_pods(cluster) == 3, 90
        )
        generation = client.job(number).generation
        quota(gpus="5")
        until("five pods", lambda: count_pods(cluster) == 5, 90)
        assert client.job(number).generation > generation
        client.cancel([number])
