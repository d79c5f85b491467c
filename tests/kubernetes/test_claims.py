"""Claims on devices of a real API server (resource.k8s.io/v1), made from templates and freed by its controllers."""

import pytest

from support.cluster import bound, until
from support.kube_claims import DRIVER, make_claim, make_class, make_request, make_slice
from support.kube_scheduling import Scheduling

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"


@pytest.fixture
def cluster(cluster):
    """With a class of devices, and templates for claims of one and of two."""
    cluster.create(f"{API}/deviceclasses", make_class())
    for count in (1, 2):
        spec = make_claim("x", make_request(count))["spec"]
        body = {"metadata": {"name": f"gpus-{count}"}, "spec": {"spec": spec}}
        cluster.create(f"{API}/namespaces/default/resourceclaimtemplates", body)
    return cluster


def add_node(cluster, name, devices):
    cluster.add_node(name, gpus=0)
    cluster.create(f"{API}/resourceslices", make_slice(name, devices))


def add_pod(cluster, name, template="gpus-1"):
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    container = {"name": "main", "image": "clearway.invalid/none", "resources": {"claims": [{"name": "gpu"}]}}
    cluster.add_pod(name, resourceClaims=claims, containers=[container])


def devices_of(cluster):
    """Devices by the name of the pod that has them."""
    found = {}
    for claim in cluster.items(CLAIMS):
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        for user in status.get("reservedFor", ()):
            found[user["name"]] = sorted((one["pool"], one["device"]) for one in results)
    return found


def test_pods_get_devices_by_claim_and_others_get_them_when_these_are_gone(cluster, tmp_path):
    add_node(cluster, "n1", 2)
    add_node(cluster, "n2", 2)
    for number in range(5):
        add_pod(cluster, f"p{number}")
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db") as scheduling:
        until("four bound", lambda: len(bound(cluster.pods())) == 4)
        assert sum(len(node.devices) for node in scheduling.control.cluster().nodes) == 4
        has = devices_of(cluster)
        assert set(has) == set(bound(cluster.pods()))
        assert len({device for devices in has.values() for device in devices}) == 4
        assert all(devices[0][0] == bound(cluster.pods())[pod] for pod, devices in has.items())
        waits = next(f"p{number}" for number in range(5) if f"p{number}" not in has)
        until("why it waits", lambda: "cannot allocate all claims" in message_of(cluster, waits))
        cluster.delete(f"/api/v1/namespaces/default/pods/{min(has)}")
        until("the fifth bound", lambda: waits in bound(cluster.pods()))
        assert devices_of(cluster)[waits] == has[min(has)]


def test_gang_of_claims_starts_whole_after_a_restart_and_a_claim_that_is_had_ties_its_pod(cluster, tmp_path):
    add_node(cluster, "n1", 2)
    add_node(cluster, "n2", 2)
    cluster.create(CLAIMS, make_claim("mine", make_request(1)))
    database = tmp_path / "clearway.db"
    first = {"name": "gpu", "resourceClaimName": "mine"}
    cluster.add_pod("first", gpus=0, resourceClaims=[first])
    with Scheduling(cluster.kubeconfig, database):
        until("the first bound", lambda: "first" in bound(cluster.pods()))
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpus-2"}]
    cluster.add_job("gang", 2, gpus=0, resourceClaims=claims)
    cluster.add_pod("second", gpus=0, resourceClaims=[first])
    with Scheduling(cluster.kubeconfig, database):
        until("the second bound", lambda: "second" in bound(cluster.pods()))
        assert bound(cluster.pods()) == dict.fromkeys(("first", "second"), bound(cluster.pods())["first"])
        for name in ("first", "second"):
            cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
        gang = until(
            "the gang bound", lambda: sorted(bound(cluster.pods()).values()) == ["n1", "n2"] and cluster.pods()
        )
        assert all(len(devices_of(cluster)[pod["metadata"]["name"]]) == 2 for pod in gang)


def test_claim_that_is_not_evaluated_is_refused_on_its_pod(cluster, tmp_path):
    add_node(cluster, "n1", 2)
    expression = f'device.attributes["{DRIVER}"].productName.matches("X.*")'
    cluster.create(CLAIMS, make_claim("odd", make_request(1, expressions=[expression])))
    cluster.add_pod("odd", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "odd"}])
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db"):
        assert "does not evaluate" in until("a refusal", lambda: message_of(cluster, "odd"))


def message_of(cluster, name):
    pod = cluster.call("GET", f"/api/v1/namespaces/default/pods/{name}")
    found = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return found[0].get("message", "") if found else ""
