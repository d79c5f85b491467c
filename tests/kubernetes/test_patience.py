"""Pods that come while the journal takes nothing: their jobs are decided, and nothing is done before it is written."""

from clearway.ports.storage import StorageError
from support.cluster import bound, until
from support.kube_scheduling import Scheduling


class FullDisk:
    """Has a scheduling's store refuse what is written, until `free`."""

    def __init__(self, scheduling):
        self._store, self._append = scheduling.store, scheduling.store.append
        scheduling.store.append = self._refuse

    def _refuse(self, _changes):
        raise StorageError("no space left on device")

    def free(self):
        self._store.append = self._append


def waits_unwritten(scheduling):
    return scheduling.control._unwritten is not None and scheduling.control._unwritten.answers


def test_pod_that_is_deleted_while_its_job_waits_for_the_disk_leaves_nothing_behind(cluster, tmp_path):
    cluster.add_node("n1", gpus=8)
    with Scheduling(cluster.kubeconfig, tmp_path / "clearway.db") as scheduling:
        cluster.add_pod("first", gpus=1)
        until("the first bound", lambda: "first" in bound(cluster.pods()))
        disk = FullDisk(scheduling)
        cluster.add_pod("gone", gpus=4)
        until("a decision that is not written", lambda: waits_unwritten(scheduling))
        cluster.add_pod("next", gpus=7)
        cluster.delete("/api/v1/namespaces/default/pods/gone")
        until("no such pod", lambda: "gone" not in {pod["metadata"]["name"] for pod in cluster.pods()})
        assert bound(cluster.pods()) == {"first": "n1"}
        disk.free()
        until("the next bound", lambda: bound(cluster.pods()) == {"first": "n1", "next": "n1"})
        assert len(scheduling.pods.backend.book.jobs) == 2


def test_scheduler_that_ends_before_its_decision_is_written_binds_each_pod_once_when_it_is_back(cluster, tmp_path):
    cluster.add_node("n1", gpus=8)
    database = tmp_path / "clearway.db"
    with Scheduling(cluster.kubeconfig, database) as scheduling:
        cluster.add_pod("first", gpus=1)
        until("the first bound", lambda: "first" in bound(cluster.pods()))
        FullDisk(scheduling)
        for number in range(3):
            cluster.add_pod(f"p{number}", gpus=2)
        until("a decision that is not written", lambda: waits_unwritten(scheduling))
        assert bound(cluster.pods()) == {"first": "n1"}
    with Scheduling(cluster.kubeconfig, database) as scheduling:
        until("all bound", lambda: len(bound(cluster.pods())) == 4)
        assert len(scheduling.pods.backend.book.jobs) == 4
