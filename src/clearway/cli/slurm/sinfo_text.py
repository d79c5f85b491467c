"""What `sinfo` prints. Every queue may use every node, so each partition lists all nodes, grouped by state."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from clearway.cli.slurm.columns import Column, parse_long_format, parse_short_format, render_table
from clearway.cli.slurm.values import NODE_STATE_CODES, render_date, render_host_list, render_time_limit
from clearway.model.ids import DEFAULT_QUEUE
from clearway.model.units import MIB, MILLI
from clearway.ports.views import DeviceState, NodeState, NodeView, QueueView

DEFAULT_FORMAT: Final = "%{partition}P %.5a %.10l %.6D %.6t %N"
LONG_FORMAT: Final = "%{partition}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
NODE_FORMAT: Final = "%{node}N %.6D %.{partition}P %6t"
LONG_NODE_FORMAT: Final = "%{node}N %.6D %.{partition}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
SUMMARY_FORMAT: Final = "%{partition}P %.5a %.10l %.16F %N"
REASON_FORMAT: Final = "%20E %9u %19H %N"

_ORDER: Final = (
    NodeState.DOWN,
    NodeState.DRAINED,
    NodeState.DRAINING,
    NodeState.MIXED,
    NodeState.ALLOCATED,
    NodeState.IDLE,
)
"""In which sinfo lists the states of a partition."""
_CAN_RUN: Final = (NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED)


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one line. queue None = no partition is shown."""

    nodes: tuple[NodeView, ...]
    queue: QueueView | None = None

    @property
    def first(self) -> NodeView:
        """The node that stands for all of its kind; a line is about at least one."""
        return self.nodes[0]


def render_sinfo(
    nodes: Sequence[NodeView],
    queues: Sequence[QueueView],
    *,
    now_ms: int,
    zone: datetime.tzinfo | None = None,
    format_short: str = "",
    format_long: str = "",
    has_header: bool = True,
    is_long: bool = False,
    by_node: bool = False,
    is_summary: bool = False,
    are_reasons: bool = False,
) -> str:
    """The table. Raises UsageError for a format that sinfo does not have here."""
    if format_long:
        cells = parse_long_format(format_long, COLUMNS)
    else:
        default = LONG_FORMAT if is_long else DEFAULT_FORMAT
        if by_node:
            default = LONG_NODE_FORMAT if is_long else NODE_FORMAT
        default = SUMMARY_FORMAT if is_summary else REASON_FORMAT if are_reasons else default
        cells = parse_short_format(format_short or _fit_names(default, nodes, queues), COLUMNS)
    groups = _group(nodes, queues, by_state=not is_summary, by_node=by_node, are_reasons=are_reasons)
    head = f"{render_date(now_ms, zone)}\n" if is_long and has_header else ""
    return head + render_table(cells, groups, has_header=has_header)


def _fit_names(text: str, nodes: Sequence[NodeView], queues: Sequence[QueueView]) -> str:
    """The format with columns as wide as the names in them, as sinfo makes them where nobody says how wide."""
    partition = max([9, *(len(_partition(Group((), queue))) for queue in queues)])
    return text.format(partition=partition, node=max([9, *(len(node.name) for node in nodes)]))


def _group(
    nodes: Sequence[NodeView],
    queues: Sequence[QueueView],
    *,
    by_state: bool,
    by_node: bool,
    are_reasons: bool,
) -> list[Group]:
    if are_reasons:
        by_reason: dict[str, list[NodeView]] = {}
        for node in nodes:
            if node.reason:
                by_reason.setdefault(node.reason, []).append(node)
        return [Group(tuple(members)) for members in by_reason.values()]
    if by_node:
        return [Group((node,), queue) for node in nodes for queue in queues]
    if not by_state:
        return [Group(tuple(nodes), queue) for queue in queues if nodes]
    alike = [tuple(node for node in nodes if node.state is state) for state in _ORDER]
    return [Group(members, queue) for queue in queues for members in alike if members]


def _partition(group: Group) -> str:
    if group.queue is None:
        return "N/A"
    return group.queue.name + ("*" if group.queue.name == DEFAULT_QUEUE else "")


def _limit(group: Group) -> str:
    return "N/A" if group.queue is None else render_time_limit(group.queue.limit_max_ms, "infinite")


def _counts(nodes: Sequence[NodeView]) -> str:
    """Allocated, idle, other, total: `A/I/O/T`."""
    allocated = sum(node.state in (NodeState.ALLOCATED, NodeState.MIXED, NodeState.DRAINING) for node in nodes)
    idle = sum(node.state is NodeState.IDLE for node in nodes)
    return f"{allocated}/{idle}/{len(nodes) - allocated - idle}/{len(nodes)}"


