"""The book: gangs whose pods have volumes."""

import pytest

from clearway.adapters.kubernetes.parse import parse_pod
from clearway.adapters.kubernetes.volumes import BIND_COMPLETED
from clearway.model.events import (
    JobStopped,
)
from clearway.model.jobs import StopCause
from support.kube_book import CONFIG, World
from support.kubernetes import JOB, make_job_object

# --- volumes of gangs -------------------------------------------------------------------------------------------------


def put_volume(world, name, zone=""):
    """A claim of this name; with a zone it is bound to a volume there."""
    put = world.book.put_other
    put(
        "storageclasses",
        {"metadata": {"name": "fast"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"},
    )
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": "vision", "uid": f"uid-{name}"}
    if zone:
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        place = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "capacity": {"storage": "1Gi"}}
        put("persistentvolumes", {"metadata": {"name": f"v-{name}"}, "spec": place, "status": {"phase": "Bound"}})
        spec["volumeName"], metadata["annotations"] = f"v-{name}", {BIND_COMPLETED: "yes"}
    put("persistentvolumeclaims", {"metadata": metadata, "spec": spec})


def make_scattered(world, *zones):
    """A gang of as many pods, each with a claim of its own, bound in its zone; "" = not bound yet."""
    for name in ("a", "b"):
        world.put_node(f"n-{name}", gpus=8, labels={"zone": name})
    for number, zone in enumerate(zones):
        put_volume(world, f"data-{number}", zone)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        world.put(f"w{number}", owner=JOB, index=number, volumes=[volume])
    world.answer_sizes(make_job_object(len(zones)))
    return world.accept()


def fitting(world, job):
    """Nodes that are told to admit the job's pods."""
    world.settle()
    (label,) = job.request.node_labels
    return [name for name, entry in world.book.nodes.entries.items() if label in entry.told.labels]


def test_gang_whose_volumes_are_in_two_zones_goes_to_both():
    world = World()
    jobs = make_scattered(world, "a", "b", "a")
    assert [job.replicas for job in jobs] == [2, 1]
    assert [fitting(world, job) for job in jobs] == [["n-a"], ["n-b"]]
    world.start(1, ("n-a", (0,)), ("n-a", (1,)))
    assert world.calls() == [], "none of a gang is bound before all have places"
    world.start(2, ("n-b", (0,)))
    assert sorted(world.calls()) == ["bind w0 n-a", "bind w1 n-b", "bind w2 n-a"]


def test_gang_whose_volumes_are_in_one_zone_or_not_bound_yet_is_one_job():
    assert [job.replicas for job in make_scattered(World(), "a", "a")] == [2]
    assert [job.replicas for job in make_scattered(World(), "", "")] == [2]


def test_gang_whose_volumes_were_bound_apart_while_it_waited_is_told_anew_by_their_places():
    world = World()
    (job,) = make_scattered(world, "", "")
    assert job.replicas == 2
    put_volume(world, "data-0", "a")
    put_volume(world, "data-1", "b")
    world.start(1, ("n-b", (0,)), ("n-a", (0,)))
    assert world.calls() == []
    jobs = world.accept()
    assert [fitting(world, job) for job in jobs] == [["n-a"], ["n-b"]]


def test_new_process_finds_the_parts_of_a_gang_by_the_places_of_their_volumes():
    world = World()
    make_scattered(world, "a", "b")
    origins = {job: bundle.key for job, bundle in world.book.jobs.items()}
    again = World()
    for name in ("a", "b"):
        again.put_node(f"n-{name}", gpus=8, labels={"zone": name})
    for pod in world.pods.values():
        again.book.put_pod(parse_pod(pod, CONFIG))
    put_volume(again, "data-0", "a")
    put_volume(again, "data-1", "b")
    again.answer_sizes(make_job_object(2))
    again.book.adopt(1, 1, 1, (("n-a", (0,)),), origins[1], is_started=False)
    again.book.restore(1, 2, origins[2], 1)
    again.settle()
    assert again.calls() == []
    again.start(2, ("n-b", (0,)))
    assert sorted(again.calls()) == ["bind w0 n-a", "bind w1 n-b"]


@pytest.mark.parametrize("zone", ["b", ""])
def test_pod_that_replaces_one_of_a_scattered_gang_takes_its_place(zone):
    world = World()
    make_scattered(world, "a", "b", "b")
    world.start(1, ("n-b", (0,)), ("n-b", (1,)))
    world.start(2, ("n-a", (0,)))
    assert sorted(world.calls()) == ["bind w0 n-a", "bind w1 n-b", "bind w2 n-b"]
    for name, node in (("w0", "n-a"), ("w1", "n-b"), ("w2", "n-b")):
        world.change(name, node=node, phase="Running")
    world.settle()
    world.delete("w1")
    put_volume(world, "new", zone)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "new"}}
    world.put("x1", owner=JOB, index=1, volumes=[volume])
    world.settle()
    assert world.calls() == ["bind x1 n-b"]


def put_free_volume(world, name, zone):
    """A volume that nobody has, which can be reached from the zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    world.book.put_other(
        "persistentvolumes", {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
    )


def make_local(world):
    """A gang of two pods whose claims are to be given volumes, of which there is one in each of two zones."""
    make_scattered(world, "", "")
    for zone in ("a", "b"):
        put_free_volume(world, f"v-{zone}", zone)
    provisioner = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    world.book.put_other("storageclasses", {"metadata": {"name": "fast"}} | provisioner)
    world.settle()
    world.calls()


def test_gang_is_not_bound_where_there_is_a_volume_for_one_of_its_pods_alone():
    world = World()
    make_local(world)
    world.start(1, ("n-a", (0,)), ("n-a", (1,)))
    assert world.calls() == []
    (stopped,) = [one for one in world.settle() if isinstance(one, JobStopped)]
    assert stopped.cause is StopCause.MIGRATED, "no node is to blame"
    assert stopped.reason == "n-a: node(s) didn't match PersistentVolume's node affinity"
    world.accept()
    (job,) = world.book.jobs
    world.start(job, ("n-b", (0,)), ("n-a", (0,)), generation=2)
    assert sorted(world.calls()) == ["bind w0 n-b", "bind w1 n-a"]


def test_volume_that_was_promised_to_a_pod_that_is_gone_is_free_again():
    world = World()
    make_local(world)
    world.start(1, ("n-a", (0,)), ("n-b", (0,)))
    assert len(world.calls()) == 2
    for name in ("w0", "w1"):
        world.delete(name)
    world.settle()
    put_volume(world, "other")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "other"}}
    world.put("p", volumes=[volume])
    world.accept()
    world.start(max(world.book.jobs), ("n-a", (0,)))
    assert world.calls() == ["bind p n-a"]


@pytest.mark.parametrize(("node", "calls"), [("n-a2", ["bind w0 n-a", "bind w1 n-a2"]), ("n-b", [])])
def test_pods_that_share_a_claim_which_is_not_bound_yet_lie_in_one_zone(node, calls):
    world = World()
    for name, zone in (("n-a", "a"), ("n-a2", "a"), ("n-b", "b")):
        world.put_node(name, gpus=8, labels={"topology.kubernetes.io/zone": zone})
    put_volume(world, "data")
    for name in ("w0", "w1"):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        world.put(name, owner=JOB, index=int(name[1]), volumes=[volume])
    world.answer_sizes(make_job_object(2))
    world.accept()
    world.start(1, ("n-a", (0,)), (node, (0,)))
    assert sorted(world.calls()) == calls
