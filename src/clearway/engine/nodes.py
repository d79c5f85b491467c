"""Nodes, device models, labels and classes of requests: how names become rows of the tables."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearway.engine.tables import (
    CLASS_COLUMNS,
    CLASS_CPU,
    CLASS_DEVICE_MEM,
    CLASS_DEVICES,
    CLASS_EXCLUSIVE,
    CLASS_LABELS,
    CLASS_LIKED,
    CLASS_MEM,
    CLASS_MODELS,
    CLASS_RULES_BEGIN,
    CLASS_RULES_END,
    CLASS_SHARE,
    CLASS_SOCIAL,
    CLASS_WHEN_EMPTY,
    NONE,
    Table,
    grow_table,
    make_table,
)
from clearway.model.errors import InputError
from clearway.model.jobs import Request

if TYPE_CHECKING:
    from clearway.engine.inventory import Inventory

UNCOUNTED = 1 << 50
"""CPUs (milli) and memory (bytes) of a node that does not say: more than any job asks, far from overflow."""

FABRIC_LABEL = "fabric"

MODELS_MAX = 62
"""Device models in one cluster: a class names the models that it allows in a signed 64-bit mask."""


class Names:
    """Dense numbers for names, in order of first sight. numbers: the same the other way round, for reading."""

    __slots__ = ("names", "numbers")

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = list(names)
        self.numbers = {name: number for number, name in enumerate(names)}

    def number(self, name: str) -> int:
        """The number of a name, a new one if it is new."""
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def find(self, name: str) -> int:
        """The number of a name, NONE if it was never seen."""
        return self.numbers.get(name, NONE)

    def __len__(self) -> int:
        return len(self.names)


class Requirement(NamedTuple):
    """What the node itself must be: labels that it carries, its name (`nodes`, empty = any; `excluded`)."""

    labels: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def is_met(self, name: str, labels: frozenset[tuple[str, str]]) -> bool:
        """Whether a node of this name with these labels will do."""
        if self.nodes and name not in self.nodes:
            return False
        return name not in self.excluded and labels.issuperset(self.labels)


class Eligibility:
    """Which nodes meet which requirements: int64[requirements, nodes]; requirement 0 asks for nothing."""

    __slots__ = ("_labels", "_names", "requirements", "table")

    def __init__(self) -> None:
        self.requirements: dict[Requirement, int] = {Requirement(): 0}
        self._names: list[str] = []
        self._labels: list[frozenset[tuple[str, str]]] = []
        self.table: NDArray[np.int64] = np.ones((1, 1), dtype=np.int64)

    def add_node(self, name: str, labels: tuple[tuple[str, str], ...]) -> None:
        """One more node, with these labels."""
        self._names.append(name)
        self._labels.append(frozenset())
        if len(self._names) > self.table.shape[1]:
            grown = np.ones((self.table.shape[0], 2 * self.table.shape[1]), dtype=np.int64)
            grown[:, : self.table.shape[1]] = self.table
            self.table = grown
        self.set_node(len(self._names) - 1, labels)

    def set_node(self, node: int, labels: tuple[tuple[str, str], ...]) -> None:
        """The node carries these labels now."""
        self._labels[node] = frozenset(labels)
        for wanted, row in self.requirements.items():
            self.table[row, node] = wanted.is_met(self._names[node], self._labels[node])

    def row(self, wanted: Requirement) -> int:
        """The row of a requirement, made at first sight."""
        row = self.requirements.get(wanted)
        if row is None:
            row = self.requirements[wanted] = len(self.requirements)
            line = np.ones((1, self.table.shape[1]), dtype=np.int64)
            for node, labels in enumerate(self._labels):
                line[0, node] = wanted.is_met(self._names[node], labels)
            self.table = np.concatenate([self.table, line])
        return row


class Classes:
    """Equal requests as rows of the CLASS table, shared by all jobs that ask the same. asks_node: one of them asks for
    CPUs or memory."""

    __slots__ = ("_count", "_last", "_users", "asks_node", "numbers", "table")

    def __init__(self) -> None:
        self.numbers: dict[tuple[Request, str], int] = {}
        self.asks_node = False
        self._count = 0
        self._users: dict[int, int] = {}  # jobs of each class that has rules about neighbours, or is in a crowd
        self._last: tuple[Request | None, str, int] = (None, "", NONE)
        self.table: Table = make_table(CLASS_COLUMNS, 16)

    def number(self, request: Request, fabric: str, inventory: "Inventory") -> int:
        """The class of a request on a fabric ("" = any), made at first sight."""
        known, on_fabric, number = self._last
        if request is known and fabric == on_fabric:  # the same object again: nothing to compare
            return number
        number = self._find(request, fabric, inventory)
        self._last = request, fabric, number
        return number

    def use(self, request: Request, fabric: str, inventory: "Inventory", jobs: int) -> None:
        """So many more jobs (−1: one fewer) ask for this: what only their rules about neighbours need lasts as long."""
        if not (request.crowds or request.neighbours or request.extras):
            return
        number = self.numbers[request, fabric]
        self._users[number] = self._users.get(number, 0) + jobs
        inventory.crowds.use(request, jobs)
        if self._users[number] == 0:
            del self._users[number], self.numbers[request, fabric]
            self._last = None, "", NONE

    def _find(self, request: Request, fabric: str, inventory: "Inventory") -> int:
        number = self.numbers.get((request, fabric))
        if number is None:
            number = self.numbers[request, fabric] = self._count
            self._count += 1
            self.table = grow_table(self.table, number + 1)
            self._write(number, request, fabric, inventory)
        return number

    def _write(self, number: int, request: Request, fabric: str, inventory: "Inventory") -> None:
        wanted = request.node_labels
        if fabric:
            wanted = tuple(sorted({*wanted, (FABRIC_LABEL, fabric)}))
        mask = NONE
        if request.device_models:
            mask = 0
            for model in request.device_models:
                mask |= 1 << model_number(inventory.models, model)
        column = self.table[:, number]
        column[CLASS_DEVICES] = request.devices
        column[CLASS_SHARE] = request.share_milli
        column[CLASS_DEVICE_MEM] = request.device_memory_bytes
        column[CLASS_MODELS] = mask
        self.asks_node = self.asks_node or request.cpu_milli > 0 or request.memory_bytes > 0
        column[CLASS_CPU] = request.cpu_milli
        column[CLASS_MEM] = request.memory_bytes
        column[CLASS_LABELS] = inventory.eligibility.row(Requirement(wanted, request.nodes, request.nodes_excluded))
        column[CLASS_EXCLUSIVE] = request.exclusive
        column[CLASS_WHEN_EMPTY] = NONE
        column[CLASS_SOCIAL] = bool(request.crowds or request.neighbours or request.extras or request.liked)
        column[CLASS_RULES_BEGIN], column[CLASS_RULES_END] = inventory.crowds.add_class(request)
        column[CLASS_LIKED] = inventory.crowds.liked_row(request.liked) if request.liked else NONE


def model_number(models: Names, model: str) -> int:
    """The number of a device model; there is room for `MODELS_MAX` of them in a mask."""
    number = models.number(model)
    if number >= MODELS_MAX:
        raise InputError(
            f"device model {model!r}: expected at most {MODELS_MAX} different device models in one cluster, "
            f"found one more; give devices that may stand in for one another the same model name"
        )
    return number
