"""A node goes silent under a gang: Kubernetes takes its pods away, and the gang runs whole somewhere else."""

import pytest

from support.cluster import bound, until
from support.kube_scheduling import Scheduling
from support.kubelets import MERGE

SOON = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for why in ("not-ready", "unreachable")
]


def set_ready(cluster, node, status):
    """What the control plane says of a node whose kubelet is silent, without the wait until it says so."""
    body = {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown"}]}}
    cluster.call("PATCH", f"/api/v1/nodes/{node}/status", body, headers=MERGE)


def running(cluster):
    """Node → pod of those that run there and were not told to go."""
    return {
        pod["spec"]["nodeName"]: pod["metadata"]["name"]
        for pod in cluster.pods()
        if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
    }


@pytest.mark.slow
def test_gang_on_a_node_that_goes_silent_runs_again_whole_on_others(cluster, kubelets, tmp_path):
    for name in ("n1", "n2", "n3"):
        cluster.add_node(name, gpus=8)
    cluster.add_job("gang", 2, gpus=8, tolerations=SOON)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        until("the gang runs", lambda: len(running(cluster)) == 2)
        lost, *_ = before = running(cluster)
        kubelets.silent.add(lost)
        set_ready(cluster, lost, "Unknown")
        until("the whole gang on other nodes", lambda: set(running(cluster)) == {"n1", "n2", "n3"} - {lost}, 120)
        assert not set(before.values()) & set(running(cluster).values())
        kubelets.silent.clear()
        set_ready(cluster, lost, "True")
        until("nothing on the node that is back", lambda: lost not in bound(cluster.pods()).values())
        cluster.add_pod("later", gpus=8)
        until("a pod on it", lambda: running(cluster).get(lost) == "later")
