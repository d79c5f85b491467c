"""What is shipped to be applied agrees with the code: rights, kinds, arguments, configuration."""

from pathlib import Path

import pytest
import typer
import yaml

from clearway.adapters.kubernetes.gangs import PLURALS
from clearway.adapters.kubernetes.watching import NODES, OTHERS, PODS
from clearway.bootstrap.places import STATE_DIR_VARIABLE
from clearway.cli.app import app
from clearway.wire.config import load_config

DEPLOY = Path(__file__).parents[4] / "deploy" / "kubernetes"


def read(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def granted():
    """(group, resource) → verbs of the role."""
    _, role, _ = read("rbac.yaml")
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_every_kind_that_says_how_large_a_gang_is_may_be_read():
    rights = granted()
    assert [kind for kind, plural in PLURALS.items() if "get" not in rights.get((kind[0], plural), ())] == []


def test_what_is_watched_may_be_listed_and_watched_and_not_asked_for_one_by_one():
    rights = granted()
    for path in (NODES, PODS, *OTHERS):
        *_, group, _version, resource = path.split("/")
        verbs = rights["" if group == "api" else group, resource]
        assert verbs >= {"list", "watch"}
        assert ("get" in verbs) is (resource == "resourceclaims"), path


def test_nothing_may_be_changed_but_bindings_evictions_conditions_events_and_claims():
    changing = {what: verbs - {"get", "list", "watch"} for what, verbs in granted().items()}
    assert {what: verbs for what, verbs in changing.items() if verbs} == {
        ("", "persistentvolumeclaims"): {"patch"},
        ("", "persistentvolumes"): {"patch"},
        ("", "pods/binding"): {"create"},
        ("", "pods/eviction"): {"create"},
        ("", "pods/status"): {"patch"},
        ("events.k8s.io", "events"): {"create"},
        ("scheduling.run.ai", "bindrequests"): {"create", "delete"},
        ("resource.k8s.io", "resourceclaims"): {"update"},
        ("resource.k8s.io", "resourceclaims/binding"): {"update"},
        ("resource.k8s.io", "resourceclaims/status"): {"update"},
    }


def test_shipped_configuration_is_valid():
    assert [queue.name for queue in load_config(DEPLOY / "clearway.yaml").site.queues] == ["production", "urgent"]


def test_every_resource_of_the_kustomization_is_there():
    (kustomization,) = read("kustomization.yaml")
    assert all((DEPLOY / name).is_file() for name in kustomization["resources"])


def pod():
    deployment, _volume = read("scheduler.yaml")
    return deployment["spec"]["template"]["spec"]


def container():
    (only,) = pod()["containers"]
    return only


@pytest.mark.parametrize("words", [["args"], ["readinessProbe", "exec", "command"]], ids=["start", "probe"])
def test_commands_of_the_manifest_are_commands_of_this_release(words):
    found = container()
    for word in words:
        found = found[word]
    name, *options = found[found[0] == "clearway" :]
    typer.main.get_command(app).commands[name].make_context(name, options)


def test_files_of_the_volume_stay_private_over_restarts():
    assert pod()["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_state_lies_on_the_volume():
    deployment, claim = read("scheduler.yaml")
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    variables = {variable["name"]: variable["value"] for variable in container()["env"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert variables[STATE_DIR_VARIABLE] == mounts["state"]


def test_the_lease_of_the_configuration_is_the_one_that_is_made():
    replicas = DEPLOY.parent / "kubernetes-replicas"
    lease, role, _ = yaml.safe_load_all((replicas / "lease.yaml").read_text(encoding="utf-8"))
    name = lease["metadata"]["name"]
    assert role["rules"][0]["resourceNames"] == [name]
    assert load_config(replicas / "clearway.yaml").lease == f"{lease['metadata']['namespace']}/{name}"
