"""Which pods are one job, and how many of them there must be before any starts. Pure.

A gang is recognised by what people already write: Clearway's own annotations, a pod group of Kubernetes itself, of
Kueue, of the coscheduling plugin or of Volcano, a JobSet, the jobs of the training operator, a RayCluster, and a batch
Job whose pods all run at once. Where only another object says how many pods there are, the group names it (`Source`),
and `gang_size` reads it. Of a JobSet whose Jobs wait for one another each replicated Job is a gang. Every other pod is
a job of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.wire.problems import ParseError
from clearway.wire.units import parse_count

GANG: Final = "clearway.io/gang"
GANG_SIZE: Final = "clearway.io/gang-size"
ELASTIC: Final = "clearway.io/elastic"
"""The fewest and the most pods with which a Job can do its work: `2-8`."""

OWN_JOB: Final = "clearway.io/job"
"""Label of pods that Clearway itself had made for a job that was submitted to it: the job's number."""

REPLICAS_MAX: Final = 100_000
"""Pods of one gang; guards against a number that no cluster can hold."""

NAME_CHARACTERS_MAX: Final = 63
"""As long as any label may be."""

PLURALS: Final[Mapping[tuple[str, str], str]] = {
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("kubeflow.org", "TFJob"): "tfjobs",
    ("kubeflow.org", "MPIJob"): "mpijobs",
    ("kubeflow.org", "XGBoostJob"): "xgboostjobs",
    ("kubeflow.org", "PaddleJob"): "paddlejobs",
    ("kubeflow.org", "JAXJob"): "jaxjobs",
    ("ray.io", "RayCluster"): "rayclusters",
    ("scheduling.k8s.io", "PodGroup"): "podgroups",
    ("scheduling.volcano.sh", "PodGroup"): "podgroups",
    ("scheduling.sigs.k8s.io", "PodGroup"): "podgroups",
    ("scheduling.x-k8s.io", "PodGroup"): "podgroups",
}
"""Kinds that say how many pods belong together, with the name of each in the API's paths."""

VERSION: Final = re.compile(r"v[0-9]{1,9}((alpha|beta)[0-9]{1,9})?")
"""Of an API: `v1`, `v1alpha2`."""

JOBSET_API: Final = "jobset.x-k8s.io/v1alpha2"
KUBERNETES_API: Final = "scheduling.k8s.io/v1alpha2"
VOLCANO_API: Final = "scheduling.volcano.sh/v1beta1"
COSCHEDULING_API: Final = "scheduling.x-k8s.io/v1alpha1"
OLDER_COSCHEDULING_API: Final = "scheduling.sigs.k8s.io/v1alpha1"

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_PART: Final = "jobset.sigs.k8s.io/replicatedjob-name"
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation of a JobSet, or of one of its templates: a Job has a domain for itself. The pod that leads it must lie
somewhere before the others are made, which follow it there."""

BY_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotation beside it: node labels say where each Job goes, and all pods are made at once."""

COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
OLDER_COSCHEDULING_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
"""Still what Koordinator reads. Before there was a PodGroup, two labels said its name and its size."""

VOLCANO_GROUPS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""The older one is what its own controller writes; its scheduler takes both."""

KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"

RAY_CLASS: Final = "ray.io/priority-class-name"
"""Label of a RayCluster, which KubeRay hands on to schedulers of gangs."""

QUEUE_KEYS: Final = (
    "clearway.io/queue",
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/queue",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
)
"""Labels and annotations that name a queue, the first that is there counts: of pods, else of the object that makes them
or says how many they are."""


Size = int | Mapping[str, int]
"""Pods that must start together; 0 = each is alone. Of an object with parts that start apart: of each, by its name."""


@dataclass(frozen=True, slots=True)
class Source:
    """The object that says how many pods a gang has. uid: "" = its pods do not say it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    @property
    def path(self) -> str:
        """Its path in the API; "" for a kind that says nothing about gangs, and where there cannot be such an object:
        the API server does not look what versions and names owners have."""
        group, _, version = self.api_version.rpartition("/")
        plural = PLURALS.get((group, self.kind))
        if plural is None or not VERSION.fullmatch(version) or self.name in (".", ".."):
            return ""
        return f"/apis/{group}/{version}/namespaces/{self.namespace}/{plural}/{quote(self.name, safe='')}"


@dataclass(frozen=True, slots=True)
class Said:
    """What the object says of its gang beside numbers. queue, priority_class: that it names, "" = none. priority: of
    that class, as the API server wrote it, None = it did not."""

    queue: str = ""
    priority_class: str = ""
    priority: int | None = None


