"""Jobs that are submitted to Clearway itself run as Jobs of a real API server, are resized, give way and come back."""

import subprocess
import sys

import pytest

from clearway.bootstrap.places import STATE_DIR_VARIABLE
from clearway.bootstrap.simulation import SimulationRequest, prepare, run_prepared
from clearway.model.ids import JobId
from clearway.ports.views import JobState
from clearway.wire.api import SubmittedFile
from support.cluster import bound, devices_used, until
from support.kube_process import Process

CONFIG = """
policy: {like: clearway, preemption: {protection_ms: 0}, elasticity: {interval_ms: 1}}
queues: [{name: production}, {name: urgent, priority: 100, preempts: [production]}]
"""
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture(scope="module")
def process(running_cluster, tmp_path_factory):
    """One control plane for all tests: it begins in a second, but loads compiled code for many."""
    process = Process(running_cluster.kubeconfig, tmp_path_factory.mktemp("submitted"), CONFIG)
    process.start()
    yield process
    process.close()


def submit(client, **job):
    job = {"resources": {"gpus": 1}, "image": "clearway.invalid/none", "run": "true", **job}
    (number,) = client.submit([SubmittedFile(source="job.yaml", job=job)], cwd="/", environment={}).jobs
    return number


def find_job(cluster, number):
    found = [job for job in cluster.items(JOBS) if job["metadata"]["labels"].get("clearway.io/job") == str(number)]
    return found[0] if found else None


def own_pods(cluster, number):
    return [pod for pod in cluster.pods() if pod["metadata"]["labels"].get("clearway.io/job") == str(number)]


def state(client, number):
    return client.job(JobId(number)).state


def await_state(client, number, wanted):
    until(f"job {number} {wanted}", lambda: state(client, number) is wanted, 90)


