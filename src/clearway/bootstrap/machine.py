"""The devices that a control plane is to use: those that the machine has, or those that the configuration declares."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clearway.adapters.local.devices import DEVICES_DOWN, DeclaredDevices, DeviceSource
from clearway.adapters.local.gpus import find_gpus
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.errors import InputError
from clearway.model.ids import NodeName
from clearway.model.units import DEVICES_PER_MODEL_MAX, MILLI
from clearway.wire.cluster import ANY_MODEL, parse_cluster_short
from clearway.wire.config import Config
from clearway.wire.problems import ParseError
from clearway.wire.units import DeviceRequest, parse_devices

KEEPER_FOLDER: Final = "keeper"
"""Within the state directory: of the local backend."""


def find_devices(config: Config, asked: str, folder: Path) -> DeviceSource:
    """Devices by the command line (`4`, `V100:4`, `2x4:V100`), else the configuration, else the machine's GPUs, else
    as many virtual ones as it has CPUs.

    folder: the state directory. Raises InputError.
    """
    cluster, devices = config.cluster, config.devices
    if asked:
        cluster, devices = _parse_asked(asked)
    if cluster is not None:
        return DeclaredDevices(cluster.nodes, folder / DEVICES_DOWN)
    if devices is not None:
        return DeclaredDevices(_this_machine(devices), folder / DEVICES_DOWN)
    node, is_by_uuid = _this_machine(DeviceRequest(count=0))[0], config.visible_devices == "uuid"
    gpus = find_gpus(node, folder / KEEPER_FOLDER, is_by_uuid=is_by_uuid)
    if gpus is not None:
        return gpus
    cpus = min(os.cpu_count() or 1, DEVICES_PER_MODEL_MAX)
    return DeclaredDevices(_this_machine(DeviceRequest(count=cpus)), folder / DEVICES_DOWN)


def _parse_asked(asked: str) -> tuple[ClusterSpec | None, DeviceRequest | None]:
    head = asked.partition(":")[0]
    if "x" in head and head.replace("x", "").isdigit():
        return parse_cluster_short(asked), None
    try:
        return None, parse_devices(asked)
    except ParseError as error:
        raise InputError(f"--devices: {error}; or nodes x devices, such as 2x4:V100") from error


def _this_machine(devices: DeviceRequest) -> Sequence[NodeSpec]:
    """One node with all of the machine's CPUs and memory, and virtual devices."""
    if devices.count > DEVICES_PER_MODEL_MAX:
        raise InputError(
            f"expected at most {DEVICES_PER_MODEL_MAX} devices of one node, found {devices.count}; declare several "
            "nodes, such as 2x50"
        )
    model = devices.model or ANY_MODEL
    groups = (
        (DeviceGroup(model=model, count=devices.count, memory_bytes=devices.memory_bytes),) if devices.count else ()
    )
    node = NodeSpec(
        name=node_name(),
        groups=groups,
        cpu_milli=(os.cpu_count() or 1) * MILLI,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )
    return (node,)


def node_name() -> NodeName:
    """This machine's name without its domain."""
    return NodeName(socket.gethostname().partition(".")[0] or "localhost")
