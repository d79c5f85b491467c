"""A whole group of pods as one job of the engine. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.entries import Wants
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import ELASTIC, QUEUE_KEYS, Group, elastic_range
from clearway.adapters.kubernetes.nodes import Nodes
from clearway.adapters.kubernetes.parse import CPU, MEMORY
from clearway.adapters.kubernetes.priorities import Rank
from clearway.adapters.kubernetes.runs import Arrival, Bundle
from clearway.model.ids import JobId, QueueName, TenantName
from clearway.model.jobs import Checkpoint, DomainLevel, Elastic, JobKind, JobSpec, Network, Request
from clearway.model.runs import RunSpec
from clearway.ports.control import PROVISIONAL_ID
from clearway.wire.problems import ParseError
from clearway.wire.units import parse_duration

KIND: Final = "clearway.io/kind"
USER: Final = "clearway.io/user"
ESTIMATE: Final = "clearway.io/estimate"
WITHIN: Final = "clearway.io/within"
CHECKPOINT: Final = "clearway.io/checkpoint"
PREEMPTIBLE: Final = "clearway.io/preemptible"

SERVICE_OWNERS: Final = ("ReplicaSet", "StatefulSet")

EnumT = TypeVar("EnumT", bound=StrEnum)


def make_job(
    number: JobId,
    group: Group,
    pods: Sequence[PodFacts],
    wants: Wants,
    config: KubernetesConfig,
    queue: str,
    rank: Rank,
) -> JobSpec:
    """The job of a whole group. wants: where its pods may lie. queue: that of pods that name none. Raises
    UnreadableError where an annotation is wrong."""
    first = pods[0]
    said = {**dict(first.labels), **dict(first.annotations)}
    return JobSpec(
        id=number,
        request=Request(
            devices=wants.devices,
            share_milli=wants.share_milli,
            device_memory_bytes=wants.device_memory_bytes,
            device_models=wants.models,
            cpu_milli=max(pod.amount(CPU) for pod in pods),
            memory_bytes=max(pod.amount(MEMORY) for pod in pods),
            node_labels=(wants.label,),
            crowds=wants.crowds,
            neighbours=wants.rules,
            liked=wants.liked,
            extras=wants.extras,
        ),
        replicas=len(pods),
        elastic=_elastic(first, len(pods)),
        name=f"{first.namespace}/{first.name if first.owner is None else first.owner.name}",
        user=said.get(USER, ""),
        tenant=TenantName(first.namespace),
        queue=_queue(said, queue, config),
        kind=_kind(said, group, first, len(pods)),
        priority=rank.value,
        estimate_ms=_duration(said, ESTIMATE, first),
        network=_network(said, first),
        checkpoint=_checkpoint(said, first),
        preemptible=said.get(PREEMPTIBLE, "true") != "false",
        preempts=rank.preempts,
    )


def make_arrival(
    now_ms: int,
    bundle: Bundle,
    pods: Sequence[PodFacts],
    nodes: Nodes,
    config: KubernetesConfig,
    queue: str,
    rank: Rank,
) -> Arrival:
    """The submission of a whole group, its wants noted in the bundle. queue: see `make_job`. Raises UnreadableError
    where it cannot be one."""
    wishes = sorted({wish for pod in pods for wish in pod.unsupported})
    if wishes:
        raise UnreadableError(f"Clearway does not support {', '.join(wishes)} yet")
    if (share := pods[0].share) is not None and (fault := nodes.find_share_fault(share)):
        raise UnreadableError(fault)
    if lack := next((lack for pod in pods if (lack := nodes.find_lack(pod))), ""):
        raise UnreadableError(f"0/{len(nodes.entries)} nodes are available: {lack}.")
    bundle.wants = nodes.note_wants(pods)
    job = make_job(JobId(PROVISIONAL_ID), bundle.group, pods, bundle.wants, config, queue, rank)
    again = f".{now_ms}" if bundle.is_again else ""  # the control plane answers a key that it knows with the same job
    key = f"{bundle.group.key}#{pods[0].uid}{again}"
    return Arrival(key, bundle.group.key, job, RunSpec(script="", origin=key))


def _elastic(pod: PodFacts, count: int) -> Elastic | None:
    found = elastic_range(pod)
    if found is None:
        return None
    if not found[0] <= count <= found[1]:
        raise UnreadableError(
            f"pod {pod.name!r}: {ELASTIC}: expected a range with {count} pods, found {found[0]}-{found[1]}"
        )
    return Elastic(replicas_min=found[0], replicas_max=found[1])


def _queue(said: Mapping[str, str], otherwise: str, config: KubernetesConfig) -> QueueName:
    named = next((said[key] for key in QUEUE_KEYS if key in said), otherwise)
    return QueueName(named if named in config.queues else config.queue_default)


def _kind(said: Mapping[str, str], group: Group, pod: PodFacts, replicas: int) -> JobKind:
    if KIND in said:
        return _choice(JobKind, said[KIND], KIND, pod)
    if pod.owner is not None and pod.owner.kind in SERVICE_OWNERS:
        return JobKind.SERVICE
    return JobKind.TRAIN if replicas > 1 or group.source is not None else JobKind.TASK


def _network(said: Mapping[str, str], pod: PodFacts) -> Network:
    if WITHIN not in said:
        return Network()
    return Network(widest=_choice(DomainLevel, said[WITHIN], WITHIN, pod))


def _checkpoint(said: Mapping[str, str], pod: PodFacts) -> Checkpoint | None:
    interval_ms = _duration(said, CHECKPOINT, pod)
    return None if interval_ms is None else Checkpoint(interval_ms=interval_ms, grace_ms=pod.grace_ms)


def _duration(said: Mapping[str, str], key: str, pod: PodFacts) -> int | None:
    if key not in said:
        return None
    try:
        return max(parse_duration(said[key]), 1)
    except ParseError as error:
        raise UnreadableError(f"pod {pod.name!r}: {key}: {error}") from error


def _choice(kind: type[EnumT], text: str, key: str, pod: PodFacts) -> EnumT:
    try:
        return kind(text)
    except ValueError as error:
        names = ", ".join(str(member.value) for member in kind)
        raise UnreadableError(f"pod {pod.name!r}: {key}: expected one of {names}, found {text!r}") from error
