"""Settings of the Kubernetes backend. Frozen; every bound has a name."""

from dataclasses import dataclass
from typing import Final

DEVICE_RESOURCES: Final = (
    "nvidia.com/gpu",
    "nvidia.com/mig-*",
    "amd.com/gpu",
    "google.com/tpu",
    "gpu.intel.com/*",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "huawei.com/Ascend*",
)
"""Extended resources that are devices, as the vendors' device plugins name them."""


DEVICE_DRIVERS: Final = (
    "gpu.*",
    "tpu.google.com",
    "neuron.aws.com",
    "gaudi.intel.com",
    "npu.*",
)
"""Drivers of dynamic resource allocation whose devices are devices; those of others, such as network cards, are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFolder:
    """A folder that every pod of a submitted job sees at the same `path`. claim: of a PersistentVolumeClaim in the
    job's namespace; "" = the folder of that path on each node, such as of a file server. path: "" = there is none."""

    path: str = ""
    claim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """scheduler_name: pods with this `schedulerName` are ours. kubeconfig: its path; empty = the service account of the
    pod that we run in. context: one of the kubeconfig; empty = its current one.

    device_resources: extended resources that are devices, `*` for any end; device_drivers: drivers whose devices, that
    claims give out, are. leaf_labels, block_labels, nvlink_labels:
    node labels that name a node's place in the topology, the first that a node carries counts.
    queues: queue names that Clearway knows; a job whose labels name another lies in the default queue.
    queue_default: that queue. binds_max: bindings and evictions on their way at once.
    replace_ms: how long a gang waits for the pod that takes the place of one that is gone.
    shared: for pods of submitted jobs. log_folder: where their output is collected; "" = nowhere.
    lease: NAMESPACE/NAME of the Lease whose holder decides; "" = there is no other control plane. lease_ms: how long
    others wait before they take it from one that is silent.
    """

    scheduler_name: str = "clearway"
    kubeconfig: str = ""
    context: str = ""
    device_resources: tuple[str, ...] = DEVICE_RESOURCES
    device_drivers: tuple[str, ...] = DEVICE_DRIVERS
    leaf_labels: tuple[str, ...] = ("network.topology.nvidia.com/leaf",)
    block_labels: tuple[str, ...] = ("network.topology.nvidia.com/spine",)
    nvlink_labels: tuple[str, ...] = ("nvidia.com/gpu.clique",)
    queues: tuple[str, ...] = ()
    queue_default: str = "production"
    binds_max: int = 64
    replace_ms: int = 60_000
    shared: SharedFolder = SharedFolder()
    log_folder: str = ""
    lease: str = ""
    lease_ms: int = 15_000
