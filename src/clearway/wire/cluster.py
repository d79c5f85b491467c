"""Cluster files (YAML or JSON) and short forms such as `1250x8` or `64x8:V100,32x4:A100`, as a ClusterSpec.

A file lists groups of equal nodes. `name` is a name, or a pattern such as `gpu[001-128]`; with `count` a plain name is
numbered. The topology is either named (`leaf: leaf[1-8]` spreads the group evenly over eight leaves) or counted over
all nodes in order:

    nodes:
      - {name: "gpu[001-128]", gpus: {model: H100, count: 8, memory: 80GB}, cpus: 128, memory: 2TB}
    topology: {leaf_size: 16, block_size: 4}      # 16 nodes a leaf, 4 leaves a block
    links: {nvlink: {bandwidth_gbps: 450, latency_us: 2}}
    power_budget: 500kW
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Self

import pydantic

from clearway.model.cluster import ClusterSpec, DeviceGroup, LinkSpec, NodeSpec
from clearway.model.errors import InputError
from clearway.model.ids import NodeName
from clearway.model.jobs import DomainLevel
from clearway.model.units import DEVICES_PER_MODEL_MAX
from clearway.wire.documents import Document, load_document, parse_document, validate_document
from clearway.wire.problems import NOTHING, ParseError, describe_mismatch
from clearway.wire.ranges import NAMES_MAX, expand_names
from clearway.wire.schema import (
    Count,
    Name,
    NotNegativeNumber,
    Positive,
    PositiveNumber,
    Schema,
    Text,
    convert,
    list_one,
    require_items,
)
from clearway.wire.slurm_values import FEATURE_LABEL
from clearway.wire.units import parse_cpus, parse_devices, parse_memory, parse_power

ANY_MODEL: Final = "gpu"
"""Model of devices whose model nobody named."""

_SHORT_GROUP = re.compile(
    r"([0-9]{1,6})[x×]([0-9]{1,3})"  # nodes x devices
    r"(?::([A-Za-z][\w.+ -]*))?(?::([0-9]+(?:\.[0-9]+)?\s*[KMGT]i?B))?"  # model, memory per device
)

SYNONYMS: Final = {
    **dict.fromkeys(("gpu", "accelerators", "devices"), "gpus"),
    **dict.fromkeys(("cpu", "cores"), "cpus"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("rack", "switch"), "leaf"),
    **dict.fromkeys(("pod", "spine"), "block"),
    **dict.fromkeys(("type", "gpu_model"), "model"),
    "power": "power_budget",
    "bandwidth": "bandwidth_gbps",
    "latency": "latency_us",
}


class DeviceModel(Schema):
    """Devices of one model on a node. memory, watts_max: of each."""

    model: Name = ANY_MODEL
    count: Annotated[int, pydantic.Field(strict=True, ge=1, le=DEVICES_PER_MODEL_MAX)] = 1
    memory: Annotated[int, convert(parse_memory)] = 0
    speed: PositiveNumber = 1.0
    nvlink_size: Count = 0
    watts_max: Annotated[int, convert(parse_power)] = 0


def _read_devices(value: object) -> object:
    """`H100:8`, one mapping, or a list of either, as a list of mappings."""
    items = value if isinstance(value, list) else [value]
    return [_read_device(item) if isinstance(item, str | int) else item for item in items]


def _read_device(item: str | int) -> dict[str, object]:
    asked = parse_devices(item)
    device: dict[str, object] = {"count": asked.count, "model": asked.model or ANY_MODEL}
    if asked.memory_bytes:
        device["memory"] = f"{asked.memory_bytes}B"
    return device


class NodeModel(Schema):
    """A group of equal nodes."""

    name: Name = "node"
    count: Positive | None = None
    gpus: Annotated[tuple[DeviceModel, ...], pydantic.BeforeValidator(_read_devices)] = ()
    cpus: Annotated[int | None, convert(parse_cpus)] = None
    memory: Annotated[int | None, convert(parse_memory)] = None
    nvlink: Text = ""
    leaf: Text = ""
    block: Text = ""
    labels: dict[Name, Text] = pydantic.Field(default_factory=dict)
    features: Annotated[tuple[Name, ...], pydantic.BeforeValidator(list_one)] = ()

    @pydantic.model_validator(mode="after")
    def _check_names(self) -> Self:
        names = self.expand()
        for field in ("nvlink", "leaf", "block"):
            domains = expand_names(getattr(self, field)) if getattr(self, field) else ("",)
            if len(names) % len(domains):
                expected = f"a number of domains that divides the {len(names)} nodes"
                raise ParseError(expected=expected, found=len(domains), hint="split the group of nodes", field=field)
        return self

    @pydantic.model_validator(mode="after")
    def _check_models(self) -> Self:
        models = [device.model for device in self.gpus]
        if len(models) != len(set(models)):
            raise ParseError(expected="each model once", found=models, hint="add up their counts", field="gpus")
        return self

    def expand(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        names = expand_names(self.name)
        if self.count is None or self.count == len(names):
            return names
        if len(names) > 1 or self.count > NAMES_MAX:
            hint = "leave `count` out where `name` is a pattern"
            raise ParseError(expected=f"{len(names)}, as in `name`", found=self.count, hint=hint, field="count")
        width = len(str(self.count))
        return tuple(f"{names[0]}{number:0{width}}" for number in range(1, self.count + 1))


class TopologyModel(Schema):
    """Domains by size, over all nodes in order. nvlink_size, leaf_size: nodes in one. block_size: leaves in one."""

    nvlink_size: Positive | None = None
    leaf_size: Positive | None = None
    block_size: Positive | None = None

    @pydantic.model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.block_size is not None and self.leaf_size is None:
            raise ParseError(expected="`leaf_size`", found=NOTHING, hint="a block is made of leaves", field="leaf_size")
        return self


class LinkModel(Schema):
    """A hop at one level: GB/s per device, microseconds."""

    bandwidth_gbps: PositiveNumber
    latency_us: NotNegativeNumber = 0.0


class ClusterModel(Schema):
    """A cluster file."""

    nodes: Annotated[tuple[NodeModel, ...], pydantic.BeforeValidator(require_items)]
    topology: TopologyModel = TopologyModel()
    links: dict[DomainLevel, LinkModel] = pydantic.Field(default_factory=dict)
    power_budget: Annotated[int | None, convert(parse_power)] = None

    @pydantic.model_validator(mode="after")
    def _check_unique(self) -> Self:
        seen: dict[str, int] = {}
        for group, nodes in enumerate(self.nodes):
            for name in nodes.expand():
                if name in seen:
                    hint = f"it is already in nodes.{seen[name]}"
                    raise ParseError(expected="each node once", found=name, hint=hint, field=f"nodes.{group}")
                seen[name] = group
            if len(seen) > NAMES_MAX:
                raise ParseError(expected=f"at most {NAMES_MAX} nodes", found=len(seen), field="nodes")
        return self


def load_cluster_file(path: Path) -> ClusterSpec:
    """The cluster of the file at `path`. Raises InputError, also where it cannot be read."""
    return _read_cluster(load_document(path))


def parse_cluster_file(text: str, *, source: str) -> ClusterSpec:
    """The cluster of a YAML or JSON file. Raises InputError that lists all errors with lines."""
    return _read_cluster(parse_document(text, source=source))


def _read_cluster(document: Document) -> ClusterSpec:
    return make_cluster(validate_document(document, ClusterModel, synonyms=SYNONYMS))


def make_cluster(model: ClusterModel) -> ClusterSpec:
    """The cluster of a file that was read."""
    nodes: list[NodeSpec] = []
    for group in model.nodes:
        nodes.extend(_make_nodes(group, model.topology, len(nodes)))
    return ClusterSpec(
        nodes=tuple(nodes),
        links=make_links(model.links),
        power_budget_watts=model.power_budget,
    )


def make_links(links: Mapping[DomainLevel, LinkModel]) -> tuple[tuple[str, LinkSpec], ...]:
    """The links of a file that was read, from narrow to wide."""
    return tuple(
        (level.value, LinkSpec(bandwidth_gbps=link.bandwidth_gbps, latency_us=link.latency_us))
        for level, link in sorted(links.items(), key=lambda item: list(DomainLevel).index(item[0]))
    )


def parse_cluster_short(text: str) -> ClusterSpec:
    """`1250x8`, `64x8:V100,32x4:A100:80GB`: nodes × devices, with model and memory per device if known.

    Nodes are called node1, node2, ... CPUs and memory are not counted. Raises InputError.
    """
    expected = "nodes x devices, such as 1250x8 or 64x8:V100,32x4:A100:80GB"
    groups: list[tuple[int, tuple[DeviceGroup, ...]]] = []
    for part in text.split(","):
        match = _SHORT_GROUP.fullmatch(part.strip())
        if match is None or int(match[1]) < 1 or int(match[2]) > DEVICES_PER_MODEL_MAX:
            hint = f"nodes from 1, devices from 0 to {DEVICES_PER_MODEL_MAX}; or the path of a cluster file"
            raise InputError(describe_mismatch(expected, text, hint))
        model, memory, count = match[3] or ANY_MODEL, parse_memory(match[4]) if match[4] else 0, int(match[2])
        devices = (DeviceGroup(model=model, count=count, memory_bytes=memory),) if count else ()
        groups.append((int(match[1]), devices))
    total = sum(count for count, _ in groups)
    if total > NAMES_MAX:
        raise InputError(describe_mismatch(f"at most {NAMES_MAX} nodes", total, "ask for fewer"))
    width = len(str(total))
    each = (devices for count, devices in groups for _ in range(count))
    names = (NodeName(f"node{number:0{width}}") for number in range(1, total + 1))
    return ClusterSpec(
        nodes=tuple(NodeSpec(name=name, groups=devices) for name, devices in zip(names, each, strict=True))
    )


def _make_nodes(group: NodeModel, topology: TopologyModel, first: int) -> Iterator[NodeSpec]:
    """Nodes of a group, the first of which is the `first`-th of the cluster."""
    names = group.expand()
    devices = tuple(_make_devices(device) for device in group.gpus)
    labels = sorted(group.labels.items()) + [(FEATURE_LABEL, feature) for feature in sorted(set(group.features))]
    leaves_per_block = topology.block_size
    block_nodes = topology.leaf_size * leaves_per_block if topology.leaf_size and leaves_per_block else None
    sizes = {"nvlink": topology.nvlink_size, "leaf": topology.leaf_size, "block": block_nodes}
    patterns = {level: getattr(group, level) for level in sizes}
    domains = {level: expand_names(pattern) if pattern else () for level, pattern in patterns.items()}
    for place, name in enumerate(names):
        named = {level: choices[place * len(choices) // len(names)] for level, choices in domains.items() if choices}
        counted = {level: f"{level}{(first + place) // size + 1}" for level, size in sizes.items() if size}
        lies_in = {**counted, **named}
        yield NodeSpec(
            name=NodeName(name),
            groups=devices,
            cpu_milli=group.cpus,
            memory_bytes=group.memory,
            nvlink=lies_in.get("nvlink", ""),
            leaf=lies_in.get("leaf", ""),
            block=lies_in.get("block", ""),
            labels=tuple(labels),
        )


def _make_devices(device: DeviceModel) -> DeviceGroup:
    return DeviceGroup(
        model=device.model,
        count=device.count,
        memory_bytes=device.memory,
        speed=device.speed,
        nvlink_size=device.nvlink_size,
        watts_max=device.watts_max,
    )
