"""The devices of this machine: declared ones, which are names only; `gpus` has the real ones."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from clearway.adapters.local.keeper.device_limits import DeviceFile
from clearway.model.cluster import NodeSpec
from clearway.model.ids import NodeName

DEVICES_DOWN: Final = "devices-down.json"
"""File in the state directory by which declared nodes and devices are made to fail, and come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What may not be used now, with reasons. devices: (node, index within it). foreign: devices that processes of
    others hold; they do not harm a job that runs there already, so that it is left alone."""

    nodes: Mapping[NodeName, str] = field(default_factory=dict)
    devices: Mapping[tuple[NodeName, int], str] = field(default_factory=dict)
    foreign: Mapping[tuple[NodeName, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Confinement:
    """Device files of all GPUs of this machine, and of those of which a job holds something; it may open no others."""

    gpus: tuple[DeviceFile, ...] = ()
    held: tuple[DeviceFile, ...] = ()

    @property
    def is_real(self) -> bool:
        """Whether there is a GPU that the job may not open."""
        return self.gpus != self.held


class DeviceSource(Protocol):
    """Where devices come from."""

    @property
    def is_virtual(self) -> bool:
        """Whether a process holds nothing real by having a device, so that a frozen one may change devices."""
        ...

    def nodes(self) -> tuple[NodeSpec, ...]:
        """The nodes, in a fixed order."""
        ...

    def uuids(self) -> Mapping[tuple[NodeName, int], str]:
        """Of those that have one, by node and index within it."""
        ...

    def visible(self, node: NodeName, indices: Sequence[int], /, *, is_confined: bool = False) -> str:
        """CUDA_VISIBLE_DEVICES for these devices; "" = none. is_confined: the job can open no others."""
        ...

    def confine(self, held: Iterable[tuple[NodeName, int]], /) -> Confinement:
        """What a job may open that holds these devices, as far as it can be kept from others."""
        ...

    def note_obstacle(self, obstacle: str, /) -> tuple[str, ...]:
        """Why jobs cannot be kept from opening devices; "" = they can, as is held of them before. Returns what people
        should know."""
        ...

    def look(self) -> Health:
        """What is down now. Called every second, from one thread; never raises for what the world does."""
        ...

    def cap(self, node: NodeName, watts: int, /) -> str:
        """Limit each device of the node to so many watts; 0 = as much as it may. Returns "", or why that cannot be."""
        ...


class DeclaredDevices:
    """Nodes as a configuration declares them, all on this machine.

    down_file: JSON of what has failed, `{"nodes": ["n1"], "devices": {"n0": [1, 3]}}`; absent = nothing.
    """

    is_virtual = True

    def __init__(self, nodes: Sequence[NodeSpec], down_file: Path) -> None:
        self._nodes = tuple(nodes)
        self._down_file = down_file
        self._last = Health()

    def nodes(self) -> tuple[NodeSpec, ...]:
        """See `DeviceSource.nodes`."""
        return self._nodes

    def uuids(self) -> Mapping[tuple[NodeName, int], str]:
        """None: what is declared has no hardware."""
        return {}

    def visible(self, _node: NodeName, indices: Sequence[int], /, *, is_confined: bool = False) -> str:
        """Indices within the node."""
        del is_confined
        return ",".join(str(index) for index in indices)

    def confine(self, _held: Iterable[tuple[NodeName, int]], /) -> Confinement:
        """Nothing: what is declared has no files."""
        return Confinement()

    def note_obstacle(self, _obstacle: str, /) -> tuple[str, ...]:
        """Nothing is missing here."""
        return ()

    def cap(self, _node: NodeName, _watts: int, /) -> str:
        """Nothing: what is declared draws no power."""
        return ""

    def look(self) -> Health:
        """What the file says. One that is being written, or is wrong, changes nothing."""
        try:
            text = self._down_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            self._last = Health()
            return self._last
        except OSError:
            return self._last
        try:
            self._last = parse_down(text, self._nodes, self._down_file.name)
        except (ValueError, TypeError, AttributeError):
            return self._last
        return self._last


def parse_down(text: str, nodes: Sequence[NodeSpec], source: str = DEVICES_DOWN) -> Health:
    """Of the text of the file `source`; names and indices that do not exist are left out. Raises ValueError."""
    said = json.loads(text)
    counts = {node.name: node.device_count for node in nodes}
    reason = f"declared as failed in {source}"
    return Health(
        nodes={NodeName(name): reason for name in said.get("nodes", ()) if name in counts},
        devices={
            (NodeName(name), index): reason
            for name, indices in said.get("devices", {}).items()
            for index in indices
            if name in counts and isinstance(index, int) and 0 <= index < counts[NodeName(name)]
        },
    )
