"""A control plane's snapshot: what runs, what waits, and what may be used."""

from clearway.model.cluster import QueueSpec, TenantSpec
from clearway.model.ids import NodeName
from clearway.model.jobs import Request
from clearway.ports.control import Removed
from support.live import Plane, make_spec


def test_snapshot_has_what_runs_what_waits_what_is_held_and_what_is_away():
    plane = Plane(nodes=3).start()
    first, second = plane.submit(make_spec(), make_spec(1, devices=1), scripts=["run_ms=500", "run_ms=500"])
    (third, fourth) = plane.submit(make_spec(), make_spec(1, held=True), scripts=["run_ms=500", "run_ms=500"])
    names = [node.name for node in plane.control.cluster().nodes]
    plane.do(plane.control.drain(names[2], reason="repair", actor="ada"))
    (fifth,) = plane.submit(make_spec(), scripts=["run_ms=500"])
    snapshot = plane.do(plane.control.snapshot())
    assert [node.name for node in snapshot.nodes] == names[:2]
    assert snapshot.nodes_away == (NodeName(names[2]),)
    running = {job.spec.id for job in snapshot.jobs if job.start_ms is not None}
    assert running == {first, second, third}
    assert {job.spec.id for job in snapshot.jobs if job.is_held} == {fourth}
    assert [job.spec.id for job in snapshot.jobs if job.start_ms is None] == [fourth, fifth]
    assert [queue.name for queue in snapshot.queues] == ["production"]
    assert snapshot.jobs[0].spec.request == Request(devices=1)


def test_snapshot_says_nothing_of_queues_and_tenants_that_were_removed():
    plane = Plane().start()
    plane.do(plane.control.set_site((QueueSpec(name="night"),), (TenantSpec(name="team"),), actor="ada"))
    before = plane.do(plane.control.snapshot())
    plane.do(plane.control.set_site((), (), actor="ada", removed=Removed(queues=("night",), tenants=("team",))))
    after = plane.do(plane.control.snapshot())
    assert {queue.name for queue in before.queues} - {queue.name for queue in after.queues} == {"night"}
    assert {tenant.name for tenant in before.tenants} - {tenant.name for tenant in after.tenants} == {"team"}
