"""The rules by which a start is judged, over the books of `sim.shadow`. Each returns "" or what is wrong.

Sources: DESIGN.md §5; Slurm's sbatch (--dependency, --array) for who may start; Kueue's borrowing limit for quota.
"""

from collections import Counter
from collections.abc import Callable

from clearway.model.allocation import Allocation
from clearway.model.cluster import NodeSpec, QueueSpec, TenantSpec
from clearway.model.ids import JobId, TenantName
from clearway.model.jobs import Dependency, DependencyKind, DomainLevel, JobSpec, Outcome
from clearway.model.neighbours import NeighbourKind, NeighbourRule
from clearway.model.units import MILLI
from clearway.sim.shadow import Books, Phase, ShadowDevice, ShadowJob, ShadowNode

# --- may it start at all ----------------------------------------------------------------------------------------------


def find_reason_to_wait(books: Books, job: ShadowJob, now_ms: int) -> str:
    """Why a job must not start now."""
    spec = job.spec
    if job.is_held:
        return "it is held"
    if job.is_cancelled:
        return "it was cancelled"
    if spec.not_before_ms is not None and now_ms < spec.not_before_ms:
        return f"it must not before {spec.not_before_ms} ms"
    unmet = [dependency for dependency in spec.dependencies if not _is_met(books, job, dependency, now_ms)]
    if unmet and not (spec.depends_on_any and len(unmet) < len(spec.dependencies)):
        return f"it depends on {unmet[0]}"
    return _array_reason(books, spec)


def note_growth(books: Books, array: JobId, now_ms: int) -> None:
    """Another task of an array is about to be noted: what was satisfied by those before it stays so."""
    for job in books.dependants.get(array, ()):
        if job.phase is not Phase.ENDED:
            wanted = (other for other in job.spec.dependencies if other.job == array)
            job.met.update(dependency for dependency in wanted if _is_met(books, job, dependency, now_ms))


def _is_met(books: Books, waiting: ShadowJob, dependency: Dependency, now_ms: int) -> bool:
    if dependency in waiting.met:
        return True
    spec = waiting.spec
    if dependency.job is None:
        return not any(_is_before_in_line(spec, other) for other in books.jobs.values())
    array = [job for job in books.jobs.values() if job.spec.array and job.spec.array.array == dependency.job]
    if dependency.task is not None:
        array = [job for job in array if job.spec.array and job.spec.array.index == dependency.task]
    elif not array or (spec.array and spec.array.array == dependency.job):
        array = [job for job in (books.jobs.get(dependency.job),) if job is not None]
    if dependency.kind is DependencyKind.AFTER_CORRESPONDING and spec.array:
        array = [job for job in array if job.spec.array and job.spec.array.index == spec.array.index] or array
    if dependency.kind is DependencyKind.AFTER_NOT_OK:
        ended = all(job.outcome is not None for job in array)
        return bool(array) and ended and any(job.outcome is not Outcome.COMPLETED for job in array)
    return bool(array) and all(_is_met_by(job, dependency, now_ms) for job in array)


def _is_met_by(other: ShadowJob, dependency: Dependency, now_ms: int) -> bool:
    if dependency.kind is DependencyKind.AFTER:
        return other.since_ms is not None and now_ms >= other.since_ms + dependency.delay_ms
    if dependency.kind is DependencyKind.AFTER_ANY:
        return other.outcome is not None
    return other.outcome is Outcome.COMPLETED


def _is_before_in_line(spec: JobSpec, other: ShadowJob) -> bool:
    """Whether a singleton must wait for `other`, as in Slurm: same user and name, and it runs, is suspended, or waits
    and was accepted earlier; whether it is a singleton itself does not matter."""
    if other.spec.id == spec.id or (other.spec.user, other.spec.name) != (spec.user, spec.name):
        return False
    return other.phase not in (Phase.WAITING, Phase.ENDED) or (other.phase is Phase.WAITING and other.spec.id < spec.id)


def _array_reason(books: Books, spec: JobSpec) -> str:
    if spec.array is None or not spec.array.parallel_max:
        return ""
    running = sum(1 for job in books.holding_jobs() if job.spec.array and job.spec.array.array == spec.array.array)
    return "" if running < spec.array.parallel_max else f"{running} of its array run already"


# --- may it be there --------------------------------------------------------------------------------------------------


def find_misplacement(books: Books, job: ShadowJob, allocation: Allocation, had: set[int]) -> str:
    """What is wrong with an allocation that is booked already. had: devices that the job held before."""
    per_replica = job.spec.request.devices
    for replica, node in enumerate(allocation.nodes.tolist()):
        devices = allocation.devices[replica * per_replica : (replica + 1) * per_replica].tolist()
        if len(set(devices)) != len(devices):
            return f"replica {replica} has a device twice: {devices}"
        is_new = not devices or not set(devices) <= had
        wrong = _node_problem(books, job, node, is_new=is_new)
        for device in devices:
            wrong = wrong or _device_problem(books, job, node, device, is_new=device not in had)
        if wrong:
            return wrong
    is_new = not set(allocation.devices.tolist()) & had
    return _spread_problem(books, job.spec, allocation) or (
        _neighbour_problem(books, job.spec, allocation) if is_new else ""
    )


