"""Node lists that come with traces, read as a `ClusterSpec`.

Recognised by their header: openb nodes (`sn,cpu_milli,memory_mib,gpu,model`), Alibaba's spot nodes
(`gpu_model,gpu_capacity_num,cpu_num,node_name`), PAI machines (`machine,gpu_type,cap_cpu,cap_mem,cap_gpu`), Gavel's
`cluster_specs.json`, and the six columns of an SWF `.machines` file. Speeds are all 1.0: none of the lists says how
fast a model is.
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.errors import InputError
from clearway.model.ids import NodeName
from clearway.model.units import DEVICES_PER_MODEL_MAX, GIB, KIB, MIB, MILLI
from clearway.sim.text_files import iterate_lines, open_text, read_head
from clearway.sim.traces.assemble import SkipTally
from clearway.sim.traces.columns import iterate_csv, parse_whole, split_record

OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
SPOT = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")
PAI = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
GAVEL_MODELS = ("V100", "P100", "K80")
"""Order of the counts in Gavel's cluster specs (`scheduler/utils.py`, parse_cluster_spec)."""
GAVEL_DEVICES_PER_NODE = 4
"""GPUs of one server in Gavel's experiments; its cluster specs give totals only."""
PROCESSOR = "processor"

_MACHINES = re.compile(r"\d+\s+\S+\s+\d+\s+\d+\s+[\d.]+\s+\d+\s*$")

CsvNode = Callable[[list[str]], NodeSpec]


def is_inventory(path: str | Path) -> bool:
    """Whether `read_cluster` knows this file, told by its first lines."""
    return _inventory_reader(Path(path)) is not None


def read_cluster(path: str | Path) -> ClusterSpec:
    """Read a node list, in its order. InputError for a kind that is not known, and for a line that is not understood:
    a cluster with nodes missing would answer another question."""
    reader = _inventory_reader(Path(path))
    if reader is None:
        raise InputError(
            f"{path}:1: expected a node list (openb nodes, Alibaba spot nodes, PAI machines, Gavel cluster_specs.json, "
            f"SWF .machines), found another first line; describe the cluster as 64x8:V100 or in a YAML file"
        )
    nodes = tuple(reader(Path(path)))
    if not nodes:
        raise InputError(f"{path}: expected at least one node, found none; check the file")
    return ClusterSpec(nodes=nodes)


def _inventory_reader(path: Path) -> Callable[[Path], Iterable[NodeSpec]] | None:
    head = read_head(path)
    if not head:
        return None
    header = set(split_record(head[0]))
    for columns, make in ((OPENB, _openb_node), (SPOT, _spot_node), (PAI, _pai_node)):
        if header == set(columns):
            return _csv_reader(columns, make)
    if _MACHINES.match(head[0]):
        return _machines_nodes
    return _gavel_nodes if "philly" in "".join(head) and head[0].lstrip().startswith("{") else None


def _csv_reader(columns: tuple[str, ...], make: CsvNode) -> Callable[[Path], Iterable[NodeSpec]]:
    def read(path: Path) -> Iterable[NodeSpec]:
        tally = SkipTally()
        for row in iterate_csv(path, columns, tally):
            try:
                yield make(row.values)
            except ValueError as error:
                raise InputError(f"{path}:{row.line}: expected a node, found {error}; correct the line") from None
        for skipped in tally.finish():
            raise InputError(f"{path}:{skipped.lines[0]}: expected a node, found {skipped.reason}; correct the line")

    return read


def _groups(model: str, count: int) -> tuple[DeviceGroup, ...]:
    if count > DEVICES_PER_MODEL_MAX:
        raise ValueError(f"more than {DEVICES_PER_MODEL_MAX} devices of one model")
    return (DeviceGroup(model=model, count=count),) if count > 0 else ()


def _openb_node(values: list[str]) -> NodeSpec:
    name, cpu, memory, count, model = values
    return NodeSpec(
        name=NodeName(name),
        groups=_groups(model, parse_whole(count)),
        cpu_milli=parse_whole(cpu),
        memory_bytes=parse_whole(memory) * MIB,
    )


def _spot_node(values: list[str]) -> NodeSpec:
    name, model, count, cpus = values
    return NodeSpec(
        name=NodeName(f"node{name}"), groups=_groups(model, parse_whole(count)), cpu_milli=parse_whole(cpus) * MILLI
    )


def _pai_node(values: list[str]) -> NodeSpec:
    name, model, cpus, memory, count = values
    return NodeSpec(
        name=NodeName(name),
        groups=_groups(model, parse_whole(count)),
        cpu_milli=parse_whole(cpus) * MILLI,
        memory_bytes=parse_whole(memory) * GIB,
    )


def _gavel_nodes(path: Path) -> Iterable[NodeSpec]:
    """The first spec of the file, `v100:p100:k80` totals, as nodes of four GPUs (a last one may have fewer)."""
    with open_text(path) as (text, _):
        try:
            totals = [int(part) for part in next(iter(json.load(text).values()))[0].split(":")]
            counts = list(zip(GAVEL_MODELS, totals, strict=True))
        except (ValueError, AttributeError, TypeError, IndexError, StopIteration) as error:
            raise InputError(f'{path}:1: expected {{"philly": ["36:36:36"]}}, found: {error}; check it') from error
    for model, total in counts:
        for first in range(0, total, GAVEL_DEVICES_PER_NODE):
            count = min(GAVEL_DEVICES_PER_NODE, total - first)
            name = NodeName(f"{model.lower()}-{first // GAVEL_DEVICES_PER_NODE:04d}")
            yield NodeSpec(name=name, groups=_groups(model, count))


def _machines_nodes(path: Path) -> Iterable[NodeSpec]:
    """Alea's `.machines`: id, name, nodes, cores a node, speed, memory in KiB a node. One core is one device. A node of
    more cores than one node can have devices becomes equal parts, which changes nothing for one-core replicas."""
    for number, line in iterate_lines(path):
        if not line.strip():
            continue
        if not _MACHINES.match(line):
            raise InputError(f"{path}:{number}: expected id name nodes cores speed memory, found {line.strip()!r}")
        _, name, nodes, cores, _, memory = line.split()
        yield from _machine_parts(name, int(nodes), int(cores), int(memory) * KIB)


def _machine_parts(name: str, nodes: int, cores: int, memory_bytes: int) -> Iterable[NodeSpec]:
    parts = next(
        count for count in range(1, cores + 1) if cores % count == 0 and cores // count <= DEVICES_PER_MODEL_MAX
    )
    for node in range(nodes):
        for part in range(parts):
            suffix = f"-{part}" if parts > 1 else ""
            yield NodeSpec(
                name=NodeName(f"{name}{node:04d}{suffix}"),
                groups=_groups(PROCESSOR, cores // parts),
                memory_bytes=memory_bytes // parts,
            )
