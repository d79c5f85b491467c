"""Two control planes over one cluster and one journal: one leads. One that was stopped and wakes up does no harm."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.lease import Lease
from support.cluster import bound, devices_used, until
from support.kube_process import Process
from support.servers import PostgresServer, find_free_port, running

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DURATION_S = 4


@pytest.fixture(scope="module")
def postgres():
    with running(PostgresServer) as server:
        yield server


@pytest.fixture
def pair(cluster, tmp_path, postgres):
    """Two control planes that share a journal; not started."""
    config = f"""
policy: clearway
listen: 127.0.0.1:0
database_url: {postgres.url(postgres.make_database())}
kubernetes: {{lease: default/clearway, lease_duration: {DURATION_S}s}}
"""
    pair = [Process(cluster.kubeconfig, tmp_path, config, name=name) for name in ("first", "second")]
    yield pair
    for process in pair:
        process.close()
    cluster.call("DELETE", LEASE)


def holder(cluster):
    leases = cluster.items(LEASE)
    return leases[0]["spec"].get("holderIdentity", "") if leases else ""


@pytest.mark.slow
def test_stopped_leader_that_wakes_up_changes_nothing_and_ends(cluster, pair):
    """Every node is full at all times: one binding too many of the old leader would show."""
    first, second = pair
    for number in range(4):
        cluster.add_node(f"n{number}", gpus=8)
    first.start()
    first.client().close()
    leader = until("a leader", lambda: holder(cluster))
    second.start()
    until("the other one waits", lambda: "leads; this control plane waits" in second.read_log(), 300)
    assert leader in second.read_log()

    for place in range(24):
        cluster.add_job(f"before-{place}", 2, gpus=1)
    until("some are bound", lambda: len(bound(cluster.pods())) >= 4)
    first.running.send_signal(signal.SIGSTOP)
    until("another leader", lambda: holder(cluster) not in ("", leader), 60)
    until("the new one binds", lambda: sum(devices_used(cluster.pods()).values()) == 32, 120)
    before = bound(cluster.pods())
    first.running.send_signal(signal.SIGCONT)
    assert first.running.wait(60) == -signal.SIGALRM  # by the kernel, before it could do anything
    for place in range(8):
        cluster.delete(f"/apis/batch/v1/namespaces/default/jobs/before-{place}")
    until("the freed devices are used again", lambda: sum(devices_used(cluster.pods()).values()) == 32, 60)
    after = bound(cluster.pods())
    assert {name: after[name] for name in before if name in after} == {
        name: node for name, node in before.items() if name in after
    }
    assert max(devices_used(cluster.pods()).values()) == 8
    gangs = {}
    for pod in cluster.pods():
        gangs.setdefault(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], []).append(
            pod["spec"].get("nodeName")
        )
    assert all(all(nodes) or not any(nodes) for nodes in gangs.values())


@pytest.mark.slow
def test_leader_that_stops_gives_its_lease_back_and_whoever_waits_says_who_leads(cluster, pair):
    free_port = find_free_port()
    first, second = pair
    cluster.add_node("n1")
    first.start()
    first.client().close()
    second.listen(free_port)
    second.start()
    until("the other one waits", lambda: "leads; this control plane waits" in second.read_log(), 300)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{free_port}/api/v1/jobs")
    problem = json.load(refused.value)
    assert refused.value.code == 503
    assert f"{holder(cluster)} leads" in problem["detail"]
    first.close()
    second.client().close()
    cluster.add_pod("p1")
    until("the second binds", lambda: bound(cluster.pods()) == {"p1": "n1"})


LATE = """
import asyncio, os, signal, sys, threading
from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.lease import Lease

kubeconfig, is_guarded, uid = sys.argv[1], sys.argv[2] == "guarded", sys.argv[3]
config = KubernetesConfig(kubeconfig=kubeconfig, lease="default/clearway", lease_ms=2_000)
lease = Lease(config, "old")
lease.acquire(print, lambda: None)

def may_write():
    is_valid = lease.is_valid()
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # stopped for long between the look and the write
    return is_valid

async def bind():
    client = await Client.connect(config, may_write)
    try:
        await client.bind("default", "p1", uid, "n1")
    finally:
        await client.close()

def write():
    release = lease.guard_thread() if is_guarded else lambda: None
    try:
        asyncio.run(bind())
        print("bound", flush=True)
    finally:
        release()

thread = threading.Thread(target=write)
thread.start()
thread.join()
os._exit(0)
"""


def is_stopped(process):
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "control"])
def test_leader_that_is_stopped_right_before_a_write_never_makes_it(cluster, tmp_path, is_guarded):
    """The control shows that the write would be made: it is the guard that keeps it from being made."""
    cluster.add_node("n1")
    uid = cluster.add_pod("p1")["metadata"]["uid"]
    words = [sys.executable, "-c", LATE, str(cluster.kubeconfig), "guarded" if is_guarded else "not", uid]
    with (tmp_path / "log").open("wb") as output:
        old = subprocess.Popen(words, stdout=output, stderr=output)
        try:
            until("it is stopped", lambda: is_stopped(old))
            config = KubernetesConfig(kubeconfig=str(cluster.kubeconfig), lease="default/clearway", lease_ms=2_000)
            new = Lease(config, "new")
            new.acquire(lambda _: None, lambda: None)
            assert holder(cluster) == "new"
            old.send_signal(signal.SIGCONT)
            code = old.wait(30)
        finally:
            old.kill()
            old.wait()
    new.release()
    assert (code, bound(cluster.pods())) == ((-signal.SIGALRM, {}) if is_guarded else (0, {"p1": "n1"}))
    cluster.call("DELETE", LEASE)
