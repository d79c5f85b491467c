"""The real devices of this machine: the GPUs and MIG instances that NVML tells of, as devices of a node.

A GPU that cannot be read any more, or that reported an Xid after which only a reset helps, is down; one that a process
of others computes on is avoided. A device keeps its number on the node over restarts, by `devices.json`, also while it
is not there.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from clearway.adapters.local.client import group_name
from clearway.adapters.local.devices import Confinement, Health
from clearway.adapters.local.keeper.device_limits import DeviceFile
from clearway.adapters.local.keeper.processes import is_of_group, read_command
from clearway.adapters.local.nvml import LostReader, Reader, Reading, open_nvml
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.ids import NodeName

_LOG = logging.getLogger(__name__)

FATAL_XIDS: Final = {
    48: "uncorrectable ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    119: "GSP does not answer",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "initialisation failed",
}
"""Xids after which NVIDIA's catalog asks for a reset or for support, not for a restart of the program
(docs.nvidia.com/deploy/xid-errors). Errors of programs, such as 13, 31, 43, 45, 94, are not among them."""
SLOTS: Final = "devices.json"
"""File in the state directory: the devices of the node by their numbers, as they were last seen."""
PASSING: Final = ("pids", "error", "instances")
"""What is so of a device only now, and not kept there."""
LOOKS: Final = 2
"""What was seen so often in a row is believed: a GPU that could be used may fail to answer once, and a process of our
own that is ending is not ours for a moment, when its group is gone already."""
NOT_FOREIGN: Final = ("nvidia-cuda-mps", "nvidia-persiste")
"""Services of the driver that hold every GPU, by the start of their names."""
MAJOR: Final = 195
"""Of the driver's device files: the number that Linux keeps for it."""
MIG_MINORS: Final = Path("/proc/driver/nvidia-caps/mig-minors")
"""Which device file is needed for which MIG instance (docs.nvidia.com/datacenter/tesla/mig-user-guide)."""


def find_gpus(node: NodeSpec, state: Path, *, is_by_uuid: bool = False) -> "NvmlDevices | None":
    """The GPUs of this machine, for the backend in `state`; None = there are none, and there were none before."""
    reader: Reader | None = open_nvml()
    if reader is None and (state / SLOTS).exists():
        reader = LostReader(open_nvml)
    if reader is None:
        return None
    name, files = group_name(state), Path("/proc/devices").read_text(encoding="utf-8")
    return NvmlDevices(
        reader,
        node,
        is_ours=lambda pid: is_of_group(pid, name),
        name_of=read_command,
        is_by_uuid=is_by_uuid,
        memory=state / SLOTS,
        major=find_major(files, "nvidia", "nvidia-frontend") or MAJOR,
        capabilities=read_capabilities(MIG_MINORS, find_major(files, "nvidia-caps")),
    )


def find_major(devices: str, *drivers: str) -> int:
    """Of the device files of a driver by one of these names, by the text of /proc/devices; 0 = there are none."""
    pairs = [line.split() for line in devices.partition("Block devices:")[0].splitlines()]
    return next((int(pair[0]) for pair in pairs if len(pair) == 2 and pair[1] in drivers), 0)


