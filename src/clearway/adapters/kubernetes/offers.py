"""What a node offers, in the words of the engine. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from clearway.adapters.kubernetes.entries import Counted
from clearway.adapters.kubernetes.facts import NodeFacts, PodFacts
from clearway.adapters.kubernetes.parse import CPU, MEMORY, parse_mib
from clearway.adapters.kubernetes.parse_claims import DeviceFacts
from clearway.adapters.kubernetes.placement import names_devices
from clearway.model.cluster import DeviceGroup
from clearway.model.jobs import Request
from clearway.model.units import DEVICES_PER_MODEL_MAX


def make_groups(facts: NodeFacts) -> Iterable[DeviceGroup]:
    """Devices that are given out as extended resources."""
    for resource, count in facts.devices:
        yield DeviceGroup(
            model=resource if names_devices(resource) or len(facts.devices) > 1 else facts.model or resource,
            count=min(count, DEVICES_PER_MODEL_MAX),
            memory_bytes=slice_memory(facts, resource) if names_devices(resource) else facts.device_memory_bytes,
        )


def make_claimed(groups: Iterable[Sequence[DeviceFacts]]) -> Iterable[DeviceGroup]:
    """Devices that are given out by claims."""
    for group in groups:
        yield DeviceGroup(model=group[0].model, count=len(group), memory_bytes=group[0].memory_bytes)


def slice_memory(facts: NodeFacts, resource: str) -> int:
    """Bytes of one MIG slice, as GPU feature discovery says (strategy `mixed`); 0 = unknown."""
    return parse_mib(dict(facts.labels).get(f"{resource}.memory", ""))


def find_first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    """The value of the first of these labels that is there; "" = none is."""
    return next((labels[key] for key in keys if labels.get(key)), "")


def counted_for(pod: PodFacts, request: Request | None) -> Counted:
    """What the engine counts for a pod of a job with this request; None = for one that asks as much as the pod."""
    return (pod.amount(CPU), pod.amount(MEMORY)) if request is None else (request.cpu_milli, request.memory_bytes)


def find_grown(pods: Iterable[tuple[PodFacts, Counted]]) -> Counted:
    """What pods hold beyond what the engine counts for them: they were resized in place."""
    more = [(pod.amount(CPU) - cpu, pod.amount(MEMORY) - memory) for pod, (cpu, memory) in pods]
    return sum(max(cpu, 0) for cpu, _ in more), sum(max(memory, 0) for _, memory in more)


def find_left(facts: NodeFacts, others: Iterable[PodFacts], resource: str) -> int:
    """What the node gives out of a resource, less what these pods ask of it."""
    return max(dict(facts.amounts).get(resource, 0) - sum(pod.amount(resource) for pod in others), 0)
