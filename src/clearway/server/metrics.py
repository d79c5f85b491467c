"""`/metrics` in Prometheus' form: base units, what the caller may see, and some names that Slurm's and Kueue's
exporters have, so that dashboards for these show something at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clearway.model.units import MILLI
from clearway.ports.views import ClusterView, DeviceState, NodeState
from clearway.server.shown import count_states

BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Around 0.1 s, which is what lists and states of jobs are promised to take at most."""


class RequestMetrics:
    """What the server counts of itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self._requests = Counter(
            "clearway_http_requests_total", "Answers.", (*labels, "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "clearway_http_request_seconds",
            "Time from a request to the first byte of its answer.",
            labels,
            buckets=BUCKETS_S,
            registry=self.registry,
        )

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer. route: as declared, such as `/api/v1/jobs/{job}`."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class _ClusterCollector(Collector):
    """A cluster as gauges."""

    def __init__(self, cluster: ClusterView, streams: int) -> None:
        self._cluster = cluster
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """All families."""
        cluster = self._cluster
        yield _gauge("clearway_jobs_pending", "Jobs that wait.", cluster.pending)
        yield _gauge("clearway_jobs_running", "Jobs that hold devices.", cluster.running)
        yield _gauge("clearway_event_streams", "Streams that are open.", self._streams)
        yield _gauge("clearway_storage_up", "1 where the storage takes writes.", 0 if cluster.storage_error else 1)
        yield CounterMetricFamily("clearway_journal_records", "Records of the journal.", cluster.seq)
        yield CounterMetricFamily("clearway_cycles", "Decision cycles.", cluster.cycles)
        seconds = GaugeMetricFamily(
            "clearway_cycle_seconds", "Time of a cycle, of the last ones.", labels=("quantile",)
        )
        seconds.add_metric(("0.5",), cluster.cycle_ms_p50 / 1_000)
        seconds.add_metric(("0.99",), cluster.cycle_ms_p99 / 1_000)
        yield seconds
        yield from _collect_machines(cluster)
        yield from _collect_queues(cluster)
        yield from _collect_tenants(cluster)


def render_metrics(requests: RequestMetrics, cluster: ClusterView, streams: int) -> bytes:
    """All metrics as text. cluster: as the caller may see it."""
    registry = CollectorRegistry()
    registry.register(_ClusterCollector(cluster, streams))
    return generate_latest(registry) + generate_latest(requests.registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _labelled(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for item, value in values:
        family.add_metric((item,), value)
    return family


def _collect_machines(cluster: ClusterView) -> Iterator[Metric]:
    nodes = count_states(node.state for node in cluster.nodes)
    devices = count_states(device.state for node in cluster.nodes for device in node.devices)
    yield _labelled("clearway_nodes", "Nodes.", "state", ((state, nodes.get(state, 0)) for state in NodeState))
    yield _labelled("clearway_devices", "Devices.", "state", ((state, devices.get(state, 0)) for state in DeviceState))
    used = [
        (node.name, sum(milli for device in node.devices for _, milli in device.owners) / MILLI)
        for node in cluster.nodes
    ]
    yield _labelled("clearway_node_devices_used", "Devices of a node that jobs hold.", "node", used)
    yield _labelled("slurm_nodes_gpus_alloc", "As clearway_node_devices_used.", "node", used)
    yield _gauge("slurm_jobs_pending", "As clearway_jobs_pending.", cluster.pending)


def _collect_queues(cluster: ClusterView) -> Iterator[Metric]:
    queues = cluster.queues
    pending = [(queue.name, queue.pending) for queue in queues]
    yield _labelled("clearway_queue_jobs_pending", "Jobs that wait in a queue.", "queue", pending)
    yield _labelled("clearway_queue_jobs_running", "Its jobs that run.", "queue", ((q.name, q.running) for q in queues))
    yield _labelled(
        "clearway_queue_devices_used",
        "Devices that they hold.",
        "queue",
        ((q.name, q.used_milli / MILLI) for q in queues),
    )
    yield _labelled("kueue_pending_workloads", "As clearway_queue_jobs_pending.", "cluster_queue", pending)


def _collect_tenants(cluster: ClusterView) -> Iterator[Metric]:
    tenants = cluster.tenants
    for name, text, value_of in _TENANT_GAUGES:
        yield _labelled(name, text, "tenant", ((tenant.name, value_of(tenant)) for tenant in tenants))
    guaranteed = ((t.name, t.guaranteed_milli / MILLI) for t in tenants if t.guaranteed_milli is not None)
    yield _labelled("clearway_tenant_devices_guaranteed", "Devices that a tenant is sure of.", "tenant", guaranteed)


_TENANT_GAUGES: Final[tuple[tuple[str, str, Callable[..., float]], ...]] = (
    ("clearway_tenant_jobs_pending", "Jobs of a tenant that wait.", lambda tenant: tenant.pending),
    ("clearway_tenant_jobs_running", "Jobs of a tenant that run.", lambda tenant: tenant.running),
    ("clearway_tenant_devices_used", "Devices that they hold.", lambda tenant: tenant.used_milli / MILLI),
    ("clearway_tenant_share_ratio", "Its decayed use of the past, of all use.", lambda tenant: tenant.share),
)