def read_capabilities(minors: Path, major: int) -> Mapping[str, DeviceFile]:
    """The file for each part of a GPU: `gpu0/gi1/access`, by the GPU's own minor number, and `gpu0/gi1/ci0/access`."""
    try:
        pairs = [line.split() for line in minors.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return {}
    return {pair[0]: (major, int(pair[1])) for pair in pairs if major and len(pair) == 2 and pair[1].isdigit()}


class NvmlDevices:
    """The DeviceSource of one machine with GPUs. They are counted once: one added later is used after a restart.

    node: its name, CPUs, memory and place; its groups are filled in. is_ours: whether a process belongs to a job of
    ours. name_of: the name of a process. memory: file by which devices keep their numbers; None = nothing is kept.
    major: of the GPUs' device files. capabilities: see `read_capabilities`.
    """

    is_virtual = False

    def __init__(
        self,
        reader: Reader,
        node: NodeSpec,
        *,
        is_ours: Callable[[int], bool],
        name_of: Callable[[int], str],
        is_by_uuid: bool = False,
        memory: Path | None = None,
        major: int = MAJOR,
        capabilities: Mapping[str, DeviceFile] | None = None,
    ) -> None:
        self._reader = reader
        self._major = major
        self._capabilities = capabilities or {}
        self._is_ours = is_ours
        self._name_of = name_of
        self._is_by_uuid = is_by_uuid
        found = reader.read()
        self._devices = number_devices(found, memory)
        self._node = _make_node(node, self._devices)
        self._has_gaps = has_gaps(found) or {device.uuid for device in self._devices} != {now.uuid for now in found}
        self._broken: dict[str, str] = {}
        self._missed = {reading.uuid: 0 for reading in found if not reading.error}
        self._foreign: dict[str, int] = {}
        self._obstacle = ""

    def nodes(self) -> tuple[NodeSpec, ...]:
        """See `DeviceSource.nodes`."""
        return (self._node,)

    def uuids(self) -> Mapping[tuple[NodeName, int], str]:
        """See `DeviceSource.uuids`."""
        return {(self._node.name, index): device.uuid for index, device in enumerate(self._devices)}

    def visible(self, _node: NodeName, indices: Sequence[int], /, *, is_confined: bool = False) -> str:
        """Indices of GPUs in the order of the PCI bus; UUIDs where asked for, where a GPU was lost or is in MIG mode,
        so that CUDA may count otherwise, and for a job that can open some alone, among which the driver counts anew."""
        chosen = [self._devices[index] for index in indices]
        if self._is_by_uuid or self._has_gaps or is_confined:
            return ",".join(device.uuid for device in chosen)
        return ",".join(str(device.index) for device in chosen)

    def confine(self, held: Iterable[tuple[NodeName, int]], /) -> Confinement:
        """See `DeviceSource.confine`. A GPU stays open for who holds an instance or a share of it, and of its instances
        only those that he holds."""
        if self._obstacle:
            return Confinement()
        minors = self._reader.minors()
        every = {(self._major, minor) for minor in minors.values()}.union(*map(self._files, self._devices))
        own = set[DeviceFile]().union(*(self._files(self._devices[index]) for _, index in held))
        return Confinement(tuple(sorted(every)), tuple(sorted(own)))

    def _files(self, device: Reading) -> set[DeviceFile]:
        """The device files by which it is used, as far as they are known."""
        minor = self._reader.minors().get(device.gpu)
        if minor is None:
            return set()
        parts = [f"gi{number}" if place == 0 else f"ci{number}" for place, number in enumerate(device.instances)]
        names = ["/".join((f"gpu{minor}", *parts[:count], "access")) for count in range(1, len(parts) + 1)]
        return {(self._major, minor), *(self._capabilities[name] for name in names if name in self._capabilities)}

    def note_obstacle(self, obstacle: str, /) -> tuple[str, ...]:
        """See `DeviceSource.note_obstacle`."""
        note = obstacle and (
            f"jobs may open GPUs that are not their own, and are only told which are ({obstacle}); expected a control "
            "plane that runs as root, and cgroup v2 or the controller `devices` of v1"
        )
        if note and obstacle != self._obstacle:
            _LOG.warning("%s", note)
        self._obstacle = obstacle
        return (note,) if note else ()

    def look(self) -> Health:
        """See `DeviceSource.look`."""
        now = {reading.uuid: reading for reading in self._reader.read()}
        self._note_xids(now)
        down: dict[tuple[NodeName, int], str] = {}
        foreign: dict[tuple[NodeName, int], str] = {}
        self._has_gaps = self._has_gaps or has_gaps(tuple(now.values()))
        self._has_gaps = self._has_gaps or not now.keys() >= {device.uuid for device in self._devices}
        for place, device in enumerate(self._devices):
            reading = now.get(device.uuid)
            reason = self._judge(device, reading)
            if reason:
                down[self._node.name, place] = reason
            elif reading is not None and (holder := self._find_foreign(reading)):
                foreign[self._node.name, place] = holder
        return Health(devices=down, foreign=foreign)

    def _judge(self, device: Reading, now: Reading | None) -> str:
        """Why it is down; "" = it is not. One that was not seen since the start is down at once."""
        if device.gpu in self._broken:
            return self._broken[device.gpu]
        if now is not None and not now.error:
            self._missed[device.uuid] = 0
            return ""
        self._missed[device.uuid] = self._missed.get(device.uuid, LOOKS) + 1
        if self._missed[device.uuid] < LOOKS:
            return ""
        what = "is not there any more" if now is None else f"cannot be read: {now.error}"
        return f"GPU {device.index} ({device.uuid}) {what}"

    def _note_xids(self, now: dict[str, Reading]) -> None:
        """A GPU that needs a reset is down until the control plane starts again: nothing tells that it was reset."""
        for uuid, xid in self._reader.take_xids():
            index = next((device.index for device in (*now.values(), *self._devices) if device.gpu == uuid), None)
            if index is not None and xid in FATAL_XIDS:
                self._broken[uuid] = f"GPU {index} ({uuid}) reported Xid {xid}: {FATAL_XIDS[xid]}"

    def cap(self, _node: NodeName, watts: int, /) -> str:
        """See `DeviceSource.cap`."""
        obstacles = [
            self._reader.limit_power(device.index, watts or device.watts) for device in self._devices if device.watts
        ]
        return "; ".join(dict.fromkeys(filter(None, obstacles)))

    def _find_foreign(self, reading: Reading) -> str:
        """Who else computes on it, once that was seen twice; "" = nobody."""
        others = [pid for pid in reading.pids if not self._is_ours(pid)]
        named = [(pid, self._name_of(pid)) for pid in others]
        named = [(pid, name) for pid, name in named if not name.startswith(NOT_FOREIGN)]
        looks = self._foreign[reading.uuid] = self._foreign.get(reading.uuid, 0) + 1 if named else 0
        if looks < LOOKS:
            return ""
        pid, name = named[0]
        return f"in use by pid {pid} ({name or 'unknown'}), which is not of a job"


def has_gaps(found: Sequence[Reading]) -> bool:
    """Whether CUDA may count these otherwise: it passes over GPUs in MIG mode, of which those without instances are
    not among the devices."""
    return any(device.is_mig for device in found) or [device.index for device in found] != list(range(len(found)))


def number_devices(found: Sequence[Reading], memory: Path | None) -> tuple[Reading, ...]:
    """The devices of the node in the order of their numbers, those included that are not there now.

    memory: the file that has the numbers of before; it is written anew. Devices are known by their UUIDs. One that is
    new takes the number of one of its model that is gone; else it comes after all others, if its model does.
    """
    slots = [] if memory is None else _read_slots(memory)
    present = {reading.uuid: reading for reading in found}
    numbered: list[Reading] = [
        replace(present.pop(slot.uuid), watts=slot.watts) if slot.uuid in present else slot for slot in slots
    ]
    there = {reading.uuid for reading in found}
    for fresh in sort_by_model(tuple(present.values())):
        gap = next((n for n, slot in enumerate(numbered) if slot.uuid not in there and slot.model == fresh.model), None)
        if gap is not None:
            numbered[gap] = fresh
        elif not numbered or numbered[-1].model == fresh.model or all(slot.model != fresh.model for slot in numbered):
            numbered.append(fresh)
        else:
            _LOG.warning("device %s (%s) is not used: its model is not the last of the node", fresh.uuid, fresh.model)
    if memory is not None:
        _write_slots(memory, numbered)
    return tuple(numbered)


def _read_slots(memory: Path) -> list[Reading]:
    """What `_write_slots` wrote; nothing, with a warning, where it cannot be read."""
    try:
        slots = [Reading(**{**slot, "pids": ()}) for slot in json.loads(memory.read_text(encoding="utf-8"))]
        if len({slot.uuid for slot in slots}) < len(slots):
            raise ValueError("one device with two numbers")
        return slots
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        _LOG.warning("%s: expected the devices of before, found %s; they are counted anew", memory, error)
        return []


def _write_slots(memory: Path, devices: Sequence[Reading]) -> None:
    memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = memory.with_suffix(".new")
    with open(beside, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        kept = [{name: value for name, value in asdict(device).items() if name not in PASSING} for device in devices]
        json.dump(kept, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(memory)


def sort_by_model(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Devices of one model beside one another, models in order of their first device: as node indices count them."""
    models = list(dict.fromkeys(reading.model for reading in readings))
    return tuple(sorted(readings, key=lambda reading: models.index(reading.model)))


def _make_node(node: NodeSpec, devices: Sequence[Reading]) -> NodeSpec:
    groups = []
    for model in dict.fromkeys(device.model for device in devices):
        equal = [device for device in devices if device.model == model]
        groups.append(
            DeviceGroup(
                model=model,
                count=len(equal),
                memory_bytes=min(device.memory_bytes for device in equal),
                nvlink_size=0 if all(device.has_nvlink for device in equal) else 1,
                watts_max=max(device.watts for device in equal),
            )
        )
    return NodeSpec(
        name=node.name,
        groups=tuple(groups),
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_bytes,
        nvlink=node.nvlink,
        leaf=node.leaf,
        block=node.block,
        labels=node.labels,
    )
