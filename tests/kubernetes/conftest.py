"""One real control plane for all tests of this folder; none of them runs where it is not built."""

from pathlib import Path

import pytest

from support.cluster import Cluster, find_missing, until
from support.kubelets import Kubelets

FOLDER = Path(__file__).parent
DEVICES = [
    f"/apis/resource.k8s.io/v1/{path}"
    for path in (
        "deviceclasses",
        "resourceslices",
        "namespaces/default/resourceclaimtemplates",
        "namespaces/default/resourceclaims",
    )
]
"""What tests of claims on devices make."""


def pytest_collection_modifyitems(config, items):
    """Mark the tests of this folder. Where none of them can run, one stands for all, and says why."""
    ours = [item for item in items if FOLDER in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.kubernetes)
    missing = find_missing() if ours else ""
    if missing:
        first, *rest = ours
        first.add_marker(pytest.mark.skip(reason=f"all {len(ours)} tests of {FOLDER.name}: {missing}"))
        config.hook.pytest_deselected(items=rest)
        items[:] = [item for item in items if item not in rest]


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("kubernetes"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def running_kubelets(running_cluster):
    kubelets = Kubelets(running_cluster)
    yield kubelets
    kubelets.close()


@pytest.fixture
def kubelets(running_kubelets):
    """The kubelets that are played, all of them well again after the test."""
    yield running_kubelets
    running_kubelets.silent.clear()
    running_kubelets.endings.clear()


@pytest.fixture
def cluster(running_cluster, running_kubelets):
    """The control plane, empty again after the test."""
    yield running_cluster
    empty(running_cluster)


def empty(cluster):
    """Delete what tests made. A pod may be made anew until its Job is gone, so they are deleted until none is left."""

    def has_no_pods():
        cluster.call("DELETE", "/apis/batch/v1/namespaces/default/jobs", params={"propagationPolicy": "Background"})
        cluster.call("DELETE", "/api/v1/namespaces/default/pods", params={"gracePeriodSeconds": "0"})
        return not cluster.pods() and not cluster.items("/apis/batch/v1/namespaces/default/jobs")

    until("no pods and no jobs", has_no_pods)
    cluster.call("DELETE", "/api/v1/nodes")
    cluster.call("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses", params={"labelSelector": "test"})
    for path in DEVICES:
        cluster.call("DELETE", path)
    claims = DEVICES[-1]
    until("no claims", lambda: cluster.call("DELETE", claims) and not cluster.items(claims))
    until("no nodes", lambda: not cluster.items("/api/v1/nodes"))
