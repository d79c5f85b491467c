"""Which models of devices there are of each resource, and where devices of several resources lie side by side. No I/O.

A pod that asks for a resource may have devices of any of its models; only where a node offers other devices too (MIG
slices beside whole GPUs, devices that claims give out) must the engine be told which models are meant.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from clearway.model.cluster import DeviceGroup

log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")

MODELS_MAX: Final = 62
"""Models that the engine can tell apart, from the start of its journal on: it forgets none."""

LEFT_OUT: Final = f"node(s) had devices of one model more than the {MODELS_MAX} that Clearway can tell apart"


class Models:
    """version: another number whenever the answers may be others. left_out: nodes that are told without their devices,
    and the model of these that is one too many."""

    def __init__(self) -> None:
        self.version = 0
        self.left_out: dict[str, str] = {}
        self._known: set[str] = set()
        self._of_node: dict[str, tuple[tuple[str, str], ...]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._mixed: Counter[str] = Counter()

    def put(self, node: str, offers: Iterable[tuple[str, str]]) -> None:
        """The node has devices of these resources and models; resource "" = of none."""
        now, before = tuple(offers), self._of_node.get(node, ())
        if now == before:
            return
        known, mixed = set(self._counts), set(self._mixed)
        self._add(before, -1)
        self._add(now, 1)
        self._of_node[node] = now
        if not now:
            del self._of_node[node]
        if (known, mixed) != (set(self._counts), set(self._mixed)):
            self.version += 1

    def _add(self, offers: tuple[tuple[str, str], ...], more: int) -> None:
        for offer in offers:
            _change(self._counts, offer, more)
            if len(offers) > 1:
                _change(self._mixed, offer[0], more)

    def know(self, models: Iterable[str]) -> None:
        """The engine knows these models already."""
        self._known.update(islice(models, MODELS_MAX))  # by number: it tells no others apart

    def has_room(self, models: Iterable[str]) -> bool:
        """Whether the engine may be told of these models; then it is taken to know them."""
        fresh = set(models) - self._known
        if fresh and len(self._known) + len(fresh) > MODELS_MAX:
            return False
        self._known |= fresh
        return True

    def keep_known(self, models: Iterable[str]) -> tuple[str, ...]:
        """Those of which the engine knows, or may: what no node has needs no number there."""
        offered = {model for _, model in self._counts}
        return tuple(model for model in models if model in self._known or (model in offered and self.has_room([model])))

    def admit(self, node: str, groups: tuple[DeviceGroup, ...]) -> tuple[DeviceGroup, ...]:
        """The devices of a node as the engine is told of them: none at all where these are of a model too many."""
        if self.has_room(group.model for group in groups):
            self.left_out.pop(node, None)
            return groups
        model = next(group.model for group in groups if group.model not in self._known)
        if self.left_out.get(node) != model:
            self.left_out[node] = model
            log.warning(
                "node %s: its devices are left out, its CPUs and memory are used: expected at most %d device models in "
                "one cluster, found one more, %r; give devices that may stand in for one another the same model name",
                node,
                MODELS_MAX,
                model,
            )
        return ()

    def named(self, resource: str) -> tuple[str, ...]:
        """The models of the resource, where these must be named; () = any device does."""
        if resource not in self._mixed:
            return ()
        return tuple(sorted(model for one, model in self._counts if one == resource))


def _change(counts: Counter[KeyT], key: KeyT, more: int) -> None:
    counts[key] += more
    if not counts[key]:
        del counts[key]
