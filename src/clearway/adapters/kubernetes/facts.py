"""What Clearway needs to know of the objects of an API server: frozen values, compared by value."""

from dataclasses import dataclass, field
from enum import StrEnum

Pairs = tuple[tuple[str, str], ...]
"""Labels or annotations, sorted by key."""

Amounts = tuple[tuple[str, int], ...]
"""Resource name and amount, sorted by name; CPUs in thousandths, everything else in its own unit."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node keeps pods off that do not tolerate it. effect: NoSchedule, NoExecute, or PreferNoSchedule, a wish."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod bears taints. Empty key = any, empty effect = both; exists: the value does not matter."""

    key: str
    value: str
    effect: str
    exists: bool

    def bears(self, taint: Taint) -> bool:
        """Whether this toleration covers the taint."""
        return (
            self.effect in ("", taint.effect)
            and self.key in ("", taint.key)
            and (self.exists or (self.key != "" and self.value == taint.value))
        )


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on labels (or on the node's name): key, operator as the API writes it, values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """All of these hold. labels: about node labels. fields: about `metadata.name`."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


Selector = tuple[Expression, ...]
"""Labels for which all of these hold; () = any labels."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Other pods of which a pod wants one near, or none. selector: None = no pod at all. namespaces: by name; spaces:
    and those with such labels. domain: a node label; pods on nodes of one value are near. weight: 0 = required, else a
    wish of 1 to 100."""

    selector: Selector | None
    namespaces: tuple[str, ...]
    spaces: Selector | None
    domain: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """Pods of its namespace among which a pod wants to be spread evenly over domains.

    skew, domains_min: `maxSkew`, `minDomains`. weight: 0 = required. by_affinity, by_taints: whether nodes where the
    pod must not lie, by its node affinity or by taints, are left out.
    """

    selector: Selector | None
    domain: str
    skew: int = 1
    domains_min: int = 1
    weight: int = 0
    by_affinity: bool = True
    by_taints: bool = False


@dataclass(frozen=True, slots=True)
class Company:
    """What a pod asks about the pods beside it."""

    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spreads: tuple[SpreadTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one device. by: who makes it so on the node (`shares`). milli: thousandths of it, 0 = as many as its
    memory is. memory_bytes: 0 = in proportion. cores, percentage: of compute and of memory, as HAMi is told."""

    by: str
    milli: int = 0
    memory_bytes: int = 0
    cores: int = 0
    percentage: int = 100


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """One device of a node on which HAMi gives out parts."""

    id: str
    memory_bytes: int
    model: str
    is_healthy: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a claim on devices: so many whole ones of a class, which all selectors choose."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """What a claim on devices asks. alike: attributes in which all of its devices are to be the same."""

    asks: tuple[Ask, ...]
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """Where a pod may lie, whatever else it asks.

    selector: labels that must be there. terms: at least one must hold (empty = no such rule). tolerations: taints that
    it bears. device: the device resource that the node must offer, "" = none. others: amounts that the engine does not
    count (pods, ephemeral-storage, ...). ports: host ports, as (port, protocol, address). volumes: of each group of
    terms at least one must hold, for a volume, or devices that a claim has, to be reached. wishes: of claims on devices
    that have none yet. sharing: who must make parts of devices on the node, "" = nobody. attached: how many volumes its
    node must attach, by CSI driver.
    """

    selector: Pairs = ()
    terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    device: str = ""
    others: Amounts = ()
    ports: tuple[tuple[int, str, str], ...] = ()
    volumes: tuple[tuple[Term, ...], ...] = ()
    wishes: tuple[Wish, ...] = ()
    sharing: str = ""
    attached: Amounts = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of a pod."""

    api_version: str
    kind: str
    name: str
    uid: str


class PodPhase(StrEnum):
    """`status.phase`."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """One pod. node: where it is bound, "" = nowhere. amounts: all that it asks. devices: of `demand.device`.

    is_leaving: it was deleted and ends within its grace. gates: names of scheduling gates that are still there.
    exit_code: of its first container that did not end well, 128 + signal where one ended it; 0 = none.
    index: its place among its likes (completion index, replica index), −1 = none. pod_group: name of its
    `schedulingGroup`, "" = none. unsupported: what it asks that Clearway cannot promise, one phrase each. labels,
    annotations: only those that say something to Clearway. marks: all labels, for selectors of other pods. company:
    what it asks about pods beside it. wishes: weights and terms of preferred node affinity. claims: names of the
    PersistentVolumeClaims of its volumes. nominated: the node on which its scheduler makes room for it, "" = none.
    device_claims: names of its ResourceClaims, "" = one that is still to be made; claim_sources: what its spec says of
    them, the same in pods of one template. generation: counts changes of its spec, the binding apart; 0 = unknown.
    share: the part of a device that it asks. device_spread: devices of each container. held: ids of devices of which
    HAMi gave it a part. priority: None = the API server did not write it. priority_class: its name, "" = none.
    preempts: whether others may be evicted for it.
    is_resized: it holds other CPUs or memory than its spec says, for now.
    """

    uid: str
    namespace: str
    name: str
    node: str
    phase: PodPhase
    scheduler: str
    priority: int | None
    amounts: Amounts
    devices: int
    demand: Demand
    owner: Owner | None
    labels: Pairs
    annotations: Pairs
    created: str = ""
    pod_group: str = ""
    grace_ms: int = 30_000
    exit_code: int = 0
    index: int = -1
    is_leaving: bool = False
    gates: tuple[str, ...] = ()
    marks: Pairs = ()
    company: Company | None = None
    wishes: tuple[tuple[int, Term], ...] = ()
    claims: tuple[str, ...] = ()
    nominated: str = ""
    device_claims: tuple[str, ...] = ()
    claim_sources: tuple[str, ...] = ()
    share: Share | None = None
    device_spread: tuple[int, ...] = ()
    held: tuple[str, ...] = ()
    priority_class: str = ""
    preempts: bool = True
    is_resized: bool = False
    generation: int = field(default=0, compare=False)
    unsupported: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself; it holds nothing any more."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def amount(self, resource: str) -> int:
        """What it asks of one resource."""
        return dict(self.amounts).get(resource, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node. amounts: what may be given out (allocatable). devices: device resources of it, with the counts that are
    there, whether given out or not.

    is_ready: its kubelet reports that it is. is_cordoned: `spec.unschedulable`. model, memory: of its devices, from the
    labels of GPU feature discovery; "" and 0 = unknown. shared: its devices, where HAMi gives out parts of them: then
    the amount of the resource counts parts.
    """

    uid: str
    name: str
    amounts: Amounts
    devices: Amounts
    labels: Pairs
    taints: tuple[Taint, ...]
    is_ready: bool
    is_cordoned: bool
    model: str = ""
    device_memory_bytes: int = 0
    shared: tuple[SharedDevice, ...] = ()
