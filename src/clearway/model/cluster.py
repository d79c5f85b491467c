"""What a cluster is made of, and who may use how much of it. Frozen values."""

from dataclasses import dataclass, field, replace

from clearway.model.ids import NodeName, QueueName, TenantName
from clearway.model.units import DEVICES_PER_MODEL_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """`count` equal devices of one node. memory_bytes and watts_max are per device; 0 = unknown.

    speed: throughput relative to the site's reference model (1.0). nvlink_size: devices of one NVLink domain inside
    the node; 0 = all `count` are one domain.
    """

    model: str
    count: int
    memory_bytes: int = 0
    speed: float = 1.0
    nvlink_size: int = 0
    watts_max: int = 0

    def __post_init__(self) -> None:
        assert 1 <= self.count <= DEVICES_PER_MODEL_MAX
        assert self.speed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A machine. cpu_milli or memory_bytes of None mean: not counted (the trace or site does not say).

    leaf, block, nvlink: names of the domains that it lies in; empty = it is alone at that level. `nvlink` names a
    rack-scale NVLink domain (e.g. NVL72) that spans nodes. labels: (key, value) pairs.
    crowds: replicas of others that lie here and count in a crowd (`model.neighbours`), as (crowd, number) pairs.
    extras: (name, amount) of what else the node has that jobs may ask for; of what is not named there is none.
    """

    name: NodeName
    groups: tuple[DeviceGroup, ...] = ()
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    nvlink: str = ""
    leaf: str = ""
    block: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    crowds: tuple[tuple[str, int], ...] = ()
    extras: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        models = [group.model for group in self.groups]
        assert len(models) == len(set(models)), "one group per model"

    @property
    def device_count(self) -> int:
        """All devices of the node."""
        return sum(group.count for group in self.groups)


def added_groups(known: NodeSpec, found: NodeSpec) -> tuple[DeviceGroup, ...] | None:
    """The devices that `found` has behind those of `known`, () = none; None = it is not `known` with more devices, for
    then the numbers of those that it had would be others. Only models and counts are compared."""
    head = len(known.groups)
    shared = list(zip(known.groups, found.groups, strict=False))
    if len(shared) < head or any(old.model != new.model for old, new in shared):
        return None
    if any(old.count != new.count for old, new in shared[:-1]) or any(new.count < old.count for old, new in shared):
        return None
    more = [replace(new, count=new.count - old.count) for old, new in shared[-1:] if new.count > old.count]
    return (*more, *found.groups[head:])


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """Bandwidth (GB/s per device) and latency (microseconds) of a hop at one level of the topology."""

    bandwidth_gbps: float
    latency_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Nodes in a fixed order: the order is the tie-breaker of placement.

    power_budget_watts: what all devices may draw together, see `model.power`; None = any amount.
    """

    nodes: tuple[NodeSpec, ...]
    links: tuple[tuple[str, LinkSpec], ...] = ()
    power_budget_watts: int | None = None

    @property
    def device_count(self) -> int:
        """All devices of the cluster."""
        return sum(node.device_count for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Devices of a tenant in thousandths, as Kueue's nominalQuota, borrowingLimit and lendingLimit.

    guaranteed: its own. borrow_max: how much more it may use when others leave it idle (None = any amount).
    lend_max: how much of its own others may use when idle (None = all).
    """

    guaranteed_milli: int
    borrow_max_milli: int | None = None
    lend_max_milli: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSpec:
    """A team, in a tree. weight: its share among its siblings. quota None = no limit and nothing guaranteed."""

    name: TenantName
    parent: TenantName | None = None
    weight: float = 1.0
    quota: Quota | None = None

    def __post_init__(self) -> None:
        assert self.weight > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Where jobs wait. None = no limit. priority: higher first, before any job's own priority.

    devices_max_milli: devices that running jobs of this queue may hold. job_devices_max_milli: the largest job.
    limit_max_ms, limit_default_ms: longest and assumed time limit. preempts: queues whose jobs its jobs may preempt.
    """

    name: QueueName
    priority: int = 0
    devices_max_milli: int | None = None
    job_devices_max_milli: int | None = None
    running_max: int | None = None
    limit_max_ms: int | None = None
    limit_default_ms: int | None = None
    preempts: tuple[QueueName, ...] = field(default=())