def _node_problem(books: Books, job: ShadowJob, number: int, *, is_new: bool) -> str:
    node, spec = books.nodes[number], job.spec
    if is_new and (node.is_drained or not node.is_up):
        return f"node {number} is down or drained"
    wanted = dict(spec.request.node_labels)
    if spec.network.fabric:
        wanted["fabric"] = spec.network.fabric
    asked = spec.request
    if (asked.nodes and node.spec.name not in asked.nodes) or node.spec.name in asked.nodes_excluded:
        return f"node {number} is {node.spec.name}; asked are {asked.nodes}, not {asked.nodes_excluded}"
    labels = dict(node.spec.labels)
    if any(labels.get(key) != value for key, value in wanted.items()):
        return f"node {number} has labels {labels}, wanted are {wanted}"
    alone = [holder for holder in node.holders if books.request_of(holder).exclusive]
    if alone and len(node.holders) > 1:
        return f"node {number} is wanted alone by {alone} and held by {list(node.holders)}"
    return _node_overflow(books, node, number)


def _node_overflow(books: Books, node: ShadowNode, number: int) -> str:
    requests = [(books.request_of(job), count) for job, count in node.holders.items()]
    cpu = sum(request.cpu_milli * count for request, count in requests)
    memory = sum(request.memory_bytes * count for request, count in requests)
    if node.spec.cpu_milli is not None and cpu > node.spec.cpu_milli:
        return f"node {number} has {node.spec.cpu_milli} milli CPUs and gives {cpu}"
    if node.spec.memory_bytes is not None and memory > node.spec.memory_bytes:
        return f"node {number} has {node.spec.memory_bytes} bytes and gives {memory}"
    extras = Counter[str]()
    for request, count in requests:
        extras.update({name: amount * count for name, amount in request.extras})
    has = dict(node.spec.extras)
    over = [name for name, amount in extras.items() if amount > has.get(name, 0)]
    return f"node {number} has {has} and gives {dict(extras)}" if over else ""


def _device_problem(books: Books, job: ShadowJob, node: int, number: int, *, is_new: bool) -> str:
    device, request = books.devices[number], job.spec.request
    if device.node != node:
        return f"device {number} lies on node {device.node}, not on {node}"
    if is_new and not device.is_healthy:
        return f"device {number} has failed"
    if request.device_models and device.model not in request.device_models:
        return f"device {number} is a {device.model}, wanted is one of {request.device_models}"
    if device.memory_bytes and request.device_memory_bytes > device.memory_bytes:
        return f"device {number} has {device.memory_bytes} bytes, wanted are {request.device_memory_bytes}"
    return _sharing_problem(books, device, number)


def _sharing_problem(books: Books, device: ShadowDevice, number: int) -> str:
    share = books.share_used_milli(device)
    if share > MILLI:
        return f"device {number} gives {share} of {MILLI} thousandths to {device.holders}"
    memory = books.memory_used_bytes(device)
    if device.memory_bytes and memory > device.memory_bytes:
        return f"device {number} gives {memory} of {device.memory_bytes} bytes to {device.holders}"
    return ""


def _spread_problem(books: Books, spec: JobSpec, allocation: Allocation) -> str:
    """Whether the gang lies within the widest domain that it allows."""
    numbers = sorted(set(allocation.nodes.tolist()))
    nodes = [books.nodes[number].spec for number in numbers]
    near = _NEAR[spec.network.widest]
    if all(near(nodes[0], other) for other in nodes[1:]):
        return ""
    return f"nodes {numbers} are not within one {spec.network.widest}"


def _neighbour_problem(books: Books, spec: JobSpec, allocation: Allocation) -> str:
    """Whether each replica, one after the other, lies where its rules about neighbours allow it."""
    nodes = [books.nodes[number] for number in allocation.nodes.tolist()]
    for rule in spec.request.neighbours:
        if rule.weight:
            continue
        counts = _count_crowd(books, spec.id, rule)
        is_self = rule.crowd in spec.request.crowds
        for replica, node in enumerate(nodes):
            domain = dict(node.spec.labels).get(rule.domain)
            if not _allows(rule, counts, domain, is_self=is_self):
                return f"replica {replica} lies in {rule.domain}={domain} with {counts} of {rule.crowd}; rule: {rule}"
            if is_self and domain is not None:
                counts[domain] += 1
    return ""


