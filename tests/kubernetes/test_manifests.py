"""What is shipped is taken by a real API server as it is: nothing is unknown there, and nothing is refused."""

import subprocess
from pathlib import Path

import pytest

from support.cluster import SCRIPTS, until

DEPLOY = Path(__file__).parents[2] / "deploy"
ACCOUNT = "system:serviceaccount:clearway:clearway"
OURS = "clearway-leader"


@pytest.fixture
def kubectl(cluster):
    where = subprocess.run([SCRIPTS / "build", "--where"], capture_output=True, text=True, check=True).stdout.strip()

    def run(*words):
        options = ["--kubeconfig", cluster.kubeconfig, *words]
        return subprocess.run([Path(where) / "kubectl", *options], capture_output=True, text=True, timeout=120)

    yield run
    run("delete", "namespace", "clearway", "--ignore-not-found", "--wait=false")
    for name in ("clusterrole", "clusterrolebinding"):
        run("delete", name, "clearway", "--ignore-not-found")
    until("no namespace clearway", lambda: "clearway" not in run("get", "namespaces", "-o", "name").stdout, 90)


@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-replicas"])
def test_manifests_are_applied_without_a_warning(kubectl, cluster, folder):
    cluster.add_namespace("clearway")  # a dry run makes no namespace, in which the rest would be
    tried = kubectl("apply", "--dry-run=server", "--validate=strict", "-k", DEPLOY / folder)
    assert tried.returncode == 0, tried.stderr
    done = kubectl("apply", "--validate=strict", "-k", DEPLOY / folder)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line] == []
    pods = until("a pod of the scheduler", lambda: cluster.pods("clearway"))
    assert pods[0]["spec"]["serviceAccountName"] == "clearway"
    assert pods[0]["spec"]["priority"] == 2_000_000_000


def test_replicas_may_change_their_own_lease_and_no_other(kubectl, cluster):
    cluster.add_namespace("clearway")
    done = kubectl("apply", "-k", DEPLOY / "kubernetes-replicas")
    assert done.returncode == 0, done.stderr
    for verb, lease, is_allowed in (("get", OURS, True), ("update", OURS, True), ("update", "other", False)):
        answer = kubectl(
            "auth", "can-i", verb, f"leases.coordination.k8s.io/{lease}", "-n", "clearway", "--as", ACCOUNT
        )
        assert answer.stdout.strip() == ("yes" if is_allowed else "no"), (verb, lease)


def test_rights_to_submit_are_for_one_namespace(kubectl, cluster):
    cluster.add_namespace("clearway")
    done = kubectl("apply", "--validate=strict", "-n", "default", "-k", DEPLOY / "kubernetes" / "submit")
    assert done.returncode == 0, done.stderr
    for verb, resource, namespace, is_allowed in (
        ("create", ["jobs.batch"], "default", True),
        ("get", ["pods", "--subresource=log"], "default", True),
        ("create", ["jobs.batch"], "kube-system", False),
        ("delete", ["pods"], "default", False),
        ("get", ["secrets"], "default", False),
    ):
        answer = kubectl("auth", "can-i", verb, *resource, "-n", namespace, "--as", ACCOUNT)
        assert answer.stdout.strip() == ("yes" if is_allowed else "no"), (verb, resource, namespace)
    kubectl("delete", "-n", "default", "-k", DEPLOY / "kubernetes" / "submit")
