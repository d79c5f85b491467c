"""Which models of devices there are of each resource, and where devices of several resources lie side by side. No I/O.

A pod that asks for a resource may have devices of any of its models; only where a node offers other devices too (MIG
slices beside whole GPUs, devices that claims give out) must the engine be told which models are meant.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

KeyT = TypeVar("KeyT")


class Models:
    """version: another number whenever the answers may be others."""

    def __init__(self) -> None:
        self.version = 0
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

    def named(self, resource: str) -> tuple[str, ...]:
        """The models of the resource, where these must be named; () = any device does."""
        if resource not in self._mixed:
            return ()
        return tuple(sorted(model for one, model in self._counts if one == resource))


def _change(counts: Counter[KeyT], key: KeyT, more: int) -> None:
    counts[key] += more
    if not counts[key]:
        del counts[key]
