"""Which pods are one job, and how many of them there must be before any starts. Pure.

A gang is recognised by what people already write: Clearway's own annotations, a pod group of Kubernetes itself, of
Kueue, of the coscheduling plugin or of Volcano, a JobSet, the jobs of the training operator, a RayCluster, and a batch
Job whose pods all run at once. Where only another object says how many pods there are, the group names it (`Source`),
and `gang_size` reads it. Every other pod is a job of its own.
"""

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
    ("scheduling.x-k8s.io", "PodGroup"): "podgroups",
}
"""Kinds that say how many pods belong together, with the name of each in the API's paths."""

JOBSET_API: Final = "jobset.x-k8s.io/v1alpha2"
KUBERNETES_API: Final = "scheduling.k8s.io/v1alpha2"
VOLCANO_API: Final = "scheduling.volcano.sh/v1beta1"
COSCHEDULING_API: Final = "scheduling.x-k8s.io/v1alpha1"

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUPS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""The older one is what its own controller writes; its scheduler takes both."""

KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"


@dataclass(frozen=True, slots=True)
class Source:
    """The object that says how many pods a gang has."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Its path in the API; "" for a kind that says nothing about gangs. The API server does not look what names
        owners and annotations have."""
        group, _, version = self.api_version.rpartition("/")
        plural = PLURALS.get((group, self.kind))
        if plural is None:
            return ""
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return f"{root}/namespaces/{self.namespace}/{plural}/{quote(self.name, safe='')}"


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
        return Group(f"{space}/jobset/{name}", 0, Source(JOBSET_API, "JobSet", space, name), True)
    if name := next((said[key] for key in VOLCANO_GROUPS if said.get(key)), ""):
        return Group(f"{space}/volcano/{name}", 0, Source(VOLCANO_API, "PodGroup", space, name), returns)
    if name := said.get(COSCHEDULING_GROUP):
        return Group(f"{space}/podgroup/{name}", 0, Source(COSCHEDULING_API, "PodGroup", space, name), returns)
    owner = pod.owner
    if owner is not None:
        source = Source(owner.api_version, owner.kind, space, owner.name)
        if source.path:
            return Group(f"{space}/{owner.kind.lower()}/{owner.uid}", 0, source, True)
    return single_of(pod)


def own_key(namespace: str, job: int) -> str:
    """The key of the pods of a job that was submitted to Clearway."""
    return f"{namespace}/own/{job}"


def single_of(pod: PodFacts) -> Group:
    """The pod as a job of its own."""
    return Group(f"{pod.namespace}/pod/{pod.uid}", 1)


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


def gang_size(data: Mapping[str, Any]) -> int:
    """How many pods of this object must start together; 0 = each is a job of its own. Raises UnreadableError."""
    kind = data.get("kind", "?")
    try:
        size = _read_size(str(kind), data["spec"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        name = (data.get("metadata") or {}).get("name", "?")
        raise UnreadableError(f"{kind} {name!r}: expected the numbers of its pods, found {error!r}") from error
    return min(max(size, 0), REPLICAS_MAX)


def _read_size(kind: str, spec: Mapping[str, Any]) -> int:
    match kind:
        case "Job":
            return _job_size(spec)
        case "JobSet":
            return sum(
                int(part.get("replicas", 1)) * int(part["template"]["spec"].get("parallelism", 1))
                for part in spec["replicatedJobs"]
            )
        case "RayCluster":
            return 1 + sum(int(group.get("replicas", 1)) for group in spec.get("workerGroupSpecs") or ())
        case "PodGroup":
            if "schedulingPolicy" in spec:
                return int((spec["schedulingPolicy"].get("gang") or {}).get("minCount", 0))
            return int(spec.get("minMember", 1))
    replicas = spec[next((name for name in sorted(spec) if name.endswith("ReplicaSpecs")), "...ReplicaSpecs")]
    return sum(int(part.get("replicas", 1)) for part in replicas.values())


def _job_size(spec: Mapping[str, Any]) -> int:
    """A Job is a gang when all of its pods run at once and each has its own number; one pod is a gang of one."""
    parallelism = int(spec.get("parallelism", 1))
    if spec.get("completions") is None or int(spec["completions"]) != parallelism:
        return 0
    return parallelism if spec.get("completionMode") == "Indexed" or parallelism == 1 else 0
