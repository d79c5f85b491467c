"""Policies and jobs from the words of a scenario."""

from dataclasses import replace

from clearway.engine.policy import (
    Backfill,
    Elasticity,
    FairShare,
    Headroom,
    Placement,
    Policy,
    Preemption,
    PreemptMode,
    RuntimeSource,
)
from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT, JobId, QueueName, TenantName
from clearway.model.jobs import (
    ArrayMember,
    Checkpoint,
    Dependency,
    DomainLevel,
    Elastic,
    JobKind,
    JobSpec,
    Network,
    Request,
)
from clearway.policies.named import named_policy
from clearway.policies.orders import Fifo, Shortest
from clearway.wire.dependencies import parse_slurm_dependencies
from clearway.wire.units import parse_duration, parse_memory

DEPTHS = {"fifo": 0, "first-fit": 0, "easy": 1, "srpt": 0, "conservative": 1_000}
"""Reservations that each policy of the scenarios makes."""


def options_of(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dictionary; a word without `=` is a switch or an argument of its own."""
    return dict(word.partition("=")[::2] for word in words)


def whole_milli(text: str | None) -> int | None:
    """A number of devices or CPUs in thousandths."""
    return None if text is None else round(float(text) * 1000)


def make_policy(name: str, options: dict[str, str]) -> Policy:
    """A policy by the name of its kind, or one that is named everywhere (`@las`). Options of the first: depth, bypass,
    preempt, protection, spread, fragmentation, flat, headroom, dominant, elastic, scan."""
    if name.startswith("@"):
        return named_policy(name[1:])
    backfill = Backfill(
        strict=name == "fifo",
        reservation_depth=int(options.get("depth", DEPTHS[name])),
        bypass_max=int(options.get("bypass", 1_000_000)),
    )
    policy = Policy(
        name=name,
        order=Shortest(remaining=True) if name == "srpt" else Fifo(),
        runtime=RuntimeSource.ESTIMATE,
        backfill=backfill,
        scan_max=int(options.get("scan", 200_000)),
        fair_share=FairShare(dominant="dominant" in options),
        elasticity=Elasticity(enabled="elastic" in options),
    )
    if "preempt" in options:
        protection_ms = parse_duration(options.get("protection", "0s"))
        preemption = Preemption(mode=PreemptMode(options["preempt"]), protection_ms=protection_ms)
        policy = replace(policy, preemption=preemption)
    if "headroom" in options:
        policy = replace(policy, headroom=Headroom(enabled=True, devices_min=int(options["headroom"])))
    placement = Placement(
        spread=100.0 if "spread" in options else 0.0,
        fragmentation=1.0 if "fragmentation" in options else 0.0,
        topology="flat" not in options,
    )
    return replace(policy, placement=placement)


def make_job(job: JobId, options: dict[str, str], now_ms: int = 0) -> JobSpec:
    """A job: gpus (whole, or a share below 1), replicas, model, memory (of a device), cpus, ram, fabric, nodes,
    without, exclusive, within, limit, estimate, priority, queue, tenant, kind, name, held, begin (from now), after
    (`afterok:1`, `after:1+5`, `afterok:1_3`, several with `,` or `?`), array (`ID%MAX`), elastic (`1-4`), checkpoint
    (interval), suspendable, fixed (not preemptible)."""
    gpus = whole_milli(options.get("gpus", "1")) or 0
    request = Request(
        devices=1 if 0 < gpus < 1000 else gpus // 1000,
        share_milli=gpus if 0 < gpus < 1000 else 1000,
        device_memory_bytes=parse_memory(options.get("memory", "0B")),
        device_models=tuple(options["model"].split("|")) if "model" in options else (),
        cpu_milli=whole_milli(options.get("cpus")) or 0,
        memory_bytes=parse_memory(options.get("ram", "0B")),
        exclusive="exclusive" in options,
        nodes=tuple(options["nodes"].split(",")) if "nodes" in options else (),
        nodes_excluded=tuple(options["without"].split(",")) if "without" in options else (),
    )
    return JobSpec(
        id=job,
        request=request,
        replicas=int(options.get("replicas", 1)),
        name=options.get("name", ""),
        tenant=TenantName(options.get("tenant", ROOT_TENANT)),
        queue=QueueName(options.get("queue", DEFAULT_QUEUE)),
        kind=JobKind(options.get("kind", "train")),
        priority=int(options.get("priority", 0)),
        limit_ms=_time(options, "limit"),
        estimate_ms=_time(options, "estimate"),
        network=Network(widest=DomainLevel(options.get("within", "site")), fabric=options.get("fabric", "")),
        elastic=_elastic(options.get("elastic")),
        checkpoint=Checkpoint(interval_ms=parse_duration(options["checkpoint"])) if "checkpoint" in options else None,
        preemptible="fixed" not in options,
        suspendable="suspendable" in options,
        held="held" in options,
        dependencies=_dependencies(options.get("after")),
        depends_on_any="?" in options.get("after", ""),
        array=_array(options.get("array"), job),
        not_before_ms=now_ms + parse_duration(options["begin"]) if "begin" in options else None,
    )


def _time(options: dict[str, str], key: str) -> int | None:
    return parse_duration(options[key]) if key in options else None


def _elastic(text: str | None) -> Elastic | None:
    if text is None:
        return None
    least, _, most = text.partition("-")
    return Elastic(replicas_min=int(least), replicas_max=int(most))


def _dependencies(text: str | None) -> tuple[Dependency, ...]:
    requests = parse_slurm_dependencies(text) if text else ()
    return tuple(request.on(JobId(request.target) if request.target else None) for request in requests)


def _array(text: str | None, job: JobId) -> ArrayMember | None:
    """`7%2` makes the job a task of array 7, of which two may run at once."""
    if text is None:
        return None
    array, _, most = text.partition("%")
    return ArrayMember(array=JobId(int(array)), index=job, parallel_max=int(most or 0))