def _cpu_counts(nodes: Sequence[NodeView]) -> str:
    used = idle = other = 0
    for node in nodes:
        total = (node.cpu_milli or 0) // MILLI
        taken = ((node.cpu_milli or 0) - (node.cpu_free_milli or 0)) // MILLI
        used += taken
        if node.state in _CAN_RUN:
            idle += total - taken
        else:
            other += total - taken
    return f"{used}/{idle}/{other}/{used + idle + other}"


def gres_of(node: NodeView) -> str:
    """`gpu:H100:8`, models by commas; `(null)` for a node without devices."""
    counts: dict[str, int] = {}
    for device in node.devices:
        counts[device.model] = counts.get(device.model, 0) + 1
    return ",".join(_gres(model, count) for model, count in counts.items()) or "(null)"


def gres_used_of(node: NodeView) -> str:
    """The same of the devices that jobs hold."""
    counts: dict[str, int] = {device.model: 0 for device in node.devices}
    for device in node.devices:
        counts[device.model] += device.state in (DeviceState.USED, DeviceState.SHARED)
    return ",".join(_gres(model, count) for model, count in counts.items()) or "(null)"


def _gres(model: str, count: int) -> str:
    return f"gpu:{count}" if model == "gpu" else f"gpu:{model}:{count}"


def features_of(node: NodeView) -> str:
    """Labels as `key=value` by commas; features of Slurm are labels whose key says so."""
    return ",".join(value if key == "feature" else f"{key}={value}" for key, value in node.labels) or "(null)"


def _range(nodes: Sequence[NodeView], value: Callable[[NodeView], int]) -> str:
    values = {value(node) for node in nodes}
    return f"{min(values)}{'+' if len(values) > 1 else ''}"


COLUMNS: Final[tuple[Column[Group], ...]] = (
    Column("P", ("partition",), "PARTITION", _partition),
    Column("R", ("partitionname",), "PARTITION", lambda group: _partition(group).removesuffix("*")),
    Column("a", ("available",), "AVAIL", lambda _group: "up"),
    Column("l", ("time",), "TIMELIMIT", _limit),
    Column("s", ("size",), "JOB_SIZE", lambda _group: "1-infinite"),
    Column("r", ("root",), "ROOT", lambda _group: "no"),
    Column("h", ("oversubscribe",), "OVERSUBS", lambda _group: "NO"),
    Column("g", ("groups",), "GROUPS", lambda _group: "all"),
    Column("D", ("nodes",), "NODES", lambda group: str(len(group.nodes))),
    Column("F", ("nodeaiot",), "NODES(A/I/O/T)", lambda group: _counts(group.nodes)),
    Column("t", ("statecompact",), "STATE", lambda group: NODE_STATE_CODES[group.first.state]),
    Column("T", ("statelong",), "STATE", lambda group: group.first.state.value),
    Column("N", ("nodelist",), "NODELIST", lambda group: render_host_list(node.name for node in group.nodes)),
    Column("n", ("nodehost",), "HOSTNAMES", lambda group: render_host_list(node.name for node in group.nodes)),
    Column("c", ("cpus",), "CPUS", lambda group: _range(group.nodes, lambda node: (node.cpu_milli or 0) // MILLI)),
    Column("C", ("cpusstate",), "CPUS(A/I/O/T)", lambda group: _cpu_counts(group.nodes)),
    Column("m", ("memory",), "MEMORY", lambda group: _range(group.nodes, lambda node: (node.memory_bytes or 0) // MIB)),
    Column("z", ("socketcorethread",), "S:C:T", lambda group: f"{(group.first.cpu_milli or 0) // MILLI}:1:1"),
    Column("d", ("disk",), "TMP_DISK", lambda _group: "0"),
    Column("w", ("weight",), "WEIGHT", lambda _group: "1"),
    Column("f", ("features",), "AVAIL_FEATURES", lambda group: features_of(group.first)),
    Column("G", ("gres",), "GRES", lambda group: gres_of(group.first)),
    Column("", ("gresused",), "GRES_USED", lambda group: gres_used_of(group.first)),
    Column("E", ("reason",), "REASON", lambda group: group.first.reason or "none"),
    Column("u", ("user",), "USER", lambda _group: "Unknown"),
    Column("H", ("timestamp",), "TIMESTAMP", lambda _group: "Unknown"),
)