NOTHING_SAID: Final = Said()


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are one job. key: unique in the cluster while any of them lives.

    size: pods that must start together; 0 = `source` says it. returns: whether a controller makes the pods anew when
    they were evicted, so that the job waits instead of ending.
    """

    key: str
    size: int = 0
    source: Source | None = None
    returns: bool = False


def group_of(pod: PodFacts) -> Group:
    """The group of a pod. Raises UnreadableError where its own words about it are wrong."""
    said = {**dict(pod.labels), **dict(pod.annotations)}
    if len(said.get(GANG, "")) > NAME_CHARACTERS_MAX:
        raise UnreadableError(f"pod {pod.name!r}: {GANG}: expected a name of at most {NAME_CHARACTERS_MAX} characters")
    space, returns = pod.namespace, pod.owner is not None
    number = said.get(OWN_JOB, "")
    if number.isdecimal() and pod.owner is not None and pod.owner.kind == "Job":
        return Group(own_key(space, int(number)), 0, None, True)
    if name := said.get(GANG):
        return Group(f"{space}/gang/{name}", _size(pod, said, GANG_SIZE), None, returns)
    if name := pod.pod_group:
        return Group(f"{space}/group/{name}", 0, Source(KUBERNETES_API, "PodGroup", space, name), returns)
    if name := said.get(KUEUE_GROUP):
        return Group(f"{space}/kueue/{name}", _size(pod, said, KUEUE_COUNT), None, returns)
    if name := said.get(JOBSET_NAME):
        uid = said.get(JOBSET_UID, "")
        return Group(f"{space}/jobset/{uid or name}", 0, Source(JOBSET_API, "JobSet", space, name, uid), True)
    if name := next((said[key] for key in VOLCANO_GROUPS if said.get(key)), ""):
        return Group(f"{space}/volcano/{name}", 0, Source(VOLCANO_API, "PodGroup", space, name), returns)
    if name := said.get(COSCHEDULING_GROUP):
        return Group(f"{space}/podgroup/{name}", 0, Source(COSCHEDULING_API, "PodGroup", space, name), returns)
    if name := said.get(OLDER_COSCHEDULING_GROUP):
        return Group(f"{space}/sigs/{name}", 0, Source(OLDER_COSCHEDULING_API, "PodGroup", space, name), returns)
    if name := said.get(f"{OLDER_COSCHEDULING_GROUP}/name"):
        size = _size(pod, said, f"{OLDER_COSCHEDULING_GROUP}/min-available")
        return Group(f"{space}/light/{name}", size, None, returns)
    owner = pod.owner
    if owner is not None:
        source = Source(owner.api_version, owner.kind, space, owner.name, owner.uid)
        if source.path:
            return Group(f"{space}/{owner.kind.lower()}/{owner.uid}", 0, source, True)
    return single_of(pod)


def own_key(namespace: str, job: int) -> str:
    """The key of the pods of a job that was submitted to Clearway."""
    return f"{namespace}/own/{job}"


def single_of(pod: PodFacts) -> Group:
    """The pod as a job of its own."""
    return Group(f"{pod.namespace}/pod/{pod.uid}", 1)


def part_of(pod: PodFacts, gang: Group, sizes: Size) -> Group:
    """The group of a pod of a gang whose pods do not all start together after all, by what `gang_size` says."""
    part = dict(pod.labels).get(JOBSET_PART, "")
    size = 0 if isinstance(sizes, int) else sizes.get(part, 0)
    return Group(f"{gang.key}:{part}", size, None, gang.returns) if size else single_of(pod)


def _size(pod: PodFacts, said: Mapping[str, str], key: str) -> int:
    try:
        size = parse_count(said.get(key, "nothing"))
    except ParseError as error:
        raise UnreadableError(f"pod {pod.name!r}: {key}: {error}") from error
    if not 1 <= size <= REPLICAS_MAX:
        raise UnreadableError(f"pod {pod.name!r}: {key}: expected 1 to {REPLICAS_MAX} pods, found {size}")
    return size


def elastic_range(pod: PodFacts) -> tuple[int, int] | None:
    """The fewest and the most pods of the pod's Job; None = it has a fixed number. Raises UnreadableError."""
    text = dict(pod.annotations).get(ELASTIC)
    if text is None:
        return None
    least, _, most = text.partition("-")
    try:
        found = parse_count(least), parse_count(most)
    except ParseError:
        found = 0, 0
    if not 1 <= found[0] <= found[1] <= REPLICAS_MAX:
        raise UnreadableError(f"pod {pod.name!r}: {ELASTIC}: expected a range such as 2-8, found {text!r}")
    if pod.owner is None or (pod.owner.api_version, pod.owner.kind) != ("batch/v1", "Job"):
        raise UnreadableError(f"pod {pod.name!r}: {ELASTIC}: expected a pod of an indexed Job, found another")
    return found


