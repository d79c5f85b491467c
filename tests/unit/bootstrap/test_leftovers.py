"""Queues and tenants that the file names no more are found in the books, whatever the file said before."""

from pathlib import Path

import pytest

from clearway.bootstrap.leftovers import find_leftovers, remove_leftovers
from clearway.model.cluster import QueueSpec, Quota, TenantSpec
from clearway.model.errors import InputError
from clearway.ports.control import Removed
from clearway.ports.storage import StorageError
from clearway.wire.config import parse_config
from support.live import Plane, make_spec

FILE = Path("c.yaml")
QUEUES = tuple(QueueSpec(name=name) for name in ("debug", "production", "urgent"))
TENANTS = (
    TenantSpec(name="vision", quota=Quota(guaranteed_milli=4_000)),
    TenantSpec(name="vision2", parent="vision"),
    TenantSpec(name="lab"),
)
NAMED = parse_config("queues: [{name: debug}, {name: production}]\ntenants: [{name: other}]\n", source="c.yaml")


def restarted():
    """A control plane whose file has lost a queue and three tenants while nobody ran."""
    plane = Plane(queues=QUEUES, tenants=TENANTS).start()
    plane.options |= {"queues": NAMED.site.queues, "tenants": NAMED.site.tenants}
    return plane.start()


def remove(plane, *, are_pods=False):
    return remove_leftovers(plane.control, NAMED, FILE, plane.do, are_pods=are_pods)


def in_force(plane):
    cluster = plane.control.cluster()
    return [queue.name for queue in cluster.queues], [tenant.name for tenant in cluster.tenants]


def test_what_the_file_lost_between_two_starts_is_found():
    found = find_leftovers(restarted().control.cluster(), NAMED)
    assert found == Removed(queues=("urgent",), tenants=("vision", "vision2", "lab"))


def test_a_start_removes_what_nothing_is_in():
    plane = restarted()
    assert remove(plane) == ()
    assert in_force(plane) == (["debug", "production"], ["root", "other"])
    assert {line.actor for line in plane.store.audit} == {"clearway"}
    with pytest.raises(InputError, match="found 'lab'"):
        plane.submit(make_spec(tenant="lab"))


def test_a_start_names_in_one_line_what_has_jobs():
    plane = Plane(queues=QUEUES, tenants=TENANTS).start()
    plane.submit(make_spec(queue="urgent", tenant="vision2"), scripts=["run_ms=500"])
    plane.options |= {"queues": NAMED.site.queues, "tenants": NAMED.site.tenants}
    (said,) = remove(plane.start())
    assert (
        "c.yaml names no more, but jobs are in them, or below them: queue urgent, tenant vision2, tenant vision;"
        in said
    )
    assert in_force(plane) == (["debug", "production", "urgent"], ["root", "vision", "vision2", "other"])
    plane.run()
    assert remove(plane) == ()
    assert in_force(plane) == (["debug", "production"], ["root", "other"])


def test_tenants_of_namespaces_stay_where_no_file_sets_anything():
    plane = restarted()
    cluster = plane.control.cluster()
    assert find_leftovers(cluster, NAMED, named_before=()).tenants == ("vision", "vision2")
    assert find_leftovers(cluster, NAMED, named_before=("lab",)).tenants == ("vision", "vision2", "lab")
    assert remove(plane, are_pods=True) == ()
    assert in_force(plane)[1] == ["root", "lab", "other"]


def test_a_storage_that_takes_nothing_is_no_answer():
    plane = restarted()
    plane.store.error = "disk full"
    with pytest.raises(StorageError, match="disk full"):
        remove(plane)
