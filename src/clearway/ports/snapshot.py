"""A cluster at one moment, whole: what a twin needs to go on from there."""

from dataclasses import dataclass

from clearway.model.cluster import LinkSpec, NodeSpec, QueueSpec, TenantSpec
from clearway.model.ids import NodeName
from clearway.model.jobs import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotJob:
    """One job that has not ended. Times in Unix milliseconds.

    start_ms: of the run that goes on; None = it waits. saved_ms: work of earlier runs that is safe. expected_ms: how
    long it is expected to run in all, by what is known of its like; None = nobody can say. is_held: it waits for
    somebody to release it.
    """

    spec: JobSpec
    submit_ms: int
    start_ms: int | None = None
    saved_ms: int = 0
    expected_ms: int | None = None
    is_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """nodes: all that may be used; nodes_away: names of those that are down or drained. jobs: by number. links: as in
    ClusterSpec."""

    at_ms: int
    nodes: tuple[NodeSpec, ...]
    nodes_away: tuple[NodeName, ...] = ()
    queues: tuple[QueueSpec, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()
    jobs: tuple[SnapshotJob, ...] = ()
    links: tuple[tuple[str, LinkSpec], ...] = ()