def gang_size(data: Mapping[str, Any]) -> Size:
    """How many pods of this object must start together. Raises UnreadableError."""
    kind = data.get("kind", "?")
    try:
        size = _read_size(str(kind), data["spec"], data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        name = (data.get("metadata") or {}).get("name", "?")
        raise UnreadableError(f"{kind} {name!r}: expected the numbers of its pods, found {error!r}") from error
    return _bound(size) if isinstance(size, int) else {part: _bound(one) for part, one in size.items()}


def said_by(data: Mapping[str, Any]) -> Said:
    """What this object says beside numbers, by labels and annotations, or in its spec as PodGroups and what the
    training operator hands on to them."""
    metadata, spec = data.get("metadata") or {}, data.get("spec") or {}
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    queue, named = next((marks[key] for key in QUEUE_KEYS if marks.get(key)), ""), marks.get(RAY_CLASS)
    priority = None
    if data.get("kind") == "PodGroup":
        queue, named, priority = queue or spec.get("queue"), spec.get("priorityClassName"), spec.get("priority")
    elif policy := (spec.get("runPolicy") or {}).get("schedulingPolicy"):
        named = policy.get("priorityClass")
    return Said(str(queue or ""), str(named or ""), priority if isinstance(priority, int) else None)


def _bound(size: int) -> int:
    return min(max(size, 0), REPLICAS_MAX)


def _read_size(kind: str, spec: Mapping[str, Any], data: Mapping[str, Any]) -> Size:
    match kind:
        case "Job":
            return _job_size(spec)
        case "JobSet":
            return _jobset_size(spec, data)
        case "RayCluster":
            return 1 + sum(_count_workers(group) for group in spec.get("workerGroupSpecs") or ())
        case "PodGroup":
            if "schedulingPolicy" in spec:
                return int((spec["schedulingPolicy"].get("gang") or {}).get("minCount", 0))
            return int(spec.get("minMember", 1))
    return _training_size(spec, data)


def _job_size(spec: Mapping[str, Any]) -> int:
    """A Job is a gang when all of its pods run at once and each has its own number; one pod is a gang of one."""
    parallelism = int(spec.get("parallelism", 1))
    if spec.get("completions") is None or int(spec["completions"]) != parallelism:
        return 0
    return parallelism if spec.get("completionMode") == "Indexed" or parallelism == 1 else 0


def _jobset_size(spec: Mapping[str, Any], data: Mapping[str, Any]) -> Size:
    parts = spec["replicatedJobs"]
    led = {part["name"] for part in parts if _is_led(data, part)}
    sizes = {part["name"]: int(part.get("replicas", 1)) * _count_pods(part["template"]["spec"]) for part in parts}
    is_ordered = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    if led or is_ordered or any(part.get("dependsOn") for part in parts):
        return {name: 0 if name in led else size for name, size in sizes.items()}
    return sum(sizes.values())


def _is_led(data: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether most pods of these Jobs are made only when one of each lies somewhere."""
    of_all = (data.get("metadata") or {}).get("annotations") or {}
    said = {**of_all, **((part["template"].get("metadata") or {}).get("annotations") or {})}
    return EXCLUSIVE in said and BY_SELECTOR not in said


def _count_pods(spec: Mapping[str, Any]) -> int:
    """Pods that a Job runs at once."""
    parallelism = int(spec.get("parallelism", 1))
    return parallelism if spec.get("completions") is None else min(parallelism, int(spec["completions"]))


def _count_workers(group: Mapping[str, Any]) -> int:
    """Pods of a worker group: its replicas, each of several hosts."""
    if group.get("suspend"):
        return 0
    least, most = int(group.get("minReplicas") or 0), int(group.get("maxReplicas", REPLICAS_MAX))
    return min(max(int(group.get("replicas") or 0), least), most) * int(group.get("numOfHosts", 1))


def _training_size(spec: Mapping[str, Any], data: Mapping[str, Any]) -> int:
    """All pods that the operator makes, or as many of them as its user says are enough. Since its second version an
    MPIJob's launcher is the pod of a Job, which is alone."""
    replicas = spec[next((name for name in sorted(spec) if name.endswith("ReplicaSpecs")), "...ReplicaSpecs")]
    has_launcher = not str(data.get("apiVersion", "")).startswith("kubeflow.org/v2")
    made = [part for role, part in replicas.items() if has_launcher or role != "Launcher"]
    total = sum(int(part.get("replicas", 1)) for part in made)
    enough = ((spec.get("runPolicy") or {}).get("schedulingPolicy") or {}).get("minAvailable")
    return total if enough is None else min(max(int(enough), 1), total)
