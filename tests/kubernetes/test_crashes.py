"""Clearway is killed, and the API server too, while pods are bound: nothing twice, nothing by halves, nothing lost."""

import base64
import logging
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from support.cluster import bound, devices_used, until
from support.kube_scheduling import Scheduling

KILLS = 5
GANGS = 10
GANG = 4


class Process:
    """`clearway up --backend kubernetes`, as a process."""

    def __init__(self, cluster, folder):
        self._words = [sys.executable, "-m", "clearway.cli", "up", "--backend", "kubernetes"]
        self._words += ["--kubeconfig", str(cluster.kubeconfig), "--state-dir", str(folder / "state"), "--listen", "0"]
        self._log = (folder / "clearway.log").open("ab")
        self.running = None

    def start(self):
        self.running = subprocess.Popen(self._words, stdout=self._log, stderr=self._log)

    def check(self):
        """Fail where it ended by itself."""
        assert self.running.poll() is None, Path(self._log.name).read_text()[-2000:]

    def kill(self):
        self.check()
        self.running.send_signal(signal.SIGKILL)
        self.running.wait()

    def close(self):
        if self.running.poll() is None:
            self.running.terminate()
            self.running.wait(60)
        self._log.close()


@pytest.fixture
def process(cluster, tmp_path):
    process = Process(cluster, tmp_path)
    yield process
    process.close()


def gangs_by_bound(cluster):
    """Gang → how many of its pods are bound."""
    counts = {}
    for pod in cluster.pods():
        name = pod["metadata"]["labels"].get("batch.kubernetes.io/job-name")
        if name:
            counts[name] = counts.get(name, 0) + bool(pod["spec"].get("nodeName"))
    return counts


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_bound_twice_or_by_halves(cluster, process):
    for number in range(6):
        cluster.add_node(f"n{number}", gpus=8)
    draw = random.Random(7)
    moments = [draw.uniform(0.0, 0.6) for _ in range(KILLS)]
    for place in range(GANGS):
        cluster.add_job(f"gang-{place}", GANG, gpus=1)
    for moment in moments:
        process.start()
        count = len(bound(cluster.pods()))
        deadline = time.monotonic_ns() + 60 * 10**9
        while len(bound(cluster.pods())) == count < GANGS * GANG and time.monotonic_ns() < deadline:
            process.check()
            time.sleep(0.005)
        time.sleep(moment / 10)
        process.kill()
        assert max(devices_used(cluster.pods()).values(), default=0) <= 8
    process.start()
    until("every gang bound whole", lambda: set(gangs_by_bound(cluster).values()) == {GANG}, 120)
    assert max(devices_used(cluster.pods()).values()) <= 8
    assert len(bound(cluster.pods())) == GANGS * GANG


def compact(cluster, writes=50):
    """Have etcd forget all of its history, some of which no watch has seen."""
    words = (cluster.folder / "run-apiserver").read_text().split()
    url = words[words.index("--etcd-servers") + 1].strip('"')
    with httpx.Client(base_url=url, timeout=30) as etcd:
        key = base64.b64encode(b"/test/compaction").decode()
        for number in range(writes):
            value = base64.b64encode(str(number).encode()).decode()
            revision = etcd.post("/v3/kv/put", json={"key": key, "value": value}).json()["header"]["revision"]
        answer = etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True})
        assert answer.status_code == httpx.codes.OK, answer.text


@pytest.mark.slow
def test_history_that_etcd_has_compacted_is_listed_anew_and_scheduling_goes_on(cluster, tmp_path, caplog):
    caplog.set_level(logging.INFO, "clearway.adapters.kubernetes.backend")
    cluster.add_node("n1", gpus=8)
    cluster.add_pod("before")
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        until("the first pod bound", lambda: "before" in bound(cluster.pods()))
        cluster.kill_api_server()
        compact(cluster)
        cluster.restart_api_server()
        cluster.add_pod("after")
        until("the second pod bound", lambda: "after" in bound(cluster.pods()), 120)
        until("a list of pods made anew", lambda: any("/api/v1/pods is listed anew" in one for one in caplog.messages))
    assert any("410" in one for one in caplog.messages)


@pytest.mark.slow
def test_api_server_that_is_killed_is_found_again_and_scheduling_goes_on(cluster, process):
    cluster.add_node("n1", gpus=8)
    cluster.add_pod("before")
    process.start()
    until("the first pod bound", lambda: "before" in bound(cluster.pods()), 120)
    cluster.kill_api_server()
    cluster.restart_api_server()
    cluster.add_pod("after")
    until("the second pod bound", lambda: "after" in bound(cluster.pods()), 120)
