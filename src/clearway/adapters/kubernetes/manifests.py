"""Jobs that were submitted to Clearway itself, as the objects of Kubernetes that run them. Pure.

Each is one Job for as long as it lives: `Indexed`, with as many completions as it has replicas. It is made at the
job's first start, suspended while the job waits, and given its new size when it goes on. What differs between two
starts (how many replicas, which generation) cannot stand in the template of a Job that has run; it comes as annotations
of the pods, which the binding sets, and from there into the environment. The first process of each container is a
shell that hands SIGTERM on to all others, as the first process itself is not ended by it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clearway.adapters.kubernetes.config import SharedFolder
from clearway.adapters.kubernetes.facts import Demand, PodFacts, Toleration
from clearway.adapters.kubernetes.gangs import ELASTIC, OWN_JOB
from clearway.adapters.kubernetes.parse import PODS
from clearway.model.ids import ROOT_TENANT, JobId, TenantName
from clearway.model.jobs import JobSpec
from clearway.model.runs import Launch, RunSpec
from clearway.model.runs import Toleration as Borne

Json = dict[str, Any]

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "clearway"
SERVICE: Final = "clearway"
"""Name of the headless Service of a namespace through which replicas find one another, and their subdomain."""

WORLD_SIZE: Final = "clearway.io/world-size"
GENERATION: Final = "clearway.io/generation"
"""Annotations that a pod is given when it is bound."""

JOBS_FOLDER: Final = ".clearway"
"""In the shared folder: where each job has a folder of its own for checkpoints."""

MASTER_PORT: Final = 29_500
"""PyTorch's own default; every pod has all ports for itself."""

KEPT_S: Final = 7 * 86_400
"""How long a Job that has ended, and with it the logs of its pods, is kept."""

FAILURES_MAX: Final = 2**31 - 1
"""Kubernetes counts no failures: the first one ends the job, as Clearway sees it."""

GRACE_S: Final = 30
NAME_CHARACTERS_MAX: Final = 40
"""Of a Job: its pods' names, and the names of hosts made from them, are longer and have at most 63."""
SCRIPT_BYTES_MAX: Final = 100_000
"""Linux takes no longer word than 128 KiB when it starts a program."""

DEFAULT_NAMESPACE: Final = "default"

FIRST_PROCESS: Final = r"""
trap 'kill -TERM -1 2>/dev/null' TERM
[ -z "$CLEARWAY_JOB_DIR" ] || mkdir -p "$CLEARWAY_JOB_DIR" || exit 1
script=$1
shift
case $script in
'#!'*)
    file=${TMPDIR:-/tmp}/clearway-script
    printf '%s\n' "$script" >"$file" && chmod 700 "$file" || exit 1
    "$file" "$@" & ;;
*)
    /bin/sh -c "trap 'exit 143' TERM
$script" clearway "$@" & ;;
esac
child=$!
while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || exit "$code"
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """A Job of Clearway's own making. manifest: as it is created. interval_ms: of its checkpoints, 0 = none.
    replicas: as many as its user asked for; replicas_min, replicas_max: of an elastic job, 0 = it is none.
    unnamed_priority: its priority where no PriorityClass has it."""

    job: JobId
    namespace: str
    name: str
    manifest: Json
    interval_ms: int = 0
    replicas: int = 1
    replicas_min: int = 0
    replicas_max: int = 0
    unnamed_priority: int = 0


def namespace_of(tenant: TenantName) -> str:
    """Where the Jobs of a tenant are made."""
    return DEFAULT_NAMESPACE if tenant == ROOT_TENANT else str(tenant)


def name_of(spec: JobSpec) -> str:
    """The name of a job's Job: what its user called it, as far as Kubernetes takes that, and its number."""
    words = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")
    number = f"-{spec.id}"
    return (words or "job")[: NAME_CHARACTERS_MAX - len(number)].rstrip("-") + number


def own_demand(resource: str, borne: Sequence[Borne] = ()) -> Demand:
    """Where a submitted job's pods may lie. resource: of its devices, "" = none. borne: taints that its user names.
    Labels are judged by the engine."""
    named = tuple(Toleration(one.key, one.value or "", one.effect, one.value is None) for one in borne)
    own = (Toleration(resource, "", "", True),) if resource else ()
    return Demand(device=resource, others=((PODS, 1),), tolerations=own + named)


def find_fault(spec: JobSpec, run: RunSpec) -> str:
    """Why this job cannot run as pods, for its user; "" = it can."""
    if not run.image:
        return "expected `image`, found none: pods need one"
    if spec.request.is_fractional:
        return "expected whole GPUs, found `gpu_fraction`: pods have no shares of devices"
    if len(run.script.encode()) > SCRIPT_BYTES_MAX:
        return f"expected a script of at most {SCRIPT_BYTES_MAX} bytes; put it into the image or the shared folder"
    if run.launch is Launch.FIRST_REPLICA and spec.replicas_max > 1:
        return "expected one node, found a batch script over several: a pod cannot start others; use a job file"
    return ""


