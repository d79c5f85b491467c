"""Objects in the shape in which the API server of Kubernetes 1.36 sends them; builders state only what matters."""

from copy import deepcopy

JOB_POD = {
    "metadata": {
        "name": "train-0-x7k2p",
        "generateName": "train-0-",
        "namespace": "vision",
        "uid": "5b7c8f1e-8c38-4a4e-9a63-5f3a4a1f0c01",
        "resourceVersion": "812",
        "creationTimestamp": "2026-07-01T10:00:00Z",
        "labels": {
            "batch.kubernetes.io/controller-uid": "a1e3",
            "batch.kubernetes.io/job-completion-index": "0",
            "batch.kubernetes.io/job-name": "train",
            "controller-uid": "a1e3",
            "job-name": "train",
        },
        "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": "a1e3",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "clearway.invalid/train:1",
                "command": ["python", "train.py"],
                "resources": {
                    "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
                    "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
                },
                "terminationMessagePath": "/dev/termination-log",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "clearway",
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "priorityClassName": "high",
        "priority": 1000,
        "preemptionPolicy": "PreemptLowerPriority",
    },
    "status": {"phase": "Pending", "qosClass": "Guaranteed"},
}

GPU_NODE = {
    "metadata": {
        "name": "gpu-1",
        "uid": "b2d0",
        "resourceVersion": "33",
        "labels": {
            "kubernetes.io/hostname": "gpu-1",
            "topology.kubernetes.io/zone": "a",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": "8",
            "network.topology.nvidia.com/leaf": "leaf-3",
        },
    },
    "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"},
        "allocatable": {"cpu": "127500m", "memory": "2000Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        ],
    },
}


def make_pod(
    name="p", *, uid=None, gpus=1, cpu="1", memory="1Gi", owner=None, index=None, node="", phase="Pending", **more
):
    """A pod of `clearway`. owner: (kind, name, uid) of a Job. more: merged into `spec`."""
    pod = deepcopy(JOB_POD)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata.update(name=name, uid=uid or f"uid-{name}", namespace=more.pop("namespace", "vision"))
    metadata["labels"], metadata["annotations"] = more.pop("labels", {}), more.pop("annotations", {})
    if index is not None:
        metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)
    metadata["ownerReferences"] = []
    if owner is not None:
        api, kind, owner_name, owner_uid = owner
        reference = {"apiVersion": api, "kind": kind, "name": owner_name, "uid": owner_uid, "controller": True}
        metadata["ownerReferences"] = [reference]
    if more.pop("leaving", False):
        metadata["deletionTimestamp"] = "2026-07-01T11:00:00Z"
    asked = {"cpu": cpu, "memory": memory}
    if gpus:
        asked["nvidia.com/gpu"] = str(gpus)
    spec["containers"][0]["resources"] = {"requests": asked, "limits": asked}
    spec["priority"] = more.pop("priority", 0)
    if node:
        spec["nodeName"] = node
    pod["status"]["phase"] = phase
    spec.update(more)
    return pod


def make_node(name="n1", *, gpus=8, cpu="64", memory="512Gi", pods="110", labels=None, taints=(), ready=True, **spec):
    """A node without taints, unless said."""
    node = deepcopy(GPU_NODE)
    node["metadata"].update(name=name, uid=f"uid-{name}", labels=labels or {})
    node["spec"] = {"taints": list(taints), **spec}
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    node["status"]["allocatable"] = node["status"]["capacity"] = allocatable
    node["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    return node


JOB = ("batch/v1", "Job", "train", "a1e3")


def make_job_object(parallelism, *, completions=None, mode="Indexed"):
    """A batch Job."""
    completions = parallelism if completions is None else completions
    spec = {"parallelism": parallelism, "completions": completions, "completionMode": mode}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "uid": "a1e3"}, "spec": spec}
