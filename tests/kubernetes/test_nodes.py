"""Containers on real kubelets: a gang trains over two nodes, gives way with its work saved, and goes on from there."""

from pathlib import Path

import pytest

from clearway.model.ids import JobId
from clearway.ports.views import JobState
from clearway.wire.api import SubmittedFile
from support.cluster import Cluster, until
from support.kube_nodes import Nodes, find_missing_for_nodes
from support.kube_process import Process

ROOT = Path(__file__).parents[2]
PLACES = {
    ROOT / "examples": "examples",
    ROOT / "src" / "clearway" / "__init__.py": "clearway/__init__.py",
    ROOT / "src" / "clearway" / "job": "clearway/job",
}
"""What a program needs that speaks with Clearway."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A cluster of two nodes with two GPUs each, and a control plane with a folder that its pods share."""
    if missing := find_missing_for_nodes():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "shared").mkdir()
    cluster = Cluster(folder / "cluster")
    nodes = Nodes(cluster, PLACES)
    config = f"""
policy: {{like: clearway, preemption: {{protection_ms: 0}}}}
queues: [{{name: production}}, {{name: urgent, priority: 100, preempts: [production]}}]
kubernetes: {{shared_folder: {folder}/shared}}
"""
    process = Process(cluster.kubeconfig, folder, config)
    try:
        for name in ("node-a", "node-b"):
            nodes.add(name, gpus=2)
        process.start()
        yield cluster, process, folder / "shared"
    finally:
        process.close()
        delete_pods(cluster)
        nodes.close()
        cluster.close()


def delete_pods(cluster):
    """So that the kubelets give back what their containers had."""
    cluster.call("DELETE", "/apis/batch/v1/namespaces/default/jobs", params={"propagationPolicy": "Background"})
    cluster.call("DELETE", "/api/v1/namespaces/default/pods", params={"gracePeriodSeconds": "1"})
    until("no pods", lambda: not cluster.pods(), 60)


def train(client, *, steps, pause=0.0, replicas=2, gpus=2, **more):
    job = {
        "image": "clearway.invalid/python:1",
        "replicas": replicas,
        "resources": {"gpus": gpus},
        "env": {"PYTHONPATH": "/app"},
        "run": f"echo devices $NVIDIA_VISIBLE_DEVICES\npython /app/examples/train.py --steps {steps} --pause {pause}\n",
        **more,
    }
    (number,) = client.submit([SubmittedFile(source="job.yaml", job=job)], cwd="/", environment={}).jobs
    return JobId(number)


def read_log(client, number, replica=0):
    try:
        return client.log(number, replica=replica).data.decode()
    except Exception:  # nothing is written yet
        return ""


def test_gang_trains_over_two_nodes_and_gives_way_with_its_work_saved(site):
    cluster, process, _ = site
    with process.client() as client:
        number = train(client, steps=600, pause=0.02, checkpoint={"interval": "1m", "grace": "20s"})
        until("a gang at work", lambda: "step 100 " in read_log(client, number), 240)
        pods = cluster.pods()
        assert {pod["spec"]["nodeName"] for pod in pods} == {"node-a", "node-b"}
        devices = {
            word for replica in (0, 1) for word in read_log(client, number, replica).split() if "GPU-node" in word
        }
        assert sorted(",".join(devices).split(",")) == [f"GPU-node-{node}-{one}" for node in "ab" for one in (0, 1)]

        urgent = train(client, steps=20, replicas=1, queue="urgent")
        assert client.wait([urgent])[0].state is JobState.COMPLETED
        (ended,) = client.wait([number])
        assert ended.state is JobState.COMPLETED
        assert (ended.preemptions, ended.generation) == (1, 2)
        log = b"".join(client.follow_log(number)).decode()
    left = [int(line.split()[-1]) for line in log.splitlines() if "leaves at step" in line]
    begun = [int(line.split()[-1]) for line in log.splitlines() if "begins at step" in line]
    assert len(left) == 1
    assert begun == [0, left[0]]
    assert "step 600 loss" in log
    steps = [int(line.split()[1]) for line in log.splitlines() if line.startswith("step ")]
    assert steps == list(range(100, 700, 100))


def test_program_that_fails_ends_its_job_with_its_code_and_its_last_words(site):
    _, process, _ = site
    with process.client() as client:
        number = train(client, steps=1, replicas=1, run="echo before the end\nexit 7\n")
        (ended,) = client.wait([number])
        assert (ended.state, ended.exit_code) == (JobState.FAILED, 7)
        assert "before the end" in read_log(client, number)


def test_script_with_its_own_interpreter_arguments_and_dollars_runs_as_it_is_written(site):
    _, process, _ = site
    script = "#!/bin/python\nimport os\nprint('$(RANK) $HOME', os.environ['RANK'], os.environ['SAID'])\n"
    with process.client() as client:
        number = train(client, steps=1, replicas=1, gpus=0, run=script, env={"SAID": "$(WORLD_SIZE) $$"})
        assert client.wait([number])[0].state is JobState.COMPLETED
        assert read_log(client, number).strip() == "$(RANK) $HOME 0 $(WORLD_SIZE) $$"