def make_own_job(
    spec: JobSpec, run: RunSpec, resource: str, scheduler: str, shared: SharedFolder, priority_class: str = ""
) -> OwnJob:
    """The Job of a submitted job, but for its size. resource: of its devices, priority_class: of its priority, "" =
    there is none."""
    namespace, name = namespace_of(spec.tenant), name_of(spec)
    labels = {OWN_JOB: str(spec.id), MANAGED_BY: MANAGER}
    pod = _make_pod(spec, run, resource, scheduler, shared)
    if priority_class:
        pod["priorityClassName"] = priority_class
    template = {"metadata": {"labels": labels, "annotations": {"clearway.io/user": spec.user}}, "spec": pod}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "backoffLimit": FAILURES_MAX,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": template,
        },
    }
    interval_ms = 0 if spec.checkpoint is None else spec.checkpoint.interval_ms
    return OwnJob(
        job=spec.id,
        namespace=namespace,
        name=name,
        manifest=manifest,
        interval_ms=interval_ms,
        unnamed_priority=0 if priority_class else spec.priority,
        replicas=spec.replicas,
        replicas_min=0 if spec.elastic is None else spec.elastic.replicas_min,
        replicas_max=0 if spec.elastic is None else spec.elastic.replicas_max,
    )


def make_service(namespace: str) -> Json:
    """What makes `NAME-0.clearway` the address of a job's first replica."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {MANAGED_BY: MANAGER}},
    }


def binding_annotations(pod: PodFacts, replicas: int, generation: int) -> dict[str, str]:
    """What a pod is told when it is bound, of a job that was submitted or is elastic; empty for any other."""
    if OWN_JOB not in dict(pod.labels) and ELASTIC not in dict(pod.annotations):
        return {}
    return {WORLD_SIZE: str(replicas), GENERATION: str(generation)}


def _make_pod(spec: JobSpec, run: RunSpec, resource: str, scheduler: str, shared: SharedFolder) -> Json:
    grace_s = GRACE_S if spec.checkpoint is None else max(-(-spec.checkpoint.grace_ms // 1000), 1)
    container: Json = {
        "name": "main",
        "image": run.image,
        "command": ["/bin/sh", "-c", _verbatim(FIRST_PROCESS), "clearway", _verbatim(_whole_script(run))],
        "args": [_verbatim(word) for word in run.args],
        "env": _make_environment(spec, run, grace_s, shared),
        "resources": _make_resources(spec, resource),
    }
    pod: Json = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "subdomain": SERVICE,
        "terminationGracePeriodSeconds": grace_s,
        "tolerations": [_render(one) for one in own_demand(resource, run.tolerations).tolerations],
        "containers": [container],
    }
    if shared.path:
        source: Json = {"persistentVolumeClaim": {"claimName": shared.claim}}
        if not shared.claim:
            source = {"hostPath": {"path": shared.path, "type": "Directory"}}
        pod["volumes"] = [{"name": "shared", **source}]
        container["volumeMounts"] = [{"name": "shared", "mountPath": shared.path}]
        if _lies_in(run.workdir, shared.path):
            container["workingDir"] = run.workdir
    return pod


def _render(one: Toleration) -> Json:
    """As the API server writes it, which leaves out what is empty."""
    data = {"key": one.key, "operator": "Exists" if one.exists else "Equal", "value": one.value, "effect": one.effect}
    return {name: text for name, text in data.items() if text}


def _whole_script(run: RunSpec) -> str:
    return f"{run.setup}\n{run.script}" if run.setup and not run.script.startswith("#!") else run.script


def _make_resources(spec: JobSpec, resource: str) -> Json:
    request = spec.request
    asked: dict[str, str] = {}
    if request.cpu_milli:
        asked["cpu"] = f"{request.cpu_milli}m"
    if request.memory_bytes:
        asked["memory"] = str(request.memory_bytes)
    devices = {resource: str(request.devices)} if resource and request.devices else {}
    memory = {"memory": asked["memory"]} if request.memory_bytes else {}
    return {"requests": {**asked, **devices}, "limits": {**memory, **devices}}


def _make_environment(spec: JobSpec, run: RunSpec, grace_s: int, shared: SharedFolder) -> list[Json]:
    """The user's variables, then ours: what is ours is not the user's to change."""
    name, namespace = name_of(spec), namespace_of(spec.tenant)
    folder = f"{shared.path}/{JOBS_FOLDER}/{namespace}/{name}" if shared.path else ""
    own = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MASTER_ADDR": f"{name}-0.{SERVICE}",
        "MASTER_PORT": str(MASTER_PORT),
        "LOCAL_RANK": "0",
        "CLEARWAY_JOB_ID": str(spec.id),
        "CLEARWAY_JOB_DIR": folder,
        "CLEARWAY_SIGNAL": "15",
        "CLEARWAY_SIGNAL_GRACE": str(grace_s),
        "CLEARWAY_REPLICAS_MIN": str(spec.replicas_min),
        "CLEARWAY_REPLICAS_MAX": str(spec.replicas_max),
        "SLURM_JOB_ID": str(spec.id),
        "SLURM_JOB_NAME": spec.name,
    }
    if spec.array is not None:
        own["SLURM_ARRAY_JOB_ID"] = str(spec.array.array)
        own["SLURM_ARRAY_TASK_ID"] = str(spec.array.index)
    told = {
        "RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        "WORLD_SIZE": f"metadata.annotations['{WORLD_SIZE}']",
        "CLEARWAY_GENERATION": f"metadata.annotations['{GENERATION}']",
        "CLEARWAY_NODE": "spec.nodeName",
    }
    plain = {name: value for name, value in {**dict(run.environment), **own}.items() if name not in told}
    return [
        *({"name": name, "value": _verbatim(value)} for name, value in plain.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in told.items()),
    ]


def _verbatim(text: str) -> str:
    """As Kubernetes leaves it alone: it would put variables in the place of `$(NAME)`."""
    return text.replace("$", "$$")


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