def test_submitted_gang_runs_as_an_indexed_job_and_ends_with_it(cluster, kubelets, process):
    for name in ("n1", "n2"):
        cluster.add_node(name, gpus=8, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    with process.client() as client:
        number = submit(client, name="My Gang!", replicas=2, resources={"gpus": 8, "cpus": 2, "memory": "1GB"})
        await_state(client, number, JobState.RUNNING)
        job = find_job(cluster, number)
        assert job["metadata"]["name"] == f"my-gang-{number}"
        assert job["spec"]["completionMode"] == "Indexed"
        assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
        pods = own_pods(cluster, number)
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n2"]
        assert {pod["metadata"]["annotations"]["clearway.io/world-size"] for pod in pods} == {"2"}
        names = {one["name"]: one.get("value") for one in pods[0]["spec"]["containers"][0]["env"]}
        assert names["MASTER_ADDR"] == f"my-gang-{number}-0.clearway"
        assert {"RANK", "WORLD_SIZE", "MASTER_PORT"} <= set(names)
        kubelets.endings.update({pod["metadata"]["name"]: 0 for pod in pods})
        await_state(client, number, JobState.COMPLETED)
        until("a Job that is complete", lambda: find_job(cluster, number)["status"].get("succeeded") == 2)


def test_submitted_job_names_the_class_of_its_priority_for_as_long_as_there_is_one(cluster, process):
    cluster.add_node("n1", gpus=8)
    with process.client() as client:
        cluster.create(CLASSES, {"metadata": {"name": "urgent", "labels": {"test": ""}}, "value": 1_000})
        low = submit(client, resources={"gpus": 8}, checkpoint={"interval": "10s", "grace": "1s"})
        await_state(client, low, JobState.RUNNING)
        assert "priorityClassName" not in pod_of(cluster, low)
        high = submit(client, resources={"gpus": 8}, priority=1_000)
        await_state(client, high, JobState.RUNNING)
        assert state(client, low) is not JobState.RUNNING
        assert pod_of(cluster, high)["priorityClassName"] == "urgent"
        (pod,) = [one for one in own_pods(cluster, high) if one["spec"].get("nodeName")]
        assert pod["spec"]["priority"] == 1_000
        cluster.delete(f"{CLASSES}/urgent")
        client.cancel([JobId(high)])
        await_state(client, low, JobState.RUNNING)
        other = submit(client, resources={"gpus": 8}, priority=1_000)
        await_state(client, other, JobState.RUNNING)
        assert "priorityClassName" not in pod_of(cluster, other)
        assert f"job {other}: no PriorityClass has its priority 1000" in process.read_log()
        client.cancel([JobId(low), JobId(other)])


def pod_of(cluster, number):
    """The spec of the pods that the job's Job makes."""
    return find_job(cluster, number)["spec"]["template"]["spec"]


def test_waiting_job_says_why_and_leaves_nothing_when_it_is_cancelled(cluster, process):
    cluster.add_node("n1", gpus=8)
    with process.client() as client:
        first, second = submit(client, resources={"gpus": 8}), submit(client, resources={"gpus": 8})
        await_state(client, first, JobState.RUNNING)
        assert client.why(JobId(second)).reasons
        assert {first, second} <= {job.id for job in client.jobs().jobs}
        assert find_job(cluster, second) is None
        client.cancel([JobId(first)])
        await_state(client, second, JobState.RUNNING)
        assert state(client, first) is JobState.CANCELLED
        until("no Job of the first", lambda: find_job(cluster, first) is None)


def test_pod_that_fails_ends_its_gang_with_its_exit_code(cluster, kubelets, process):
    cluster.add_node("n1", gpus=8)
    with process.client() as client:
        number = submit(client, replicas=2)
        await_state(client, number, JobState.RUNNING)
        kubelets.endings[own_pods(cluster, number)[0]["metadata"]["name"]] = 3
        await_state(client, number, JobState.FAILED)
        assert client.job(JobId(number)).exit_code == 3
        until("no pod that holds anything", lambda: not running_pods(cluster, number))


def running_pods(cluster, number):
    return [pod for pod in own_pods(cluster, number) if pod["status"]["phase"] == "Running"]


def test_urgent_job_has_another_leave_and_come_back_with_its_job_suspended_meanwhile(cluster, process):
    cluster.add_node("n1", gpus=8)
    checkpoint = {"interval": "10s", "grace": "5s"}
    with process.client() as client:
        low = submit(client, replicas=2, resources={"gpus": 4}, checkpoint=checkpoint)
        await_state(client, low, JobState.RUNNING)
        urgent = submit(client, queue="urgent", resources={"gpus": 8})
        await_state(client, urgent, JobState.RUNNING)
        assert find_job(cluster, low)["spec"]["suspend"]
        assert own_pods(cluster, low) == []
        client.cancel([JobId(urgent)])
        await_state(client, low, JobState.RUNNING)
        assert {pod["metadata"]["annotations"]["clearway.io/generation"] for pod in own_pods(cluster, low)} == {"2"}
        assert client.job(JobId(low)).preemptions == 1


def test_cancel_while_it_waits_suspended_deletes_the_job(cluster, process):
    cluster.add_node("n1", gpus=8)
    with process.client() as client:
        low = submit(client, resources={"gpus": 8})
        await_state(client, low, JobState.RUNNING)
        urgent = submit(client, queue="urgent", resources={"gpus": 8})
        await_state(client, urgent, JobState.RUNNING)
        client.cancel([JobId(low)])
        until("no Job of it", lambda: find_job(cluster, low) is None)


def test_elastic_job_shrinks_for_others_and_its_job_has_the_new_size(cluster, process):
    cluster.add_node("n1", gpus=8)
    with process.client() as client:
        elastic = submit(client, elastic={"min": 2, "max": 8}, replicas=8, checkpoint={"interval": "1s"})
        await_state(client, elastic, JobState.RUNNING)
        assert find_job(cluster, elastic)["spec"]["parallelism"] == 8
        urgent = submit(client, queue="urgent", resources={"gpus": 4})
        await_state(client, urgent, JobState.RUNNING)
        until("a smaller Job", lambda: find_job(cluster, elastic)["spec"]["parallelism"] == 4)
        until("four pods bound", lambda: len([p for p in own_pods(cluster, elastic) if p["spec"].get("nodeName")]) == 4)
        assert find_job(cluster, elastic)["spec"]["completions"] == 4
        sizes = {pod["metadata"]["annotations"]["clearway.io/world-size"] for pod in own_pods(cluster, elastic)}
        assert sizes == {"4"}
        assert state(client, elastic) is JobState.RUNNING


def test_elastic_job_of_a_user_is_given_the_size_that_there_is_room_for(cluster, process):
    cluster.add_node("n1", gpus=8)
    process.client().close()
    cluster.add_job("theirs", 8, pod_annotations={"clearway.io/elastic": "2-8", "clearway.io/checkpoint": "1s"})
    until("eight pods bound", lambda: len(bound(cluster.pods())) == 8)
    cluster.add_pod("urgent", gpus=4, labels={"clearway.io/queue": "urgent"})
    until("the urgent pod bound", lambda: "urgent" in bound(cluster.pods()))
    until("a smaller Job", lambda: cluster.call("GET", f"{JOBS}/theirs")["spec"]["completions"] == 4)
    until("four pods of it bound", lambda: len(bound(cluster.pods())) == 5 == len(cluster.pods()))
    theirs = [pod for pod in cluster.pods() if pod["metadata"]["name"] != "urgent"]
    assert {pod["metadata"]["annotations"]["clearway.io/world-size"] for pod in theirs} == {"4"}
    assert devices_used(cluster.pods()) == {"n1": 8}


def test_killed_control_plane_finds_its_jobs_and_makes_none_twice(cluster, process):
    cluster.add_node("n1", gpus=8)
    with process.client() as client:
        running, waiting = submit(client, replicas=2, resources={"gpus": 4}), submit(client, resources={"gpus": 8})
        await_state(client, running, JobState.RUNNING)
    before = bound(cluster.pods())
    process.kill()
    process.start()
    with process.client() as client:
        assert state(client, running) is JobState.RUNNING
        assert bound(cluster.pods()) == before
        cluster.delete(f"{JOBS}/{find_job(cluster, running)['metadata']['name']}")
        await_state(client, waiting, JobState.RUNNING)
        assert state(client, running) is JobState.CANCELLED


def test_snapshot_of_the_cluster_goes_on_in_the_twin(cluster, process, tmp_path, monkeypatch):
    cluster.add_node("n1", gpus=8)
    cluster.add_pod("bare", gpus=2)
    with process.client() as client:
        running = submit(client, resources={"gpus": 6}, estimate="1h")
        await_state(client, running, JobState.RUNNING)
        waiting = submit(client, resources={"gpus": 8}, time_limit="2h")
        until("the bare pod bound", lambda: "bare" in bound(cluster.pods()))
    path = tmp_path / "now.jsonl"
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(process.state))
    words = [sys.executable, "-m", "clearway.cli", "snapshot", str(path)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "1 node(s) and 3 job(s)" in said.stdout + said.stderr
    prepared = prepare(SimulationRequest(trace=str(path), policy="fifo"))
    assert {"n1"} == {str(node.name).partition("~")[0] for node in prepared.cluster.nodes}
    jobs = {job.spec.id: job for job in prepared.workload.jobs}
    assert jobs[JobId(running)].submit_ms < jobs[JobId(waiting)].submit_ms
    assert len(jobs) == 3
    assert run_prepared(prepared).metrics.jobs_finished == 3


def test_job_without_an_image_is_refused_with_what_to_do(cluster, process):
    cluster.add_node("n1")
    with process.client() as client, pytest.raises(Exception, match="expected `image`, found none"):
        client.submit([SubmittedFile(source="job.yaml", text="run: 'true'\n")], cwd="/", environment={})


def test_submitted_job_goes_to_tainted_nodes_only_if_it_bears_the_taint(cluster, process):
    cluster.add_node("n1", gpus=8, taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}])
    with process.client() as client:
        shy, bold = submit(client), submit(client, tolerations=["team=vision:NoSchedule"])
        await_state(client, bold, JobState.RUNNING)
        assert [pod["spec"]["nodeName"] for pod in own_pods(cluster, bold)] == ["n1"]
        assert state(client, shy) is JobState.PENDING
        client.cancel([shy, bold])
