"""Parts of devices on a real API server, with somebody who plays KAI's binder, and somebody who plays HAMi's plugin."""

import httpx
import pytest

from support.cluster import bound, until
from support.kube_scheduling import Scheduling

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
REGISTERED = "GPU-a,10,24576,100,NVIDIA-A10,0,true:GPU-b,10,24576,100,NVIDIA-A10,0,true:"


@pytest.fixture
def binder(cluster):
    """KAI's API is there."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "BindRequest", "plural": "bindrequests", "singular": "bindrequest"}
    spec = {"group": "scheduling.run.ai", "scope": "Namespaced", "names": names, "versions": [version]}
    cluster.create(CRDS, {"metadata": {"name": "bindrequests.scheduling.run.ai"}, "spec": spec})
    until("KAI's API", lambda: cluster.http.get(REQUESTS).status_code == httpx.codes.OK)
    yield
    cluster.delete(f"{CRDS}/bindrequests.scheduling.run.ai")


def bind_as_asked(cluster):
    """What KAI's binder does, but for the pod that keeps the device."""
    there = bound(cluster.pods())
    for request in cluster.items(REQUESTS):
        spec = request["spec"]
        if spec["podName"] not in there:
            target = {"apiVersion": "v1", "kind": "Node", "name": spec["selectedNode"]}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": spec["podName"]}, "target": target}
            cluster.create(f"{PODS}/{spec['podName']}/binding", body)


def test_kai_s_binder_is_asked_to_put_two_fractions_on_one_device_and_the_third_on_another(cluster, binder, tmp_path):
    cluster.add_node("n1", gpus=2)
    for name in ("a", "b", "c", "d", "e"):
        cluster.add_pod(name, gpus=0, annotations={"gpu-fraction": "0.4"})
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):

        def four_are_bound():
            bind_as_asked(cluster)
            return len(bound(cluster.pods())) == 4

        until("four pods bound", four_are_bound)
        groups = [request["spec"]["selectedGPUGroups"][0] for request in cluster.items(REQUESTS)]
        assert sorted(groups.count(one) for one in set(groups)) == [2, 2]
        until("the fifth is told why", lambda: any(is_unschedulable(pod) for pod in cluster.pods()))


def is_unschedulable(pod):
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))


def test_hami_s_plugin_finds_one_pod_at_a_time_with_the_devices_that_were_chosen(cluster, tmp_path):
    cluster.add_node("n1", gpus=20)
    annotations = {"metadata": {"annotations": {"hami.io/node-nvidia-register": REGISTERED}}}
    cluster.call("PATCH", "/api/v1/nodes/n1", annotations, headers=MERGE)
    for name in ("a", "b", "c"):
        limits = {"cpu": "1", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "10000", "nvidia.com/gpucores": "40"}
        container = {"name": "main", "image": "clearway.invalid/none", "resources": {"limits": limits}}
        cluster.add_pod(name, containers=[container])
    chosen = {}
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):

        def all_are_served():
            allocating = [pod for pod in cluster.pods() if phase_of(pod) == "allocating"]
            assert len(allocating) <= 1
            for pod in allocating:
                name = pod["metadata"]["name"]
                chosen[name] = pod["metadata"]["annotations"]["hami.io/vgpu-devices-to-allocate"]
                done = {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}}
                cluster.call("PATCH", f"{PODS}/{name}", done, headers=MERGE)
            return len(chosen) == 3

        until("three pods served", all_are_served)
    assert sorted(chosen.values()) == ["GPU-a,NVIDIA,10000,40:;"] * 2 + ["GPU-b,NVIDIA,10000,40:;"]


def phase_of(pod):
    return pod["metadata"].get("annotations", {}).get("hami.io/bind-phase")