def _count_crowd(books: Books, own: JobId, rule: NeighbourRule) -> dict[str, int]:
    """Replicas of the crowd in each domain, those of one job left out."""
    counts: dict[str, int] = {}
    for node in books.nodes:
        domain = dict(node.spec.labels).get(rule.domain)
        if domain is None:
            continue
        others = sum(
            count for job, count in node.holders.items() if job != own and rule.crowd in books.request_of(job).crowds
        )
        counts[domain] = counts.get(domain, 0) + others + dict(node.spec.crowds).get(rule.crowd, 0)
    return counts


def _allows(rule: NeighbourRule, counts: dict[str, int], domain: str | None, *, is_self: bool) -> bool:
    if domain is None:
        return rule.kind is NeighbourKind.APART
    if rule.kind is NeighbourKind.APART:
        return counts[domain] == 0
    if rule.kind is NeighbourKind.BESIDE:
        return counts[domain] > 0 or (is_self and not any(counts.values()))
    least = min(counts.values()) if len(counts) >= rule.domains_min else 0
    return counts[domain] + is_self - least <= rule.skew


def _same(one: str, other: str) -> bool:
    return one != "" and one == other


def _near_nvlink(one: NodeSpec, other: NodeSpec) -> bool:
    return _same(one.nvlink, other.nvlink)


def _near_leaf(one: NodeSpec, other: NodeSpec) -> bool:
    return _same(one.leaf, other.leaf) or _near_nvlink(one, other)


def _near_block(one: NodeSpec, other: NodeSpec) -> bool:
    return _same(one.block, other.block) or _near_leaf(one, other)


_NEAR: dict[DomainLevel, Callable[[NodeSpec, NodeSpec], bool]] = {
    DomainLevel.NVLINK: _near_nvlink,
    DomainLevel.NODE: lambda _one, _other: False,
    DomainLevel.LEAF: _near_leaf,
    DomainLevel.BLOCK: _near_block,
    DomainLevel.SITE: lambda _one, _other: True,
}
"""Whether two different nodes are within one domain of a level; a narrower domain in common is enough."""


# --- limits -----------------------------------------------------------------------------------------------------------


def make_queue_rule(queues: tuple[QueueSpec, ...]) -> Callable[[Books, ShadowJob], str]:
    """A rule: what the running jobs of a queue hold, and how many they are, is within its limits."""
    by_name = {queue.name: queue for queue in queues}

    def judge(books: Books, job: ShadowJob) -> str:
        queue = by_name.get(job.spec.queue)
        if queue is None:
            return ""
        running = [other.spec.id for other in books.holding_jobs() if other.spec.queue == queue.name]
        held = sum(books.counted_milli(other) for other in running)
        if queue.running_max is not None and len(running) > queue.running_max:
            return f"queue {queue.name} allows {queue.running_max} running jobs, found {len(running)}"
        if queue.devices_max_milli is not None and held > queue.devices_max_milli:
            return f"queue {queue.name} allows {queue.devices_max_milli} device milli, found {held}"
        return ""

    return judge


def make_quota_rule(tenants: tuple[TenantSpec, ...]) -> Callable[[Books, ShadowJob], str]:
    """A rule: with all that is below it, no tenant holds more than what is guaranteed there and what it may borrow."""
    by_name = {tenant.name: tenant for tenant in tenants}
    below = {tenant.name: _names_below(tenant.name, tenants) for tenant in tenants}

    def judge(books: Books, job: ShadowJob) -> str:
        for tenant in _line_up(job.spec.tenant, by_name):
            if tenant.quota is None or tenant.quota.borrow_max_milli is None:
                continue
            own = [by_name[name].quota for name in below[tenant.name]]
            ceiling = sum(quota.guaranteed_milli for quota in own if quota) + tenant.quota.borrow_max_milli
            held = sum(_held_by(books, other, below[tenant.name]) for other in books.holding_jobs())
            if held > ceiling:
                return f"tenant {tenant.name} may hold {ceiling} device milli at most, found {held}"
        return ""

    return judge


def _held_by(books: Books, job: ShadowJob, tenants: list[TenantName]) -> int:
    return books.counted_milli(job.spec.id) if job.spec.tenant in tenants else 0


def _names_below(name: TenantName, tenants: tuple[TenantSpec, ...]) -> list[TenantName]:
    """The tenant itself and all below it; parents come before their children."""
    names = [name]
    for tenant in tenants:
        if tenant.parent in names and tenant.name not in names:
            names.append(tenant.name)
    return names


def _line_up(name: TenantName, by_name: dict[TenantName, TenantSpec]) -> list[TenantSpec]:
    """The tenant and its ancestors, as far as they are described."""
    line: list[TenantSpec] = []
    at: TenantName | None = name
    while at is not None and at in by_name:
        line.append(by_name[at])
        at = by_name[at].parent
    return line
